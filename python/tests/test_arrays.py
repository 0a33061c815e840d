"""Tests of arrays as images and fields of `fw.samples`: their bytes, their memory and their errors."""

import json
import tracemalloc

import feedwater as fw
import numpy
import pytest
from feedwater import ops

SIDES = (37, 53)
SMALL = [ops.Resize(width=8, height=8)]
WHOLE = [ops.CenterCrop(width=SIDES[1], height=SIDES[0])]


def read(items, **settings):
    """The only batch of these items."""
    settings = {"transform": SMALL, "batch_size": len(items), "framework": "numpy", "device": "cpu", "epochs": 1, **settings}
    (batch,) = fw.Loader(fw.samples(items), **settings)
    return batch


def layouts(array, folder):
    """Arrays with the same numbers in other layouts."""
    yield array
    yield numpy.asfortranarray(array)
    yield array[::-1, ::-1].copy()[::-1, ::-1]
    yield array.astype(array.dtype.newbyteorder(">"))
    yield numpy.repeat(numpy.repeat(array, 2, 0), 3, 1)[::2, ::3]
    constant = array.copy()
    constant.flags.writeable = False
    yield constant
    mapped = numpy.memmap(folder / "array.bin", array.dtype, "w+", shape=array.shape)
    mapped[:] = array
    yield mapped


@pytest.mark.parametrize("dtype", ["u1", "u2", "f4"])
@pytest.mark.parametrize("channels", [(), (3,), (4,)])
def test_images_do_not_depend_on_the_layout_of_their_arrays(dtype, channels, tmp_path):
    array = numpy.random.default_rng(2).integers(0, 256 if dtype == "u1" else 60000, (*SIDES, *channels)).astype(dtype)
    pixels = {"u1": "u8", "u2": "u16", "f4": "f32"}[dtype] + ("x3" if channels else "")
    images, _ = read(list(layouts(array, tmp_path)), transform=WHOLE, decode=fw.Decode(pixels=pixels), dtype="f32", layout="nhwc")
    for image in images:
        numpy.testing.assert_array_equal(image, array.reshape(*SIDES, -1)[..., :3])


