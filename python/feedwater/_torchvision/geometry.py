"""Converters for transforms that resize, crop, pad, mirror, warp or erase."""

from __future__ import annotations

import math
from typing import Any

from .. import ops
from .._settings import Operator
from .state import Form, Misplaced, State, converts, is_v2
from .values import fill_of, filter_of, padding_of, pair, resampling


@converts("Resize")
def _resize(step: Any, state: State) -> list[Operator]:
    filter = resampling(step, state)
    size, longest = step.size, step.max_size
    if size is None:
        return [ops.Resize(longer=longest, filter=filter)]
    if isinstance(size, int) or len(size) == 1:
        return [ops.Resize(shorter=size if isinstance(size, int) else size[0], max_size=longest, filter=filter)]
    return [ops.Resize(height=size[0], width=size[1], filter=filter)]


@converts("RandomResize")
def _random_resize(step: Any, state: State) -> list[Operator]:
    return [ops.RandomResize(min_size=step.min_size, max_size=step.max_size, filter=resampling(step, state))]


@converts("ResizeKeepRatio")
def _keep_ratio(step: Any, state: State) -> list[Operator]:
    """Converts timm's ``ResizeKeepRatio``."""
    height, width = step.size
    settings = {
        "width": width,
        "height": height,
        "longest": step.longest,
        "scale_probability": step.random_scale_prob,
        "scale": list(step.random_scale_range),
        "scale_is_area": step.random_scale_area,
        "aspect_probability": step.random_aspect_prob,
        "aspect": list(step.random_aspect_range),
    }
    return _by_filter(step, state, lambda filter: ops.ResizeKeepRatio(**settings, filter=filter))


def _by_filter(step: Any, state: State, operator: Any) -> list[Operator]:
    """Returns an operator with the transform's filter. If timm draws the filter at random, returns a random choice between such operators."""
    several = isinstance(step.interpolation, (list, tuple))
    made = [operator(resampling(step, state, mode)) for mode in (step.interpolation if several else [step.interpolation])]
    return [ops.OneOf(made)] if several else made


@converts("CenterCrop")
def _center_crop(step: Any, state: State) -> list[Operator]:
    height, width = pair(step.size)
    return [ops.CenterCrop(width=width, height=height)]


@converts("FiveCrop")
def _five_crop(step: Any, state: State) -> list[Operator]:
    state.needs_view()
    height, width = pair(step.size)
    return [ops.FiveCrop(width=width, height=height)]


@converts("TenCrop")
def _ten_crop(step: Any, state: State) -> list[Operator]:
    state.needs_view()
    height, width = pair(step.size)
    return [ops.TenCrop(width=width, height=height, vertical_flip=step.vertical_flip)]


@converts("CenterCropOrPad")
def _center_crop_or_pad(step: Any, state: State) -> list[Operator]:
    """Converts timm's ``CenterCropOrPad``."""
    height, width = pair(step.size)
    return [ops.CenterCrop(width=width, height=height, **_border(step, state))]


def _border(step: Any, state: State) -> dict[str, Any]:
    """Returns mode and colour of the added border."""
    if step.padding_mode == "constant":
        return {"fill": fill_of(step.fill, state)}
    if step.padding_mode in ("reflect", "symmetric"):
        state.needs_pil_pixels(f"for tensors, torchvision rejects padding with padding_mode {step.padding_mode} that is larger than the image")
    return {"mode": step.padding_mode}


@converts("RandomCrop")
def _random_crop(step: Any, state: State) -> list[Operator]:
    height, width = pair(step.size)
    pads = step.padding is not None or step.pad_if_needed
    border = _border(step, state) if pads else {}
    given: Any = step.padding
    padding = None if given is None else padding_of(given)
    if padding is not None and is_v2(step):
        # v2 stores the padding in the order left, right, top, bottom.
        left, right, top, bottom = padding
        padding = [left, top, right, bottom]
    elif padding is not None and step.pad_if_needed and step.padding_mode in ("reflect", "symmetric"):
        # v1 pads twice. Its second padding therefore mirrors pixels of its first padding.
        return [ops.Pad(padding=padding, **border), ops.RandomCrop(width=width, height=height, pad_if_needed=True, **border)]
    return [ops.RandomCrop(width=width, height=height, padding=padding, pad_if_needed=step.pad_if_needed, **border)]


@converts("Pad")
def _pad(step: Any, state: State) -> list[Operator]:
    return [ops.Pad(padding=padding_of(step.padding), **_border(step, state))]


