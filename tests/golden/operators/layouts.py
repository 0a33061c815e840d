#!/usr/bin/env python3
"""Writes tests/golden/operators/layouts.json: sizes and pixels of padded, fitted and cropped images, results of elastic
transforms, and quantiles of random parameters.

Commands to run this script (`--check` compares results with the stored ones and writes nothing):
    python -m venv venv && venv/bin/pip install pillow==12.3.0 numpy torch==2.11.0 torchvision==0.26.0
    venv/bin/pip install --no-deps ultralytics==8.4.190        # letterbox only
    venv/bin/python tests/golden/operators/layouts.py [--check]
"""

import ast
import hashlib
import importlib.util
import pathlib
import random
from unittest import mock

import numpy as np
import torch
from golden import main, picture
from PIL import Image, ImageFilter
from torchvision import tv_tensors
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F

SIZES = [(1, 1), (1, 9), (11, 1), (2, 3), (31, 22), (640, 427), (333, 500), (4000, 3000)]


def digest(image):
    return hashlib.sha256(np.ascontiguousarray(np.asarray(image)).tobytes()).hexdigest()[:32]


def texts(values):
    return " ".join(repr(float(value)) for value in values)


def pads():
    for size in SIZES[:5]:
        image = picture(*size, 21)
        for padding in ([0, 0, 0, 0], [1, 2, 3, 4], [40, 0, 0, 35], [7, 50, 90, 3], [-1, 3, 2, 0], [4, 0, -1, -1]):
            if size[0] + min(padding[0], 0) + min(padding[2], 0) < 1 or size[1] + min(padding[1], 0) + min(padding[3], 0) < 1:
                continue
            for mode in ("constant", "edge", "reflect", "symmetric"):
                result = F.pad(image, padding, fill=[9, 8, 7], padding_mode=mode)
                yield {"source": size, "padding": padding, "mode": mode, "size": result.size, "sha256": digest(result)}


def letterbox_class():
    """Returns Ultralytics' LetterBox class. Its definition is cut out of the module's source, because importing the
    module needs libraries that are not installed."""
    folder = pathlib.Path(importlib.util.find_spec("ultralytics").submodule_search_locations[0])
    module = ast.parse((folder / "data" / "augment.py").read_text())
    names = {"BaseTransform": object, "cv2": mock.Mock(), "np": np, "Any": object}
    for node in module.body:
        if isinstance(node, ast.ClassDef) and node.name == "LetterBox":
            exec(compile(ast.Module([node], []), "augment.py", "exec"), names)
    return names["LetterBox"]


def letterboxes():
    LetterBox = letterbox_class()
    for width, height in SIZES + [(641, 480), (479, 641), (1279, 720), (1280, 721)]:
        for shape in ((640, 640), (384, 640), (33, 31)):
            for auto, scale_up, center in ((0, 1, 1), (1, 1, 1), (0, 0, 1), (0, 1, 0), (1, 0, 0)):
                box = LetterBox(shape, auto=bool(auto), scaleup=bool(scale_up), center=bool(center))
                params = box.get_params({"img": np.zeros((height, width, 3), np.uint8)})
                yield {
                    "source": (width, height), "output": shape[::-1], "auto": bool(auto), "scale_up": bool(scale_up),
                    "center": bool(center), "resized": [int(side) for side in params["new_unpad"]],
                    "padding": [int(params[side]) for side in ("left", "top", "right", "bottom")],
                }


def thumbnails():
    rng = random.Random(5)
    sizes = SIZES + [(rng.randint(1, 400), rng.randint(1, 400)) for _ in range(40)]
    for size in sizes:
        for most in ((1, 1), (128, 128), (64, 200), (33, 7), (500, 333)):
            image = Image.new("L", size)
            image.thumbnail(most, reducing_gap=None)
            yield {"source": size, "most": most, "size": image.size}


