"""Operators that run other operators."""

from __future__ import annotations

from collections.abc import Sequence

from ._checks import operators_of
from ._settings import Operator, Placement

__all__ = ["OneOf", "RandomApply", "RandomOrder", "SomeOf"]


class RandomApply(Operator):
    """Runs all of its operators in order with the probability ``probability`` (default 0.5), and otherwise no operator,
    like torchvision's ``RandomApply``."""

    OP = "random_apply"

    def __init__(
        self, operators: Operator | Sequence[Operator], *, probability: float | None = None, placement: Placement | None = None
    ) -> None:
        super().__init__(operators=operators_of(operators, "operators"), probability=probability, placement=placement)


class OneOf(Operator):
    """Runs one of its operators for each sample, like torchvision's ``RandomChoice``. ``weights``: weight of each
    operator, 1 by default."""

    OP = "one_of"

    def __init__(
        self,
        operators: Operator | Sequence[Operator],
        *,
        weights: Sequence[float] | None = None,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(operators=operators_of(operators, "operators"), weights=weights, placement=placement)


class SomeOf(Operator):
    """Runs ``count`` of its operators in a random order, each at most once, like Albumentations' ``SomeOf`` without
    replacement."""

    OP = "some_of"

    def __init__(self, operators: Operator | Sequence[Operator], *, count: int, placement: Placement | None = None) -> None:
        super().__init__(operators=operators_of(operators, "operators"), count=count, placement=placement)


class RandomOrder(Operator):
    """Runs all of its operators in a random order, like torchvision's ``RandomOrder``."""

    OP = "random_order"

    def __init__(self, operators: Operator | Sequence[Operator], *, placement: Placement | None = None) -> None:
        super().__init__(operators=operators_of(operators, "operators"), placement=placement)
