"""The position of a loader: epochs, and states from which a loader continues."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from typing import Any

from ._checks import check_epoch
from ._classes import check_classes
from ._running import FAILED, Running
from .errors import ConfigError

#: Version of the dictionary that :meth:`Loader.state_dict` returns.
_STATE_VERSION = 1

_log = logging.getLogger("feedwater")


class Resumable(Running):
    """A loader whose position can be saved and set."""

    def set_epoch(self, epoch: int, *, fresh: bool = False) -> None:
        """Sets the number of the next loop's epoch, from 0. If the next loop would run this epoch anyway, nothing happens. Otherwise, and after
        an error that ended the loader, the source is opened again, and prefetched batches and caches are discarded. ``fresh=True`` always
        opens the source again: use it after labels or images of :func:`feedwater.samples` have changed."""
        check_epoch("epoch", epoch, 0)
        with self._lock:
            if fresh or epoch != self._next:
                # After `load_state_dict`, seed and order remain those of the loaded state.
                state = {**json.loads(self._inner.state()), "epoch": epoch, "position": 0} if self._has_state else None
                self._rebuild(epoch, state)

    def state_dict(self) -> dict[str, Any]:
        """Returns the position as a dictionary. :meth:`load_state_dict` continues at this position with exactly the remaining samples, with
        any batch size and number of shards. A batch counts as consumed when a loop has received it. The state is the same on all ranks, except
        for the entry ``"failed"``: the numbers of skipped, substituted and dropped samples of this rank, if there are any. The entry
        ``"classes"`` has the class names, if the source has any."""
        state: dict[str, Any] = {"version": _STATE_VERSION, "state": json.loads(self._inner.state())}
        # Class names are saved with the state, so that `classes_of` can give another set the same class numbers.
        if classes := self.classes:
            state["classes"] = classes
        if failed := self._failures():
            state["failed"] = failed
        return state

    def _state_after(self, epoch: int, batches: int) -> dict[str, Any]:
        """Returns the state at the position in epoch ``epoch`` (from 0) after each shard has read ``batches`` batches."""
        if 'on_error = "drop"' in self._pipeline.to_toml():
            raise ConfigError(
                'on_error is "drop", so the number of batches does not say which samples were seen; set "substitute" to continue by batches',
                key="on_error",
            )
        (batch, *_), _ = self._inner.shape
        _, world = self.shard
        state = self.state_dict()
        begin, end = self._positions or (0, self.samples)
        position = min(begin + batches * batch * world, end)
        return {**state, "state": {**state["state"], "epoch": epoch, "position": position}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues at the position in a state. The next loop has the remaining samples of its epoch. A running loop ends. From then on, seed
        and shuffling are those of the state, also after :meth:`set_epoch`. If the arguments ``seed`` and ``shuffle`` differ from the
        state, a warning is logged."""
        if not isinstance(state, Mapping):
            raise ConfigError(f"the state is {state!r}; it must be a dictionary that state_dict() returned", key="state")
        version = state.get("version")
        if version != _STATE_VERSION:
            raise ConfigError(f"the state has version {version!r}, but this version of feedwater reads only version {_STATE_VERSION}", key="version")
        check_classes(state.get("classes"), self.classes)
        position = state.get("state")
        if not isinstance(position, Mapping):
            raise ConfigError(f"the state's entry 'state' is {position!r}; pass the dictionary that state_dict() returned, unchanged", key="state")
        failed = state.get("failed", {})
        if not isinstance(failed, Mapping) or not all(isinstance(count, int) for count in failed.values()):
            raise ConfigError(f"the state's entry 'failed' is {failed!r}; pass the dictionary that state_dict() returned, unchanged", key="failed")
        # Lightning counts batches from the beginning of the epoch, so it needs the length of the whole epoch.
        self._has_whole_length = sys._getframe(1).f_globals.get("__name__", "").startswith(("lightning.", "pytorch_lightning."))
        with self._lock:
            here = json.loads(self._inner.state())
            self._rebuild(0, position)
            for name in ("seed", "shuffle"):
                if position[name] != here[name]:
                    _log.warning("%s is %s in the state and %s here; that of the state is used", name, position[name], here[name])
            self._has_state = True
            self._failed = {outcome: failed.get(outcome, 0) for outcome in FAILED}
