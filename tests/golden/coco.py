"""Writes tests/golden/coco/. `instances.json` is a COCO annotation file with outlines of every type. `masks.json` has
the run lengths of pycocotools' masks for these outlines. `boxes.json` has boxes transformed by torchvision
(transforms v2).

Run with numpy, pycocotools 2.0.11, torch 2.15.0 and torchvision 0.29.2:  python tests/golden/coco.py
"""

import json
import math
import pathlib
import random

import numpy as np
import torch
from pycocotools import mask as masks
from pycocotools.coco import COCO
from torchvision import tv_tensors
from torchvision.transforms.v2 import functional as F

OUT = pathlib.Path(__file__).parent / "coco"
CATEGORIES = [(90, "toothbrush"), (3, "car"), (17, "cat")]
IMAGES = [(9, 64, 48), (4, 33, 57), (1000001, 40, 40), (5, 128, 96), (2, 16, 16)]


def star(rng, width, height, points, spread, digits):
    """Returns a polygon around a random point of the image. Its corners may be outside of the image."""
    x, y = rng.uniform(0, width), rng.uniform(0, height)
    polygon = []
    for number in range(points):
        angle = 2 * math.pi * number / points
        radius = rng.uniform(0.1, 1) * spread * min(width, height)
        polygon += [x + radius * math.cos(angle), y + radius * math.sin(angle)]
    return [round(value, digits) for value in polygon]


def runs(mask):
    """Returns the run lengths of a mask in column-major order, starting with the background."""
    pixels = np.asarray(mask).flatten(order="F")
    edges = np.flatnonzero(np.diff(np.concatenate([[0], pixels, [2]])))
    return np.diff(np.concatenate([[0], edges])).tolist()


def box(segmentation, width, height):
    if isinstance(segmentation, list):
        points = np.concatenate([np.array(polygon).reshape(-1, 2) for polygon in segmentation])
        low, high = points.min(0), points.max(0)
        return [round(float(value), 2) for value in [*low, *(high - low)]]
    packed = segmentation
    if isinstance(segmentation["counts"], list):
        packed = masks.frPyObjects(segmentation, height, width)
    return masks.toBbox(packed).tolist()


def instances():
    rng = random.Random(4)
    annotations = []
    for number in range(60):
        image, width, height = rng.choice(IMAGES[:4])
        sort = number % 6
        spread = [0.1, 0.3, 0.5, 1.5][rng.randrange(4)]
        if sort < 3:
            segmentation = [star(rng, width, height, rng.randrange(3, 20), spread, [2, 2, 1][sort])]
        elif sort == 3:
            segmentation = [star(rng, width, height, rng.randrange(3, 9), spread, 17) for _ in range(3)]
            # Repeats the first point at the end, as many annotation tools do to close a polygon.
            segmentation[0] += segmentation[0][:2]
        else:
            noise = np.array([[rng.random() for _ in range(width)] for _ in range(height)])
            mask = np.asfortranarray((noise < rng.choice([0.02, 0.5, 0.98])).astype(np.uint8))
            mask[: height // 3] = 0
            segmentation = {"size": [height, width], "counts": runs(mask)}
            if sort == 5:
                packed = masks.encode(mask)
                segmentation["counts"] = packed["counts"].decode()
        annotations.append({
            "id": 7000 + 13 * number,
            "image_id": image,
            "category_id": rng.choice(CATEGORIES)[0],
            "bbox": box(segmentation, width, height),
            "area": rng.uniform(1, 1000),
            "iscrowd": int(sort >= 4 and number % 4 == 0),
            "segmentation": segmentation,
        })
    rng.shuffle(annotations)
    images = [
        {"license": 1, "file_name": f"{id:06}.jpg", "width": width, "height": height, "id": id}
        for id, width, height in IMAGES
    ]
    categories = [{"supercategory": "x", "id": id, "name": name} for id, name in CATEGORIES]
    return {
        "info": {"description": "made", "nested": [[{"a": None}]]},
        "licenses": [],
        "images": images,
        "annotations": annotations,
        "categories": categories,
    }


def boxes():
    rng = random.Random(5)
    cases = []
    for _ in range(150):
        width, height = rng.randrange(20, 700), rng.randrange(20, 700)
        given = []
        for _ in range(6):
            w, h = rng.uniform(1, width), rng.uniform(1, height)
            given.append([round(it, 2) for it in (rng.uniform(0, width - w), rng.uniform(0, height - h), w, h)])
        it = tv_tensors.BoundingBoxes(
            given, format="XYWH", canvas_size=(height, width), dtype=torch.float64)
        steps = []
        for _ in range(rng.randrange(1, 5)):
            h, w = it.canvas_size
            sort = rng.choice(["crop", "center_crop", "flip", "resize"])
            if sort == "crop":
                cw, ch = rng.randrange(1, w + 1), rng.randrange(1, h + 1)
                x, y = rng.randrange(0, w - cw + 1), rng.randrange(0, h - ch + 1)
                it = F.crop(it, y, x, ch, cw)
                steps.append([sort, x, y, cw, ch])
            elif sort == "center_crop":
                # A crop may be larger than the image. torchvision then pads images, but places boxes with another rounding.
                # Some boxes would be one pixel to the right of their content. Padding the boxes first avoids this.
                cw, ch = rng.randrange(1, 2 * w), rng.randrange(1, 2 * h)
                left, top = max(cw - w, 0) // 2, max(ch - h, 0) // 2
                right, bottom = max(cw - w, 0) - left, max(ch - h, 0) - top
                it = F.center_crop(F.pad(it, [left, top, right, bottom]), [ch, cw])
                steps.append([sort, cw, ch])
            elif sort == "flip":
                horizontal, vertical = rng.random() < 0.5, rng.random() < 0.5
                it = F.horizontal_flip(it) if horizontal else it
                it = F.vertical_flip(it) if vertical else it
                steps.append([sort, int(horizontal), int(vertical)])
            else:
                nw, nh = rng.randrange(1, 900), rng.randrange(1, 900)
                it = F.resize(it, [nh, nw])
                steps.append([sort, nw, nh])
        it = F.clamp_bounding_boxes(it)
        expected = [[round(value, 6) for value in values] for values in it.tolist()]
        cases.append({"size": [width, height], "boxes": given, "steps": steps, "expected": expected,
                      "canvas": list(it.canvas_size)[::-1]})
    return cases


def main():
    OUT.mkdir(exist_ok=True)
    (OUT / "instances.json").write_text(json.dumps(instances()))
    coco = COCO(OUT / "instances.json")
    made = {id: runs(coco.annToMask(annotation)) for id, annotation in coco.anns.items()}
    (OUT / "masks.json").write_text(json.dumps(made))
    (OUT / "boxes.json").write_text(json.dumps(boxes()))


main()
