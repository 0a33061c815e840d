"""Tests of Python sequences in combinations: they are selected, concatenated and mixed, and several are in one pipeline."""

import gc
import pickle
import subprocess
import sys
import weakref

import feedwater as fw
import numpy
import pytest
from conftest import pixels_of, write_image

SAME = [fw.ops.Crop(width=12, height=8)]
RANDOM = [fw.ops.RandomResizedCrop(width=6, height=4), fw.ops.Flip(horizontal=0.5)]


class Pairs:
    """A sequence of the images of a folder, as bytes or paths, with their labels."""

    def __init__(self, folder, as_bytes):
        self.paths = sorted(folder.glob("*/*.ppm"))
        classes = sorted({path.parent.name for path in self.paths})
        self.labels = [classes.index(path.parent.name) for path in self.paths]
        self.as_bytes = as_bytes

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        path = self.paths[index]
        return path.read_bytes() if self.as_bytes else path, self.labels[index]


@pytest.fixture
def second(tmp_path):
    """A folder of 5 images in two classes. The fixture `folder` has one of these classes too."""
    for index in range(5):
        name = tmp_path / "second" / ("cow" if index < 3 else "dog") / f"{index:02}.ppm"
        name.parent.mkdir(parents=True, exist_ok=True)
        write_image(name, pixels_of(100 + index))
    return tmp_path / "second"


COMBINATIONS = {
    "selected": lambda a, b: a.select(classes=["dog"], skip=2, repeat=2),
    "listed": lambda a, b: a.select(subset=[19, 0, 3, 3]),
    "mixture": lambda a, b: fw.mixture(a, b, weights=[3, 1], samples=31),
    "concat": lambda a, b: fw.concat(b, a.select(labels=[0], take=4)).select(skip=1),
    "twice": lambda a, b: fw.concat(a.select(take=3), a, b, a.select(skip=15)),
    "nested": lambda a, b: fw.mixture(fw.concat(a, b).select(repeat=2), fw.mixture(b, fw.concat(b, a)), weights=[2, 0.5]).select(take=40),
}


def loaded(source, chain=RANDOM, **settings):
    """Returns index, label and image of each sample of two epochs."""
    found = []
    given = {"batch_size": 4, "shuffle": True, "seed": 5, "last_batch": "partial", "framework": "batch", **settings}
    with fw.Loader(source, chain, **given) as loader:
        for _ in range(2):
            for batch in loader:
                found += zip(batch.indices, batch.labels, (image.tobytes() for image in batch.numpy()))
    return found


@pytest.mark.parametrize("as_bytes", [True, False], ids=["bytes", "paths"])
@pytest.mark.parametrize("combine", COMBINATIONS.values(), ids=COMBINATIONS)
def test_a_sequence_equals_its_folder_in_every_combination(folder, second, combine, as_bytes):
    expected = loaded(combine(fw.directory(folder), fw.directory(second)))
    first = fw.samples(Pairs(folder, as_bytes), classes=["cat", "dog"])
    assert loaded(combine(first, fw.directory(second))) == expected
    other = fw.samples(Pairs(second, as_bytes), classes=["cow", "dog"])
    assert loaded(combine(first, other)) == expected
    labelled = fw.samples(Pairs(folder, as_bytes).paths, Pairs(folder, as_bytes).labels, classes=["cat", "dog"])
    assert loaded(combine(labelled, other)) == expected


def test_the_position_continues_in_a_mixture(folder, second):
    def built(**settings):
        source = fw.mixture(fw.samples(Pairs(folder, True), classes=["cat", "dog"]), fw.directory(second), weights=[2, 1])
        return fw.Loader(source, RANDOM, framework="batch", last_batch="partial", **settings)

    with built(batch_size=4, shuffle=True, seed=5) as loader:
        whole = [(index, image.tobytes()) for batch in loader for index, image in zip(batch.indices, batch.numpy())]
    with built(batch_size=4, shuffle=True, seed=5) as loader:
        for _, _ in zip(range(3), loader.batches()):
            pass
        state = loader.state_dict()
    with built(batch_size=5) as loader:
        loader.load_state_dict(state)
        rest = [(index, image.tobytes()) for batch in loader for index, image in zip(batch.indices, batch.numpy())]
    assert rest == whole[12:]


class Captioned:
    """A sequence of images with fields. Image 2 cannot be read."""

    def __init__(self, name, count):
        self.name = name
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if index == 2:
            raise LookupError("no image 2")
        return b"P6 12 8 255\n" + pixels_of(index).tobytes(), index % 2, f"{self.name} {index}"


