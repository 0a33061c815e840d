"""Data sets of other libraries as sources: torchvision's folders and Hugging Face's tables."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any, Protocol

from . import _feedwater
from ._names import suggesting
from ._settings import Samples, Source, samples
from .errors import ConfigError

__all__ = ["dataset"]


class Dataset(Protocol):
    """A data set that :func:`dataset` accepts."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


@suggesting("fw.dataset")
def dataset(source: Dataset, *, image: str | None = None, label: str | None = None) -> Source:
    """Converts a data set of another library to a source. The source has only the encoded images and the labels. The
    loader decodes and transforms them. Unlike ``ImageFolder``, it turns images upright by their EXIF orientation,
    unless ``decode={"orientation": False}``. :class:`feedwater.Loader` also accepts such a data set directly.

    * ``ImageFolder`` and other data sets of torchvision with ``samples`` (pairs of path and label) and ``classes``, and
      a ``torch.utils.data.Subset`` of such a data set, also a nested one. ``target_transform`` is applied once to each label. A ``transform`` is an
      error, because it would not run; pass ``fw.from_torchvision(transform)`` as the argument ``transform`` instead. An
      image reader (``loader=``) or an overridden ``__getitem__``, also of a subclass of ``Subset``, is an error for the
      same reason.
    * ``datasets.Dataset`` of Hugging Face, without ``set_transform``. The arguments ``image`` and ``label`` are the names
      of its columns. Default: the only column of images, and the only column of class labels. The names of the class
      labels become the names of the classes.
    """
    whole, indices = _selected(source)
    if indices is not None:
        return dataset(whole, image=image, label=label).select(subset=indices)
    if hasattr(source, "features") and hasattr(source, "cast_column"):
        if not hasattr(source, "__len__"):
            raise TypeError(
                f"source is a {type(source).__name__}, which is a stream without a length and without rows by number; load the data set without "
                'streaming=True, or read its Parquet files with fw.parquet(["train-0.parquet", ...])'
            )
        return _table(source, image, label)
    pairs = getattr(source, "samples", None)
    if isinstance(pairs, list) and all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs[:1]):
        return _folder(source, pairs)
    raise TypeError(
        f"source is a {type(source).__name__}; it must be a path, a URL, a source such as fw.directory(path), fw.samples(items) for any sequence of "
        "encoded images or paths, an ImageFolder of torchvision or a Dataset of Hugging Face"
    )


def _selected(source: Any) -> tuple[Any, list[int] | None]:
    """Returns the data set of a ``Subset`` of PyTorch, also of a nested one, and the indices of its samples in this data set. For any other
    object, returns the object itself and ``None``."""
    inner = getattr(source, "dataset", None)
    indices = getattr(source, "indices", None)
    if inner is None or indices is None:
        return source, None
    _check_subset(source)
    outer = [int(index) for index in indices]
    whole, below = _selected(inner)
    if below is None:
        return whole, outer
    for index in outer:
        if not -len(below) <= index < len(below):
            raise IndexError(f"the {type(source).__name__} has the index {index}, but the {type(inner).__name__} in it has {len(below)} samples")
    return whole, [below[index] for index in outer]


def _check_subset(source: Any) -> None:
    """Checks that a ``Subset`` of PyTorch only selects samples. feedwater would not run any other code of the subset."""
    name = type(source).__name__
    reads = next((kind for kind in type(source).__mro__ if "__getitem__" in vars(kind)), None)
    if getattr(source, "transform", None) is not None:
        raise ValueError(f"the {name} has a transform, which feedwater would not run; pass transform=fw.from_torchvision(transform) to the loader")
    if reads is not None and reads.__module__.partition(".")[0] != "torch":
        raise ValueError(
            f"{name} has a __getitem__ of its own, which feedwater would not run; pass fw.samples(items) as the source, with items that are "
            "encoded images or paths; if __getitem__ applies a transform, pass transform=fw.from_torchvision(transform) to the loader"
        )


