"""Divides epochs into parts for tasks, and computes positions in epochs. This module does not need Ray."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Part:
    """A part of an epoch: consecutive batches that a task reads."""

    epoch: int
    #: First position in the epoch's order, and the position after the last.
    begin: int
    end: int
    #: Number of rows of the batches, including padding, which has no positions.
    rows: int


@dataclass(frozen=True)
class Order:
    """The batches of consecutive epochs. The first epoch may begin at a position in its middle."""

    #: Number of samples in the source.
    samples: int
    #: Number of samples in a full batch.
    batch: int
    #: The setting ``last_batch``: ``"drop"``, ``"pad"`` or ``"partial"``.
    last: str
    #: Number of the first epoch, and the first position in this epoch.
    epoch: int
    position: int
    epochs: int

    def _begin(self, number: int) -> int:
        return self.position if number == 0 else 0

    def _batches(self, number: int) -> int:
        """Returns the number of batches of an epoch. ``number`` counts the epochs from 0."""
        left = self.samples - self._begin(number)
        return left // self.batch if self.last == "drop" else -(-left // self.batch)

    def _rows(self, number: int) -> int:
        left = self.samples - self._begin(number)
        return left if self.last == "partial" else self._batches(number) * self.batch

    @property
    def rows(self) -> int:
        """Number of rows of all epochs, including padding."""
        return sum(self._rows(number) for number in range(self.epochs))

    def tasks(self, count: int) -> list[list[Part]]:
        """Divides the batches into tasks of consecutive batches: at most ``count`` tasks, and at least one."""
        batches = [self._batches(number) for number in range(self.epochs)]
        total = sum(batches)
        count = max(1, min(count, total))
        bounds = [total * task // count for task in range(count + 1)]
        tasks: list[list[Part]] = []
        for begin, end in zip(bounds, bounds[1:]):
            parts, before = [], 0
            for number, own in enumerate(batches):
                first, last = max(begin - before, 0), min(end - before, own)
                if first < last:
                    parts.append(self._part(number, first, last))
                before += own
            tasks.append(parts)
        return tasks

    def _part(self, number: int, first: int, last: int) -> Part:
        """Returns the part of an epoch from batch ``first`` up to, but without, batch ``last``."""
        start = self._begin(number)
        begin = start + first * self.batch
        end = min(start + last * self.batch, self.samples)
        rows = min(last * self.batch, self._rows(number)) - first * self.batch
        return Part(self.epoch + number, begin, end, rows)

    def after(self, rows: int) -> tuple[int, int]:
        """Returns the epoch and the position in it after ``rows`` rows."""
        for number in range(self.epochs):
            own = self._rows(number)
            if rows < own:
                return self.epoch + number, min(self._begin(number) + rows, self.samples)
            rows -= own
        if rows > 0:
            raise ValueError(f"rows is too large by {rows}: the data set has {self.rows} rows")
        return self.epoch + self.epochs, 0


def problems(errors: Sequence[tuple[int, str]], sample: Mapping[str, Any]) -> str | None:
    """Returns the error message of the failed sample that this sample replaces, or ``None`` if it replaces none."""
    failed = sample["index"] if sample["replaces"] is None else sample["replaces"]
    replaced = sample["replaces"] is not None or sample["outcome"] == "substituted"
    return dict(errors).get(failed) if replaced else None
