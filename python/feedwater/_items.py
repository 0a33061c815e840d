"""Values of the items of a sequence in Python, in a form that the Rust part reads."""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, Iterator

#: Modes of Pillow whose arrays are images as they are.
_MODES = ("L", "RGB", "RGBA", "I;16", "F")

#: Largest size of the parts in which an array is copied, in bytes. The rows of an image of Pillow are not divided.
_PART = 1 << 16

#: What to do with arrays whose elements are no numbers, by the kind of their type.
_WAYS_OUT = {
    "M": 'convert it with astype("int64")',
    "m": 'convert it with astype("int64")',
    "c": "give its real and imaginary parts, as in numpy.stack([array.real, array.imag], -1)",
    "O": "give a list, or an array with a type of numbers",
    "S": "give a text, bytes or a list: array.tolist()",
    "U": "give a text or a list: array.tolist()",
    "f": 'convert it with astype("float64")',
}

Pieces = Callable[[], Iterator[bytes]]


def stored(value: Any) -> tuple[str, tuple[int, ...], int, Pieces]:
    """Returns how a `.npy` file stores an array or an image of Pillow: type, shape, size of the elements in bytes, and a function that
    returns the elements in C order, in parts. No part of the array is copied before they are asked for."""
    if hasattr(value, "getbands"):
        return _stored_image(value)
    import numpy

    array = numpy.asarray(value)
    if array.dtype.kind == "b":
        array = array.view("u1")
    dtype = array.dtype
    if dtype.kind not in "iuf" or dtype.itemsize > 8:
        name = "a structure" if dtype.names else dtype.name
        way_out = _WAYS_OUT.get(dtype.kind, 'convert it, as with astype("float32")')
        if dtype.names:
            way_out = f"give the arrays of its members {', '.join(map(repr, dtype.names))}, as in array[{dtype.names[0]!r}]"
        raise TypeError(f"an array of {name} has no numbers that feedwater reads, which are booleans, integers and floats of up to 64 bits; {way_out}")
    dtype = dtype.newbyteorder("<")
    return dtype.str, array.shape, array.nbytes, partial(_parts, array, dtype)


def _parts(array: Any, dtype: Any) -> Iterator[bytes]:
    import numpy

    if array.size == 0:
        return
    options = {"op_dtypes": [dtype], "casting": "equiv", "order": "C", "buffersize": max(_PART // dtype.itemsize, 1)}
    for part in numpy.nditer(array, ["external_loop", "buffered"], [["readonly"]], **options):
        yield part.tobytes()


def _stored_image(image: Any) -> tuple[str, tuple[int, ...], int, Pieces]:
    """Indices of an image of Pillow become colours, and other colour spaces red, green and blue."""
    mode = image.mode
    if mode not in _MODES:
        has_alpha = "A" in image.getbands() or "transparency" in image.info
        mode = "RGBA" if has_alpha else "RGB"
    dtype, item = {"I;16": ("<u2", 2), "F": ("<f4", 4)}.get(mode, ("|u1", 1))
    shape = (image.height, image.width, *([len(mode)] if mode in ("RGB", "RGBA") else []))
    row = item * image.width * (shape[2] if len(shape) == 3 else 1)
    return dtype, shape, row * image.height, partial(_rows, image, mode, max(_PART // max(row, 1), 1))


def _rows(image: Any, mode: str, count: int) -> Iterator[bytes]:
    for top in range(0, image.height, count):
        rows = image.crop((0, top, image.width, min(top + count, image.height)))
        yield (rows if rows.mode == mode else rows.convert(mode)).tobytes()


def plain(value: Any) -> Any:
    """Returns the Python value of an array, a number of NumPy or PyTorch, or bytes, for JSON."""
    if isinstance(value, (bytes, bytearray)):
        return value.decode()
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a value of the type {type(value).__name__} is neither a number, a text, bytes, an array, nor a list or dictionary of such values")
