"""Packs a source into shards on a Ray cluster."""

from __future__ import annotations

import json
import os
import re
import uuid
import warnings
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import ray

from .. import _feedwater, _toml
from .._checks import checked_amount, checked_whole
from .._datasets import as_source
from .._names import suggesting
from .._settings import Given, Source, written
from ..errors import Error
from ..sections import Decode, Limits, Storage, table_of
from ._resources import PROCESS_BYTES, require

#: Number of samples that are encoded to predict the memory of tasks.
_SAMPLED = 8
#: Memory of a thread that downscales images, in bytes. An image that needs more uses `limits.large_image_memory`, which the threads share.
_THREAD_BYTES = 32 << 20
#: Reserved memory of a task, as a multiple of the size of its encoded samples.
#: With Ray 2.60, the measured peak was 2.3 times the size of the encoded samples, plus memory of earlier tasks of the process.
_PIECES = 4

_ENCODES, _WRITES = "a task that encodes", "a task that writes"
_GIVE_MEMORY = 'pass ray_remote_args={"memory": ...}.'


class _Job(NamedTuple):
    """Settings that all tasks of a pack get."""

    #: Name of the pack. Tasks in the same process use it to share an opened source.
    name: str
    text: str
    base: str
    directory: str
    settings: str
    own: dict[str, Given]


class _Encoded(NamedTuple):
    """A piece (consecutive samples encoded by one task) that is being encoded, or has samples that are not written yet."""

    begin: int
    end: int
    sizes: Any
    piece: Any


