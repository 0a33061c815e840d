#!/usr/bin/env python3
"""Writes tests/golden/operators/boxes.json: boxes, points and masks after affine and perspective maps of torchvision
v2.

Commands to run this script (`--check` compares results with the stored ones and writes nothing):
    python -m venv venv && venv/bin/pip install pillow==12.3.0 numpy torch==2.11.0 torchvision==0.26.0
    venv/bin/python tests/golden/operators/boxes.py [--check]

torchvision maps boxes and points in f32 with the forward matrix. It treats masks as tensors of images and samples the
nearest pixel.
"""

import random

import torch
from golden import main
from torchvision import tv_tensors
from torchvision.transforms.v2 import functional as F
from torchvision.transforms.functional import _get_perspective_coeffs


def texts(values):
    return " ".join(repr(float(f"{float(value):.5f}")) for value in values)


def sample(size, rng):
    width, height = size
    boxes = []
    for _ in range(6):
        x, y = sorted(rng.uniform(0, width) for _ in range(2)), sorted(rng.uniform(0, height) for _ in range(2))
        boxes.append([round(x[0], 1), round(y[0], 1), min(round(x[1], 1) + 1, width), min(round(y[1], 1) + 1, height)])
    points = [[round(rng.uniform(0, width), 1), round(rng.uniform(0, height), 1)] for _ in range(6)]
    boxes = tv_tensors.BoundingBoxes(torch.tensor(boxes), format="XYXY", canvas_size=size[::-1])
    points = tv_tensors.KeyPoints(torch.tensor(points), canvas_size=size[::-1])
    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    mask = tv_tensors.Mask((((x - width / 3) ** 2 + (2 * y - height / 2) ** 2) < (height / 1.5) ** 2).to(torch.uint8))
    return boxes, points, mask


def row(size, steps, before, after):
    (boxes, points, mask), (to_boxes, to_points, to_mask) = before, after
    bits = "".join(str(int(bit)) for bit in to_mask.flatten())
    return {
        "source": size, "steps": steps, "size": list(to_boxes.canvas_size[::-1]), "boxes": [texts(box) for box in boxes],
        "points": [texts(point) for point in points], "to_boxes": [texts(box) for box in to_boxes],
        "to_points": [texts(point) for point in to_points], "to_mask": f"{int('1' + bits, 2):x}",
    }


def chains(seed):
    rng = random.Random(f"boxes {seed}")
    for number in range(24):
        size = [(100, 60), (57, 83), (64, 64)][number % 3]
        width, height = size
        before = sample(size, rng)
        steps = []
        if number % 2:
            steps.append(["crop", 5, 7, width - 20, height - 15])
            width, height = width - 20, height - 15
        kind = ["rotate", "affine", "perspective", "expand", "quarter"][number % 5]
        if kind in ("rotate", "expand"):
            steps.append([kind, texts([rng.uniform(-180, 180)])])
        elif kind == "quarter":
            steps.append(["expand", texts([rng.choice([0, 90, 180, 270])])])
        elif kind == "affine":
            steps.append(["affine", texts([rng.uniform(-90, 90), rng.randint(-10, 10), rng.randint(-10, 10),
                                           rng.uniform(0.7, 1.5), rng.uniform(-20, 20), rng.uniform(-20, 20)])])
        else:
            end = [[rng.randrange(12), rng.randrange(12)], [width - 1 - rng.randrange(12), rng.randrange(12)],
                   [width - 1 - rng.randrange(12), height - 1 - rng.randrange(12)],
                   [rng.randrange(12), height - 1 - rng.randrange(12)]]
            steps.append(["perspective", end])
        if number % 4 == 0:
            steps.append(["flip"])
        if number % 3 == 0:
            steps.append(["rotate", texts([rng.uniform(-30, 30)])])
        if number % 4 == 1:
            steps.append(["resize", 80, 96])
        after = before
        for name, *args in steps:
            numbers = [float(it) for it in args[0].split()] if args and isinstance(args[0], str) else None

            def apply(it):
                match name:
                    case "crop":
                        return F.crop(it, args[1], args[0], args[3], args[2])
                    case "rotate" | "expand":
                        return F.rotate(it, numbers[0], expand=name == "expand")
                    case "affine":
                        return F.affine(it, numbers[0], numbers[1:3], numbers[3], numbers[4:])
                    case "perspective":
                        start = [[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]]
                        return F.perspective(it, None, None, coefficients=_get_perspective_coeffs(start, args[0]))
                    case "flip":
                        return F.horizontal_flip(it)
                    case "resize":
                        return F.resize(it, [args[1], args[0]])

            after = [apply(it) for it in after]
        yield row(size, steps, before, after)


if __name__ == "__main__":
    main("boxes.json", lambda seed: {"chains": chains(seed)})
