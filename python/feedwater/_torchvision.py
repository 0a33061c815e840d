"""Chains from the transforms of torchvision (v1 and v2) and timm."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from . import ops
from ._settings import Operator
from .errors import ConversionError
from .recipes import Recipe

__all__ = ["from_torchvision"]


def from_torchvision(transform: Any, *, keep_rest: bool = False) -> Recipe:
    """The chain that does what a transform of torchvision or timm does, such as a ``Compose``.

    Pixels are those of the transforms on PIL images, whose bits feedwater's operators have. Random numbers differ, distributions do not.
    The element type is that of the transform: ``u8`` without ``ToTensor`` or its like, else that of the tensor.

    ``keep_rest``: the transforms from the first one on that cannot be converted stay Python, and run for each image in the loop's
    thread, with PyTorch's random numbers. They get what torchvision would give them, a PIL image or a tensor. The part before them must
    lead to one size.

    Raises :class:`feedwater.errors.ConversionError`, which names each transform that cannot be converted and why.
    """
    steps = list(_flat(transform))
    state = _State()
    problems = []
    for place, step in enumerate(steps):
        try:
            convert = _found(step)
            state.operators += convert(step, state)
        except _Inconvertible as problem:
            if keep_rest:
                return state.recipe(steps[place:])
            problems.append(f"{type(step).__name__} (transform {place}): {problem}")
    if problems:
        raise ConversionError(
            f"{len(problems)} of {len(steps)} transforms cannot be converted; keep_rest=True keeps them in Python:\n  " + "\n  ".join(problems),
            problems=problems,
        )
    return state.recipe([])


class _Inconvertible(Exception):
    """Why a transform cannot be converted."""


class _State:
    """What the operators so far have made of the image."""

    def __init__(self) -> None:
        self.operators: list[Operator] = []
        # Element type, and whether bytes were divided by 255.
        self.dtype = "u8"
        self.is_tensor = False
        self.is_scaled = False
        self.is_normalized = False

    def unit(self) -> float:
        """What a value of torchvision's is in feedwater's values at this place."""
        return 255.0 if self.is_scaled and not self.is_normalized else 1.0

    def recipe(self, rest: Sequence[Any]) -> Recipe:
        """The chain, with the element type. ``rest`` follows in Python."""
        operators = list(self.operators)
        if self.is_scaled and not self.is_normalized:
            operators.append(ops.Normalize(mean=(0, 0, 0), std=(1, 1, 1)))
        functions = [_pil_image, *rest] if rest and not self.is_tensor else list(rest)
        return Recipe(operators, {"output": {"dtype": self.dtype, "layout": "nchw"}}, rest=functions)


def _pil_image(image: Any) -> Any:
    """A PIL image of a tensor of bytes."""
    from torchvision.transforms.functional import to_pil_image

    return to_pil_image(image.cpu())


_Convert = Callable[[Any, _State], list[Operator]]
_CONVERTERS: dict[str, _Convert] = {}


def _converts(*names: str) -> Callable[[_Convert], _Convert]:
    """Registers a function for transforms of these names."""

    def register(convert: _Convert) -> _Convert:
        _CONVERTERS.update(dict.fromkeys(names, convert))
        return convert

    return register


def _flat(transform: Any) -> Any:
    """The transforms inside of a ``Compose``, of a ``Sequential`` or of a list."""
    if isinstance(transform, (list, tuple)):
        inner = transform
    elif type(transform).__name__ == "Compose":
        inner = transform.transforms
    elif type(transform).__name__ == "Sequential":
        inner = transform.children()
    else:
        yield transform
        return
    for step in inner:
        yield from _flat(step)


def _found(step: Any) -> _Convert:
    kind = type(step)
    if kind.__module__.split(".")[0] not in ("torchvision", "timm"):
        raise _Inconvertible(f"it is {kind.__module__}.{kind.__qualname__}, which is not torchvision's or timm's")
    convert = _CONVERTERS.get(kind.__name__)
    if convert is None:
        raise _Inconvertible("feedwater has no operator for it")
    return convert


def _chain(transforms: Any, state: _State) -> list[Operator]:
    """The operators of inner transforms, which must leave the element type as it is."""
    operators = []
    before = (state.dtype, state.is_scaled, state.is_normalized)
    for step in _flat(list(transforms)):
        try:
            operators += _found(step)(step, state)
        except _Inconvertible as problem:
            raise _Inconvertible(f"{type(step).__name__} in it: {problem}") from None
        if (state.dtype, state.is_scaled, state.is_normalized) != before:
            state.dtype, state.is_scaled, state.is_normalized = before
            raise _Inconvertible(f"{type(step).__name__} in it changes the type of the values")
    return operators


def _maybe(probability: float, operator: Operator) -> list[Operator]:
    """The operator with a probability."""
    return [operator] if probability == 1 else [ops.RandomApply([operator], probability=probability)]


def _bytes_only(state: _State) -> None:
    if state.is_normalized:
        raise _Inconvertible("it comes after Normalize, and its operator works on bytes; move it before Normalize")


def _filter(interpolation: Any) -> Any:
    """A resampling filter by torchvision's ``InterpolationMode``."""
    name = getattr(interpolation, "value", interpolation)
    if name not in ("nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"):
        raise _Inconvertible(f"its interpolation is {name}")
    return name


