#!/usr/bin/env python3
"""Writes tests/golden/operators/conversions.json: sizes and pixels of those transforms of torchvision and timm that
`from_torchvision` converts.

Commands to run this script (`--check` compares results with the stored ones and writes nothing):
    python -m venv venv && venv/bin/pip install pillow numpy torch torchvision timm==1.0.31
    venv/bin/python tests/golden/operators/conversions.py [--check]
"""

import hashlib
import random
from unittest import mock

import numpy as np
from golden import main, picture
from PIL import Image
from timm.data import auto_augment, transforms
from torchvision.transforms.v2 import functional as F

SIZES = [(3, 2), (31, 22), (22, 31), (640, 427), (333, 500), (4000, 3000), (500, 17), (640, 480)]


def digest(image):
    return hashlib.sha256(np.ascontiguousarray(np.asarray(image)).tobytes()).hexdigest()[:32]


def resizes():
    for size in SIZES:
        # With these lengths, no side becomes 0 pixels long. torchvision fails if a side does.
        for shorter, longest in ((16, 40), (224, 320), (256, 257), (480, 640), (800, 1333)):
            yield {"source": size, "shorter": shorter, "max_size": longest, "size": F.resize(Image.new("L", size), [shorter], max_size=longest).size}


def keep_ratios():
    """Yields sizes of timm's ResizeKeepRatio for given numbers, which replace the random ones."""
    rng = random.Random(7)
    for size in SIZES:
        for target in ((224, 224), (192, 288), (30, 21)):
            for longest in (0.0, 1.0, 0.25):
                for area in (False, True):
                    scale, log_aspect = rng.uniform(0.5, 1.5), rng.uniform(-0.2, 0.2)
                    given = [scale, log_aspect]
                    with mock.patch.object(random, "uniform", lambda low, high: given.pop(0)), mock.patch.object(random, "random", lambda: 0.0):
                        height, width = transforms.ResizeKeepRatio.get_params(
                            Image.new("L", size), target, longest, random_scale_prob=1.0, random_scale_area=area, random_aspect_prob=1.0)
                    plain = transforms.ResizeKeepRatio.get_params(Image.new("L", size), target, longest)
                    yield {
                        "source": size, "target": target[::-1], "longest": longest, "area": area, "scale": repr(scale),
                        "log_aspect": repr(log_aspect), "size": (width, height), "plain": plain[::-1],
                    }


def crops():
    for size in SIZES[:3]:
        image = picture(*size, 25)
        for width, height in ((20, 30), (40, 9), (45, 47)):
            for mode, fill in (("constant", [9, 8, 7]), ("reflect", 0), ("edge", 0), ("symmetric", 0)):
                result = transforms.center_crop_or_pad(image, (height, width), fill=fill, padding_mode=mode)
                yield {"operator": "center_crop", "source": size, "output": (width, height), "mode": mode, "sha256": digest(result)}
                padded = F.pad(image, [4, 3, 2, 1], fill=fill, padding_mode=mode)
                yield {"operator": "random_crop", "source": size, "output": padded.size, "mode": mode, "sha256": digest(padded)}


def policies():
    for name in ("v0", "v0r", "original", "originalr", "3a"):
        for entry in auto_augment.auto_augment_policy(name):
            yield {"policy": name, "entry": [[it.name, float(it.prob), float(it.magnitude)] for it in entry]}


def levels():
    """Yields the number of bits of timm's `PosterizeOriginal`, and the names of the operations of timm's `augmix`."""
    for magnitude in (0.0, 2.4, 2.5, 5.0, 7.49, 8.0, 10.0):
        yield {"operation": "PosterizeOriginal", "magnitude": repr(magnitude), "bits": auto_augment.LEVEL_TO_ARG["PosterizeOriginal"](magnitude, {})[0]}
    for operation in auto_augment.augmix_ops():
        yield {"operation": operation.name, "augmix": True}


if __name__ == "__main__":
    main("conversions.json", lambda _: {"resizes": resizes(), "keep_ratios": keep_ratios(), "crops": crops(), "policies": policies(), "levels": levels()})
