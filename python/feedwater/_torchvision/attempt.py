"""Conversion of a list of transforms, with the reasons why transforms cannot be converted."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from .. import _feedwater, _toml
from ..errors import ConfigError, ConversionError
from ..recipes import Recipe
from .chain import has_one_size, is_random
from .combinations import is_of_batches
from .rest import needing_objects
from .state import SEVERAL, Form, Inconvertible, Misplaced, State, converted, name_of


class Attempt(NamedTuple):
    """Result of a conversion."""

    #: The recipe, or ``None`` if transforms cannot be converted.
    recipe: Recipe | None
    #: Recipe whose ``rest`` begins with the first transform that cannot be converted, or ``None`` if all can be converted. The rest might be
    #: unable to run in Python.
    kept: Recipe | None
    #: Reasons why transforms cannot be converted.
    problems: list[str]


def attempted(steps: Sequence[Any], keep_rest: bool, as_pil: bool) -> Attempt:
    """Converts transforms. The arguments are those of :func:`feedwater.from_torchvision`."""
    state = State(as_pil, keep_rest)
    problems: list[str] = []
    # Place of the first transform that makes several images of one, with the operators and the state before it.
    several: tuple[int, list[Any], Any] | None = None
    # Recipe of the transforms before the first one that cannot be converted, or before the first `FiveCrop` or `TenCrop` if that is earlier.
    # `None` if all can be converted.
    whole: Recipe | None = None
    for place, step in enumerate(steps):
        before = state.saved()
        if several is None and name_of(step) in SEVERAL:
            several = (place, list(state.operators), before)
        try:
            state.operators += _checked(converted(step, state))
        except Exception as error:
            # Catch every exception, because a converter may raise any exception for a transform with unusual settings.
            known = isinstance(error, (Inconvertible, ConversionError))
            problem = error if known else Inconvertible(f"its settings cannot be read: {type(error).__name__}: {error}")
            state.restore(before)
            if several is not None and several[0] < place:
                problem = Inconvertible(
                    f"{problem}. The transforms after {name_of(steps[several[0]])} are applied to each crop; write them for one image, such as "
                    "ToTensor() in place of a Lambda that stacks the crops"
                )
            if whole is None:
                # `keep_rest` runs `FiveCrop` and `TenCrop` in Python too, because their operators work only in views.
                begin, state.operators, saved = several or (place, state.operators, before)
                state.restore(saved)
                whole = _recipe(state, steps[begin:])
                if keep_rest and has_one_size(whole) and not is_of_batches(whole.rest) and not needing_objects(whole.rest):
                    return Attempt(whole, whole, [])
            elif isinstance(problem, Misplaced):
                # Do not report this problem: an earlier transform that was not converted might have changed the image's type.
                continue
            problems.append(f"{name_of(step)} (transform {place}): {problem}")
    return Attempt(_recipe(state, []) if whole is None else None, whole, problems)


def _checked(operators: list[Any]) -> list[Any]:
    """Returns the operators, after the compiled part has checked their settings."""
    if operators:
        text = f'source = {{ own = "images" }}\nchain = {_toml.value(operators)}\n'
        try:
            _feedwater.Pipeline.from_toml(text, os.getcwd(), {"images": ([], None, [])})
        except ConfigError as problem:
            raise Inconvertible(f"feedwater does not accept its settings: {problem}") from None
    return operators


def _recipe(state: State, rest: Sequence[Any]) -> Recipe:
    """Returns the recipe of a chain with its settings. ``rest`` runs after it in Python."""
    operators = state.finished()
    sections: dict[str, dict[str, Any]] = {"output": {"dtype": state.dtype, "layout": "nchw"}}
    if not is_random(operators) and not state.batch_operators and not any(_is_random_in_python(step) for step in rest):
        sections["loader"] = {"last_batch": "partial"}
    if state.targets:
        sections["targets"] = state.targets
    functions = [_pil_image, *rest] if rest and state.form is Form.PIL else list(rest)
    return Recipe(operators, sections, rest=functions, batch_operators=state.batch_operators)


def _is_random_in_python(step: Any) -> bool:
    """Whether a transform that runs in Python draws random numbers, according to its name."""
    return any(word in name_of(step) for word in ("Random", "Jitter", "Augment", "AugMix", "Noise", "Elastic", "Blur"))


def _pil_image(image: Any) -> Any:
    """Converts a tensor of any element type with whole numbers from 0 to 255 to a PIL image."""
    import torch
    from torchvision.transforms.functional import to_pil_image

    # This function runs only before `ToTensor`, so every element type holds whole numbers.
    return to_pil_image(image.cpu().to(torch.uint8))
