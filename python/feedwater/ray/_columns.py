"""Conversion of a batch to the columns of a table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy
import pyarrow
from ray.data.extensions import ArrowTensorArray

from .. import _feedwater
from .._settings import Given, Items
from ..batch import Batch
from ..objects import Objects
from ._parts import Part, problems

if TYPE_CHECKING:
    from typing import TypeAlias

#: Python types that fields may have, and the Arrow type of the column for each.
_FIELD_TYPES = {
    bool: pyarrow.bool_(),
    int: pyarrow.int64(),
    float: pyarrow.float64(),
    str: pyarrow.string(),
    bytes: pyarrow.binary(),
}
_FIELD_NAMES = "int, float, bool, str, bytes, arrays of NumPy with one or two axes, or a type of Arrow"
_ADVICE = 'Name the fields that become columns: fields={"caption": str}'
#: Marks a field whose type is unknown, because it is `None` in the first item.
_UNKNOWN = type(None)
#: Name of the only column of fields if the fields of an item are not a dictionary.
_FIELDS = "fields"
#: Names of the columns that exist besides fields and annotated objects.
_COLUMNS = ("image", "label", "target", "index", "location", "epoch", "position", "padding", "outcome", "replaces", "error")
#: Names of the columns of annotated objects.
_OBJECTS = ("boxes", "categories", "object_ids", "areas", "visible", "crowd", "masks")

#: Element types in columns. Arrow has no bf16, so only bf16 numbers are stored as 16-bit integers, with the same bits.
ELEMENTS: Mapping[str, Any] = {"u8": numpy.uint8, "i64": numpy.int64, "f16": numpy.float16, "bf16": numpy.uint16, "f32": numpy.float32}

#: Type of a field: a Python type that is a key of `_FIELD_TYPES`, or a type of Arrow.
FieldType: TypeAlias = "type | pyarrow.DataType"


class Fields:
    """Names and types of the columns for fields of :func:`feedwater.samples`."""

    def __init__(self, types: Mapping[str, FieldType], *, is_whole: bool, left_out: Collection[str] | None = None) -> None:
        self._types = dict(types)
        # Whether the columns must include all fields, so that an item with another field is an error.
        self._is_whole = is_whole
        # Names of fields of the first items that have no type of Arrow. `None` if later fields without such a type are errors too.
        self._left_out = left_out

    @classmethod
    def of(cls, own: Mapping[str, Given], types: Mapping[str, FieldType] | None, has_objects: bool, has_columns: bool) -> Fields:
        """Creates the columns from the argument ``fields``, here ``types``. If the argument is
        missing, the columns are the fields of the first item of each sequence. ``has_objects``:
        whether the source has annotated objects. ``has_columns``: whether the loader has columns,
        which can read fields that have no type of Arrow. Such fields are then left out."""
        if types is not None and not own:
            raise TypeError("the argument fields selects fields of items of fw.samples, but the source has no such items; remove fields")
        found = _inferred(own) if types is None else types
        left_out = None
        if types is None and has_columns:
            left_out = {name for name, kind in found.items() if not _has_arrow_type(kind)}
            found = {name: kind for name, kind in found.items() if name not in left_out}
        for name, kind in found.items():
            if not isinstance(name, str):
                raise ValueError(f"field {name!r} has a name that is no text, but names of columns must be texts. {_ADVICE}")
            if name in _COLUMNS or (has_objects and name in _OBJECTS):
                raise ValueError(f"field {name!r} has the name of another column; rename it. {_ADVICE}")
            if not _has_arrow_type(kind):
                raise ValueError(f"field {name!r} is of type {_name(kind)}; columns of fields must be of one of the types {_FIELD_NAMES}. {_ADVICE}")
        return cls(found, is_whole=types is None, left_out=left_out)

    @property
    def are_read(self) -> bool:
        """Whether fields become columns, or are compared with the columns."""
        return self._is_whole or bool(self._types)

    @property
    def names(self) -> Sequence[str]:
        """Names of the columns."""
        return list(self._types)

    def columns(self, values: Sequence[Any], indices: Sequence[int]) -> dict[str, pyarrow.Array]:
        """Returns the columns of the fields of these samples."""
        rows = [_row(value) for value in values]
        if self._is_whole:
            for row, index in zip(rows, indices):
                for name in row.keys() - self._types.keys():
                    if self._left_out is not None and (name in self._left_out or not _has_arrow_type(_inferred_type(row[name]))):
                        continue
                    raise ValueError(
                        f"sample {index} has the field {name!r}, which no sequence has in its first item, so it has no column. "
                        f"{_ADVICE}"
                    )
        return {name: _column(name, kind, [row.get(name) for row in rows], indices) for name, kind in self._types.items()}


def _inferred(own: Mapping[str, Given]) -> dict[str, FieldType]:
    """Returns the types of the fields of each sequence's first item."""
    types: dict[str, FieldType] = {}
    for sequence, (items, _, _) in own.items():
        for name, value in _first(items).items():
            kind, known = _inferred_type(value), types.get(name, _UNKNOWN)
            if known is _UNKNOWN:
                types[name] = kind
            elif kind not in (known, _UNKNOWN):
                raise ValueError(
                    f"field {name!r} is of type {_name(kind)} in {sequence}[0], but of type {_name(known)} in an earlier sequence; a column has one type. "
                    f"{_ADVICE}"
                )
    for name, kind in types.items():
        if kind is _UNKNOWN:
            raise ValueError(f"field {name!r} of the first item is None, so its type is not known. {_ADVICE}")
    return types


