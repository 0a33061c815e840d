"""Operators and sources: what they are in a pipeline file, which the compiled part reads and checks."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Protocol

from . import _toml
from ._classes import name_of, numbers_of

Placement = Literal["cpu", "gpu", "auto"]


class Items(Protocol):
    """Bytes of image files, paths, or tuples of one of these, a label and any fields."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


#: Label of a sample that has none.
NO_LABEL = -1

#: A sequence: items, labels in place of those of the items, names of the classes.
Given = tuple[Items, list[int] | None, list[str]]


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
        """The table. A sequence of :func:`samples` is under ``own``."""
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
        table = self.settings()
        again = sorted(keys.keys() & table.keys())
        if again:
            raise ValueError(f"{again[0]} was selected before; pass the source through fw.concat first, then select again")
        return Source({**table, **keys})

    def with_classes(self, classes: Sequence[str] | Mapping[str, int] | str | os.PathLike[str]) -> Source:
        """The source with the class numbers of a table, so that training and validation sets agree whatever classes each of them has.

        * ``classes``: the names in the order of their numbers, such as :attr:`Loader.classes` of the training set or ``ClassLabel.names``
          of Hugging Face; the number of each name, such as ``class_to_idx`` of ``ImageFolder``; or the path of a file with one name on
          each line, or with JSON. ``Loader(..., classes_of=...)`` does the same. Two names may have one number, but not for
          ``fw.directory``: there use its ``class_to_index``.

        Samples and objects of other classes are left out and counted, with a warning. A source without class names gets those of the
        table; a label beyond it is an error, for items of a sequence when they are read. A selection applies after it, with the numbers of
        the table.
        """
        table = self.settings()
        if "classes" in table or ("class_to_index" in table and "directory" not in table):
            raise ValueError("the source already has class names (classes); set them only once")
        if isinstance(classes, Mapping):
            indices = numbers_of(classes)
            if "directory" not in table:
                return Source({**table, "class_to_index": indices})
            # For a directory that key selects folders, which are not counted as samples.
            names = [""] * (max(indices.values(), default=-1) + 1)
            for name, index in indices.items():
                if names[index]:
                    raise ValueError(f"classes {names[index]!r} and {name!r} have the same number {index}; give each class its own number")
                names[index] = name
            return Source({**table, "classes": names})
        if isinstance(classes, (str, os.PathLike)):
            return Source({**table, "classes": os.fspath(classes)})
        return Source({**table, "classes": [name_of(name) for name in classes]})

    def __repr__(self) -> str:
        return f"<feedwater.Source {written(self)[0]}>"


class Samples(Source):
    """A source that is a sequence in Python; made by :func:`samples`."""

    def __init__(self, items: Items, labels: Sequence[int] | None, classes: Sequence[str]) -> None:
        super().__init__({})
        self.items = items
        self.labels = None if labels is None else [_label(label, place) for place, label in enumerate(labels)]
        self.classes = list(classes)

    def settings(self) -> dict[str, Any]:
        """The table, with the sequence in place of its name."""
        return {"own": self}

    def given(self) -> Given:
        """What the compiled part reads from."""
        return self.items, self.labels, self.classes

    def __len__(self) -> int:
        return len(self.items)

    def __repr__(self) -> str:
        return f"<feedwater.Samples of {len(self.items)} items>"


def samples(items: Items, labels: Sequence[int] | None = None, *, classes: Sequence[str] = ()) -> Samples:
    """A source of one's own: a sequence, or any object with ``__len__`` and ``__getitem__``.

    It can be selected from, joined and mixed as any other source, also several times.

    An item is the bytes of an image file, or the path of one, or a tuple of that and a label (a whole number, ``None`` for none), or a tuple of that, a
    label and fields: any object, which :attr:`Batch.fields` gives back. Worker threads ask for items, several at once. While
    ``__getitem__`` runs they hold the interpreter's lock; a free-threaded build of Python has none, so calls run in parallel. Files are
    read outside of the interpreter. An exception makes the sample unreadable, and ``on_error`` of the loader applies; with ``"stop"`` it is the
    ``__cause__`` of the error.

    * ``labels``: one for each item, in place of those of the items. With them no item is asked for before it is read. Without them
      ``select`` with labels or classes asks for every item when the source is opened; one that raises an exception has no label there.
      An item may have another label each time it is read, and the batch has the label of that read. After ``select`` with labels or
      classes it is an error of the sample if the new label is not among the selected ones.
    * ``classes``: names in the order of the labels. Sources to join either all have such names, or none has.
    """
    return Samples(items, labels, classes)


def _label(label: Any, place: int) -> int:
    """A label as an integer: a whole number of any type, or ``None`` for none."""
    if label is None:
        return NO_LABEL
    number = 0
    try:
        number = int(label)
        is_whole = not isinstance(label, (str, bytes)) and number == label
    except (TypeError, ValueError, OverflowError):
        is_whole = False
    if not is_whole or not -(1 << 63) <= number < 1 << 63:
        raise ValueError(f"labels[{place}] is {label!r}; labels are whole numbers, or None for a sample without a label")
    return number


def concat(*sources: Source) -> Source:
    """The samples of several sources, one source after the other. Classes are merged by name."""
    return Source({"concat": [_part(source) for source in sources]})


def mixture(*sources: Source, weights: Sequence[float] | None = None, samples: int | None = None) -> Source:
    """A mixture of sources by weight, 1 by default. After ``n`` samples the number from each source differs from its share by less
    than 1. ``samples`` is the length of an epoch. Weights are any positive finite numbers: shares, numbers of samples, outputs of a
    softmax. ``feedwater probe``, ``plan`` and ``run`` print the draws that they become."""
    if weights is None:
        weights = [1.0] * len(sources)
    if len(weights) != len(sources):
        raise ValueError(f"weights has {len(weights)} values for {len(sources)} sources; give one weight for each source")
    parts = [{**_part(source), "weight": weight if isinstance(weight, int) else float(weight)} for source, weight in zip(sources, weights)]
    return Source({"mixture": parts}, samples=samples)


def _part(source: Source) -> dict[str, Any]:
    if not isinstance(source, Source):
        raise TypeError(f"a source to combine is a {type(source).__name__}; it must be a source such as fw.directory(path) or fw.samples(items)")
    return source.settings()


def written(source: Source) -> tuple[str, dict[str, Given]]:
    """The table as TOML, and the sequences that it names: the first is ``samples``, the next ``samples2``."""
    named: list[tuple[str, Samples]] = []

    def name(sequence: Samples) -> str:
        for known, other in named:
            if other is sequence:
                return known
        named.append((f"samples{len(named) + 1}" if named else "samples", sequence))
        return named[-1][0]

    def without_sequences(item: Any) -> Any:
        if isinstance(item, Samples):
            return name(item)
        if isinstance(item, Mapping):
            return {key: without_sequences(value) for key, value in item.items()}
        if isinstance(item, list):
            return [without_sequences(value) for value in item]
        return item

    text = _toml.table(without_sequences(source.settings()))
    return text, {name: sequence.given() for name, sequence in named}
