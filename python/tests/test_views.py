"""Views: further outputs of the image of a sample."""

import gc

import numpy
import pytest

import feedwater as fw
from feedwater import ops

CROP = [ops.RandomResizedCrop(width=6, height=5), ops.Flip(horizontal=0.5)]
COLOURS = [*CROP, ops.ColorJitter(brightness=0.5)]


def loader(folder, transform=(), **more):
    return fw.Loader(folder, transform, framework="numpy", device="cpu", batch_size=4, dtype="u8", epochs=1, **more)


def test_views_are_columns(folder):
    small = [ops.RandomResizedCrop(width=3, height=4)]
    columns = {"small": fw.view(small, count=3), "one": fw.view(ops.Resize(width=7, height=2)), "float": fw.view(small, dtype="f32")}
    records = list(loader(folder, CROP, columns=columns))
    assert list(records[0]) == ["image", "label", "small", "one", "float"]
    shapes = {name: (array.shape, array.dtype) for name, array in records[0].items() if name != "label"}
    assert shapes == {
        "image": ((4, 3, 5, 6), "uint8"),
        "small": ((4, 3, 3, 4, 3), "uint8"),
        "one": ((4, 3, 2, 7), "uint8"),
        "float": ((4, 3, 4, 3), "float32"),
    }
    first, second, _ = numpy.moveaxis(records[0]["small"], 1, 0)
    assert (first != second).any()
    # The main chain draws the same with and without views.
    for record, (images, labels) in zip(records, loader(folder, CROP)):
        assert (record["image"] == images).all() and (record["label"] == labels).all()


def test_what_was_drawn_for_each_output_is_known():
    pixels = numpy.random.default_rng(5).integers(0, 256, (9, 12, 15, 3), dtype=numpy.uint8)
    items = [{"image": b"P6 15 12 255\n" + image.tobytes(), "right": image[::-1].copy()} for image in pixels]
    crop = [ops.RandomCrop(width=6, height=5)]
    columns = {"crops": fw.view(crop, count=3), "five": fw.view(ops.FiveCrop(width=4, height=4)), "right": fw.image("right", crop)}
    places = set()
    for batch in fw.Loader(fw.samples(items), columns=columns, batch_size=4, drop_last=False, epochs=1, dtype="u8", device="cpu", framework="batch", shuffle=True):
        views = {name: numpy.asarray(batch.column(name)) for name in ("crops", "five")}
        for place, record in enumerate(batch.samples):
            # The size of an image in a field is not recorded.
            assert {name: len(outputs) for name, outputs in record["views"].items()} == {"crops": 3, "five": 5}
            for name, outputs in record["views"].items():
                for number, [operator] in enumerate(outputs):
                    (action,) = operator["actions"]
                    x, y, (width, height) = action["params"]["x"], action["params"]["y"], action["size"]
                    expected = pixels[record["index"]][y : y + height, x : x + width]
                    assert (numpy.moveaxis(views[name][place, number], 0, 2) == expected).all()
                    places.add((name, x, y))
    assert len(places) > 15


def test_a_loader_may_have_only_views(folder):
    large = fw.view(CROP, count=2)
    (record, *_) = loader(folder, columns={"large": large})
    assert list(record) == ["label", "large"] and record["large"].shape == (4, 2, 3, 5, 6)
    # Another view, and another order, do not change it.
    more = {"small": fw.view([ops.RandomResizedCrop(width=3, height=3)], count=8), "large": large}
    assert (next(iter(loader(folder, columns=more)))["large"] == record["large"]).all()
    batch = next(iter(fw.Loader(folder, framework="batch", device="cpu", dtype="u8", batch_size=4, columns={"large": large})))
    assert (batch.column("large") == record["large"]).all() and batch.columns == ["large"]


def test_a_view_like_another_has_its_crops(folder):
    (record, *_) = loader(folder, CROP, columns={"teacher": fw.view(CROP, like="image"), "own": fw.view(CROP)})
    assert (record["teacher"] == record["image"]).all() and (record["own"] != record["image"]).any()
    student = {"student": fw.view(COLOURS, count=2), "teacher": fw.view(CROP, count=2, like="student")}
    plain = {"student": fw.view(CROP, count=2)}
    (record, *_), (expected, *_) = loader(folder, columns=student), loader(folder, columns=plain)
    assert (record["teacher"] == expected["student"]).all() and (record["student"] != record["teacher"]).any()


