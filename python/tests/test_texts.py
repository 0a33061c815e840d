"""Columns of several texts, of one of several texts, and of arrays in ``.npz`` archives."""

import copy
import io
import json
import pickle

import numpy
import pytest

import feedwater as fw
from feedwater import ops

RESIZE = [ops.Resize(width=8, height=6)]


def items_with_captions(folder, count=6):
    """Items in dictionaries, of which item ``n`` has ``n`` captions."""
    paths = sorted(folder.rglob("*.ppm"))[:count]
    return [{"image": path, "label": number, "captions": [f"{number} {text} é" for text in range(number)]} for number, path in enumerate(paths)]


@pytest.mark.parametrize("framework", ["numpy", "torch", "batch"])
def test_several_texts_are_lists_of_lists(folder, framework):
    if framework == "torch":
        pytest.importorskip("torch")
    items = items_with_captions(folder)
    columns = {"all": fw.texts("captions", max_texts=8), "again": fw.texts("captions")}
    loader = fw.Loader(fw.samples(items), RESIZE, columns=columns, batch_size=4, framework=framework, drop_last=False, epochs=1, device="cpu")
    # A batch that is copied out of the loader has them too.
    peeked = loader.peek()
    assert (peeked.column("all") if framework == "batch" else peeked["all"]) == [item["captions"] for item in items[:4]]
    found = []
    for batch in loader:
        if framework == "batch":
            # Columns stay available after the tensor is exported.
            batch.numpy()
            found += batch.column("all")
            assert batch.column("again") == batch.column("all")
        else:
            found += batch["all"]
            assert batch["again"] == batch["all"]
    assert found == [item["captions"] for item in items]


def test_arrays_of_texts_are_like_lists(folder):
    texts = [["a", "é \u2602"], ["one"], [""], []]
    paths = sorted(folder.rglob("*.ppm"))[: len(texts)]
    types = ["U", object, numpy.dtypes.StringDType()] if hasattr(numpy.dtypes, "StringDType") else ["U", object]
    columns = {"all": fw.texts("captions"), "one": fw.text("captions", pick="random", default="none")}

    def read(values, **more):
        items = [{"image": path, "captions": value} for path, value in zip(paths, values, strict=True)]
        loader = fw.Loader(fw.samples(items), RESIZE, columns={**columns, **more}, batch_size=len(items), framework="numpy", seed=3, epochs=1, device="cpu")
        (batch,) = loader
        return batch

    expected = read(texts)
    assert expected["all"] == texts
    for kind in types:
        batch = read([numpy.array(value, kind) for value in texts])
        assert batch["all"] == texts and batch["one"] == expected["one"]
    # One element of such an array, and an array without axes, are one text.
    single = read([numpy.array(["b", "c"])[0], numpy.array("d"), numpy.array("e", object), "f"], single=fw.text("captions"))
    assert single["single"] == ["b", "d", "e", "f"]
    with pytest.raises(fw.errors.Error, match="an array of object has no numbers"):
        read([numpy.array(["a", None], object)] * 4)
    with pytest.raises(fw.errors.SampleError, match=r"an array of str.* has no numbers.*array.tolist\(\)"):
        next(iter(fw.Loader(fw.samples([numpy.array(["a"])]), RESIZE, batch_size=1, framework="numpy")))


def test_texts_that_do_not_fit_are_errors_or_counted(folder):
    items = items_with_captions(folder)
    settings = {"batch_size": 6, "framework": "numpy", "epochs": 1, "device": "cpu"}
    with pytest.raises(fw.errors.SampleError, match=r"has 3 texts, and the column's max_texts is 2 texts; raise max_texts"):
        next(iter(fw.Loader(fw.samples(items), RESIZE, columns={"captions": fw.texts(max_texts=2)}, **settings)))
    with pytest.raises(fw.errors.SampleError, match=r"has 12 bytes, and the column's max_len is 10 bytes; raise max_len"):
        next(iter(fw.Loader(fw.samples(items), RESIZE, columns={"captions": fw.texts(max_len=10)}, **settings)))
    short = {"captions": fw.texts(max_len=10, too_long="truncate")}
    with fw.Loader(fw.samples(items), RESIZE, columns=short, **settings) as loader:
        assert [len(texts) for texts in next(iter(loader))["captions"]] == [0, 1, 2, 2, 2, 2]
        assert loader.stats["truncated"] == {"captions": 4}
    for captions, words in (
        ([1], "a list with the number 1 in it, but the column takes a list of texts"),
        ([["a"]], "a list of lists"),
        ([None], "entry 0 of the list is null"),
        ({"a": "b"}, "the value is an object"),
        (b"\xff", "not UTF-8"),
        (numpy.zeros(3), "but the column takes a list of texts"),
    ):
        wrong = [{**items[0], "captions": captions}]
        with pytest.raises(fw.errors.SampleError, match=words):
            next(iter(fw.Loader(fw.samples(wrong), RESIZE, columns={"captions": fw.texts()}, **{**settings, "batch_size": 1})))


