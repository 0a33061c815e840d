"""Makes tests/golden/decode/: small pictures, and beside each Pillow's RGB bytes as `<name>.rgb`.

Run with Pillow 12.x and numpy:  python tests/golden/decode.py
What Pillow makes of every byte of a PGM with every largest value up to 255 is hashed into tests/golden/pnm.sha256.
With `recipes DIR` it hashes Pillow's RGB bytes of the JPEGs there (see `write_recipes` in tests/decode.rs) into
tests/golden/recipes.sha256 instead.
The pictures are synthetic (seeded noise over gradients). Orientation is not applied: the bytes are those of
`Image.open(file).convert("RGB")`.
"""

import hashlib
import io
import pathlib
import struct
import sys
import zlib

import numpy as np
from PIL import Image

OUT = pathlib.Path(__file__).parent / "decode"
WIDTH, HEIGHT = 43, 37


def picture(width=WIDTH, height=HEIGHT, channels=3, seed=7):
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    planes = [
        127 + 100 * np.sin(x / (3.0 + c) + c) * np.cos(y / (4.0 + c)) + rng.normal(0, 12, (height, width))
        for c in range(channels)
    ]
    return np.clip(np.stack(planes, -1), 0, 255).astype(np.uint8)


def save(name, image, **options):
    kinds = {"jpg": "JPEG", "png": "PNG", "webp": "WEBP", "ppm": "PPM", "pgm": "PPM"}
    buffer = io.BytesIO()
    image.save(buffer, kinds[name.rsplit(".")[-1]], **options)
    write(name, buffer.getvalue())


def write(name, data):
    rgb = Image.open(io.BytesIO(data)).convert("RGB")
    (OUT / name).write_bytes(data)
    (OUT / name).with_suffix(".rgb").write_bytes(rgb.tobytes())


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def raw_png(name, width, height, depth, color, rows, extra=b""):
    """A PNG that Pillow cannot write: `rows` are the packed bytes of each row."""
    body = b"".join(b"\0" + row for row in rows)
    head = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + extra
    write(name, data + chunk(b"IDAT", zlib.compress(body, 9)) + chunk(b"IEND", b""))


def adam7(name, pixels, color):
    """An interlaced PNG of 8-bit samples."""
    height, width = pixels.shape[:2]
    body = b""
    for x0, y0, dx, dy in [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]:
        for row in pixels[y0::dy, x0::dx]:
            if row.size:
                body += b"\0" + row.tobytes()
    head = struct.pack(">IIBBBBB", width, height, 8, color, 0, 0, 1)
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(body, 9))
    write(name, data + chunk(b"IEND", b""))


def exif(value):
    data = Image.Exif()
    data[0x0112] = value
    return data


def jpegs():
    rgb = Image.fromarray(picture())
    for name, subsampling in [("444", 0), ("422", 1), ("420", 2)]:
        save(f"jpeg-{name}.jpg", rgb, quality=90, subsampling=subsampling)
        save(f"jpeg-{name}-progressive.jpg", rgb, quality=80, subsampling=subsampling, progressive=True)
    save("jpeg-quality-30.jpg", rgb, quality=30)
    save("jpeg-optimized.jpg", rgb, quality=95, optimize=True)
    save("jpeg-restart.jpg", rgb, quality=90, restart_marker_blocks=2)
    save("jpeg-rgb.jpg", rgb, quality=90, keep_rgb=True)
    save("jpeg-gray.jpg", rgb.convert("L"), quality=90)
    save("jpeg-gray-progressive.jpg", rgb.convert("L"), quality=90, progressive=True)
    save("jpeg-cmyk.jpg", Image.fromarray(picture(channels=4), "CMYK"), quality=95)
    for width, height in [(1, 1), (8, 8), (16, 16), (17, 15), (2, 30), (30, 2)]:
        save(f"jpeg-{width}x{height}.jpg", Image.fromarray(picture(width, height)), quality=90)
    for value in range(1, 9):
        save(f"orientation-{value}.jpg", Image.fromarray(picture(19, 11)), quality=90, exif=exif(value))


