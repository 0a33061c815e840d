"""Iterator over the batches of one epoch of a loader."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from . import _feedwater
from .batch import Batch
from .errors import StoppedError

if TYPE_CHECKING:
    from ._loops import Loops


class Batches(Iterator[Batch]):
    """The batches of an epoch. The epoch begins with the first ``next``. Threads may share the iterator."""

    def __init__(self, loader: Loops, place: str, has_fields: bool = True) -> None:
        self._loader = loader
        #: Whether :attr:`Batch.fields` of the batches can be read.
        self.has_fields = has_fields
        #: File and line where the loop over the loader begins, for error messages.
        self.place = place
        #: The iterator of a later loop, which ended this iterator; ``None`` if it was not ended.
        self.ended_by: Batches | None = None
        self._begun = False
        # The compiled loader and its epoch, while the epoch runs; otherwise `None`.
        self._running: tuple[_feedwater.Loader, _feedwater.Epoch] | None = None

    def __next__(self) -> Batch:
        if not self._begun:
            self._begin()
        running = self._running
        if running is None:
            raise StopIteration
        try:
            batch = self._loader._awaited(*running, self.has_fields)
        except BaseException:
            self._running = None
            raise
        if batch is None:
            self._running = None
            self._loader._warn(running[0], epoch_ends=True)
            self._check_end(running[1])
            raise StopIteration
        return batch

    def _begin(self) -> None:
        with self._loader._lock:
            if not self._begun:
                self._running = self._loader._epoch(self)
                self._begun = True

    def _check_end(self, epoch: _feedwater.Epoch) -> None:
        """Raises an error if another loop ended this one. Without the error, the loop would seem to have reached the end of its epoch."""
        left = epoch.remaining
        if not left:
            return
        by = "another loop over the same loader" if self.ended_by is None else f"the loop that begins at {self.ended_by.place}"
        raise StoppedError(
            f"the loop that begins at {self.place} was ended by {by}, {left} batches before the end of epoch {epoch.number}, because a "
            "loader runs one loop at a time; for a second loop create a second loader; to read one batch without a loop call loader.peek()"
        )


def caller() -> str:
    """Returns file and line of the code outside of this package that called the package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == __package__:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def process_group() -> tuple[int, int] | None:
    """Returns rank and world size of PyTorch's process group, or ``None`` if there is no group."""
    distributed = sys.modules.get("torch.distributed")
    # While another thread imports `torch.distributed`, the module's functions may be missing.
    if distributed is None or not hasattr(distributed, "is_initialized") or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed.get_rank(), distributed.get_world_size()


def applied(rest: Sequence[Callable[[Any], Any]], images: Any) -> Any:
    """Applies transforms that run in Python to each image, and returns the results. The last transform must return tensors."""
    import torch

    changed = []
    for image in images:
        for step in rest:
            image = step(image)
        # A transform such as `FiveCrop` returns several views of an image, which become one tensor.
        parts = tuple(image) if isinstance(image, (tuple, list)) else (image,)
        for part in parts:
            if not isinstance(part, torch.Tensor):
                last = getattr(rest[-1], "__name__", type(rest[-1]).__name__)
                raise TypeError(
                    f"{last}, the last transform that runs in Python (keep_rest), returned {type(part).__name__}; it must return a tensor, or a "
                    "tuple or list of tensors"
                )
        changed.append(torch.stack(parts) if isinstance(image, (tuple, list)) else image)
    return torch.stack(changed).to(images.device)