def _pair(size: Any) -> tuple[int, int]:
    """Height and width of a size."""
    if isinstance(size, int):
        return size, size
    return (size[0], size[0]) if len(size) == 1 else (size[0], size[1])


def _fill(fill: Any, unit: float = 1.0) -> Any:
    """The colour of ``fill``; v2 has one for each type of input."""
    if isinstance(fill, dict):
        others = [value for key, value in fill.items() if getattr(key, "__name__", key) in ("Image", "Tensor", "PIL", "others")]
        if len(others) != len(fill) or any(other != others[0] for other in others):
            raise _Inconvertible(f"its fill is {fill}, one for each type")
        fill = others[0] if others else None
    if fill is None:
        return None
    values = [fill] * 3 if isinstance(fill, (int, float)) else list(fill)
    values = values * 3 if len(values) == 1 else values
    scaled = [value * unit for value in values]
    return [int(value) for value in scaled] if all(float(value).is_integer() for value in scaled) else scaled


@_converts("Identity", "RGB", "MaybeToTensor", "ToTensor", "ToImage", "ToPILImage", "PILToTensor", "ToPureTensor", "MaybePILToTensor", "ToNumpy")
def _conversion(step: Any, state: _State) -> list[Operator]:
    kind = type(step).__name__
    if kind == "ToPILImage" and state.is_tensor:
        raise _Inconvertible("it makes a PIL image of a tensor")
    state.is_tensor |= kind in ("ToTensor", "MaybeToTensor", "ToImage", "PILToTensor", "MaybePILToTensor")
    if kind in ("ToTensor", "MaybeToTensor"):
        state.dtype, state.is_scaled = "f32", True
    return []


@_converts("ToDtype", "ConvertImageDtype")
def _dtype(step: Any, state: _State) -> list[Operator]:
    dtype = step.dtype
    if isinstance(dtype, dict):
        raise _Inconvertible(f"its dtype is {dtype}, one for each type")
    names = {"torch.uint8": "u8", "torch.float32": "f32", "torch.float16": "f16", "torch.bfloat16": "bf16"}
    if str(dtype) not in names:
        raise _Inconvertible(f"its dtype is {dtype}")
    name = names[str(dtype)]
    if name == "u8" and state.dtype != "u8":
        raise _Inconvertible("it makes bytes of floats")
    scales = getattr(step, "scale", True)
    if state.dtype == "u8" and name != "u8" and scales:
        state.is_scaled = True
    state.dtype = name
    return []


@_converts("Normalize")
def _normalize(step: Any, state: _State) -> list[Operator]:
    if state.is_normalized:
        raise _Inconvertible("it is the second one")
    mean, std = ([float(value) for value in values] for values in (step.mean, step.std))
    mean, std = (values * 3 if len(values) == 1 else values for values in (mean, std))
    if not state.is_scaled:
        # Values are 0 to 255, as are mean and deviation.
        mean, std = [value / 255 for value in mean], [value / 255 for value in std]
    state.is_normalized = True
    return [ops.Normalize(mean=mean, std=std)]


