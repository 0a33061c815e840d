"""Loops over a loader."""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterator
from typing import Any

from . import _feedwater
from ._batches import Batches, applied, caller
from ._state import Resumable
from .batch import Batch
from .errors import Error, StoppedError

#: Seconds between two checks for new warnings while the loader waits for a batch.
_WARN_EVERY = 1.0
#: Seconds after the first failed sample at which failed samples are logged, unless the epoch ends before.
_TELL_FAILURES_AFTER = 60.0


class Loops(Resumable):
    """A loader whose loops return the batches of one epoch each."""

    def __len__(self) -> int:
        """Number of batches on this shard in the running loop, or in the next loop if none is running. After :meth:`load_state_dict`, the next
        loop has only the remaining batches of the epoch."""
        self._follow_group()
        return self._inner.batches_per_epoch if self._has_whole_length else self._inner.batches_of_this_epoch

    @property
    def batches_per_epoch(self) -> int:
        """Number of batches of a whole epoch on this shard."""
        self._follow_group()
        return self._inner.batches_per_epoch

    def __iter__(self) -> Iterator[Any]:
        # Neither `batches()` nor `map` keeps a reference to a returned batch, so its memory is free as soon as the loop drops it.
        if self._framework == "batch":
            return self.batches()
        batches = Batches(self, caller(), has_fields=False)
        return map(self.record if self._has_records else self.pair, batches)

    def pair(self, batch: Batch) -> tuple[Any, Any]:
        """Converts a batch of this loader to the pair of images and targets that a loop with its ``framework`` returns."""
        if self._framework == "batch":
            raise ValueError('the loader was built with framework="batch", which has no pairs; use batch.pair("torch")')
        images, targets = batch.pair(self._framework)
        return applied(self._rest, images) if self._rest else images, targets

    def record(self, batch: Batch) -> dict[str, Any]:
        """Converts a batch of this loader to the dictionary that a loop returns if the loader has ``columns``."""
        framework = self._framework
        if framework == "batch":
            raise ValueError('the loader was built with framework="batch", which has no dictionaries; use batch.column("name", "torch")')
        columns = batch._columns(framework)
        record = {}
        if self._inner.has_images:
            record["image"], targets = self.pair(batch)
        else:
            targets = batch._targets(framework)
        if batch.classes:
            record |= {"label": batch._labels(framework), "target": targets}
        else:
            record["label"] = targets
        return record | columns

    def batches(self) -> Iterator[Batch]:
        """Returns an iterator over the batches of the next epoch. Transforms that stay Python (``keep_rest``) are not applied; :meth:`pair`
        applies them. If the loop is left early, the next loop runs the following epoch."""
        return Batches(self, caller())

    def peek(self) -> Any:
        """Returns what the next step of a loop will return, for inspecting images or shapes. The position does not change and a running loop
        continues, so the next step returns the same samples. The result is a copy in host memory. Raises
        :class:`feedwater.errors.StoppedError` after the last epoch."""
        with self._lock:
            if self._closed:
                raise StoppedError("the loader is closed")
            self._follow_group()
            inner = self._inner
        while not (known := inner.peek_within(_WARN_EVERY))[0]:
            self._warn(inner)
        if known[1] is None:
            raise StoppedError("there is no next batch, because the last epoch has ended")
        if self._framework == "batch":
            return Batch(known[1], self._meaning, inner.fields(known[1], stay=True))
        batch = Batch(known[1], self._meaning)
        return self.record(batch) if self._has_records else self.pair(batch)

    def _epoch(self, batches: Batches) -> tuple[_feedwater.Loader, _feedwater.Epoch]:
        """Begins the next epoch, which ends the running one."""
        with self._lock:
            if self._closed:
                raise StoppedError("the loader is closed")
            self._follow_group()
            self._warn(self._inner, epoch_ends=True)
            former = None if self._current is None else self._current()
            if former is not None:
                former.ended_by = batches
            self._current = weakref.ref(batches)
            self._inner.keep_fields(batches.has_fields)
            epoch = self._inner.epoch()
            self._next = epoch.number + 1
            return self._inner, epoch

    def _awaited(self, inner: _feedwater.Loader, epoch: _feedwater.Epoch, has_fields: bool) -> Batch | None:
        """Waits for the next batch, and logs warnings meanwhile. Returns ``None`` at the end of the epoch."""
        try:
            while not (known := epoch.next_within(_WARN_EVERY))[0]:
                self._warn(inner)
        except StoppedError:
            raise
        except Error:
            # Later loops raise the same error, until `set_epoch` opens the source again. It does this for every epoch except `_next`. No epoch is -1.
            self._next = -1
            raise
        batch = known[1]
        if batch is None:
            return None
        if batch.failed:
            self._failed_since = self._failed_since or time.monotonic()
        if self._failed_since and time.monotonic() - self._failed_since > _TELL_FAILURES_AFTER:
            self._warn(inner, epoch_ends=True)
        return Batch(batch, self._meaning, inner.fields(batch) if has_fields else None)
