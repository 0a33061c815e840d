#!/usr/bin/env python3
"""Writes tests/golden/operators/dali.json: results of DALI's color_twist and grid_mask on the CPU.

Commands to run this script (`--check` compares results with the stored ones and writes nothing):
    python -m venv venv && venv/bin/pip install pillow==12.3.0 numpy torch==2.11.0 torchvision==0.26.0 nvidia-dali-cuda120==2.4.0
    venv/bin/python tests/golden/operators/dali.py [--check]
"""

import math

import numpy as np
import nvidia.dali
from golden import main, picture
from nvidia.dali import fn, pipeline_def

TWISTS = [
    {"brightness": 1.0, "contrast": 1.0, "saturation": 1.0, "hue": 0.0},
    {"brightness": 1.4, "contrast": 1.0, "saturation": 1.0, "hue": 0.0},
    {"brightness": 1.0, "contrast": 0.3, "saturation": 1.0, "hue": 0.0},
    {"brightness": 1.0, "contrast": 1.0, "saturation": 0.0, "hue": 0.0},
    {"brightness": 1.0, "contrast": 1.0, "saturation": 1.7, "hue": 0.0},
    {"brightness": 1.0, "contrast": 1.0, "saturation": 1.0, "hue": 120.0},
    {"brightness": 0.8, "contrast": 1.6, "saturation": 0.6, "hue": -37.5},
    {"brightness": 1.15, "contrast": 0.85, "saturation": 1.3, "hue": 18.0},
]

# Settings of grid_mask. Tile and shifts are in pixels, the angle in degrees. DALI takes radians.
MASKS = [
    {"tile": 10, "ratio": 0.5, "angle": 0.0, "shift_x": 0.0, "shift_y": 0.0},
    {"tile": 54, "ratio": 0.2, "angle": 0.0, "shift_x": 0.0, "shift_y": 0.0},
    {"tile": 17, "ratio": 0.4, "angle": 0.0, "shift_x": 3.0, "shift_y": -2.5},
    {"tile": 9, "ratio": 0.6, "angle": 45.0, "shift_x": 0.0, "shift_y": 0.0},
    {"tile": 10, "ratio": 0.5253543224757259, "angle": -68.31292479877597, "shift_x": -1.416, "shift_y": 38.949},
    {"tile": 23, "ratio": 0.75, "angle": 171.0, "shift_x": 100.5, "shift_y": -77.25},
    {"tile": 5, "ratio": 0.0, "angle": 30.0, "shift_x": 1.0, "shift_y": 1.0},
    {"tile": 5, "ratio": 1.0, "angle": 30.0, "shift_x": 1.0, "shift_y": 1.0},
]


def run(operator, image, **settings):
    """Returns the result of a DALI operator for one image."""

    @pipeline_def(batch_size=1, num_threads=1, device_id=None, prefetch_queue_depth=1)
    def pipeline():
        return operator(fn.external_source(source=lambda: [image], batch=True), **settings)

    built = pipeline()
    built.build()
    return np.array(built.run()[0].at(0))


def twists():
    image = np.asarray(picture(13, 11, 51))
    for settings in TWISTS:
        yield {"settings": settings, "bytes": run(fn.color_twist, image, **settings).tobytes().hex()}


def masks():
    """Yields, for each pixel of a white image, whether grid_mask blackens it. The bits are in row-major order. The
    first pixel is the highest bit."""
    image = np.full((35, 48, 3), 255, np.uint8)
    for settings in MASKS:
        result = run(fn.grid_mask, image, **{**settings, "angle": math.radians(settings["angle"])})
        yield {"settings": settings, "masked": np.packbits(result[..., 0] == 0).tobytes().hex()}


if __name__ == "__main__":
    main("dali.json", lambda _: {"twists": twists(), "masks": masks()}, dali=nvidia.dali.__version__)