@_converts("Resize")
def _resize(step: Any, state: _State) -> list[Operator]:
    filter = _filter(step.interpolation)
    size, longest = step.size, step.max_size
    if size is None:
        return [ops.Resize(longer=longest, filter=filter)]
    if longest is not None:
        raise _Inconvertible(f"its max_size is {longest}, together with size")
    if isinstance(size, int) or len(size) == 1:
        return [ops.Resize(shorter=size if isinstance(size, int) else size[0], filter=filter)]
    return [ops.Resize(height=size[0], width=size[1], filter=filter)]


@_converts("CenterCrop")
def _center_crop(step: Any, state: _State) -> list[Operator]:
    height, width = _pair(step.size)
    return [ops.CenterCrop(width=width, height=height)]


@_converts("RandomCrop")
def _random_crop(step: Any, state: _State) -> list[Operator]:
    height, width = _pair(step.size)
    if step.padding_mode != "constant" and (step.padding is not None or step.pad_if_needed):
        raise _Inconvertible(f"its padding_mode is {step.padding_mode}; put Pad before it")
    padding = None if step.padding is None else _padding(step.padding)
    fill = _fill(step.fill, state.unit())
    return [ops.RandomCrop(width=width, height=height, padding=padding, pad_if_needed=step.pad_if_needed, fill=fill)]


def _padding(padding: Any) -> list[int]:
    """Left, top, right and bottom."""
    sides = [padding] if isinstance(padding, int) else list(padding)
    return {1: sides * 4, 2: sides * 2, 4: sides}[len(sides)]


@_converts("Pad")
def _pad(step: Any, state: _State) -> list[Operator]:
    return [ops.Pad(padding=_padding(step.padding), fill=_fill(step.fill, state.unit()), mode=step.padding_mode)]


@_converts("RandomResizedCrop", "RandomResizedCropAndInterpolation")
def _random_resized_crop(step: Any, state: _State) -> list[Operator]:
    height, width = _pair(step.size)
    several = isinstance(step.interpolation, (list, tuple))
    crops = [
        ops.RandomResizedCrop(width=width, height=height, scale=step.scale, ratio=step.ratio, filter=_filter(filter))
        for filter in (step.interpolation if several else [step.interpolation])
    ]
    return [ops.OneOf(crops)] if several else list(crops)


@_converts("RandomHorizontalFlip")
def _horizontal(step: Any, state: _State) -> list[Operator]:
    return [ops.Flip(horizontal=step.p)]


@_converts("RandomVerticalFlip")
def _vertical(step: Any, state: _State) -> list[Operator]:
    return [ops.Flip(vertical=step.p)]


@_converts("ColorJitter")
def _color_jitter(step: Any, state: _State) -> list[Operator]:
    _bytes_only(state)
    return [ops.ColorJitter(brightness=step.brightness, contrast=step.contrast, saturation=step.saturation, hue=step.hue)]


@_converts("RandomPhotometricDistort")
def _photometric(step: Any, state: _State) -> list[Operator]:
    _bytes_only(state)
    ranges = {name: getattr(step, name) for name in ("brightness", "contrast", "saturation", "hue")}
    return [ops.PhotometricDistort(**ranges, probability=step.p)]


@_converts("Grayscale", "RandomGrayscale")
def _grayscale(step: Any, state: _State) -> list[Operator]:
    _bytes_only(state)
    if getattr(step, "num_output_channels", 3) != 3:
        raise _Inconvertible("it makes one channel, and batches have three; use num_output_channels=3")
    return [ops.RandomGrayscale(probability=step.p)] if hasattr(step, "p") else [ops.Grayscale()]


@_converts("RandomChannelPermutation")
def _permutation(step: Any, state: _State) -> list[Operator]:
    _bytes_only(state)
    return [ops.ChannelPermutation()]


