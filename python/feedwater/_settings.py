"""Base classes of operators and sources. They hold the settings as tables of a pipeline file, which the compiled part reads and checks."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal, NoReturn, Protocol

from . import _toml
from ._classes import name_of, numbers_of
from ._names import nearest, settings_of, suggesting

Placement = Literal["cpu", "gpu", "auto"]
#: Pixel format of decoded images.
Pixels = Literal["u8", "u8x3", "u8x4", "indices", "u16", "u16x3", "u16x4", "f32", "f32x3", "f32x4"]


class Items(Protocol):
    """Items of a source in Python. Each is the bytes of an image file, a path, or a tuple of one of these, a label and any fields."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


#: Label of a sample without a label.
NO_LABEL = -1

#: A source in Python: its items, labels that replace those of the items, and class names.
Given = tuple[Items, list[int] | None, list[str]]


class _Fixed:
    """An object that does not change after it was made. Its settings can be read as attributes."""

    #: Name of the class or function with the settings as arguments, for messages.
    MADE_BY: ClassVar[str] = "the constructor"

    def _readable(self) -> Mapping[str, Any]:
        """Returns the settings by name. A setting that is not given is ``None``."""
        return {}

    def __getattr__(self, name: str) -> Any:
        # While an object is unpickled, it has no settings yet. Their own names begin with `_`.
        if not name.startswith("_"):
            settings = self._readable()
            if name in settings:
                return settings[name]
            near = nearest(name, settings)
            raise AttributeError(f"{type(self).__name__} has no attribute {name}" + (f"; did you mean {near}?" if near else ""))
        raise AttributeError(f"{type(self).__name__} has no attribute {name}")

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        near = name if name in self._readable() else nearest(name, self._readable())
        advice = f"pass {near}= to {self.MADE_BY}" if near else f"its settings are arguments of {self.MADE_BY}"
        raise AttributeError(
            f"{name} of a {type(self).__name__} cannot be assigned, because it does not change after it was made; "
            + (advice if near in (name, None) else f"did you mean {near}? If so, {advice}")
        )

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{name} of a {type(self).__name__} cannot be deleted, because it does not change after it was made")

    def _set(self, **attributes: Any) -> None:
        """Sets attributes in the constructor."""
        for name, value in attributes.items():
            object.__setattr__(self, name, value)


def given(table: Mapping[str, Any], known: Sequence[str]) -> dict[str, Any]:
    """Returns the settings of a table that are given: ``None`` means not given. The compiled part must refuse an unknown key whatever its value
    is, so its ``None`` becomes ``False``."""
    return {key: False if value is None else value for key, value in table.items() if value is not None or key not in known}


class _Settings(_Fixed):
    """Settings that become a table of a pipeline file."""

    #: Name of the operator. In the table, it is the value of the key ``op``.
    OP: ClassVar[str]
    #: Name of the module with the class, as programs write it.
    MODULE: ClassVar[str] = "fw"
    #: Names of the settings.
    FIELDS: ClassVar[tuple[str, ...]] = ()
    _settings: dict[str, Any]

    def __init_subclass__(cls) -> None:
        if "__init__" in vars(cls):
            cls.MADE_BY = f"{cls.MODULE}.{cls.__name__}"
            cls.FIELDS = settings_of(cls.__init__)
            cls.__init__ = suggesting(cls.MADE_BY)(cls.__init__)  # type: ignore[method-assign]

    def __init__(self, **settings: Any) -> None:
        self._set(_settings={key: _toml.kept(value) for key, value in settings.items() if value is not None})

    def _readable(self) -> Mapping[str, Any]:
        return {name: self._settings.get(name) for name in self.FIELDS}

    def settings(self) -> dict[str, Any]:
        """Returns the settings as a table of a pipeline file, including the key ``op``."""
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

    MODULE = "fw.ops"
    #: Whether its settings count values from 0 to 255, so it is wrong for other pixel formats than those of 8 bits.
    OF_BYTES: ClassVar[bool] = False


class BatchOperator(_Settings):
    """An operator on pairs of samples of a finished batch."""

    MODULE = "fw.ops"


