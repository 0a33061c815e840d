"""Tests of arrays as images and fields of `fw.samples`: their bytes, their memory and their errors."""

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


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (numpy.zeros(2, "M8[ns]"), r"datetime64\[ns\].*astype\(.int64.\)"),
        (numpy.zeros(2, "m8[s]"), r"timedelta64\[s\].*astype\(.int64.\)"),
        (numpy.datetime64("2020-01-01"), r"datetime64\[D\].*astype\(.int64.\)"),
        (numpy.zeros(2, "c8"), r"complex64.*numpy.stack\(\[array.real, array.imag\], -1\)"),
        (numpy.array([None, 1]), "object.*a type of numbers"),
        (numpy.array(["a", "b"]), r"str.*array.tolist\(\)"),
        (numpy.zeros(2, "f4,i2"), r"structure.*'f0', 'f1', as in array\['f0'\]"),
        (numpy.zeros(2, "V3"), "void.*convert it"),
        (numpy.zeros(2, "g"), r"astype\(.float64.\)"),
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