@pytest.mark.parametrize("dtype", ["?", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8"])
@pytest.mark.parametrize("shape", [(37, 53), (0, 3), (1, 1)])
def test_fields_do_not_depend_on_the_layout_of_their_arrays(dtype, shape, tmp_path):
    type_ = numpy.dtype(dtype)
    array = numpy.random.default_rng(3).integers(0, 2 if dtype == "?" else 100, shape).astype(type_)
    if type_.kind == "i":
        array -= 50
    if type_.kind == "f":
        array = (array / type_.type(7)).astype(type_)
    image = b"P5 1 1 255\n?"
    given = [array, numpy.asfortranarray(array)] if 0 in shape else list(layouts(array, tmp_path))
    element = "f32" if type_.kind == "f" else "i64"
    batch = read([{"image": image, "a": one} for one in given], columns={"a": fw.list_(element, shape=shape[1], max_len=99)})
    for found in batch["a"]:
        numpy.testing.assert_array_equal(found, array.astype("f4" if element == "f32" else "i8"))


def test_extreme_numbers_are_exact():
    image, most = b"P5 1 1 255\n?", numpy.iinfo
    given = [numpy.array([most("i8").min, most("i8").max]), numpy.array([most("u4").max, 0], ">u4"), numpy.array([-128, 127], "i1")]
    batch = read([{"image": image, "a": one} for one in given], columns={"a": fw.array("i64", shape=2)})
    assert batch["a"].tolist() == [one.tolist() for one in given]
    given = [numpy.array([numpy.nan, -0.0, numpy.inf], "f2"), numpy.array([1e-45, 3e38, 0.1], ">f4")]
    batch = read([{"image": image, "a": one} for one in given], columns={"a": fw.array("f32", shape=3)})
    assert batch["a"].tobytes() == numpy.array(given, "f4").tobytes()


@pytest.mark.parametrize("number", [numpy.array(3), numpy.int16(3), numpy.array(3.0, ">f8"), numpy.array(True) * 3, numpy.float16(3)])
def test_arrays_without_axes_are_numbers(number):
    batch = read([{"image": b"P5 1 1 255\n?", "a": number}], columns={"a": fw.array("i64"), "b": fw.array("f32", field="a")})
    assert batch["a"].tolist() == [3] and batch["b"].tolist() == [3.0]


#: Size of the array in the tests of memory, and the most memory that Python may have for its copies, which is a small part of it.
BYTES = 6 << 20
MOST = 1 << 20


def peak(run):
    """The largest size of the memory that Python and NumPy allocated meanwhile."""
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


class Repeated:
    """Items with one array, which no item copies."""

    def __init__(self, item):
        self.item = item

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return self.item


def test_images_with_a_palette_are_not_copied_outside_of_the_plan():
    image = pytest.importorskip("PIL.Image").new("P", (3072, 2048))
    assert 3072 * 2048 == BYTES
    settings = {"batch_size": 1, "framework": "batch", "device": "cpu", "num_workers": 2, "epochs": 1, "prefetch": 1}
    # The file has a palette, and five bytes for each block.
    limits = fw.Limits(max_field_bytes=BYTES + (16 << 10))
    loader = fw.Loader(fw.samples(Repeated({"image": image, "a": image})), SMALL, columns={"a": fw.mask()}, limits=limits, **settings)
    assert peak(lambda: [None for _ in loader.batches()]) < MOST


@pytest.mark.parametrize("layout", ["plain", "fortran", "big-endian", "reversed"])
@pytest.mark.parametrize("place", ["image", "array", "mask", "view"])
def test_arrays_are_not_copied_outside_of_the_plan(layout, place):
    array = numpy.zeros((1024, 3072), "u2")
    array[::7, ::5] = 200
    array = {"plain": array, "fortran": numpy.asfortranarray(array), "big-endian": array.astype(">u2"), "reversed": array[::-1, ::-1]}[layout]
    assert array.nbytes == BYTES
    item, columns = {
        "image": (array, None),
        "array": ({"image": b"P5 1 1 255\n?", "a": array}, {"a": fw.array("u8", shape=array.shape)}),
        # The mask has the size of its image, which is an array too.
        "mask": ({"image": array, "a": array}, {"a": fw.mask()}),
        "view": ({"image": b"P5 1 1 255\n?", "a": array}, {"a": fw.image("a", SMALL, pixels="u16")}),
    }[place]
    settings = {"batch_size": 1, "framework": "batch", "device": "cpu", "num_workers": 2, "epochs": 1, "prefetch": 1}
    # An image in a field is kept as a file, which has a header.
    limits = fw.Limits(max_field_bytes=BYTES + 128)
    loader = fw.Loader(fw.samples(Repeated(item)), SMALL, columns=columns, decode=fw.Decode(pixels="u16" if place in ("image", "mask") else "u8"), limits=limits, **settings)
    assert peak(lambda: [None for _ in loader.batches()]) < MOST


def test_the_size_of_an_array_is_compared_with_the_limits_before_it_is_copied():
    array = numpy.zeros((1024, 3072), ">u2")
    settings = {"batch_size": 1, "framework": "batch", "device": "cpu", "num_workers": 1, "epochs": 1, "on_error": "drop"}
    loader = fw.Loader(fw.samples(Repeated(array)), SMALL, limits=fw.Limits(max_file_bytes=BYTES), decode=fw.Decode(pixels="u16"), **settings)
    assert peak(lambda: list(loader.batches())) < MOST
    assert loader.stats["errors"]["oversized"] == 4
    item = {"image": b"P5 1 1 255\n?", "a": array}
    column = {"a": fw.array("u8", shape=array.shape)}
    loader = fw.Loader(fw.samples(Repeated(item)), SMALL, limits=fw.Limits(max_field_bytes=BYTES - 1), columns=column, **settings)
    assert peak(lambda: list(loader.batches())) < MOST
    assert loader.stats["errors"]["oversized"] == 4


@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "i4", "f2", "f8"])
def test_a_field_counts_the_bytes_of_its_array(dtype):
    array = numpy.zeros(1000, dtype)
    item = {"image": b"P5 1 1 255\n?", "a": array}
    column = {"a": fw.array("f32", shape=1000)}
    read([item], columns=column, limits=fw.Limits(max_field_bytes=array.nbytes))
    with pytest.raises(fw.errors.SampleError, match=f"field .a. has {array.nbytes} bytes; limits.max_field_bytes is {array.nbytes - 1}"):
        read([item], columns=column, limits=fw.Limits(max_field_bytes=array.nbytes - 1))


