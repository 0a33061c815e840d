#!/usr/bin/env python3
"""Writes tests/golden/ops.json: results of Pillow and torchvision. This script and the Rust tests compute the same
input images.

Commands to run this script:
    python -m venv venv && venv/bin/pip install pillow==12.3.0 numpy torch==2.11.0 torchvision==0.26.0
    venv/bin/python tests/golden/ops.py

Images are not stored, because `picture` below and `picture` in tests/images/golden.rs compute the same bytes. Values
are those of Pillow itself, or of torchvision's transforms on PIL images with ToTensor and Normalize. Values in f16 and
bf16 are torch's conversions. Large results are stored as SHA-256 of their little-endian bytes. Small results of
resizing are stored as bytes in hex, so that tests can measure differences.

No image in this file is more than 100 times as high as wide. Since version 12.2, Pillow does the vertical pass first
for such images. feedwater always does the horizontal pass first.
"""

import hashlib
import json
import pathlib

import numpy as np
import PIL
import torch
import torchvision
from PIL import Image
from torchvision import transforms as T
from torchvision.transforms import functional as F

FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "box": Image.Resampling.BOX,
    "bilinear": Image.Resampling.BILINEAR,
    "hamming": Image.Resampling.HAMMING,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}


def picture(width, height, seed):
    """Returns an image of waves with noise, with the same bytes as `picture` in tests/images/golden.rs."""
    at = np.arange(width * height * 3, dtype=np.uint64)
    x, y, c = at // 3 % width, at // 3 // width, at % 3
    noise = (at + np.uint64(seed)) * np.uint64(0x9E3779B97F4A7C15)
    noise ^= noise >> np.uint64(29)
    noise *= np.uint64(0xBF58476D1CE4E5B9)
    noise = noise >> np.uint64(56)
    wave = (x * (5 + c) + y * (3 + 2 * c)) % 512
    wave = np.where(wave < 256, wave, 511 - wave)
    value = np.where(noise < 96, noise * 2, wave)
    return Image.fromarray(value.astype(np.uint8).reshape(height, width, 3))


def digest(array):
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def resizes():
    """Yields results of resizing whole images: enlarged, reduced, with odd sizes, and of one pixel."""
    sizes = [
        ((1, 1), (1, 1)), ((1, 1), (7, 5)), ((1, 9), (4, 4)), ((11, 1), (3, 6)), ((5, 3), (1, 1)),
        ((13, 17), (29, 31)), ((31, 29), (17, 13)), ((64, 48), (64, 48)), ((64, 48), (32, 24)),
        ((64, 48), (64, 11)), ((64, 48), (9, 48)), ((100, 75), (224, 224)), ((500, 375), (224, 224)),
        ((375, 500), (256, 341)), ((997, 7), (13, 40)), ((9, 811), (50, 6)), ((640, 480), (61, 67)),
        ((2048, 1536), (224, 224)),
    ]
    for (source, target) in sizes:
        image = picture(*source, 1)
        for name, resample in FILTERS.items():
            result = np.asarray(image.resize(target, resample))
            case = {"source": source, "target": target, "filter": name, "sha256": digest(result)}
            if result.size <= 900:
                case["bytes"] = result.tobytes().hex()
            yield case


