"""Writes tests/golden/alpha/: small images with transparency, and tests/golden/alpha.json: for these images and those of
tests/golden/decode/, hashes of Pillow's pixels in the modes L and RGBA, and of the image over two backgrounds.

Run with Pillow 12.x and numpy:  python tests/golden/alpha.py

The images are synthetic (seeded noise). Orientation is not applied: the pixels are those of
`Image.open(file).convert(mode)`. Results are stored as the first half of the SHA-256 of their bytes.
"""

import hashlib
import io
import json
import pathlib
import struct
import warnings
import zlib

import numpy as np
from PIL import Image

OUT = pathlib.Path(__file__).parent / "alpha"
DECODE = OUT.parent / "decode"
WIDTH, HEIGHT = 23, 17
BACKGROUNDS = [(255, 255, 255), (10, 200, 77)]


def samples(channels, bits=8, seed=5):
    """Samples with many repeated values, so that some equal a transparent colour. Alpha is often 0 or the maximum."""
    random = np.random.default_rng(seed)
    values = random.integers(0, 1 << bits, (HEIGHT, WIDTH, channels))
    values[random.random((HEIGHT, WIDTH)) < 0.3] = values[0, 0]
    if channels in (2, 4):
        values[..., -1] = np.where(random.random((HEIGHT, WIDTH)) < 0.3, 0, values[..., -1])
        values[..., -1] = np.where(random.random((HEIGHT, WIDTH)) < 0.3, (1 << bits) - 1, values[..., -1])
    return values


def packed(values, bits):
    """Rows of samples with this number of bits, each row padded to a byte."""
    if bits >= 8:
        return [row.astype(f">u{bits // 8}").tobytes() for row in values.reshape(HEIGHT, -1)]
    shifts = np.arange(bits - 1, -1, -1)
    rows = values.reshape(HEIGHT, -1, 1) >> shifts & 1
    return [np.packbits(row.astype(np.uint8).reshape(-1)).tobytes() for row in rows]


