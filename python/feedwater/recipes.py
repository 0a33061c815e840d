"""Chains that most training runs begin with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from . import ops
from ._settings import Operator

__all__ = ["Recipe", "eval_recipe", "train_recipe"]

#: Mean and standard deviation of ImageNet's colours, on the scale 0 to 1.
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


class Recipe(list[Operator]):
    """A chain with the settings of ``[loader]`` that belong to it. Arguments of :class:`feedwater.Loader` take precedence."""

    def __init__(self, operators: Iterable[Operator], **loader: Any) -> None:
        super().__init__(operators)
        self.loader = loader


def train_recipe(
    size: int,
    *,
    scale: Sequence[float] = (0.08, 1.0),
    flip: float = 0.5,
    mean: Sequence[float] = IMAGENET_MEAN,
    std: Sequence[float] = IMAGENET_STD,
) -> Recipe:
    """Torchvision's training recipe: RandomResizedCrop to ``size`` x ``size`` pixels, a horizontal flip with this probability, and
    normalization. The order is shuffled in each epoch."""
    return Recipe(
        [
            ops.RandomResizedCrop(width=size, height=size, scale=scale),
            ops.Flip(horizontal=flip),
            ops.Normalize(mean=mean, std=std),
        ],
        shuffle=True,
    )


def eval_recipe(
    size: int,
    *,
    resize: int | None = None,
    mean: Sequence[float] = IMAGENET_MEAN,
    std: Sequence[float] = IMAGENET_STD,
) -> Recipe:
    """Torchvision's evaluation recipe: the shorter side is resized to ``resize`` pixels (default: 256 for 224, in this proportion),
    then ``size`` x ``size`` pixels in the centre are cropped and normalized. The last batch may be smaller."""
    shorter = resize if resize is not None else round(size * 256 / 224)
    return Recipe(
        [
            ops.Resize(shorter=shorter),
            ops.CenterCrop(width=size, height=size),
            ops.Normalize(mean=mean, std=std),
        ],
        shuffle=False,
        last="partial",
    )