def test_exhausted_memory_is_named():
    class Exhausted:
        def __array__(self, *args, **options):
            raise MemoryError("no memory for 7 TiB")

    for item, columns in [
        (Exhausted(), None),
        ({"image": Exhausted()}, None),
        ({"image": b"P5 1 1 255\n?", "a": Exhausted()}, {"a": fw.array()}),
    ]:
        with pytest.raises(fw.errors.SampleError, match="MemoryError: no memory for 7 TiB") as error:
            read([item], columns=columns)
        assert error.value.reason == "out_of_memory"


class Unreadable:
    """A tensor whose elements NumPy lacks, such as bfloat16."""

    def __array__(self, *args, **options):
        raise TypeError("no such type")


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (numpy.zeros(2, "M8[ns]"), r"datetime64\[ns\].*astype\(.int64.\)"),
        (numpy.zeros(2, "m8[s]"), r"timedelta64\[s\].*astype\(.int64.\)"),
        (numpy.datetime64("2020-01-01"), r"datetime64\[D\].*astype\(.int64.\)"),
        (numpy.zeros(2, "c8"), r"complex64.*numpy.stack\(\[array.real, array.imag\], -1\)"),
        (numpy.array([None, 1]), "object.*a type of numbers"),
        (numpy.zeros(2, "f4,i2"), r"structure.*'f0', 'f1', as in array\['f0'\]"),
        (numpy.zeros(2, "V3"), "void.*convert it"),
        (numpy.zeros(2, "g"), r"astype\(.float64.\)"),
        (Unreadable(), r"NumPy cannot convert the Unreadable: no such type; convert it first"),
    ],
)
def test_arrays_without_numbers_are_errors_with_a_way_out(array, words):
    with pytest.raises(fw.errors.SampleError, match=words):
        read([{"image": b"P5 1 1 255\n?", "a": array}], columns={"a": fw.array(shape=2)})
    for item in [array, (array, 3), {"image": array}]:
        with pytest.raises(fw.errors.SampleError, match=words):
            read([item])


def test_a_column_of_bytes_takes_no_array():
    with pytest.raises(fw.errors.SampleError, match=r"an array of shape \[4\], but the column takes bytes"):
        read([{"image": b"P5 1 1 255\n?", "a": numpy.zeros(4, "u1")}], columns={"a": fw.bytes_()})


def test_arrays_that_change_are_errors():
    class Changing:
        """An array of Pillow's kind whose rows get fewer."""

        mode, width, height, info = "L", 4, 4, {}

        def load(self):
            pass

        def getbands(self):
            return ("L",)

        def crop(self, box):
            return self

        def tobytes(self):
            return bytes(12)

        __array_interface__ = {}

    with pytest.raises(fw.errors.SampleError, match="changed while it was read"):
        read([Changing()])


def test_tensors_are_arrays():
    torch = pytest.importorskip("torch")
    array = numpy.random.default_rng(4).integers(0, 256, (*SIDES, 3)).astype("u1")
    tensor = torch.from_numpy(array)
    items = [{"image": one, "a": torch.tensor([1.5, 2.5], dtype=dtype), "n": torch.tensor(7)} for one, dtype in [(tensor, torch.float16), (tensor.permute(2, 0, 1), torch.float64)]]
    batch = read(items, transform=WHOLE, columns={"a": fw.array(shape=2), "n": fw.array("i64")}, dtype="u8", layout="nhwc")
    assert (batch["image"] == array).all() and batch["a"].tolist() == [[1.5, 2.5]] * 2 and batch["n"].tolist() == [7, 7]
    with pytest.raises(fw.errors.SampleError, match="requires grad"):
        read([{"image": tensor, "a": torch.zeros(2, requires_grad=True)}], columns={"a": fw.array(shape=2)})


