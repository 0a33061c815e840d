"""The compiled loader behind a loader of Python: its beginning, its replacement and its reports."""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from . import _feedwater
from ._batches import Batches, process_group
from ._checks import check_epoch, check_framework, checked_positions
from ._torchvision.rest import moving
from .batch import Meaning
from .errors import StoppedError
from .report import Report

Framework = Literal["torch", "numpy", "jax", "tensorflow", "batch"]

#: Names of the outcomes of samples that failed.
FAILED = ("skipped", "substituted", "dropped")

_log = logging.getLogger("feedwater")


class Running:
    """A compiled loader that is replaced when the epoch, the state or the shard is set."""

    def _begin(
        self,
        pipeline: _feedwater.Pipeline,
        framework: Framework,
        rest: Sequence[Callable[[Any], Any]],
        epoch: int = 0,
        epochs: int | None = None,
        positions: tuple[int, int] | None = None,
        has_columns: bool = False,
    ) -> None:
        check_framework(framework)
        check_epoch("epoch", epoch, 0)
        if epochs is not None:
            check_epoch("epochs", epochs, 1)
        positions = None if positions is None else checked_positions(positions)
        self._pipeline = pipeline
        self._framework: Framework = framework
        self._rest = rest
        self._warned: dict[str, object] = {}
        #: Time (of the monotonic clock) of the first failed sample after failures were last logged; 0 if no sample has failed since.
        self._failed_since = 0.0
        #: The iterator whose epoch is running.
        self._current: weakref.ref[Batches] | None = None
        #: Number of failed samples by outcome, in earlier inner loaders and in the runs before the loaded state.
        self._failed: dict[str, int] = {}
        # This lock is held while an epoch begins, and while the inner loader is replaced or closed.
        # The lock is reentrant, because a signal handler may close the loader on the thread that holds the lock.
        self._lock = threading.RLock()
        self._closed = False
        # Number of the epoch of the next loop.
        self._next = epoch
        self._end = None if epochs is None else epoch + epochs
        self._positions = positions
        self._has_whole_length = False
        self._has_state = False
        self._inner = self._built(epoch, None)
        #: Names of the columns of the parameter ``columns``.
        self._columns = [name for name, _ in self._inner.columns]
        #: Whether loops return dictionaries.
        self._has_records = bool(self._columns) or has_columns
        check_framework(framework, self._inner.shape[1])
        self._meaning = Meaning(self._inner.classes, self._inner.normalization, moving(rest))

    def _built(self, epoch: int, state: str | None) -> _feedwater.Loader:
        first = epoch if state is None else json.loads(state).get("epoch", 0)
        return self._pipeline.build(
            epoch=epoch,
            epochs=None if self._end is None else max(self._end - first, 0),
            state=state,
            positions=self._positions,
            shard=None if self._pipeline.has_shard else process_group(),
        )

    def _follow_group(self) -> None:
        """Rebuilds the inner loader for the shard of PyTorch's process group, if the group was initialized after the loader was built.
        Frameworks such as Lightning initialize it that late."""
        group = None if self._closed or self._pipeline.has_shard else process_group()
        if group is None:
            return
        with self._lock:
            if group != self._inner.shard:
                self._rebuild(0, json.loads(self._inner.state()))

    def _rebuild(self, epoch: int, state: Mapping[str, Any] | None) -> None:
        """Replaces the inner loader. The caller holds the lock."""
        if self._closed:
            raise StoppedError("the loader is closed")
        self._inner.check_caller()
        # Close the former loader first, because both together could need more memory than is available.
        before = self._inner.state()
        self._warn(self._inner, epoch_ends=True)
        self._failed = self._failures()
        try:
            self._inner.close()
            self._inner = self._built(epoch, None if state is None else json.dumps(state))
        except Exception:
            self._inner = self._built(0, before)
            raise
        except BaseException:
            # After Ctrl-C, do not build the former loader again, because that could take as long as building the new one.
            self._closed = True
            raise
        self._next = json.loads(self._inner.state())["epoch"]

    def _warn(self, inner: _feedwater.Loader, epoch_ends: bool = False) -> None:
        """Logs new warnings. The warning about failed samples is logged once, with their number, at the end of an epoch."""
        mine = object()
        warnings = {warning: warning for warning in inner.notices()}
        if epoch_ends and (failures := inner.failures()) is not None:
            warnings["failures"] = failures
        for key, warning in warnings.items():
            # `setdefault` is atomic, so only one of several threads logs a warning.
            if self._warned.setdefault(key, mine) is mine:
                _log.warning("%s", warning)

    def _failures(self) -> dict[str, int]:
        """Returns the number of failed samples by outcome, including those before the loaded state."""
        outcomes = self.stats["outcomes"]
        counts = {outcome: self._failed.get(outcome, 0) + outcomes.get(outcome, 0) for outcome in FAILED}
        return {outcome: count for outcome, count in counts.items() if count}

    def close(self) -> None:
        """Ends the loader and its threads. Tensors of its batches stay valid. Afterwards :attr:`stats`, :attr:`metrics`, :meth:`report`,
        :attr:`warnings`, :meth:`state_dict`, :attr:`classes`, :attr:`shard`, :attr:`samples` and :meth:`plan` return the values at closing."""
        self._shut(wait=True)

    def _shut(self, wait: bool) -> None:
        with self._lock, contextlib.suppress(StoppedError):
            if not self._closed:
                self._closed = True
                self._warn(self._inner, epoch_ends=True)
        self._inner.close(wait)

    @property
    def framework(self) -> Framework:
        """The argument ``framework``: the type of images and labels."""
        return self._framework

    @property
    def device(self) -> str:
        """The device on which batches are made, and the reason for this choice."""
        return self._inner.device

    @property
    def shard(self) -> tuple[int, int]:
        """Rank, from 0, and world size: the number of loaders that share an epoch."""
        self._follow_group()
        return self._inner.shard

    @property
    def samples(self) -> int:
        """Number of samples in the source."""
        return self._inner.samples

    @property
    def classes(self) -> list[str]:
        """Names of the classes in the order of their labels; empty if the source has none."""
        return self._inner.classes

    def location(self, index: int) -> str:
        """Returns the path of a sample, or another name for it. ``index`` is an index as in :attr:`Batch.indices`."""
        return self._inner.location(index)

    @property
    def stats(self) -> dict[str, Any]:
        """Counts and times: samples by outcome, bytes, memory, caches. Counting starts when the
        loader is built, and starts again when :meth:`load_state_dict` or :meth:`set_epoch` opens
        the source again. ``state_dict()["failed"]`` also includes earlier failed samples."""
        stats: dict[str, Any] = json.loads(self._inner.stats())
        return stats

    @property
    def metrics(self) -> str:
        """The counts of :attr:`stats` in Prometheus's text format. The program can serve this text to Prometheus."""
        return self._inner.metrics()

    @property
    def warnings(self) -> list[str]:
        """Warnings about this loader. They are also logged by the logger ``feedwater``."""
        failures = self._inner.failures()
        return [*self._inner.notices(), *([] if failures is None else [failures])]

    def report(self) -> Report:
        """Returns a report on the bottleneck of the loop so far, and on settings that would speed it up. Needs at least two batches."""
        return Report(*self._inner.report())

    def plan(self) -> str:
        """Returns the text of ``feedwater plan``: where each operator runs, and the predicted memory."""
        return self._inner.plan()
