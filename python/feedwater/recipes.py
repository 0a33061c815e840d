"""Recipes: chains together with the loader settings that belong to them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, SupportsIndex, overload

from . import ops
from ._checks import batch_operators_of, operators_of
from ._names import suggesting
from ._settings import BatchOperator, Operator
from .sections import checked_sections

__all__ = ["Recipe", "eval_recipe", "train_recipe"]

#: Mean and standard deviation of ImageNet's colours, on the scale 0 to 1.
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


class Recipe(list[Operator]):
    """A chain (a list of operators) with the loader settings that belong to it.

    * ``sections``: settings of sections of a pipeline file, such as ``{"loader": {"shuffle": True}}``. Arguments of
      :class:`feedwater.Loader` take precedence.
    * ``rest``: functions that run in Python on each image of a batch, after the chain (:func:`feedwater.from_torchvision`).
    * ``batch_operators``: operators on pairs of samples. The loader's argument ``batch_operators`` takes precedence.

    Adding operators to a recipe, slicing, copying or multiplying it gives a recipe with the same settings. For example,
    ``fw.train_recipe(224) + [ops.RandomErasing()]`` still shuffles. Two recipes can be added if their settings do not
    contradict each other. ``list(recipe)`` returns only the operators.
    """

    @suggesting("fw.Recipe")
    def __init__(
        self,
        operators: Operator | Iterable[Operator],
        sections: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        rest: Sequence[Callable[[Any], Any]] = (),
        batch_operators: BatchOperator | Sequence[BatchOperator] = (),
    ) -> None:
        super().__init__(operators_of(operators))
        self.sections = checked_sections({} if sections is None else sections)
        self.rest = _functions(rest)
        self.batch_operators = batch_operators_of(batch_operators)

    def __repr__(self) -> str:
        rest = f", rest={self.rest!r}" if self.rest else ""
        blends = f", batch_operators={self.batch_operators!r}" if self.batch_operators else ""
        return f"Recipe({list(self)!r}, {self.sections!r}{rest}{blends})"

    def copy(self) -> Recipe:
        return self[:]

    __copy__ = copy

    def __reduce__(self) -> tuple[Any, ...]:
        # Without this method, `pickle` and `deepcopy` would append the operators one by one to a recipe without settings.
        return _made, (list(self), self.sections, self.rest, self.batch_operators)

    @overload
    def __getitem__(self, index: SupportsIndex, /) -> Operator: ...

    @overload
    def __getitem__(self, index: slice, /) -> Recipe: ...

    def __getitem__(self, index: SupportsIndex | slice, /) -> Operator | Recipe:
        operators = super().__getitem__(index)
        return self._with(operators) if isinstance(operators, list) else operators

    def __add__(self, other: Iterable[Operator], /) -> Recipe:  # type: ignore[override]
        if not isinstance(other, (list, tuple)):
            return NotImplemented
        self._check_nothing_follows(other)
        joined = self._with([*self, *other])
        if isinstance(other, Recipe):
            joined.sections = _joined(self.sections, other.sections)
            joined.rest = [*self.rest, *other.rest]
            joined.batch_operators = [*self.batch_operators, *other.batch_operators]
        return joined

    def __radd__(self, other: Iterable[Operator], /) -> Recipe:
        if not isinstance(other, (list, tuple)):
            return NotImplemented
        return self._with([*other, *self])

    def __iadd__(self, other: Iterable[Operator], /) -> Recipe:  # type: ignore[override]
        joined = self + list(other) if not isinstance(other, Recipe) else self + other
        self[:] = joined
        self.sections, self.rest, self.batch_operators = joined.sections, joined.rest, joined.batch_operators
        return self

    def __mul__(self, times: SupportsIndex, /) -> Recipe:
        operators = super().__mul__(times)
        if len(operators) > len(self):
            self._check_nothing_follows(self)
        return self._with(operators)

    __rmul__ = __mul__

    def __imul__(self, times: SupportsIndex, /) -> Recipe:
        self[:] = self * times
        return self

    def append(self, operator: Operator, /) -> None:
        self._check_nothing_follows([operator])
        super().append(operator)

    def extend(self, operators: Iterable[Operator], /) -> None:
        self += operators

    def _with(self, operators: Iterable[Operator]) -> Recipe:
        """Returns a recipe of these operators with the settings of this recipe. Later changes of one recipe do not affect
        the other recipe."""
        sections = {name: dict(section) for name, section in self.sections.items()}
        return Recipe(operators, sections, rest=self.rest, batch_operators=self.batch_operators)

    def _check_nothing_follows(self, operators: Collection[Operator]) -> None:
        """Raises an error if operators would have to run after transforms that stay Python. Those transforms run after the
        whole chain."""
        if self.rest and len(operators):
            raise ValueError(
                f"the recipe has transforms that stay Python ({len(self.rest)}), and no operator can run after them; put the operator before them "
                "in the transforms that you convert, or in front of the recipe: [operator] + recipe"
            )


def _made(
    operators: Iterable[Operator],
    sections: Mapping[str, Mapping[str, Any]],
    rest: Sequence[Callable[[Any], Any]],
    batch_operators: Sequence[BatchOperator],
) -> Recipe:
    return Recipe(operators, sections, rest=rest, batch_operators=batch_operators)


def _functions(rest: Any) -> list[Callable[[Any], Any]]:
    functions: list[Any] = list(rest) if isinstance(rest, Iterable) else [rest]
    for function in functions:
        if not callable(function):
            raise TypeError(f"rest has {function!r}; it is a list of functions that run in Python on each image")
    return functions


def _joined(first: Mapping[str, Mapping[str, Any]], second: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Merges the settings of two recipes."""
    joined = {name: dict(section) for name, section in first.items()}
    for name, section in second.items():
        for key, value in section.items():
            known = joined.setdefault(name, {}).setdefault(key, value)
            if known != value:
                raise ValueError(
                    f"one recipe has {key} = {known!r} and the other {value!r}; add only the operators, list(recipe), and pass {key} to the loader"
                )
    return joined


@suggesting("fw.train_recipe")
def train_recipe(
    size: int,
    *,
    scale: Sequence[float] = (0.08, 1.0),
    flip: float = 0.5,
    mean: float | Sequence[float] = IMAGENET_MEAN,
    std: float | Sequence[float] = IMAGENET_STD,
) -> Recipe:
    """Torchvision's training recipe: RandomResizedCrop to ``size`` x ``size`` pixels, a horizontal flip with
    probability ``flip``, and normalization. Each epoch is shuffled."""
    return Recipe(
        [
            ops.RandomResizedCrop(width=size, height=size, scale=scale),
            ops.Flip(horizontal=flip),
            ops.Normalize(mean=mean, std=std),
        ],
        {"loader": {"shuffle": True}},
    )


@suggesting("fw.eval_recipe")
def eval_recipe(
    size: int,
    *,
    resize: int | None = None,
    mean: float | Sequence[float] = IMAGENET_MEAN,
    std: float | Sequence[float] = IMAGENET_STD,
) -> Recipe:
    """Torchvision's evaluation recipe. It resizes the shorter side to ``resize`` pixels (default: ``size`` times 256 / 224),
    crops ``size`` x ``size`` pixels in the centre, and normalizes. The last batch may be smaller."""
    shorter = resize if resize is not None else round(size * 256 / 224)
    return Recipe(
        [
            ops.Resize(shorter=shorter),
            ops.CenterCrop(width=size, height=size),
            ops.Normalize(mean=mean, std=std),
        ],
        {"loader": {"shuffle": False, "last_batch": "partial"}},
    )