@pytest.mark.parametrize("cache", [None, {"decoded": "1 MiB"}], ids=["read", "cached"])
def test_samples_have_the_fields_of_their_own_sequence(folder, cache):
    sea, city = fw.samples(Captioned("sea", 12)), fw.samples(Captioned("city", 9))
    plain = fw.samples([path.read_bytes() for path in sorted(folder.glob("*/*.ppm"))])
    parts = [sea.select(subset=[0, 5, 5, 7, 8]), plain, city.select(skip=3), sea.select(skip=6)]
    expected = [f"sea {index}" for index in (0, 5, 5, 7, 8)] + [None] * 20
    expected += [f"city {index}" for index in range(3, 9)] + [f"sea {index}" for index in range(6, 12)]
    source = fw.concat(*parts, fw.directory(folder / "cat"))
    expected += [None] * 10
    loader = fw.Loader(source, SAME, batch_size=4, last_batch="pad", framework="batch", seed=1, shuffle=True, cache=cache)
    for _ in range(3):
        seen = []
        for batch in loader:
            assert batch.fields == [expected[index] for index in batch.indices]
            seen += batch.indices
        assert set(seen) == set(range(len(expected)))


def test_a_source_without_a_sequence_has_no_fields(folder):
    joined = fw.concat(fw.directory(folder), fw.directory(folder))
    assert next(fw.Loader(joined, SAME, batch_size=2, framework="batch").batches()).fields is None


@pytest.mark.parametrize("policy", ["skip", "substitute"])
def test_an_item_that_cannot_be_read_has_no_fields(folder, policy):
    # No part has class names, so all labels are unchanged.
    source = fw.concat(fw.directory(folder / "cat"), fw.samples(Captioned("sea", 4)))
    loader = fw.Loader(source, SAME, batch_size=7, on_error=policy, last_batch="partial", framework="batch")
    batches = list(loader.batches())
    pairs = [pair for batch in batches for pair in zip(batch.indices, batch.fields, strict=True)]
    known = {10: "sea 0", 11: "sea 1", 13: "sea 3"}
    assert all(fields == known.get(index) for index, fields in pairs)
    assert (12 in dict(pairs)) == (policy == "substitute") and dict(pairs)[13] == "sea 3"
    [(failed, message)] = [error for batch in batches for error in batch.errors]
    assert failed == 12 and "samples[2]" in message and "no image 2" in message


class Note:
    """A field that supports weak references, so that the test can check whether it was freed."""

    def __init__(self, index):
        self.index = index


