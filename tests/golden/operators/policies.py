#!/usr/bin/env python3
"""Writes tests/golden/operators/policies.json: the tables of torchvision's and timm's augmentation policies, and how
often each policy draws each step.

Commands to run this script (`--check` compares results with the stored ones and writes nothing):
    python -m venv venv && venv/bin/pip install pillow==12.3.0 numpy torch==2.11.0 torchvision==0.26.0 timm==1.0.31
    venv/bin/python tests/golden/operators/policies.py [--check]

The tables are read from the libraries' classes. To find the steps, the script records which functions that change
pixels are called, with their arguments.
"""

import collections
import hashlib
import random
from unittest import mock

import numpy as np
import torch
from golden import main, picture
from PIL import Image, ImageEnhance, ImageFilter, ImageOps
from timm.data import auto_augment as timm
from torchvision import transforms as v1
from torchvision.transforms.v2 import AugMix, AutoAugment, AutoAugmentPolicy, InterpolationMode, RandAugment, TrivialAugmentWide
from torchvision.transforms.v2 import functional as F

SIZES = [(1, 1), (224, 224), (97, 640)]


def texts(values):
    return " ".join(repr(float(value)) for value in values)


def magnitudes():
    """Yields the magnitude of each bin of torchvision's augmentation spaces."""
    spaces = {
        "rand_augment": (RandAugment._AUGMENTATION_SPACE, (2, 10, 31)), "auto_augment": (AutoAugment._AUGMENTATION_SPACE, (10,)),
        "trivial_augment_wide": (TrivialAugmentWide._AUGMENTATION_SPACE, (2, 31)), "aug_mix": (AugMix._AUGMENTATION_SPACE, (10,)),
    }
    for policy, (space, counts) in spaces.items():
        for operation, (values, signed) in space.items():
            for count in counts:
                for width, height in SIZES if operation.startswith("Translate") else SIZES[:1]:
                    found = values(count, height, width)
                    yield {
                        "policy": policy, "operation": operation, "signed": signed, "bins": count, "size": (width, height),
                        "magnitudes": None if found is None else texts(found.tolist()),
                    }


def magnitudes_v1():
    """Yields the magnitude of each bin of the spaces of ``torchvision.transforms``."""
    counts = {"rand_augment": (v1.RandAugment(), (2, 10, 31)), "auto_augment": (v1.AutoAugment(), (10,)),
              "trivial_augment_wide": (v1.TrivialAugmentWide(), (2, 31)), "aug_mix": (v1.AugMix(), (10,))}
    for policy, (transform, counts) in counts.items():
        for count in counts:
            for width, height in SIZES:
                sizes = () if policy == "trivial_augment_wide" else ((height, width),)
                for operation, (values, signed) in transform._augmentation_space(count, *sizes).items():
                    if operation.startswith("Translate") or (width, height) == SIZES[0]:
                        yield {
                            "policy": policy, "operation": operation, "signed": signed, "bins": count, "size": (width, height),
                            "magnitudes": None if values.ndim == 0 else texts(values.tolist()),
                        }


def pairs():
    for policy in AutoAugmentPolicy:
        for pair in AutoAugment(policy)._policies:
            yield {"policy": policy.value, "pair": [[name, repr(float(p)), bin] for name, p, bin in pair]}


