"""The loader."""

from __future__ import annotations

import atexit
import json
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from . import _feedwater, _toml
from ._settings import BatchOperator, Given, Operator, Samples, Source, written
from .batch import Batch, Meaning
from .errors import ConfigError, StoppedError
from .report import Report

if TYPE_CHECKING:
    from types import TracebackType
    from typing import NoReturn

__all__ = ["Loader"]

Framework = Literal["torch", "numpy", "jax", "tensorflow", "batch"]

#: Version of the dictionary that :meth:`Loader.state_dict` returns.
_STATE_VERSION = 1
#: Seconds between looks for warnings while a batch is awaited.
_WARN_EVERY = 1.0

_log = logging.getLogger("feedwater")

# The threads of loaders end before the interpreter.
atexit.register(_feedwater.finish)


class Loader:
    """Batches of a source, prepared by threads outside of the interpreter while the model works.

        loader = fw.Loader("data/train", fw.train_recipe(224), batch=256, seed=42)
        for epoch in range(90):
            for images, labels in loader:
                ...

    Each ``for`` loop is one epoch. An iteration gives a pair of images and labels; with ``classes`` the second is the soft targets.
    Memory goes back to the loader when the images are gone: ``clone`` what must live longer than the next few batches.

    * ``source``: a function of :mod:`feedwater.sources`, a path or URL, whose kind is recognised, :func:`feedwater.samples`, or a
      combination of them.
    * ``chain``: operators of :mod:`feedwater.ops` in order, or a recipe.
    * ``batch``: samples of a batch.
    * ``framework``: what the images and labels are: tensors of ``"torch"``, ``"jax"`` or ``"tensorflow"``, arrays of ``"numpy"``, or ``"batch"``
      for :class:`feedwater.Batch` instead of pairs.
    * ``device``: ``"auto"`` (default), ``"cpu"``, ``"cuda"`` (the GPU of the launcher's local rank) or ``"cuda:N"``.
    * ``dtype``: ``"f32"`` (default), ``"f16"``, ``"bf16"`` or ``"u8"``. ``layout``: ``"nchw"`` (default) or ``"nhwc"``.
    * ``shuffle``, ``seed``: a recipe for training shuffles; otherwise the order is that of the source. The seed is 0 by default.
    * ``workers``: threads, or ``"auto"``. ``prefetch``: batches, or ``"auto"``.
    * ``last``: ``"drop"`` (default), ``"pad"`` or ``"partial"``: samples that do not fill the last batch. Recipes for evaluation have
      ``"partial"``.
    * ``on_error``: ``"stop"`` (default), ``"skip"`` or ``"substitute"``: images that cannot be used.
    * ``rank``, ``world``: the shard. Default: those of the process group of ``torch.distributed``, also if it is initialized after the
      loader was built; without one, those of the launcher (``torchrun``, Slurm, MPI), by its environment variables.
    * ``epoch``, ``epochs``: the first epoch, from 0, and their number; without it there is no end.
    * ``positions``: first position of each epoch's order, and the one after the last. The samples and pixels there are those of a loader
      of the whole epoch, so loaders of consecutive parts, on any machines, give together what one loader gives. Parts should begin where
      one of its batches begins.
    * ``batch_operators``, ``classes``, ``smoothing``: operators on pairs of samples, and soft targets.
    * ``classes_of``: gives the classes the numbers that they have elsewhere, which a validation set needs that lacks a class: another
      loader, its :meth:`state_dict`, or names in the order of their numbers. See :meth:`feedwater.Source.with_classes`.
    * ``loader``, ``decode``, ``output``, ``targets``, ``cache``, ``limits``, ``storage``: other settings of these sections of a pipeline file.

    Threads may share a loader, and an iterator of it: each batch goes to one of them. :meth:`set_epoch`, :meth:`load_state_dict` and
    :meth:`close` end the running epoch of all threads.

    Raises a class of :mod:`feedwater.errors`.
    """

    def __init__(
        self,
        source: Source | str | os.PathLike[str],
        chain: Sequence[Operator] = (),
        *,
        batch: int = 64,
        framework: Framework = "torch",
        device: str | None = None,
        dtype: Literal["f32", "f16", "bf16", "u8"] | None = None,
        layout: Literal["nchw", "nhwc"] | None = None,
        shuffle: bool | None = None,
        seed: int | None = None,
        workers: int | Literal["auto"] | None = None,
        prefetch: int | Literal["auto"] | None = None,
        last: Literal["drop", "pad", "partial"] | None = None,
        on_error: Literal["stop", "skip", "substitute"] | None = None,
        rank: int | None = None,
        world: int | None = None,
        epoch: int = 0,
        epochs: int | None = None,
        positions: tuple[int, int] | None = None,
        batch_operators: Sequence[BatchOperator] = (),
        classes: int | None = None,
        smoothing: float | None = None,
        classes_of: Loader | Mapping[str, Any] | Sequence[str] | None = None,
        loader: Mapping[str, Any] | None = None,
        decode: Mapping[str, Any] | None = None,
        output: Mapping[str, Any] | None = None,
        targets: Mapping[str, Any] | None = None,
        cache: Mapping[str, Any] | None = None,
        limits: Mapping[str, Any] | None = None,
        storage: Mapping[str, Any] | None = None,
    ) -> None:
        arguments = {
            "batch": batch,
            "shuffle": shuffle,
            "seed": seed,
            "workers": workers,
            "prefetch": prefetch,
            "last": last,
            "on_error": on_error,
            "rank": rank,
            "world": world,
        }
        sections = {
            "loader": {**(loader or {}), **_given(arguments)},
            "decode": decode,
            "output": {**(output or {}), **_given({"dtype": dtype, "layout": layout})},
            "targets": {**(targets or {}), **_given({"classes": classes, "smoothing": smoothing})},
            "cache": cache,
            "limits": limits,
            "storage": storage,
        }
        recipe: Mapping[str, Mapping[str, Any]] = getattr(chain, "sections", {})
        sections = {name: {**recipe.get(name, {}), **(section or {})} for name, section in sections.items()}
        lines = [] if device is None else [f"device = {_toml.value(device)}"]
        table, own = _source(source, _names_of(classes_of))
        lines.append(f"source = {table}")
        lines += [f"{name} = {_toml.table(section)}" for name, section in sections.items() if section]
        lines.append(f"chain = {_toml.value(list(chain))}")
        batch_operators = list(batch_operators) or getattr(chain, "batch_operators", [])
        if batch_operators:
            lines.append(f"batch_operators = {_toml.value(list(batch_operators))}")
        rest = getattr(chain, "rest", [])
        if rest and framework != "torch":
            raise ValueError(f'the recipe has transforms that stay Python, which need framework="torch"; it is {framework!r}')
        #: Text of the pipeline file, and the sequences that it names.
        self._text = "\n".join(lines) + "\n"
        self._own = own
        pipeline = _feedwater.Pipeline.from_toml(self._text, os.getcwd(), own)
        self._begin(pipeline, framework, rest, epoch, epochs, positions)

    @classmethod
    def from_toml(
        cls,
        path: str | os.PathLike[str],
        *,
        framework: Framework = "torch",
        own: Mapping[str, Samples] | None = None,
    ) -> Loader:
        """A loader of a pipeline file. ``own``: the sequences that the file names, such as ``own = "new"``, by these names."""
        given = {}
        for name, sequence in (own or {}).items():
            if not isinstance(sequence, Samples):
                raise TypeError(f"own[{name!r}] is a {type(sequence).__name__}; it is fw.samples(items)")
            given[name] = sequence.given()
        loader = cls.__new__(cls)
        loader._begin(_feedwater.Pipeline.from_file(path, given), framework, [])
        return loader

    def _begin(
        self,
        pipeline: _feedwater.Pipeline,
        framework: Framework,
        rest: Sequence[Callable[[Any], Any]],
        epoch: int = 0,
        epochs: int | None = None,
        positions: tuple[int, int] | None = None,
    ) -> None:
        if framework not in ("torch", "numpy", "jax", "tensorflow", "batch"):
            raise ValueError(f'framework is {framework!r}; it is "torch", "numpy", "jax", "tensorflow" or "batch"')
        self._pipeline = pipeline
        self._framework: Framework = framework
        self._rest = rest
        self._warned: dict[str, object] = {}
        # For beginning an epoch, and for replacing or closing the inner loader. A signal handler may close a loader meanwhile.
        self._lock = threading.RLock()
        self._closed = False
        # The epoch that the next loop runs.
        self._next = epoch
        self._end = None if epochs is None else epoch + epochs
        self._positions = positions
        self._inner = self._built(epoch, None)
        self._meaning = Meaning(self._inner.classes, self._inner.normalization)

    def _built(self, epoch: int, state: str | None) -> _feedwater.Loader:
        first = epoch if state is None else json.loads(state).get("epoch", 0)
        return self._pipeline.build(
            epoch=epoch,
            epochs=None if self._end is None else max(self._end - first, 0),
            state=state,
            positions=self._positions,
            shard=None if self._pipeline.has_shard else _process_group(),
        )

    def _follow_group(self) -> None:
        """Frameworks such as Lightning initialize the process group after the loader was built."""
        group = None if self._closed or self._pipeline.has_shard else _process_group()
        if group is None:
            return
        with self._lock:
            if group != self._inner.shard:
                self._rebuild(0, json.loads(self._inner.state()))

    def __len__(self) -> int:
        """Batches of an epoch, on this shard."""
        self._follow_group()
        return self._inner.batches_per_epoch

    def __iter__(self) -> Iterator[Any]:
        # Neither keeps a batch that it gave, so memory is free when the loop lets it go.
        return self.batches() if self._framework == "batch" else map(self.pair, self.batches())

    def pair(self, batch: Batch) -> tuple[Any, Any]:
        """Images and targets of a batch of this loader, as a loop with its ``framework`` gives them."""
        if self._framework == "batch":
            raise ValueError('the loader was built with framework="batch", which has no pairs; use batch.pair("torch")')
        images, targets = batch.pair(self._framework)
        return _applied(self._rest, images) if self._rest else images, targets

    def batches(self) -> Iterator[Batch]:
        """The batches of the next epoch. If the loop is left early, the next loop is the epoch after it."""
        return _Batches(self)

    def _epoch(self) -> tuple[_feedwater.Loader, _feedwater.Epoch]:
        """Begins the next epoch."""
        with self._lock:
            if self._closed:
                raise StoppedError("the loader is closed")
            self._follow_group()
            epoch = self._inner.epoch()
            self._next = epoch.number + 1
            return self._inner, epoch

    def _awaited(self, inner: _feedwater.Loader, epoch: _feedwater.Epoch) -> Batch | None:
        """The next batch, or ``None`` at the end."""
        while True:
            try:
                batch = epoch.next_within(_WARN_EVERY)
            except TimeoutError:
                self._warn(inner)
                continue
            if batch is None:
                return None
            return Batch(batch, self._meaning, inner.fields(batch))

    def _warn(self, inner: _feedwater.Loader) -> None:
        """Logs the warnings that are new."""
        mine = object()
        for warning in inner.warnings():
            # One call, so that of several threads one logs it.
            if self._warned.setdefault(warning, mine) is mine:
                _log.warning("%s", warning)

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next loop, from 0. It costs nothing if that is the next epoch anyway; else the source is opened again
        and caches are lost."""
        with self._lock:
            if epoch != self._next:
                self._rebuild(epoch, None)

    @property
    def sampler(self) -> Loader | None:
        """The loader itself if it shuffles, because Lightning sets the epoch by ``sampler.set_epoch``: a run that continues after a whole
        epoch then has the next one."""
        return self if json.loads(self._inner.state())["shuffle"] else None

    @property
    def batch_sampler(self) -> None:
        """``None``: Lightning asks for it beside ``sampler``."""
        return None

    def state_dict(self) -> dict[str, Any]:
        """The position, from which :meth:`load_state_dict` continues with exactly the samples that are left, with any batch size and
        number of shards. Batches that a loop was given count as consumed. It is the same on all ranks."""
        state: dict[str, Any] = {"version": _STATE_VERSION, "state": json.loads(self._inner.state())}
        classes = self.classes
        # A model needs the names with its weights. `classes_of` reads them.
        return {**state, "classes": classes} if classes else state

    def _state_after(self, epoch: int, batches: int) -> dict[str, Any]:
        """The position in an epoch, from 0, after this number of batches of each shard."""
        (batch, *_), _ = self._inner.shape
        _, world = self.shard
        state = self.state_dict()
        begin, end = self._positions or (0, self.samples)
        position = min(begin + batches * batch * world, end)
        return {**state, "state": {**state["state"], "epoch": epoch, "position": position}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues at a position. The next loop has what is left of the epoch. A loop that runs ends."""
        version = state.get("version")
        if version != _STATE_VERSION:
            raise ValueError(f"the state has version {version!r}; this version of feedwater reads {_STATE_VERSION}")
        _check_classes(state.get("classes"), self.classes)
        with self._lock:
            self._rebuild(0, state["state"])

    def _rebuild(self, epoch: int, state: Mapping[str, Any] | None) -> None:
        """Replaces the inner loader. The caller holds the lock."""
        if self._closed:
            raise StoppedError("the loader is closed")
        # Both loaders at once could need more memory than there is.
        before = self._inner.state()
        self._inner.close()
        try:
            self._inner = self._built(epoch, None if state is None else json.dumps(state))
        except Exception:
            self._inner = self._built(0, before)
            raise
        except BaseException:
            # Ctrl-C: to build the former loader again could take as long.
            self._closed = True
            raise
        self._next = json.loads(self._inner.state())["epoch"]

    @property
    def framework(self) -> Framework:
        """What batches are: the argument."""
        return self._framework

    @property
    def device(self) -> str:
        """Where batches are made, and why."""
        return self._inner.device

    @property
    def shard(self) -> tuple[int, int]:
        """Rank, from 0, and world: the number of loaders that share an epoch."""
        self._follow_group()
        return self._inner.shard

    @property
    def samples(self) -> int:
        """Samples of the source."""
        return self._inner.samples

    @property
    def classes(self) -> list[str]:
        """Names of the classes in the order of their labels; empty if the source has none."""
        return self._inner.classes

    def location(self, index: int) -> str:
        """Path of a sample, or another name for it. Indices are those of :attr:`Batch.indices`."""
        return self._inner.location(index)

    @property
    def stats(self) -> dict[str, Any]:
        """Counts and times since the loader was built: every sample's outcome, bytes, memory, caches."""
        stats: dict[str, Any] = json.loads(self._inner.stats())
        return stats

    @property
    def warnings(self) -> list[str]:
        """What deserves attention. Also logged as warnings of the logger ``feedwater``."""
        return self._inner.warnings()

    def report(self) -> Report:
        """What limits the loop so far, and what to change. Needs two batches."""
        return Report(*self._inner.report())

    def plan(self) -> str:
        """Where each step runs, and all memory, as ``feedwater plan`` prints it."""
        return self._inner.plan()

    def settings(self) -> str:
        """The pipeline file with every setting written out. A sequence is ``own = "samples"`` in it, a second one ``own = "samples2"``;
        only a program can run such a file, by :meth:`from_toml` with ``own``."""
        return self._pipeline.to_toml()

    def close(self) -> None:
        """Ends the threads. Tensors stay valid."""
        self._shut(wait=True)

    def _shut(self, wait: bool) -> None:
        with self._lock:
            self._closed = True
        self._inner.close(wait)

    def __enter__(self) -> Loader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # After Ctrl-C nobody wants to wait for the items of a sequence that are being read.
        self._shut(wait=kind is None or not issubclass(kind, KeyboardInterrupt))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a feedwater.Loader has threads and cannot be copied or pickled; build it in the process that uses it")

    def __repr__(self) -> str:
        return "<feedwater.Loader, closed>" if self._closed else f"<feedwater.Loader of {self.samples} samples>"