@pytest.mark.parametrize("policy", ["skip", "substitute"])
def test_fields_of_samples_that_fail_are_not_kept(policy):
    notes = weakref.WeakSet()

    class Damaged(Captioned):
        def __getitem__(self, index):
            image, label, _ = super().__getitem__(index)
            note = Note(index)
            notes.add(note)
            return image[: len(image) // (1 + (index % 3 == 1))], label, note

    source = fw.samples(Damaged("sea", 40))
    failed = set()
    with fw.Loader(source, SAME, batch_size=4, epochs=1, last_batch="partial", on_error=policy, framework="batch", num_workers=2) as loader:
        for batch in loader.batches():
            failed.update(index for index, _ in batch.errors)
            assert all(note is None or note.index == index for index, note in zip(batch.indices, batch.fields, strict=True))
        del batch
        gc.collect()
        assert failed == {2, *range(1, 40, 3)} and len(notes) == 0
    assert len(notes) == 0


def test_sequences_are_told_apart(folder):
    first, second = fw.samples(Captioned("sea", 12)), fw.samples(Captioned("city", 9))
    source = fw.concat(first, second, first, fw.directory(folder / "cat"))
    with fw.Loader(source, SAME, batch_size=4, on_error="skip", framework="batch") as loader:
        assert [loader.location(index) for index in (0, 12, 21)] == ["samples[0]", "samples2[0]", "samples[0]"]
        assert loader.location(33).endswith("00.ppm") and loader.samples == 43
        assert sum(1 for _ in loader) > 2
        assert "Crop" in loader.plan() and str(loader.report())
    with pytest.raises(fw.errors.SampleError, match=r"samples2\[2\].*no image 2"):
        for _ in fw.Loader(fw.concat(first.select(take=2), second), SAME, batch_size=1, framework="batch"):
            pass
    located = fw.Loader(fw.concat(first, second).select(location="samples2[*"), SAME, batch_size=3, on_error="skip", framework="batch")
    assert next(located.batches()).fields[0] == "city 0" and located.samples == 9


def test_the_pipeline_file_names_sequences_which_from_toml_takes(folder, second, tmp_path):
    sequences = [fw.samples(Pairs(folder, True), classes=["cat", "dog"]), fw.samples(Pairs(second, False), classes=["cow", "dog"])]
    source = fw.mixture(sequences[0], fw.concat(fw.directory(second), sequences[1]), weights=[1, 3])
    settings = {"batch_size": 4, "seed": 5, "shuffle": True, "framework": "numpy"}
    loader = fw.Loader(source, RANDOM, **settings)
    file = tmp_path / "pipeline.toml"
    file.write_text(loader.settings())
    assert 'own = "samples"\n' in file.read_text() and 'own = "samples2"\n' in file.read_text()
    again = fw.Loader.from_toml(file, framework="numpy", own={"samples2": sequences[1], "samples": sequences[0]})
    for (images, labels), (others, other_labels) in zip(loader, again, strict=True):
        numpy.testing.assert_array_equal(images, others)
        numpy.testing.assert_array_equal(labels, other_labels)
    assert again.settings() == loader.settings()

    with pytest.raises(fw.errors.ConfigError, match=r'pipeline.toml:\d+:\d+: source.mixture\[1\].concat\[1\].own: is "samples2"'):
        fw.Loader.from_toml(file, framework="numpy", own={"samples": sequences[0]})
    with pytest.raises(fw.errors.ConfigError, match='own = "third"'):
        fw.Loader.from_toml(file, framework="numpy", own={"samples": sequences[0], "samples2": sequences[1], "third": sequences[1]})
    with pytest.raises(TypeError, match=r"own\['samples'\] is a list"):
        fw.Loader.from_toml(file, framework="numpy", own={"samples": [b""]})
    ran = subprocess.run([sys.executable, "-m", "feedwater", "plan", str(file)], capture_output=True, text=True, timeout=120)
    assert ran.returncode != 0 and 'own: is "samples"' in ran.stderr and "program" in ran.stderr


def test_wrong_parts_are_named(folder):
    first, second = fw.samples([b"a"]), fw.samples([b"b"], [1, 2])
    with pytest.raises(fw.errors.ConfigError, match="samples2.labels: has 2 labels for 1 items"):
        fw.Loader(fw.concat(first, second), SAME, framework="numpy")
    with pytest.raises(fw.errors.ConfigError, match="samples.items: is empty"):
        fw.Loader(fw.mixture(fw.samples([]), fw.directory(folder)), SAME, framework="numpy")
    with pytest.raises(fw.errors.ConfigError, match="source.mixture: source 0 has class names but source 1 has none"):
        fw.Loader(fw.mixture(fw.directory(folder), first), SAME, framework="numpy")
    with pytest.raises(fw.errors.ConfigError, match=r"source.concat\[1\].filter.classes\[0\]: is cat"):
        fw.Loader(fw.concat(fw.directory(folder), fw.samples([b"a"], classes=["dog"]).select(classes=["cat"])), SAME, framework="numpy")
    with pytest.raises(fw.errors.ConfigError, match=r"source.mixture\[1\].weight"):
        fw.Loader(fw.mixture(fw.directory(folder), first, weights=[1, 0]), SAME, framework="numpy")
    with pytest.raises(ValueError, match="take is already set for this source"):
        first.select(take=1).select(take=1)
    for combine in (fw.concat, fw.mixture):
        with pytest.raises(TypeError, match="combine is a str"):
            combine(first, str(folder))
        with pytest.raises(TypeError, match="combine is a list"):
            combine([b"a"], first)


def test_a_combination_can_be_shown_and_pickled(folder):
    source = fw.mixture(fw.samples(Pairs(folder, True), classes=["cat", "dog"]).select(take=7), fw.directory(folder))
    assert '{"own" = "samples", "take" = 7' in repr(source)
    assert loaded(pickle.loads(pickle.dumps(source))) == loaded(source)


def test_an_iterable_data_set_of_pytorch_has_a_combination(folder, second):
    torch = pytest.importorskip("torch")
    source = fw.concat(fw.samples(Pairs(folder, True), classes=["cat", "dog"]), fw.directory(second))
    loader = fw.Loader(source, SAME, batch_size=5)
    data_set = torch.utils.data.DataLoader(fw.integrations.torch_dataset(loader), batch_size=None)
    labels = torch.cat([labels for _, labels in data_set])
    assert labels.tolist() == [0] * 10 + [1] * 10 + [2] * 3 + [1] * 2
