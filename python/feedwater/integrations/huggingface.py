"""Loaders for ``accelerate`` and the ``Trainer`` of ``transformers``.

    from feedwater.integrations.huggingface import Trainer

    trainer = Trainer(model=model, args=arguments, train_dataset=loader, eval_dataset=evaluation)

Each process reads the shard of its loader. Neither ``accelerate`` nor ``transformers`` divides this shard again.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import accelerate
import transformers
import transformers.trainer
from accelerate.data_loader import DataLoaderShard

from ..loader import Loader
from ._torch import Batches

__all__ = ["LoaderTrainer", "Trainer", "accelerate_loader"]

#: Label of padding, which only fills a batch. Losses of PyTorch ignore this label. Your metrics must ignore it too.
IGNORED_LABEL = -100


class _LoaderShard(DataLoaderShard):  # type: ignore[misc]
    """Stands in for the result of ``accelerator.prepare(DataLoader)``. It does not divide the shard of its loader among processes again."""

    #: ``prepare`` returns this object unchanged.
    _is_accelerate_prepared = True

    def __len__(self) -> int:
        return int(self.dataset.loader.batches_per_epoch)

    def after(self, batches: int) -> _LoaderShard:
        """Returns the rest of an epoch, without its first ``batches`` batches."""
        return _LoaderShard(_Rest(self.dataset, batches), batch_size=None, iteration=self.iteration)


class _Rest(Batches):
    """The batches of one epoch without its first ``skipped`` batches, which are not read."""

    def __init__(self, whole: Batches, skipped: int) -> None:
        super().__init__(whole.loader, whole.keys, whole.padding_label, copies=whole.copies)
        self._skipped = skipped
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        # Only remember the epoch. `__iter__` moves the loader to this epoch and the position in it.
        self._epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        self.loader.load_state_dict(self.loader._state_after(self._epoch, self._skipped))
        yield from super().__iter__()


def _skip_first_batches(dataloader: Any, num_batches: int = 0) -> Any:
    """Replaces ``skip_first_batches`` of ``accelerate``, which reads the batches that it skips. For a loader, this function
    moves to the position instead."""
    if isinstance(dataloader, _LoaderShard):
        return dataloader.after(num_batches)
    return accelerate.skip_first_batches(dataloader, num_batches)


# To continue in the middle of an epoch, the Trainer calls `skip_first_batches` of its module. It has no hook for another function, so replace
# the function in the module.
transformers.trainer.skip_first_batches = _skip_first_batches


def accelerate_loader(loader: Loader, keys: tuple[str, str] | None = None) -> DataLoaderShard:
    """Wraps a loader as ``accelerator.prepare`` wraps a ``DataLoader``, for code that must know which batch is the last one. For example,
    ``accelerator.accumulate`` then makes an optimizer step at the end of each epoch.

    Other code can loop over the loader itself. The returned object reads one batch in advance, so ``loader.state_dict()`` is correct only
    at the end of an epoch.

    * ``keys``: names of images and labels if batches are dictionaries. Default: pairs.
    """
    return _LoaderShard(Batches(loader, keys, None), batch_size=None)


class LoaderTrainer:
    """Lets a ``Trainer`` read loaders: ``class MyTrainer(LoaderTrainer, transformers.Trainer)``.

    ``train_dataset``, ``eval_dataset`` and the data sets of ``evaluate`` and ``predict`` may then be a
    :class:`feedwater.Loader`. Other data sets work as before.

    * The batch sizes of the loaders apply, so those of ``TrainingArguments`` should equal them.
    * Training that continues from a checkpoint gets the remaining batches of its epoch, without reading the earlier
      ones. Build the loader with the same arguments and number of processes as before.
    * With ``gradient_accumulation_steps`` above 1, batches are copied, because the ``Trainer`` keeps more of them than
      a loader has memory for. With 1, the loader's ``prefetch`` must be at least 2, which is the default.
    * With several processes, build the loader of the evaluation with ``last_batch="pad"``. All ranks then have the same
      number of batches. Samples that only fill a batch have the label -100.
    """

    #: Names of images and labels in a batch: arguments of the model's ``forward``.
    loader_keys = ("pixel_values", "labels")

    def get_train_dataloader(self) -> Any:
        dataset = self.train_dataset  # type: ignore[attr-defined]
        if isinstance(dataset, Loader):
            return self._prepared(dataset)
        return super().get_train_dataloader()  # type: ignore[misc]

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        dataset = self.eval_dataset if eval_dataset is None else eval_dataset  # type: ignore[attr-defined]
        if isinstance(eval_dataset, str):
            dataset = self.eval_dataset[eval_dataset]  # type: ignore[attr-defined]
        if isinstance(dataset, Loader):
            return self._prepared(dataset)
        return super().get_eval_dataloader(eval_dataset)  # type: ignore[misc]

    def get_test_dataloader(self, test_dataset: Any) -> Any:
        if isinstance(test_dataset, Loader):
            return self._prepared(test_dataset)
        return super().get_test_dataloader(test_dataset)  # type: ignore[misc]

    def num_examples(self, dataloader: Any) -> int:
        if isinstance(dataloader, _LoaderShard):
            return int(dataloader.dataset.loader.samples)
        return int(super().num_examples(dataloader))  # type: ignore[misc]

    def _prepared(self, loader: Loader) -> _LoaderShard:
        # Return the same object for a loader each time, because the object counts the loader's epochs.
        known: weakref.WeakKeyDictionary[Loader, _LoaderShard] = self.__dict__.setdefault("_loaders", weakref.WeakKeyDictionary())
        if loader not in known:
            # With gradient accumulation, the Trainer holds the batches of two optimizer steps and one more. The loader has no memory for so many, so copy them.
            copies = self.args.gradient_accumulation_steps > 1  # type: ignore[attr-defined]
            known[loader] = _LoaderShard(Batches(loader, self.loader_keys, IGNORED_LABEL, copies=copies), batch_size=None)
        return known[loader]


class Trainer(LoaderTrainer, transformers.Trainer):  # type: ignore[misc]
    """``transformers.Trainer`` whose data sets may be loaders."""
