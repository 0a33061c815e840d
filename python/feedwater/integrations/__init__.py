"""Loaders as data sets of PyTorch, Keras and Hugging Face.

PyTorch, Lightning, ``accelerate`` and JAX iterate over a :class:`feedwater.Loader` directly. This module is for code
that needs a data set: :func:`torch_dataset`, :func:`keras_dataset`, and :mod:`feedwater.integrations.huggingface` with
a ``Trainer``. Frameworks are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._checks import require_package
from ..loader import Loader

if TYPE_CHECKING:
    from keras.utils import PyDataset
    from torch.utils.data import IterableDataset

__all__ = ["keras_dataset", "torch_dataset"]


def torch_dataset(
    loader: Loader,
    keys: tuple[str, str] | None = None,
    *,
    padding_label: int | None = None,
) -> IterableDataset[Any]:
    """A data set of PyTorch whose items are batches: ``DataLoader(torch_dataset(loader), batch_size=None)``.

    The data set reads the shard of the loader, so no sampler may divide the data again. It has ``set_epoch``,
    ``state_dict`` and ``load_state_dict``. The loader has threads of its own. So ``num_workers`` of the ``DataLoader`` must
    be 0; another number raises ``RuntimeError``.

    * ``keys``: names of images and labels if batches are dictionaries, such as ``("pixel_values", "labels")``. Default:
      pairs.
    * ``padding_label``: label of samples that only fill the last batch (``last_batch="pad"``), such as -100, which losses of
      PyTorch ignore. Default: the label of the sample that padding repeats. With soft targets this setting raises
      ``ValueError``.
    """
    _check(loader, "torch_dataset", "torch", "PyTorch")
    from ._torch import BatchDataset

    return BatchDataset(loader, keys, padding_label)


def keras_dataset(loader: Loader) -> PyDataset:
    """A data set for ``fit``, ``evaluate`` and ``predict`` of a Keras 3 model, with any backend. Each pass is one epoch
    of the loader. Batches are copied once, because Keras keeps more batches than a loader has memory for.

    Keras expects channels last, ``layout="nhwc"``, unless ``keras.config.set_image_data_format("channels_first")`` was
    called.
    """
    _check(loader, "keras_dataset", "keras", "Keras")
    from ._keras import BatchDataset

    return BatchDataset(loader)


def _check(loader: Any, user: str, package: str, name: str) -> None:
    """Checks the argument ``loader``, and that the package that the function ``user`` needs is installed."""
    if not isinstance(loader, Loader):
        raise TypeError(f"loader is a {type(loader).__name__}; it must be a feedwater.Loader")
    require_package(f"fw.integrations.{user}", package, name)