def png(values, bits, colour_type, transparency=None, palette=None):
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    head = struct.pack(">IIBBBBB", WIDTH, HEIGHT, bits, colour_type, 0, 0, 0)
    chunks = [chunk(b"IHDR", head)]
    if palette is not None:
        chunks.append(chunk(b"PLTE", palette))
    if transparency is not None:
        chunks.append(chunk(b"tRNS", transparency))
    data = b"".join(b"\0" + row for row in packed(values, bits))
    chunks += [chunk(b"IDAT", zlib.compress(data)), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def tiff(values, bits, photometric, extra, order="<", palette=None):
    channels = values.shape[-1]
    data = values.astype(f"{order}u{bits // 8}").tobytes()
    shorts = lambda numbers: struct.pack(f"{order}{len(numbers)}H", *numbers)
    tags = [(256, [WIDTH]), (257, [HEIGHT]), (258, [bits] * channels), (259, [1]), (262, [photometric]), (277, [channels]),
            (278, [HEIGHT]), (284, [1])]
    if extra is not None:
        tags.append((338, extra))
    if palette is not None:
        tags.append((320, palette))
    tags += [(273, None), (279, None)]
    tags.sort(key=lambda tag: tag[0])
    at = 8 + 2 + 12 * len(tags) + 4
    bodies, entries = b"", b""
    for tag, numbers in tags:
        if numbers is None:
            continue
        if len(numbers) > 2:
            bodies += shorts(numbers)
    strip = at + len(bodies)
    place = at
    for tag, numbers in tags:
        if numbers is None:
            entries += struct.pack(f"{order}HHII", tag, 4, 1, strip if tag == 273 else len(data))
        elif len(numbers) > 2:
            entries += struct.pack(f"{order}HHII", tag, 3, len(numbers), place)
            place += 2 * len(numbers)
        else:
            entries += struct.pack(f"{order}HHI", tag, 3, len(numbers)) + shorts(numbers + [0] * (2 - len(numbers)))
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(f"{order}I", 8)
    return head + struct.pack(f"{order}H", len(tags)) + entries + b"\0" * 4 + bodies + data


def bmp(masks):
    values = samples(4)
    data = values[::-1].astype(np.uint8).tobytes()
    info = struct.pack("<IiiHHIIiiII", 56, WIDTH, HEIGHT, 1, 32, 3, len(data), 0, 0, 0, 0) + struct.pack("<4I", *masks)
    start = 14 + len(info)
    return b"BM" + struct.pack("<IHHI", start + len(data), 0, 0, start) + info + data


def saved(image, kind, **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def images():
    gray = lambda bits: samples(1, bits)
    word = lambda *values: struct.pack(f">{len(values)}H", *values)
    for bits in (1, 2, 4, 8, 16):
        first = int(gray(bits)[0, 0, 0])
        yield f"png-gray-{bits}-transparent.png", png(gray(bits), bits, 0, word(first))
    # Pillow compares the low byte of the transparent gray with the decoded byte.
    yield "png-gray-4-low-byte.png", png(gray(4), 4, 0, word(0x100 + 17 * int(gray(4)[0, 0, 0])))
    yield "png-gray-16-low-byte.png", png(gray(16) % 300, 16, 0, word(0x12FF))
    rgb = samples(3)
    yield "png-rgb-transparent.png", png(rgb, 8, 2, word(*map(int, rgb[0, 0])))
    rgb = samples(3, 16)
    yield "png-rgb-16-transparent.png", png(rgb, 16, 2, word(*(int(value) >> 8 for value in rgb[0, 0])))
    colours = np.random.default_rng(3).integers(0, 256, (16, 3)).astype(np.uint8).tobytes()
    yield "png-palette-one.png", png(gray(4), 4, 3, b"\xff\xff\0", colours)
    yield "png-palette-several.png", png(gray(4), 4, 3, bytes(range(0, 220, 20)), colours)
    yield "png-palette-opaque.png", png(gray(4), 4, 3, None, colours)
    yield "png-gray-alpha.png", png(samples(2), 8, 4)
    yield "png-gray-alpha-16.png", png(samples(2, 16), 16, 4)
    yield "png-rgba.png", png(samples(4), 8, 6)
    yield "png-rgba-16.png", png(samples(4, 16), 16, 6)
    for name, extra in [("undeclared", None), ("unspecified", [0]), ("premultiplied", [1]), ("alpha", [2])]:
        yield f"tiff-rgba-{name}.tif", tiff(samples(4), 8, 2, extra)
        yield f"tiff-rgba-16-{name}.tif", tiff(samples(4, 16), 16, 2, extra)
    yield "tiff-rgba-16-big.tif", tiff(samples(4, 16), 16, 2, [2], ">")
    yield "tiff-five.tif", tiff(samples(5), 8, 2, [2, 0])
    yield "tiff-gray-alpha.tif", tiff(samples(2), 8, 1, [2])
    palette = [int(value) << 8 for value in np.random.default_rng(3).integers(0, 256, 768)]
    yield "tiff-palette-alpha.tif", tiff(samples(2), 8, 3, [2], palette=palette)
    yield "tiff-palette-extra.tif", tiff(samples(2), 8, 3, [0], palette=palette)
    for number, masks in enumerate([
        (0xFF0000, 0xFF00, 0xFF, 0xFF000000), (0xFF0000, 0xFF00, 0xFF, 0), (0xFF000000, 0xFF0000, 0xFF00, 0xFF),
        (0xFF, 0xFF00, 0xFF0000, 0xFF000000), (0xFF000000, 0xFF00, 0xFF, 0xFF0000), (0, 0, 0, 0),
    ]):
        yield f"bmp-masks-{number}.bmp", bmp(masks)
    rgba = Image.fromarray(samples(4).astype(np.uint8))
    yield "webp-lossless.webp", saved(rgba, "WEBP", lossless=True, exact=True)
    yield "webp-lossy.webp", saved(rgba, "WEBP", quality=70)
    other = Image.fromarray(samples(4, seed=9).astype(np.uint8))
    yield "webp-animation.webp", saved(rgba, "WEBP", lossless=True, exact=True, save_all=True, append_images=[other])


def digest(image):
    return hashlib.sha256(image.tobytes()).hexdigest()[:32]


def results(data):
    image = lambda mode: Image.open(io.BytesIO(data)).convert(mode)
    rgba = image("RGBA")
    over = [Image.alpha_composite(Image.new("RGBA", rgba.size, (*colour, 255)), rgba).convert("RGB") for colour in BACKGROUNDS]
    return {
        "L": digest(image("L")), "RGBA": digest(rgba), "transparent": rgba.getextrema()[3][0] < 255,
        "over": [digest(it) for it in over], "L_over": [digest(it.convert("L")) for it in over],
    }


def main():
    warnings.simplefilter("ignore")
    OUT.mkdir(exist_ok=True)
    for name, data in images():
        (OUT / name).write_bytes(data)
    files = sorted(path for folder in (OUT, DECODE) for path in folder.iterdir() if path.suffix != ".rgb")
    cases = {f"{path.parent.name}/{path.name}": results(path.read_bytes()) for path in files}
    rows = ",\n".join(f"{json.dumps(name)}: {json.dumps(case)}" for name, case in cases.items())
    OUT.with_suffix(".json").write_text("{\n" + rows + "\n}\n")


if __name__ == "__main__":
    main()
