"""Advice in the error for transforms that cannot be converted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .attempt import Attempt, attempted
from .chain import has_one_size
from .combinations import is_of_batches
from .rest import first_of, needing_objects
from .state import OF_BOXES, name_of

#: Transforms that convert a PIL image to a tensor.
_TO_TENSOR = ("ToImage", "PILToTensor", "ToTensor")


def advice(steps: Sequence[Any], attempt: Attempt, keep_rest: bool, as_pil: bool) -> str:
    """Returns what ``keep_rest=True`` would do, or why it is impossible and what is possible instead. ``keep_rest`` and ``as_pil``: what
    the user passed."""
    whole = attempt.kept
    assert whole is not None
    if is_of_batches(whole.rest):
        return "keep_rest=True cannot keep them, because a transform that mixes the samples of a batch follows"
    step = first_of(whole.rest)
    first = name_of(step)
    if first in OF_BOXES:
        return f"leave {first} out, because it changes only boxes or keypoints"
    needing = needing_objects(whole.rest)
    if needing:
        name, need = next(iter(needing.items()))
        why = f"{name} cannot stay in Python (keep_rest), because it needs {need}, and transforms in Python get only images"
        ways = _ways_out(steps, step, keep_rest, as_pil)
        otherwise = f"change the transforms below, or leave {', '.join(needing)} out"
        return f"{why}; {ways or otherwise}"
    if has_one_size(whole):
        return f"keep_rest=True keeps {first} and what follows it in Python"
    if keep_rest:
        return f"they cannot stay in Python, because the images before {first} differ in size; put a crop or Resize((height, width)) before {first}"
    return f"keep_rest=True keeps {first} and what follows it in Python if a crop or Resize((height, width)) comes before {first}: a batch has images of one size"


def _ways_out(steps: Sequence[Any], first: Any, keep_rest: bool, as_pil: bool) -> str:
    """Returns changes after which the conversion succeeds, or an empty text. Each change is tried. ``first``: the first transform that cannot be
    converted, which precedes a transform that needs boxes."""
    # An object that is in the list twice is named by its first place.
    places = {id(step): place for place, step in reversed(list(enumerate(steps)))}
    left_out = list(dict.fromkeys(name_of(step) for step in steps if name_of(step) in OF_BOXES))
    kept = [step for step in steps if name_of(step) not in OF_BOXES]
    begin = [f"leave {', '.join(left_out)} out"] if left_out else []
    if left_out and attempted(kept, False, as_pil).recipe is not None:
        return begin[0]
    at = next(index for index, step in enumerate(kept) if step is first)
    others = kept[:at] + kept[at + 1 :]
    ways = []

    def is_tried(transforms: Sequence[Any], words: str, pil: bool = as_pil) -> bool:
        rests = attempted(transforms, False, pil).recipe is None
        if rests and attempted(transforms, True, pil).recipe is None:
            return False
        ways.append(f"{words} and pass keep_rest=True" if rests and not keep_rest else words)
        return True

    def named(step: Any) -> str:
        return f"{name_of(step)} (transform {places[id(step)]})"

    if not as_pil:
        is_tried(kept, "pass as_pil=True", True)
    tensor = next((index for index, step in enumerate(kept[:at]) if name_of(step) in _TO_TENSOR), None)
    if tensor is not None:
        is_tried([*kept[:tensor], first, *others[tensor:]], f"move {name_of(first)} before {named(kept[tensor])}")
    needing = [index for index, step in enumerate(others) if needing_objects([step])]
    if needing and not needing_objects([first]):
        after = range(needing[-1] + 1, len(others) + 1)
        # Of the places after the last transform that needs boxes, choose the first where images have one size.
        if not any(is_tried([*others[:it], first, *others[it:]], f"put {name_of(first)} after {named(others[it - 1])}") for it in after):
            from torchvision.transforms import Resize

            resized = [*others[: after[0]], Resize((8, 8)), first, *others[after[0] :]]
            is_tried(resized, f"put {name_of(first)} after {named(others[needing[-1]])}, with a crop or Resize((height, width)) between them")
    if left_out and not ways and attempted(kept, True, as_pil).recipe is not None:
        return begin[0] if keep_rest else f"{begin[0]} and pass keep_rest=True"
    return ", and ".join([*begin, ", or ".join(ways)]) if ways else ""