def paths_of(paths: tuple[Any, ...]) -> list[Any]:
    """Returns the paths of a source, which are given one by one, or as a list."""
    one = paths[0] if len(paths) == 1 else None
    return list(one) if isinstance(one, (list, tuple)) else list(paths)


class Source(_Fixed):
    """A source of samples, as in ``[source]`` of a pipeline file."""

    MADE_BY = "the function that makes the source"

    _table: dict[str, Any]

    def __init__(self, table: Mapping[str, Any], **settings: Any) -> None:
        self._set(_table=_toml.kept({**table, **settings}))

    def _readable(self) -> Mapping[str, Any]:
        return self._table

    def settings(self) -> dict[str, Any]:
        """Returns the table of the source in a pipeline file. In the table of a source of
        :func:`samples`, the key ``own`` has the source itself as its value."""
        return {key: value for key, value in self._table.items() if value is not None}

    @suggesting("select")
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
        """Returns a source with a part of the samples. The arguments are applied in the order of this list.

        * ``labels``, ``classes``: only samples with these labels, or of the classes with these names.
        * ``location``: only samples whose location matches this pattern: ``*`` is any text, ``?`` any byte.
        * ``subset``: only the samples with these indices, in this order.
        * ``skip``: number of samples to leave out at the start. ``take``: maximum number of samples to keep.
        * ``repeat``: how often all these samples are repeated; each repetition has its own random choices.
        """
        filters = {"labels": labels, "classes": classes, "location": location}
        filters = {key: value for key, value in filters.items() if value is not None}
        keys = {"filter": filters or None, "subset": subset, "skip": skip, "take": take, "repeat": repeat}
        keys = {key: value for key, value in keys.items() if value is not None}
        table = self.settings()
        again = sorted(keys.keys() & table.keys())
        if again:
            raise ValueError(f"{again[0]} is already set for this source; pass the source through fw.concat first, then select again")
        return Source({**self._table, **table, **keys})

    @suggesting("join")
    def join(
        self,
        other: Source,
        *,
        key: str | None = None,
        other_key: str | None = None,
        prefix: str | None = None,
        missing: Literal["keep", "drop"] | None = None,
    ) -> Source:
        """Returns a source whose samples also have the fields of the samples of ``other`` that have the same key, for ``columns`` of the loader.
        Order, images and labels do not change. The images of ``other`` are not read, so it needs none: a table (:func:`file_list`), a TFRecord file
        of captions, an LMDB environment of texts, an array of embeddings, a folder of text files. What they have in place of an image is their
        field ``value``.

        * ``key``: field of this source with the key of a sample, a text or an integer, such as ``"id"`` or ``"meta:id"``. Default:
          ``"__key__"``, the own key of a sample. It is the name of its file without folder and last extension, or in :func:`webdataset` the name in
          the archive up to the first dot of the last part, with folders. ``"__index__"`` is the index of a sample in its source, from 0.
        * ``other_key``: field of ``other`` with the key. Default: the same as ``key``.
        * ``prefix``: text before the names of the fields of ``other``. Default: empty. A field that both sources have is an error.
        * ``missing``: handling of samples whose key ``other`` does not have. With ``"keep"``, the default, they have no values of these fields, so
          columns have their ``default``. With ``"drop"`` they are left out and counted.

        Keys are compared as texts, so the integer 7 equals ``"7"``. Two samples of ``other`` with the same key are an error, and so are sources
        without a common key.
        """
        settings = {"key": key, "other_key": other_key, "prefix": prefix, "missing": missing}
        settings = {key: value for key, value in settings.items() if value is not None}
        table = self.settings()
        selects = {"classes", "filter", "subset", "skip", "take", "repeat"} & table.keys()
        if selects or ("class_to_index" in table and "directory" not in table):
            # In a table of a pipeline file, a join precedes a selection.
            table = {"concat": [table]}
        before = table.pop("join", [])
        joins = [*(before if isinstance(before, list) else [before]), {**_part(other), **settings}]
        return Source({**table, "join": joins[0] if len(joins) == 1 else joins})

    def with_classes(self, classes: Sequence[str] | Mapping[str, int] | str | os.PathLike[str]) -> Source:
        """Returns a source with given class numbers, so that training and validation sets have the same class numbers even if a set lacks a class.

        * ``classes``: class names in the order of their numbers, such as :attr:`Loader.classes` of the training set or
          ``ClassLabel.names`` of Hugging Face; or the number of each name, such as ``class_to_idx`` of ``ImageFolder``; or the path of a
          file with one name per line, or with JSON. Two names may have the same number, except for ``fw.directory``: for this source use
          its argument ``class_to_index``. ``Loader(..., classes_of=...)`` does the same as this method.

        Samples and objects of other classes are left out and counted, with a warning. A source without class names gets the names in
        ``classes``. Each of its labels must then have a name in ``classes``. A label without one is an error when the source is opened,
        or, for items of :func:`samples`, when the item is read. :meth:`select` is applied afterwards, with the new numbers.
        """
        table = self.settings()
        if "classes" in table or ("class_to_index" in table and "directory" not in table):
            raise ValueError("the source already has class names (classes); set them only once")
        if isinstance(classes, Mapping):
            indices = numbers_of(classes)
            if "directory" not in table:
                return Source({**table, "class_to_index": indices})
            # For a directory, `class_to_index` selects folders and leaves out the samples of all other folders. So write the list `classes` instead.
            names = [""] * (max(indices.values(), default=-1) + 1)
            for name, index in indices.items():
                if names[index]:
                    raise ValueError(f"classes {names[index]!r} and {name!r} have the same number {index}; give each class its own number")
                names[index] = name
            return Source({**table, "classes": names})
        if isinstance(classes, (str, os.PathLike)):
            return Source({**table, "classes": os.fspath(classes)})
        if not isinstance(classes, Iterable):
            raise TypeError(f"classes is {_short(classes)}; it must be a list of class names, a dictionary from class names to numbers, or the path of a file")
        return Source({**table, "classes": [name_of(name) for name in classes]})

    def __repr__(self) -> str:
        return f"<feedwater.Source {written(self)[0]}>"


