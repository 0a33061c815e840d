#!/usr/bin/env python3
"""Writes tests/golden/operators/normalize_image.json: results of Albumentations' Normalize with the statistics of
each image.

Commands to run this script (`--check` compares results with the stored ones and writes nothing):
    python -m venv venv && venv/bin/pip install pillow==12.3.0 numpy torch==2.11.0 torchvision==0.26.0 scipy albumentations==2.0.8
    venv/bin/python tests/golden/operators/normalize_image.py [--check]

Albumentations returns f64. For each image of colour.py, the script stores the first 16 digits of the SHA-256 of the
result's values, converted to little-endian f32.
"""

import albumentations
import numpy as np
from colour import PICTURES, digest
from golden import main


def images():
    for normalization in ("image", "image_per_channel"):
        normalize = albumentations.Normalize(normalization=normalization)
        results = [normalize(image=np.asarray(picture))["image"] for picture in PICTURES]
        assert all(result.dtype == np.float64 for result in results)
        per_channel = normalization == "image_per_channel"
        yield {"per_channel": per_channel, "results": [digest(result.astype("<f4")) for result in results]}


if __name__ == "__main__":
    main("normalize_image.json", lambda _: {"images": images()}, albumentations=albumentations.__version__)
