"""Writes tests/golden/encoders/: small JPEGs of many encoders, and JPEGs with the structure of files from cameras and
old software.

`tests/images/encoders.rs` compares our decoder with libjpeg-turbo on each file. It also lists which of the two decoders
feedwater uses for the file.

Run:  pip install pillow numpy imagecodecs opencv-python-headless simplejpeg imageio-ffmpeg 'pyvips[binary]' ajpegli
    python tests/golden/encoders.py

`versions.txt` beside the files lists the versions of the encoders. mozjpeg comes with pyvips, jpegli with ajpegli.
cargo builds the crates `image` and `jpeg-encoder` in a temporary folder.
"""

import importlib.metadata
import io
import os
import pathlib
import re
import subprocess
import tempfile

import ajpegli
import cv2
import imagecodecs
import imageio_ffmpeg
import numpy as np
import pyvips
import simplejpeg
from PIL import Image, ImageDraw, features

OUT = pathlib.Path(__file__).parent / "encoders"
PACKAGES = "ajpegli imagecodecs imageio-ffmpeg numpy opencv-python-headless pillow pyvips pyvips-binary simplejpeg"
CRATES = {"image": "0.25.9", "jpeg-encoder": "0.7.1"}
SIZES = [(61, 45), (67, 52), (113, 70), (64, 48), (81, 33), (35, 60)]


def picture(number):
    """Returns an image with gradients, edges and noise. `number` selects its size and seeds the noise."""
    width, height = SIZES[number % len(SIZES)]
    rng = np.random.default_rng(number)
    y, x = np.mgrid[0:height, 0:width]
    planes = [127 + 100 * np.sin(x / (9.0 + 2 * c) + c) * np.cos(y / (7.0 + c)) for c in range(3)]
    image = Image.fromarray(np.clip(np.stack(planes, -1), 0, 255).astype(np.uint8))
    draw = ImageDraw.Draw(image)
    for _ in range(4):
        a, b = rng.integers(0, width, 2), rng.integers(0, height, 2)
        box = [int(min(a)), int(min(b)), int(max(a)), int(max(b))]
        draw.ellipse(box, fill=tuple(map(int, rng.integers(0, 256, 3))))
    noisy = np.asarray(image) + rng.normal(0, 3, (height, width, 3))
    return np.clip(noisy, 0, 255).astype(np.uint8)


def gray(number):
    return picture(number)[..., 1].copy()


def write(name, data):
    assert data[:2] == b"\xff\xd8", name
    (OUT / f"{name}.jpg").write_bytes(data)


def pillow(pixels, **options):
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", **options)
    return buffer.getvalue()


def pillows():
    for number, (quality, sampling) in enumerate([(5, 2), (30, 1), (75, 2), (75, 0), (92, 1), (100, 2), (100, 0)]):
        name = ["444", "422", "420"][sampling]
        write(f"pillow-{quality}-{name}", pillow(picture(number), quality=quality, subsampling=sampling))
    write("pillow-optimize-420", pillow(picture(1), quality=85, optimize=True))
    write("pillow-optimize-444", pillow(picture(2), quality=60, optimize=True, subsampling=0))
    write("pillow-restart-1", pillow(picture(0), quality=80, restart_marker_blocks=1))
    write("pillow-restart-3-422", pillow(picture(4), quality=80, restart_marker_blocks=3, subsampling=1))
    write("pillow-restart-rows", pillow(picture(5), quality=80, restart_marker_rows=1, optimize=True))
    write("pillow-gray", pillow(gray(1), quality=75))
    write("pillow-gray-optimize-restart", pillow(gray(2), quality=90, optimize=True, restart_marker_blocks=5))
    write("pillow-progressive-420", pillow(picture(0), quality=75, progressive=True))
    write("pillow-progressive-gray", pillow(gray(4), quality=75, progressive=True))
    write("pillow-keep-rgb", pillow(picture(3), quality=90, keep_rgb=True))
    cmyk = io.BytesIO()
    Image.fromarray(picture(0)).convert("CMYK").save(cmyk, "JPEG", quality=80)
    write("pillow-cmyk", cmyk.getvalue())
    tables = [list(range(1, 65)), [255] * 64]
    write("pillow-own-quantization", pillow(picture(1), qtables=tables, subsampling=2))
    write("pillow-one-quantization", pillow(picture(3), qtables=tables[:1], subsampling=0))