class _Batches(Iterator[Batch]):
    """The batches of an epoch, which begins when the first one is asked for. Threads may share it."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._begun = False
        # While the epoch runs.
        self._running: tuple[_feedwater.Loader, _feedwater.Epoch] | None = None

    def __next__(self) -> Batch:
        if not self._begun:
            self._begin()
        running = self._running
        if running is None:
            raise StopIteration
        try:
            batch = self._loader._awaited(*running)
        except BaseException:
            self._running = None
            raise
        if batch is None:
            self._running = None
            self._loader._warn(running[0])
            raise StopIteration
        return batch

    def _begin(self) -> None:
        with self._loader._lock:
            if not self._begun:
                self._running = self._loader._epoch()
                self._begun = True


def _process_group() -> tuple[int, int] | None:
    """Rank and world of the process group of PyTorch, if there is one."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed.get_rank(), distributed.get_world_size()


def _applied(rest: Sequence[Callable[[Any], Any]], images: Any) -> Any:
    """The images after transforms that stay Python, which end with tensors."""
    import torch

    changed = []
    for image in images:
        for step in rest:
            image = step(image)
        changed.append(image)
    return torch.stack(changed).to(images.device)


def _given(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if value is not None}


def _source(source: Source | str | os.PathLike[str], classes: list[str] | None) -> tuple[str, dict[str, Given]]:
    """The table of a source as TOML with these class names, and the sequences that it names."""
    if isinstance(source, (str, os.PathLike)):
        source = Source(json.loads(_feedwater.detected(source)))
    if not isinstance(source, Source):
        raise TypeError(f"source is a {type(source).__name__}; it is a path, a URL or a source such as fw.directory(path)")
    return written(source if classes is None else source.with_classes(classes))


