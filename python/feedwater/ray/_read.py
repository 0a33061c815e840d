"""A data set of Ray Data whose blocks are batches of feedwater."""

from __future__ import annotations

import json
import math
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy
import pyarrow
import ray.data
from ray.data.block import BlockMetadata
from ray.data.datasource import ReadTask
from ray.data.extensions import ArrowTensorArray

from .. import _feedwater
from .._settings import Given, Operator, Source
from ..batch import Batch
from ..loader import Loader
from ._parts import Order, Part, problems

#: Settings of a loader that the tasks have their own values for.
_OWN = ("device", "framework", "positions", "rank", "world")
#: Bytes of a row without image and targets, for Ray's choice of the number of tasks.
_ROW_BYTES = 128
#: Bytes of a worker process of Ray that has imported what a task needs; measured with Ray 2.60.
_PROCESS_BYTES = 128 << 20


class _Job(NamedTuple):
    """What a read task needs."""

    #: Name of the data set, by which tasks in the same process find the source that one of them has opened.
    name: str
    text: str
    base: str
    own: dict[str, Given]
    state: dict[str, Any]
    batch: int


class Datasource(ray.data.Datasource):  # type: ignore[misc]
    """Batches of a source as a data set of Ray Data; see :func:`read`, whose arguments it has."""

    def __init__(
        self,
        source: Source | str | os.PathLike[str],
        chain: Sequence[Operator] = (),
        *,
        batch: int = 64,
        epoch: int = 0,
        epochs: int = 1,
        state: Mapping[str, Any] | None = None,
        threads: int = 1,
        **settings: Any,
    ) -> None:
        super().__init__()
        own = [name for name in _OWN if name in settings]
        if own:
            raise TypeError(f"{own[0]} cannot be set: read tasks decode on the CPU, and each reads a part of the whole set")
        if getattr(chain, "rest", []):
            raise ValueError("the recipe has transforms that stay Python; apply them with map_batches")
        if epochs < 1:
            raise ValueError(f"epochs is {epochs}; it must be at least 1")
        settings["loader"] = {**(settings.get("loader") or {}), "shard": "none"}
        settings.setdefault("workers", threads)
        # Checks the settings and the state, and knows the order.
        with Loader(source, chain, batch=batch, epoch=epoch, device="cpu", framework="batch", **settings) as loader:
            if state is not None:
                loader.load_state_dict(state)
            self._state = loader.state_dict()
            inner = loader._inner
            (_, *shape), kind = inner.shape
            loader_bytes = inner.memory
            last = json.loads(inner.last)
            text, sequences = loader._text, loader._own
        if kind == "bf16":
            raise ValueError('dtype is "bf16", which Arrow does not have; use "f16" or "f32"')
        begin = self._state["state"]
        self._order = Order(begin["samples"], batch, last, begin["epoch"], begin["position"], epochs)
        self._image = math.prod(shape) * {"u8": 1, "f16": 2, "f32": 4}[kind]
        # Ray collects batches up to the size of a block, and joins them.
        block = max(batch * self._image, ray.data.DataContext.get_current().target_max_block_size or 0)
        #: Predicted bytes of a task: the process, its loader, and a block with the batches of which it is made.
        self.task_memory = _PROCESS_BYTES + loader_bytes + 2 * min(block, self.estimate_inmemory_data_size())
        self._job = _Job(uuid.uuid4().hex, text, os.getcwd(), sequences, begin, batch)

    def __len__(self) -> int:
        """Rows of all epochs, with padding."""
        return self._order.rows

    def state_dict(self, rows: int) -> dict[str, Any]:
        """The position after the first ``rows`` rows, in order, as of :meth:`feedwater.Loader.state_dict`. A loader or another data set
        continues there."""
        epoch, position = self._order.after(rows)
        return {**self._state, "state": {**self._state["state"], "epoch": epoch, "position": position}}

    def get_name(self) -> str:
        """Name of the read tasks."""
        return "Feedwater"

    def estimate_inmemory_data_size(self) -> int:
        """Bytes of all blocks."""
        return len(self) * (self._image + _ROW_BYTES)

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """At most this number of tasks, each with consecutive batches."""
        tasks = []
        for parts in self._order.tasks(parallelism):
            rows = sum(part.rows for part in parts)
            size = rows * (self._image + _ROW_BYTES)
            metadata = BlockMetadata(num_rows=rows, size_bytes=size, input_files=None, exec_stats=None)
            tasks.append(ReadTask(_Blocks(self._job, parts), metadata, per_task_row_limit=per_task_row_limit))
        return tasks


class _Blocks:
    """Reads the parts of a task. The blocks are the same each time, so Ray may repeat a task."""

    __name__ = "feedwater_blocks"

    def __init__(self, job: _Job, parts: list[Part]) -> None:
        self._job = job
        self._parts = parts

    def __call__(self) -> Iterator[pyarrow.Table]:
        pipeline = _opened(self._job)
        for part in self._parts:
            begin = json.dumps({**self._job.state, "epoch": part.epoch, "position": part.begin})
            inner = pipeline.build(epochs=1, state=begin, positions=(part.begin, part.end))
            try:
                epoch = inner.epoch()
                while (made := _next(epoch)) is not None:
                    yield _table(Batch(made), inner, part, self._job.batch)
            finally:
                inner.close()