def mozjpegs():
    def encode(pixels, **options):
        height, width = pixels.shape[:2]
        bands = 1 if pixels.ndim == 2 else 3
        image = pyvips.Image.new_from_memory(pixels.tobytes(), width, height, bands, "uchar")
        return image.jpegsave_buffer(**options)

    all = dict(optimize_coding=True, trellis_quant=True, overshoot_deringing=True)
    assert encode(picture(2), Q=75, **all) != encode(picture(2), Q=75, optimize_coding=True), "not mozjpeg"
    write("mozjpeg-50-420", encode(picture(1), Q=50, **all))
    write("mozjpeg-75-420", encode(picture(2), Q=75, quant_table=3, **all))
    write("mozjpeg-95-444", encode(picture(3), Q=95, **all))
    write("mozjpeg-gray", encode(gray(1), Q=70, quant_table=2, **all))
    write("mozjpeg-restart", encode(picture(0), Q=80, restart_interval=2, **all))
    write("mozjpeg-progressive", encode(picture(2), Q=75, interlace=True, optimize_scans=True, **all))


def jpeglis():
    def encode(pixels, mode="RGB", **options):
        return ajpegli.encode(pixels, mode=mode, **{"progressive": 0, **options})

    for number, (quality, sampling) in enumerate([(30, "420"), (90, "420"), (75, "422"), (85, "444"), (75, "440")]):
        write(f"jpegli-{quality}-{sampling}", encode(picture(number), quality=quality, subsampling=sampling))
    write("jpegli-gray", encode(gray(2), "L", quality=80))
    write("jpegli-fixed-tables", encode(picture(1), quality=80, optimize=False))
    write("jpegli-not-adaptive", encode(picture(5), quality=60, adaptive_quantization=False))
    write("jpegli-progressive", encode(picture(2), quality=75, progressive=2))


def opencvs():
    def encode(pixels, *options):
        taken, data = cv2.imencode(".jpg", pixels, options)
        assert taken
        return data.tobytes()

    write("opencv-default", encode(picture(1)))
    write("opencv-gray", encode(gray(0), cv2.IMWRITE_JPEG_QUALITY, 60))
    for name in ("411", "420", "422", "440", "444"):
        factor = getattr(cv2, f"IMWRITE_JPEG_SAMPLING_FACTOR_{name}")
        write(f"opencv-{name}", encode(picture(4), cv2.IMWRITE_JPEG_SAMPLING_FACTOR, factor, cv2.IMWRITE_JPEG_QUALITY, 80))
    write("opencv-restart", encode(picture(5), cv2.IMWRITE_JPEG_RST_INTERVAL, 4, cv2.IMWRITE_JPEG_OPTIMIZE, 1))
    qualities = cv2.IMWRITE_JPEG_LUMA_QUALITY, 95, cv2.IMWRITE_JPEG_CHROMA_QUALITY, 10
    write("opencv-two-qualities", encode(picture(3), *qualities))


def turbojpegs():
    for number, name in enumerate(("444", "422", "420", "440", "411")):
        data = simplejpeg.encode_jpeg(picture(number), quality=82, colorspace="RGB", colorsubsampling=name)
        write(f"turbojpeg-{name}", data)
    write("turbojpeg-fast-dct", simplejpeg.encode_jpeg(picture(2), quality=70, colorsubsampling="420", fastdct=True))
    write("turbojpeg-gray", simplejpeg.encode_jpeg(gray(0)[..., None], quality=88, colorspace="GRAY", colorsubsampling="Gray"))
    write("libjpeg-turbo-smoothing", imagecodecs.jpeg8_encode(picture(2), level=80, smoothing=50, optimize=True))
    wide = picture(0).astype(np.uint16) * 16
    write("libjpeg-turbo-12-bits", imagecodecs.jpeg8_encode(wide, level=80, bitspersample=12))
    write("libjpeg-turbo-lossless", imagecodecs.jpeg8_encode(picture(0), lossless=True, predictor=1))


def ffmpegs():
    def encode(pixels, layout, *options):
        height, width = pixels.shape[:2]
        kind = "gray" if pixels.ndim == 2 else "rgb24"
        command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-f", "rawvideo", "-pix_fmt", kind]
        command += ["-s", f"{width}x{height}", "-i", "-", "-pix_fmt", layout, "-c:v", "mjpeg", *options]
        command += ["-frames:v", "1", "-f", "image2pipe", "-"]
        return subprocess.run(command, input=pixels.tobytes(), stdout=subprocess.PIPE, check=True).stdout

    for number, (layout, quality) in enumerate([("yuvj420p", 2), ("yuvj420p", 31), ("yuvj422p", 5), ("yuvj444p", 5)]):
        write(f"ffmpeg-{layout[4:7]}-{quality}", encode(picture(number), layout, "-q:v", str(quality)))
    write("ffmpeg-fixed-tables", encode(picture(4), "yuvj420p", "-q:v", "4", "-huffman", "default"))
    write("ffmpeg-slices", encode(picture(5), "yuvj420p", "-q:v", "4", "-slices", "4", "-threads", "4"))
    write("ffmpeg-narrow-range", encode(picture(1), "yuv420p", "-q:v", "4", "-strict", "unofficial"))
    write("ffmpeg-gray", encode(gray(2), "gray", "-q:v", "3"))