@converts("RandomResizedCrop", "RandomResizedCropAndInterpolation")
def _random_resized_crop(step: Any, state: State) -> list[Operator]:
    height, width = pair(step.size)
    settings = {"width": width, "height": height, "scale": step.scale, "ratio": step.ratio}
    return _by_filter(step, state, lambda filter: ops.RandomResizedCrop(**settings, filter=filter))


@converts("RandomHorizontalFlip")
def _horizontal(step: Any, state: State) -> list[Operator]:
    return [ops.Flip(horizontal=step.p)]


@converts("RandomVerticalFlip")
def _vertical(step: Any, state: State) -> list[Operator]:
    return [ops.Flip(vertical=step.p)]


@converts("ScaleJitter")
def _scale_jitter(step: Any, state: State) -> list[Operator]:
    height, width = step.target_size
    return [ops.ScaleJitter(width=width, height=height, scale_range=list(step.scale_range), filter=resampling(step, state))]


@converts("RandomShortestSize")
def _shortest(step: Any, state: State) -> list[Operator]:
    return [ops.RandomShortestSize(min_size=list(step.min_size), max_size=step.max_size, filter=resampling(step, state))]


@converts("RandomZoomOut")
def _zoom_out(step: Any, state: State) -> list[Operator]:
    return [ops.RandomZoomOut(side_range=list(step.side_range), probability=step.p, fill=fill_of(step.fill, state))]


@converts("RandomIoUCrop")
def _iou_crop(step: Any, state: State) -> list[Operator]:
    scale, ratio = [step.min_scale, step.max_scale], [step.min_aspect_ratio, step.max_aspect_ratio]
    return [ops.RandomIouCrop(scale=scale, ratio=ratio, overlaps=list(step.options), trials=step.trials)]


def warping(step: Any, state: State) -> dict[str, Any]:
    """Returns the interpolation, and the colour outside of the image."""
    return {"interpolation": filter_of(step.interpolation), "fill": fill_of(step.fill, state)}


_WARPED = "torchvision warps tensors by another formula than PIL images"


@converts("RandomRotation")
def _rotation(step: Any, state: State) -> list[Operator]:
    state.rounds()
    state.needs_pil_pixels(_WARPED)
    return [ops.RandomRotation(degrees=list(step.degrees), expand=step.expand, center=step.center, **warping(step, state))]


@converts("RandomAffine")
def _affine(step: Any, state: State) -> list[Operator]:
    state.rounds()
    state.needs_pil_pixels(_WARPED)
    shear = list(step.shear or [])
    return [
        ops.RandomAffine(
            degrees=list(step.degrees),
            translate=step.translate,
            scale=step.scale,
            shear_x=shear[:2] or None,
            shear_y=shear[2:4] or None,
            center=step.center,
            **warping(step, state),
        )
    ]


@converts("RandomPerspective")
def _perspective(step: Any, state: State) -> list[Operator]:
    state.rounds()
    state.needs_pil_pixels(_WARPED)
    return [ops.RandomPerspective(distortion_scale=step.distortion_scale, probability=step.p, **warping(step, state))]


@converts("ElasticTransform")
def _elastic(step: Any, state: State) -> list[Operator]:
    state.rounds()
    return [ops.Elastic(alpha=list(step.alpha), sigma=list(step.sigma), **warping(step, state))]


@converts("RandomErasing")
def _erasing(step: Any, state: State) -> list[Operator]:
    if state.form is Form.PIL:
        raise Misplaced("torchvision erases only parts of tensors; put this transform after ToTensor")
    if hasattr(step, "log_aspect_ratio"):
        # timm's ``RandomErasing``.
        ratio = [math.exp(value) for value in step.log_aspect_ratio]
        settings = {"probability": step.probability, "scale": [step.min_area, step.max_area], "ratio": ratio}
        counts = {"mode": step.mode or "const", "min_count": step.min_count, "max_count": step.max_count}
        if counts["mode"] != "const":
            _random_values(state)
        return [ops.RandomErasing(**settings, **counts, std=1.0)]
    common = {"probability": step.p, "scale": list(step.scale), "ratio": list(step.ratio)}
    if step.value in ("random", None):
        _random_values(state)
        return [ops.RandomErasing(**common, mode="pixel", std=1.0)]
    return [ops.RandomErasing(**common, value=fill_of(step.value, state))]


def _random_values(state: State) -> None:
    if state.form is not Form.NORMALIZED:
        raise Misplaced(
            "it fills with random values that may be below 0 or above 1, but feedwater has bytes at this place; put this transform after "
            "Normalize"
        )
