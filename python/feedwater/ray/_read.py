"""Reads batches of feedwater as the blocks of a data set of Ray Data."""

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

from .. import _feedwater
from .._checks import check_epoch, checked_amount
from .._names import settings_of, settled
from .._settings import Given, Operator, Source
from ..batch import Batch
from ..loader import BATCH_SIZE, FIELDS, Loader
from ..sections import checked_sections, table_of
from ._columns import ELEMENTS, Fields, FieldType, check_columns, table
from ._parts import Order, Part
from ._resources import PROCESS_BYTES, require

#: Settings of a loader that users cannot set, because read tasks set them.
_OF_TASKS = ("device", "framework", "positions", "rank", "world_size", "shard")
#: Estimated size of a row without image, targets and columns, in bytes. Ray chooses the number of tasks from the estimated size.
_ROW_BYTES = 128


class _Job(NamedTuple):
    """Settings that all read tasks of a data set get."""

    #: Name of the data set. Tasks in the same process use it to share an opened source.
    name: str
    text: str
    base: str
    #: Sources of :func:`feedwater.samples` that the text names, and the columns for their fields.
    own: dict[str, Given]
    fields: Fields
    #: Whether the data set has a column with the masks of annotated objects.
    masks: bool
    state: dict[str, Any]
    batch: int


class Datasource(ray.data.Datasource):  # type: ignore[misc]
    """Batches of a source as a data set of Ray Data; see :func:`read`, which has the same arguments."""

    def __init__(
        self,
        source: Source | str | os.PathLike[str],
        transform: Operator | Sequence[Operator] = (),
        *,
        batch_size: int | None = BATCH_SIZE,
        epoch: int | None = 0,
        epochs: int | None = 1,
        state: Mapping[str, Any] | None = None,
        threads: int | None = 1,
        num_gpus: float | None = 0,
        fields: Mapping[str, FieldType] | None = None,
        masks: bool = False,
        **settings: Any,
    ) -> None:
        super().__init__()
        # All arguments of a loader are arguments of this class too.
        own = {"source": source, "transform": transform or None, "batch_size": None if batch_size is BATCH_SIZE else batch_size}
        given, wrote = settled({**dict.fromkeys(settings_of(Loader.__init__)), **own}, settings, FIELDS)
        transform = given.get("transform", transform)
        epoch, epochs, num_gpus, threads = epoch or 0, 1 if epochs is None else epochs, num_gpus or 0, threads or 1
        check_epoch("epoch", epoch, 0)
        check_epoch("epochs", epochs, 1)
        checked_amount("num_gpus", num_gpus, is_zero_allowed=True)
        if getattr(transform, "rest", []):
            raise ValueError(
                "the recipe has transforms that run in Python (keep_rest), which read tasks do not run; remove them from the recipe and apply "
                "them with map_batches"
            )
        group = table_of("loader", given.get("loader"))
        chosen = {**checked_sections(getattr(transform, "sections", {})).get("loader", {}), **group, **given}
        for name in _OF_TASKS:
            # Read tasks read the whole set, so this value changes nothing.
            if name in chosen and (name, chosen[name]) != ("shard", "none"):
                at = name if wrote.get(name, name) == name else f"{wrote[name]}: {name}"
                raise TypeError(
                    f"{at if name in given else f'loader.{name}'} cannot be set, because Ray divides the set among its read tasks and chooses their "
                    "device (the GPU if num_gpus is set); leave it out"
                )
        if chosen.get("on_error") == "drop":
            raise ValueError('on_error is "drop", but the number of rows must be known; set "substitute", and filter by the column outcome')
        if "num_workers" not in chosen:
            given["num_workers"] = threads
        group = given["loader"] if isinstance(given.get("loader"), Mapping) else group
        given |= {"loader": {**group, "shard": "none"}, "epoch": epoch, "device": "cpu", "framework": "batch"}
        # Build a loader on the CPU to check the settings and the state, and to determine the order. So this machine needs no GPU.
        with Loader(**given) as loader:
            if state is not None:
                loader.load_state_dict(state)
            self._state = loader.state_dict()
            inner = loader._inner
            (batch, *shape), kind = inner.shape
            loader_bytes = inner.memory
            last = json.loads(inner.last)
            text, sequences = loader._text, loader._own
            has_objects = inner.has_objects
            extra = inner.columns
        if masks and not has_objects:
            raise TypeError("masks=True needs annotated objects, which the source does not have; remove masks")
        columns = Fields.of(sequences, fields, has_objects, bool(extra))
        check_columns([name for name, _ in extra], columns)
        if num_gpus > 0:
            # Ray makes only the task's own GPUs visible to it, so the first of them is number 0.
            text = text.replace('device = "cpu"', 'device = "cuda:0"', 1)
        begin = self._state["state"]
        self._order = Order(begin["samples"], batch, last, begin["epoch"], begin["position"], epochs)
        self._image: int = math.prod(shape) * numpy.dtype(ELEMENTS[kind]).itemsize
        # The largest size of a row.
        self._row: int = self._image + _ROW_BYTES + sum(size for _, size in extra)
        # Ray joins batches until a block has this size.
        block = max(batch * (self._row - _ROW_BYTES), ray.data.DataContext.get_current().target_max_block_size or 0)
        #: Predicted memory of a task in bytes: its process, its loader, a block, and the batches from which the block is joined.
        self.task_memory = PROCESS_BYTES + loader_bytes + 2 * min(block, self.estimate_inmemory_data_size())
        #: Number of GPUs for a task.
        self.num_gpus = num_gpus
        self._job = _Job(uuid.uuid4().hex, text, os.getcwd(), sequences, columns, masks, begin, batch)

    def __len__(self) -> int:
        """Number of rows of all epochs, including padding."""
        return self._order.rows

    def state_dict(self, rows: int) -> dict[str, Any]:
        """Returns the position after the first ``rows`` rows in the order of the data set, as a state like that of
        :meth:`feedwater.Loader.state_dict`. A loader or another data set can continue from this state."""
        epoch, position = self._order.after(rows)
        return {**self._state, "state": {**self._state["state"], "epoch": epoch, "position": position}}

    def get_name(self) -> str:
        """Name of the read tasks in Ray's messages."""
        return "Feedwater"

    def estimate_inmemory_data_size(self) -> int:
        """Estimated size of all blocks in bytes."""
        return len(self) * self._row

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """Returns at most this number of tasks, each with consecutive batches."""
        tasks = []
        for parts in self._order.tasks(parallelism):
            rows = sum(part.rows for part in parts)
            size = rows * self._row
            metadata = BlockMetadata(num_rows=rows, size_bytes=size, input_files=None, exec_stats=None)
            tasks.append(ReadTask(_Blocks(self._job, parts), metadata, per_task_row_limit=per_task_row_limit))
        return tasks