def test_arrays_of_views_keep_their_memory(folder):
    """Each array shares the memory of its batch, and keeps it after all others are gone."""
    columns = {"small": fw.view(CROP, count=2), "plain": fw.view(CROP, like="image")}
    expected = [record["small"].copy() for record in loader(folder, CROP, columns=columns)]
    batches = loader(folder, CROP, columns=columns)
    kept = []
    for record in batches:
        kept.append(record.pop("small"))
        del record
        gc.collect()
    assert len(kept) == 5 and all((array == of).all() for array, of in zip(kept, expected))
    # Nothing else has the memory, so it may be written.
    kept[0][:] = 0
    assert (kept[1] == expected[1]).all()


def test_a_batch_gives_each_column_once(folder):
    columns = {"small": fw.view(CROP, count=2)}
    made = fw.Loader(folder, CROP, framework="batch", device="cpu", dtype="u8", batch_size=4, columns=columns, epochs=1)
    batch, other, third, *_ = made
    small = batch.column("small")
    assert batch.column("small").ctypes.data == small.ctypes.data
    # The images are still there, for contact sheets too.
    assert "Batch 0 of epoch 0" in batch._repr_html_()
    address = batch.data_ptr
    images = batch.numpy()
    assert images.ctypes.data == address and images.shape == (4, 3, 5, 6)
    capsule = other.__dlpack__()
    with pytest.raises(BufferError, match="was given away"):
        other.numpy()
    assert other.column("small").shape == (4, 2, 3, 5, 6)
    del capsule
    third.numpy()
    assert third.column("small").shape == (4, 2, 3, 5, 6)


def test_sheets_show_views(folder):
    normalize = ops.Normalize(mean=[0.5] * 3, std=[0.5] * 3)
    columns = {"small": fw.view([*CROP, normalize], count=3)}
    made = fw.Loader(folder, framework="batch", device="cpu", batch_size=4, columns=columns)
    batch = next(iter(made))
    sheet = batch._repr_html_()
    assert sheet.count("<img ") == 12 and "4 x 3 x 3 x 5 x 6 on cpu, view small" in sheet
    assert made._meaning.ends == {"small": [[-1, 1]] * 3}
    assert batch.shape == (4, 3, 0, 0)
    with pytest.raises(ValueError, match="no operators of its own; use batch.column.* 'small'"):
        batch.numpy()
    with pytest.raises(ValueError, match="framework is 'np'; it must be"):
        batch.column("small", "np")


@pytest.mark.parametrize(
    ("transform", "columns", "key", "words"),
    [
        (CROP, {"image": fw.view(CROP)}, "view[0].name", "another column"),
        (CROP, {"a": fw.view(CROP, count=0)}, "view[0].count", "at least 1"),
        (CROP, {"a": fw.view(CROP, like="b")}, "view[0].like", "no such view"),
        (CROP, {"a": fw.view(CROP, count=2, like="image")}, "view[0].like", "one output"),
        ((), {"a": fw.view(CROP, like="image")}, "view[0].like", "no operators"),
        (CROP, {"a": fw.view(CROP, like="b"), "b": fw.view(CROP, like="a")}, "view[0].like", "write like = "),
        (CROP, {"a": fw.view(CROP, count=2, like="b"), "b": fw.view(CROP)}, "view[0].like", "both run equally often"),
        (CROP, {"a": fw.view([ops.Resize(shorter=5)])}, "view[0].chain", "different sizes"),
        (CROP, {"a": fw.view([ops.Resize(width=0, height=5)])}, "view[0].chain[0].width", "must be 1 to"),
        (CROP, {"a": fw.view([*CROP, ops.Normalize(mean=[0.5] * 3, std=[0.5] * 3)])}, "output.dtype", "normalize"),
        (CROP, {"a": fw.view([])}, "view[0].chain", "has no operators"),
        (CROP, {"a": fw.view(CROP, like="a")}, "view[0].like", "the name of this view"),
        (CROP, {"a": fw.view(CROP, count=600), "b": fw.view(CROP, count=600)}, "view[1].count", "1200 outputs"),
    ],
)
def test_a_wrong_view_is_an_error_at_its_key(folder, transform, columns, key, words):
    with pytest.raises(fw.errors.ConfigError, match=words) as error:
        loader(folder, transform, columns=columns)
    assert error.value.key == key
    shown = key
    for number, name in enumerate(columns):
        shown = shown.replace(f"view[{number}]", f"columns[{name!r}]")
    assert str(error.value).startswith(shown)