@_converts("RandomInvert", "RandomAutocontrast", "RandomEqualize", "RandomPosterize", "RandomSolarize", "RandomAdjustSharpness")
def _with_probability(step: Any, state: _State) -> list[Operator]:
    _bytes_only(state)
    operators: dict[str, Callable[[], Operator]] = {
        "RandomInvert": lambda: ops.Invert(),
        "RandomAutocontrast": lambda: ops.Autocontrast(),
        "RandomEqualize": lambda: ops.Equalize(),
        "RandomPosterize": lambda: ops.Posterize(bits=step.bits),
        "RandomSolarize": lambda: ops.Solarize(threshold=step.threshold * state.unit()),
        "RandomAdjustSharpness": lambda: ops.Sharpness(factor=step.sharpness_factor),
    }
    return _maybe(step.p, operators[type(step).__name__]())


@_converts("GaussianBlur")
def _blur(step: Any, state: _State) -> list[Operator]:
    _bytes_only(state)
    return [ops.GaussianBlur(kernel_size=list(step.kernel_size), sigma=list(step.sigma))]


@_converts("GaussianNoise")
def _noise(step: Any, state: _State) -> list[Operator]:
    _bytes_only(state)
    if not step.clip:
        raise _Inconvertible("its clip is False")
    return [ops.GaussianNoise(mean=step.mean, sigma=step.sigma)]


@_converts("JPEG")
def _jpeg(step: Any, state: _State) -> list[Operator]:
    _bytes_only(state)
    return [ops.JpegDistortion(quality=list(step.quality))]


@_converts("RandomRotation")
def _rotation(step: Any, state: _State) -> list[Operator]:
    _bytes_only(state)
    return [ops.RandomRotation(degrees=list(step.degrees), expand=step.expand, center=step.center, **_warp(step, state))]


@_converts("RandomAffine")
def _affine(step: Any, state: _State) -> list[Operator]:
    _bytes_only(state)
    shear = list(step.shear or [])
    return [
        ops.RandomAffine(
            degrees=list(step.degrees),
            translate=step.translate,
            scale=step.scale,
            shear_x=shear[:2] or None,
            shear_y=shear[2:4] or None,
            center=step.center,
            **_warp(step, state),
        )
    ]


@_converts("RandomPerspective")
def _perspective(step: Any, state: _State) -> list[Operator]:
    _bytes_only(state)
    return [ops.RandomPerspective(distortion_scale=step.distortion_scale, probability=step.p, **_warp(step, state))]


@_converts("ElasticTransform")
def _elastic(step: Any, state: _State) -> list[Operator]:
    _bytes_only(state)
    return [ops.Elastic(alpha=list(step.alpha), sigma=list(step.sigma), **_warp(step, state))]


def _warp(step: Any, state: _State) -> dict[str, Any]:
    """Interpolation and colour outside of the image."""
    return {"interpolation": _filter(step.interpolation), "fill": _fill(step.fill, state.unit())}


@_converts("RandomErasing")
def _erasing(step: Any, state: _State) -> list[Operator]:
    unit = state.unit()
    if hasattr(step, "log_aspect_ratio"):
        # timm's.
        ratio = [math.exp(value) for value in step.log_aspect_ratio]
        settings = {"probability": step.probability, "scale": [step.min_area, step.max_area], "ratio": ratio}
        counts = {"mode": step.mode or "const", "min_count": step.min_count, "max_count": step.max_count}
        return [ops.RandomErasing(**settings, **counts, std=unit)]
    common = {"probability": step.p, "scale": list(step.scale), "ratio": list(step.ratio)}
    if step.value in ("random", None):
        return [ops.RandomErasing(**common, mode="pixel", std=unit)]
    return [ops.RandomErasing(**common, value=_fill(step.value, unit))]


@_converts("RandAugment")
def _rand_augment(step: Any, state: _State) -> list[Operator]:
    _bytes_only(state)
    if type(step).__module__.startswith("timm"):
        return [_timm_rand_augment(step)]
    sizes = {name: getattr(step, name) for name in ("num_ops", "magnitude", "num_magnitude_bins")}
    return [ops.RandAugment(**sizes, **_warp(step, state))]