#: The data set that was read last in this process, and the pipeline with its opened source.
_last: tuple[str, _feedwater.Pipeline] | None = None


def _opened(job: _Job) -> _feedwater.Pipeline:
    """The pipeline with its source, which the process's next task of this data set uses too."""
    global _last
    if _last is None or _last[0] != job.name:
        _last = job.name, _feedwater.Pipeline.from_toml(job.text, job.base, job.own).opened()
    return _last[1]


def _next(epoch: _feedwater.Epoch) -> _feedwater.Batch | None:
    while True:
        try:
            return epoch.next_within(60)
        except TimeoutError:
            continue


def _table(batch: Batch, loader: _feedwater.Loader, part: Part, size: int) -> pyarrow.Table:
    first = part.begin + batch.number * size
    samples, errors = batch.samples, batch.errors
    # Padding repeats the last sample.
    positions = [min(first + place, part.end - 1) for place in range(len(samples))]
    columns = {
        # A copy, as Ray may collect more blocks than the loader has slots.
        "image": ArrowTensorArray.from_numpy(batch.numpy().copy()),
        "label": pyarrow.array(batch.labels, pyarrow.int64()),
        "index": pyarrow.array([sample["index"] for sample in samples], pyarrow.int64()),
        "location": pyarrow.array([loader.location(sample["index"]) for sample in samples], pyarrow.string()),
        "epoch": pyarrow.array([batch.epoch] * len(samples), pyarrow.int64()),
        "position": pyarrow.array(positions, pyarrow.int64()),
        "padding": pyarrow.array([sample["padding"] for sample in samples], pyarrow.bool_()),
        "outcome": pyarrow.array([sample["outcome"] for sample in samples], pyarrow.string()),
        "replaces": pyarrow.array([sample["replaces"] for sample in samples], pyarrow.int64()),
        "error": pyarrow.array([problems(errors, sample) for sample in samples], pyarrow.string()),
    }
    if batch.classes > 0:
        columns["target"] = ArrowTensorArray.from_numpy(numpy.ascontiguousarray(batch.targets()))
    return pyarrow.table(columns)


def read(
    source: Datasource | Source | str | os.PathLike[str],
    chain: Sequence[Operator] = (),
    *,
    batch: int = 64,
    epoch: int = 0,
    epochs: int = 1,
    state: Mapping[str, Any] | None = None,
    num_cpus: float = 1,
    memory: float | None = None,
    override_num_blocks: int | None = None,
    ray_remote_args: Mapping[str, Any] | None = None,
    **settings: Any,
) -> ray.data.Dataset:
    """A data set of Ray Data with the samples that one :class:`feedwater.Loader` with the same arguments gives: the same order, random
    numbers and bytes, for any number of tasks and machines.

    A task reads consecutive batches of the order with a loader of its own, and yields each as a block. A task that is lost is repeated
    by Ray and gives the same blocks. Columns:

    * ``image``: tensor ``[channels, height, width]``, or ``[height, width, channels]`` with ``layout="nhwc"``.
    * ``label``: 64-bit integer, -1 for none. ``target``: tensor ``[classes]`` of f32, with ``classes``.
    * ``index``: place of the sample in the source. ``location``: its path or another name.
    * ``epoch``, ``position``: from 0, in the order of the epoch. ``padding``: whether the row only fills the last batch.
    * ``outcome``: what decoded it, or ``"substituted"`` for a sample that failed and is zeros. ``replaces``: index of the sample that
      failed, with ``on_error="skip"``; else null. ``error``: message of the error of the failed sample, or null.

    Arguments:

    * ``source``: as of :class:`feedwater.Loader`, or a :class:`Datasource`, which then has all arguments of the loader.
    * ``batch``, and others of :class:`feedwater.Loader`: as there. Tasks decode on the CPU.
    * ``epoch``, ``epochs``: first epoch and number of epochs. ``state``: begins at a :meth:`feedwater.Loader.state_dict` instead.
    * ``num_cpus``: cores of a task, and threads of its loader unless ``workers`` is given.
    * ``memory``: bytes that Ray reserves for a task. Default: the predicted memory (``Datasource.task_memory``).
    * ``override_num_blocks``: number of tasks. Default: chosen by Ray from the size.
    * ``ray_remote_args``: other options of the tasks, such as ``resources``.

    The data set keeps the order of rows (``preserve_order`` of its context). Raises classes of :mod:`feedwater.errors`.
    """
    if isinstance(source, Datasource):
        if chain or settings or state is not None or (batch, epoch, epochs) != (64, 0, 1):
            raise TypeError("the source is a Datasource, which has all settings of the loader")
        datasource = source
    else:
        threads = max(1, int(num_cpus))
        datasource = Datasource(
            source, chain, batch=batch, epoch=epoch, epochs=epochs, state=state, threads=threads, **settings
        )
    dataset = ray.data.read_datasource(
        datasource,
        num_cpus=num_cpus,
        memory=datasource.task_memory if memory is None else memory,
        override_num_blocks=override_num_blocks,
        **(ray_remote_args or {}),
    )
    dataset.context.execution_options.preserve_order = True
    return dataset
