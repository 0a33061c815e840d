#!/usr/bin/env python3
"""Time per image of single operators: feedwater's, torchvision's on PIL images and on tensors, Albumentations', OpenCV's and DALI's
on the CPU, on the same pixels, one thread each, in one run.

    cargo build --release -p feedwater-cli
    python3 -m venv .venv && .venv/bin/pip install -r benches/peers/requirements.txt albumentations opencv-python-headless
    .venv/bin/python benches/peers/operators.py [--rounds 5] [--images 32] [--json FILE]

feedwater's times are those of `feedwater bench-ops`. All take turns, round after round; a figure is the median over the rounds, and
the ratio is the fastest peer's time divided by feedwater's. Peers that are not installed, or lack an operator, are left out.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
SIDE = 224

# Settings in TOML, and the same for each peer.
OPERATORS = {
    "brightness": "factor = 1.3",
    "contrast": "factor = 1.3",
    "saturation": "factor = 1.3",
    "hue": "shift = 0.1",
    "grayscale": "",
    "posterize": "bits = 4",
    "solarize": "threshold = 128.0",
    "equalize": "",
    "autocontrast": "",
    "sharpness": "factor = 1.7",
    "gaussian_blur": "kernel_size = 9\nsigma = 1.5",
    "rotate": "angle = 20.0\ninterpolation = \"bilinear\"",
    "gaussian_noise": "sigma = 0.1",
}


def torchvision(images, on_tensors):
    import torch
    from torchvision.transforms import v2
    from torchvision.transforms.v2 import functional as F
    torch.set_num_threads(1)
    if on_tensors:
        images = [F.pil_to_tensor(image) for image in images]
    bilinear = v2.InterpolationMode.BILINEAR
    calls = {
        "brightness": lambda it: F.adjust_brightness(it, 1.3),
        "contrast": lambda it: F.adjust_contrast(it, 1.3),
        "saturation": lambda it: F.adjust_saturation(it, 1.3),
        "hue": lambda it: F.adjust_hue(it, 0.1),
        "grayscale": lambda it: F.rgb_to_grayscale(it, 3),
        "posterize": lambda it: F.posterize(it, 4),
        "solarize": lambda it: F.solarize(it, 128),
        "equalize": F.equalize,
        "autocontrast": F.autocontrast,
        "sharpness": lambda it: F.adjust_sharpness(it, 1.7),
        "gaussian_blur": lambda it: F.gaussian_blur(it, [9, 9], [1.5, 1.5]),
        "rotate": lambda it: F.rotate(it, 20.0, interpolation=bilinear),
    }
    if on_tensors:
        calls["gaussian_noise"] = lambda it: F.gaussian_noise(it, 0.0, 0.1)
    return images, calls


def albumentations(images):
    import albumentations as A
    import cv2
    import numpy as np
    cv2.setNumThreads(1)
    images = [np.asarray(image) for image in images]
    jitter = lambda **one: A.ColorJitter(**{"brightness": (1, 1), "contrast": (1, 1), "saturation": (1, 1), "hue": (0, 0), **one}, p=1)
    steps = {
        "brightness": jitter(brightness=(1.3, 1.3)),
        "contrast": jitter(contrast=(1.3, 1.3)),
        "saturation": jitter(saturation=(1.3, 1.3)),
        "hue": jitter(hue=(0.1, 0.1)),
        "grayscale": A.ToGray(p=1),
        "posterize": A.Posterize(num_bits=4, p=1),
        "solarize": A.Solarize(p=1),
        "equalize": A.Equalize(p=1),
        "gaussian_blur": A.GaussianBlur(blur_limit=(9, 9), sigma_limit=(1.5, 1.5), p=1),
        "rotate": A.Rotate(limit=(20, 20), p=1),
        "gaussian_noise": A.GaussNoise(std_range=(0.1, 0.1), p=1),
    }
    return images, {name: lambda it, step=step: step(image=it) for name, step in steps.items()}


def opencv(images):
    import cv2
    import numpy as np
    cv2.setNumThreads(1)
    images = [np.asarray(image) for image in images]
    bright = np.clip(np.arange(256) * 1.3, 0, 255).astype(np.uint8)
    few = (np.arange(256) & 0xF0).astype(np.uint8)
    solar = np.array([it if it < 128 else 255 - it for it in range(256)], np.uint8)
    turned = cv2.getRotationMatrix2D((SIDE / 2, SIDE / 2), 20.0, 1.0)

    def hue(it):
        hsv = cv2.cvtColor(it, cv2.COLOR_RGB2HSV)
        hsv[..., 0] = (hsv[..., 0] + 18) % 180
        return cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB)

    def equalize(it):
        return cv2.merge([cv2.equalizeHist(channel) for channel in cv2.split(it)])

    def saturation(it):
        gray = cv2.cvtColor(cv2.cvtColor(it, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB)
        return cv2.addWeighted(it, 1.3, gray, -0.3, 0)

    return images, {
        "brightness": lambda it: cv2.LUT(it, bright),
        "saturation": saturation,
        "hue": hue,
        "grayscale": lambda it: cv2.cvtColor(cv2.cvtColor(it, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB),
        "posterize": lambda it: cv2.LUT(it, few),
        "solarize": lambda it: cv2.LUT(it, solar),
        "equalize": equalize,
        "gaussian_blur": lambda it: cv2.GaussianBlur(it, (9, 9), 1.5),
        "rotate": lambda it: cv2.warpAffine(it, turned, (SIDE, SIDE), flags=cv2.INTER_LINEAR),
    }


def dali(images):
    """A pipeline per operator; one call runs all images on one thread."""
    import numpy as np
    from nvidia.dali import fn, pipeline_def, types
    arrays = [np.asarray(image) for image in images]
    steps = {
        "brightness": lambda it: fn.brightness(it, brightness=1.3),
        "contrast": lambda it: fn.contrast(it, contrast=1.3),
        "saturation": lambda it: fn.saturation(it, saturation=1.3),
        "hue": lambda it: fn.hue(it, hue=36.0),
        "gaussian_blur": lambda it: fn.gaussian_blur(it, window_size=9, sigma=1.5),
        "rotate": lambda it: fn.rotate(it, angle=20.0, keep_size=True, interp_type=types.INTERP_LINEAR),
        "gaussian_noise": lambda it: fn.noise.gaussian(it, stddev=25.5),
    }

    def make(step):
        @pipeline_def(batch_size=len(arrays), num_threads=1, device_id=None, exec_async=False, exec_pipelined=False)
        def pipe():
            return step(fn.external_source(lambda: arrays, batch=True, no_copy=True))
        made = pipe()
        made.build()
        return made

    return None, {name: make(step).run for name, step in steps.items()}


def feedwater(binary, folder, name):
    """Milliseconds per image of one operator, after a resize that the peers' images went through too."""
    file = folder / f"{name}.toml"
    resize = f"[[chain]]\nop = \"resize\"\nwidth = {SIDE}\nheight = {SIDE}\n"
    file.write_text(f"[source]\ndirectory = \"data\"\n{resize}[[chain]]\nop = \"{name}\"\n{OPERATORS[name]}\n")
    out = subprocess.run([binary, "bench-ops", file, "--device", "cpu", "--json"], check=True, capture_output=True, text=True, cwd=folder)
    rows = json.loads(out.stdout.splitlines()[-1])["rows"]
    return 1e3 * next(row["seconds"] for row in rows if row["name"] == f"chain[1] {name}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default=ROOT / "target" / "release" / "feedwater")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--images", type=int, default=32)
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    from PIL import Image

    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        binary = pathlib.Path(args.binary).resolve()
        made = [binary, "synth", folder / "data", "--images", str(args.images), "--width", "256", "--height", "256"]
        subprocess.run(made, check=True, capture_output=True)
        files = sorted((folder / "data").rglob("*.jpg"))
        images = [Image.open(file).convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR) for file in files]
        peers = {}
        for name, make in {
            "torchvision PIL": lambda: torchvision(images, False), "torchvision tensor": lambda: torchvision(images, True),
            "Albumentations": lambda: albumentations(images), "OpenCV": lambda: opencv(images), "DALI": lambda: dali(images),
        }.items():
            try:
                peers[name] = make()
            except Exception as error:
                print(f"{name}: left out: {error}")
        times = {operator: {} for operator in OPERATORS}
        for _ in range(args.rounds):
            for operator, row in times.items():
                row.setdefault("feedwater", []).append(feedwater(binary, folder, operator))
                for peer, (inputs, calls) in peers.items():
                    if call := calls.get(operator):
                        begin = time.perf_counter()
                        if inputs is None:
                            call()
                        for image in inputs or []:
                            call(image)
                        row.setdefault(peer, []).append(1e3 * (time.perf_counter() - begin) / len(images))

    medians = {operator: {peer: statistics.median(all) for peer, all in row.items()} for operator, row in times.items()}
    columns = ["feedwater", *peers]
    print(f"milliseconds per image of {SIDE}x{SIDE}, median of {args.rounds} rounds")
    print(f"{'':16}" + "".join(f"{peer:>20}" for peer in columns) + f"{'ratio':>8}")
    for operator, row in medians.items():
        fastest = min(time for peer, time in row.items() if peer != "feedwater")
        cells = "".join(f"{row[peer]:20.3f}" if peer in row else f"{'-':>20}" for peer in columns)
        print(f"{operator:16}{cells}{fastest / row['feedwater']:8.2f}")
    if args.json:
        args.json.write_text(json.dumps(medians, indent=1) + "\n")


main()
