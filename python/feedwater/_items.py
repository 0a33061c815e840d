"""Values of the items of a sequence in Python, in a form that the Rust part reads."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any, Callable, Iterator

#: Modes of Pillow whose pixels are stored as they are: type in a `.npy` file, size of an element in bytes, and channels.
_MODES = {
    "L": ("|u1", 1, 1),
    "RGB": ("|u1", 1, 3),
    "RGBA": ("|u1", 1, 4),
    "I;16": ("<u2", 2, 1),
    "I;16L": ("<u2", 2, 1),
    "I;16B": (">u2", 2, 1),
    "I": ("<i4" if sys.byteorder == "little" else ">i4", 4, 1),
    "F": ("<f4" if sys.byteorder == "little" else ">f4", 4, 1),
}

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

    if numpy.ma.is_masked(value):
        raise TypeError("a masked array has values that are missing; give array.filled(...)")
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
    # The type stubs of NumPy state that the parts are tuples, which holds for several arrays only.
    parts: Any = numpy.nditer(array, ["external_loop", "buffered"], [["readonly"]], **options)
    for part in parts:
        yield part.tobytes()


def _stored_image(image: Any) -> tuple[str, tuple[int, ...], int, Pieces]:
    """Indices of an image of Pillow become colours, and other colour spaces red, green and blue. A transparent colour becomes alpha."""
    mode = image.mode
    has_alpha = "A" in image.getbands() or "transparency" in image.info
    if mode not in _MODES or (mode in ("L", "RGB") and has_alpha):
        mode = "RGBA" if has_alpha else "RGB"
    dtype, item, channels = _MODES[mode]
    shape = (image.height, image.width, *([channels] if channels > 1 else []))
    row = item * image.width * channels
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
