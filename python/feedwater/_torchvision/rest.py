"""Transforms that stay Python: which of them may move images, and which need boxes or keypoints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from .state import OF_BOXES, inner_of, is_unchanged, library, name_of

#: Transforms of torchvision and timm that leave every pixel at its place.
_STILL = {
    *OF_BOXES,
    "ColorJitter",
    "ConvertImageDtype",
    "GaussianBlur",
    "GaussianNoise",
    "Grayscale",
    "Identity",
    "JPEG",
    "LinearTransformation",
    "MaybePILToTensor",
    "MaybeToTensor",
    "Normalize",
    "PILToTensor",
    "RGB",
    "RandomAdjustSharpness",
    "RandomAutocontrast",
    "RandomChannelPermutation",
    "RandomEqualize",
    "RandomErasing",
    "RandomGrayscale",
    "RandomInvert",
    "RandomPhotometricDistort",
    "RandomPosterize",
    "RandomSolarize",
    "ToDtype",
    "ToImage",
    "ToPILImage",
    "ToPureTensor",
    "ToTensor",
}
#: Transforms of torchvision that raise an error for an image without boxes or keypoints, with what they need.
_NEEDS = {"RandomIoUCrop": "bounding boxes", "SanitizeBoundingBoxes": "bounding boxes", "SanitizeKeyPoints": "keypoints"}
#: Transforms that run other transforms, which their attribute ``transforms`` contains.
_CONTAINERS = ("Compose", "RandomApply", "RandomChoice", "RandomOrder")


def moving(rest: Iterable[Any]) -> list[str]:
    """Returns the names of transforms that may move the pixels of an image: all that are not known to leave every pixel at its place."""
    return list(dict.fromkeys(name_of(step) for step in _single(rest) if not _is_still(step)))


def way_out(plural: bool) -> str:
    """Returns advice for an error about transforms that may move images. ``plural``: whether there are several."""
    it, them = ("these transforms", "them") if plural else ("this transform", "it")
    return (
        "change the transforms as the error of fw.from_torchvision without keep_rest=True advises, until feedwater runs "
        f"{it} too, or leave {them} out and apply {them} to images and boxes in the training loop"
    )


def needing_objects(rest: Iterable[Any]) -> dict[str, str]:
    """Returns the names of transforms that need boxes or keypoints, with what they need. Transforms that stay Python get only images."""
    return {name_of(step): need for step in _single(rest) if (need := _need_of(step)) is not None}


def _single(rest: Iterable[Any]) -> Iterator[Any]:
    """Returns the transforms without those that only run other transforms."""
    for step in rest:
        inner = inner_of(step)
        if inner is None and type(step).__name__ in _CONTAINERS and library(step) == "torchvision" and is_unchanged(step):
            inner = step.transforms
        if inner is None:
            yield step
        else:
            yield from _single(inner)


def _is_still(step: Any) -> bool:
    if getattr(step, "__module__", None) == f"{__package__}.attempt":
        # The conversion adds a function before transforms that need PIL images.
        return True
    if library(step) == "torch":
        return type(step).__name__ == "Identity" and is_unchanged(step)
    return library(step) in ("torchvision", "timm") and type(step).__name__ in _STILL and is_unchanged(step)


def _need_of(step: Any) -> str | None:
    for kind in type(step).__mro__:
        if kind.__module__.partition(".")[0] == "torchvision":
            return _NEEDS.get(kind.__name__) if is_unchanged(step) else None
        if "forward" in vars(kind) or "__call__" in vars(kind):
            # A subclass with a call of its own may accept an image without boxes.
            return None
    return None


def first_of(rest: Sequence[Any]) -> Any:
    """Returns the first transform of the user that stays Python."""
    return next(step for step in rest if getattr(step, "__module__", None) != f"{__package__}.attempt")
