"""Batches of a loader as a data set of PyTorch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info

from ..loader import Loader


class Batches(IterableDataset):  # type: ignore[misc]
    """Batches of a loader, without a length. ``copies``: whether batches are copied, for consumers that keep more
    batches than a loader has memory for."""

    def __init__(self, loader: Loader, keys: tuple[str, str] | None, padding_label: int | None, *, copies: bool = False) -> None:
        if loader.framework != "torch":
            raise ValueError(f'the loader gives {loader.framework!r}; build it with framework="torch"')
        if keys is not None and len(keys) != 2:
            raise ValueError(f"keys is {keys!r}; it must be a pair of strings, the key of the images and the key of the labels")
        self.loader = loader
        self.keys = keys
        self.padding_label = padding_label
        self.copies = copies

    def __iter__(self) -> Iterator[Any]:
        if get_worker_info() is not None:
            raise RuntimeError(
                "the DataLoader moved the loader to a worker process, where it has no threads; use DataLoader(..., num_workers=0), because the "
                "loader has threads of its own"
            )
        for batch in self.loader.batches():
            columns = batch._columns("torch")
            images = None
            if self.loader._inner.has_images:
                images, targets = self.loader.pair(batch)
                images = images.clone() if self.copies else images
            else:
                targets = batch._targets("torch")
            if self.padding_label is not None:
                if batch.classes > 0:
                    raise ValueError("targets are soft (the setting classes is set), so no label can mark padding; remove padding_label or classes")
                for place, is_padding in enumerate(batch._inner.padding):
                    if is_padding:
                        targets[place] = self.padding_label
            if self.keys is None and not batch.columns:
                yield images, targets
                continue
            names = self.keys or ("image", "target" if batch.classes else "label")
            yield {**({} if images is None else {names[0]: images}), names[1]: targets, **columns}

    def set_epoch(self, epoch: int) -> None:
        self.loader.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        return self.loader.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.loader.load_state_dict(state)


class BatchDataset(Batches):
    """Batches of a loader. The length is the number of batches."""

    def __len__(self) -> int:
        return self.loader.batches_per_epoch
