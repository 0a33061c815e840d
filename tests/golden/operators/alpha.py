#!/usr/bin/env python3
"""Writes tests/golden/operators/alpha.json: results of Pillow and torchvision for images of the modes RGBA and L.

Commands to run this script:
    python -m venv venv && venv/bin/pip install pillow==12.3.0 numpy torch==2.11.0 torchvision==0.26.0
    venv/bin/python tests/golden/operators/alpha.py            # writes
    venv/bin/python tests/golden/operators/alpha.py --check    # compares with the stored results

Colours are those of `picture`, and alpha is a function of another one with many zeros and maxima, which the Rust tests
compute too. Operators are in TOML. Results are stored as the first half of the SHA-256 of their bytes.
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


def source(width, height, seed):
    colours = np.asarray(picture(width, height, seed))
    alpha = np.asarray(picture(width, height, seed + 100))[..., :1].astype(int)
    alpha = np.clip(2 * alpha - 128, 0, 255).astype(np.uint8)
    return Image.fromarray(np.concatenate([colours, alpha], -1))


def digest(image):
    return hashlib.sha256(np.ascontiguousarray(np.asarray(image)).tobytes()).hexdigest()[:32]


def case(size, seed, chain, result):
    return {
        "source": size, "seed": seed, "chain": chain,
        **{mode: digest(result(source(*size, seed).convert(mode))) for mode in ("L", "RGBA")},
    }


def resizes(_):
    for seed, size in enumerate(SIZES):
        for to in [(1, 1), (7, 5), (64, 48), (40, 90), (31, size[1])]:
            for name, resample in RESIZE.items():
                chain = [f'op = "resize", width = {to[0]}, height = {to[1]}, filter = "{name}"']
                yield case(size, seed, chain, lambda image: image.resize(to, resample))


def warps(seed):
    rng = random.Random(f"warps {seed}")
    for number, size in enumerate(SIZES):
        for angle in [0, 90, 180, rng.uniform(-180, 180), rng.uniform(-30, 30)]:
            for name, mode in WARP.items():
                # One number fills all channels, and alpha 7 divides the colours of the fill.
                angle = float(np.float32(angle))
                chain = [f'op = "rotate", angle = {angle!r}, interpolation = "{name}", fill = 7']
                yield case(size, number, chain, lambda image: F.rotate(image, angle, mode, fill=7))
                translate = [rng.randint(-5, 5), rng.randint(-5, 5)]
                chain = [f'op = "affine", translate = {translate}, interpolation = "{name}"']
                yield case(size, number, chain, lambda image: F.affine(image, 0.0, translate, 1.0, [0.0], mode))


def chains(_):
    for number, size in enumerate(SIZES[3:]):
        image = lambda result, chain: case(size, number, chain, result)
        yield image(
            lambda it: F.hflip(F.resize(F.center_crop(it, [18, 12]), [9, 20])),
            ['op = "center_crop", width = 12, height = 18', 'op = "resize", width = 20, height = 9', 'op = "flip", horizontal = 1.0'],
        )
        yield image(lambda it: F.pad(it, [3, 4, 5, 6], fill=9), ['op = "pad", padding = [3, 4, 5, 6], fill = 9'])
        yield image(lambda it: F.pad(it, [3, 4, 5, 6], padding_mode="reflect"), ['op = "pad", padding = [3, 4, 5, 6], mode = "reflect"'])
        yield image(
            lambda it: F.vflip(F.rotate(F.resize(it, [30, 25]), 20.0, WARP["bilinear"])),
            ['op = "resize", width = 25, height = 30', 'op = "rotate", angle = 20.0, interpolation = "bilinear"', 'op = "flip", vertical = 1.0'],
        )
        yield image(
            lambda it: F.resize(F.resize(it, [40, 33], Image.BICUBIC), [11, 14], Image.LANCZOS),
            ['op = "resize", width = 33, height = 40, filter = "bicubic"', 'op = "resize", width = 14, height = 11, filter = "lanczos"'],
        )


def fills(_):
    """Cases of RGBA with four values per setting."""
    for number, size in enumerate(SIZES[3:]):
        image = source(*size, number)
        four = lambda chain, result: {"source": size, "seed": number, "chain": chain, "RGBA": digest(result)}
        yield four(['op = "pad", padding = 4, fill = [1, 2, 3, 200]'], F.pad(image, [4], fill=[1, 2, 3, 200]))
        for name, mode in WARP.items():
            yield four(
                [f'op = "rotate", angle = 33.0, expand = true, interpolation = "{name}", fill = [200, 30, 100, 128]'],
                F.rotate(image, 33.0, mode, expand=True, fill=[200, 30, 100, 128]),
            )


def normalized(_):
    mean, std = [0.4, 0.3, 0.2, 0.6], [0.2, 0.25, 0.3, 0.9]
    for number, size in enumerate(SIZES[3:]):
        planes = torch.from_numpy(np.asarray(source(*size, number)).copy()).permute(2, 0, 1)
        tensor = F.normalize(planes.to(torch.float32).div(255), mean, std)
        yield {"source": size, "seed": number, "chain": [f'op = "normalize", mean = {mean}, std = {std}'],
               "RGBA": digest(tensor.numpy())}


if __name__ == "__main__":
    main("alpha.json", lambda seed: {
        "resizes": resizes(seed), "warps": warps(seed), "chains": chains(seed), "fills": fills(seed), "normalized": normalized(seed),
    })
