"""Conversion of transforms of torchvision (v1 and v2) and timm to chains."""

from __future__ import annotations

from typing import Any

from .._names import suggesting
from ..errors import ConversionError
from ..recipes import Recipe

# Importing these modules registers their converters.
from . import colours, combinations, geometry, policies, types  # noqa: F401
from .advice import advice
from .attempt import attempted
from .state import flat

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
    torchvision. They process finished batches, so the converted part must produce images of one size. They get no boxes, so a transform that
    needs boxes, such as ``RandomIoUCrop``, cannot stay in Python. If one of them may move the images, :meth:`feedwater.Batch.objects` is an
    error.

    Raises :class:`feedwater.errors.ConversionError`, which names each transform that cannot be converted and why.
    """
    steps = list(flat(transform))
    attempt = attempted(steps, keep_rest, as_pil)
    if attempt.recipe is not None:
        return attempt.recipe
    raise ConversionError(
        f"{len(attempt.problems)} of {len(steps)} transforms cannot be converted; {advice(steps, attempt, keep_rest, as_pil)}:\n  "
        + "\n  ".join(attempt.problems),
        problems=attempt.problems,
    )
