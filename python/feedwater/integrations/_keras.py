"""Batches of a loader as a data set of Keras 3."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from keras.utils import PyDataset

from ..loader import Loader

#: Maximum number of batches that Keras reads to learn their shapes. Keras then starts again with the first batch.
_LOOKS = 2


class BatchDataset(PyDataset):  # type: ignore[misc]
    """Batches of a loader, in the loader's order. Keras shuffles indices, which have no effect here."""

    def __init__(self, loader: Loader) -> None:
        if loader.framework == "batch":
            raise ValueError('the loader was built with framework="batch"; Keras needs pairs of images and labels')
        if loader._columns:
            raise ValueError(f"the loader has the columns {', '.join(loader._columns)}; Keras needs pairs of images and labels, so build it without columns")
        super().__init__(workers=1, use_multiprocessing=False)
        self._loader = loader
        self._batches: Iterator[Any] | None = None
        # Batches that Keras has read to learn their shapes. They are returned again when Keras starts again.
        self._again: list[Any] = []
        self._looked: list[Any] = []
        self._given = 0

    @property
    def num_batches(self) -> int:
        return self._loader.batches_per_epoch

    def __len__(self) -> int:
        return self._loader.batches_per_epoch

    def on_epoch_begin(self) -> None:
        if 0 < self._given <= _LOOKS and self._given < self._loader.batches_per_epoch:
            self._again = self._looked + self._again
        else:
            self._again = []
            self._batches = None
        self._looked = []
        self._given = 0

    def __getitem__(self, index: int) -> Any:
        self._given += 1
        if self._again:
            return self._again.pop(0)
        if self._batches is None:
            self._batches = iter(self._loader)
        batch = next(self._batches, None)
        if batch is None:
            raise RuntimeError(
                f"the loader's epoch ended before batch {self._given} of {self._loader.batches_per_epoch}, because a state from the middle of an epoch was "
                "restored; Keras needs whole epochs, so restore only states from the end of an epoch"
            )
        # Give copies to Keras, which frees batches only when Python collects garbage. The loader has memory for only a few batches.
        copied = tuple(map(_copy, batch))
        # After the third batch, Keras does not start again, so the first batches need not be kept.
        self._looked = [*self._looked, copied] if self._given <= _LOOKS else []
        return copied


def _copy(array: Any) -> Any:
    """Copies a tensor of PyTorch, or an array of any other framework to an array of NumPy."""
    import numpy

    return array.clone() if hasattr(array, "clone") else numpy.array(array)
