#!/usr/bin/env python3
"""Writes tests/golden/operators/warps.json: results of Pillow's and torchvision v2's affine and perspective maps.

Commands to run this script:
    python -m venv venv && venv/bin/pip install pillow==12.3.0 numpy torch==2.11.0 torchvision==0.26.0
    venv/bin/python tests/golden/operators/warps.py            # writes
    venv/bin/python tests/golden/operators/warps.py --check    # compares with the stored results
    venv/bin/python tests/golden/operators/warps.py --seed 7   # compares once with other random maps

Numbers are stored as texts, because JSON readers round numbers. Each image is stored as the first half of the SHA-256
of its bytes.
"""

import hashlib
import random

import numpy as np
from golden import main, picture
from PIL import Image
from torchvision.transforms.v2 import AutoAugmentPolicy, AutoAugment, InterpolationMode
from torchvision.transforms.v2 import functional as F
from torchvision.transforms.functional import _get_perspective_coeffs

FILTERS = {"nearest": Image.NEAREST, "bilinear": Image.BILINEAR, "bicubic": Image.BICUBIC}
SIZES = [(1, 1), (1, 9), (11, 1), (2, 3), (31, 22), (64, 48)]


def digest(image):
    return hashlib.sha256(np.ascontiguousarray(np.asarray(image)).tobytes()).hexdigest()[:32]


def texts(values):
    return " ".join(repr(float(value)) for value in values)


def matrices(rng, width, height):
    """Yields affine maps from output to input: common ones, extreme ones, and ones with integer coefficients."""
    yield from [
        [1, 0, 0, 0, 1, 0], [1, 0, 3, 0, 1, -2], [1, 0, 0.5, 0, 1, 0.25], [-1, 0, width, 0, -1, height],
        [0, 1, 0, 1, 0, 0], [2, 0, 0, 0, 3, 0], [0.3, 0, 0.1, 0, 1.7, -1], [1, 0.3, 0, 0, 1, 0],
        [1, 0, 0, -0.25, 1, 0], [0, 0, 0.5, 0, 0, 0.5], [1, 0, 1e6, 0, 1, 0], [1, 0.5, 40000, 0, 1, 0],
        [1500.5, 800.25, -33000, 0.5, 1, 0], [1e-9, 1e-9, 1, 1e-9, -1e-9, 1],
    ]
    for _ in range(4):
        angle = rng.uniform(0, 7)
        scale = rng.choice([1, 0.5, 1.5, 4])
        a, b = np.cos(angle) * scale, np.sin(angle) * scale
        cx, cy = width / 2 + rng.uniform(-3, 3), height / 2 + rng.uniform(-3, 3)
        yield [a, b, cx - a * cx - b * cy, -b, a, cy + b * cx - a * cy]
    for _ in range(3):
        yield [rng.uniform(-2, 2) for _ in range(2)] + [rng.uniform(0, width)] + \
            [rng.uniform(-2, 2) for _ in range(2)] + [rng.uniform(0, height)]


def affine_maps(seed):
    rng = random.Random(f"affine {seed}")
    for width, height in SIZES:
        image = picture(width, height, 11)
        for number, matrix in enumerate(matrices(rng, width, height)):
            output = [(width, height), (height, width), (40, 30)][number % 3]
            for name, filter in FILTERS.items():
                fill = (7, 130, 255) if number % 2 else (0, 0, 0)
                result = image.transform(output, Image.AFFINE, matrix, filter, fillcolor=fill)
                yield {
                    "source": (width, height), "output": output, "map": texts(matrix), "filter": name,
                    "fill": fill, "sha256": digest(result),
                }


def perspective_maps(seed):
    rng = random.Random(f"perspective {seed}")
    for width, height in SIZES:
        image = picture(width, height, 12)
        for number in range(8):
            small = lambda scale: rng.uniform(-1, 1) * scale
            map = [1 + small(0.3), small(0.3), small(4), small(0.3), 1 + small(0.3), small(4),
                   small(0.3 / width), small(0.3 / height)]
            if number == 6:  # Points on a line across the image map to infinity.
                map[6] = -2 / (2 * width + 1)
            if number == 7:  # The map gives NaN at the centre of a pixel.
                map = [1, 0, -0.5, 0, 1, -0.5, -2, 0]
            for name, filter in FILTERS.items():
                fill = (7, 130, 255) if number % 2 else (0, 0, 0)
                result = image.transform((width, height), Image.PERSPECTIVE, map, filter, fillcolor=fill)
                yield {
                    "source": (width, height), "map": texts(map), "filter": name, "fill": fill,
                    "sha256": digest(result),
                }


