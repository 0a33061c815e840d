"""Lists of different lengths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, SupportsIndex


class Ragged(Sequence[Any]):
    """Lists of different lengths, one for each sample of a batch.

    ``values`` has the entries of all samples, one after another. Sample ``i`` has the entries from ``offsets[i]`` up to, but without,
    ``offsets[i + 1]``, so ``len(offsets)`` is the number of samples plus 1. PyTorch's ``torch.nested.nested_tensor_from_jagged`` takes both.
    In a column of :func:`runs`, ``values`` is a ``Ragged`` too, with the run lengths of one object after another.

    ``host_offsets``: the same offsets in host memory. Indices of samples use them, so the host does not wait for offsets on a GPU.
    """

    def __init__(self, values: Any, offsets: Any, *, host_offsets: Sequence[int] | None = None) -> None:
        self.values = values
        self.offsets = offsets
        self._host_offsets = host_offsets

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        if not isinstance(index, SupportsIndex):
            raise TypeError(f"the index of a sample is a number or a slice, not {index!r}")
        try:
            place = range(len(self))[index]
        except IndexError:
            raise IndexError(f"the index is {index}, but there are {len(self)} samples") from None
        offsets = self.offsets if self._host_offsets is None else self._host_offsets
        return self.values[int(offsets[place]) : int(offsets[place + 1])]

    def __iter__(self) -> Iterator[Any]:
        return (self[place] for place in range(len(self)))

    def to(self, *args: Any, **kwargs: Any) -> Ragged:
        """Returns the lists with ``values.to(...)`` and ``offsets.to(...)`` of PyTorch, such as on another device."""
        return Ragged(self.values.to(*args, **kwargs), self.offsets.to(*args, **kwargs), host_offsets=self._host_offsets)

    def tolist(self) -> list[Any]:
        """Returns the lists as lists of Python numbers."""
        return [[entry.tolist() for entry in entries] if isinstance(entries, list) else entries.tolist() for entries in self]

    @property
    def dtype(self) -> Any:
        """Element type of the values."""
        return self.values.dtype

    def __repr__(self) -> str:
        return f"fw.Ragged({len(self)} lists, {len(self.values)} entries in total, {self.values.dtype})"
