#!/usr/bin/env python3
"""Writes tests/golden/operators/images.json: images after JPEG compression.

Commands to run this script (`--check` compares results with the stored ones and writes nothing):
    python -m venv venv && venv/bin/pip install pillow==12.3.0 numpy torch==2.11.0 torchvision==0.26.0
    venv/bin/python tests/golden/operators/images.py [--check]
"""

import hashlib

import numpy as np
from golden import main, picture
from torchvision.transforms.v2 import functional as F


def digest(image):
    return hashlib.sha256(np.ascontiguousarray(np.asarray(image)).tobytes()).hexdigest()[:32]


def jpegs():
    for size in [(1, 1), (1, 9), (3, 40), (4, 5), (5, 4), (6, 33), (16, 16), (17, 31), (32, 18), (113, 70)]:
        for quality in (1, 10, 49, 50, 75, 95, 100):
            yield {"source": size, "quality": quality, "sha256": digest(F.jpeg(picture(*size, 31), quality))}


if __name__ == "__main__":
    main("images.json", lambda _: {"jpegs": jpegs()})
