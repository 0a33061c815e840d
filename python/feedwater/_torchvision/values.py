"""Converts settings of torchvision's transforms to those of feedwater."""

from __future__ import annotations

from typing import Any

from .state import Form, Inconvertible, State

_FILTERS = {
    "nearest": "nearest",
    # On PIL images torchvision treats "nearest-exact" like "nearest".
    "nearest-exact": "nearest",
    "box": "box",
    "bilinear": "bilinear",
    "hamming": "hamming",
    "bicubic": "bicubic",
    "lanczos": "lanczos",
}
_PIL_FILTERS = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}


def filter_of(interpolation: Any) -> Any:
    """Returns a filter for torchvision's ``InterpolationMode`` or Pillow's number."""
    name = getattr(interpolation, "value", interpolation)
    name = _PIL_FILTERS.get(name, name) if isinstance(name, int) else name
    if name not in _FILTERS:
        raise Inconvertible(f"its interpolation is {name}")
    return _FILTERS[name]


def resampling(step: Any, state: State, interpolation: Any = None) -> Any:
    """Returns the filter of a transform that resizes. Fails if feedwater's pixels would differ from torchvision's at this
    place in the list."""
    state.rounds()
    mode = step.interpolation if interpolation is None else interpolation
    name, filter = getattr(mode, "value", mode), filter_of(mode)
    if state.form is Form.PIL:
        return filter
    # timm's transforms have no setting `antialias`. They use antialiasing, torchvision's default.
    if filter == "bilinear" and not getattr(step, "antialias", True):
        state.needs_pil_pixels(f"its antialias is {step.antialias}, so torchvision reduces tensors without a filter")
    elif filter == "bicubic" and state.form is Form.SCALED:
        state.needs_pil_pixels("bicubic results of floats exceed the range of bytes, and torchvision does not clip them")
    elif filter == "bicubic":
        state.needs_pil_pixels("bicubic results exceed the range of bytes; Pillow clips them between its passes, torchvision does not")
    elif filter != "bilinear":
        state.needs_pil_pixels(f"torchvision's interpolation {name} of tensors has other pixels than that of PIL images")
    return filter


def pair(size: Any) -> tuple[int, int]:
    """Returns height and width of a size."""
    if isinstance(size, int):
        return size, size
    return (size[0], size[0]) if len(size) == 1 else (size[0], size[1])


def fill_of(fill: Any, state: State) -> Any:
    """Converts ``fill`` to a colour in feedwater's values. In v2, ``fill`` may have one colour per type of input."""
    if isinstance(fill, dict):
        others = [value for key, value in fill.items() if getattr(key, "__name__", key) in ("Image", "Tensor", "PIL", "others")]
        if len(others) != len(fill) or any(other != others[0] for other in others):
            raise Inconvertible(f"its fill is {fill}, which gives different values for different types; use one value")
        fill = others[0] if others else None
    if fill is None:
        return None
    values = [fill] * 3 if isinstance(fill, (int, float)) else list(fill)
    values = values * 3 if len(values) == 1 else values
    if state.channels == 1 and len(set(values)) > 1:
        raise Inconvertible(f"its fill or value is {fill}, but the image has one channel here; write one value")
    scaled = [float(value) * state.unit() for value in values]
    if state.form is Form.NORMALIZED:
        return scaled
    # Allow for rounding errors: 0.2 * 255 should be a whole number, but may differ in the last bit.
    whole = [round(value) for value in scaled]
    if any(abs(value - near) > 1e-4 or not 0 <= near <= 255 for value, near in zip(scaled, whole)):
        raise Inconvertible(
            f"its fill or value is {fill}, but must be {'a multiple of 1/255 from 0 to 1' if state.form is Form.SCALED else 'a whole number from 0 to 255'} "
            "here, because pixels are bytes until Normalize; choose such a value, or put this transform after Normalize"
        )
    return whole


def padding_of(padding: Any) -> list[int]:
    """Returns left, top, right and bottom of torchvision's ``padding``."""
    sides = [padding] if isinstance(padding, int) else list(padding)
    return {1: sides * 4, 2: sides * 2, 4: sides}[len(sides)]


def values_of(setting: Any) -> list[float]:
    """Returns the numbers of a setting that may be one number, a list, an array or a tensor."""
    try:
        return [float(value) for value in setting]
    except TypeError:
        # Numbers, and arrays and tensors without axes, cannot be iterated.
        return [float(setting)]