class Samples(Source):
    """A source whose items are in Python. :func:`samples` creates it."""

    MADE_BY = "fw.samples"
    items: Items
    labels: list[int] | None
    classes: list[str]

    def _readable(self) -> Mapping[str, Any]:
        return {name: vars(self).get(name) for name in ("items", "labels", "classes")}

    def __init__(self, items: Items, labels: Sequence[int] | None, classes: Sequence[str]) -> None:
        super().__init__({})
        if isinstance(items, (str, bytes)) or not (hasattr(items, "__len__") and hasattr(items, "__getitem__")):
            raise TypeError(f"items is {_short(items)}; it must be a sequence of images, such as a list of paths, or an object with __len__ and __getitem__")
        if labels is not None and (isinstance(labels, (str, bytes)) or not isinstance(labels, Iterable)):
            raise TypeError(f"labels is {_short(labels)}; it must be a list with one whole number for each item")
        if isinstance(classes, (str, bytes)) or not isinstance(classes, Iterable):
            raise TypeError(f'classes is {_short(classes)}; it must be a list of class names, such as ["cat", "dog"]')
        self._set(
            items=items,
            labels=None if labels is None else [_label(label, place) for place, label in enumerate(labels)],
            classes=[name_of(name) for name in classes],
        )

    def settings(self) -> dict[str, Any]:
        """Returns the table of the source. The value of ``own`` is this object; :func:`written`
        replaces it by a name."""
        return {"own": self}

    def given(self) -> Given:
        """Returns items, labels and class names for the compiled part."""
        return self.items, self.labels, self.classes

    def __len__(self) -> int:
        return len(self.items)

    def __repr__(self) -> str:
        return f"<feedwater.Samples of {len(self.items)} items>"