def _first(items: Items) -> Mapping[str, Any]:
    """Returns the fields of the first item of a sequence, by name."""
    try:
        item = items[0]
    except Exception:
        # The item cannot be read. Ignore this here: the loader handles the error according to `on_error`.
        return {}
    if isinstance(item, Mapping):
        return {name: value for name, value in item.items() if name not in ("image", "label")}
    return _row(item[2]) if isinstance(item, tuple) and len(item) == 3 else {}


def _inferred_type(value: Any) -> FieldType:
    """Returns the type of the column for a field with this value."""
    if isinstance(value, numpy.ndarray) and value.ndim in (1, 2) and value.dtype.kind in "biuf":
        element = pyarrow.from_numpy_dtype(value.dtype)
        return pyarrow.list_(element if value.ndim == 1 else pyarrow.list_(element, value.shape[1]))
    return _type(value)


def _has_arrow_type(kind: FieldType) -> bool:
    return isinstance(kind, pyarrow.DataType) or (isinstance(kind, type) and kind in _FIELD_TYPES)


def _row(value: Any) -> Mapping[str, Any]:
    """Returns the fields of an item by name."""
    if value is None:
        return {}
    return value if isinstance(value, Mapping) else {_FIELDS: value}


def _type(value: Any) -> type:
    """Returns the Python type of a value. For a number of NumPy, this is the type of the equal Python number."""
    return type(value.item() if isinstance(value, numpy.generic) else value)


def _name(kind: FieldType) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind)


def _column(name: str, kind: FieldType, values: Sequence[Any], indices: Sequence[int]) -> pyarrow.Array:
    is_plain = kind in _FIELD_TYPES
    for value, index in zip(values, indices):
        found = _type(value)
        if is_plain and found not in (_UNKNOWN, kind) and (found, kind) != (int, float):
            raise ValueError(f"field {name!r} of sample {index} is of type {_name(found)}, but its column is of type {_name(kind)}")
    try:
        if is_plain:
            return pyarrow.array(values, _FIELD_TYPES[kind])
        return pyarrow.array([value.tolist() if isinstance(value, numpy.ndarray) else value for value in values], kind)
    except (OverflowError, TypeError, ValueError) as problem:
        at = f"samples {indices[0]} to {indices[-1]}" if len(indices) > 1 else f"sample {indices[0]}"
        raise ValueError(f"field {name!r} of {at} cannot be converted to a column of type {_name(kind)}: {problem}") from problem


def check_columns(names: Sequence[str], fields: Fields) -> None:
    """Checks the names of the loader's columns."""
    for name in names:
        if name in _COLUMNS:
            raise ValueError(f"columns[{name!r}] has the name of another column of the data set, which has {', '.join(_COLUMNS)}; rename it")
        if name in fields.names:
            raise ValueError(f"columns[{name!r}] has the name of a field of fw.samples, which is a column too; rename it, or leave the field out by fields={{}}")


