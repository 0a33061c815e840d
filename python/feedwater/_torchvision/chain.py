"""Properties of a chain: whether it draws random numbers, and whether its images have one size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._settings import Operator

#: Operators that never draw random numbers.
_FIXED = {
    "autocontrast",
    "center_crop",
    "crop",
    "equalize",
    "five_crop",
    "grayscale",
    "invert",
    "normalize",
    "pad",
    "posterize",
    "resize",
    "sharpness",
    "solarize",
    "ten_crop",
}
#: Operators whose settings determine the size of their output.
_SIZING = {"center_crop", "crop", "five_crop", "letterbox", "random_crop", "random_resized_crop", "ten_crop"}
#: Operators whose output sizes may differ even if all input images have one size.
_UNSIZING = {"random_iou_crop", "random_resize", "random_shortest_size", "random_zoom_out", "scale_jitter"}


def is_random(operators: Sequence[Operator]) -> bool:
    """Whether a chain draws random numbers."""
    return any(_draws(operator.settings()) for operator in operators)


def _draws(settings: dict[str, Any]) -> bool:
    name = settings["op"]
    if name == "flip":
        return any(settings.get(axis, 0) not in (0, 1) for axis in ("horizontal", "vertical"))
    if name in ("random_grayscale", "random_erasing") and settings.get("probability") == 0:
        return False
    if name == "resize_keep_ratio":
        return any(settings.get(key, 0) != 0 for key in ("scale_probability", "aspect_probability"))
    if name == "random_apply":
        probability = settings.get("probability", 0.5)
        return probability != 0 and (probability != 1 or is_random(settings["operators"]))
    return name not in _FIXED


def has_one_size(operators: Sequence[Operator], has: bool = False) -> bool:
    """Whether all output images of a chain have one size. ``has``: whether all input images have one size."""
    for operator in operators:
        settings = operator.settings()
        name = settings["op"]
        if name in _SIZING or (name == "resize" and "width" in settings):
            has = True
        elif name in _UNSIZING or settings.get("expand"):
            has = False
        elif name == "resize_keep_ratio" and _draws(settings):
            has = False
        elif name == "random_apply":
            inner = has_one_size(settings["operators"], has)
            has = inner if settings.get("probability", 0.5) == 1 else inner and has and not _resizes(settings["operators"])
        elif name in ("one_of", "random_order", "some_of"):
            choices = [has_one_size([inner], has) for inner in settings["operators"]]
            sizes = {_size_of(inner) for inner in settings["operators"]}
            has = all(choices) and len(sizes) == 1
    return has


def _size_of(operator: Operator) -> Any:
    """Returns the output size in an operator's settings, or ``None`` if the operator keeps the size of its input."""
    settings = operator.settings()
    if settings["op"] == "random_apply":
        return tuple(_size_of(inner) for inner in settings["operators"])
    if settings["op"] in _SIZING or settings["op"] in ("resize", "pad", "resize_keep_ratio"):
        return tuple((key, str(settings.get(key))) for key in ("width", "height", "shorter", "longer", "padding"))
    return None


def _resizes(operators: Sequence[Operator]) -> bool:
    return any(_size_of(inner) is not None for inner in operators)
