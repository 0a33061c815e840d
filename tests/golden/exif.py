"""Writes tests/golden/exif.txt: the orientations that Pillow reads from valid and corrupt EXIF and XMP data.

Run with Pillow 12.x:  python tests/golden/exif.py [CASES [FILE]]

Each line has an orientation, a format, and the parts of the file that hold metadata (segments of a JPEG, chunks of a
PNG or WebP), each part as `name:hexadecimal`. The orientation is the one that `ImageOps.exif_transpose` applies, or
`-` if it raises an exception.
"""

import io
import pathlib
import random
import struct
import sys
import warnings
import zlib

import PIL
from PIL import Image, ImageOps

HERE = pathlib.Path(__file__).parent
ORIENTATION = 0x0112
PREFIX = b"Exif\0\0"
XMP = b"http://ns.adobe.com/xap/1.0/\0"
MAGIC = [b"II*\0", b"MM\0*"] * 4 + [b"MM*\0", b"II\0*", b"II+\0", b"MM\0+", b"XX*\0"]
SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8}
FORMATS = {1: "B", 3: "H", 4: "I", 6: "b", 8: "h", 9: "i", 11: "f", 12: "d", 13: "I", 16: "Q"}


def values(draw, order, kind, count):
    """Returns the bytes of `count` random values of the TIFF type `kind`."""
    made = b""
    for _ in range(count):
        number = draw.choice([1, 2, 3, 4, 5, 6, 7, 8, 8, 6, 0, 9])
        if kind in (5, 10):
            by = draw.choice([1, 1, 2, 0, -1])
            if kind == 5:
                by = abs(by)
            made += struct.pack(order + ("II" if kind == 5 else "ii"), number * abs(by or 1), by)
        elif kind in FORMATS:
            sign = -1 if kind in (6, 8, 9, 11, 12) and draw.random() < 0.2 else 1
            made += struct.pack(order + FORMATS[kind], sign * number)
        else:
            made += b"%d" % number if kind == 2 else bytes([number])
    return made


def tiff(draw):
    """Returns a TIFF directory with up to four random entries."""
    magic = draw.choice(MAGIC)
    order = "<" if magic[:1] == b"I" else ">"
    entries = []
    count = draw.choice([1, 1, 1, 2, 2, 3, 4])
    start = draw.choice([8] * 8 + [12, 40, 1 << 20])
    body, data_at = b"", min(start, 64) + 2 + 12 * count + 4
    data = b""
    for at in range(count):
        wanted = at == count - 1 or draw.random() < 0.3
        tag = ORIENTATION if wanted else draw.choice([0x010F, 0x011A, 0x0128, 0x8769])
        kind = draw.choice([3] * 8 + list(SIZES) + [0, 14, 17, 129])
        many = draw.choice([1] * 12 + [2, 3, 4, 0, 1 << 31])
        held = values(draw, order, kind, min(many, 4)) if kind in SIZES else b"\6\0\0\0"
        size = SIZES.get(kind, 1) * many
        if size > 4:
            where = draw.choice([data_at + len(data)] * 5 + [8, 1000, 1 << 31])
            data += held
            field = struct.pack(order + "I", where)
        else:
            field = held[:4].ljust(4, b"\0")
        entries.append(struct.pack(order + "HHI", tag, kind, many) + field)
    claimed = draw.choice([count] * 8 + [0, count + 1, 65535])
    body = struct.pack(order + "H", claimed) + b"".join(entries) + struct.pack(order + "I", 0)
    made = magic + struct.pack(order + "I", start) + bytes(max(0, min(start, 64) - 8)) + body + data
    return made[: draw.randrange(len(made))] if draw.random() < 0.1 else made


def packet(draw):
    """Returns the text of a random XMP packet."""
    digit = draw.choice("0123456789x")
    forms = ['<x tiff:Orientation="{}"/>', "<tiff:Orientation>{}</tiff:Orientation>", "<x/>", "tiff:Orientation={}", ""]
    other = draw.choice(["", "", 'tiff:Orientation="?" ', '<y tiff:Orientation="3"/>'])
    return (other + draw.choice(forms).format(digit)).encode()


def prefixed(draw, data, least=0):
    return PREFIX * draw.choice([least] * 3 + [least + 1, least + 2]) + data