@suggesting("fw.ray.pack")
def pack(
    source: Source | str | os.PathLike[str],
    directory: str | os.PathLike[str],
    *,
    format: Literal["webdataset", "tfrecord"] = "webdataset",
    name: str = "train",
    shard_bytes: int = 256 << 20,
    shorter: int | None = None,
    quality: int = 90,
    overwrite: bool = False,
    skip: bool = False,
    row_index: bool = True,
    fields: Literal["all", "none"] | Sequence[str] = "all",
    verify: bool = True,
    num_cpus: float = 1,
    samples_per_task: int = 256,
    tasks: int | None = None,
    ray_remote_args: Mapping[str, Any] | None = None,
    decode: Decode | Mapping[str, Any] | None = None,
    limits: Limits | Mapping[str, Any] | None = None,
    storage: Storage | Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Packs a source into shards, as ``feedwater pack`` does, on the machines of a Ray cluster. The files equal those
    that one machine writes, byte for byte. After an interruption or the loss of machines, the next call continues after
    the last listed shard.

    Tasks read and encode each sample once. They send samples through Ray's object store to tasks that write shards. All
    machines need the source and the directory at the same paths. The directory is in a file system, not a URL.

    Tasks reserve memory. Every task reserves 128 MiB for its process. A task that encodes also reserves four times the
    size of ``samples_per_task`` samples, which is predicted from a few encoded samples. With ``shorter`` it reserves 32
    MiB per thread and ``limits.large_image_memory`` (256 MiB) in addition. A task that writes reserves ``shard_bytes``
    and four times the samples of a task that encodes.

    * ``format``, ``name``, ``shard_bytes``: format, name prefix and size of the shards. A shard ends with the sample
      that reaches this size.
    * ``shorter``, ``quality``: images whose shorter side is longer than ``shorter`` pixels become smaller JPEGs of this
      quality, 1 to 100.
    * ``overwrite``: deletes the files of an earlier pack. ``skip``: skips and counts unusable samples.
    * ``row_index``: whether row indexes of JPEGs are stored beside the shards. ``verify``: whether shards are read
      back.
    * ``fields``: fields to store besides images and labels: ``"all"``, ``"none"`` or their names. A field with more bytes
      than ``limits.max_field_bytes`` makes its sample unusable. Of ``fw.samples``, ``"all"`` stores the fields of the first
      item. With ``shorter``, a warning names the stored fields, because coordinates and masks in pixels do not change.
    * ``num_cpus``: number of cores for a task. ``samples_per_task``: number of samples that a task encodes.
    * ``tasks``: maximum number of concurrent tasks that encode. Default: the cluster's cores divided by ``num_cpus``,
      plus one. The object store holds the samples of these tasks and of the shards that are being written.
    * ``ray_remote_args``: other options of the tasks, such as ``resources``. ``memory`` replaces the memory that tasks reserve by default.
    * ``decode``, ``limits``, ``storage``: groups of settings, as in :class:`feedwater.Loader`.

    Returns the manifest: ``shards``, ``skipped``, ``skipped_first``, ``classes``. Raises classes of :mod:`feedwater.errors`, and
    ``RuntimeError`` if no node has the cores and memory of a task.
    """
    if "://" in os.fspath(directory):
        raise ValueError(f"directory is {os.fspath(directory)!r}; shards are written to a file system, not to a URL")
    samples_per_task = checked_whole("samples_per_task", samples_per_task, 1)
    shard_bytes, quality = checked_whole("shard_bytes", shard_bytes, 1), checked_whole("quality", quality, 1, 100, "100")
    tasks = None if tasks is None else checked_whole("tasks", tasks, 1)
    shorter = None if shorter is None else checked_whole("shorter", shorter, 1)
    num_cpus = checked_amount("num_cpus", num_cpus, is_zero_allowed=False)
    threads = max(1, int(num_cpus))
    settings = {
        "format": format,
        "name": name,
        "shard_bytes": shard_bytes,
        "presize": None if shorter is None else {"shorter": shorter, "quality": quality},
        "overwrite": overwrite,
        "skip": skip,
        "threads": threads,
        "row_index": row_index,
        "fields": _chosen(fields),
    }
    text, own = written(as_source(source))
    lines = [f"source = {text}"]
    sections = {"decode": decode, "limits": limits, "storage": storage}
    tables = {name: table_of(name, section) for name, section in sections.items()}
    lines += [f"{name} = {_toml.table(table)}" for name, table in tables.items() if table]
    lines.append("chain = []")
    text = "\n".join(lines) + "\n"
    path = os.path.abspath(os.fspath(directory))
    job = _Job(uuid.uuid4().hex, text, os.getcwd(), path, json.dumps(settings), own)
    packer = _packer(job)
    # Tasks get the names of all fields, because determining them may take a pass over the source.
    names, problems = packer.fields()
    for problem in problems:
        warnings.warn(problem, stacklevel=3)
    job = job._replace(settings=json.dumps({**settings, "fields": {"named": names}}))
    packer = packer.with_fields(names)
    if not ray.is_initialized():
        ray.init()
    options = {"num_cpus": num_cpus, **(ray_remote_args or {})}
    # Memory that a task needs besides its samples, in bytes.
    encode = PROCESS_BYTES + (0 if shorter is None else threads * _THREAD_BYTES + _large_image_memory(job))
    write = PROCESS_BYTES + shard_bytes
    # Check the memory before a manifest is written. The manifest contains these settings, so a later call with other settings would fail.
    require(_ENCODES, {"memory": encode, **options}, f"Lower limits.large_image_memory, or {_GIVE_MEMORY}")
    require(_WRITES, {"memory": write, **options}, f"Lower shard_bytes, or {_GIVE_MEMORY}")
    # Lock the directory before tasks run.
    coordinator = packer.coordinate()
    try:
        if tasks is None:
            tasks = int(ray.cluster_resources().get("CPU", 1) / num_cpus) + 1
        if coordinator.next < coordinator.samples:
            samples = _PIECES * _piece_bytes(packer, coordinator, samples_per_task)
            encode_options, write_options = ({"memory": task + samples, **options} for task in (encode, write))
            require(_ENCODES, encode_options, f"Lower samples_per_task, or {_GIVE_MEMORY}")
            require(_WRITES, write_options, f"Lower samples_per_task, or {_GIVE_MEMORY}")
            _Run(job, coordinator, samples_per_task, tasks, verify, encode_options, write_options).all()
        manifest: dict[str, Any] = json.loads(coordinator.finish())
        return manifest
    finally:
        coordinator.close()


def _chosen(fields: Literal["all", "none"] | Sequence[str]) -> str | dict[str, list[str]]:
    """Returns the choice of fields in the form that the extension reads."""
    if isinstance(fields, str):
        if fields not in ("all", "none"):
            raise ValueError(f'fields is {fields!r}; it must be "all", "none" or a list of names, such as [{fields!r}]')
        return fields
    names = list(fields)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"fields has the entry {name!r}, which is not a str")
    return {"named": names}


def _piece_bytes(packer: _feedwater.Packer, coordinator: _feedwater.PackCoordinator, samples: int) -> int:
    """Predicts the size in bytes of ``samples`` encoded samples, from the mean size of a few
    samples. The few samples are evenly spread over the samples to pack."""
    begin, end = coordinator.next, coordinator.samples
    count = min(_SAMPLED, end - begin)
    sizes = []
    for number in range(count):
        index = begin + (end - begin) * number // count
        try:
            sizes.append(len(packer.encode(index, index + 1)[1]))
        except Error:
            # The sample is unusable. Ignore it here, because the task that encodes it reports the error.
            continue
    return samples * sum(sizes) // max(len(sizes), 1)


def _large_image_memory(job: _Job) -> int:
    """Returns ``limits.large_image_memory`` in bytes. The setting may be a text with a unit."""
    written = _feedwater.Pipeline.from_toml(job.text, job.base).to_toml()
    found = re.search(r"^large_image_memory = (\d+)$", written, re.MULTILINE)
    assert found is not None, written
    return int(found[1])


class _Run:
    """Starts tasks in the order of the source, and uses their results in that order."""

    def __init__(
        self,
        job: _Job,
        coordinator: _feedwater.PackCoordinator,
        samples: int,
        tasks: int,
        verify: bool,
        encode: dict[str, Any],
        write: dict[str, Any],
    ) -> None:
        self._job = ray.put(job)
        self._coordinator = coordinator
        self._samples = samples
        self._tasks = tasks
        self._verify = verify
        self._encode = ray.remote(_encode).options(num_returns=2, name="feedwater.pack.encode", **encode)
        self._write = ray.remote(_write).options(name="feedwater.pack.write", **write)
        #: Pieces that tasks are encoding, in the order of the source.
        self._encoding: deque[_Encoded] = deque()
        #: Encoded pieces with samples of the next shard. Where this shard ends is not known yet.
        self._open: list[_Encoded] = []
        #: Shards that are being written.
        self._writing: deque[Any] = deque()

    def all(self) -> None:
        """Packs all samples that are not yet in a shard that the manifest lists."""
        next_, end = self._coordinator.next, self._coordinator.samples
        try:
            while next_ < end or self._encoding:
                while next_ < end and len(self._encoding) < self._tasks:
                    until = min(next_ + self._samples, end)
                    self._encoding.append(_Encoded(next_, until, *self._encode.remote(self._job, next_, until)))
                    next_ = until
                self._sized(self._encoding.popleft())
        except BaseException:
            # Add the shards that were complete before the error to the manifest.
            self._list(0)
            raise
        self._list(0)

    def _sized(self, encoded: _Encoded) -> None:
        """Waits for the sizes of a piece, and starts writing the shards that end in it."""
        # While the sizes are awaited, add written shards to the manifest, so that a pack that is killed can continue after them.
        while not _done(encoded.sizes, among=[encoded.sizes, *list(self._writing)[:1]]):
            self._list(len(self._writing))
        sizes = _result(encoded.sizes)
        self._open.append(encoded)
        for shard in json.loads(self._coordinator.sized(sizes)):
            pieces = [it.piece for it in self._open if it.begin < shard["end"]]
            written = self._write.remote(self._job, json.dumps(shard), self._verify, *pieces)
            self._writing.append(written)
            self._open = [it for it in self._open if it.end > shard["end"]]
        self._list(self._tasks)

    def _list(self, most: int) -> None:
        """Adds written shards to the manifest, and waits until at most ``most`` shards are still being written."""
        while self._writing:
            if len(self._writing) <= most and not _done(self._writing[0]):
                break
            self._coordinator.written(_result(self._writing.popleft()))


def _done(reference: Any, among: list[Any] | None = None) -> bool:
    """Whether a task has ended. With ``among``, first waits until one of those tasks has ended."""
    if among is not None:
        ray.wait(among)
    done, _ = ray.wait([reference], timeout=0)
    return bool(done)


def _result(reference: Any) -> Any:
    """Returns the value of a task, or raises its error."""
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as problem:
        if isinstance(problem.cause, Exception):
            raise problem.cause from problem
        raise


def _packer(job: _Job) -> _feedwater.Packer:
    pipeline = _feedwater.Pipeline.from_toml(job.text, job.base, job.own)
    return _feedwater.Packer(pipeline, job.directory, job.settings)


#: Name of the pack that last used this process, and its opened source.
_last: tuple[str, _feedwater.Packer] | None = None


def _opened(job: _Job) -> _feedwater.Packer:
    """Opens the source of a pack, and keeps it for later tasks of the same pack in this process."""
    global _last
    # Read `_last` once, because another thread may replace it.
    last = _last
    if last is None or last[0] != job.name:
        last = _last = job.name, _packer(job)
    return last[1]


def _encode(job: _Job, begin: int, end: int) -> tuple[list[int], bytes]:
    return _opened(job).encode(begin, end)


def _write(job: _Job, shard: str, verify: bool, *pieces: bytes) -> str:
    return _opened(job).write(shard, list(pieces), verify)
