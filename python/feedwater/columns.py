"""Columns of batches besides images and labels: fields of the source, such as captions, and views, which are further outputs of the image.

    loader = fw.Loader("train.csv", fw.train_recipe(224), columns={"caption": fw.text(), "score": fw.array("f32")})
    for batch in loader:
        batch["image"], batch["label"], batch["caption"], batch["score"]
"""

from __future__ import annotations

import contextlib
import os
import re
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, SupportsIndex, TypeVar

from ._checks import check_pixels, dtype_name, operators_of
from ._names import nearest, suggesting
from ._ragged import Ragged
from ._settings import Operator, Pixels, _Settings
from .errors import ConfigError

__all__ = ["Column", "Ragged", "View", "array", "boxes", "bytes_", "image", "instances", "list_", "mask", "points", "runs", "text", "texts", "view"]

#: Functions that make columns.
MAKERS = ("array", "list_", "text", "texts", "bytes_", "mask", "points", "boxes", "runs", "instances", "view", "image")

TooLong = Literal["error", "truncate", "skip"]
Pick = Literal["first", "random"]
BoxFormat = Literal["xyxy", "xywh", "cxcywh"]

#: Names of element types in frameworks, with those in pipeline files.
_DTYPES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "int64": "i64", "uint8": "u8"}


class Column(_Settings):
    """A column, made by :func:`array`, :func:`list_`, :func:`text`, :func:`texts`, :func:`bytes_`, :func:`mask`, :func:`points`,
    :func:`boxes`, :func:`runs` or :func:`instances`."""

    MADE_BY = "the function that made it"
    FIELDS = (
        *("field", "kind", "dtype", "shape", "max_len", "max_texts", "max_objects", "too_long", "pick", "default"),
        *("like", "one_hot", "fill", "turn", "scale", "format", "flip_pairs", "offset"),
    )

    def settings(self) -> dict[str, Any]:
        """The settings as a table of a pipeline file, without the name of the column."""
        return dict(self._settings)

    def __repr__(self) -> str:
        settings = ", ".join(f"{key}={value!r}" for key, value in self._settings.items() if key != "kind")
        kind = self._settings["kind"]
        return f"fw.{kind}{'_' if kind in ('list', 'bytes') else ''}({settings})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Column) and self._settings == other._settings

    def __hash__(self) -> int:
        return hash(repr(self))


_Kind = TypeVar("_Kind", bound=_Settings)


def _made(kind: type[_Kind], /, **settings: Any) -> _Kind:
    """Makes an object of a class that programs do not call."""
    made = kind.__new__(kind)
    _Settings.__init__(made, **settings)
    return made


@suggesting("fw.array")
def array(dtype: Any = "f32", *, field: str | None = None, shape: int | Sequence[int] | None = (), default: Any = None) -> Column:
    """A column of numbers that have the same shape in all samples.

    * ``dtype``: ``"f32"`` (default), ``"f16"``, ``"bf16"``, ``"i64"`` (for ids) or ``"u8"``, or a
      framework's type.
    * ``field``: field of the source. A path after a colon leads into JSON, as in ``"meta:score"``
      or ``"meta:sizes[0].width"``, or names an array of an ``.npz`` file, as in ``"emb.npz:name"``.
      Default: the name of the column.
    * ``shape``: shape of a sample, or its length. Default: a single number.
    * ``default``: value for samples without the field; a number fills an array. By default, such a
      sample fails, and ``on_error`` decides what happens.
    """
    return _made(Column, kind="array", dtype=_dtype(dtype), field=field, shape=_shape(shape), default=_default(default))


