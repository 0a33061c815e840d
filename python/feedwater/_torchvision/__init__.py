"""Conversion of transforms of torchvision (v1 and v2) and timm to chains."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from .. import _feedwater, _toml
from .._names import suggesting
from ..errors import ConfigError, ConversionError
from ..recipes import Recipe

# Importing these modules registers their converters.
from . import colours, combinations, geometry, policies, types  # noqa: F401
from .chain import has_one_size, is_random
from .combinations import is_of_batches
from .state import OF_BOXES, SEVERAL, Form, Inconvertible, Misplaced, State, converted, flat, name_of

__all__ = ["from_torchvision"]


@suggesting("fw.from_torchvision")
def from_torchvision(transform: Any, *, keep_rest: bool = False, as_pil: bool = False) -> Recipe:
    """Returns the chain for transforms of torchvision or timm, such as a ``Compose``, a list, or ``transforms()`` of
    weights.

    Pixels equal those of the transforms on the PIL image ``Image.open(file).convert("RGB")``, turned upright by its
    EXIF orientation. ``ImageFolder`` does not turn images; with ``fw.Loader(..., decode={"orientation": False})``
    feedwater does not either. Random numbers differ, but their distributions do not. The element type is that of the tensor
    that the transforms return, or ``u8`` if they return a PIL image.

    After ``ToImage`` or ``ToTensor``, torchvision computes on tensors. Results are equal or differ by at most one level
    of 255 per transform. A transform whose results differ more is an error; the message names the transform. With ``as_pil``, pixels equal those
    of the transforms on PIL images instead.

    ``FiveCrop`` and ``TenCrop`` become operators for :func:`feedwater.view`, whose tensors have an axis for the crops. With ``keep_rest`` they
    run in Python instead.

    ``MixUp`` and ``CutMix`` of torchvision, or timm's ``Mixup``, at the end of the list become batch operators of the
    recipe.

    Samples that do not fill the last batch are dropped if the chain draws random numbers. Otherwise they form a smaller
    batch (:class:`feedwater.Loader`, ``drop_last``).

    ``keep_rest``: the first transform that cannot be converted and all later ones stay in Python. They run for each
    image in the thread of the loop, with PyTorch's random numbers. Their input is a PIL image or a tensor, as in
    torchvision. They process finished batches, so the converted part must produce images of one size.

    Raises :class:`feedwater.errors.ConversionError`, which names each transform that cannot be converted and why.
    """
    steps = list(flat(transform))
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
                if keep_rest and has_one_size(whole) and not is_of_batches(whole.rest):
                    return whole
            elif isinstance(problem, Misplaced):
                # Do not report this problem: an earlier transform that was not converted might have changed the image's type.
                continue
            problems.append(f"{name_of(step)} (transform {place}): {problem}")
    if whole is None:
        return _recipe(state, [])
    raise ConversionError(
        f"{len(problems)} of {len(steps)} transforms cannot be converted; {_advice(whole, keep_rest)}:\n  " + "\n  ".join(problems),
        problems=problems,
    )


def _advice(whole: Recipe, keep_rest: bool) -> str:
    """Returns advice for an error message: what ``keep_rest=True`` would do, or why it is impossible. ``keep_rest``: whether the user passed it."""
    if is_of_batches(whole.rest):
        return "keep_rest=True cannot keep them, because a transform that mixes the samples of a batch follows"
    first = name_of(next(step for step in whole.rest if step is not _pil_image))
    if first in OF_BOXES:
        return f"leave {first} out, because it changes boxes and no image"
    if has_one_size(whole):
        return f"keep_rest=True keeps {first} and what follows it in Python"
    if keep_rest:
        return f"they cannot stay in Python, because the images before {first} differ in size; put a crop or Resize((height, width)) before {first}"
    return f"keep_rest=True keeps {first} and what follows it in Python if a crop or Resize((height, width)) comes before {first}: a batch has images of one size"


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
