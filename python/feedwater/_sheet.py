"""The contact sheet of a batch as HTML, for Jupyter."""

from __future__ import annotations

import base64
import html as text
import struct
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy import ndarray

    from .objects import Objects

#: Maximum number of images on the sheet, and maximum side of an image in pixels. Even with images of noise, the sheet has only 0.8 MB.
MOST_IMAGES = 32
_SIDE = 80
#: Maximum number of error messages on the sheet, and maximum length of a label in characters.
_MESSAGES = 8
_LABEL = 20
#: Colours of the indices 1 to 10, 11 to 20, and so on. 0 is black, and 255, which often has no class, is gray.
_PALETTE = ((48, 176, 255), (255, 80, 72), (80, 220, 100), (214, 110, 255), (255, 146, 30), (20, 224, 208), (255, 120, 180), (176, 226, 40), (120, 130, 255), (255, 214, 10))
_COLOURS = ((0, 0, 0), *(_PALETTE[index % 10] for index in range(254)), (128, 128, 128))
#: Maximum number of boxes drawn on an image.
_BOXES = 50


def html(
    title: str,
    images: ndarray[Any, Any] | None,
    layout: str,
    samples: Sequence[dict[str, Any]],
    objects: Sequence[Objects | tuple[()]],
    errors: Sequence[tuple[int, str]],
    classes: Sequence[str],
    ends: Sequence[Sequence[float]] | None,
) -> str:
    """Returns images of a batch as HTML, with label, index and boxes. Images that replace an unusable sample or only
    fill the batch are marked. ``images`` is ``None`` if the tensor was passed to another
    library."""
    cells = []
    for place, sample in enumerate(samples):
        picture = _MISSING if images is None else _picture(_levels(images[place], layout, ends))
        cells.append(_cell(picture + _boxes(objects[place], classes), sample, _label(sample["label"], classes)))
    parts = [f"<div>{text.escape(title)}</div>"]
    if images is None:
        parts.append("<div>The images were given away by <code>__dlpack__</code>; use the array that was made from them.</div>")
    parts.append(f'<div style="display: flex; flex-wrap: wrap; gap: 8px; margin: 8px 0">{"".join(cells)}</div>')
    parts += _failed(errors)
    return f'<div style="font: 12px sans-serif">{"".join(parts)}</div>'


def _label(label: int | None, classes: Sequence[str]) -> str:
    if label is None:
        return "no label"
    name = classes[label] if label < len(classes) else str(label)
    return name if len(name) <= _LABEL else name[: _LABEL - 1] + "…"


#: Grey square in place of an image whose memory was passed to another library.
_MISSING = f'<div style="width: {_SIDE}px; height: {_SIDE}px; background: #8884"></div>'


def _cell(picture: str, sample: dict[str, Any], label: str) -> str:
    colour, note = _mark(sample)
    return (
        f'<figure style="margin: 0; width: {_SIDE + 4}px; text-align: center">'
        f'<div style="border: 2px solid {colour}; position: relative">{picture}</div>'
        f'<figcaption style="overflow-wrap: anywhere">{text.escape(label)}<br>#{sample["index"]}<br>{note}</figcaption></figure>'
    )


def _boxes(objects: Objects | tuple[()], classes: Sequence[str]) -> str:
    """Returns the boxes of objects over an image, each with its category."""
    if isinstance(objects, tuple) or not len(objects):
        return ""
    width, height = objects.size
    shapes = []
    for (left, top, right, bottom), category in list(zip(objects.boxes.tolist(), objects.categories.tolist()))[:_BOXES]:
        name = text.escape(_label(category, classes))
        extents = f'x="{left:.6g}" y="{top:.6g}" width="{right - left:.6g}" height="{bottom - top:.6g}"'
        shapes.append(f'<rect {extents} fill="none" stroke="#0d6" vector-effect="non-scaling-stroke"><title>{name}</title></rect>')
    style = f"position: absolute; left: 0; top: 0; width: {_SIDE}px; height: {_SIDE}px"
    return f'<svg viewBox="0 0 {width} {height}" style="{style}">{"".join(shapes)}</svg>'


def _mark(sample: dict[str, Any]) -> tuple[str, str]:
    """Returns the colour of the frame and the note for a sample."""
    if sample["outcome"] == "substituted":
        return "#d33", "unusable"
    if sample["replaces"] is not None:
        return "#d33", f"replaces #{sample['replaces']}"
    return ("#888", "padding") if sample["padding"] else ("transparent", "")


def _failed(errors: Sequence[tuple[int, str]]) -> list[str]:
    """Returns the error messages of the samples that failed, as HTML."""
    lines = [f'<div style="color: #d33">#{index}: {text.escape(message[:500])}</div>' for index, message in errors[:_MESSAGES]]
    more = len(errors) - _MESSAGES
    return [*lines, f'<div style="color: #d33">and {more} more that failed</div>'] if more > 0 else lines


def _levels(image: ndarray[Any, Any], layout: str, ends: Sequence[Sequence[float]] | None) -> ndarray[Any, Any]:
    """Returns a small copy of an image as bytes, ``[rows, columns, 3]``, also if the image has one channel. Undoes the chain's normalization."""
    import numpy

    image = image if layout == "nhwc" else image.transpose(1, 2, 0)
    image = image[..., :3]  # Alpha is not shown.
    first = image
    height, width, channels = image.shape
    block = -(-max(height, width) // _SIDE)
    if block > 1:
        # Average blocks of pixels. Leave out incomplete blocks at the edges, unless the image is smaller than a block.
        tall, wide = min(block, height), min(block, width)
        first = image[: height // tall * tall : tall, : width // wide * wide : wide]
        image = image[: height // tall * tall, : width // wide * wide]
        image = image.reshape(height // tall, tall, width // wide, wide, channels).mean(axis=(1, 3))
    if ends is not None and numpy.isinf(ends[0][0]):
        return numpy.asarray(_COLOURS, numpy.uint8)[first[..., 0].astype(numpy.uint8)]
    if ends is not None:
        low, high = numpy.asarray(ends[:channels], numpy.float32).T
        if numpy.isnan(low).any():
            # Float images: scale to the minimum and maximum of this image.
            finite = image[numpy.isfinite(image)]
            low, high = numpy.full(channels, finite.min(initial=numpy.inf)), numpy.full(channels, finite.max(initial=-numpy.inf))
        # If all bytes map to the same value in a channel, `high` equals `low`. Avoid the division by 0. Values near the ends of f32 overflow.
        with numpy.errstate(all="ignore"):
            image = (image - low) / numpy.where(high == low, 1, high - low) * 255
    levels: ndarray[Any, Any] = numpy.nan_to_num(image).clip(0, 255).round().astype(numpy.uint8)
    return levels if channels == 3 else levels.repeat(3, axis=2)


def _picture(levels: ndarray[Any, Any]) -> str:
    data = base64.b64encode(_png(levels)).decode()
    style = f"width: {_SIDE}px; height: {_SIDE}px; object-fit: contain; image-rendering: pixelated; display: block"
    return f'<img src="data:image/png;base64,{data}" style="{style}">'


def _png(levels: ndarray[Any, Any]) -> bytes:
    """Returns an RGB image as a PNG file."""
    height, width, _ = levels.shape
    # Each row of a PNG begins with the number of its filter, and 0 means no filter.
    rows = b"".join(b"\0" + row.tobytes() for row in levels)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(rows)) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