@pytest.mark.parametrize("dtype", ["?", "u1", "i1", "u2", "i2", "u4", "i8", "u8", "f2", "f4", "f8"])
@pytest.mark.parametrize("shape", [(5, 6), (5, 6, 1), (5, 6, 3), (3, 5, 6), (1, 5, 6), (5, 6, 4), (4, 5, 6), (6,), (2, 5, 6), (0, 6), (5, 6, 7, 8)])
def test_items_and_fields_accept_the_same_arrays(dtype, shape):
    array = numpy.arange(numpy.prod(shape)).reshape(shape).astype(dtype)
    plain = b"P5 1 1 255\n?"
    accepted = []
    for pixels in ["u8", "u8x3", "u8x4", "u16", "u16x3", "f32", "f32x3"]:
        try:
            (item,), _ = read([(array, None)], decode=fw.Decode(pixels=pixels))
        except fw.errors.SampleError as error:
            item = error.reason
        try:
            field = read([{"image": plain, "a": array}], columns={"a": fw.image("a", SMALL, pixels=pixels)})["a"][0]
        except fw.errors.SampleError as error:
            field = error.reason
        assert isinstance(item, str) == isinstance(field, str), (pixels, item, field)
        if not isinstance(item, str):
            numpy.testing.assert_array_equal(item, field)
            accepted.append(pixels)
    is_image = shape in [(5, 6), (5, 6, 1), (5, 6, 3), (3, 5, 6), (1, 5, 6), (5, 6, 4), (4, 5, 6)]
    is_gray = shape in [(5, 6), (5, 6, 1), (1, 5, 6)]
    kind, size = numpy.dtype(dtype).kind, numpy.dtype(dtype).itemsize
    expected = []
    if is_image and dtype in ("?", "u1"):
        expected += ["u8", "u8x3", "u8x4"]
    if is_image and kind in "iu" and size > 1:
        expected += ["u16"] * is_gray + ["u16x3"]
    if is_image:
        expected += ["f32"] * is_gray + ["f32x3"]
    assert accepted == expected


@pytest.mark.parametrize(
    ("array", "pixels", "words"),
    [
        (numpy.array([[-1, 2]]), "u16", "has the number -1, but u16 pixels are from 0 to 65535; set pixels to f32 "),
        (numpy.array([[[1, 2, 65536]]]), "u16x3", "has the number 65536, but u16x3 pixels are from 0 to 65535; set pixels to f32x3 "),
        (numpy.array([[1 << 24, (1 << 24) + 1]]), "f32", "has the number 16777217, but f32 pixels hold integers up to 16777216 exactly; convert"),
        (numpy.array([[2**64 - 1]], "u8"), "f32", "has the number 18446744073709551615, but f32"),
        (numpy.array([[1.0, -1e39]]), "f32", "has the number -1000000000000000000000000000000000000000, which is too large for f32"),
        (numpy.array([[1, 2]]), "u8", r"elements of the type <i8, but the pixels have 8 bits; set pixels to f32 .*astype\(np.uint8\)"),
        (numpy.array([[1, 2]], "u1"), "u16", "8 bits per sample"),
        (numpy.array([[1, 2]], "f2"), "u16", "with floats, but the pixels are u16; use f32"),
    ],
)
def test_numbers_that_the_pixels_cannot_have_are_named(array, pixels, words):
    with pytest.raises(fw.errors.SampleError, match=words):
        read([array], decode=fw.Decode(pixels=pixels))
    with pytest.raises(fw.errors.SampleError, match=f"the field .a..*{words}"):
        read([{"image": b"P5 1 1 255\n?", "a": array}], columns={"a": fw.image("a", SMALL, pixels=pixels)})


IMAGE = b"P6 8 8 255\n" + bytes(range(192))


@pytest.mark.parametrize(
    ("value", "column", "words"),
    [
        ([[1] * 15], fw.points("a", shape=15), r"set shape = \[2\] or \[3\], or \[5, 3\] for 5 points per entry"),
        ([[1] * 8], fw.points("a", shape=8), r"or \[4, 2\] for 4 points"),
        (3, fw.array(field="a", shape=(1,)), r"the number 3, but the column takes f32 of shape \[1\]; remove shape for one number"),
        (numpy.zeros((8, 8), ">f4"), fw.mask("a"), r"field .a. .*is an array of floats \(<f4\); a mask of an array has integers from 0 to 65535: convert"),
        (numpy.zeros((8, 8), "u1"), fw.mask("a", one_hot=3, dtype="i64"), "is i64, but masks with one_hot may have f32, f16, bf16, u8; remove one_hot"),
        (numpy.zeros((8, 8), "u1"), fw.mask("a", like="v"), "is .v., but there are no views; remove like to follow .image."),
        (1, fw.view(SMALL, like="v"), "is .v., but there is no such view; there is no other view, so remove like"),
        ([[[1, 2, 3, 4, 5, 6]], [1, 2, 3, 4, 5, 6]], fw.runs("a"), r"field .a. .*: the outline of object 1: .*integer `1`.*as in \[\[x, y"),
        ([[[1, 2, 3, 4, None, 6]]], fw.runs("a"), "the outline of object 0: a coordinate of a polygon is not a number"),
    ],
)
def test_wrong_columns_are_explained(value, column, words):
    with pytest.raises(fw.Error, match=words):
        read([{"image": IMAGE, "a": value}], columns={"b": column})