@suggesting("fw.list_")
def list_(
    dtype: Any = "f32",
    *,
    field: str | None = None,
    shape: int | Sequence[int] | None = (),
    max_len: int | None = None,
    too_long: TooLong | None = None,
    default: Any = None,
) -> Column:
    """A column of lists of numbers, which may have a different length in each sample.

    * ``dtype``, ``field``, ``default``: as for :func:`array`. With ``[*]`` in its path, ``field``
      collects a value from each entry of a JSON array, as in ``"meta:boxes[*].x"``.
    * ``shape``: shape of one entry. Default: a single number.
    * ``max_len``: maximum number of entries, for which memory is allocated. Default: 256.
    * ``too_long``: what to do with longer lists. ``"error"`` (default): the sample fails, and
      ``on_error`` decides. ``"truncate"``: the list is cut. ``"skip"``: another sample replaces it.
      :attr:`Loader.stats <feedwater.Loader.stats>` counts these samples.
    """
    settings = {"field": field, "shape": _shape(shape), "max_len": max_len, "too_long": too_long, "default": _default(default)}
    return _made(Column, kind="list", dtype=_dtype(dtype), **settings)


@suggesting("fw.text")
def text(
    field: str | None = None,
    *,
    max_len: int | None = None,
    too_long: TooLong | None = None,
    pick: Pick | None = None,
    default: str | None = None,
) -> Column:
    """A column of texts, one for each sample.

    * ``max_len``: maximum number of bytes of a text in UTF-8. Default: 4096. ``too_long="truncate"`` cuts between two characters.
    * ``pick``: which text is taken if the field has several, such as an array of texts in JSON. ``"first"``, or ``"random"``: a text that
      depends on the seed, the epoch, the sample, its repeat and the name of the column. An empty list, or an empty text that is picked, is a
      missing value. By default, several texts are an error. :func:`texts` has all of them.
    * The other parameters are those of :func:`list_`.
    """
    return _made(Column, kind="text", field=field, max_len=max_len, too_long=too_long, pick=pick, default=_default(default))


@suggesting("fw.texts")
def texts(
    field: str | None = None,
    *,
    max_len: int | None = None,
    max_texts: int | None = None,
    too_long: TooLong | None = None,
    default: Sequence[str] | str | None = None,
) -> Column:
    """A column of several texts for each sample, such as its captions. A batch has a list of lists of ``str``.

    * ``field``: as for :func:`list_`. A field with one text is a list of one text. A text that is a JSON
      array is a list of texts. Other texts, such as ``[sic] a dog``, are one text.
    * ``max_len``: maximum number of bytes of all texts of a sample together, in UTF-8. Default: 4096.
    * ``max_texts``: maximum number of texts of a sample. Default: 32. Memory is allocated for ``max_len`` bytes, and 12 bytes for each
      of ``max_texts``.
    * ``too_long``: as for :func:`list_`, for samples that exceed one of these numbers. ``"truncate"`` keeps the first texts, and cuts the last
      of them between two characters.
    * ``default``: list of texts of samples without the field, such as ``[]``.
    """
    default = _default(list(default) if isinstance(default, tuple) else default)
    return _made(Column, kind="texts", field=field, max_len=max_len, max_texts=max_texts, too_long=too_long, default=default)


@suggesting("fw.bytes_")
def bytes_(field: str | None = None, *, max_len: int | None = None, too_long: TooLong | None = None, default: str | None = None) -> Column:
    """A column of bytes. ``max_len``: maximum number of bytes. Default: 4096. The other parameters are those of :func:`list_`."""
    return _made(Column, kind="bytes", field=field, max_len=max_len, too_long=too_long, default=_default(default))