def _timm_rand_augment(step: Any) -> Operator:
    """timm's: the text that it was made of."""
    first, names = step.ops[0], {it.name for it in step.ops}
    if step.choice_weights is not None or len(names) not in (3, 15):
        raise _Inconvertible("its operations are a set of their own")
    if any((it.prob, it.magnitude, it.magnitude_std) != (first.prob, first.magnitude, first.magnitude_std) for it in step.ops):
        raise _Inconvertible("its operations have strengths of their own")
    deviation = 101 if first.magnitude_std == math.inf else first.magnitude_std
    config = f"rand-m{first.magnitude}-n{step.num_layers}-p{first.prob}-mstd{deviation}"
    if first.magnitude_max is not None:
        config += f"-mmax{first.magnitude_max}"
    if any(name.endswith("Increasing") for name in names):
        config += "-inc1"
    if len(names) == 3:
        config += "-t3a"
    resample = first.kwargs["resample"]
    fixed = None if isinstance(resample, (list, tuple)) else {0: "nearest", 2: "bilinear", 3: "bicubic"}.get(int(resample))
    fill = first.kwargs["fillcolor"]
    return ops.TimmRandAugment(config=config, interpolation=fixed, fill=[int(value) for value in fill])  # type: ignore[arg-type]


@_converts("TrivialAugmentWide")
def _trivial(step: Any, state: _State) -> list[Operator]:
    _bytes_only(state)
    return [ops.TrivialAugmentWide(num_magnitude_bins=step.num_magnitude_bins, **_warp(step, state))]


@_converts("AutoAugment")
def _auto_augment(step: Any, state: _State) -> list[Operator]:
    _bytes_only(state)
    if not hasattr(step, "interpolation"):
        raise _Inconvertible("it is timm's, whose policies differ from torchvision's")
    return [ops.AutoAugment(policy=step.policy.value, **_warp(step, state))]


@_converts("AugMix")
def _aug_mix(step: Any, state: _State) -> list[Operator]:
    _bytes_only(state)
    sizes = {name: getattr(step, name) for name in ("severity", "mixture_width", "alpha", "all_ops")}
    depth = step.chain_depth if step.chain_depth > 0 else None
    return [ops.AugMix(**sizes, chain_depth=depth, **_warp(step, state))]


@_converts("ScaleJitter")
def _scale_jitter(step: Any, state: _State) -> list[Operator]:
    height, width = step.target_size
    return [ops.ScaleJitter(width=width, height=height, scale_range=list(step.scale_range), filter=_filter(step.interpolation))]


@_converts("RandomShortestSize")
def _shortest(step: Any, state: _State) -> list[Operator]:
    return [ops.RandomShortestSize(min_size=list(step.min_size), max_size=step.max_size, filter=_filter(step.interpolation))]


@_converts("RandomZoomOut")
def _zoom_out(step: Any, state: _State) -> list[Operator]:
    return [ops.RandomZoomOut(side_range=list(step.side_range), probability=step.p, fill=_fill(step.fill, state.unit()))]


@_converts("RandomApply")
def _apply(step: Any, state: _State) -> list[Operator]:
    return [ops.RandomApply(_chain(step.transforms, state), probability=step.p)]


@_converts("RandomChoice")
def _choice(step: Any, state: _State) -> list[Operator]:
    weights = getattr(step, "p", None) or getattr(step, "probabilities", None)
    choices = []
    for inner in step.transforms:
        operators = _chain([inner], state)
        # One operator for each choice. A flip that never happens does nothing.
        choices.append(operators[0] if len(operators) == 1 else ops.RandomApply(operators or [ops.Flip()], probability=1.0))
    return [ops.OneOf(choices, weights=None if weights is None else list(weights))]


@_converts("RandomOrder")
def _order(step: Any, state: _State) -> list[Operator]:
    return [ops.RandomOrder(_chain(step.transforms, state))]