def test_wrong_settings_are_errors_that_name_the_key(folder):
    source = fw.samples(items_with_captions(folder))
    for column, words in (
        (fw.texts(max_texts=0), r"max_texts: is 0, but must be at least 1"),
        (fw.texts(max_texts=-1), r"max_texts: must be an integer from 1 up"),
        (fw.texts(max_len=-1), r"max_len: must be an integer from 1 up"),
        (fw.texts(max_len=1 << 40), r"max_len: makes a column of 1099511627904 bytes per sample; the maximum is 268435456"),
        (fw.texts(max_texts="x"), r"max_texts: must be an integer from 1 up"),
        (fw.texts(default=[1]), r"default: .*takes a list of texts"),
        (fw.text(pick="last"), r"pick: unknown variant last|pick: .*first.*random"),
        (fw.text(pick="randm"), r"pick: .*did you mean random"),
        (fw.array(shape=-1), r"shape\[0\]: must be an integer from 1 up"),
        (fw.list_(max_len=-5), r"max_len: must be an integer from 1 up"),
        (fw.view(RESIZE, count=-1), r"count: must be an integer from 1 to 1024"),
    ):
        with pytest.raises(fw.errors.ConfigError, match=words):
            fw.Loader(source, RESIZE, columns={"captions": column}, device="cpu", framework="numpy")
    with pytest.raises(TypeError, match="fw.texts has no setting pick"):
        fw.texts(pick="first")
    assert repr(fw.texts("a", max_texts=3, default=["b"])) == "fw.texts(field='a', max_texts=3, default=['b'])"


def test_classes_of_columns_are_not_called():
    for arguments, settings in (((RESIZE,), {}), ((), {"chain": RESIZE, "count": 2}), ((), {}), ((), {"columns": 3})):
        with pytest.raises(TypeError, match=r"fw\.View is only the type of the object; write fw\.view\(operators, \.\.\.\), or fw\.image"):
            fw.View(*arguments, **settings)
        with pytest.raises(TypeError, match=r"fw\.Column is only the type of the object; write a function.* fw\.texts"):
            fw.Column(*arguments, **settings)
    for made in (fw.view(RESIZE, count=2), fw.texts("a", max_len=3)):
        assert copy.deepcopy(made) == pickle.loads(pickle.dumps(made)) == made


def test_a_random_caption_is_another_one_each_epoch_and_does_not_depend_on_workers(folder, tmp_path):
    items = items_with_captions(folder)[1:]
    columns = {"caption": fw.text("captions", pick="random"), "first": fw.text("captions", pick="first")}

    def captions(workers, **settings):
        loader = fw.Loader(
            fw.samples(items), RESIZE, columns=columns, batch_size=5, framework="numpy", epochs=8, device="cpu", num_workers=workers, shuffle=True, **settings
        )
        found = []
        for _ in range(8):
            for batch in loader:
                assert batch["first"] == [f"{label} 0 é" for label in batch["label"].tolist()]
                found.append(dict(zip(batch["label"].tolist(), batch["caption"])))
        return found

    found = captions(1)
    assert len(found) == 8 and all(text in items[label - 1]["captions"] for epoch in found for label, text in epoch.items())
    assert found == captions(3) and found != captions(1, seed=9)
    assert len({epoch[5] for epoch in found}) > 2 and {epoch[1] for epoch in found} == {"1 0 é"}
    # An epoch that is resumed has the captions of the epoch.
    assert captions(1, epoch=0) == found
    with fw.Loader(fw.samples(items), RESIZE, columns=columns, batch_size=5, framework="numpy", device="cpu", shuffle=True, epoch=3) as loader:
        batch = next(iter(loader))
    assert dict(zip(batch["label"].tolist(), batch["caption"])) == found[3]
    empty = [{**items[0], "captions": []}]
    with pytest.raises(fw.errors.SampleError, match='"captions".* is missing'):
        next(iter(fw.Loader(fw.samples(empty), RESIZE, columns=columns, batch_size=1, framework="numpy", device="cpu")))