@pytest.mark.parametrize(
    ("outline", "words"),
    [
        ([1, 2, 3, 4, 5, 6], r"annotation 77: a polygon is 1; it must be a list of x and y in turn, in a list of polygons: \[\[x, y"),
        ([[1, 2, 3, 4, None, 6]], "annotation 77: coordinate 4 of a polygon is null"),
        ([[1, 2, 3, 4, "5", 6]], "annotation 77: coordinate 4 of a polygon is .5."),
        ([None, [1, 2, 3, 4, 5, 6]], "annotation 77: a polygon is null"),
    ],
)
def test_wrong_polygons_of_coco_are_explained(outline, words, tmp_path):
    (tmp_path / "a.ppm").write_bytes(IMAGE)
    annotation = {"id": 77, "image_id": 1, "category_id": 1, "bbox": [0, 0, 4, 4], "area": 1, "iscrowd": 0, "segmentation": outline}
    images = [{"id": 1, "file_name": "a.ppm", "width": 8, "height": 8}]
    (tmp_path / "a.json").write_text(json.dumps({"images": images, "categories": [{"id": 1, "name": "x"}], "annotations": [annotation]}))
    with pytest.raises(fw.errors.ConfigError, match=words):
        fw.Loader(fw.coco(tmp_path / "a.json", images=tmp_path), SMALL, batch_size=1, framework="batch", device="cpu")


def test_an_empty_array_is_a_list_without_entries():
    items = [{"image": IMAGE, "values": values} for values in [numpy.array([]), numpy.zeros((0, 4)), [], numpy.ones((1, 4))]]
    batch = read(items, columns={"boxes": fw.boxes("values"), "list": fw.list_("f32", field="values", shape=4)})
    for name in ("boxes", "list"):
        assert [len(batch[name][at]) for at in range(4)] == [0, 0, 0, 1]
    points = read(items[:1], columns={"points": fw.points("values")})["points"]
    assert len(points[0]) == 0


def test_masked_arrays_are_errors():
    masked = numpy.ma.masked_array(numpy.full((9, 9), 5, numpy.uint8), mask=numpy.eye(9))
    with pytest.raises(fw.errors.SampleError, match="a masked array has values that are missing"):
        read([masked])
    read([numpy.ma.masked_array(numpy.full((9, 9), 5, numpy.uint8))])

    class Variable:
        """A variable of a file, whose missing values are masked."""

        def __array__(self, *args, **options):
            return masked

    with pytest.raises(fw.errors.SampleError, match="a masked array has values that are missing"):
        read([Variable()])


def test_erasing_of_alpha_names_its_mode():
    chain = [*SMALL, ops.Normalize(mean=0.5, std=0.5), ops.RandomErasing(mode="pixel")]
    with pytest.raises(fw.errors.ConfigError, match='set mode = "const", remove it, or decode to three channels'):
        read([IMAGE], transform=chain, decode=fw.Decode(pixels="u8x4"))


def test_the_second_source_of_a_join_needs_no_images():
    first = [{"image": IMAGE, "id": number} for number in range(3)]
    for second in [
        [{"id": number, "name": f"no. {number}"} for number in (2, 0, 1)],
        [{"image": None, "id": number, "name": f"no. {number}"} for number in (2, 0, 1)],
        [(None, None, {"id": number, "name": f"no. {number}"}) for number in (2, 0, 1)],
    ]:
        source = fw.samples(first).join(fw.samples(second), key="id")
        (batch,) = fw.Loader(source, SMALL, batch_size=3, framework="numpy", device="cpu", epochs=1, columns={"name": fw.text()})
        assert batch["name"] == ["no. 0", "no. 1", "no. 2"]
    # As images, such items are errors.
    with pytest.raises(fw.errors.SampleError, match="without the key .image.") as error:
        read([{"id": 1, "name": "a"}], columns={"name": fw.text()})
    assert isinstance(error.value.__cause__, TypeError)


