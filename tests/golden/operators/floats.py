#!/usr/bin/env python3
"""Writes tests/golden/operators/floats.json: results of Pillow for images of mode F, and of torchvision's Normalize.

Commands to run this script:
    python -m venv venv && venv/bin/pip install pillow==12.3.0 numpy torch==2.11.0 torchvision==0.26.0
    venv/bin/python tests/golden/operators/floats.py            # writes
    venv/bin/python tests/golden/operators/floats.py --check    # compares with the stored results

Images have numbers from 0 to 65535, which the Rust tests compute too. Results are stored as the first half of the
SHA-256 of their bytes.
"""

import hashlib
import random

import numpy as np
import torch
from golden import main, picture
from PIL import Image
from torchvision.transforms.v2 import functional as F

RESIZE = {"nearest": Image.NEAREST, "box": Image.BOX, "bilinear": Image.BILINEAR, "hamming": Image.HAMMING,
          "bicubic": Image.BICUBIC, "lanczos": Image.LANCZOS}
WARP = {"nearest": F.InterpolationMode.NEAREST, "bilinear": F.InterpolationMode.BILINEAR,
        "bicubic": F.InterpolationMode.BICUBIC}
SIZES = [(1, 1), (1, 9), (11, 1), (31, 22), (64, 48), (13, 57)]


def numbers(width, height, seed):
    """Returns an image of mode F with 256 * red + green of `picture`."""
    pixels = np.asarray(picture(width, height, seed)).astype(np.float32)
    return Image.fromarray(pixels[..., 0] * 256 + pixels[..., 1])


def digest(image):
    return hashlib.sha256(np.ascontiguousarray(np.asarray(image)).tobytes()).hexdigest()[:32]


def resizes(_):
    for number, (width, height) in enumerate(SIZES):
        for to in [(1, 1), (7, 5), (64, 48), (40, 90), (31, height)]:
            for name, resample in RESIZE.items():
                result = numbers(width, height, number).resize(to, resample)
                yield {"source": (width, height), "seed": number, "to": to, "filter": name, "sha256": digest(result)}


def rotations(seed):
    rng = random.Random(f"rotations {seed}")
    for number, (width, height) in enumerate(SIZES):
        image = numbers(width, height, number)
        for angle in [0, 90, rng.uniform(-180, 180), rng.uniform(-30, 30)]:
            for name, mode in WARP.items():
                # Pillow computes the sine of the rounded angle, so the test needs the same number.
                angle = float(np.float32(angle))
                result = F.rotate(image, angle, mode, fill=[7.0])
                yield {"source": (width, height), "seed": number, "angle": repr(angle), "filter": name, "sha256": digest(result)}


def normalized(_):
    for mean, std in [(0.5, 0.25), (0.1, 3.0)]:
        array = torch.from_numpy(np.asarray(numbers(31, 22, 3)).copy())
        result = (array / 65535 - mean) / std
        yield {"mean": mean, "std": std, "sha256": digest(result.numpy())}


if __name__ == "__main__":
    main("floats.json", lambda seed: {"resizes": resizes(seed), "rotations": rotations(seed), "normalized": normalized(seed)})
