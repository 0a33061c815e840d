#!/usr/bin/env python3
"""Writes tests/golden/operators/colour.json: results of the colour, statistics, filter and noise operators.

Commands to run this script (`--check` compares results with the stored ones and writes nothing):
    python -m venv venv && venv/bin/pip install pillow==12.3.0 numpy torch==2.11.0 torchvision==0.26.0
    venv/bin/python tests/golden/operators/colour.py [--check]

With `--check`, this program compares results of the installed libraries with the stored ones, prints the versions, and
exits with 1 if a result differs.

Results are those of torchvision v2 on PIL images, or of Pillow if torchvision lacks the operator. The images are not
stored: `picture` in ../ops.py and the Rust tests compute the same pixels. For each image, a result is stored as the
first 16 digits of the SHA-256 of its bytes.
"""

import hashlib
import json
import pathlib
import sys

import numpy as np
import PIL
import torch
import torchvision
from PIL import Image, ImageFilter
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from ops import picture  # noqa: E402

STORED = pathlib.Path(__file__).with_name("colour.json")


def digest(image):
    return hashlib.sha256(np.ascontiguousarray(np.asarray(image)).tobytes()).hexdigest()[:16]


def dim(width, height, seed):
    """Returns an image with few levels, none of them near 0 or 255. Its histogram has gaps and empty ends."""
    return Image.fromarray(np.asarray(picture(width, height, seed)) // 9 * 5 + np.uint8(40))


def constant(width, height, value):
    return Image.new("RGB", (width, height), (value, value, value))


def colours():
    """Returns an image with all 2^24 colours. Blue changes fastest."""
    at = np.arange(1 << 24, dtype=np.uint32)
    return Image.fromarray(np.stack([at >> 16, at >> 8 & 255, at & 255], -1).astype(np.uint8).reshape(4096, 4096, 3))


# These images equal those of `pictures` in tests/operators/formulas/pictures.rs.
PICTURES = [
    picture(1, 1, 1), picture(1, 9, 2), picture(11, 1, 3), picture(2, 2, 4), picture(3, 3, 5), picture(13, 17, 6),
    picture(64, 48, 7), picture(211, 97, 8), dim(64, 48, 9), dim(5, 4, 10), constant(6, 5, 0), constant(6, 5, 255),
    constant(1, 1, 77),
]


def brightness(image, factor):
    return F.adjust_brightness(image, factor)


def contrast(image, factor):
    return F.adjust_contrast(image, factor)


def saturation(image, factor):
    return F.adjust_saturation(image, factor)


def hue(image, shift):
    return F.adjust_hue(image, shift)


def grayscale(image):
    return F.rgb_to_grayscale(image, num_output_channels=3)


def gamma(image, gamma, gain):
    return F.adjust_gamma(image, gamma, gain)


def posterize(image, bits):
    return F.posterize(image, bits)


def solarize(image, threshold):
    return F.solarize(image, threshold)


def invert(image):
    return F.invert(image)


def autocontrast(image):
    return F.autocontrast(image)


def equalize(image):
    return F.equalize(image)


def sharpness(image, factor):
    return F.adjust_sharpness(image, factor)


def sharpen(image, amount):
    return Image.blend(image, image.filter(ImageFilter.SHARPEN), amount)


def channel_permutation(image, order):
    return F.permute_channels(image, order)


def to_ycbcr(image):
    return image.convert("YCbCr")


FACTORS = [0.0, 0.1, 0.37, 0.5, 0.9, 0.95, 1.0, 1.1, 1.35, 1.9, 2.0, 7.3]
CASES = {
    brightness: [{"factor": it} for it in FACTORS],
    contrast: [{"factor": it} for it in FACTORS],
    saturation: [{"factor": it} for it in FACTORS],
    sharpness: [{"factor": it} for it in FACTORS],
    hue: [{"shift": it} for it in (-0.5, -0.31, -0.1, -0.002, 0.0, 0.003, 0.004, 0.05, 0.25, 0.5)],
    grayscale: [{}],
    gamma: [
        {"gamma": gamma, "gain": gain}
        for gamma in (0.0, 0.1, 0.45, 0.5, 0.8, 1.0, 1.2, 1.8, 2.0, 2.2, 3.0, 10.0) for gain in (0.5, 1.0, 1.7)
    ],
    posterize: [{"bits": it} for it in range(9)],
    solarize: [{"threshold": it} for it in (0, 0.5, 1, 64, 110.0, 127.5, 128, 255, 256)],
    invert: [{}],
    autocontrast: [{}],
    equalize: [{}],
    sharpen: [{"amount": it} for it in (0.0, 0.3, 1.0, 1.5)],
    channel_permutation: [{"order": it} for it in ([0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0])],
    to_ycbcr: [{}],
}
ALL_COLOURS = [
    (saturation, {"factor": 0.0}), (saturation, {"factor": 0.6}), (saturation, {"factor": 1.4}),
    (hue, {"shift": 0.0}), (hue, {"shift": 0.1}), (hue, {"shift": -0.33}), (grayscale, {}), (to_ycbcr, {}),
]


def cases():
    for operator, several in CASES.items():
        for params in several:
            yield {
                "operator": operator.__name__, "params": params,
                "results": [digest(operator(image, **params)) for image in PICTURES],
            }


def all_colours():
    image = colours()
    for operator, params in ALL_COLOURS:
        yield {"operator": operator.__name__, "params": params, "result": digest(operator(image, **params))}


def blurs():
    """Yields blurred images as bytes instead of hashes, because feedwater's pixels may differ from torchvision's by one
    level."""
    for width, height in [(17, 13), (13, 12), (12, 29)]:
        image = picture(width, height, 11)
        for kernel, sigma in [([3, 3], 0.5), ([5, 9], 0.1), ([23, 3], 1.9), ([9, 23], 2.0), ([1, 7], 5.0)]:
            if kernel[0] // 2 < width and kernel[1] // 2 < height:
                result = np.asarray(F.gaussian_blur(image, kernel, [sigma, sigma]))
                params = {"kernel_size": kernel, "sigma": sigma}
                yield {"size": (width, height), "params": params, "bytes": result.tobytes().hex()}


def ranks(values):
    """Returns 101 order statistics of the numbers `values`, from the smallest to the largest."""
    values = np.sort(np.asarray(values, dtype=np.float64))
    return [round(float(it), 6) for it in values[np.linspace(0, len(values) - 1, 101).round().astype(int)]]


def draws():
    """Yields order statistics of parameters that torchvision draws."""
    torch.manual_seed(20)
    jitter = v2.ColorJitter(brightness=0.4, contrast=(0.5, 0.9), saturation=1.5, hue=0.1)
    drawn = [jitter.make_params([]) for _ in range(4000)]
    order = [tuple(it["fn_idx"].tolist()) for it in drawn]
    yield {
        "operator": "color_jitter", "samples": len(drawn),
        "orders": len(set(order)), "first": [sum(it[0] == k for it in order) for k in range(4)],
        **{key: ranks([it[f"{key}_factor"] for it in drawn]) for key in ("brightness", "contrast", "saturation", "hue")},
    }
    distort = v2.RandomPhotometricDistort()
    drawn = [distort.make_params([torch.zeros(3, 1, 1)]) for _ in range(4000)]
    keys = ["brightness_factor", "contrast_factor", "saturation_factor", "hue_factor", "channel_permutation"]
    yield {
        "operator": "photometric_distort", "samples": len(drawn),
        "present": {key: sum(it[key] is not None for it in drawn) for key in keys},
        "contrast_before": sum(it["contrast_before"] for it in drawn),
        "saturation": ranks([it["saturation_factor"] for it in drawn if it["saturation_factor"] is not None]),
    }
    erasing = v2.RandomErasing()
    drawn = [erasing.make_params([torch.zeros(3, 150, 200)]) for _ in range(4000)]
    yield {"operator": "random_erasing", "samples": len(drawn), **{key: ranks([it[key] for it in drawn]) for key in "ijhw"}}
    noise = v2.GaussianNoise(mean=0.1, sigma=0.2)(torch.full((3, 300, 300), 100, dtype=torch.uint8))
    yield {"operator": "gaussian_noise", "samples": noise.numel(), "level": ranks(noise.flatten())}


def versions():
    return {
        "pillow": PIL.__version__, "torch": torch.__version__.split("+")[0],
        "torchvision": torchvision.__version__.split("+")[0],
    }


def made():
    return {
        "cases": list(cases()), "all_colours": list(all_colours()), "blurs": list(blurs()),
        "draws": list(draws()),
    }


def check():
    stored, now = json.loads(STORED.read_text()), json.loads(json.dumps(made()))
    print("stored:", stored.pop("made_with"), "installed:", versions())
    # Compares results of operators exactly and blurs within one level. `draws` may differ between versions of torch.
    different = 0
    for key in ("cases", "all_colours"):
        for old, new in zip(stored[key], now[key], strict=True):
            if old != new:
                different += 1
                print(f"{old['operator']} {old['params']}: differs")
    for old, new in zip(stored["blurs"], now["blurs"], strict=True):
        a, b = (np.frombuffer(bytes.fromhex(it["bytes"]), np.uint8).astype(int) for it in (old, new))
        different += int(abs(a - b).max() > 1)
    print(f"{different} differences")
    return int(different > 0)


def main():
    if "--check" in sys.argv:
        sys.exit(check())
    lines = [f'"made_with": {json.dumps(versions())}']
    for key, value in made().items():
        lines.append(f'"{key}": [\n  ' + ",\n  ".join(json.dumps(row) for row in value) + "\n]")
    STORED.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"{STORED}: {STORED.stat().st_size} bytes")


if __name__ == "__main__":
    main()