def boxes():
    """Yields results of resizing windows of images that the decoder has already reduced. In the reduced image, the
    edges of such a window are fractions of pixels."""
    for reduction in (1, 2, 4, 8):
        image = picture(61, 47, 2)
        for x, y, w, h in ((0, 0, 61, 47), (3, 5, 31, 22), (21, 10, 40, 37), (60, 46, 1, 1)):
            # x0 to y1 are the window's edges in the full image. They are not multiples of the reduction.
            x0, y0 = x * reduction + reduction // 2, y * reduction + reduction // 3
            x1, y1 = min(61 * reduction, x0 + w * reduction), min(47 * reduction, y0 + h * reduction)
            left, top = x0 // reduction, y0 // reduction
            right, bottom = -(-x1 // reduction), -(-y1 // reduction)
            window = image.crop((left, top, right, bottom))
            box = (x0 / reduction - left, y0 / reduction - top, x1 / reduction - left, y1 / reduction - top)
            for name, resample in FILTERS.items():
                result = np.asarray(window.resize((19, 23), resample, box=box))
                yield {
                    "reduction": reduction, "box": (x0, y0, x1 - x0, y1 - y0), "filter": name,
                    "sha256": digest(result),
                }


def tensors(tensor):
    bits = {torch.float16: torch.int16, torch.bfloat16: torch.int16}
    half = {str(t)[6:]: digest(tensor.to(t).view(bits[t]).numpy()) for t in bits}
    return {"f32": digest(tensor.numpy()), "f16": half["float16"], "bf16": half["bfloat16"]}


def training():
    """Yields tensors of windows, as RandomResizedCrop draws them, after resizing, mirroring and normalizing."""
    normalize = T.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    for (width, height), (x, y, w, h), mirrored in [
        ((500, 375), (37, 12, 301, 288), False), ((500, 375), (200, 3, 299, 371), True),
        ((375, 500), (0, 0, 375, 500), True), ((640, 427), (600, 400, 31, 27), False),
    ]:
        image = F.resized_crop(picture(width, height, 3), y, x, h, w, [224, 224])
        image = F.hflip(image) if mirrored else image
        tensor = normalize(F.to_tensor(image))
        yield {
            "source": (width, height), "box": (x, y, w, h), "mirrored": mirrored, **tensors(tensor),
        }


def evaluation():
    """Yields tensors of Resize(256), CenterCrop(224), ToTensor and Normalize."""
    chain = T.Compose([
        T.Resize(256), T.CenterCrop(224), T.ToTensor(),
        T.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
    ])
    for source in [(500, 375), (375, 500), (333, 500), (256, 256), (97, 311), (1201, 700)]:
        yield {"source": source, **tensors(chain(picture(*source, 4)))}


def crops():
    """Yields crops of PIL images that extend beyond the image. They show where torchvision places the image and how it
    pads."""
    image = picture(31, 22, 5)
    for width, height in [(8, 8), (9, 5), (31, 22), (40, 8), (41, 30), (8, 31)]:
        result = np.asarray(T.CenterCrop((height, width))(image))
        yield {"op": "center_crop", "width": width, "height": height, "sha256": digest(result)}
    for x, y, width, height in [(0, 0, 5, 4), (29, 20, 6, 7), (31, 0, 4, 4), (7, 3, 24, 19)]:
        result = np.asarray(F.crop(image, y, x, height, width))
        yield {"op": "crop", "x": x, "y": y, "width": width, "height": height, "sha256": digest(result)}


def sizes():
    """Yields the output sizes of Resize, given only a shorter side, or only a longer side (transforms v2)."""
    from torchvision.transforms import v2

    for source in [(500, 375), (375, 500), (333, 500), (97, 311), (1201, 700), (17, 17), (3, 1000)]:
        image = Image.new("RGB", source)
        for pixels in (16, 255, 256):
            yield {"source": source, "shorter": pixels, "size": T.Resize(pixels)(image).size}
            if min(source) * pixels >= max(source):
                resized = v2.Resize(None, max_size=pixels)(image)
                yield {"source": source, "longer": pixels, "size": resized.size}


def main():
    golden = {
        "made_with": {
            "pillow": PIL.__version__, "torch": torch.__version__, "torchvision": torchvision.__version__,
        },
        "resize": list(resizes()), "boxes": list(boxes()), "training": list(training()),
        "evaluation": list(evaluation()), "crops": list(crops()), "sizes": list(sizes()),
    }
    lines = []
    for key, value in golden.items():
        rows = ",\n  ".join(json.dumps(row) for row in value) if isinstance(value, list) else None
        lines.append(f'"{key}": ' + (f"[\n  {rows}\n]" if rows else json.dumps(value)))
    path = pathlib.Path(__file__).with_name("ops.json")
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
