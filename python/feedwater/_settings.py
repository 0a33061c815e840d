"""Operators and sources: what they are in a pipeline file, which the compiled part reads and checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Protocol

from . import _toml

Placement = Literal["cpu", "gpu", "auto"]

_MISSING = object()


class Items(Protocol):
    """Bytes of image files, paths, or tuples of one of these, a label and any fields."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


class _Settings:
    """A table of a pipeline file."""

    #: Name under ``op``.
    OP: ClassVar[str]

    def __init__(self, **settings: Any) -> None:
        self._settings = {key: value for key, value in settings.items() if value is not None}

    def settings(self) -> dict[str, Any]:
        """The table with its ``op``."""
        return {"op": self.OP, **self._settings}

    def __repr__(self) -> str:
        settings = ", ".join(f"{key}={value!r}" for key, value in self._settings.items())
        return f"{type(self).__name__}({settings})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Settings):
            return NotImplemented
        return _toml.value(self) == _toml.value(other)

    def __hash__(self) -> int:
        return hash(_toml.value(self))


class Operator(_Settings):
    """An operator of a chain."""


class BatchOperator(_Settings):
    """An operator on pairs of samples of a finished batch."""


class Source:
    """A source of samples, as in ``[source]`` of a pipeline file."""

    def __init__(self, table: Mapping[str, Any], **settings: Any) -> None:
        self._table = {**table, **{key: value for key, value in settings.items() if value is not None}}

    def settings(self) -> dict[str, Any]:
        """The table."""
        return dict(self._table)

    def select(
        self,
        *,
        labels: Sequence[int] | None = None,
        classes: Sequence[str] | None = None,
        location: str | None = None,
        subset: Sequence[int] | None = None,
        skip: int | None = None,
        take: int | None = None,
        repeat: int | None = None,
    ) -> Source:
        """A part of the samples. The arguments apply in the order in which they are listed.

        * ``labels``, ``classes``: only samples with these labels, or of the classes with these names.
        * ``location``: only samples whose location matches this pattern: ``*`` is any text, ``?`` any byte.
        * ``subset``: indices of the samples, in this order.
        * ``skip``, ``take``: number of samples to skip at the start, and the largest number to keep.
        * ``repeat``: number of repetitions of the whole; each has its own random choices.
        """
        filters = {"labels": labels, "classes": classes, "location": location}
        filters = {key: value for key, value in filters.items() if value is not None}
        keys = {"filter": filters or None, "subset": subset, "skip": skip, "take": take, "repeat": repeat}
        keys = {key: value for key, value in keys.items() if value is not None}
        again = sorted(keys.keys() & self._table.keys())
        if again:
            raise ValueError(f"{again[0]} was selected before; concatenate the source with fw.concat, then select")
        return Source({**self._table, **keys})

    def __repr__(self) -> str:
        return f"<feedwater.Source {_toml.value(self)}>"


class Samples:
    """A source that is a sequence in Python; made by :func:`samples`."""

    def __init__(self, items: Items, labels: Sequence[int] | None, classes: Sequence[str]) -> None:
        self.items = items
        self.labels = None if labels is None else [int(label) for label in labels]
        self.classes = list(classes)
        # Fields of samples that were read and are not in a batch yet.
        self._fields: dict[int, Any] = {}
        self._has_fields = False

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        """Called by worker threads: the item without its fields, which wait for their batch."""
        item = self.items[index]
        if isinstance(item, tuple) and len(item) == 3:
            self._has_fields = True
            self._fields[index] = item[2]
            return item[:2]
        return item

    def fields(self, indices: Sequence[int]) -> list[Any] | None:
        """The fields of the samples of a batch; ``None`` if items have none."""
        if not self._has_fields:
            return None
        found: dict[int, Any] = {}
        for index in indices:
            if index not in found:
                found[index] = self._taken(index)
        return [found[index] for index in indices]

    def _taken(self, index: int) -> Any:
        """Fields that waited. A sample that was in a cache was not read, so its item is asked for."""
        # One call, because threads that share these samples may ask for the same index.
        fields = self._fields.pop(index, _MISSING)
        if fields is not _MISSING:
            return fields
        item = self.items[index]
        return item[2] if isinstance(item, tuple) and len(item) == 3 else None

    def __repr__(self) -> str:
        return f"<feedwater.Samples of {len(self.items)} items>"


def samples(items: Items, labels: Sequence[int] | None = None, *, classes: Sequence[str] = ()) -> Samples:
    """A source of one's own: a sequence, or any object with ``__len__`` and ``__getitem__``.

    An item is the bytes of an image file, or the path of one, or a tuple of that and a label (``None`` for none), or a tuple of that, a
    label and fields: any object, which :attr:`Batch.fields` gives back. Worker threads ask for items, several at once. While
    ``__getitem__`` runs they hold the interpreter's lock; a free-threaded build of Python has none, so calls run in parallel. Files are
    read outside of the interpreter. An exception makes the sample unreadable, which ``on_error`` of the loader judges.

    * ``labels``: one for each item, in place of those of the items. With them no item is asked for before it is read.
    * ``classes``: names in the order of the labels.
    """
    return Samples(items, labels, classes)


def concat(*sources: Source) -> Source:
    """The samples of several sources, one source after the other. Classes are merged by name."""
    return Source({"concat": list(sources)})


def mixture(*sources: Source, weights: Sequence[float] | None = None, samples: int | None = None) -> Source:
    """A mixture of sources by weight, 1 by default. After ``n`` samples the number from each source differs from its share by less
    than 1. ``samples`` is the length of an epoch."""
    if weights is None:
        weights = [1.0] * len(sources)
    if len(weights) != len(sources):
        raise ValueError(f"weights has {len(weights)} values for {len(sources)} sources")
    parts = [{**source.settings(), "weight": weight} for source, weight in zip(sources, weights)]
    return Source({"mixture": parts}, samples=samples)
