"""Columns that are made from fields of the source."""

import csv
import json
import pathlib

import numpy
import pytest

import feedwater as fw
from feedwater import ops

RESIZE = [ops.Resize(width=8, height=6)]


@pytest.fixture
def table(folder, tmp_path):
    """A table of six images with a caption, a score, boxes and a label."""
    paths = sorted(folder.rglob("*.ppm"))[:6]
    with open(tmp_path / "train.csv", "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["path", "caption", "score", "boxes", "label"])
        for number, path in enumerate(paths):
            (tmp_path / f"{number}.ppm").write_bytes(path.read_bytes())
            boxes = [[number, 0, side, 1.5] for side in range(number)]
            rows.writerow([f"{number}.ppm", f'a "caption",\nno. {number} é', number / 4, json.dumps(boxes), number])
    return tmp_path / "train.csv"


COLUMNS = {
    "caption": fw.text(),
    "score": fw.array("f32"),
    "boxes": fw.list_("f32", shape=(4,), max_len=10),
    "number": fw.array(numpy.int64, field="label"),
    "raw": fw.bytes_("label"),
}


def check(batch, seen):
    """Checks every column of a batch against its labels."""
    for place, label in enumerate(batch["label"].tolist()):
        assert batch["caption"][place] == f'a "caption",\nno. {label} é'
        assert batch["score"][place] == label / 4 and batch["number"][place] == label
        assert batch["boxes"][place].tolist() == [[label, 0, side, 1.5] for side in range(label)]
        assert batch["raw"][place] == str(label).encode()
        seen.append(label)


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_a_loop_yields_dictionaries_of_columns(table, framework):
    if framework == "torch":
        pytest.importorskip("torch")
    loader = fw.Loader(table, RESIZE, batch_size=4, framework=framework, columns=COLUMNS, drop_last=False, shuffle=True, epochs=2, device="cpu")
    check(loader.peek(), [])
    for _ in range(2):
        seen = []
        for batch in loader:
            assert list(batch) == ["image", "label", *COLUMNS]
            assert batch["image"].shape[1:] == (3, 6, 8) and len(batch["boxes"]) == len(batch["image"])
            assert str(batch["number"].dtype).endswith("int64") and type(batch["boxes"].values) is type(batch["image"])
            check(batch, seen)
        assert sorted(seen) == list(range(6))


def test_a_batch_has_its_columns_and_their_names(table):
    with fw.Loader(table, RESIZE, batch_size=6, framework="batch", columns=COLUMNS, device="cpu") as loader:
        batch = next(iter(loader))
    assert batch.columns == list(COLUMNS)
    boxes = batch.column("boxes")
    assert len(boxes) == 6 and boxes.offsets.tolist() == [0, 0, 1, 3, 6, 10, 15] and boxes.values.shape == (15, 4)
    assert [len(entry) for entry in boxes] == list(range(6)) and len(boxes[-1]) == 5 and [len(it) for it in boxes[1:3]] == [1, 2]
    with pytest.raises(KeyError, match="captions"):
        batch.column("captions")
    # Columns stay available after the tensor is exported.
    batch.numpy()
    assert batch.column("score").tolist() == [number / 4 for number in range(6)]


def test_values_that_do_not_fit_are_errors_or_counted(table):
    with pytest.raises(fw.errors.SampleError, match='the field "caption".*the column takes i64'):
        next(iter(fw.Loader(table, RESIZE, columns={"n": fw.array("i64", field="caption")}, batch_size=6, device="cpu", framework="numpy")))
    short = {"caption": fw.text(max_len=4, too_long="truncate")}
    with fw.Loader(table, RESIZE, columns=short, batch_size=6, device="cpu", framework="numpy") as loader:
        assert next(iter(loader))["caption"] == ['a "c'] * 6
        assert loader.stats["truncated"] == {"caption": 6}


def test_wrong_columns_are_errors_that_name_the_column(table):
    for columns, error, words in (
        ({"captoin": fw.text()}, fw.errors.ConfigError, r"^columns\['captoin'\]\.name: .*path, caption, score, boxes, label; did you mean caption\?"),
        ({"score": fw.array(), "a": fw.text("captions")}, fw.errors.ConfigError, r"^columns\['a'\]\.field: .*did you mean caption\?"),
        ({"image": fw.text("caption")}, fw.errors.ConfigError, r"columns\['image'\]\.name: .*name of another column"),
        ({"column[0].dtype": fw.array(shape=0)}, fw.errors.ConfigError, r"columns\['column\[0\]\.dtype'\]\.shape: "),
        ({f"c{number}": fw.array() for number in range(80)}, fw.errors.ConfigError, r"columns: has 80 entries.*shape = \[3\]"),
        ({"score": "f32"}, TypeError, r"fw\.array"),
        ({"score": fw.array}, TypeError, r"did you mean fw\.array\(\)"),
        ({1: fw.text()}, TypeError, "must be a text"),
        ([("score", fw.text())], TypeError, "dictionary"),
        ({"score": fw.array("f32", default="x")}, fw.errors.ConfigError, r"columns\['score'\]\.default: "),
    ):
        with pytest.raises(error, match=words) as raised:
            fw.Loader(table, RESIZE, columns=columns, device="cpu", framework="numpy")
        if isinstance(raised.value, fw.errors.ConfigError):
            assert raised.value.key.startswith("column")
    with pytest.raises(TypeError, match="max_len"):
        fw.text(max_length=3)
    for dtype in (numpy.float64, "f64", "int32"):
        with pytest.raises(ValueError, match="dtype is .*it is one of f32"):
            fw.array(dtype)
    for default in (b"a", pathlib.Path("a")):
        with pytest.raises(TypeError, match="default is .*must be a number, a text or a list"):
            fw.bytes_(default=default)


def test_columns_without_any_column_are_dictionaries_too(table):
    for columns, names in (({}, ["image", "label"]), (None, None)):
        batch = next(iter(fw.Loader(table, RESIZE, batch_size=6, framework="numpy", columns=columns, device="cpu")))
        assert (list(batch) if names else type(batch)) == (names or tuple)
    soft = fw.Loader(table, RESIZE, batch_size=6, framework="numpy", columns={"n": fw.array("i64", field="label")}, classes=6, device="cpu")
    batch = next(iter(soft))
    assert list(batch) == ["image", "label", "target", "n"] and batch["target"].shape == (6, 6)
    assert batch["label"].tolist() == batch["n"].tolist() == list(range(6))


def test_samples_that_are_too_long_are_replaced_and_reported(table, caplog):
    columns = {"boxes": fw.list_(shape=4, max_len=2, too_long="skip")}
    with fw.Loader(table, RESIZE, batch_size=6, framework="numpy", columns=columns, on_error="drop", device="cpu", epochs=1) as loader:
        (batch,) = list(loader)
        assert max(len(boxes) for boxes in batch["boxes"]) == 2 and len(batch["label"]) == 6
        assert loader.stats["errors"]["too_long"] >= 3
    (record,) = caplog.records
    assert "replaced by other samples" in record.getMessage() and "too_long" in record.getMessage()


def test_lists_of_a_batch_are_a_sequence():
    lists = fw.Ragged(numpy.arange(5), numpy.array([0, 2, 2, 5]))
    assert lists.tolist() == [[0, 1], [], [2, 3, 4]] and lists[-1].tolist() == [2, 3, 4] and len(lists) == 3
    with pytest.raises(IndexError, match="the index is 3, but there are 3 samples"):
        lists[3]
    with pytest.raises(TypeError, match="a number or a slice"):
        lists[[0, 1]]


def test_columns_have_a_representation_and_equality():
    assert repr(fw.text("a", max_len=3)) == "fw.text(field='a', max_len=3)"
    assert repr(fw.list_(numpy.float32, shape=2)) == "fw.list_(dtype='f32', shape=[2])"
    assert fw.array("i64") == fw.array(numpy.int64) != fw.array("f32")
    assert len({fw.array("i64"), fw.array(numpy.int64)}) == 1


def test_a_pipeline_file_with_columns_yields_dictionaries(table, tmp_path):
    (tmp_path / "p.toml").write_text(
        'source = {list = "train.csv"}\n[loader]\nbatch_size = 6\n[[column]]\nname = "caption"\nkind = "text"\n'
        '[[chain]]\nop = "resize"\nwidth = 8\nheight = 6\n'
    )
    batch = next(iter(fw.Loader.from_toml(tmp_path / "p.toml", framework="numpy")))
    assert list(batch) == ["image", "label", "caption"] and batch["caption"][0].endswith("no. 0 é")


def test_jax_gets_arrays(table):
    pytest.importorskip("jax")
    batch = next(iter(fw.Loader(table, RESIZE, batch_size=6, framework="jax", columns={"score": fw.array()}, device="cpu")))
    assert batch["score"].tolist() == [number / 4 for number in range(6)]


class Records:
    """Items that are dictionaries."""

    def __init__(self, paths, wrong=()):
        self.paths = paths
        self.wrong = dict(wrong)
        self.asked = []

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        self.asked.append(index)
        item = {
            "image": self.paths[index].read_bytes() if index % 2 else self.paths[index],
            "label": index,
            "caption": f"no. {index}",
            "raw": bytes([index]),
            "score": numpy.float32(index / 4),
            "count": index,
            "box": numpy.arange(4, dtype=numpy.float64).reshape(2, 2) + index,
            "tags": list(range(index)),
            "points": numpy.full((index, 2), index, dtype=numpy.int32),
            "meta": {"sizes": [{"w": index}]},
        }
        return {**item, **self.wrong}


RECORD_COLUMNS = {
    "caption": fw.text(),
    "raw": fw.bytes_(),
    "score": fw.array("f32"),
    "count": fw.array("i64"),
    "box": fw.array("f32", shape=(2, 2)),
    "tags": fw.list_("i64"),
    "points": fw.list_("f32", shape=2),
    "width": fw.array("i64", field="meta:sizes[0].w"),
}


@pytest.mark.parametrize("cache", [None, fw.Cache(encoded=1 << 20)])
def test_items_of_a_sequence_may_be_dictionaries(folder, cache):
    items = Records(sorted(folder.rglob("*.ppm"))[:6])
    settings = {} if cache is None else {"cache": cache}
    loader = fw.Loader(
        fw.samples(items), RESIZE, batch_size=4, framework="numpy", columns=RECORD_COLUMNS, drop_last=False, shuffle=True, epochs=3, device="cpu", **settings
    )
    seen = []
    for _ in range(3):
        for batch in loader:
            for place, index in enumerate(batch["label"].tolist()):
                assert batch["caption"][place] == f"no. {index}" and batch["raw"][place] == bytes([index])
                assert batch["score"][place] == index / 4 and batch["count"][place] == index == batch["width"][place]
                assert batch["box"][place].tolist() == [[index, index + 1], [index + 2, index + 3]]
                assert batch["tags"][place].tolist() == list(range(index))
                assert batch["points"][place].tolist() == [[index, index]] * index
                seen.append(index)
    assert sorted(seen) == sorted(list(range(6)) * 3)
    if cache is None:
        # An item is requested once for its image and its fields. While the loader is built, some items are requested up to twice more.
        assert len(items.asked) < 2 * len(seen)


@pytest.mark.parametrize(
    ("wrong", "column", "words"),
    [
        ({"caption": None}, fw.text(), "is missing; set a default"),
        ({"caption": 3}, fw.text(), "the value is the number 3"),
        ({"caption": numpy.zeros((2, 3))}, fw.array("f32", shape=(3, 2)), r"an array of shape \[2, 3\]"),
        ({"caption": numpy.array([2**63], dtype=numpy.uint64)}, fw.list_("i64"), "9223372036854775808 is not between .* so the column of i64 cannot hold it"),
        ({"caption": numpy.zeros(2, dtype=complex)}, fw.list_("i64"), "an array of complex128"),
        ({"caption": [float("nan")]}, fw.list_("f32"), "not JSON compliant|Out of range float"),
        ({"caption": object()}, fw.text(), "is of the type object; it must be a number"),
        ({"caption": "x" * 3000}, fw.text(), "has 3000 bytes; limits.max_field_bytes is 2000"),
        ({"image": 3}, fw.text(), "the image of an item is a"),
        ({"image": {"bytes": None, "path": None}}, fw.text(), "dictionary in which neither .bytes. nor .path. has a usable value"),
        ({"image": {"bytes": "x", "path": "x"}}, fw.text(), "dictionary in which neither"),
    ],
)
def test_wrong_values_of_an_item_are_errors_of_the_sample(folder, wrong, column, words):
    items = Records(sorted(folder.rglob("*.ppm"))[:2], wrong)
    with pytest.raises(fw.Error, match=words):
        list(fw.Loader(fw.samples(items), RESIZE, batch_size=2, columns={"caption": column}, limits=fw.Limits(max_field_bytes=2000), framework="numpy", epochs=1, device="cpu"))


def test_the_image_of_an_item_may_be_a_dictionary_of_hugging_face(folder):
    paths = sorted(folder.rglob("*.ppm"))[:4]
    images = [{"bytes": paths[0].read_bytes(), "path": None}, {"bytes": None, "path": str(paths[1])}, {"bytes": paths[2].read_bytes(), "path": "gone.ppm"}]
    items = [{"image": image, "label": place, "caption": f"no. {place}"} for place, image in enumerate([*images, str(paths[3])])]
    settings = {"batch_size": 4, "framework": "numpy", "epochs": 1, "device": "cpu"}
    batch = next(iter(fw.Loader(fw.samples(items), RESIZE, columns={"caption": fw.text()}, **settings)))
    plain, labels = next(iter(fw.Loader(fw.samples(paths), RESIZE, **settings)))
    numpy.testing.assert_array_equal(batch["image"], plain)
    assert batch["label"].tolist() == [0, 1, 2, 3] and batch["caption"] == [f"no. {place}" for place in range(4)]
    tuples = fw.samples([(image, place) for place, image in enumerate(images)])
    numpy.testing.assert_array_equal(next(iter(fw.Loader(tuples, RESIZE, **{**settings, "batch_size": 3})))[0], plain[:3])


def test_fields_may_be_dictionaries_of_hugging_face(tmp_path):
    def mask(value):
        return b"P5 2 2 255\n" + bytes([value] * 4)

    image = b"P6 2 2 255\n" + bytes(12)
    (tmp_path / "mask.pgm").write_bytes(mask(2))
    fields = [
        {"bytes": mask(1), "path": None},
        {"bytes": None, "path": str(tmp_path / "mask.pgm")},
        {"bytes": None, "path": tmp_path / "mask.pgm"},
        {"path": "gone.pgm", "bytes": bytearray(mask(3))},
        {"bytes": None, "path": None},
    ]
    items = [{"image": image, "mask": it, "depth": it, "file": {"bytes": place, "path": "a"}} for place, it in enumerate(fields)]
    crop = [ops.Crop(width=2, height=2)]
    columns = {"mask": fw.mask(default=9), "raw": fw.bytes_("depth", default=""), "size": fw.array("i64", field="file:bytes")}
    batch = fw.Loader(fw.samples(items), crop, columns=columns, batch_size=5, framework="numpy", device="cpu").peek()
    assert batch["mask"][:, 0, 0].tolist() == [1, 2, 2, 3, 9] and batch["size"].tolist() == [0, 1, 2, 3, 4]
    assert batch["raw"] == [mask(1), mask(2), mask(2), mask(3), b""]
    second = {"depth": fw.image("depth", crop)}
    batch = fw.Loader(fw.samples(items[:4]), crop, columns=second, batch_size=4, framework="numpy", dtype="u8", device="cpu").peek()
    assert batch["depth"][:, 0, 0, 0].tolist() == [1, 2, 2, 3]
    (tmp_path / "large.pgm").write_bytes(mask(2).ljust(3000))
    for path, words in (
        (tmp_path / "large.pgm", "the field 'mask' has 3000 bytes; limits.max_field_bytes is 2000; raise it"),
        (tmp_path / "gone.pgm", "the field 'mask': .*gone.pgm: No such file"),
        (tmp_path, "the field 'mask': .*not a regular file but a"),
    ):
        wrong = fw.samples([{"image": image, "mask": {"bytes": None, "path": str(path)}}])
        with pytest.raises(fw.errors.SampleError, match=words.replace("'", '"')):
            fw.Loader(wrong, crop, columns={"mask": fw.mask()}, limits={"max_field_bytes": 2000}, batch_size=1, framework="numpy", device="cpu").peek()


@pytest.mark.parametrize(
    ("value", "way_out"),
    [
        ([float("nan")], "; for a list with NaN or infinity give an array of NumPy"),
        ({"a": [1, float("inf")]}, "; for a list with NaN or infinity give an array of NumPy"),
        ({"data": b"\xff"}, "; bytes in it must be UTF-8: give others as a field of their own"),
        ("itself", ""),
    ],
)
def test_the_way_out_of_a_value_that_json_cannot_represent_fits_the_reason(value, way_out):
    if value == "itself":
        value = []
        value.append(value)
    items = [{"image": b"P6 2 2 255\n" + bytes(12), "v": value}]
    with pytest.raises(fw.errors.Error, match="has a value that JSON cannot represent") as error:
        fw.Loader(fw.samples(items), [ops.Crop(width=2, height=2)], columns={"v": fw.bytes_()}, batch_size=1, framework="numpy", device="cpu").peek()
    found = str(error.value)
    ways = ("NaN or infinity give an array", "must be UTF-8")
    assert way_out in found and [way in found for way in ways] == [way in way_out for way in ways]


def test_lists_and_dictionaries_may_have_values_of_numpy_and_bytes():
    image = b"P6 2 2 255\n" + bytes(12)
    boxes = [numpy.array([1.0, 1.0, 5.0, 5.0]), [numpy.float32(2.5), 2, numpy.int64(3), 4]]
    items = [{"image": image, "v": [numpy.int64(1), numpy.int32(2)], "a": {"b": numpy.arange(3.0)}, "boxes": boxes, "words": [b"a", "\u00e9"]}]
    columns = {"v": fw.list_("i64"), "b": fw.list_(field="a:b"), "boxes": fw.list_(shape=4), "words": fw.texts()}
    batch = fw.Loader(fw.samples(items), [ops.Resize(width=2, height=2)], columns=columns, batch_size=1, framework="numpy", device="cpu").peek()
    assert batch["v"][0].tolist() == [1, 2] and batch["b"][0].tolist() == [0, 1, 2] and batch["words"] == [["a", "\u00e9"]]
    assert batch["boxes"][0].tolist() == [[1, 1, 5, 5], [2.5, 2, 3, 4]]
    items[0]["v"] = [object()]
    with pytest.raises(fw.errors.Error, match="of the type object is neither a number"):
        fw.Loader(fw.samples(items), [ops.Resize(width=2, height=2)], columns=columns, batch_size=1, framework="numpy", device="cpu").peek()


def test_items_without_fields_cannot_have_columns(folder):
    paths = sorted(folder.rglob("*.ppm"))[:2]
    for items in (paths, [(path, 0) for path in paths], [{"image": path, "label": 0} for path in paths]):
        with pytest.raises(fw.errors.ConfigError, match=r"columns\['caption'\].*no fields besides image and label.*dictionaries, such as .*fw\.parquet"):
            fw.Loader(fw.samples(items), RESIZE, columns={"caption": fw.text()}, framework="numpy", device="cpu")


def test_a_list_in_a_column_of_texts_is_explained(folder):
    items = [{"image": path, "captions": ["a", "b"]} for path in sorted(folder.rglob("*.ppm"))[:2]]
    settings = {"batch_size": 2, "framework": "numpy", "epochs": 1, "device": "cpu"}
    with pytest.raises(fw.errors.SampleError, match=r'takes a text; for all texts.*fw\.texts.*pick.*set field = "captions:\[0\]"'):
        next(iter(fw.Loader(fw.samples(items), RESIZE, columns={"captions": fw.text()}, **settings)))
    batch = next(iter(fw.Loader(fw.samples(items), RESIZE, columns={"caption": fw.text("captions:[0]")}, **settings)))
    assert batch["caption"] == ["a", "a"]


def test_a_dictionary_needs_an_image(folder):
    class Items(list):
        def __getitem__(self, index):
            return {"picture": b""}

    with pytest.raises(fw.Error, match='without the key "image"'):
        list(fw.Loader(fw.samples(Items([0, 1])), RESIZE, batch_size=2, framework="numpy", epochs=1, device="cpu"))


def test_an_item_that_fails_is_an_error_of_its_sample(folder):
    paths = sorted(folder.rglob("*.ppm"))[:6]

    class Items(list):
        def __getitem__(self, index):
            if index in self:
                raise OSError(f"row {index} is broken")
            return {"image": paths[index], "caption": f"no. {index}"}

        def __len__(self):
            return 6

    def loader(*failing, **settings):
        settings = {"batch_size": 2, "framework": "numpy", "device": "cpu", "drop_last": False, **settings}
        return fw.Loader(fw.samples(Items(failing)), RESIZE, columns={"caption": fw.text()}, **settings)

    captions = [caption for batch in loader(0, on_error="drop") for caption in batch["caption"]]
    assert captions == [f"no. {index}" for index in range(1, 6)]
    for failing in ([0], range(6)):
        with pytest.raises(fw.errors.SampleError, match="row 0 is broken") as error:
            list(loader(*failing))
        assert isinstance(error.value.__cause__, OSError)


def test_a_missing_side_file_is_named_and_parts_may_lack_a_field(folder, tmp_path):
    paths = sorted(folder.rglob("*.ppm"))[:2]
    captions = tmp_path / "captions"
    captions.mkdir()
    for number, path in enumerate(paths):
        (captions / f"{number}.ppm").write_bytes(path.read_bytes())
    (captions / "0.txt").write_text("a caption")

    source = fw.directory(captions, side_files={"caption": "{stem}.txt"})
    settings = {"batch_size": 2, "framework": "numpy", "device": "cpu", "drop_last": False}
    with pytest.raises(fw.errors.SampleError, match=r"is missing: .*1\.txt does not exist; set a default"):
        list(fw.Loader(source, RESIZE, columns={"caption": fw.text()}, **settings))
    both = fw.concat(source, fw.directory(next(folder.iterdir())))
    with pytest.raises(fw.errors.ConfigError, match="set a default to accept its samples"):
        fw.Loader(both, RESIZE, columns={"caption": fw.text()}, **settings)
    texts = [it for batch in fw.Loader(both, RESIZE, columns={"caption": fw.text(default="")}, **settings) for it in batch["caption"]]
    assert texts[:2] == ["a caption", ""] and len(texts) > 3 and set(texts[2:]) == {""}


def test_an_item_that_is_read_in_two_steps_belongs_to_its_fields(folder):
    """A file that has grown since the loader was built is read again with a larger limit."""
    image = sorted(folder.rglob("*.ppm"))[0].read_bytes()

    class Items:
        def __init__(self):
            self.calls = 0

        def __len__(self):
            return 8

        def __getitem__(self, index):
            self.calls += 1
            return {"image": image + bytes(self.calls // 8 * 50), "call": self.calls, "label": self.calls}

    loader = fw.Loader(
        fw.samples(Items()), RESIZE, batch_size=4, framework="numpy", columns={"call": fw.array("i64")}, epochs=4, num_workers=1, device="cpu"
    )
    calls = [(call, label) for _ in range(4) for batch in loader for call, label in zip(batch["call"].tolist(), batch["label"].tolist())]
    assert len(calls) == 32 and all(call == label for call, label in calls)


def test_a_joined_table_has_further_columns(table, tmp_path):
    (tmp_path / "scores.csv").write_text("id,stars\n" + "".join(f"{number},{number * 10}\n" for number in (5, 3, 1)))
    scores = fw.file_list(tmp_path / "scores.csv")
    columns = {"stars": fw.array("i64", default=-1), "caption": fw.text()}
    source = fw.file_list(table).join(scores, other_key="id")
    with fw.Loader(source, RESIZE, batch_size=6, epochs=1, framework="numpy", columns=columns, device="cpu") as loader:
        (batch,) = list(loader)
    assert list(batch["stars"]) == [-1, 10, -1, 30, -1, 50]
    assert len(batch["caption"]) == 6

    # A selection before the join and one after it, and a second join.
    dropped = fw.file_list(table).select(skip=2).join(scores, other_key="id", missing="drop").join(scores, other_key="id", prefix="b.")
    columns["again"] = fw.array("i64", field="b.stars")
    with fw.Loader(dropped.select(take=1), RESIZE, batch_size=1, epochs=1, framework="numpy", columns=columns, device="cpu") as loader:
        assert len(loader.dataset) == 1
        (batch,) = list(loader)
    assert list(batch["stars"]) == list(batch["again"]) == [30]

    with pytest.raises(fw.errors.ConfigError, match="source.join"):
        fw.Loader(fw.file_list(table).join(fw.file_list(table)), RESIZE, batch_size=6, framework="numpy", device="cpu")
    with pytest.raises(TypeError, match="other_key"):
        fw.file_list(table).join(scores, otherkey="id")
    with pytest.raises(TypeError, match="fw.directory"):
        fw.file_list(table).join("scores.csv")


def test_items_in_python_are_joined(table, tmp_path):
    paths = [table.parent / f"{number}.ppm" for number in range(6)]
    items = fw.samples([{"image": str(path), "label": 0, "id": number} for number, path in enumerate(paths)])
    more = fw.samples([{"image": b"", "label": 0, "id": str(number), "name": f"no. {number}"} for number in reversed(range(6))])
    source = items.join(more, key="id")
    with fw.Loader(source, RESIZE, batch_size=6, epochs=1, framework="numpy", columns={"name": fw.text()}, device="cpu") as loader:
        (batch,) = list(loader)
    assert batch["name"] == [f"no. {number}" for number in range(6)]


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_columns_of_numbers_share_their_memory(table, dtype):
    """Values and offsets are tensors on the memory of the batch, with the numbers that `column` copies."""
    torch = pytest.importorskip("torch")
    columns = {**COLUMNS, "score": fw.array(dtype)}
    with fw.Loader(table, RESIZE, batch_size=6, framework="batch", columns=columns, device="cpu") as loader:
        batch = next(iter(loader))
    copied = {name: batch.column(name, "torch") for name in ("score", "boxes", "number")}
    # Each tensor is exported once. Later calls share the first array.
    offsets = batch.offsets("boxes").torch()
    values = batch.values("boxes").torch()
    assert offsets.dtype == torch.int64 and offsets.tolist() == copied["boxes"].offsets.tolist() == [0, 0, 1, 3, 6, 10, 15]
    assert values.shape == (15, 4) and torch.equal(values, copied["boxes"].values)
    assert batch.offsets("boxes").torch().data_ptr() == offsets.data_ptr() and values.data_ptr() % 256 == 0
    for name in ("score", "number"):
        assert torch.equal(torch.from_dlpack(batch.values(name)), copied[name])
    # The images and the copies stay available.
    assert batch.values("image").torch().shape == (6, 3, 6, 8) and torch.equal(batch.column("boxes", "torch").values, values)
    with pytest.raises(KeyError, match="no column of lists, points or boxes with the name 'score'.*are 'boxes'"):
        batch.offsets("score")
    with pytest.raises(KeyError, match="no column of numbers with the name 'caption'"):
        batch.values("caption")


def test_run_lengths_share_their_memory():
    """Run lengths have two levels of offsets on the memory of the batch."""
    outlines = ["[]", "[null, [[1, 1, 5, 1, 5, 5]]]", "[[[0, 0, 8, 0, 8, 6, 0, 6]]]"]
    items = [{"image": b"P6 8 6 255\n" + bytes(144), "label": 0, "outlines": text} for text in outlines]
    columns = {"runs": fw.runs("outlines")}
    with fw.Loader(fw.samples(items), RESIZE, batch_size=3, framework="batch", columns=columns, device="cpu") as loader:
        batch = next(iter(loader))
    lists = batch.column("runs").tolist()
    offsets, begins, values = (of("runs").numpy() for of in (batch.offsets, batch.list_offsets, batch.values))
    assert offsets.tolist() == [0, 0, 2, 3] and begins.shape == (4,) and begins[-1] == len(values)
    for sample, runs in enumerate(lists):
        objects = range(offsets[sample], offsets[sample + 1])
        assert runs == [values[begins[it] : begins[it + 1]].tolist() for it in objects]
    assert numpy.from_dlpack(batch.list_offsets("runs")).ctypes.data == begins.ctypes.data
    assert lists[1][0] == [48] and values.sum() == 3 * 48
    with pytest.raises(KeyError, match="no column of run lengths with the name 'label'.*are 'runs'"):
        batch.list_offsets("label")


def test_offsets_are_arrays_of_numpy(table):
    with fw.Loader(table, RESIZE, batch_size=6, framework="batch", columns=COLUMNS, device="cpu") as loader:
        batch = next(iter(loader))
    copy = batch.offsets("boxes").host_copy()
    boxes = fw.Ragged(batch.values("boxes").numpy(), batch.offsets("boxes").numpy())
    assert copy.tolist() == boxes.offsets.tolist() and boxes[5].tolist() == batch.column("boxes")[5].tolist()
    assert numpy.from_dlpack(batch.offsets("boxes")).ctypes.data == boxes.offsets.ctypes.data