class _Blocks:
    """Function of a read task, which reads its parts. Each run returns the same blocks, so Ray may repeat the task."""

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
                inner.keep_fields(self._job.fields.are_read)
                epoch = inner.epoch()
                while (made := _next(epoch)) is not None:
                    yield table(Batch(made), inner, part, self._job.batch, self._job.fields, self._job.masks)
            finally:
                inner.close()


#: Name of the data set that was last read in this process, and its pipeline with an opened source.
_last: tuple[str, _feedwater.Pipeline] | None = None


def _opened(job: _Job) -> _feedwater.Pipeline:
    """Opens the source of a data set, and keeps the pipeline for later tasks of the same data set in this process."""
    global _last
    if _last is None or _last[0] != job.name:
        _last = job.name, _feedwater.Pipeline.from_toml(job.text, job.base, job.own).opened()
    return _last[1]


def _next(epoch: _feedwater.Epoch) -> _feedwater.Batch | None:
    while not (known := epoch.next_within(60))[0]:
        pass
    return known[1]


def read(
    source: Datasource | Source | str | os.PathLike[str],
    transform: Operator | Sequence[Operator] = (),
    *,
    batch_size: int | None = BATCH_SIZE,
    epoch: int | None = 0,
    epochs: int | None = 1,
    state: Mapping[str, Any] | None = None,
    num_cpus: float | None = 1,
    num_gpus: float | None = 0,
    memory: float | None = None,
    fields: Mapping[str, FieldType] | None = None,
    masks: bool = False,
    override_num_blocks: int | None = None,
    ray_remote_args: Mapping[str, Any] | None = None,
    **settings: Any,
) -> ray.data.Dataset:
    """Returns a data set of Ray Data with the samples that one :class:`feedwater.Loader` with the same arguments gives.
    Order, random numbers and bytes are the same for any number of tasks and machines.

    A task reads consecutive batches of the order with its own loader, and yields each batch as a block. Ray repeats a
    task that is lost, which gives the same blocks. Columns:

    * ``image``: tensor ``[channels, height, width]``, or ``[height, width, channels]`` with ``layout="nhwc"``. Images
      of ``bf16`` are 16-bit integers with the same bits; convert them with ``batch["image"].view(torch.bfloat16)``,
      which does not copy.
    * ``label``: 64-bit integer; -1 without a label, -100 (``ignore_label``) for a substituted sample. ``target``: soft
      target, a tensor ``[classes]`` of f32; only if ``classes`` is set.
    * ``index``: index of the sample in the source. ``location``: its path or another name.
    * ``epoch``: number of the epoch, from 0. ``position``: position in the order of the epoch, from 0. ``padding``:
      whether the row only fills the last batch.
    * ``outcome``: the route that decoded the sample, or ``"substituted"`` for a failed sample that was replaced with
      zeros. ``replaces``: index of the failed sample that this one replaces, with ``on_error="skip"``; otherwise null.
      ``error``: error message of the failed sample, or null.
    * If the source has annotations (:func:`feedwater.coco`), the values of :meth:`feedwater.Batch.objects` for each
      sample, as lists: ``boxes`` of four f32, ``categories``, ``object_ids``, ``areas``, ``visible`` and ``crowd``.
      With ``masks`` also ``masks``: COCO's compressed run lengths in the size of the image, null for an object without
      an outline.
    * One column for each entry of ``columns``: dense numbers, views and masks as tensors, lists, points and boxes as lists, texts and bytes as
      such, several texts as lists of texts. It replaces a column of annotated objects with the same name. Numbers of ``bf16`` are 16-bit
      integers with the same bits. Without operators, there is no column ``image``.
    * One column for each field of the items of :func:`feedwater.samples` if fields are a dictionary, otherwise the
      column ``fields``. A sample without a field has null, also if it is from another source of a combination.

    Arguments:

    * ``source``: as in :class:`feedwater.Loader`, or a :class:`Datasource`. A ``Datasource`` already has the arguments of
      the loader, so they must not be given here.
    * ``transform``, ``batch_size`` and other arguments of :class:`feedwater.Loader` have the same meaning as in that class.
    * ``epoch``: first epoch. ``epochs``: number of epochs. ``state``: state of :meth:`feedwater.Loader.state_dict` at which
      the data set begins, instead of ``epoch``.
    * ``num_cpus``: number of cores for a task, and of threads of its loader unless ``num_workers`` is given.
    * ``num_gpus``: number of GPUs for a task. Above 0, the task decodes and transforms on the first of these GPUs, and
      copies the batches to host memory.
    * ``memory``: bytes that Ray reserves for a task. Default: the predicted memory (``Datasource.task_memory``).
    * ``fields``: names and types of the fields that become columns, such as ``{"caption": str, "score": float}``. Types
      are ``int``, ``float``, ``bool``, ``str``, ``bytes``, or a type of Arrow. Default: all fields of the first item of
      each sequence, with the types of their values. Arrays of NumPy with one or two axes become lists, such as
      ``list<fixed_size_list<float>[4]>`` for boxes. The chain does not transform them. With ``columns``, fields of other
      types, such as lists, are left out.
    * ``masks``: whether the data set has a column with the masks of annotated objects.
    * ``override_num_blocks``: number of tasks. Default: Ray chooses it from the estimated size of the data set.
    * ``ray_remote_args``: other options of the tasks, such as ``resources``.

    The data set keeps the order of rows (``preserve_order`` of its context). Raises classes of :mod:`feedwater.errors`, and ``RuntimeError``
    if no node has the cores, GPUs and memory of a task.
    """
    if settings.get("threads") is not None:
        raise TypeError("fw.ray.read has no parameter threads; write num_cpus=, or num_workers= for another number of threads than cores")
    settings.pop("threads", None)
    num_cpus = checked_amount("num_cpus", 1 if num_cpus is None else num_cpus, is_zero_allowed=True)
    if isinstance(source, Datasource):
        given = {name: value for name, value in settings.items() if value is not None} or fields is not None or masks or state is not None
        other = batch_size not in (None, BATCH_SIZE) or epoch not in (None, 0) or epochs not in (None, 1) or num_gpus not in (None, 0)
        if transform or given or other:
            raise TypeError("the source is a Datasource, which already has all settings of the loader; pass the settings to Datasource")
        datasource = source
    else:
        threads = max(1, int(num_cpus))
        datasource = Datasource(
            source,
            transform,
            batch_size=batch_size,
            epoch=epoch,
            epochs=epochs,
            state=state,
            threads=threads,
            num_gpus=num_gpus,
            fields=fields,
            masks=masks,
            **settings,
        )
    options = {
        "num_cpus": num_cpus,
        "num_gpus": datasource.num_gpus,
        "memory": datasource.task_memory if memory is None else memory,
        **(ray_remote_args or {}),
    }
    dataset = ray.data.read_datasource(datasource, override_num_blocks=override_num_blocks, **options)
    require("a read task", options, "Change num_cpus, num_gpus or memory, or start such a node first.")
    dataset.context.execution_options.preserve_order = True
    return dataset