def _names_of(classes_of: Loader | Mapping[str, Any] | Sequence[str] | None) -> list[str] | None:
    """The class names of another loader, of a state, or of a list."""
    if classes_of is None:
        return None
    if isinstance(classes_of, str):
        raise TypeError("classes_of is a text; it is a loader, its state_dict() or a list of names. For a file: source.with_classes(path)")
    if isinstance(classes_of, Mapping):
        names = classes_of.get("classes", ())
    elif isinstance(classes_of, Sequence):
        names = classes_of
    else:
        # Wrappers of a loader have its names.
        names = getattr(classes_of, "classes", None)
        if names is None:
            raise TypeError(f"classes_of is a {type(classes_of).__name__}; it is a loader, its state_dict() or a list of names")
    names = [str(name) for name in names]
    if not names:
        raise ValueError("classes_of has no class names: its labels are the numbers in its data, which need no table")
    return names


def _check_classes(saved: Sequence[str] | None, classes: Sequence[str]) -> None:
    """Raises an error if the state was saved with other class names."""
    if saved is None or not classes or list(saved) == list(classes):
        return
    differing = [number for number, (was, now) in enumerate(zip(saved, classes)) if was != now]
    number = differing[0] if differing else min(len(saved), len(classes))
    was, now = (repr(names[number]) if number < len(names) else "none" for names in (saved, classes))
    raise ConfigError(
        f"state.classes: class {number} was {was} and is {now} now, so labels would change their meaning; give the loader the names of "
        "the state by classes_of=state",
        key="state.classes",
    )