@suggesting("fw.mask")
def mask(
    field: str | None = None,
    *,
    like: str | None = None,
    dtype: Any = None,
    one_hot: int | None = None,
    fill: float | None = None,
    scale: bool = False,
    turn: bool = False,
    default: float | None = None,
) -> Column:
    """A column of masks: a number for each pixel of the image, such as its class, in a tensor ``[samples, height, width]``.

    The field is a PNG with a palette, whose indices are the numbers, a gray PNG or PGM file, or a ``.npy`` or ``.npz`` file with an array of integers
    ``[height, width]``. A mask follows the crops, flips, resizes and warps of its image, with nearest interpolation. Colours, blurs, noise and
    erasing do not change it.

    * ``like``: the column that the mask follows: ``"image"`` (default) or a :func:`view`. If the view has a ``count``, so have its masks:
      ``[samples, count, height, width]``.
    * ``dtype``: ``"u8"`` (default), ``"i64"`` (for losses of PyTorch, and for 16-bit files) or ``"f32"`` (for depth maps). With ``one_hot``:
      ``"f32"`` (default), ``"f16"``, ``"bf16"`` or ``"u8"``.
    * ``one_hot``: number of classes. The mask then has an axis for the classes, at the place of the channels of an image:
      ``[samples, classes, height, width]``. Its numbers are 1 for the class of a pixel and 0 for other classes. Pixels with the number
      ``fill`` are 0 for all classes. A sample with any other number that is no class fails, also if the result does not show the number.
      ``ops.Mixup`` blends such masks like images.
    * ``fill``: number where the result shows no part of the image. Default: 255.
    * ``scale``: stretch a mask that is neither wider nor higher than its image to the size of the image. A mask of any other size fails its
      sample.
    * ``turn``: the masks were made from the pixels before EXIF turns them, so they are turned like the image.
    * ``default``: number or class in the whole mask of samples without the field. By default, such a sample fails.
    """
    settings = {"like": like, "one_hot": one_hot, "fill": fill, "scale": scale or None, "turn": turn or None, "default": _default(default)}
    return _made(Column, kind="mask", field=field, dtype=None if dtype is None else _dtype(dtype), **settings)


@suggesting("fw.points")
def points(
    field: str | None = None,
    *,
    like: str | None = None,
    shape: int | Sequence[int] = (2,),
    flip_pairs: Sequence[Sequence[int]] = (),
    offset: float | None = None,
    turn: bool = False,
    max_len: int | None = None,
    too_long: TooLong | None = None,
    default: Any = None,
) -> Column:
    """A column of points in pixels, which follow their image. The centre of the first pixel is at (0.5, 0.5), or with ``offset=0.5`` at (0, 0).
    Batches have f32 numbers.

    * ``shape``: shape of one entry. ``2`` (default): x and y. ``3``: x, y and visibility. ``(17, 3)``: 17 keypoints per object. The
      visibility becomes 0 if the result does not show the point. Points with the visibility 0 are not moved.
    * ``flip_pairs``: pairs of points of one entry that change places if the image is flipped horizontally, such as ``[(1, 2)]`` for the eyes.
    * ``offset``: number that is added to x and y before the points move, and subtracted afterwards. Default: 0. With 0.5, points are indices
      of pixels, as in COCO: a horizontal flip of an image with the width 50 turns x = 40 into 9.
    * ``like``, ``turn``: as for :func:`mask`, but a view with a ``count`` cannot be followed. ``max_len`` (in entries), ``too_long``,
      ``default``: as for :func:`list_`.
    """
    try:
        pairs = [[int(point) for point in pair] for pair in flip_pairs] or None
    except TypeError:
        raise TypeError(f"flip_pairs is {flip_pairs!r}; it must be pairs of points that change places, such as [(1, 2), (3, 4)]") from None
    settings = {"like": like, "flip_pairs": pairs, "offset": offset, "turn": turn or None, "max_len": max_len, "too_long": too_long}
    return _made(Column, kind="points", field=field, shape=_shape(shape), **settings, default=_default(default))


@suggesting("fw.boxes")
def boxes(
    field: str | None = None,
    *,
    format: BoxFormat = "xyxy",  # noqa: A002
    like: str | None = None,
    turn: bool = False,
    max_len: int | None = None,
    too_long: TooLong | None = None,
    default: Any = None,
) -> Column:
    """A column of boxes in pixels, which follow their image. Batches have left, top, right and bottom of the visible part in f32, or four
    zeros if the result does not show the box, so that other columns of the sample keep the order of their entries.

    * ``format``: meaning of the four numbers in the field: ``"xyxy"`` (left, top, right, bottom; default), ``"xywh"`` (left, top, width,
      height, as in COCO) or ``"cxcywh"`` (centre, width, height).
    * ``like``, ``turn``: as for :func:`points`. ``max_len`` (in entries), ``too_long``, ``default``: as for :func:`list_`.
    """
    settings = {"like": like, "turn": turn or None, "max_len": max_len, "too_long": too_long, "default": _default(default)}
    return _made(Column, kind="boxes", field=field, format=format, **settings)