def test_masks_and_points_follow_a_view(tmp_path):
    """A mask with the numbers of a gray image moves like each output of a view, and a point stays on its pixel."""
    random = numpy.random.default_rng(3)
    items = []
    for _ in range(6):
        gray = random.integers(0, 250, (20, 30), dtype=numpy.uint8)
        rgb = numpy.repeat(gray[..., None], 3, 2)
        items.append({"image": b"P6 30 20 255\n" + rgb.tobytes(), "mask": b"P5 30 20 255\n" + gray.tobytes(), "at": [[12.5, 7.5]]})
    moves = [ops.RandomCrop(width=25, height=15), ops.Flip(horizontal=0.5)]
    nearest = [*moves, ops.Resize(width=11, height=9, filter="nearest")]
    columns = {
        "small": fw.view(nearest, count=3),
        "whole": fw.view(moves),
        "mask": fw.mask(like="small"),
        "other": fw.mask("mask", like="whole"),
        "at": fw.points(like="whole"),
    }
    rows = 0
    for record in loader(fw.samples(items), columns=columns):
        assert record["mask"].shape[1:] == (3, 9, 11) and (record["mask"] == record["small"][:, :, 0]).all()
        assert (record["other"] == record["whole"][:, 0]).all()
        for place, points in enumerate(record["at"]):
            (x, y) = points[0] - 0.5
            expected = items[rows]["mask"][13:][7 * 30 + 12]
            assert not (0 <= x < 25 and 0 <= y < 15) or record["whole"][place, 0, int(y), int(x)] == expected
            rows += 1
    assert rows == 4


@pytest.mark.parametrize(
    ("transform", "column", "words"),
    [
        ((), fw.mask(), "main chain has no operators"),
        (CROP, fw.mask(like="b"), 'follow "image" or a view: "a"'),
        (CROP, fw.points("mask", like="a"), "an axis for outputs"),
    ],
)
def test_a_column_that_cannot_follow_is_an_error(transform, column, words):
    items = [{"image": b"P6 1 1 255\n123", "mask": [[0.5, 0.5]]}]
    with pytest.raises(fw.errors.ConfigError, match=words) as error:
        loader(fw.samples(items), transform, columns={"a": fw.view(CROP, count=2), "mask": column})
    assert error.value.key == "column[0].like"
    assert str(error.value).startswith("columns['mask'].like: ")


def test_views_are_made_by_their_function(folder):
    with pytest.raises(TypeError, match="made by .*fw.view"):
        loader(folder, CROP, columns={"a": CROP})
    with pytest.raises(TypeError, match="fw.view contains|transform contains"):
        fw.view([3])
    with pytest.raises(TypeError, match="it is a column, so pass it to the loader as columns="):
        loader(folder, [fw.view(CROP)])
    mixing = fw.Recipe(CROP, batch_operators=[ops.Mixup(alpha=0.2)])
    with pytest.raises(ValueError, match="operators that mix samples"):
        fw.view(mixing)
    view = fw.view(CROP, count=2)
    assert view == fw.view(CROP, count=2) and repr(view).startswith("fw.view([") and "count=2" in repr(view)


def test_an_image_in_a_field_has_views(tmp_path):
    """Files, arrays and side files are second images. They get the crops of the first image, and views of their own."""
    random = numpy.random.default_rng(4)
    left, right = random.integers(0, 256, (2, 6, 20, 30, 3), dtype=numpy.uint8)
    header = b"P6 30 20 255\n"
    for kind in ("files", "arrays"):
        items = [{"image": header + a.tobytes(), "right": header + b.tobytes() if kind == "files" else b} for a, b in zip(left, right)]
        columns = {"right": fw.image("right", CROP, like="image"), "many": fw.image("right", CROP, count=2)}
        records = list(loader(fw.samples(items), CROP, columns=columns))
        swapped = [{"image": header + b.tobytes(), "right": header + a.tobytes()} for a, b in zip(left, right)]
        expected = list(loader(fw.samples(swapped), CROP, columns={"many": fw.view(CROP, count=2)}))
        assert len(records) == 1
        for record, other in zip(records, expected):
            assert (record["right"] == other["image"]).all() and (record["many"] == other["many"]).all()
    assert repr(fw.image("right", CROP)).startswith("fw.image('right', [")
    with pytest.raises(TypeError, match="the name of a field"):
        fw.image(CROP, "right")
    items[3]["right"] = right[3][:10]
    with pytest.raises(fw.errors.Error, match='the field "right" has an image of 30x10'):
        list(loader(fw.samples(items), CROP, columns={"right": fw.image("right", CROP, like="image")}))
    with pytest.raises(fw.errors.ConfigError, match="image of its own"):
        loader(fw.samples(items), CROP, columns={"right": fw.image("right", CROP), "mask": fw.mask("right", like="right")})
    with pytest.raises(fw.errors.ConfigError, match="cache.presize resizes only the sample's image") as error:
        columns = {"right": fw.image("right", CROP, like="image")}
        loader(fw.samples(items), CROP, columns=columns, cache=fw.Cache(decoded=1 << 20, presize=16))
    assert error.value.key == "view[0].like"
