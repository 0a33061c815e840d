#!/usr/bin/env python3
"""Writes tests/golden/operators/batch.json: pairs mixed by torchvision's MixUp and CutMix and by timm's
FastCollateMixup, soft targets of timm's mixup_target, and quantiles of SciPy's Beta distribution.

Commands to run this script (`--check` compares results with the stored ones and writes nothing):
    python -m venv venv && venv/bin/pip install numpy scipy torch==2.11.0 torchvision==0.26.0 timm==1.0.31
    venv/bin/python tests/golden/operators/batch.py [--check]
"""

import hashlib
from unittest import mock

import numpy as np
import torch
from golden import main, picture
from scipy import stats
from timm.data.mixup import FastCollateMixup, mixup_target
from torchvision.transforms import v2

SIZES = [(1, 1), (7, 5), (16, 3), (33, 21)]
# All weights are exact in f32, because both libraries draw weights in f32.
WEIGHTS = [float(np.float32(weight)) for weight in (0.0, 1e-6, 0.1, 0.37, 0.5, 0.75, 0.9999, 1.0)]


def digest(array):
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:32]


def pair(size):
    return [np.asarray(picture(*size, seed)).transpose(2, 0, 1) for seed in (41, 42)]


def floats(size):
    """Returns a batch of two images as floats. 120 is subtracted from each byte, so some values are negative."""
    return torch.from_numpy(np.stack(pair(size))).float() - 120


def mixups():
    """Yields hashes of batches of two that torchvision's MixUp mixed: each sample with the other one."""
    for size in SIZES:
        for weight in WEIGHTS:
            transform = v2.MixUp(num_classes=2)
            mixed = transform.transform(floats(size), {"labels": None, "lam": weight, "batch_size": 2})
            row = {"size": size, "weight": weight, "f32": digest(mixed)}
            # torch would round each product and the sum to 16 bits. This script rounds only the sum, as feedwater does.
            for name, dtype in (("f16", torch.float16), ("bf16", torch.bfloat16)):
                halves = floats(size).to(dtype).float()
                mixed = transform.transform(halves, {"labels": None, "lam": weight, "batch_size": 2})
                row[name] = digest(mixed.to(dtype).view(torch.int16))
            yield {**row, "u8": digest(collated(size, weight))}


def collated(size, weight):
    mix = FastCollateMixup(mode="pair", num_classes=2)
    drawn = (np.array([weight], dtype=np.float32), np.array([False]))
    with mock.patch.object(mix, "_params_per_elem", return_value=drawn):
        mixed, _ = mix([(image, label) for label, image in enumerate(pair(size))])
    return mixed


def cutmixes():
    for size in SIZES + [(224, 224), (640, 427)]:
        for weight in WEIGHTS:
            for place in [(0, 0), (size[0] - 1, size[1] - 1), (size[0] // 2, size[1] // 2), (size[0] // 3, 0)]:
                transform = v2.CutMix(num_classes=2)
                transform._dist = mock.Mock(sample=lambda _, weight=weight: weight)
                draws = iter(place)
                with mock.patch.object(torch, "randint", lambda *_, **__: torch.tensor([next(draws)])):
                    params = transform.make_params([torch.zeros(2, 3, size[1], size[0])])
                row = {"size": size, "drawn": weight, "place": place, "box": params["box"],
                       "weight": float(np.float32(params["lam_adjusted"]))}
                if size in SIZES:
                    mixed = transform.transform(floats(size), {**params, "labels": None, "batch_size": 2})
                    row["f32"] = digest(mixed)
                yield row


def targets():
    for classes, labels in [(2, (0, 1)), (5, (3, 1)), (5, (4, 4)), (1, (0, 0)), (10, (9, 0))]:
        for smoothing in (0.0, 0.1, 1.0):
            for weight in WEIGHTS:
                made = mixup_target(torch.tensor(labels), classes, torch.tensor([[weight], [weight]]), smoothing)
                yield {"classes": classes, "labels": labels, "smoothing": smoothing, "weight": weight,
                       "bits": made.view(torch.int32).tolist()}


def betas():
    for alpha in (0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.01, 1.5, 3.0, 40.0):
        yield {"alpha": alpha, "quantiles": stats.beta.ppf(np.arange(1, 100) / 100, alpha, alpha).tolist()}


def make(_seed):
    return {"mixup": mixups(), "cutmix": cutmixes(), "targets": targets(), "beta": betas()}


if __name__ == "__main__":
    main("batch.json", make)