class View(_Settings):
    """A column with another output of the image, made by :func:`view`, or of an image in a field, made by :func:`image`."""

    MADE_BY = "fw.view or fw.image"
    FIELDS = ("chain", "field", "count", "like", "dtype", "pixels")
    #: Loader settings of the recipe of the view's operators.
    sections: Mapping[str, Mapping[str, Any]] = types.MappingProxyType({})

    def settings(self) -> dict[str, Any]:
        """The settings as a table of a pipeline file, without the name of the view."""
        return dict(self._settings)

    def __repr__(self) -> str:
        settings = dict(self._settings)
        given = [repr(settings.pop("chain"))]
        name = "image" if "field" in settings else "view"
        if name == "image":
            given.insert(0, repr(settings.pop("field")))
        return f"fw.{name}({', '.join([*given, *(f'{key}={value!r}' for key, value in settings.items())])})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, View) and self._settings == other._settings

    def __hash__(self) -> int:
        return hash(repr(self))


def _refuse_calls(made: type[_Settings], advice: str) -> None:
    """Makes calls of a class an error, because functions make its objects."""

    def refuse(self: _Settings, *_given: Any, **_settings: Any) -> None:
        raise TypeError(f"fw.{made.__name__} is only the type of the object; {advice}")

    made.__init__ = refuse  # type: ignore[method-assign]


_refuse_calls(Column, f"write a function that makes a column: {', '.join(f'fw.{it}' for it in MAKERS[:-2])}")
_refuse_calls(View, "write fw.view(operators, ...), or fw.image(field, operators, ...) for an image in a field")


@suggesting("fw.runs")
def runs(
    field: str | None = None,
    *,
    like: str | None = None,
    turn: bool = False,
    max_len: int | None = None,
    max_objects: int | None = None,
    too_long: TooLong | None = None,
    default: Any = None,
) -> Column:
    """A column of masks of objects as run lengths (COCO's RLE), which follow their image. Batches have 64-bit integers: for each sample, a list of
    run lengths for each object, of the result's pixels, column by column, beginning with the background.

    The field has a list with the outline of each object, as COCO writes them: polygons, or ``size`` and ``counts``, as numbers or as the string
    of ``pycocotools``. The field ``segmentations`` of :func:`coco` is such a list. An object without an outline has an empty mask. The mask of an
    object is that of ``annToRLE`` of ``pycocotools``, moved with nearest interpolation.

    * ``like``, ``turn``: as for :func:`mask`. A view with ``count`` cannot be followed.
    * ``max_len``: maximum number of run lengths of all objects of a sample together. Default: 16384.
    * ``max_objects``: maximum number of objects of a sample. Default: 256.
    * ``too_long``: as for :func:`list_`. ``"truncate"`` leaves out the first object for which there is no memory, and all later ones.
    * ``default``: ``[]`` for samples without the field. By default, such a sample fails.
    """
    settings = {"like": like, "turn": turn or None, "max_len": max_len, "max_objects": max_objects, "too_long": too_long}
    return _made(Column, kind="runs", field=field, **settings, default=_default(default))


@suggesting("fw.instances")
def instances(
    field: str | None = None,
    *,
    like: str | None = None,
    turn: bool = False,
    max_len: int | None = None,
    too_long: TooLong | None = None,
    default: Any = None,
) -> Column:
    """A column of masks of objects, which follow their image: for each sample, a tensor ``[objects, height, width]`` of bytes, with 1 in the object
    and 0 outside.

    * ``field``, ``like``, ``turn``, ``too_long``, ``default``: as for :func:`runs`.
    * ``max_len``: maximum number of objects of a sample, for whose pixels memory is allocated. Default: 32.
    """
    settings = {"like": like, "turn": turn or None, "max_len": max_len, "too_long": too_long}
    return _made(Column, kind="instances", field=field, **settings, default=_default(default))