def test_a_field_with_the_name_of_the_own_key_is_a_key(tmp_path):
    (tmp_path / "a.csv").write_text("__key__,path,name\n1,x.ppm,one\n0,x.ppm,zero\n")
    (tmp_path / "x.ppm").write_bytes(IMAGE)
    source = fw.samples([{"image": IMAGE, "id": number} for number in range(2)])
    source = source.join(fw.file_list(tmp_path / "a.csv", label=""), key="id", other_key="__key__", prefix="b.")
    (batch,) = fw.Loader(source, SMALL, batch_size=2, framework="numpy", device="cpu", epochs=1, columns={"name": fw.text("b.name")})
    assert batch["name"] == ["zero", "one"]


@pytest.mark.parametrize(
    ("blend", "one_hot"),
    [(ops.Mixup(alpha=1.0), 3), (ops.CutMix(alpha=1.0), 3), (ops.CutMix(alpha=1.0), None), (ops.MixupOrCutMix(mixup_alpha=1.0, cutmix_alpha=1.0), 3)],
)
def test_masks_are_mixed_without_labels(blend, one_hot):
    random = numpy.random.default_rng(6)
    items = [{"image": random.integers(0, 256, (8, 8, 3), "u1"), "a": random.integers(0, 3, (8, 8), "u1")} for _ in range(8)]
    settings = {"columns": {"a": fw.mask(one_hot=one_hot)}, "batch_operators": [blend], "seed": 5}
    without = read(items, **settings)
    labelled = read([{**item, "label": 0} for item in items], classes=1, **settings)
    plain = read(items, columns=settings["columns"])
    assert set(without) == {"image", "label", "a"} and (without["label"] == -1).all()
    for name in ("image", "a"):
        numpy.testing.assert_array_equal(without[name], labelled[name])
        assert (without[name] != plain[name]).any()
    # Labels would not be mixed.
    with pytest.raises(fw.errors.SampleError, match="the label is 0, but without targets.classes .* mixes only images and masks; set targets.classes"):
        read([{**item, "label": 0} for item in items], **settings)
    with pytest.raises(fw.errors.ConfigError, match="targets.classes"):
        read(items, batch_operators=[blend])


def order(**settings):
    """The order of samples, by their only pixel."""
    columns = settings.pop("columns")
    items = [b"P5 1 1 255\n" + bytes([number]) for number in range(200)]
    loader = fw.Loader(fw.samples(items), columns=columns, batch_size=200, framework="batch", device="cpu", epochs=1, **settings)
    (batch,) = loader.batches()
    return list(batch.indices)


def test_a_loader_of_views_shuffles_if_the_recipe_of_a_view_does(caplog):
    train, evaluation, plain = fw.train_recipe(8), fw.eval_recipe(8), SMALL
    in_order = list(range(200))
    for views in [[train], [plain, train], [evaluation, train]]:
        columns = {f"v{number}": fw.view(transform) for number, transform in enumerate(views)}
        assert sorted(order(columns=columns)) == in_order != order(columns=columns)
        assert order(columns=columns, shuffle=False) == in_order
        assert order(columns=columns, loader=fw.LoaderSettings(shuffle=False)) == in_order
    for views in [[plain], [evaluation], [plain, evaluation]]:
        columns = {f"v{number}": fw.view(transform) for number, transform in enumerate(views)}
        assert order(columns=columns) == in_order
    assert not caplog.records
    # The chain of the loader determines the order, and the loader warns.
    assert order(columns={"v": fw.view(train)}, transform=SMALL) == in_order
    assert "the recipe of the view 'v' shuffles" in caplog.text
    caplog.clear()
    assert order(columns={"v": fw.view(train)}, transform=train) != in_order
    assert order(columns={"v": fw.view(train)}, transform=SMALL, shuffle=False) == in_order
    assert not caplog.records


@pytest.mark.parametrize("true", [True, numpy.True_])
def test_a_boolean_is_a_number_but_no_key(true):
    image = b"P5 1 1 255\n?"
    columns = {"i": fw.array("i64", field="a"), "f": fw.array("f32", field="a"), "b": fw.array("u8", field="a")}
    batch = read([{"image": image, "a": true}], columns=columns)
    assert (batch["i"].tolist(), batch["f"].tolist(), batch["b"].tolist()) == ([1], [1.0], [1])
    first = fw.samples([{"image": image, "k": 1}, {"image": image, "k": 2}])
    for other in [true, 1.0]:
        with pytest.raises(fw.errors.ConfigError, match="boolean|float|true|1.0"):
            fw.Loader(first.join(fw.samples([{"k": other, "x": "a"}, {"k": 2, "x": "b"}]), key="k"), SMALL, columns={"x": fw.text(default="")}, device="cpu", framework="numpy")