def crates():
    """Writes JPEGs with the crates `image` and `jpeg-encoder`."""
    source = """
use image::{ColorType, ImageEncoder, codecs::jpeg::JpegEncoder};
use jpeg_encoder::{Encoder, SamplingFactor};
fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, kind, width, height, quality, pixels, out] = &arguments[..] else { panic!() };
    let (width, height): (u16, u16) = (width.parse().unwrap(), height.parse().unwrap());
    let (quality, pixels) = (quality.parse().unwrap(), std::fs::read(pixels).unwrap());
    let is_gray = kind.contains("gray");
    let mut bytes = Vec::new();
    if kind.starts_with("image") {
        let color = if is_gray { ColorType::L8 } else { ColorType::Rgb8 };
        let encoder = JpegEncoder::new_with_quality(&mut bytes, quality);
        encoder.write_image(&pixels, width.into(), height.into(), color.into()).unwrap();
    } else {
        let mut encoder = Encoder::new(&mut bytes, quality);
        let color = if is_gray { jpeg_encoder::ColorType::Luma } else { jpeg_encoder::ColorType::Rgb };
        if kind.contains("420") { encoder.set_sampling_factor(SamplingFactor::F_2_2) }
        if kind.contains("422") { encoder.set_sampling_factor(SamplingFactor::F_2_1) }
        if kind.contains("optimized") { encoder.set_optimized_huffman_tables(true) }
        if kind.contains("restart") { encoder.set_restart_interval(4) }
        encoder.encode(&pixels, width, height, color).unwrap();
    }
    std::fs::write(out, bytes).unwrap();
}
"""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "src").mkdir()
        (folder / "src/main.rs").write_text(source)
        dependencies = f"""image = {{ version = "={CRATES['image']}", default-features = false, features = ["jpeg"] }}
jpeg-encoder = "={CRATES['jpeg-encoder']}"
"""
        head = '[workspace]\n[package]\nname = "encode"\nversion = "0.0.0"\nedition = "2024"\n[dependencies]\n'
        (folder / "Cargo.toml").write_text(head + dependencies)
        environment = {**os.environ, "CARGO_TARGET_DIR": str(folder / "target")}
        subprocess.run(["cargo", "build", "-q"], cwd=folder, env=environment, check=True)
        for number, (kind, quality) in enumerate(
            [("image", 75), ("image", 95), ("image-gray", 80), ("jpeg-encoder-420", 70), ("jpeg-encoder-422-restart", 90)]
            + [("jpeg-encoder-444-optimized", 50), ("jpeg-encoder-gray-optimized", 85)]
        ):
            pixels = gray(number) if "gray" in kind else picture(number)
            (folder / "pixels").write_bytes(pixels.tobytes())
            height, width = map(str, pixels.shape[:2])
            arguments = [kind, width, height, str(quality), folder / "pixels", folder / "out"]
            subprocess.run([folder / "target/debug/encode", *arguments], check=True)
            write(f"{'crate-' * (kind[:5] == 'image')}{kind}-{quality}", (folder / "out").read_bytes())


def versions():
    lines = [f"{name} {importlib.metadata.version(name)}" for name in PACKAGES.split()]
    lines += [f"crate {name} {version}" for name, version in CRATES.items()]
    build = re.search(r"JPEG: .*ver ([0-9.]+)", cv2.getBuildInformation())
    lines += [
        f"ffmpeg {imageio_ffmpeg.get_ffmpeg_version()}",
        f"jpegli {ajpegli.jpegli_commit()}",
        f"libjpeg-turbo in pillow {features.version('libjpeg_turbo')}",
        f"libjpeg-turbo in opencv {build[1]}",
        f"libjpeg-turbo in imagecodecs {imagecodecs.jpeg8_version()}",
        f"libvips {'.'.join(str(pyvips.version(at)) for at in range(3))}",
    ]
    (OUT / "versions.txt").write_text("\n".join(lines) + "\n")


def main():
    for old in OUT.glob("*.jpg"):
        old.unlink()
    import encoders_cameras

    for make in (pillows, mozjpegs, jpeglis, opencvs, turbojpegs, ffmpegs, crates):
        make()
    encoders_cameras.make(write, pillow, picture, gray)
    versions()


if __name__ == "__main__":
    main()
