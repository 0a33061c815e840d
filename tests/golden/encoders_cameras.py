"""Writes the files of tests/golden/encoders/ whose names begin with `camera-`. They imitate the segments, tables and
headers in files of cameras, phones and old software. encoders.py calls this program."""

import io
import struct

from PIL import Image, TiffImagePlugin

FRAMES = (0xC0, 0xC1)


def segments(data):
    """Splits a JPEG file into the list of segments before the coded data, as (marker, body), and the bytes from the
    coded data on."""
    found, at = [], 2
    while True:
        marker, length = data[at + 1], int.from_bytes(data[at + 2 : at + 4], "big")
        found.append((marker, data[at + 4 : at + 2 + length]))
        at += 2 + length
        if marker == 0xDA:
            return found, data[at:]


def joined(parts, rest, fill=0):
    data = b"\xff\xd8"
    for marker, body in parts:
        data += b"\xff" * (1 + fill) + bytes([marker]) + struct.pack(">H", len(body) + 2) + body
    return data + rest


def without(parts, *markers):
    return [part for part in parts if part[0] not in markers]


def changed(parts, marker, change):
    return [(it, change(body) if it == marker else body) for it, body in parts]


def with_thumbnail(thumbnail):
    """Returns EXIF data as cameras write it: big-endian, with a thumbnail in the second directory."""
    entry = lambda tag, kind, count, value: struct.pack(">HHII", tag, kind, count, value)
    first = struct.pack(">H", 1) + entry(0x0112, 3, 1, 1 << 16)
    at = 8 + len(first) + 4
    second = struct.pack(">H", 2) + entry(0x0201, 4, 1, at + 2 + 24 + 4) + entry(0x0202, 4, 1, len(thumbnail))
    body = b"MM\0*" + struct.pack(">I", 8) + first + struct.pack(">I", at) + second + bytes(4)
    return b"Exif\0\0" + body + thumbnail


