"""Converters for transforms of colours, filters and noise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import ops
from .._settings import Operator
from .state import Form, Inconvertible, Misplaced, State, converts


def _maybe(probability: float, operator: Operator) -> list[Operator]:
    """Returns an operator that applies this operator with a probability."""
    return [operator] if probability == 1 else [ops.RandomApply([operator], probability=probability)]


def _has_hue(hue: Any) -> bool:
    return hue is not None and tuple(hue) != (0, 0)


_HUE = "torchvision changes the hue of tensors in floats, but the hue of PIL images in bytes"


@converts("ColorJitter")
def _color_jitter(step: Any, state: State) -> list[Operator]:
    state.rounds()
    if _has_hue(step.hue):
        state.needs_pil_pixels(_HUE)
    return [ops.ColorJitter(brightness=step.brightness, contrast=step.contrast, saturation=step.saturation, hue=step.hue)]


@converts("RandomPhotometricDistort")
def _photometric(step: Any, state: State) -> list[Operator]:
    state.rounds()
    state.needs_colours()
    if _has_hue(step.hue):
        state.needs_pil_pixels(_HUE)
    ranges = {name: getattr(step, name) for name in ("brightness", "contrast", "saturation", "hue")}
    return [ops.PhotometricDistort(**ranges, probability=step.p)]


@converts("Grayscale", "RandomGrayscale")
def _grayscale(step: Any, state: State) -> list[Operator]:
    state.rounds()
    if hasattr(step, "p"):
        return [ops.RandomGrayscale(probability=step.p)]
    state.channels = step.num_output_channels
    return [ops.Grayscale(channels=state.channels)]


@converts("RandomChannelPermutation")
def _permutation(step: Any, state: State) -> list[Operator]:
    state.needs_bytes()
    state.needs_colours()
    return [ops.ChannelPermutation()]


@converts("RandomInvert", "RandomAutocontrast", "RandomEqualize", "RandomPosterize", "RandomSolarize", "RandomAdjustSharpness")
def _with_probability(step: Any, state: State) -> list[Operator]:
    state.rounds()
    operators: dict[str, Callable[[], Operator]] = {
        "RandomInvert": lambda: ops.Invert(),
        "RandomAutocontrast": lambda: ops.Autocontrast(),
        "RandomEqualize": lambda: ops.Equalize(),
        "RandomPosterize": lambda: ops.Posterize(bits=step.bits),
        "RandomSolarize": lambda: ops.Solarize(threshold=step.threshold * state.unit()),
        "RandomAdjustSharpness": lambda: ops.Sharpness(factor=step.sharpness_factor),
    }
    return _maybe(step.p, operators[type(step).__name__]())


@converts("GaussianBlur")
def _blur(step: Any, state: State) -> list[Operator]:
    state.rounds()
    return [ops.GaussianBlur(kernel_size=list(step.kernel_size), sigma=list(step.sigma))]


@converts("GaussianNoise")
def _noise(step: Any, state: State) -> list[Operator]:
    state.rounds()
    if state.form is Form.PIL:
        raise Misplaced("torchvision adds noise only to tensors; put this transform after ToImage or ToTensor")
    if not step.clip:
        raise Inconvertible("its clip is False, but feedwater limits values after the noise; use clip=True")
    return [ops.GaussianNoise(mean=step.mean, sigma=step.sigma)]


@converts("JPEG")
def _jpeg(step: Any, state: State) -> list[Operator]:
    state.rounds()
    if state.form is Form.SCALED:
        raise Misplaced("torchvision encodes only bytes as JPEG; put this transform before the transform that makes floats")
    return [ops.JpegDistortion(quality=list(step.quality))]
