"""Chains that most training runs begin with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from . import ops
from ._settings import BatchOperator, Operator

__all__ = ["Recipe", "eval_recipe", "train_recipe"]

#: Mean and standard deviation of ImageNet's colours, on the scale 0 to 1.
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


class Recipe(list[Operator]):
    """A chain with the other settings that belong to it.

    * ``sections``: settings of sections of a pipeline file, such as ``{"loader": {"shuffle": True}}``. Arguments of
      :class:`feedwater.Loader` take precedence.
    * ``rest``: functions that run in Python on each image of a batch, after the chain (:func:`feedwater.from_torchvision`).
    * ``batch_operators``: operators on pairs of samples, unless the loader has its own.
    """

    def __init__(
        self,
        operators: Iterable[Operator],
        sections: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        rest: Sequence[Callable[[Any], Any]] = (),
        batch_operators: Sequence[BatchOperator] = (),
    ) -> None:
        super().__init__(operators)
        self.sections = dict(sections or {})
        self.rest = list(rest)
        self.batch_operators = list(batch_operators)


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
        {"loader": {"shuffle": True}},
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
        {"loader": {"shuffle": False, "last": "partial"}},
    )
