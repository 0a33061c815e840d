"""Values of the items of a sequence in Python, in a form that the Rust part reads."""

from __future__ import annotations

import struct
import sys
import threading
import zlib
from functools import partial
from typing import Any, Callable, Iterator

#: Modes of Pillow whose pixels are stored in a `.npy` file without conversion: type, size of an element in bytes, and channels.
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


def stored(value: Any) -> tuple[str | None, tuple[int, ...], int, Pieces]:
    """Returns how a `.npy` file stores an array or an image of Pillow: type, shape, size of the elements in bytes, and a function that
    returns the elements in C order, in parts. No part of the array is copied before they are asked for.

    Without a type, the file is a PNG: the size and the parts are those of the whole file."""
    if hasattr(value, "getbands"):
        return _stored_image(value)
    import numpy

    try:
        array = numpy.asanyarray(value)
    except TypeError as error:
        way_out = "convert it with .float()" if "BFloat16" in str(error) else "convert it first"
        raise TypeError(f"NumPy cannot convert the {type(value).__name__}: {error}; {way_out}") from error
    if numpy.ma.is_masked(array):
        raise TypeError("a masked array has values that are missing; give array.filled(...)")
    array = numpy.asarray(array)
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


#: Pillow reads a file when the pixels of its image are first needed, which threads must not do at the same time.
_LOADING = [threading.Lock() for _ in range(64)]


def _stored_image(image: Any) -> tuple[str | None, tuple[int, ...], int, Pieces]:
    """Images with a palette or of 1 bit, and gray images with alpha, become PNGs: their numbers are indices or gray in a mask, and colours in
    an image. Other colour spaces become red, green and blue. A transparent colour becomes alpha."""
    with _LOADING[id(image) // 16 % len(_LOADING)]:
        image.load()
    mode = image.mode
    has_alpha = bool({"A", "a"} & set(image.getbands())) or "transparency" in image.info
    is_png = mode in ("P", "1", "LA", "La") or (mode in ("L", "I;16", "I;16L", "I;16B") and has_alpha)
    if is_png and image.width and image.height:
        return _stored_png(image)
    if mode not in _MODES or (mode == "RGB" and has_alpha):
        mode = "RGBA" if has_alpha else "RGB"
    dtype, item, channels = _MODES[mode]
    shape = (image.height, image.width, *([channels] if channels > 1 else []))
    row = item * image.width * channels
    count = max(_PART // max(row, 1), 1)

    def pieces() -> Iterator[bytes]:
        for rows in _parts_of(image, count):
            yield (rows if rows.mode == mode else rows.convert(mode)).tobytes()

    return dtype, shape, row * image.height, pieces


def _parts_of(image: Any, count: int) -> Iterator[Any]:
    """The image in parts of `count` rows."""
    mode, width, height = image.mode, image.width, image.height
    for top in range(0, height, count):
        if (image.mode, image.width, image.height) != (mode, width, height):
            raise RuntimeError("the image changed while it was read")
        yield image.crop((0, top, width, min(top + count, height)))


def _stored_png(image: Any) -> tuple[None, tuple[int, ...], int, Pieces]:
    """A PNG without compression."""
    # Number of bits, colour type (PNG, third edition, 11.2.1), size of a row in bytes, further chunks, and Pillow's name of the samples.
    bits, colour, row, chunks, raw = 8, 0, image.width, b"", image.mode
    if image.mode == "P":
        colours, alphas = _palette(image)
        colour, chunks = 3, _chunk(b"PLTE", colours) + _chunk(b"tRNS", alphas)
    elif image.mode in ("LA", "La"):
        colour, row, raw = 4, 2 * image.width, "LA"
    else:
        if image.mode == "1":
            bits, row = 1, (image.width + 7) // 8
        elif image.mode != "L":
            bits, row, raw = 16, 2 * image.width, "I;16B"
        if "transparency" in image.info:
            chunks = _chunk(b"tRNS", struct.pack(">H", image.info["transparency"]))
    head = b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", struct.pack(">IIBBBBB", image.width, image.height, bits, colour, 0, 0, 0)) + chunks
    tail = _chunk(b"IEND", b"")
    # A part of the rows is a block of the format deflate (RFC 1951, 3.2.4), whose length has 16 bits, in a chunk of its own. Each row begins
    # with the number of its filter, and the chunk of a row that is longer than a block has several blocks.
    count = max((_BLOCK - 1) // (row + 1), 1)
    height = image.height

    def stored_bytes(rows: int) -> int:
        length = rows * (row + 1)
        return _CHUNK + 5 * -(-length // _BLOCK) + length if rows else 0

    size = len(head) + len(tail) + _CHUNK + 2 + _CHUNK + 4 + height // count * stored_bytes(count) + stored_bytes(height % count)

    def pieces() -> Iterator[bytes]:
        # The header of zlib (RFC 1950): deflate with a window of 32 KiB, without compression.
        yield head + _chunk(b"IDAT", b"\x78\x01")
        checksum, remaining = 1, height
        for part in _parts_of(image, count):
            rows = (part.convert("LA") if part.mode == "La" else part).tobytes("raw", raw)
            filtered = b"".join(b"\0" + rows[at : at + row] for at in range(0, len(rows), row))
            checksum = zlib.adler32(filtered, checksum)
            remaining -= count
            blocks = [filtered[start : start + _BLOCK] for start in range(0, len(filtered), _BLOCK)]
            lasts = [remaining <= 0 and block is blocks[-1] for block in blocks]
            heads = [struct.pack("<BHH", last, len(block), 0xFFFF - len(block)) for last, block in zip(lasts, blocks)]
            yield _chunk(b"IDAT", b"".join(head + block for head, block in zip(heads, blocks)))
        yield _chunk(b"IDAT", struct.pack(">I", checksum)) + tail

    return None, (height, image.width), size, pieces


#: Size of the length, name and checksum of a chunk of a PNG, in bytes.
_CHUNK = 12

#: Largest size of a block of deflate without compression, in bytes.
_BLOCK = 0xFFFF


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def _palette(image: Any) -> tuple[bytes, bytes]:
    """Colours and alphas of all 256 indices."""
    every = image.crop((0, 0, 16, 16))
    every.frombytes(bytes(range(256)))
    if "transparency" in image.info:
        every.info["transparency"] = image.info["transparency"]
        if hasattr(every.info["transparency"], "__index__"):
            every.info["transparency"] = int(every.info["transparency"])
    colours = every.convert("RGBA").tobytes()
    return b"".join(colours[at : at + 3] for at in range(0, len(colours), 4)), colours[3::4]


def plain(value: Any) -> Any:
    """Returns the Python value of an array, a number of NumPy or PyTorch, or bytes, for JSON."""
    if isinstance(value, (bytes, bytearray)):
        return value.decode()
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a value of the type {type(value).__name__} is neither a number, a text, bytes, an array, nor a list or dictionary of such values")


def has_texts(value: Any) -> bool:
    """Whether a value is an array of NumPy whose elements are all texts. As JSON, it is a list of these texts."""
    kind = getattr(getattr(value, "dtype", None), "kind", None)
    # Arrays of the kinds "O" and "T" (`StringDType`) may have elements that are no texts.
    return kind == "U" or (kind in ("O", "T") and hasattr(value, "flat") and all(isinstance(element, str) for element in value.flat))
