"""Runs models on the images of a data set, to compute embeddings or predictions."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy
import pyarrow
import ray.data
from ray.data.extensions import ArrowTensorArray

from ._columns import ELEMENTS

#: A model. It returns an array or tensor with one row per image, or a dictionary of such arrays by name.
Model = Callable[[Any], Any]


def map_batches(
    dataset: ray.data.Dataset,
    model: Model | type,
    *,
    framework: Literal["numpy", "torch"] = "torch",
    batch_size: int | None = None,
    output: str = "embedding",
    keep: Sequence[str] = ("index", "label", "location"),
    arguments: Mapping[str, Any] | None = None,
    **options: Any,
) -> ray.data.Dataset:
    """Runs a model on the images of :func:`read`. The returned data set has the model's outputs, and the columns in ``keep``:

        class Embed:
            def __init__(self):
                self.model = load().eval().cuda()

            def __call__(self, images):
                with torch.inference_mode():
                    return self.model(images.cuda())

        embedded = fw.ray.map_batches(dataset, Embed, num_gpus=1, compute=ray.data.ActorPoolStrategy(size=8))
        embedded.write_parquet("embeddings")

    Images are not copied. Their array is in the memory of Ray's object store, so the model must not write to it. The
    result has no rows for padding.

    * ``model``: a function of the images, or a class whose objects can be called with the images. Each worker
      creates one object of the class.
    * ``framework``: the images are an array (``"numpy"``) or a tensor (``"torch"``) in host memory. Images of ``bf16``
      are a tensor of ``torch.bfloat16``, or an array of ``ml_dtypes.bfloat16``, which must be installed.
    * ``batch_size``: number of images per call. Default: the number in a batch of :func:`read`. With another number,
      the images are copied, to join those of several batches.
    * ``output``: name of the new column, unless the model returns a dictionary of arrays by name. Vectors become lists
      of fixed size, which every reader of Parquet supports.
    * ``keep``: columns that the result keeps.
    * ``arguments``: arguments for creating the object of a class. ``options``: other options of Ray's ``map_batches``, such as ``num_gpus``,
      ``num_cpus``, ``compute``.
    """
    if framework not in ("numpy", "torch"):
        raise ValueError(f'framework is {framework!r}; it is "numpy" or "torch"')
    is_class = isinstance(model, type)
    if arguments and not is_class:
        raise TypeError("arguments for a constructor are given, but the model is a function; pass a class, or remove the arguments")
    if isinstance(keep, str):
        raise TypeError(f"keep is {keep!r}; it must be a list of columns, such as [{keep!r}]")
    settings = (framework, output, keep, batch_size is None)
    return dataset.map_batches(
        _Actor if is_class else _Applied(model, *settings).apply,
        fn_constructor_args=(model, dict(arguments or {}), *settings) if is_class else None,
        batch_format="pyarrow",
        batch_size=batch_size,
        zero_copy_batch=True,
        **options,
    )


class _Applied:
    """Applies a model to the tables that Ray passes to it."""

    def __init__(self, model: Model, framework: str, output: str, keep: Sequence[str], by_batch: bool) -> None:
        self._model = model
        self._framework = framework
        self._output = output
        self._keep = list(keep)
        # If true, the model is called once for each batch of a table. Otherwise it is called once for the whole table.
        self._by_batch = by_batch

    def apply(self, table: pyarrow.Table) -> pyarrow.Table:
        if len(table) == 0:
            return table
        # Batches are chunks of the table, so this copies nothing.
        tables = (pyarrow.Table.from_batches([it]) for it in table.to_batches()) if self._by_batch else [table]
        return pyarrow.concat_tables([self._outputs(table) for table in tables if len(table) > 0])

    def _outputs(self, table: pyarrow.Table) -> pyarrow.Table:
        kept = table.select(self._keep)
        given = self._model(_images(table.column("image"), self._framework))
        named = given if isinstance(given, Mapping) else {self._output: given}
        for name, values in named.items():
            array = _host(values)
            if array.ndim == 0 or len(array) != len(table):
                raise ValueError(f"the output {name} of the model has shape {list(array.shape)}; its first dimension must be {len(table)}, the number of images")
            kept = kept.append_column(name, _column(array))
        padding = table.column("padding").to_numpy() if "padding" in table.column_names else numpy.zeros(len(table), bool)
        return kept.filter(pyarrow.array(~padding)) if padding.any() else kept


class _Actor:
    """Applies a model that is a class. Ray creates one object of this actor, and so of the model, per worker."""

    def __init__(self, model: type, arguments: Mapping[str, Any], *settings: Any) -> None:
        self._applied = _Applied(model(**arguments), *settings)

    def __call__(self, table: pyarrow.Table) -> pyarrow.Table:
        return self._applied.apply(table)


def _images(column: pyarrow.ChunkedArray, framework: str) -> Any:
    """Returns a column of tensors as one array, without a copy if the column is one chunk."""
    array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    images = array.to_numpy_ndarray()
    is_bf16 = images.dtype == ELEMENTS["bf16"]
    if framework == "numpy":
        if not is_bf16:
            return images
        import ml_dtypes

        return images.view(ml_dtypes.bfloat16)
    import torch

    with warnings.catch_warnings():
        # The memory of a block is read-only. PyTorch warns about this, because its tensors cannot be read-only.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        tensor = torch.from_numpy(images)
    return tensor.view(torch.bfloat16) if is_bf16 else tensor


def _host(values: Any) -> numpy.ndarray[Any, Any]:
    """Converts to an array of NumPy, also tensors on a GPU and types that NumPy does not have."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        values = values.float() if str(values.dtype) == "torch.bfloat16" else values
    return numpy.asarray(values)


def _column(array: numpy.ndarray[Any, Any]) -> pyarrow.Array:
    if array.ndim == 1:
        return pyarrow.array(array)
    if array.ndim == 2:
        flat = pyarrow.array(numpy.ascontiguousarray(array).reshape(-1))
        return pyarrow.FixedSizeListArray.from_arrays(flat, array.shape[1])
    return ArrowTensorArray.from_numpy(array)