def make(write, pillow, picture, gray):
    base = pillow(picture(1), quality=50)
    parts, rest = segments(base)
    coded = rest[:-2]
    small = pillow(picture(0)[::3, ::3].copy(), quality=60)
    put = lambda name, data: write(f"camera-{name}", data)

    # Files with unusual segments before the image.
    exif = [(0xE1, with_thumbnail(small))]
    put("exif-thumbnail", joined(exif + without(parts, 0xE0), rest))
    put("jfif-and-exif", joined(parts[:1] + exif + parts[1:], rest))
    frames = [Image.fromarray(picture(4))] * 2
    both = io.BytesIO()
    frames[0].save(both, "MPO", save_all=True, append_images=frames[1:])
    put("mpf-second-image", both.getvalue())
    put("trailing-image", base + small)
    put("trailing-garbage", base + bytes(range(256)) * 2)
    put("trailing-zeros", base + bytes(700))
    put("trailing-ff", base + b"\xff" * 33)
    names = [(0xE0 + number, b"segment %d\0" % number * 9) for number in range(1, 16) if number != 14]
    put("all-app-segments", joined(parts[:1] + names + [(0xFE, b"a comment"), (0xFE, b"")] + parts[1:], rest))
    put("jfif-thumbnail", joined([(0xE0, b"JFIF\0\1\2\0\0\1\0\1\2\2" + bytes(range(12)))] + parts[1:], rest))
    put("no-jfif", joined(without(parts, 0xE0), rest))
    adobe = lambda transform: (0xEE, b"Adobe\0\x64\0\0\0\0" + bytes([transform]))
    put("adobe-ycc", joined([adobe(1)] + without(parts, 0xE0), rest))
    put("adobe-rgb", joined([adobe(0)] + without(parts, 0xE0), rest))
    put("jfif-and-adobe-rgb", joined([parts[0], adobe(0)] + parts[1:], rest))

    # Tables.
    tables = lambda marker: b"".join(body for it, body in parts if it == marker)
    others = lambda *markers: without(parts, *markers)
    put("one-dqt-one-dht", joined(parts[:1] + [(0xDB, tables(0xDB)), (0xC4, tables(0xC4))] + others(0xE0, 0xDB, 0xC4), rest))
    late = [part for part in parts if part[0] in (0xDB, 0xC4)]
    put("tables-behind-frame", joined(others(0xDB, 0xC4, 0xDA) + late + parts[-1:], rest))
    wrong = [(0xDB, b"\0" + b"\x63" * 64), (0xC4, b"\0" + bytes([0, 1] + [0] * 14) + b"\0")]
    put("tables-twice", joined(wrong + parts, rest))
    put("unused-tables", joined([(0xDB, b"\3" + b"\1" * 64), (0xC4, b"\x13" + bytes([0, 1] + [0] * 14) + b"\0")] + parts, rest))
    put("without-dht", joined(others(0xC4), rest))
    put("without-dht-avi1", joined([(0xE0, b"AVI1\0\0" + bytes(8))] + others(0xE0, 0xC4), rest))
    def in_words(body):
        out = b""
        for at in range(0, len(body), 65):
            out += bytes([body[at] | 0x10]) + b"".join(struct.pack(">H", it) for it in body[at + 1 : at + 65])
        return out
    words = changed(parts, 0xDB, in_words)
    extended = lambda some: [(0xC1 if it == 0xC0 else it, body) for it, body in some]
    put("sof1", joined(extended(parts), rest))
    put("sof1-16-bit-quantization", joined(extended(words), rest))
    put("sof0-16-bit-quantization", joined(words, rest))
    large = changed(words, 0xDB, lambda body: body[:1] + b"".join(b"\1\x40" for _ in range(64)))
    put("sof1-steps-of-320", joined(extended(large), rest))

    # The frame.
    def renamed(ids):
        def frame(body):
            body = bytearray(body)
            body[6::3] = ids
            return bytes(body)
        def scan(body):
            body = bytearray(body)
            body[1:7:2] = ids
            return bytes(body)
        return changed(changed(parts, 0xC0, frame), 0xDA, scan)
    put("ids-0-1-2", joined(renamed(b"\0\1\2"), rest))
    put("ids-0-1-2-no-jfif", joined(without(renamed(b"\0\1\2"), 0xE0), rest))
    put("ids-34-35-36-no-jfif", joined(without(renamed(b"\x22\x23\x24"), 0xE0), rest))
    put("ids-rgb-no-jfif", joined(without(renamed(b"RGB"), 0xE0), rest))
    put("ids-rgb", joined(renamed(b"RGB"), rest))
    put("ids-equal", joined(renamed(b"\1\1\1"), rest))
    flat, flat_rest = segments(pillow(gray(2), quality=80))
    factors = lambda value: changed(flat, 0xC0, lambda body: body[:7] + bytes([value]) + body[8:])
    put("gray-factors-2-2", joined(factors(0x22), flat_rest))
    put("gray-factors-3-1", joined(factors(0x31), flat_rest))
    height = parts[[it for it, _ in parts].index(0xC0)][1][1:3]
    unknown = changed(parts, 0xC0, lambda body: body[:1] + b"\0\0" + body[3:])
    put("dnl", joined(unknown, coded + b"\xff\xdc\0\4" + height + b"\xff\xd9"))
    put("dnl-and-height", joined(parts, coded + b"\xff\xdc\0\4" + height + b"\xff\xd9"))

    # Files with unusual coded data.
    restart, restart_rest = segments(pillow(picture(0), quality=60, restart_marker_blocks=3))
    put("fill-bytes", joined(parts, rest, fill=5))
    put("fill-before-eoi", joined(parts, coded + b"\xff\xff\xff\xff\xd9"))
    filled = restart_rest
    for number in range(8):
        filled = filled.replace(bytes([0xFF, 0xD0 + number]), bytes([0xFF, 0xFF, 0xFF, 0xD0 + number]))
    put("fill-before-restart", joined(restart, filled))
    put("restart-interval-0", joined(parts[:-1] + [(0xDD, b"\0\0")] + parts[-1:], rest))
    put("restart-interval-beyond", joined(parts[:-1] + [(0xDD, b"\xff\xff")] + parts[-1:], rest))
    put("restart-twice", joined([(0xDD, b"\0\1")] + restart, restart_rest))
    put("no-eoi", joined(parts, coded))
    put("zeros-before-eoi", joined(parts, coded + b"\0\0\0\xff\xd9"))
    put("half-missing", joined(parts, rest[: len(rest) // 2]))
    put("restart-missing", joined(restart, restart_rest.replace(b"\xff\xd2", b"", 1)))
