"""Tests of data sets of other libraries as sources."""

import types

import feedwater as fw
import numpy
import pytest
from conftest import pixels_of

SAME = [fw.ops.Crop(width=12, height=8)]
AS_THEY_ARE = {"transform": SAME, "dtype": "u8", "layout": "nhwc", "framework": "numpy", "batch_size": 20}


class Folder:
    """A class with the attributes of torchvision's `ImageFolder`."""

    def __init__(self, folder, transform=None, target_transform=None):
        paths = sorted(folder.glob("*/*.ppm"))
        self.classes = ["cat", "dog"]
        self.samples = [(str(path), self.classes.index(path.parent.name)) for path in paths]
        self.transform, self.target_transform = transform, target_transform

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        raise AssertionError("decoded in Python")


def batch_of(source):
    loader = fw.Loader(source, **AS_THEY_ARE)
    images, labels = next(iter(loader))
    return images, labels.tolist(), loader.classes


def test_a_folder_of_torchvision(folder):
    images, labels, classes = batch_of(Folder(folder))
    numpy.testing.assert_array_equal(images, [pixels_of(index) for index in range(20)])
    assert labels == [0] * 10 + [1] * 10 and classes == ["cat", "dog"]
    images, labels, classes = batch_of(Folder(folder, target_transform=lambda label: 7 - label))
    assert labels == [7] * 10 + [6] * 10 and classes == []
    with pytest.raises(ValueError, match="from_torchvision"):
        fw.Loader(Folder(folder, transform=numpy.asarray), **AS_THEY_ARE)


def test_a_part_of_a_folder(folder):
    part = types.SimpleNamespace(dataset=Folder(folder), indices=[15, 2] * 10)
    images, labels, _ = batch_of(part)
    numpy.testing.assert_array_equal(images[:2], [pixels_of(15), pixels_of(2)])
    assert labels == [1, 0] * 10


def test_folders_and_parts_of_the_libraries_themselves(folder):
    datasets = pytest.importorskip("torchvision.datasets")
    data = pytest.importorskip("torch.utils.data")
    whole = datasets.ImageFolder(folder)
    images, labels, classes = batch_of(whole)
    numpy.testing.assert_array_equal(images, [numpy.asarray(image) for image, _ in whole])
    assert labels == whole.targets and classes == whole.classes

    class Flipped(data.Subset):
        def __getitem__(self, index):
            return super().__getitem__(index)[0].transpose(0), 0

        def __getitems__(self, indices):
            return [self[index] for index in indices]

    with pytest.raises(ValueError, match="Flipped has a __getitem__ of its own"):
        fw.dataset(Flipped(whole, [0]))
    # The indices of nested parts count from the part around them, also from its end.
    outer = data.Subset(data.Subset(whole, range(19, 4, -1)), [0, -1, 7])
    images, labels, classes = batch_of(data.Subset(outer, numpy.array([2, 1, 0, -2] * 5)))
    numpy.testing.assert_array_equal(images[:4], [pixels_of(index) for index in (12, 5, 19, 5)])
    assert labels == [1, 0, 1, 0] * 5 and classes == whole.classes
    for index in (3, -4):
        with pytest.raises(IndexError, match=f"Subset has the index {index}, but the Subset in it has 3 samples"):
            fw.dataset(data.Subset(outer, [index]))
    with pytest.raises(ValueError, match="Flipped has a __getitem__ of its own"):
        fw.dataset(data.Subset(Flipped(whole, [0]), [0]))
    first, _ = data.random_split(whole, [20, 0])
    images, labels, _ = batch_of(first)
    numpy.testing.assert_array_equal(images, [numpy.asarray(image) for image, _ in first])
    assert labels == [label for _, label in first]


def test_a_table_of_hugging_face(folder):
    datasets = pytest.importorskip("datasets")
    paths = sorted(folder.glob("*/*.ppm"))
    features = datasets.Features(
        {
            "photo": datasets.Image(),
            "kind": datasets.ClassLabel(names=["cat", "dog"]),
            "count": datasets.Value("int64"),
        }
    )
    rows = {
        # Half of the rows have the bytes of an image, the other half the path of a file.
        "photo": [{"bytes": path.read_bytes(), "path": None} if index % 2 else str(path) for index, path in enumerate(paths)],
        "kind": [int(path.parent.name == "dog") for path in paths],
        "count": list(range(20)),
    }
    table = datasets.Dataset.from_dict(rows, features=features)
    for source in (table, table.with_format("numpy"), fw.dataset(table, image="photo")):
        images, labels, classes = batch_of(source)
        numpy.testing.assert_array_equal(images, [pixels_of(index) for index in range(20)])
        assert labels == rows["kind"] and classes == ["cat", "dog"]
    assert batch_of(fw.dataset(table, label="count"))[1] == list(range(20))
    for arguments, problem in (({"image": "none"}, "columns photo, kind, count"), ({"image": "kind"}, "must be datasets.Image")):
        with pytest.raises(ValueError, match=problem):
            fw.dataset(table, **arguments)
    part = types.SimpleNamespace(dataset=types.SimpleNamespace(dataset=table, indices=[5, 15, 9]), indices=[1, 0] * 10)
    images, labels, classes = batch_of(fw.dataset(part, image="photo"))
    numpy.testing.assert_array_equal(images[:2], [pixels_of(15), pixels_of(5)])
    assert labels == [1, 0] * 10 and classes == ["cat", "dog"]
    with pytest.raises(ValueError, match="0 columns of the type Image"):
        fw.dataset(table.remove_columns("photo"))
    with pytest.raises(ValueError, match="set_transform"):
        fw.dataset(table.with_transform(lambda rows: rows))


def test_rows_of_hugging_face_are_items(folder):
    datasets = pytest.importorskip("datasets")
    paths = sorted(folder.glob("*/*.ppm"))
    rows = {"image": [{"bytes": path.read_bytes(), "path": None} for path in paths], "caption": [path.stem for path in paths]}
    table = datasets.Dataset.from_dict(rows, features=datasets.Features({"image": datasets.Image(decode=False), "caption": datasets.Value("string")}))
    columns = {"caption": fw.text()}
    settings = {"batch_size": 20, "framework": "numpy", "device": "cpu", "epochs": 1}
    batch = next(iter(fw.Loader(fw.samples(table), SAME, columns=columns, dtype="u8", layout="nhwc", **settings)))
    numpy.testing.assert_array_equal(batch["image"], [pixels_of(index) for index in range(20)])
    assert batch["caption"] == rows["caption"]
    for source in (table, fw.dataset(table)):
        with pytest.raises(fw.errors.ConfigError, match=r"columns\['caption'\].*fw\.samples.*fw\.parquet"):
            fw.Loader(source, SAME, columns=columns, **settings)


def test_a_stream_of_hugging_face_is_named(folder):
    datasets = pytest.importorskip("datasets")
    path = next(folder.glob("*/*.ppm"))
    features = datasets.Features({"image": datasets.Image()})
    stream = datasets.Dataset.from_dict({"image": [str(path)] * 4}, features=features).to_iterable_dataset()
    for make in (fw.dataset, lambda source: fw.Loader(source, SAME)):
        with pytest.raises(TypeError, match=r"source is a IterableDataset, .*without streaming=True.*fw\.parquet"):
            make(stream)
    with pytest.raises(TypeError, match="(?s)items is IterableDataset.*it must be a sequence"):
        fw.samples(stream)


def test_other_objects_are_named():
    for source in (5, [b""], object(), {"a": 1}):
        with pytest.raises(TypeError, match="source is a"):
            fw.Loader(source, SAME, framework="numpy")