def jpeg_parts(draw):
    parts = []
    for _ in range(draw.choice([0, 1, 1, 1, 1, 2])):
        data = prefixed(draw, tiff(draw))
        cut = draw.choice([len(data)] * 2 + [draw.randrange(len(data) + 1)])
        parts += [("app1", PREFIX + part) for part in ([data[:cut], data[cut:]] if cut < len(data) else [data])]
    if draw.random() < 0.1:
        parts.insert(0, ("app1", draw.choice([PREFIX, PREFIX + b"\0\0", b"Exif\0", PREFIX + b"Ex"])))
    for _ in range(draw.choice([0, 0, 0, 1, 2])):
        parts.insert(draw.randrange(len(parts) + 1), ("app1", XMP + packet(draw)))
    if draw.random() < 0.3:
        # The random byte is the unit of the resolution. If it is not 0, Pillow reads EXIF data on request.
        # If the unit is 0, Pillow reads EXIF data when it opens the image.
        parts.insert(0, ("app0", b"JFIF\0\1\1" + bytes([draw.choice([0, 1])]) + b"\0\x48\0\x48\0\0"))
    return parts


def text(kind, keyword, content):
    middle = {"tEXt": b"", "zTXt": b"\0", "iTXt": b"\0\0\0\0"}[kind]
    return kind, keyword + b"\0" + middle + (zlib.compress(content) if kind == "zTXt" else content)


def png_parts(draw):
    parts = []
    for _ in range(draw.choice([0, 1, 1, 1, 2])):
        data = prefixed(draw, tiff(draw))
        form = draw.choice(["eXIf", "eXIf", "eXIf", "profile", "exif"])
        if form == "eXIf":
            parts.append(("eXIf", data))
        elif form == "exif":
            parts.append(text("tEXt", b"exif", data))
        else:
            lines = b"\nexif\n%8d\n" % len(data) + data.hex().encode() + b"\n"
            parts.append(text(draw.choice(["tEXt", "zTXt"]), b"Raw profile type exif", lines))
    for _ in range(draw.choice([0, 0, 0, 1, 2])):
        parts.append(text(draw.choice(["iTXt", "iTXt", "tEXt", "zTXt"]), b"XML:com.adobe.xmp", packet(draw)))
    draw.shuffle(parts)
    return parts


def webp_parts(draw):
    parts = [("EXIF", prefixed(draw, tiff(draw))) for _ in range(draw.choice([0, 1, 1, 1, 2]))]
    parts += [("XMP", packet(draw)) for _ in range(draw.choice([0, 0, 0, 1, 2]))]
    draw.shuffle(parts)
    return parts


def saved(format, **options):
    file = io.BytesIO()
    Image.new("RGB", (5, 3)).save(file, format, **options)
    return file.getvalue()


def with_segments(parts):
    plain = saved("JPEG")
    # Leaves out the JFIF segment that the encoder wrote.
    rest = plain[4 + struct.unpack(">H", plain[4:6])[0] :]
    markers = {"app0": b"\xff\xe0", "app1": b"\xff\xe1"}
    segments = (markers[name] + struct.pack(">H", len(body) + 2) + body for name, body in parts)
    return b"\xff\xd8" + b"".join(segments) + rest


def with_chunks(parts):
    plain = saved("PNG")
    chunk = lambda name, data: struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    return plain[:33] + b"".join(chunk(name.encode(), data) for name, data in parts) + plain[33:]


def with_riff_chunks(parts):
    pixels = saved("WEBP", lossless=True)[12:]
    chunk = lambda name, data: name + struct.pack("<I", len(data)) + data + bytes(len(data) % 2)
    head = chunk(b"VP8X", bytes([0x0C, 0, 0, 0, 4, 0, 0, 2, 0, 0]))
    body = b"WEBP" + head + pixels + b"".join(chunk(name.ljust(4).encode(), data) for name, data in parts)
    return b"RIFF" + struct.pack("<I", len(body)) + body


KINDS = {"jpeg": (jpeg_parts, with_segments), "png": (png_parts, with_chunks), "webp": (webp_parts, with_riff_chunks)}


def outcome(file):
    try:
        image = Image.open(io.BytesIO(file))
        ImageOps.exif_transpose(image)
    except Exception:
        return "-"
    # `exif_transpose` reads the orientation like this. It acts on 2 to 8 and ignores all other values.
    orientation = image.getexif().get(ORIENTATION, 1)
    return {number: number for number in range(2, 9)}.get(orientation, 1)


def main(cases=250, path=HERE / "exif.txt"):
    warnings.simplefilter("ignore")
    draw = random.Random(2)
    lines = {}
    while len(lines) < int(cases):
        format = draw.choice(["jpeg", "jpeg", "jpeg", "png", "webp"])
        parts, file = KINDS[format]
        parts = parts(draw)
        line = " ".join([format, *(f"{name}:{data.hex()}" for name, data in parts)])
        lines[line] = outcome(file(parts))
    head = f"# Pillow {PIL.__version__}, by tests/golden/exif.py"
    text = "\n".join([head, *(f"{found} {line}" for line, found in lines.items())])
    pathlib.Path(path).write_text(text + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