def table(batch: Batch, loader: _feedwater.Loader, part: Part, size: int, fields: Fields, masks: bool) -> pyarrow.Table:
    """Converts a batch to a block, which is a table in Ray Data. ``size``: number of samples in a full batch."""
    first = part.begin + batch.number * size
    records, errors = batch.samples, batch.errors
    # Padding has the position of the last sample, which it repeats.
    positions = [min(first + place, part.end - 1) for place in range(len(records))]
    columns: dict[str, pyarrow.Array] = {}
    if loader.has_images:
        # Copy the images, because Ray may collect more blocks than the loader has slots.
        images = numpy.frombuffer(batch._inner.to_host("image"), ELEMENTS[batch.dtype]).reshape(batch.shape)
        columns["image"] = ArrowTensorArray.from_numpy(images)
    columns |= {
        "label": pyarrow.array(batch.labels, pyarrow.int64()),
        "index": pyarrow.array(batch.indices, pyarrow.int64()),
        "location": pyarrow.array([loader.location(index) for index in batch.indices], pyarrow.string()),
        "epoch": pyarrow.array([batch.epoch] * len(records), pyarrow.int64()),
        "position": pyarrow.array(positions, pyarrow.int64()),
        "padding": pyarrow.array([record["padding"] for record in records], pyarrow.bool_()),
        "outcome": pyarrow.array([record["outcome"] for record in records], pyarrow.string()),
        "replaces": pyarrow.array([record["replaces"] for record in records], pyarrow.int64()),
        "error": pyarrow.array([problems(errors, record) for record in records], pyarrow.string()),
    }
    if batch.classes > 0:
        columns["target"] = ArrowTensorArray.from_numpy(numpy.ascontiguousarray(batch.targets()))
    if loader.has_objects:
        # A column of the loader has an entry for each object, also for hidden ones, so the others need it too.
        hidden = any(name in _OBJECTS for name in batch.columns)
        columns |= _object_columns(batch, masks, hidden)
    if fields.are_read and (values := loader.fields(batch._inner)) is not None:
        columns |= fields.columns(values.list(), batch.indices)
    # A column of the loader replaces that of annotated objects with the same name.
    columns |= _loader_columns(batch)
    return pyarrow.table(columns)


def _loader_columns(batch: Batch) -> dict[str, pyarrow.Array]:
    """Returns the columns that the loader's parameter ``columns`` added."""
    columns = {}
    tensors = {name: (dtype, shape) for name, dtype, shape in batch._inner.exported}
    for name in batch.columns:
        if name in tensors:
            dtype, shape = tensors[name]
            columns[name] = _dense(batch._inner.to_host(name), dtype, shape)
            continue
        kind, dtype, shape, data, offsets, ends = batch._inner.column(name)
        if offsets is None:
            columns[name] = _dense(data, dtype, shape)
        elif kind == "texts":
            columns[name] = pyarrow.LargeListArray.from_arrays(offsets, _pieces(data, ends or [0], pyarrow.large_string()))
        elif kind in ("text", "bytes"):
            columns[name] = _pieces(data, offsets, pyarrow.large_string() if kind == "text" else pyarrow.large_binary())
        else:
            entries = pyarrow.array(numpy.frombuffer(data, ELEMENTS[dtype]))
            if ends is not None:
                entries = pyarrow.LargeListArray.from_arrays(ends, entries)
            # Each axis of an entry is a list of fixed size.
            for length in reversed(shape[1:]):
                entries = pyarrow.FixedSizeListArray.from_arrays(entries, length)
            columns[name] = pyarrow.LargeListArray.from_arrays(offsets, entries)
    return columns


def _dense(data: bytes | bytearray, dtype: str, shape: Sequence[int]) -> pyarrow.Array:
    """A column of numbers, or of tensors if a sample has axes."""
    values = numpy.frombuffer(data, ELEMENTS[dtype]).reshape(shape)
    return pyarrow.array(values) if len(shape) == 1 else ArrowTensorArray.from_numpy(values)


def _pieces(data: bytes | bytearray, offsets: Sequence[int], kind: pyarrow.DataType) -> pyarrow.Array:
    """Texts or bytes, divided at these offsets."""
    buffers = [None, pyarrow.py_buffer(numpy.array(offsets, numpy.int64)), pyarrow.py_buffer(bytes(data))]
    return pyarrow.Array.from_buffers(kind, len(offsets) - 1, buffers)


def _object_columns(batch: Batch, masks: bool, hidden: bool) -> dict[str, pyarrow.Array]:
    """Returns the columns of the annotated objects. Each sample has one list per column. ``hidden``: whether they also have the
    objects that the image does not show."""
    samples = batch._all_objects() if hidden else batch.objects()
    offsets = numpy.cumsum([0, *(len(it) for it in samples)], dtype=numpy.int32)

    def lists(values: Any) -> pyarrow.Array:
        return pyarrow.ListArray.from_arrays(pyarrow.array(offsets), values)

    def joined(of: Callable[[Objects], Any]) -> Any:
        return pyarrow.array(numpy.concatenate([of(it) for it in samples]))

    columns = {
        "boxes": lists(pyarrow.FixedSizeListArray.from_arrays(joined(lambda it: it.boxes.ravel()), 4)),
        "categories": lists(joined(lambda it: it.categories)),
        "object_ids": lists(joined(lambda it: it.ids)),
        "areas": lists(joined(lambda it: it.areas)),
        "visible": lists(joined(lambda it: it.visible)),
        "crowd": lists(joined(lambda it: it.crowd)),
    }
    if masks:
        counts = [runs and runs["counts"] for it in samples for runs in it.run_lengths()]
        columns["masks"] = lists(pyarrow.array(counts, pyarrow.binary()))
    return columns