@suggesting("fw.view")
def view(transform: Operator | Sequence[Operator], *, count: int | None = None, like: str | None = None, dtype: Any = None) -> View:
    """A column with another output of the sample's image, such as a small crop. The image is decoded once for all views. On a GPU, kernels
    compute the view if all its operators and all operators of the loader have kernels. Otherwise the CPU computes it.

    * ``transform``: operators, as for :class:`feedwater.Loader`, that end in a fixed size. If all outputs are views, give the loader no
      ``transform``; dictionaries then have no key ``image``. Such a loader shuffles if the recipe of a view does, such as
      :func:`feedwater.train_recipe`, and has ``last_batch="partial"`` if the recipe of every view sets it. Beside a ``transform`` that does not
      shuffle, a recipe of a view that does is a warning, unless the loader has the parameter ``shuffle``. Of the other settings of a recipe,
      a view uses only the element type (``dtype`` below).
    * ``count``: number of outputs per sample, at least 1, each with its own random numbers, in a tensor
      ``[samples, count, channels, height, width]`` (with ``layout="nhwc"``: ``[samples, count, height, width, channels]``). By default, there
      is one output and no such axis. All views together have at most 1024 outputs. With ``FiveCrop`` (``TenCrop``), the default is 5 (10),
      and ``count`` must be a multiple of it. Each group of 5 (10) outputs has the same random numbers: they are crops of one image.
    * ``like``: name of another view, or ``"image"`` for the loader's own operators, whose random numbers this view uses. Operators that have
      the same name and settings in both then draw the same, such as the same crop. Both chains must run equally often per sample: ``count``
      times, or ``count`` / 5 with ``FiveCrop`` and ``count`` / 10 with ``TenCrop``. The other view may have no ``like``. ``"image"`` needs a
      chain that runs once. By default, a view has random numbers of its own, which do not depend on other views.
    * ``dtype``: ``"f32"``, ``"f16"``, ``"bf16"`` or ``"u8"``. Default: the parameter ``dtype`` of the loader if given, else the type of the
      view's recipe, else that of the loader.
    """
    return _view(transform, count, like, dtype)


@suggesting("fw.image")
def image(
    field: str,
    transform: Operator | Sequence[Operator],
    *,
    count: int | None = None,
    like: str | None = None,
    dtype: Any = None,
    pixels: Pixels | None = None,
) -> View:
    """A column with an output of another image of the sample, such as the second image of a pair.

    * ``field``: field of the source with the file of the image, or an array (a ``.npy`` or ``.npz`` file, or in :func:`feedwater.samples`):
      ``[height, width]``, ``[height, width, channels]`` or ``[channels, height, width]``, of bytes, or of numbers that ``pixels`` permits. A
      sample whose image is missing or damaged fails.
    * ``transform``, ``count``, ``dtype``: as for :func:`view`.
    * ``pixels``: pixel format of the decoded image: ``"u8x3"`` (default), ``"u8"``, ``"u8x4"``, ``"indices"``, ``"u16"``, ``"u16x3"``, ``"u16x4"``,
      ``"f32"``, ``"f32x3"`` or ``"f32x4"``, as for :class:`feedwater.Decode`.
    * ``like``: as for :func:`view`. With ``like="image"``, both images get the same crops and flips. They must then have the same size;
      other samples fail.
    """
    if not isinstance(field, str):
        raise TypeError(f"field is {field!r}; it must be the name of a field, as in fw.image(\"right.jpg\", [...])")
    return _view(transform, count, like, dtype, field=field, pixels=pixels)


def _view(
    transform: Any, count: int | None, like: str | None, dtype: Any, *, field: str | None = None, pixels: Pixels | None = None
) -> View:
    if getattr(transform, "batch_operators", None):
        raise ValueError(
            "the recipe has operators that mix samples (batch_operators), which a view cannot run; remove them, or mix views in the training loop"
        )
    if getattr(transform, "rest", None):
        raise ValueError(
            "the recipe has transforms that stay Python (keep_rest), which a view cannot run; remove them, or apply them in the training loop"
        )
    operators = operators_of(transform)
    check_pixels(operators, pixels, "pixels")
    made = _made(View, chain=operators, field=field, count=count, like=like, dtype=dtype_name(dtype), pixels=pixels)
    made._set(sections=dict(getattr(transform, "sections", {})))
    return made