@suggesting("fw.samples")
def samples(items: Items, labels: Sequence[int] | None = None, *, classes: Sequence[str] = ()) -> Samples:
    """Returns a source for your own items: a sequence, or any object with ``__len__`` and ``__getitem__``.

    Like any other source, the returned source can be the input of ``select``, :func:`concat` and :func:`mixture`, also more than once.

    An item is an image, a tuple of an image and a label, a tuple of an image, a label and fields, or a dictionary with the keys ``image`` and
    ``label``, whose other keys are fields for columns. The image is the bytes of an image
    file, its path, an image of Pillow, or an array of numbers of NumPy or PyTorch with the shape ``[height, width]``, ``[height, width, channels]``
    or ``[channels, height, width]``. Arrays of bytes are images of 8 bits, and the others need ``fw.Decode(pixels=…)``. The label is a whole number, or ``None`` for none. The fields are any object, which :attr:`Batch.fields` returns.

    Several worker threads call ``__getitem__``. During the call a thread holds the interpreter's lock. A free-threaded build of Python has
    no such lock, so calls run in parallel. Files at paths are read without the lock. If ``__getitem__`` raises an exception, the sample is
    unreadable, and ``on_error`` of the loader applies. With ``"stop"`` the exception is the ``__cause__`` of the error.

    * ``labels``: one label for each item, which replaces the item's own label. Without ``labels``, ``select`` with labels or classes calls
      ``__getitem__`` for every item when the source is opened; an item that raises an exception then counts as one without a label. An
      item may return another label each time it is read. A batch has the label of the read that produced its image. After ``select``
      with labels or classes, a new label that is not selected is an error of the sample.
    * ``classes``: class names in the order of the labels. Sources that are combined must either all have class names, or all have none.
    """
    return Samples(items, labels, classes)


def _short(value: Any) -> str:
    """Returns the text of a value for a message."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"


def _label(label: Any, place: int) -> int:
    """Converts a label to an integer. The label may be a whole number of any type, or ``None`` for no label."""
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


@suggesting("fw.concat")
def concat(*sources: Source) -> Source:
    """Returns a source with the samples of several sources, one source after the other. Classes are merged by name."""
    return Source({"concat": [_part(source) for source in sources]})


@suggesting("fw.mixture")
def mixture(*sources: Source, weights: Sequence[float] | None = None, samples: int | None = None) -> Source:
    """Returns a source that draws samples from several sources in the proportion of ``weights``, by default all 1. After any ``n`` samples,
    the number drawn from a source differs from its share of ``n`` by less than 1. ``samples`` is the length of an epoch. Weights are any
    positive finite numbers, such as fractions, numbers of samples or outputs of a softmax. ``feedwater probe``, ``plan`` and ``run`` print
    how many samples are drawn from each source."""
    if weights is not None and (isinstance(weights, (str, bytes, Mapping)) or not isinstance(weights, Iterable)):
        raise TypeError(f"weights is {_short(weights)}; it must be a list with one number for each source, such as [1, 3]")
    given = [1.0] * len(sources) if weights is None else [_weight(weight, place) for place, weight in enumerate(weights)]
    if len(given) != len(sources):
        raise ValueError(f"weights has {len(given)} values for {len(sources)} sources; give one weight for each source")
    parts = [{**_part(source), "weight": weight} for source, weight in zip(sources, given)]
    return Source({"mixture": parts}, samples=samples)


def _weight(weight: Any, place: int) -> int | float:
    if isinstance(weight, int) and not isinstance(weight, bool):
        return weight
    try:
        if isinstance(weight, (str, bytes, bool)):
            raise TypeError
        return float(weight)
    except (TypeError, ValueError):
        raise TypeError(f"weights[{place}] is {_short(weight)}; it must be a positive number") from None


def _part(source: Source) -> dict[str, Any]:
    if not isinstance(source, Source):
        advice = ", and sources are arguments of their own: fw.concat(*sources)" if isinstance(source, (list, tuple)) else ""
        raise TypeError(f"a source to combine is a {type(source).__name__}; it must be a source such as fw.directory(path) or fw.samples(items){advice}")
    return source.settings()


def written(source: Source) -> tuple[str, dict[str, Given]]:
    """Returns the table of a source as TOML, and the sources of :func:`samples` in it by name: the first is ``samples``, the second
    ``samples2``."""
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
