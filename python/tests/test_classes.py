"""Tests of class numbers that training and validation sets share."""

import json
import shutil

import pytest

import feedwater as fw

CHAIN = [fw.ops.Resize(width=8, height=12)]


def loader(source, **settings):
    return fw.Loader(source, CHAIN, framework="numpy", device="cpu", num_workers=1, batch_size=4, last_batch="partial", **settings)


def labels(loader):
    return [int(label) for _, targets in loader for label in targets]


@pytest.fixture
def without_cat(folder, tmp_path):
    """A list file with two images of the second class, dog."""
    path = tmp_path / "val.csv"
    path.write_text("path,label\n" + "".join(f"{folder}/dog/{index}.ppm,dog\n" for index in (10, 11)))
    return path


def test_a_validation_set_without_a_class_has_the_numbers_of_the_training_set(folder, without_cat):
    with loader(without_cat, epochs=1) as alone:
        assert labels(alone) == [0, 0]
    with loader(folder) as train:
        state = json.loads(json.dumps(train.state_dict()))
        assert train.classes == state["classes"] == ["cat", "dog"]
        for classes_of in (train, state, train.classes):
            with loader(without_cat, epochs=1, classes_of=classes_of) as val:
                assert (val.classes, labels(val)) == (["cat", "dog"], [1, 1])
    for table in (["cat", "dog"], {"cat": 0, "dog": 1}):
        with loader(fw.file_list(without_cat).with_classes(table), epochs=1) as val:
            assert labels(val) == [1, 1]
    with loader(fw.directory(folder).with_classes({"dog": 0, "cat": 1}).select(classes=["dog"]), epochs=1) as val:
        assert labels(val) == [0] * 10


def test_a_file_of_names_is_relative_to_the_working_directory(without_cat, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "classes.txt").write_text("cat\ndog\n")
    with loader(fw.file_list("val.csv").with_classes("classes.txt"), epochs=1) as val:
        assert (labels(val), val.classes) == ([1, 1], ["cat", "dog"])


def test_other_classes_are_left_out_with_a_warning(folder):
    shutil.copytree(folder / "dog", folder / "eel")
    with loader(folder, epochs=1, classes_of=["cat", "dog"]) as val:
        assert labels(val) == [0] * 10 + [1] * 10
        [warning] = [text for text in val.warnings if "eel" in text]
        assert "10 samples" in warning
        assert sum(item["count"] for item in val.stats["excluded"]) == 10


def test_a_sequence_with_names_has_the_numbers_of_a_table(folder):
    asked = []

    class Items:
        def __len__(self):
            return 4

        def __getitem__(self, index):
            asked.append(index)
            return folder / "dog" / f"1{index}.ppm", index % 2

    source = fw.samples(Items(), classes=["dog", "cat"])
    with loader(source, epochs=1, classes_of=["cat", "dog"]) as val:
        assert labels(val) == [1, 0, 1, 0]
    asked.clear()
    with loader(fw.samples(Items()), epochs=1, classes_of=["cat", "dog"]) as val:
        assert labels(val) == [0, 1, 0, 1]
    assert len(asked) <= 8, "no item must be read only for its label"


def test_a_state_of_other_classes_is_an_error_that_names_them(folder, without_cat):
    with loader(folder) as train:
        state = train.state_dict()
        (folder / "cat").rename(folder / "ant")
        with loader(folder) as other, pytest.raises(fw.errors.ConfigError, match="class 0 was 'cat' and is 'ant'"):
            other.load_state_dict(state)
        # Checkpoints of earlier versions contain no class names.
        del state["classes"], state["state"]["classes"]
        train.load_state_dict(state)


def test_what_is_no_table_is_an_error(folder, without_cat):
    with loader(fw.samples([folder / "dog" / "10.ppm"])) as nameless, pytest.raises(ValueError, match="no class names"):
        loader(without_cat, classes_of=nameless)
    with pytest.raises(TypeError, match="with_classes"):
        loader(without_cat, classes_of="classes.txt")
    with pytest.raises(TypeError, match="int"):
        loader(without_cat, classes_of=3)
    with pytest.raises(fw.errors.ConfigError, match=r"source\.classes"):
        loader(without_cat, classes_of=["x", "y"])
    with pytest.raises(ValueError, match="already"):
        fw.file_list(without_cat).with_classes(["a"]).with_classes(["b"])