def tables(columns: Any, has_dtype: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Returns the tables of columns and those of views in a pipeline file. ``columns`` is the loader's parameter. ``has_dtype``: whether the
    loader is given an element type, which takes precedence over those of recipes."""
    if not isinstance(columns, Mapping):
        raise TypeError(f'columns is {columns!r}; it must be a dictionary, such as {{"caption": fw.text(), "score": fw.array("f32")}}')
    found: tuple[list[dict[str, Any]], list[dict[str, Any]]] = ([], [])
    for name, column in columns.items():
        if not isinstance(name, str):
            raise TypeError(f"columns has the name {name!r}; it must be a text")
        if not isinstance(column, (Column, View)):
            made = getattr(column, "__name__", None)
            near = made if made in __all__ else nearest(str(column), __all__) if isinstance(column, str) else None
            advice = f"; did you mean fw.{near}()?" if near else ""
            raise TypeError(f"columns[{name!r}] is {column!r}; it must be made by {', '.join(f'fw.{it}' for it in MAKERS)}{advice}")
        settings = {"name": name, **column.settings()}
        if isinstance(column, View) and not has_dtype and (dtype := column.sections.get("output", {}).get("dtype")):
            settings.setdefault("dtype", dtype)
        found[isinstance(column, View)].append(settings)
    return found


def loader_settings_of_views(columns: Any) -> dict[str, Any]:
    """Returns the settings of a loader without ``transform`` that the recipes of its views determine: ``shuffle`` if a recipe shuffles, and
    ``last_batch="partial"`` if the recipe of each view sets it."""
    views = [column for column in columns.values() if isinstance(column, View)] if isinstance(columns, Mapping) else []
    partial = views and all(view.sections.get("loader", {}).get("last_batch") == "partial" for view in views)
    return {**({"shuffle": True} if shuffling_view(columns) else {}), **({"last_batch": "partial"} if partial else {})}


def shuffling_view(columns: Any) -> str | None:
    """Returns the name of the first view whose recipe shuffles."""
    columns = columns.items() if isinstance(columns, Mapping) else []
    return next((name for name, it in columns if isinstance(it, View) and it.sections.get("loader", {}).get("shuffle")), None)


def operators_of_views(columns: Any) -> list[Operator]:
    """Returns the operators of all views of the sample's image."""
    views = [column for column in columns.values() if isinstance(column, View)] if isinstance(columns, Mapping) else []
    return [operator for view in views if view.field is None for operator in view.chain]


@contextlib.contextmanager
def named(columns: Sequence[Mapping[str, Any]], views: Sequence[Mapping[str, Any]]) -> Iterator[None]:
    """Puts the name of a column into the text of a ``ConfigError``, in place of its number among the tables of :func:`tables`."""
    try:
        yield
    except ConfigError as error:
        if place := re.match(r"(column|view)\[(\d+)\]", error.key):
            of = columns if place[1] == "column" else views
            written = f"columns[{of[int(place[2])]['name']!r}]{error.key[place.end() :]}"
            error.args = (str(error).replace(error.key, written, 1),)
        elif error.key in ("column", "view"):
            error.args = (str(error).replace(error.key, "columns", 1),)
        raise


def _dtype(dtype: Any) -> str:
    """Returns the name of an element type in a pipeline file."""
    name = dtype if isinstance(dtype, str) else getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
    name = str(name).rpartition(".")[2]
    name = _DTYPES.get(name, name)
    if name not in _DTYPES.values():
        raise ValueError(f"dtype is {dtype!r}; it is one of {', '.join(_DTYPES.values())}, or one of these types of a framework")
    return name


def _shape(shape: int | Sequence[int] | None) -> list[int]:
    """Returns the lengths of the axes."""
    if shape is None:
        return []
    return [int(shape)] if isinstance(shape, SupportsIndex) else list(shape)


def _default(default: Any) -> Any:
    """Checks that a pipeline file can hold a default."""
    if isinstance(default, (bytes, bytearray, os.PathLike)):
        raise TypeError(f"default is {default!r}; it must be a number, a text or a list")
    return default
