"""Mutated TIFFs: the pixels are those of Pillow, or the sample fails."""

import io
import itertools
import logging
import random
import struct
import zlib

import numpy
import pytest

import feedwater as fw
from feedwater import ops

Image = pytest.importorskip("PIL.Image")

SIDE = 24
FORMATS = {3: "H", 4: "I"}
VALUES = [0, 1, 2, 3, 4, 5, 6, 8, 9, 16, 17, 32, 255, 999, 65535]
TAGS = [254, 256, 257, 258, 259, 262, 266, 273, 277, 278, 279, 284, 317, 320, 322, 323, 324, 325, 338, 339]


def tiff(generator, order, photometric, bits, samples, extra, compression, tiled):
    """A TIFF of random samples, and its tags."""
    width, height = generator.choice([(7, 5), (16, 16), (17, 11), (1, 1), (20, 22)])
    columns, rows = (16, 16) if tiled else (width, generator.choice([3, height]))
    tags = {256: [width], 257: [height], 258: [bits] * samples, 259: [compression], 262: [photometric], 277: [samples], 284: [1]}
    if extra:
        tags[338] = list(extra)
    if photometric == 3:
        tags[320] = [generator.randrange(65536) for _ in range(3 << bits)]
    parts = []
    for top in range(0, height, rows):
        for _ in range(-(-width // columns)):
            count = rows if tiled else min(rows, height - top)
            part = bytes(generator.randrange(256) for _ in range(count * ((columns * samples * bits + 7) // 8)))
            parts.append(zlib.compress(part) if compression == 8 else part)
    offsets = [8 + sum(map(len, parts[:number])) for number in range(len(parts))]
    tags.update({324: offsets, 325: [len(part) for part in parts], 322: [16], 323: [16]} if tiled else
                {273: offsets, 279: [len(part) for part in parts], 278: [rows]})
    kinds = {tag: 4 if tag in (273, 279, 324, 325) else 3 for tag in tags}
    return order, b"".join(parts), [[tag, kinds[tag], tags[tag]] for tag in sorted(tags)]


def encoded(order, pixels, entries):
    directory, lists = struct.pack(order + "H", len(entries)), b""
    begin = 8 + len(pixels)
    end = begin + 2 + 12 * len(entries) + 4
    for tag, kind, values in entries:
        form = FORMATS.get(kind, "I")
        value = struct.pack(f"{order}{len(values)}{form}", *(it % (1 << (8 * struct.calcsize(order + form))) for it in values))
        directory += struct.pack(order + "HHI", tag, kind, len(values))
        if len(value) <= 4:
            directory += value.ljust(4, b"\0")
        else:
            directory += struct.pack(order + "I", end + len(lists))
            lists += value
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "I", begin)
    return head + pixels + directory + bytes(4) + lists


def mutated(generator, order, pixels, entries):
    entries = [[tag, kind, list(values)] for tag, kind, values in entries]
    number = generator.randrange(len(entries))
    entry = entries[number]
    match generator.choice(["value", "value", "type", "longer", "shorter", "drop", "tag", "twice", "byte", "cut"]):
        case "value":
            entry[2][generator.randrange(len(entry[2]))] = generator.choice(VALUES)
        case "type":
            entry[1] = generator.choice([1, 2, 3, 4, 8, 9, 12])
        case "longer":
            entry[2].append(generator.choice(VALUES))
        case "shorter":
            entry[2].pop()
        case "drop":
            del entries[number]
        case "tag":
            entry[0] = generator.choice(TAGS)
        case "twice":
            entries.insert(number + generator.randrange(2), [entry[0], 3, [generator.choice(VALUES)]])
        case "byte":
            file = bytearray(encoded(order, pixels, entries))
            file[generator.randrange(8, len(file))] = generator.randrange(256)
            return bytes(file)
        case "cut":
            file = encoded(order, pixels, entries)
            return file[: generator.randrange(8, len(file))]
    return encoded(order, pixels, entries)


def by_pillow(file):
    try:
        with Image.open(io.BytesIO(file)) as image:
            return numpy.asarray(image.convert("RGBA"))
    except Exception:  # noqa: BLE001 - Pillow raises exceptions of many types
        return None


@pytest.mark.filterwarnings("ignore")
def test_mutated_tiffs_have_the_pixels_of_pillow_or_fail(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1 << 20)
    logging.getLogger("PIL").setLevel(logging.CRITICAL)
    generator = random.Random(7)
    kinds = [(0, 1, 1, ()), (1, 4, 1, ()), (0, 8, 1, ()), (1, 16, 1, ()), (3, 2, 1, ()), (3, 8, 1, ()), (1, 8, 2, (2,)), (2, 8, 3, ()),
             (2, 8, 4, ()), (2, 8, 4, (1,)), (2, 16, 4, (2,)), (5, 8, 4, ())]
    bases = [tiff(generator, *it[:1], *it[1], *it[2:]) for it in itertools.product("<>", kinds, [1, 8], [False, True])]
    files = [encoded(*base) for base in bases]
    files += [mutated(generator, *generator.choice(bases)) for _ in range(3000)]
    loader = fw.Loader(
        fw.samples([(file, number) for number, file in enumerate(files)]),
        [ops.Crop(x=0, y=0, width=SIDE, height=SIDE)],
        batch_size=1,
        epochs=1,
        shuffle=False,
        on_error="drop",
        device="cpu",
        decode=fw.Decode(pixels="u8x4", orientation=False),
    )
    same = 0
    for images, labels in loader:
        for image, number in zip(images, labels, strict=True):
            expected = by_pillow(files[int(number)])
            # Pillow refuses some files with intact pixels, such as a palette of one bit without BitsPerSample.
            if expected is None:
                continue
            whole = numpy.zeros((SIDE, SIDE, 4), numpy.uint8)
            part = expected[:SIDE, :SIDE]
            whole[: part.shape[0], : part.shape[1]] = part
            numpy.testing.assert_array_equal(numpy.asarray(image).transpose(1, 2, 0), whole, err_msg=str(number))
            same += 1
    assert same > len(bases)
