"""Annotated objects of an image: boxes, categories and masks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _feedwater

if TYPE_CHECKING:
    from typing import TypeAlias

    from numpy import ndarray
    from torch import Tensor

    NumpyArray: TypeAlias = ndarray[Any, Any]

__all__ = ["Objects"]


class Objects:
    """Annotated objects of one sample that are visible in its tensor, in the order of the annotations. ``len`` returns the
    number of objects, ``n`` below.

    Coordinates are in pixels of the tensor, after all crops, flips, resizes and warps of the chain. Each call returns
    new arrays.
    """

    def __init__(self, inner: _feedwater.Objects) -> None:
        self._inner = inner

    def __len__(self) -> int:
        return len(self._inner)

    def __repr__(self) -> str:
        width, height = self.size
        return f"<feedwater.Objects: {len(self)} in {width}x{height}>"

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the tensor. Both are 0 for a sample that was replaced with zeros."""
        return self._inner.size

    @property
    def boxes(self) -> NumpyArray:
        """Left, top, right and bottom edge of each box, clipped to the visible part of the image: f32, ``[n, 4]``."""
        return _array(self._inner.boxes(), "float32").reshape(len(self), 4)

    @property
    def categories(self) -> NumpyArray:
        """Category of each object, from 0, in the order of the loader's ``classes``: 64-bit integers, ``[n]``."""
        return _array(self._inner.categories(), "int64")

    @property
    def ids(self) -> NumpyArray:
        """ID of each object in the annotations: 64-bit integers, ``[n]``."""
        return _array(self._inner.ids(), "int64")

    @property
    def areas(self) -> NumpyArray:
        """Annotated area of each object, in pixels of the image before the chain: f64, ``[n]``."""
        return _array(self._inner.areas(), "float64")

    @property
    def visible(self) -> NumpyArray:
        """Visible share of each box, above 0 and up to 1: f64, ``[n]``."""
        return _array(self._inner.visible(), "float64")

    @property
    def crowd(self) -> NumpyArray:
        """Whether each object is a crowd of objects that were not annotated separately (``iscrowd`` of COCO):
        ``[n]``."""
        return _array(self._inner.crowd(), "bool")

    def masks(self) -> NumpyArray:
        """Masks: 1 inside of an object and 0 elsewhere, computed from outlines as pycocotools does: u8,
        ``[n, height, width]``. The mask of an object without an outline is all zeros."""
        width, height = self.size
        return _array(self._inner.masks(), "uint8").reshape(len(self), height, width)

    def run_lengths(self) -> list[dict[str, Any] | None]:
        """The masks in the compressed form of pycocotools: dictionaries with ``size`` (height and width) and ``counts``.
        ``None`` for an object without an outline."""
        width, height = self.size
        return [None if counts is None else {"size": [height, width], "counts": counts} for counts in self._inner.runs()]

    def torch(self, *, masks: bool = False, first_label: int = 1) -> dict[str, Tensor]:
        """The target that torchvision's detection models expect, in host memory: ``boxes``, ``labels``, ``area``,
        ``iscrowd``, and with ``masks`` also ``masks``. ``first_label`` is the label of category 0, by default 1, because
        label 0 is the background in these models."""
        import torch

        target = {
            "boxes": torch.from_numpy(self.boxes),
            "labels": torch.from_numpy(self.categories + first_label),
            "area": torch.from_numpy(self.areas.astype("float32")),
            "iscrowd": torch.from_numpy(self.crowd.astype("int64")),
        }
        return {**target, "masks": torch.from_numpy(self.masks())} if masks else target


def _array(data: bytearray, kind: str) -> NumpyArray:
    import numpy

    return numpy.frombuffer(data, numpy.dtype(kind))