def _folder(source: Any, pairs: list[tuple[str, int]]) -> Samples:
    transform = getattr(source, "transform", None)
    if transform is not None:
        raise ValueError(
            f"the {type(source).__name__} has a transform, which feedwater would not run; create it without the transform, and pass "
            "transform=fw.from_torchvision(transform) to the loader"
        )
    _check_reads(source)
    target = getattr(source, "target_transform", None)
    labels = [label if target is None else target(label) for _, label in pairs]
    classes = [] if target is not None else list(getattr(source, "classes", []))
    return samples([os.fspath(path) for path, _ in pairs], labels, classes=classes)


def _check_reads(source: Any) -> None:
    """Checks that the data set only returns the images of its files. feedwater would not run any other code of the data set."""
    name = type(source).__name__
    reader = getattr(source, "loader", None)
    if reader is not None and getattr(reader, "__module__", "").partition(".")[0] != "torchvision":
        raise ValueError(
            f"the {name} has a loader of its own, which feedwater would not run; create it without this loader, or pass fw.samples(items) with "
            "items that are encoded images or paths"
        )
    kinds = [kind.__module__.partition(".")[0] == "torchvision" for kind in type(source).__mro__ if "__getitem__" in vars(kind)]
    if any(kinds) and not kinds[0]:
        raise ValueError(
            f"{name} has a __getitem__ of its own, which feedwater would not run; pass fw.samples(items), where each item has an encoded "
            "image or a path, and may have a label and fields"
        )


class _Rows:
    """Encoded images and labels of a table."""

    def __init__(self, rows: Any, image: str, label: str | None) -> None:
        self._rows = rows
        self._image = image
        self._label = label

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        row = self._rows[index]
        image = row[self._image]
        if image is None:
            raise ValueError(f"row {index} has no image in the column {self._image!r}")
        # An image of the table has either its encoded bytes or the path of its file.
        encoded = image["path"] if image["bytes"] is None else image["bytes"]
        return encoded, None if self._label is None else row[self._label]


def _table(rows: Any, image: str | None, label: str | None) -> Samples:
    if (getattr(rows, "format", None) or {}).get("type") == "custom":
        raise ValueError(
            "the data set has a transform (set_transform or with_transform), which feedwater would not run; remove it by with_format(None), "
            "and pass transform=fw.from_torchvision(transform) to the loader"
        )
    kinds = {name: type(feature).__name__ for name, feature in rows.features.items()}
    (image,) = _columns(kinds, image, "image", "Image")
    label = next(iter(_columns(kinds, label, "label", "ClassLabel")), None)
    if kinds[image] != "Image":
        raise ValueError(f"the column {image!r} has the type {kinds[image]}; its type must be datasets.Image")
    columns = [image] if label is None else [image, label]
    classes: Sequence[str] = [] if label is None else getattr(rows.features[label], "names", None) or []
    # With `decode=False` an item is a dictionary of bytes and path.
    feature = type(rows.features[image])(decode=False)
    plain = rows.with_format(None).select_columns(columns).cast_column(image, feature)
    return samples(_Rows(plain, image, label), classes=classes)


def _columns(kinds: dict[str, str], name: str | None, argument: str, kind: str) -> list[str]:
    """Returns a list with the column ``name``. If ``name`` is ``None``, returns the only column of the type ``kind``, or an empty list if
    the data set has no column of labels."""
    if name is not None:
        if name not in kinds:
            raise ValueError(f"{argument} is {name!r}, but the data set has only the columns {', '.join(kinds)}")
        return [name]
    found = [column for column, it in kinds.items() if it == kind]
    if len(found) > 1 or (not found and argument == "image"):
        raise ValueError(
            f"the data set has {len(found)} columns of the type {kind} among {', '.join(kinds)}; name the right column: "
            f"fw.dataset(source, {argument}=...)"
        )
    return found


def as_source(source: Source | str | bytes | os.PathLike[str] | Dataset) -> Source:
    """Converts the argument ``source`` of a loader to a source."""
    if isinstance(source, Source):
        return source
    if isinstance(source, (str, bytes, os.PathLike)):
        path = os.fsdecode(source)
        if path.endswith(".toml"):
            raise ConfigError(f"source is the pipeline file {path!r}, which has all settings of a loader; write fw.Loader.from_toml({path!r})", key="source")
        return Source(json.loads(_feedwater.detected(path)))
    return dataset(source)
