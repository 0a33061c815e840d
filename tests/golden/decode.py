"""Writes tests/golden/decode/: small images, and beside each image Pillow's RGB bytes as `<name>.rgb`.

Writes tests/golden/tolerated/ too: damaged images that Pillow decodes, with its RGB bytes. The name of such a file
begins with the key under which feedwater's `Stats` counts the damage. tests/golden/refused/ gets damaged images that
Pillow refuses. tests/golden/pnm.sha256 gets a hash of Pillow's pixels for every byte value of a PGM with every maximum
value up to 255.

Run with Pillow 12.x and numpy:  python tests/golden/decode.py

With `recipes DIR`, the script instead hashes Pillow's RGB bytes of the JPEGs in DIR into
tests/golden/recipes.sha256 (see `write_recipes` in tests/images/decode/pillow.rs).

The images are synthetic (seeded noise over gradients). Orientation is not applied: the bytes are those of
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
TOLERATED = OUT.parent / "tolerated"
REFUSED = OUT.parent / "refused"
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


def write(name, data, out=OUT):
    rgb = Image.open(io.BytesIO(data)).convert("RGB")
    (out / name).write_bytes(data)
    (out / name).with_suffix(".rgb").write_bytes(rgb.tobytes())


def refused(name, data):
    try:
        Image.open(io.BytesIO(data)).convert("RGB")
    except Exception:
        (REFUSED / name).write_bytes(data)
    else:
        raise SystemExit(f"Pillow takes {name}")


def encoded(image, kind, **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def raw_png(name, width, height, depth, color, rows, extra=b""):
    """Writes a PNG with a bit depth or colour type that Pillow cannot write. `rows` are the packed bytes of each row."""
    body = b"".join(b"\0" + row for row in rows)
    head = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + extra
    write(name, data + chunk(b"IDAT", zlib.compress(body, 9)) + chunk(b"IEND", b""))


def adam7(name, pixels, color):
    """Writes an interlaced PNG of 8-bit samples."""
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
    # The header has comments in every place, tabs and blanks. The maximum is 100, and some pixels exceed it.
    head = b"P6 # of a camera\n#\n\t%d # width\r\n  %d\n100\n" % (WIDTH, HEIGHT)
    write("pnm-rgb-100.ppm", head + (picture() // 2).tobytes())
    write("pnm-gray-10.pgm", b"P5 16 16 10 " + bytes(range(256)))
    tables = b""
    for white in range(1, 256):
        data = b"P5 256 1 %d\n" % white + bytes(range(256))
        tables += Image.open(io.BytesIO(data)).convert("RGB").tobytes()[::3]
    (OUT.parent / "pnm.sha256").write_text(hashlib.sha256(tables).hexdigest() + "\n")


    gray = picture(channels=1)[..., 0].astype(np.uint32)
    rgb = picture().astype(np.uint32)
    size = b"# of a camera\n%d %d\n" % (WIDTH, HEIGHT)
    for white in (300, 4095, 65535):
        write(f"pnm-rgb-{white}.ppm", b"P6\n%s%d\n" % (size, white) + (rgb * white // 255).astype(">u2").tobytes())
        write(f"pnm-gray-{white}.pgm", b"P5\n%s%d\n" % (size, white) + (gray * white // 50000).astype(">u2").tobytes())
    for white in (31, 255, 1000):
        text = lambda rows: b"#a\n\n".join(b" ".join(b"%d" % it for it in row.ravel()) for row in rows * white // 255)
        write(f"pnm-rgb-text-{white}.ppm", b"P3\n%s%d\n" % (size, white) + text(rgb))
        write(f"pnm-gray-text-{white}.pgm", b"P2\n%s%d\n" % (size, white) + text(gray) + b"\n")
    bits = (gray > 120).astype(np.uint8)
    write("pnm-bits.pbm", b"P4\n" + size + np.packbits(bits, axis=1).tobytes())
    write("pnm-bits-text.pbm", b"P1\n" + size + b"#b\r".join(b"".join(b"%d" % it for it in row) for row in bits))
    write("pnm-bits-text-blanks.pbm", b"P1\n" + size + b"\n".join(b" ".join(b"%d" % it for it in row) for row in bits))


PNG_HEAD = b"\x89PNG\r\n\x1a\n"


def bitmap(name, width, height, bits, data, palette=b"", compression=0, masks=(), flip=False):
    """Writes a BMP of a kind that Pillow cannot write."""
    head = struct.pack("<IiiHHIIiiII", 40, width, -height if flip else height, 1, bits, compression, 0, 0, 0, 0, 0)
    head += struct.pack(f"<{len(masks)}I", *masks) + palette
    write(name, b"BM" + struct.pack("<IHHI", 14 + len(head) + len(data), 0, 0, 14 + len(head)) + head + data)


def bmps():
    rng = np.random.default_rng(3)
    image = Image.fromarray(picture(21, 17))
    for mode in ["RGB", "L", "P", "1"]:
        write(f"bmp-{mode.lower()}.bmp", encoded(image.convert(mode), "BMP"))
    random = lambda count: rng.integers(0, 256, count, dtype=np.uint8).tobytes()
    colors = random(4 * 256)
    bitmap("bmp-4-bits.bmp", 21, 17, 4, random(12 * 17), colors[:64])
    bitmap("bmp-top-down.bmp", 21, 17, 8, random(24 * 17), colors, flip=True)
    bitmap("bmp-565.bmp", 21, 17, 16, random(44 * 17), compression=3, masks=(0xF800, 0x7E0, 0x1F))
    bitmap("bmp-555.bmp", 21, 17, 16, random(44 * 17))
    bitmap("bmp-masks.bmp", 21, 17, 32, random(84 * 17), compression=3, masks=(0xFF000000, 0xFF0000, 0xFF00))
    # Row data for run-length decoding: runs, literal indices, a delta (a move of the position), and an end of a row.
    runs = b"\x15\x07" * 3 + b"\0\x05" + bytes(5) + b"\0" + b"\x10\x09\0\0\0\x02\x03\x02" + b"\xff\x2a\0\0" * 20 + b"\0\x01"
    bitmap("bmp-rle8.bmp", 21, 17, 8, runs, colors, compression=1)
    bitmap("bmp-rle4.bmp", 21, 17, 4, runs, colors[:64], compression=2)


def gifs():
    image = Image.fromarray(picture(21, 17)).quantize(40)
    for interlaced in [0, 1]:
        write(f"gif-interlaced-{interlaced}.gif", encoded(image, "GIF", interlace=interlaced))
    write("gif-gray.gif", encoded(image.convert("L"), "GIF"))
    write("gif-transparent.gif", encoded(image, "GIF", transparency=3))
    animation = [image, Image.fromarray(picture(21, 17, seed=8)).quantize(40)]
    write("gif-animation.gif", encoded(animation[0], "GIF", save_all=True, append_images=animation[1:]))
    plain = encoded(image, "GIF", interlace=1)
    at = plain.index(b",", 13 + 3 * 64)
    # The first file has a frame inside a larger canvas, the second one a frame that is larger than the canvas.
    place = struct.pack("<HH", 4, 2)
    write("gif-canvas.gif", plain[:6] + struct.pack("<HH", 30, 25) + plain[10 : at + 1] + place + plain[at + 5 :])
    write("gif-small-canvas.gif", plain[:6] + struct.pack("<HH", 5, 6) + plain[10:])


def tiff(name, width, height, tags, chunks, order="<"):
    """Writes a TIFF of a kind that Pillow cannot write. `tags` maps tag numbers to type and values. `chunks` are the
    encoded strips or tiles."""
    data, offsets = b"", []
    for chunk in chunks:
        offsets.append(8 + len(data))
        data += chunk + bytes(len(chunk) % 2)
    tiled = 322 in tags
    tags = {256: (3, [width]), 257: (3, [height]), **tags}
    tags |= {324 if tiled else 273: (4, offsets), 325 if tiled else 279: (4, [len(chunk) for chunk in chunks])}
    body, more = struct.pack(order + "H", len(tags)), b""
    end = 8 + len(data) + 2 + 12 * len(tags) + 4
    for tag, (kind, values) in sorted(tags.items()):
        packed = struct.pack(f"{order}{len(values)}{'H' if kind == 3 else 'I'}", *values)
        field = packed.ljust(4, b"\0")
        if len(packed) > 4:
            field = struct.pack(order + "I", end + len(more))
            more += packed
        body += struct.pack(order + "HHI", tag, kind, len(values)) + field
    magic = b"II*\0" if order == "<" else b"MM\0*"
    write(name, magic + struct.pack(order + "I", 8 + len(data)) + data + body + bytes(4) + more)


def tiffs():
    rng = np.random.default_rng(4)
    random = lambda count: rng.integers(0, 256, count, dtype=np.uint8).tobytes()
    image = Image.fromarray(picture(21, 17))
    write("tiff-rgb.tif", encoded(image, "TIFF"))
    write("tiff-lzw-differences.tif", encoded(image, "TIFF", compression="tiff_lzw", tiffinfo={317: 2}))
    write("tiff-deflate-rgba.tif", encoded(image.convert("RGBA"), "TIFF", compression="tiff_adobe_deflate"))
    write("tiff-packbits-gray.tif", encoded(image.convert("L"), "TIFF", compression="packbits"))
    write("tiff-palette.tif", encoded(image.quantize(99), "TIFF", compression="tiff_lzw"))
    write("tiff-cmyk.tif", encoded(Image.frombytes("CMYK", (21, 17), random(4 * 21 * 17)), "TIFF"))
    write("tiff-1-bit.tif", encoded(image.convert("1"), "TIFF"))
    gray = Image.frombytes("I;16", (21, 17), random(2 * 21 * 17))
    write("tiff-gray-16.tif", encoded(gray, "TIFF", compression="tiff_deflate"))
    write("tiff-orientation.tif", encoded(image, "TIFF", tiffinfo={274: 1}))
    kinds = lambda bits, meaning, count: {258: (3, [bits] * count), 262: (3, [meaning]), 277: (3, [count])}
    tiles = {322: (3, [16]), 323: (3, [16]), 259: (3, [8]), 317: (3, [2])}
    chunks = [zlib.compress(random(16 * 16 * 6)) for _ in range(4)]
    tiff("tiff-tiles-16.tif", 21, 17, kinds(16, 2, 3) | tiles, chunks, ">")
    tiff("tiff-2-bits.tif", 21, 17, kinds(2, 0, 1) | {278: (3, [5])}, [random(30)] * 3 + [random(12)])
    tiff("tiff-multiplied.tif", 21, 17, kinds(8, 2, 4) | {338: (3, [1])}, [random(84 * 17)])


def parts(data):
    """Returns the chunks of a PNG as (type, data)."""
    at, found = len(PNG_HEAD), []
    while at < len(data):
        length = struct.unpack(">I", data[at : at + 4])[0]
        found.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + length]))
        at += 12 + length
    return found


def animations():
    """Writes animations to test that decoders return only the first frame. For APNGs this is the default image. For
    WebPs it is the first frame on a black canvas, whatever background colour the file names."""
    rgb, rgba = Image.fromarray(picture()), Image.fromarray(picture(channels=4), "RGBA")
    (head, data), (pixels, packed) = [it for it in parts(encoded(rgb, "PNG")) if it[0] in (b"IHDR", b"IDAT")]
    control = lambda number: struct.pack(">IIIIIHHBB", number, WIDTH, HEIGHT, 0, 0, 1, 10, 0, 0)
    count = chunk(b"acTL", struct.pack(">II", 2, 0))
    begin, image, end = PNG_HEAD + chunk(head, data), chunk(pixels, packed), chunk(b"IEND", b"")
    other = encoded(Image.fromarray(picture(seed=8)), "PNG")
    other = next(data for kind, data in parts(other) if kind == b"IDAT")
    frame = lambda number: chunk(b"fcTL", control(number)) + chunk(b"fdAT", struct.pack(">I", number + 1) + other)
    write("png-animation.png", begin + count + chunk(b"fcTL", control(0)) + image + frame(1) + end)
    write("png-animation-default.png", begin + count + image + frame(0) + frame(2) + end)

    le24 = lambda value: struct.pack("<I", value)[:3]
    riff = lambda kind, data: kind + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)
    def coded(image, **options):
        data, at, found = encoded(image, "WEBP", **options), 12, b""
        while at < len(data):
            length = struct.unpack("<I", data[at + 4 : at + 8])[0]
            if data[at : at + 4] in (b"ALPH", b"VP8 ", b"VP8L"):
                found += riff(data[at : at + 4], data[at + 8 : at + 8 + length])
            at += 8 + length + length % 2
        return found
    def frame(image, x, y, bits, **options):
        size = le24(image.width - 1) + le24(image.height - 1)
        return riff(b"ANMF", le24(x // 2) + le24(y // 2) + size + le24(100) + bytes([bits]) + coded(image, **options))
    small, later = rgba.resize((20, 15)), rgb.resize((30, 10))
    for name, options in [("lossy", dict(quality=80)), ("lossless", dict(lossless=True, exact=True))]:
        for bits in range(4):
            body = riff(b"VP8X", bytes([0x12, 0, 0, 0]) + le24(WIDTH - 1) + le24(HEIGHT - 1))
            body += riff(b"ANIM", struct.pack("<IH", 0xFF1020F0, 0))
            body += frame(small, 14, 6, bits, **options) + frame(later, 2, 4, bits, **options)
            write(f"webp-animation-{name}-{bits}.webp", riff(b"RIFF", b"WEBP" + body))


def profiles():
    """Writes PNGs with orientation 6 in text chunks, as ImageMagick stores EXIF and XMP data."""
    data = exif(6).tobytes()
    lines = [data.hex()[at : at + 72] for at in range(0, 2 * len(data), 72)]
    text = ("\nexif\n%8d\n" % len(data) + "\n".join(lines) + "\n").encode()
    key = b"Raw profile type exif"
    packed = zlib.compress(text)
    xmp = zlib.compress(b'<x tiff:Orientation="6"/>')
    chunks = parts(encoded(Image.fromarray(picture(19, 11)), "PNG"))
    for name, extra in [
        ("ztxt", chunk(b"zTXt", key + b"\0\0" + packed)),
        ("text", chunk(b"tEXt", key + b"\0" + text)),
        ("itxt", chunk(b"iTXt", key + b"\0\1\0\0\0" + packed)),
        ("xmp", chunk(b"iTXt", b"XML:com.adobe.xmp\0\1\0\0\0" + xmp)),
    ]:
        body = b"".join(chunk(*it) for it in chunks[1:])
        write(f"png-profile-{name}-6.png", PNG_HEAD + chunk(*chunks[0]) + extra + body)


def damaged():
    TOLERATED.mkdir(exist_ok=True)
    REFUSED.mkdir(exist_ok=True)
    image = Image.fromarray(picture())
    tolerated = lambda name, data: write(name, data, TOLERATED)
    for kind, options in [("baseline", {}), ("progressive", dict(progressive=True)), ("restart", dict(restart_marker_blocks=2))]:
        data = encoded(image, "JPEG", quality=88, **options)
        middle = (data.index(b"\xff\xda") + len(data)) // 2
        hole = data[:middle] + b"\xff\xd3" + data[middle + 40 :]
        tolerated(f"jpeg-data-{kind}.jpg", hole)
        refused(f"jpeg-{kind}-cut.jpg", data[:middle])
    data = encoded(image, "JPEG", quality=88)
    # The coded rows end early, and the bytes after them are no valid segment.
    start = data.index(b"\xff\xda") + 14
    refused("jpeg-behind.jpg", data[:start] + data[start + 60 :][:200] + b"\xff\xc0\0\1" + data[start + 260 :])
    tolerated("jpeg-data-segment.jpg", data[:4] + b"\0\0" + data[6:])
    for seed in range(1000):
        cut = encoded(Image.fromarray(picture(seed=seed)), "JPEG", quality=88)[:-2]
        try:
            tolerated("jpeg-end.jpg", cut)
            break
        except OSError:
            pass

    def png(pixels, kinds=(b"IHDR", b"PLTE"), palette=None, before=b"", after=b"", end=chunk(b"IEND", b"")):
        chunks = [(kind, palette if kind == b"PLTE" and palette is not None else data) for kind, data in original]
        head = b"".join(chunk(*it) for it in chunks if it[0] in kinds)
        return PNG_HEAD + head + before + pixels + after + end
    wrong = lambda kind, data: chunk(kind, data)[:-1] + bytes([chunk(kind, data)[-1] ^ 1])
    for name, source in [("rgb", image), ("palette", image.quantize(20))]:
        original = parts(encoded(source, "PNG"))
        packed = b"".join(data for kind, data in original if kind == b"IDAT")
        body = zlib.decompress(packed)
        stride = len(body) // HEIGHT
        good = chunk(b"IDAT", packed)
        text = chunk(b"tEXt", b"a\0b")
        tolerated(f"png-checksum-{name}.png", png(wrong(b"IDAT", packed)))
        tolerated(f"png-end-{name}.png", png(good, end=b""))
        tolerated(f"png-end-cut-{name}.png", png(good, end=b"")[:-2])
        tolerated(f"png-end-text-{name}.png", png(good, after=text, end=b""))
        tolerated(f"png-rows-{name}.png", png(chunk(b"IDAT", zlib.compress(body[: 21 * stride]))))
        refused(f"png-half-a-row-{name}.png", png(chunk(b"IDAT", zlib.compress(body[: 21 * stride + 9]))))
        refused(f"png-adler-{name}.png", png(chunk(b"IDAT", packed[:-1] + bytes([packed[-1] ^ 1]))))
        refused(f"png-text-checksum-{name}.png", png(good, before=wrong(b"tEXt", b"a\0b")))
        refused(f"png-cut-text-{name}.png", png(good, after=text[:-5], end=b""))
        refused(f"png-filter-{name}.png", png(chunk(b"IDAT", zlib.compress(b"\x09" + body[1:]))))
    colors = next(data for kind, data in original if kind == b"PLTE")
    tolerated("png-palette-short.png", png(good, palette=colors[:9]))
    tolerated("png-palette-none.png", png(good, kinds=(b"IHDR",)))

    # Flips a bit in the first partition. Only libwebp detects this as corrupt, other WebP decoders do not.
    for place, bit in [(144, 1), (150, 4)]:
        data = bytearray(encoded(image, "WEBP", quality=80))
        data[place] ^= 1 << bit
        refused(f"webp-bit-{bit}-of-{place}.webp", bytes(data))


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
    bmps()
    gifs()
    tiffs()
    animations()
    profiles()
    damaged()


if __name__ == "__main__":
    if sys.argv[1:2] == ["recipes"]:
        recipes(sys.argv[2])
    else:
        pictures()