def rotations(seed):
    rng = random.Random(f"rotate {seed}")
    for width, height in SIZES + [(40, 40)]:
        image = picture(width, height, 13)
        angles = [0, 90, 180, 270, -90, 360, 450, 30, -45, 60, 179.5] + [rng.uniform(-180, 180) for _ in range(3)]
        for number, angle in enumerate(angles):
            center = None if number % 3 else (rng.uniform(-5, width + 5), rng.uniform(0, height))
            for expand in (False, True):
                for name in FILTERS if number > 6 else ["bilinear"]:
                    for center in [None] if number % 4 else [None, center]:
                        if min(width, height) < 2 and name == "bicubic":
                            continue
                        fill = (7, 130, 255) if number % 2 else (0, 0, 0)
                        result = F.rotate(
                            image, angle, InterpolationMode(name), expand=expand, center=center, fill=fill)
                        yield {
                            "source": (width, height), "angle": texts([angle]), "expand": expand,
                            "center": texts(center) if center else None, "filter": name, "fill": fill,
                            "size": result.size, "sha256": digest(result),
                        }


def affines(seed):
    rng = random.Random(f"tv affine {seed}")
    for width, height in SIZES:
        image = picture(width, height, 14)
        for number in range(9):
            angle = rng.uniform(-180, 180) if number % 3 else 0.0
            translate = [rng.randint(-width, width), rng.randint(-height, height)] if number % 2 else [0, 0]
            scale = rng.uniform(0.5, 2) if number % 4 else 1.0
            shear = [rng.uniform(-40, 40), rng.uniform(-40, 40)] if number % 5 else [0.0, 0.0]
            center = [rng.uniform(0, width), rng.uniform(0, height)] if number % 7 == 6 else None
            for name in FILTERS:
                result = F.affine(
                    image, angle, translate, scale, shear, InterpolationMode(name), fill=[9, 8, 7], center=center)
                yield {
                    "source": (width, height), "angle": texts([angle]), "translate": texts(translate),
                    "scale": texts([scale]), "shear": texts(shear), "center": texts(center) if center else None,
                    "filter": name, "sha256": digest(result),
                }


def policy_moves(seed):
    """Yields shears and translations with the coefficients that torchvision's policies use."""
    policy = AutoAugment(AutoAugmentPolicy.IMAGENET)
    for width, height in SIZES:
        image = picture(width, height, 15)
        for name in ("ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate"):
            for magnitude in (0.0, 0.11999999731779099, -0.27000001072883606, 0.99, 8.7, -13.2):
                if name.startswith("Shear") and abs(magnitude) > 1:
                    continue
                for filter in ("nearest", "bilinear"):
                    result = policy._apply_image_or_video_transform(
                        image, name, magnitude, InterpolationMode(filter), {type(image): [5, 6, 7]})
                    yield {
                        "source": (width, height), "operation": name, "magnitude": texts([magnitude]),
                        "filter": filter, "sha256": digest(result),
                    }


def corners(seed):
    """Yields perspective maps that are given by their corners. torchvision computes the coefficients."""
    rng = random.Random(f"corners {seed}")
    for width, height in [(13, 17), (31, 22), (64, 48), (500, 375), (224, 224)]:
        start = [[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]]
        for number in range(12):
            half_w, half_h = int(0.5 * (width // 2)) + 1, int(0.5 * (height // 2)) + 1
            x, y = lambda: rng.randrange(half_w), lambda: rng.randrange(half_h)
            end = [[x(), y()], [width - 1 - x(), y()], [width - 1 - x(), height - 1 - y()], [x(), height - 1 - y()]]
            if number == 11:
                start = [[1, 2], [width - 2, 0], [width - 1, height - 3], [3, height - 1]]
            coefficients = _get_perspective_coeffs(start, end)
            result = F.perspective(
                picture(width, height, 16), None, None, InterpolationMode.BILINEAR, fill=[1, 2, 3],
                coefficients=coefficients)
            yield {
                "source": (width, height), "start": start, "end": end, "coefficients": texts(coefficients),
                "sha256": digest(result),
            }


if __name__ == "__main__":
    main("warps.json", lambda seed: {
        "affine_maps": affine_maps(seed), "perspective_maps": perspective_maps(seed), "rotations": rotations(seed),
        "affines": affines(seed), "policy_moves": policy_moves(seed), "corners": corners(seed),
    })