class Given:
    """Replaces torch.rand. Calls return numbers from a seeded generator and append them to `given`."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.given = []

    def __call__(self, *shape):
        count = int(np.prod(shape)) if shape else 1
        values = torch.tensor([self.random.randrange(1 << 24) / (1 << 24) for _ in range(count)])
        self.given += values.tolist()
        return values.reshape(shape)


def random_sizes():
    for size in SIZES:
        image = Image.new("L", size)
        for seed in range(6):
            given = Given(f"zoom {size} {seed}")
            with mock.patch.object(torch, "rand", given):
                padding = v2.RandomZoomOut(side_range=(1.0, 4.0)).make_params([image])["padding"]
            r, x, y = given.given
            factor = torch.tensor([r]) * 3.0 + 1.0
            yield {"name": "zoom_out", "source": size, "numbers": texts([factor.item(), x, y]), "result": padding}
            given = Given(f"jitter {size} {seed}")
            with mock.patch.object(torch, "rand", given):
                height, width = v2.ScaleJitter((1024, 600)).make_params([image])["size"]
            scale = torch.tensor(given.given) * (2.0 - 0.1) + 0.1
            yield {"name": "scale_jitter", "source": size, "numbers": texts([scale.item()]), "result": [width, height]}
        for shorter, longest in ((480, None), (480, 640), (800, 1333), (13, 15)):
            height, width = v2.RandomShortestSize(shorter, longest).make_params([image])["size"]
            yield {"name": "shortest_size", "source": size, "numbers": texts([shorter, longest or 0]), "result": [width, height]}


def boxes_of(size, rng, count):
    width, height = size
    for _ in range(count):
        x, y = sorted(rng.uniform(0, width) for _ in range(2)), sorted(rng.uniform(0, height) for _ in range(2))
        yield [round(x[0], 2), round(y[0], 2), round(x[1], 2) + 1, round(y[1], 2) + 1]


def iou_crops():
    """Yields results of RandomIoUCrop with a single trial, for four given random numbers and a given minimum overlap."""
    rng = random.Random(6)
    for size in ((31, 22), (640, 427), (333, 500)):
        boxes = list(boxes_of(size, rng, 3))
        target = tv_tensors.BoundingBoxes(torch.tensor(boxes), format="XYXY", canvas_size=size[::-1])
        for number in range(20):
            overlap = (0.0, 0.1, 0.5)[number % 3]
            crop = v2.RandomIoUCrop(sampler_options=[overlap], trials=1)
            given = Given(f"iou {size} {number}")
            rounds = [0]

            def rand(*shape):
                if len(given.given) == 4:
                    raise StopIteration
                return given(*shape)

            def randint(**_):
                rounds[0] += 1
                if rounds[0] == 2:
                    raise StopIteration
                return torch.tensor([0])

            try:
                with mock.patch.object(torch, "rand", rand), mock.patch.object(torch, "randint", randint):
                    params = crop.make_params([Image.new("L", size), target])
                result = [params["left"], params["top"], params["width"], params["height"]]
                kept = params["is_within_crop_area"].tolist()
            except StopIteration:
                result = kept = None
            yield {
                "source": size, "boxes": [texts(box) for box in boxes], "overlap": texts([overlap]),
                "numbers": texts((given.given + [0, 0])[:4]), "result": result, "kept": kept,
            }


def noise(count, seed):
    """Returns the same numbers as `noise` in tests/operators/formulas/layouts.rs."""
    at = np.arange(count, dtype=np.uint64) + np.uint64(seed)
    value = at * np.uint64(0x9E3779B97F4A7C15)
    value ^= value >> np.uint64(29)
    value *= np.uint64(0xBF58476D1CE4E5B9)
    return torch.tensor((value >> np.uint64(40)).astype(np.float32) / np.float32(1 << 24))


def elastics():
    for width, height, alpha, sigma, name in (
        (31, 22, [50.0, 50.0], [2.0, 2.0], "bilinear"), (26, 30, [120.0, 60.0], [1.0, 3.0], "bilinear"),
        (9, 7, [30.0, 30.0], [0.0, 0.0], "bilinear"), (31, 22, [50.0, 50.0], [2.0, 2.0], "nearest"),
    ):
        fields = [noise(width * height, seed).reshape(1, 1, height, width) for seed in (1, 1 + width * height)]
        with mock.patch.object(torch, "rand", lambda *_: fields.pop(0)):
            transform = v2.ElasticTransform(alpha, sigma, fill=[200, 0, 50])
            displacement = transform.make_params([Image.new("L", (width, height))])["displacement"]
        filter = v2.InterpolationMode(name)
        result = F.elastic(picture(width, height, 22), displacement, filter, fill=[200, 0, 50])
        yield {
            "source": (width, height), "alpha": texts(alpha), "sigma": texts(sigma), "filter": name,
            "displacements": texts(f"{it:.5f}" for it in (displacement[0] * torch.tensor([width / 2, height / 2])).flatten()[:40].tolist()),
            "bytes": np.asarray(result).tobytes().hex(),
        }


def pictures():
    """Yields hashes of the images that whole operators produce."""
    for size in ((31, 22), (22, 31), (64, 48), (1, 9)):
        image = picture(*size, 23)
        row = lambda name, result: {"name": name, "source": size, "size": result.size, "sha256": digest(result)}
        thumbnail = image.copy()
        thumbnail.thumbnail((20, 13), reducing_gap=None)
        yield row("thumbnail", thumbnail)
        box = letterbox_class()((40, 36)).get_params({"img": np.asarray(image)})
        resized = image.resize(box["new_unpad"], Image.BILINEAR)
        padding = [int(box[side]) for side in ("left", "top", "right", "bottom")]
        yield row("letterbox", F.pad(resized, padding, fill=114))
        yield row("pad", F.pad(image, [3, 0, 5, 7], fill=[9, 8, 7]))
        start = [[0, 0], [size[0] - 1, 0], [size[0] - 1, size[1] - 1], [0, size[1] - 1]]
        if min(size) > 1:
            yield row("perspective", F.perspective(image, start, [[3, 1], [19, 2], [20, 17], [1, 18]], fill=[5, 6, 7]))
            yield row("shortest_size", v2.RandomShortestSize([13], 20)(image))


def blurs():
    for size in ((1, 1), (1, 9), (11, 1), (31, 22), (64, 48)):
        for radius in (0.1, 0.3, 0.5, 0.977, 1.0, 1.37, 1.99, 2.0, 7.5):
            result = picture(*size, 24).filter(ImageFilter.GaussianBlur(radius))
            yield {"source": size, "radius": texts([radius]), "sha256": digest(result)}


def distributions():
    """Yields quantiles of the parameters that operators draw for an image of 64x48 pixels."""
    torch.manual_seed(4)
    image = Image.new("L", (64, 48))
    count = 20000
    seen = {}

    def see(name, value):
        seen.setdefault(name, []).append(float(value))

    rotation, affine = v2.RandomRotation([-30, 60]), v2.RandomAffine([-10, 20], (0.1, 0.3), (0.5, 2.0), [-5, 5, -20, 10])
    perspective, zoom, jitter = v2.RandomPerspective(0.6), v2.RandomZoomOut(), v2.ScaleJitter((64, 64))
    shortest, corners = v2.RandomShortestSize([10, 20, 40]), []
    from torchvision.transforms.v2 import _geometry
    with mock.patch.object(_geometry, "_get_perspective_coeffs", lambda start, end: corners.append(end)):
        for _ in range(count):
            see("rotation", rotation.make_params([image])["angle"])
            params = affine.make_params([image])
            for name, value in (("angle", params["angle"]), ("x", params["translate"][0]), ("y", params["translate"][1]),
                                ("scale", params["scale"]), ("shear_x", params["shear"][0]), ("shear_y", params["shear"][1])):
                see(f"affine {name}", value)
            perspective.make_params([image])
            for number, corner in enumerate(corners.pop()):
                see(f"perspective {number} x", corner[0])
                see(f"perspective {number} y", corner[1])
            left, top, right, bottom = zoom.make_params([image])["padding"]
            see("zoom width", left + right)
            see("zoom left", left)
            see("zoom top", top)
            see("jitter width", jitter.make_params([image])["size"][1])
            see("shortest height", shortest.make_params([image])["size"][0])
    target = tv_tensors.BoundingBoxes(torch.tensor([[5.0, 6, 30, 40], [40, 10, 60, 30]]), format="XYXY", canvas_size=(48, 64))
    crop = v2.RandomIoUCrop()
    for _ in range(4000):
        params = crop.make_params([image, target])
        see("iou left", params.get("left", -1))
        see("iou width", params.get("width", 64))
        see("iou height", params.get("height", 48))
    for name, values in seen.items():
        yield {
            "name": name, "count": len(values),
            "quantiles": texts(f"{it:.6g}" for it in np.quantile(values, np.arange(1, 20) / 20)),
        }


if __name__ == "__main__":
    main("layouts.json", lambda _: {
        "pads": pads(), "letterboxes": letterboxes(), "thumbnails": thumbnails(), "random_sizes": random_sizes(),
        "iou_crops": iou_crops(), "elastics": elastics(), "pictures": pictures(), "blurs": blurs(), "distributions": distributions(),
    })
