"""Converters for transforms that change the type or the values of the image, and for the presets of torchvision's weights."""

from __future__ import annotations

from typing import Any

from .. import ops
from .._settings import Operator
from .state import Form, Inconvertible, Misplaced, State, converted, converts, is_v2, library
from .values import values_of


@converts("Identity", "ToPureTensor")
def _nothing(step: Any, state: State) -> list[Operator]:
    return []


@converts("RGB")
def _rgb(step: Any, state: State) -> list[Operator]:
    return _three_channels(state)


def _three_channels(state: State) -> list[Operator]:
    """Returns the operator that turns one channel into three equal ones, and sets ``state.channels``. An empty list if there are three."""
    if state.channels == 3:
        return []
    state.needs_bytes()
    state.channels = 3
    return [ops.Grayscale(channels=3)]


@converts("ToImage", "PILToTensor", "MaybePILToTensor", "ToNumpy")
def _tensor_of_bytes(step: Any, state: State) -> list[Operator]:
    if state.form is Form.PIL:
        state.becomes(Form.BYTES, "u8", step)
    return []


@converts("ToTensor", "MaybeToTensor")
def _tensor(step: Any, state: State) -> list[Operator]:
    if library(step) == "timm" and type(step).__name__ == "ToTensor":
        # Unlike torchvision's `ToTensor`, timm's does not scale to 0 to 1.
        if state.form is Form.PIL:
            state.becomes(Form.BYTES, "u8", step)
        return _as_dtype(state, step.dtype, step, scales=False)
    if state.form is Form.PIL:
        state.becomes(Form.SCALED, "f32", step)
    elif type(step).__name__ == "ToTensor" and state.form is Form.BYTES and is_v2(step):
        raise Misplaced(
            f"the image is already a tensor, from {state.tensor_by}, and ToTensor does not scale tensors; use ToDtype(torch.float32, "
            "scale=True)"
        )
    return []


@converts("ToPILImage")
def _pil_image(step: Any, state: State) -> list[Operator]:
    if state.form is not Form.PIL:
        raise Inconvertible("it converts a tensor to a PIL image, which feedwater does not support; leave it out")
    if step.mode not in (None, "RGB"):
        raise Inconvertible(f"its mode is {step.mode}, but feedwater's images are RGB")
    return []


_DTYPES = {"torch.uint8": "u8", "torch.float32": "f32", "torch.float16": "f16", "torch.bfloat16": "bf16"}


@converts("ToDtype", "ConvertImageDtype")
def _dtype(step: Any, state: State) -> list[Operator]:
    dtype = step.dtype
    if isinstance(dtype, dict):
        # `dtype` has one type for images, one for boxes and one for masks. Use only the type for images, because the chain has no boxes and masks.
        names = {getattr(key, "__name__", key): value for key, value in dtype.items()}
        image = "Image" if state.tensor_by == "ToImage" else "Tensor"
        if image not in names and "others" not in names:
            raise Inconvertible(f"its dtype is {dtype}, which does not give a type for {image}")
        dtype = names.get(image, names.get("others"))
        if dtype is None:
            return []
    if state.form is Form.PIL:
        if type(step).__name__ == "ToDtype":
            # In torchvision, `ToDtype` does not change PIL images.
            return []
        raise Misplaced("torchvision accepts only tensors here; put ToImage or PILToTensor before this transform")
    return _as_dtype(state, dtype, step, scales=getattr(step, "scale", True))


def _as_dtype(state: State, dtype: Any, step: Any, *, scales: bool) -> list[Operator]:
    if str(dtype) not in _DTYPES:
        raise Inconvertible(f"its dtype is {dtype}")
    name = _DTYPES[str(dtype)]
    if state.form is Form.BYTES:
        if name != "u8":
            state.becomes(Form.SCALED if scales else Form.UNSCALED, name, step)
        return []
    if name == "u8":
        raise Inconvertible("it converts floats to bytes, which feedwater does not support; leave it out")
    state.becomes(state.form, name, step)
    return []


@converts("Normalize")
def _normalize(step: Any, state: State) -> list[Operator]:
    if state.form is Form.NORMALIZED:
        raise Inconvertible("it is the second Normalize, but feedwater supports only one")
    if state.form in (Form.PIL, Form.BYTES):
        raise Misplaced(
            f"torchvision normalizes only floats, but the image is {state.form.value} here; put ToTensor, or ToImage and ToDtype, before this "
            "transform"
        )
    # torchvision also accepts one number for all channels.
    mean, std = (values_of(values) for values in (step.mean, step.std))
    several = max(len(mean), len(std)) > 1
    if several and state.channels == 1 and not is_v2(step):
        raise Inconvertible(
            f"its mean is {mean} and its std {std}, but the image has one channel here; write one value, or use Grayscale(num_output_channels=3)"
        )
    # torchvision v2 broadcasts one channel to as many channels as there are values.
    channels = _three_channels(state) if several else []
    mean, std = (values * 3 if len(values) == 1 else values for values in (mean, std))
    is_unscaled = state.form is Form.UNSCALED
    state.becomes(Form.NORMALIZED, state.dtype, step)
    if is_unscaled:
        # Here the pixels have values of 0 to 255, and so have mean and deviation. feedwater's mean and deviation are on the scale 0 to 1.
        return [*channels, Normalize(mean=[value / 255 for value in mean], std=[value / 255 for value in std])]
    return [*channels, ops.Normalize(mean=mean, std=std)]


class Normalize(ops.Normalize):
    """``Normalize`` whose mean and deviation were converted from the scale 0 to 255, so it is wrong for pixels of 16 bits and of floats."""

    OF_BYTES = True


@converts("ImageClassification", "SemanticSegmentation", "ObjectDetection")
def _preset(step: Any, state: State) -> list[Operator]:
    """Converts the presets that ``transforms()`` of torchvision's weights returns."""
    import torch
    from torchvision import transforms

    parts: list[Any] = []
    if getattr(step, "resize_size", None) is not None:
        parts.append(transforms.Resize(step.resize_size, interpolation=step.interpolation, antialias=step.antialias))
    if hasattr(step, "crop_size"):
        parts.append(transforms.CenterCrop(step.crop_size))
    if state.form is Form.PIL:
        parts.append(transforms.PILToTensor())
    parts.append(transforms.ConvertImageDtype(torch.float32))
    if hasattr(step, "mean"):
        parts.append(transforms.Normalize(step.mean, step.std))
    return [operator for part in parts for operator in converted(part, state)]