def calls_of(run):
    """Runs `run` and returns the functions that it calls to change pixels, with their arguments, as texts."""
    calls = []

    def recorded(name, keep):
        def call(image, *args, **kwargs):
            calls.append(" ".join([name, *keep(*args, **kwargs)]))
            return image
        return call

    number = lambda key: lambda *args, **kwargs: [repr(float([*args, *kwargs.values()][0]))]
    nothing = lambda *args, **kwargs: []
    affine = lambda angle, translate, scale, interpolation, shear, fill, center=None: [
        texts([angle, *translate, scale, *shear]), texts(center) if center else "-"]
    enhance = lambda name: lambda image: mock.Mock(enhance=lambda factor: recorded(name, number(""))(image, factor))

    def transform(self, size, method, data, **kwargs):
        assert size == self.size and method == Image.AFFINE
        return recorded("matrix", lambda: [texts(data)])(self)

    def filtered(self, filter):
        return recorded("blur", lambda: [repr(float(filter.radius))])(self)

    patches = [
        mock.patch.object(F, "affine", recorded("affine", affine)), mock.patch.object(F, "rotate", recorded("rotate", number(""))),
        mock.patch.object(F, "adjust_brightness", recorded("brightness", number(""))),
        mock.patch.object(F, "adjust_saturation", recorded("saturation", number(""))),
        mock.patch.object(F, "adjust_contrast", recorded("contrast", number(""))),
        mock.patch.object(F, "adjust_sharpness", recorded("sharpness", number(""))),
        mock.patch.object(F, "posterize", recorded("posterize", number(""))),
        mock.patch.object(F, "solarize", recorded("solarize", number(""))),
        mock.patch.object(F, "autocontrast", recorded("autocontrast", nothing)),
        mock.patch.object(F, "equalize", recorded("equalize", nothing)), mock.patch.object(F, "invert", recorded("invert", nothing)),
        mock.patch.object(ImageOps, "autocontrast", recorded("autocontrast", nothing)),
        mock.patch.object(ImageOps, "equalize", recorded("equalize", nothing)),
        mock.patch.object(ImageOps, "invert", recorded("invert", nothing)),
        mock.patch.object(ImageOps, "posterize", recorded("posterize", number(""))),
        mock.patch.object(ImageOps, "solarize", recorded("solarize", number(""))),
        mock.patch.object(ImageEnhance, "Brightness", enhance("brightness")), mock.patch.object(ImageEnhance, "Color", enhance("saturation")),
        mock.patch.object(ImageEnhance, "Contrast", enhance("contrast")), mock.patch.object(ImageEnhance, "Sharpness", enhance("sharpness")),
        mock.patch.object(Image.Image, "transform", transform),
        mock.patch.object(Image.Image, "rotate", lambda self, degrees, **kwargs: recorded("rotate", number(""))(self, degrees)),
        mock.patch.object(Image.Image, "filter", filtered),
        mock.patch.object(Image.Image, "point", lambda self, lut: recorded("solarize_add", lambda: [str(lut[0])])(self)),
    ]
    for patch in patches:
        patch.start()
    try:
        run()
    finally:
        for patch in reversed(patches):
            patch.stop()
    return calls


def steps():
    """Yields, for operations of torchvision's policies and several magnitudes, the call that changes the pixels."""
    policy = AutoAugment()
    image = Image.new("RGB", (97, 64))
    for operation in AutoAugment._AUGMENTATION_SPACE | {"Identity": None}:
        for magnitude in (0.0, 4.0, 0.12000000476837158, -0.8999999761581421, 20.799999237060547, -31.0):
            if operation == "Posterize" and magnitude not in (0.0, 4.0):
                continue
            calls = calls_of(lambda: policy._apply_image_or_video_transform(
                image, operation, magnitude, "nearest", {Image.Image: 0}))
            yield {"operation": operation, "magnitude": texts([magnitude]), "step": "; ".join(calls)}


def timm_steps():
    """Yields, for timm's operations and several magnitudes, the call that changes the pixels."""
    image = Image.new("RGB", (97, 64))
    for operation in timm.LEVEL_TO_ARG:
        if operation in ("TranslateX", "TranslateY", "PosterizeOriginal", "GaussianBlurRand"):
            continue
        for magnitude in (0.0, 2.5, 6.123, 9.0, 10.0, 12.5):
            if operation == "PosterizeIncreasing" and magnitude > 10:
                continue  # For these magnitudes, timm would compute a negative number of bits.
            for negated in (False, True):
                op = timm.AugmentOp(operation, prob=1.0, magnitude=magnitude, hparams={"magnitude_max": 20})
                with mock.patch.object(timm.random, "random", lambda: 0.7 if negated else 0.2):
                    calls = calls_of(lambda: op(image))
                yield {
                    "operation": operation, "magnitude": texts([magnitude]), "negated": negated,
                    "step": "; ".join(calls),
                }


def pixels():
    """Yields a hash of the image after each single operation of a policy."""
    def row(library, operation, magnitude, negated, filter, size, result):
        digest = hashlib.sha256(np.ascontiguousarray(np.asarray(result)).tobytes()).hexdigest()[:32]
        return {
            "library": library, "operation": operation, "magnitude": texts([magnitude]), "negated": negated, "filter": filter,
            "source": size, "sha256": digest,
        }

    policy = AutoAugment()
    for size in ((31, 22), (2, 9)):
        image = picture(*size, 31)
        for operation, (values, signed) in (AutoAugment._AUGMENTATION_SPACE | {"Identity": (lambda *_: None, False)}).items():
            found = values(10, size[1], size[0])
            for magnitude in [0.0] if found is None else [float(found[bin]) for bin in (0, 4, 9)]:
                for sign in (1, -1) if signed else (1,):
                    for filter in ("nearest", "bilinear"):
                        result = policy._apply_image_or_video_transform(
                            image, operation, magnitude * sign, InterpolationMode(filter), {Image.Image: [9, 128, 255]})
                        yield row("torchvision", operation, magnitude * sign, False, filter, size, result)
        for operation in timm.LEVEL_TO_ARG:
            if operation in ("TranslateX", "TranslateY", "PosterizeOriginal", "GaussianBlurRand", "GaussianBlur"):
                continue
            for magnitude in (4.5, 9.37):
                for negated in (False, True):
                    for filter in ("bilinear", "bicubic"):
                        op = timm.AugmentOp(operation, prob=1.0, magnitude=magnitude, hparams={
                            "img_mean": (9, 128, 255), "interpolation": getattr(Image.Resampling, filter.upper())})
                        with mock.patch.object(timm.random, "random", lambda: 0.7 if negated else 0.2):
                            result = op(image)
                        yield row("timm", operation, magnitude, negated, filter, size, result)