def pngs():
    rgb = Image.fromarray(picture())
    gray = rgb.convert("L")
    rgba = Image.fromarray(picture(channels=4), "RGBA")
    save("png-rgb.png", rgb)
    save("png-rgba.png", rgba)
    save("png-gray.png", gray)
    save("png-gray-alpha.png", rgba.convert("LA"))
    save("png-1-bit.png", gray.convert("1"))
    save("png-palette.png", rgb.quantize(200))
    save("png-palette-4-bits.png", rgb.quantize(13), bits=4)
    save("png-palette-1-bit.png", rgb.quantize(2), bits=1)
    save("png-palette-alpha.png", rgb.quantize(50), transparency=3)
    save("png-gray-16.png", Image.fromarray(picture(channels=1)[..., 0].astype(np.uint16) * 5))
    save("png-orientation-6.png", rgb, exif=exif(6))
    wide = (picture(channels=4).astype(">u2") * 257 ^ 0x5A).astype(">u2")
    raw_png("png-rgb-16.png", WIDTH, HEIGHT, 16, 2, [row[:, :3].tobytes() for row in wide])
    raw_png("png-rgba-16.png", WIDTH, HEIGHT, 16, 6, [row.tobytes() for row in wide])
    raw_png("png-gray-alpha-16.png", WIDTH, HEIGHT, 16, 4, [row[:, :2].tobytes() for row in wide])
    packed = np.random.default_rng(3).integers(0, 256, (HEIGHT, (WIDTH + 1) // 2), np.uint8)
    raw_png("png-gray-4-bits.png", WIDTH, HEIGHT, 4, 0, [row.tobytes() for row in packed])
    raw_png("png-gray-2-bits.png", WIDTH, HEIGHT, 2, 0, [row[: (WIDTH + 3) // 4].tobytes() for row in packed])
    adam7("png-interlaced.png", picture(), 2)
    adam7("png-gray-interlaced.png", picture(channels=1)[..., 0], 0)


def webps():
    rgb = Image.fromarray(picture())
    rgba = Image.fromarray(picture(channels=4), "RGBA")
    save("webp-lossy.webp", rgb, quality=80)
    save("webp-lossy-10.webp", rgb, quality=10)
    save("webp-lossless.webp", rgb, lossless=True)
    save("webp-lossy-alpha.webp", rgba, quality=85)
    save("webp-lossless-alpha.webp", rgba, lossless=True, exact=True)
    save("webp-odd-size.webp", Image.fromarray(picture(1, 7)), quality=90)
    save("webp-orientation-8.webp", rgb, quality=60, exif=exif(8))


def pnms():
    rgb = Image.fromarray(picture())
    save("pnm-rgb.ppm", rgb)
    save("pnm-gray.pgm", rgb.convert("L"))
    save("pnm-1x1.ppm", Image.fromarray(picture(1, 1)))
    # A comment in every place, tabs, several blanks, and values up to 100 and beyond.
    head = b"P6 # of a camera\n#\n\t%d # width\r\n  %d\n100\n" % (WIDTH, HEIGHT)
    write("pnm-rgb-100.ppm", head + (picture() // 2).tobytes())
    write("pnm-gray-10.pgm", b"P5 16 16 10 " + bytes(range(256)))
    tables = b""
    for white in range(1, 256):
        data = b"P5 256 1 %d\n" % white + bytes(range(256))
        tables += Image.open(io.BytesIO(data)).convert("RGB").tobytes()[::3]
    (OUT.parent / "pnm.sha256").write_text(hashlib.sha256(tables).hexdigest() + "\n")


def recipes(folder):
    lines = [
        f"{hashlib.sha256(Image.open(path).convert('RGB').tobytes()).hexdigest()}  {path.stem}"
        for path in sorted(pathlib.Path(folder).glob("*.jpg"))
    ]
    (OUT.parent / "recipes.sha256").write_text("\n".join(lines) + "\n")


def pictures():
    OUT.mkdir(exist_ok=True)
    for old in OUT.iterdir():
        old.unlink()
    jpegs()
    pngs()
    webps()
    pnms()


if __name__ == "__main__":
    if sys.argv[1:2] == ["recipes"]:
        recipes(sys.argv[2])
    else:
        pictures()