def test_captions_of_coco_are_texts(tmp_path, folder):
    paths = sorted(folder.rglob("*.ppm"))[:3]
    images, annotations = [], []
    for number, path in enumerate(paths):
        (tmp_path / f"{number}.ppm").write_bytes(path.read_bytes())
        images.append({"id": number, "file_name": f"{number}.ppm"})
        annotations += [{"id": 10 * number + it, "image_id": number, "caption": f"{number} {it}"} for it in range(1 + number)]
    (tmp_path / "captions.json").write_text(json.dumps({"images": images, "annotations": annotations, "categories": []}))
    columns = {"captions": fw.texts(), "one": fw.text("captions", pick="random")}
    source = fw.coco(tmp_path / "captions.json", images=tmp_path)
    batch = next(iter(fw.Loader(source, RESIZE, columns=columns, batch_size=3, framework="numpy", device="cpu")))
    assert batch["captions"] == [[f"{number} {it}" for it in range(1 + number)] for number in range(3)]
    assert all(one in texts for one, texts in zip(batch["one"], batch["captions"]))


@pytest.mark.parametrize("save", [numpy.savez, numpy.savez_compressed])
def test_archives_of_numpy_are_arrays(folder, tmp_path, save):
    paths = sorted(folder.rglob("*.ppm"))[:4]
    items, sides = [], []
    beside = tmp_path / "beside"
    beside.mkdir()
    for number, path in enumerate(paths):
        file = io.BytesIO()
        save(file, emb=numpy.arange(6, dtype="float32").reshape(2, 3) + number, ids=numpy.arange(number), name=numpy.array("a"))
        single = io.BytesIO()
        save(single, numpy.array([number, 1]))
        items.append({"image": path, "z": file.getvalue(), "one": single.getvalue()})
        (beside / f"{number}.ppm").write_bytes(path.read_bytes())
        # A file on disk, whose headers are written again with the sizes.
        save(beside / f"{number}.npz", emb=numpy.full((6, 8), number, "uint8"))
        sides.append(number)
    columns = {"emb": fw.array("f32", field="z:emb", shape=(2, 3)), "ids": fw.list_("i64", field="z:ids"), "one": fw.array("i64", shape=2), "raw": fw.bytes_("one")}
    batch = next(iter(fw.Loader(fw.samples(items), RESIZE, columns=columns, batch_size=4, framework="numpy", device="cpu")))
    assert batch["emb"][3].tolist() == [[3, 4, 5], [6, 7, 8]] and batch["ids"].tolist() == [[], [0], [0, 1], [0, 1, 2]]
    assert batch["one"].tolist() == [[number, 1] for number in range(4)] and batch["raw"][2] == items[2]["one"]
    source = fw.directory(beside, side_files={"m.npz": "{folder}/{stem}.npz"})
    columns = {"list": fw.list_("u8", field="m.npz:emb", shape=8)}
    batch = next(iter(fw.Loader(source, RESIZE, columns=columns, batch_size=4, framework="numpy", device="cpu")))
    assert [texts[0][0] for texts in batch["list"].tolist()] == sides
    for column, words in (
        (fw.array(field="z"), r"is an \.npz archive with the arrays \"emb\", \"ids\", \"name\"; name one after a colon, as in \"z:emb\""),
        (fw.array(field="z:e"), r"without the array \"e\""),
        (fw.array(field="z:name"), r"have the type <U1"),
        (fw.array(field="one:arr_0"), r"an array of shape \[2\], but the column takes f32"),
        (fw.array(field="z:emb[0]"), r"only the name of an array may follow the colon"),
    ):
        with pytest.raises(fw.errors.SampleError, match=words):
            next(iter(fw.Loader(fw.samples(items), RESIZE, columns={"x": column}, batch_size=4, framework="numpy", device="cpu")))