def timm_texts():
    """Yields the settings that timm reads from configuration strings such as `rand-m9-mstd0.5-inc1`."""
    for text in ("rand", "rand-m9-mstd0.5-inc1", "rand-m9-n3-mstd0.5", "rand-mstd1-tweights", "rand-m7-mstd0.5-mmax20-p0.3", "rand-m15-n2-mmax15",
                 "rand-m9-mstd101-inc1", "rand-n1-t3a", "rand-n1-t3aw-inc1"):
        policy = timm.rand_augment_transform(text, {})
        op = policy.ops[0]
        weights = policy.choice_weights
        yield {
            "text": text, "magnitude": texts([op.magnitude]), "layers": policy.num_layers, "probability": texts([op.prob]),
            "std": texts([op.magnitude_std]), "max": texts([op.magnitude_max or 10]), "operations": [op.name for op in policy.ops],
            "weights": None if weights is None else texts(weights),
        }


def draws():
    """Yields how often each policy draws each step. A step is an operation with its rounded magnitude."""
    image = Image.new("RGB", (64, 48))
    policies = {
        "rand_augment": RandAugment(num_ops=1), "trivial_augment_wide": TrivialAugmentWide(num_magnitude_bins=5),
        "imagenet": AutoAugment(), "cifar10": AutoAugment(AutoAugmentPolicy.CIFAR10), "svhn": AutoAugment(AutoAugmentPolicy.SVHN),
        "aug_mix": AugMix(mixture_width=1, chain_depth=1),
    }
    torch.manual_seed(1)
    for name, policy in policies.items():
        seen = collections.Counter()

        def apply(image, operation, magnitude, **kwargs):
            seen[f"{operation} {round(magnitude * 1000)}"] += 1
            return image

        policy._apply_image_or_video_transform = apply
        times = 20000
        for _ in range(times):
            policy(image)
        yield {"policy": name, "times": times, "seen": dict(sorted(seen.items()))}
    for text in ("rand-m9-mstd0.5-inc1", "rand-m9-n2-tweights"):
        random.seed(1)
        np.random.seed(1)
        policy = timm.rand_augment_transform(text, {})
        times, seen = 20000, collections.Counter()
        for _ in range(times):
            ops = np.random.choice(policy.ops, policy.num_layers, replace=policy.choice_weights is None, p=policy.choice_weights)
            seen.update(f"{place} {op.name}" for place, op in enumerate(ops))
        yield {"policy": text, "times": times, "seen": dict(sorted(seen.items()))}


def distributions():
    """Yields quantiles of parameters that timm and torchvision draw."""
    random.seed(2)
    torch.manual_seed(2)
    np.random.seed(2)
    count = 20000
    seen = {}
    values = []
    op = timm.AugmentOp("GaussianBlur", prob=1.0, magnitude=9, hparams={"magnitude_std": 0.5})
    op.level_fn = lambda level, _: (values.append(level), ())[1]
    op.aug_fn = lambda image, **kwargs: image
    for _ in range(count):
        op(None)
    seen["timm magnitude m9 mstd0.5"] = values
    for alpha in (1.0, 0.3, 2.5):
        one = torch._sample_dirichlet(torch.tensor([alpha, alpha]).expand(count, -1))
        three = torch._sample_dirichlet(torch.tensor([alpha] * 3).expand(count, -1)) * one[:, 1:]
        seen[f"aug_mix image {alpha}"] = one[:, 0].tolist()
        seen[f"aug_mix chain {alpha}"] = three[:, 1].tolist()
    for name, values in seen.items():
        yield {"name": name, "count": count, "quantiles": texts(f"{it:.6g}" for it in np.quantile(values, np.arange(1, 40) / 40))}


if __name__ == "__main__":
    main("policies.json", lambda _: {
        "magnitudes": magnitudes(), "magnitudes_v1": magnitudes_v1(), "pairs": pairs(), "steps": steps(), "timm_steps": timm_steps(), "pixels": pixels(), "timm_texts": timm_texts(),
        "draws": draws(), "distributions": distributions(),
    })
