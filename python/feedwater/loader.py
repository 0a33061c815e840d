"""The loader."""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from . import _feedwater, _toml
from ._batches import Batches, applied, caller, process_group
from ._checks import batch_operators_of, check_epoch, check_framework, check_pixels, check_section, checked_positions, dtype_name, operators_of
from ._classes import check_classes, names_of
from ._datasets import Dataset, as_source
from ._names import ALIASES, RARE, MoreParameters, advice, needing_source, settings_of, settled, suggesting
from ._settings import BatchOperator, Operator, Samples, Source, written
from ._torchvision.rest import moving, way_out
from .batch import Batch, Meaning
from .columns import loader_settings_of_views, named, operators_of_views, shuffling_view, tables
from .errors import ConfigError, Error, StoppedError
from .report import Report
from .sections import SECTIONS, Cache, Decode, Limits, LoaderSettings, Output, Storage, Targets, checked_sections, table_of, written_keys

if TYPE_CHECKING:
    from types import TracebackType
    from typing import NoReturn

if sys.version_info >= (3, 11):
    from typing import Unpack
elif TYPE_CHECKING:
    from typing_extensions import Unpack
else:

    class Unpack:
        """Replaces ``typing.Unpack``, which annotations use and Python 3.10 does not have."""

        def __class_getitem__(cls, item):
            return item


__all__ = ["Loader"]

Framework = Literal["torch", "numpy", "jax", "tensorflow", "batch"]

#: Version of the dictionary that :meth:`Loader.state_dict` returns.
_STATE_VERSION = 1
#: Seconds between two checks for new warnings while the loader waits for a batch.
_WARN_EVERY = 1.0
#: Seconds after the first failed sample at which failed samples are logged, unless the epoch ends before.
_TELL_FAILURES_AFTER = 60.0
#: Names of the outcomes of samples that failed.
_FAILED = ("skipped", "substituted", "dropped")

#: Parameters of the loader that are settings of a section in a pipeline file, by section.
_DIRECT = {
    "loader": ("batch_size", "num_workers", "prefetch", "seed", "shuffle", "last_batch", "on_error", "rank", "world_size"),
    "output": ("dtype", "layout"),
    "targets": ("classes", "smoothing"),
}
#: For each setting of a group: how a call of the loader passes the group, such as `cache=fw.Cache`.
FIELDS = {field: f"{name}=fw.{kind.__name__}" for name, kind in SECTIONS.items() for field in kind.FIELDS}


class _Default(int):
    """A default value. It can be distinguished from the same number given in a call."""


#: Default of ``batch_size``.
BATCH_SIZE = _Default(64)

_log = logging.getLogger("feedwater")

# Close all loaders before the interpreter ends, because their threads may need it.
atexit.register(_feedwater.finish)
# In a frozen program, `sys.executable` is the program itself and not a Python interpreter.
if os.path.basename(sys.executable or "").startswith("python") and not hasattr(sys, "frozen"):
    # The check of the JPEG engines may crash, so it runs in a process of its own.
    # With `-P`, this process does not import modules from the current folder.
    _safe = ["-P"] if sys.version_info >= (3, 11) else []
    _feedwater.set_checking_program([sys.executable, *_safe, "-m", "feedwater"])


class Loader:
    """Batches of a source, prepared by threads outside of the interpreter while the model works.

        loader = fw.Loader("data/train", fw.train_recipe(224), batch_size=256, seed=42)
        for epoch in range(90):
            for images, labels in loader:
                ...

    Each ``for`` loop is one epoch. It yields pairs of images and labels, or of images and soft
    targets with ``targets``. The loader reuses the memory of images that are gone: ``clone`` data
    that you keep longer than the next few batches. If a program holds all ``prefetch + 1``
    batches, the loader allocates memory for more, within ``limits=fw.Limits(host_memory=…)``, and
    logs a warning.

    Parameter names of PyTorch, DALI and Grain, such as ``num_threads``, are accepted too.

    * ``source``: a path or URL, whose kind is detected; a source of :mod:`feedwater.sources` or
      :func:`feedwater.samples`; a combination of sources; or a data set of torchvision
      (``ImageFolder``) or Hugging Face that :func:`feedwater.dataset` accepts.
    * ``transform``: a list of operators of :mod:`feedwater.ops`, one operator, or a recipe.
    * ``batch_size``: number of samples in a batch. Default: 64.
    * ``framework``: type of images and labels: tensors of ``"torch"``, ``"jax"``,
      ``"tensorflow"``, arrays of ``"numpy"``, or ``"batch"`` (:class:`feedwater.Batch`, no pairs).
    * ``device``: ``"auto"`` (default), ``"cpu"``, ``"cuda"`` (the GPU of the launcher's local
      rank) or ``"cuda:N"``, or a ``torch.device``.
    * ``dtype``: ``"f32"`` (default), ``"f16"``, ``"bf16"``, ``"u8"``, or a framework's type.
    * ``shuffle``: whether each epoch has its own order. Default: True for ``train_recipe``, else
      False. ``seed``: seed of all random choices. Default: 0.
    * ``num_workers``: number of threads, or ``"auto"``; default: one for each core. ``prefetch``:
      number of batches prepared in advance, or ``"auto"``; default: 2.
    * ``drop_last``: whether samples that do not fill the last batch are left out (default), or
      make a smaller batch (False, the default of recipes for evaluation). Or ``last_batch``:
      ``"drop"``, ``"partial"``, or ``"pad"``, which repeats the last sample and marks it.
    * ``on_error``: what to do with an unusable image. ``"stop"`` (default) raises an error;
      ``"skip"`` uses another sample instead, which the epoch then has twice; ``"substitute"`` uses
      zeros with the label -100, which losses of PyTorch ignore; ``"drop"`` makes the batch
      shorter, for exact evaluation. Empty batches are left out, so ranks may have different
      numbers of batches. :attr:`stats` counts unusable images.
    * ``epochs``: number of epochs, at least 1. Default: unlimited.
    * ``rank``, ``world_size``: the shard. Default: from the process group of PyTorch, even if it
      is initialized later, otherwise from the launcher (``torchrun``, Slurm, MPI).
    * ``batch_operators``: operators on pairs of samples, such as ``ops.Mixup``; ``[]`` for none.
    * ``targets``, ``decode``, ``output``, ``cache``, ``limits``, ``storage``, ``loader``: groups
      of other settings: :class:`feedwater.Targets`, :class:`feedwater.Decode` and so on, or
      dictionaries.

    Rarely needed: ``layout`` (of ``output``), ``classes`` and ``smoothing`` (of ``targets``), and:

    * ``columns``: more columns, such as ``{"caption": fw.text()}`` (:func:`fw.text
      <feedwater.text>`) or ``{"small": fw.view([...], count=8)}`` (:func:`fw.view
      <feedwater.view>`). Loops then yield dictionaries with the keys ``image`` and ``label``, too.
    * ``classes_of``: class numbers to use: those of another loader or its :meth:`state_dict`, a
      list of names, or a dictionary such as ``class_to_idx``. A validation set that lacks a class
      of the training set needs this parameter (:meth:`feedwater.Source.with_classes`).
    * ``epoch``: number of the first epoch. Default: 0.
    * ``positions``: reads only a part of each epoch's order, from the first position up to, but
      without, the second. If each part begins where a batch begins, the loaders of consecutive
      parts, on any machines, return the same batches as one loader of the whole order.

    Threads may share a loader or an iterator of it. Each batch is then returned to one of the
    threads. :meth:`set_epoch`, :meth:`load_state_dict` and :meth:`close` end the running epoch of
    all threads. Wrong arguments raise ``TypeError``, ``ValueError`` or
    :class:`feedwater.errors.ConfigError`; other errors are classes of :mod:`feedwater.errors`.
    """

    @needing_source(FIELDS)
    def __init__(
        self,
        source: Source | str | bytes | os.PathLike[str] | Dataset,
        transform: Operator | Sequence[Operator] = (),
        *,
        batch_size: int | None = BATCH_SIZE,
        framework: Framework = "torch",
        device: Any = None,
        dtype: Any = None,
        shuffle: bool | None = None,
        seed: int | None = None,
        num_workers: int | Literal["auto"] | None = None,
        prefetch: int | Literal["auto"] | None = None,
        drop_last: bool | None = None,
        last_batch: Literal["drop", "pad", "partial"] | None = None,
        on_error: Literal["stop", "skip", "substitute", "drop"] | None = None,
        epochs: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        batch_operators: BatchOperator | Sequence[BatchOperator] | None = None,
        targets: Targets | Mapping[str, Any] | None = None,
        decode: Decode | Mapping[str, Any] | None = None,
        output: Output | Mapping[str, Any] | None = None,
        cache: Cache | Mapping[str, Any] | None = None,
        limits: Limits | Mapping[str, Any] | None = None,
        storage: Storage | Mapping[str, Any] | None = None,
        loader: LoaderSettings | Mapping[str, Any] | None = None,
        **more: Unpack[MoreParameters],
    ) -> None:
        given, wrote = settled(
            {
                "source": source,
                "transform": transform if not isinstance(transform, tuple) or transform else None,
                "batch_size": None if batch_size is BATCH_SIZE else batch_size,
                "framework": framework,
                "device": device,
                "dtype": dtype,
                "shuffle": shuffle,
                "seed": seed,
                "num_workers": num_workers,
                "prefetch": prefetch,
                "drop_last": drop_last,
                "last_batch": last_batch,
                "on_error": on_error,
                "epochs": epochs,
                "rank": rank,
                "world_size": world_size,
                "batch_operators": batch_operators,
                "targets": targets,
                "decode": decode,
                "output": output,
                "cache": cache,
                "limits": limits,
                "storage": storage,
                "loader": loader,
            },
            more,
            FIELDS,
        )
        transform = given.get("transform", transform)
        recipe = checked_sections(getattr(transform, "sections", {}))
        sections = {}
        has_dtype = False
        for name in SECTIONS:
            section = table_of(name, given.get(name))
            direct = {key: given[key] for key in _DIRECT.get(name, ()) if key in given}
            for key in sorted(direct.keys() & section.keys()):
                inner = written_keys(name, given[name])[key]
                raise TypeError(f"{key} is given twice, as {wrote[key]} and as {inner} in {name}; give it once")
            written_here = {**section, **direct}
            if name == "output":
                has_dtype = "dtype" in written_here
            if name == "loader" and not transform:
                written_here = {**loader_settings_of_views(given.get("columns")), **written_here}
            sections[name] = {**recipe.get(name, {}), **written_here}
            view = shuffling_view(given.get("columns")) if name == "loader" and "shuffle" not in written_here else None
            if view is not None and not sections[name].get("shuffle"):
                _log.warning("the recipe of the view %r shuffles, but the loader delivers the samples in their order: set shuffle", view)
            check_section(name, sections[name])
        sections["output"]["dtype"] = dtype_name(sections["output"].get("dtype"))
        # `device` may also be a `torch.device`, whose text is the setting.
        lines = [] if device is None else [f"device = {_toml.value(str(device))}"]
        source = as_source(source)
        names = names_of(given.get("classes_of"))
        table, own = written(source if names is None else source.with_classes(names))
        lines.append(f"source = {table}")
        texts = {name: _toml.table(section) for name, section in sections.items()}
        lines += [f"{name} = {table}" for name, table in texts.items() if table != "{}"]
        operators = operators_of(transform)
        lines.append(f"chain = {_toml.value(operators)}")
        pixels = sections["decode"].get("pixels")
        check_pixels([*operators, *operators_of_views(given.get("columns"))], pixels, "decode.pixels")
        blends = batch_operators_of(given.get("batch_operators", getattr(transform, "batch_operators", ())))
        columns, views = tables(given["columns"], has_dtype) if "columns" in given else ([], [])
        if views:
            lines.append(f"view = {_toml.value(views)}")
        if columns:
            lines.append(f"column = {_toml.value(columns)}")
        if blends:
            lines.append(f"batch_operators = {_toml.value(blends)}")
        rest = getattr(transform, "rest", [])
        if rest and blends:
            raise ValueError(
                "the recipe has transforms that stay Python (keep_rest), and they would run after the batch operators, which mix finished "
                "images; remove these transforms or the batch operators, or mix the images in the training loop"
            )
        if rest and framework != "torch":
            raise ValueError(f'the recipe has transforms that stay Python, which need framework="torch"; it is {framework!r}')
        if rest and sections["output"].get("layout") == "nhwc":
            raise ValueError(
                'layout is "nhwc", but the recipe has transforms that stay Python (keep_rest), which take and return channels first; remove layout, '
                "or permute the axes in the training loop"
            )
        following = [column["name"] for column in columns if column["kind"] in ("mask", "points", "boxes", "runs", "instances")]
        moved_by = moving(rest)
        if moved_by and following:
            raise ValueError(
                f"the recipe has transforms that stay Python (keep_rest), and {', '.join(moved_by)} may move the images without the column "
                f"{following[0]!r}; {way_out(len(moved_by) > 1)}"
            )
        #: Text of the pipeline file, and the sources of :func:`feedwater.samples` that it names.
        self._text = "\n".join(lines) + "\n"
        self._own = own
        with named(columns, views):
            pipeline = _feedwater.Pipeline.from_toml(self._text, os.getcwd(), own)
            self._begin(pipeline, framework, rest, given.get("epoch", 0), epochs, given.get("positions"), "columns" in given)

    @classmethod
    @suggesting("fw.Loader.from_toml", "the pipeline file has the settings of the loader, so write it there")
    def from_toml(
        cls,
        path: str | os.PathLike[str],
        *,
        framework: Framework = "torch",
        own: Mapping[str, Samples] | None = None,
    ) -> Loader:
        """Returns a loader for a pipeline file. If the file contains ``own = "NAME"``, pass ``own={"NAME": fw.samples(items)}``."""
        if not isinstance(path, (str, os.PathLike)):
            raise TypeError(f"path is {path!r}; it must be the path of a pipeline file. For settings in Python use fw.Loader(source, transform, ...)")
        if own is not None and not isinstance(own, Mapping):
            raise TypeError(f"own is {own!r}; it must be a dictionary of sources by name, such as {{'samples': fw.samples(items)}}")
        given = {}
        for name, sequence in (own or {}).items():
            if not isinstance(sequence, Samples):
                raise TypeError(f"own[{name!r}] is a {type(sequence).__name__}; it must be fw.samples(items)")
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
        has_columns: bool = False,
    ) -> None:
        check_framework(framework)
        check_epoch("epoch", epoch, 0)
        if epochs is not None:
            check_epoch("epochs", epochs, 1)
        positions = None if positions is None else checked_positions(positions)
        self._pipeline = pipeline
        self._framework: Framework = framework
        self._rest = rest
        self._warned: dict[str, object] = {}
        #: Time (of the monotonic clock) of the first failed sample after failures were last logged; 0 if no sample has failed since.
        self._failed_since = 0.0
        #: The iterator whose epoch is running.
        self._current: weakref.ref[Batches] | None = None
        #: Number of failed samples by outcome, in earlier inner loaders and in the runs before the loaded state.
        self._failed: dict[str, int] = {}
        # This lock is held while an epoch begins, and while the inner loader is replaced or closed.
        # The lock is reentrant, because a signal handler may close the loader on the thread that holds the lock.
        self._lock = threading.RLock()
        self._closed = False
        # Number of the epoch of the next loop.
        self._next = epoch
        self._end = None if epochs is None else epoch + epochs
        self._positions = positions
        self._has_whole_length = False
        self._has_state = False
        self._inner = self._built(epoch, None)
        #: Names of the columns of the parameter ``columns``.
        self._columns = [name for name, _ in self._inner.columns]
        #: Whether loops return dictionaries.
        self._has_records = bool(self._columns) or has_columns
        check_framework(framework, self._inner.shape[1])
        self._meaning = Meaning(self._inner.classes, self._inner.normalization, moving(rest))

    def _built(self, epoch: int, state: str | None) -> _feedwater.Loader:
        first = epoch if state is None else json.loads(state).get("epoch", 0)
        return self._pipeline.build(
            epoch=epoch,
            epochs=None if self._end is None else max(self._end - first, 0),
            state=state,
            positions=self._positions,
            shard=None if self._pipeline.has_shard else process_group(),
        )

    def _follow_group(self) -> None:
        """Rebuilds the inner loader for the shard of PyTorch's process group, if the group was initialized after the loader was built.
        Frameworks such as Lightning initialize it that late."""
        group = None if self._closed or self._pipeline.has_shard else process_group()
        if group is None:
            return
        with self._lock:
            if group != self._inner.shard:
                self._rebuild(0, json.loads(self._inner.state()))

    def __len__(self) -> int:
        """Number of batches on this shard in the running loop, or in the next loop if none is running. After :meth:`load_state_dict`, the next
        loop has only the remaining batches of the epoch."""
        self._follow_group()
        return self._inner.batches_per_epoch if self._has_whole_length else self._inner.batches_of_this_epoch

    @property
    def batches_per_epoch(self) -> int:
        """Number of batches of a whole epoch on this shard."""
        self._follow_group()
        return self._inner.batches_per_epoch

    def __iter__(self) -> Iterator[Any]:
        # Neither `batches()` nor `map` keeps a reference to a returned batch, so its memory is free as soon as the loop drops it.
        if self._framework == "batch":
            return self.batches()
        return map(self.record if self._has_records else self.pair, self.batches())

    def pair(self, batch: Batch) -> tuple[Any, Any]:
        """Converts a batch of this loader to the pair of images and targets that a loop with its ``framework`` returns."""
        if self._framework == "batch":
            raise ValueError('the loader was built with framework="batch", which has no pairs; use batch.pair("torch")')
        images, targets = batch.pair(self._framework)
        return applied(self._rest, images) if self._rest else images, targets

    def record(self, batch: Batch) -> dict[str, Any]:
        """Converts a batch of this loader to the dictionary that a loop returns if the loader has ``columns``."""
        framework = self._framework
        if framework == "batch":
            raise ValueError('the loader was built with framework="batch", which has no dictionaries; use batch.column("name", "torch")')
        columns = batch._columns(framework)
        record = {}
        if self._inner.has_images:
            record["image"], targets = self.pair(batch)
        else:
            targets = batch._targets(framework)
        if batch.classes:
            record |= {"label": batch._labels(framework), "target": targets}
        else:
            record["label"] = targets
        return record | columns

    def batches(self) -> Iterator[Batch]:
        """Returns an iterator over the batches of the next epoch. Transforms that stay Python (``keep_rest``) are not applied; :meth:`pair`
        applies them. If the loop is left early, the next loop runs the following epoch."""
        return Batches(self, caller())

    def peek(self) -> Any:
        """Returns what the next step of a loop will return, for inspecting images or shapes. The position does not change and a running loop
        continues, so the next step returns the same samples. The result is a copy in host memory. Raises
        :class:`feedwater.errors.StoppedError` after the last epoch."""
        with self._lock:
            if self._closed:
                raise StoppedError("the loader is closed")
            self._follow_group()
            inner = self._inner
        while not (known := inner.peek_within(_WARN_EVERY))[0]:
            self._warn(inner)
        if known[1] is None:
            raise StoppedError("there is no next batch, because the last epoch has ended")
        batch = Batch(known[1], self._meaning, inner.fields(known[1], stay=True))
        if self._framework == "batch":
            return batch
        return self.record(batch) if self._has_records else self.pair(batch)

    def _epoch(self, batches: Batches) -> tuple[_feedwater.Loader, _feedwater.Epoch]:
        """Begins the next epoch, which ends the running one."""
        with self._lock:
            if self._closed:
                raise StoppedError("the loader is closed")
            self._follow_group()
            self._warn(self._inner, epoch_ends=True)
            former = None if self._current is None else self._current()
            if former is not None:
                former.ended_by = batches
            self._current = weakref.ref(batches)
            epoch = self._inner.epoch()
            self._next = epoch.number + 1
            return self._inner, epoch

    def _awaited(self, inner: _feedwater.Loader, epoch: _feedwater.Epoch) -> Batch | None:
        """Waits for the next batch, and logs warnings meanwhile. Returns ``None`` at the end of the epoch."""
        try:
            while not (known := epoch.next_within(_WARN_EVERY))[0]:
                self._warn(inner)
        except StoppedError:
            raise
        except Error:
            # Later loops raise the same error, until `set_epoch` opens the source again. It does this for every epoch except `_next`. No epoch is -1.
            self._next = -1
            raise
        batch = known[1]
        if batch is None:
            return None
        if batch.failed:
            self._failed_since = self._failed_since or time.monotonic()
        if self._failed_since and time.monotonic() - self._failed_since > _TELL_FAILURES_AFTER:
            self._warn(inner, epoch_ends=True)
        return Batch(batch, self._meaning, inner.fields(batch))

    def _warn(self, inner: _feedwater.Loader, epoch_ends: bool = False) -> None:
        """Logs new warnings. The warning about failed samples is logged once, with their number, at the end of an epoch."""
        mine = object()
        warnings = {warning: warning for warning in inner.notices()}
        if epoch_ends and (failures := inner.failures()) is not None:
            warnings["failures"] = failures
        for key, warning in warnings.items():
            # `setdefault` is atomic, so only one of several threads logs a warning.
            if self._warned.setdefault(key, mine) is mine:
                _log.warning("%s", warning)

    def set_epoch(self, epoch: int, *, fresh: bool = False) -> None:
        """Sets the number of the next loop's epoch, from 0. If the next loop would run this epoch anyway, nothing happens. Otherwise, and after
        an error that ended the loader, the source is opened again, and prefetched batches and caches are discarded. ``fresh=True`` always
        opens the source again: use it after labels or images of :func:`feedwater.samples` have changed."""
        check_epoch("epoch", epoch, 0)
        with self._lock:
            if fresh or epoch != self._next:
                # After `load_state_dict`, seed and order remain those of the loaded state.
                state = {**json.loads(self._inner.state()), "epoch": epoch, "position": 0} if self._has_state else None
                self._rebuild(epoch, state)

    @property
    def sampler(self) -> Loader | None:
        """The loader itself if it shuffles, otherwise ``None``. Lightning calls ``sampler.set_epoch``, so a run that is resumed after a whole
        epoch continues with the next epoch."""
        return self if json.loads(self._inner.state())["shuffle"] else None

    @property
    def batch_sampler(self) -> None:
        """``None``. Lightning reads this attribute as well as ``sampler``."""
        return None

    @property
    def batch_size(self) -> int:
        """Number of samples in a full batch on this shard."""
        (size, *_), _ = self._inner.shape
        return size

    @property
    def dataset(self) -> range:
        """The indices of the samples, for code that calls ``len(loader.dataset)``."""
        return range(self.samples)

    def __getitem__(self, index: object) -> NoReturn:
        raise TypeError(
            "a feedwater.Loader has no items by index, because it returns batches in the order of its epochs. Loop over it, or read the next "
            "batch by loader.peek(). Code that needs a DataLoader can use DataLoader(fw.integrations.torch_dataset(loader), batch_size=None)"
        )

    def state_dict(self) -> dict[str, Any]:
        """Returns the position as a dictionary. :meth:`load_state_dict` continues at this position with exactly the remaining samples, with
        any batch size and number of shards. A batch counts as consumed when a loop has received it. The state is the same on all ranks, except
        for the entry ``"failed"``: the numbers of skipped, substituted and dropped samples of this rank, if there are any. The entry
        ``"classes"`` has the class names, if the source has any."""
        state: dict[str, Any] = {"version": _STATE_VERSION, "state": json.loads(self._inner.state())}
        # Class names are saved with the state, so that `classes_of` can give another set the same class numbers.
        if classes := self.classes:
            state["classes"] = classes
        if failed := self._failures():
            state["failed"] = failed
        return state

    def _failures(self) -> dict[str, int]:
        """Returns the number of failed samples by outcome, including those before the loaded state."""
        outcomes = self.stats["outcomes"]
        counts = {outcome: self._failed.get(outcome, 0) + outcomes.get(outcome, 0) for outcome in _FAILED}
        return {outcome: count for outcome, count in counts.items() if count}

    def _state_after(self, epoch: int, batches: int) -> dict[str, Any]:
        """Returns the state at the position in epoch ``epoch`` (from 0) after each shard has read ``batches`` batches."""
        if 'on_error = "drop"' in self._pipeline.to_toml():
            raise ConfigError(
                'on_error is "drop", so the number of batches does not say which samples were seen; set "substitute" to continue by batches',
                key="on_error",
            )
        (batch, *_), _ = self._inner.shape
        _, world = self.shard
        state = self.state_dict()
        begin, end = self._positions or (0, self.samples)
        position = min(begin + batches * batch * world, end)
        return {**state, "state": {**state["state"], "epoch": epoch, "position": position}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues at the position in a state. The next loop has the remaining samples of its epoch. A running loop ends. From then on, seed
        and shuffling are those of the state, also after :meth:`set_epoch`. If the arguments ``seed`` and ``shuffle`` differ from the
        state, a warning is logged."""
        if not isinstance(state, Mapping):
            raise ConfigError(f"the state is {state!r}; it must be a dictionary that state_dict() returned", key="state")
        version = state.get("version")
        if version != _STATE_VERSION:
            raise ConfigError(f"the state has version {version!r}, but this version of feedwater reads only version {_STATE_VERSION}", key="version")
        check_classes(state.get("classes"), self.classes)
        position = state.get("state")
        if not isinstance(position, Mapping):
            raise ConfigError(f"the state's entry 'state' is {position!r}; pass the dictionary that state_dict() returned, unchanged", key="state")
        failed = state.get("failed", {})
        if not isinstance(failed, Mapping) or not all(isinstance(count, int) for count in failed.values()):
            raise ConfigError(f"the state's entry 'failed' is {failed!r}; pass the dictionary that state_dict() returned, unchanged", key="failed")
        # Lightning counts batches from the beginning of the epoch, so it needs the length of the whole epoch.
        self._has_whole_length = sys._getframe(1).f_globals.get("__name__", "").startswith(("lightning.", "pytorch_lightning."))
        with self._lock:
            here = json.loads(self._inner.state())
            self._rebuild(0, position)
            for name in ("seed", "shuffle"):
                if position[name] != here[name]:
                    _log.warning("%s is %s in the state and %s here; that of the state is used", name, position[name], here[name])
            self._has_state = True
            self._failed = {outcome: failed.get(outcome, 0) for outcome in _FAILED}

    def _rebuild(self, epoch: int, state: Mapping[str, Any] | None) -> None:
        """Replaces the inner loader. The caller holds the lock."""
        if self._closed:
            raise StoppedError("the loader is closed")
        self._inner.check_caller()
        # Close the former loader first, because both together could need more memory than is available.
        before = self._inner.state()
        self._warn(self._inner, epoch_ends=True)
        self._failed = self._failures()
        try:
            self._inner.close()
            self._inner = self._built(epoch, None if state is None else json.dumps(state))
        except Exception:
            self._inner = self._built(0, before)
            raise
        except BaseException:
            # After Ctrl-C, do not build the former loader again, because that could take as long as building the new one.
            self._closed = True
            raise
        self._next = json.loads(self._inner.state())["epoch"]

    @property
    def framework(self) -> Framework:
        """The argument ``framework``: the type of images and labels."""
        return self._framework

    @property
    def device(self) -> str:
        """The device on which batches are made, and the reason for this choice."""
        return self._inner.device

    @property
    def shard(self) -> tuple[int, int]:
        """Rank, from 0, and world size: the number of loaders that share an epoch."""
        self._follow_group()
        return self._inner.shard

    @property
    def samples(self) -> int:
        """Number of samples in the source."""
        return self._inner.samples

    @property
    def classes(self) -> list[str]:
        """Names of the classes in the order of their labels; empty if the source has none."""
        return self._inner.classes

    def location(self, index: int) -> str:
        """Returns the path of a sample, or another name for it. ``index`` is an index as in :attr:`Batch.indices`."""
        return self._inner.location(index)

    @property
    def stats(self) -> dict[str, Any]:
        """Counts and times: samples by outcome, bytes, memory, caches. Counting starts when the
        loader is built, and starts again when :meth:`load_state_dict` or :meth:`set_epoch` opens
        the source again. ``state_dict()["failed"]`` also includes earlier failed samples."""
        stats: dict[str, Any] = json.loads(self._inner.stats())
        return stats

    @property
    def metrics(self) -> str:
        """The counts of :attr:`stats` in Prometheus's text format. The program can serve this text to Prometheus."""
        return self._inner.metrics()

    @property
    def warnings(self) -> list[str]:
        """Warnings about this loader. They are also logged by the logger ``feedwater``."""
        failures = self._inner.failures()
        return [*self._inner.notices(), *([] if failures is None else [failures])]

    def report(self) -> Report:
        """Returns a report on the bottleneck of the loop so far, and on settings that would speed it up. Needs at least two batches."""
        return Report(*self._inner.report())

    def plan(self) -> str:
        """Returns the text of ``feedwater plan``: where each operator runs, and the predicted memory."""
        return self._inner.plan()

    def settings(self) -> str:
        """Returns this loader as a pipeline file with all settings. A source of :func:`feedwater.samples` is written as
        ``own = "samples"``, a second one as ``own = "samples2"``. Only a program can run such a file, by :meth:`from_toml` with ``own``.
        Transforms that stay Python (``keep_rest``) are not in the file; a comment names them. Seed and shuffling are the arguments
        with which the loader was built, not those of a loaded state."""
        text = self._pipeline.to_toml()
        if self._rest:
            names = [getattr(step, "__name__", type(step).__name__) for step in self._rest]
            # The user did not write `_pil_image`: the conversion adds this step before transforms that need PIL images.
            kept = ", ".join(name for name in names if name != "_pil_image")
            text = f"# Not in this file: transforms that stay Python: {kept}\n{text}"
        return text

    def close(self) -> None:
        """Ends the loader and its threads. Tensors of its batches stay valid."""
        self._shut(wait=True)

    def _shut(self, wait: bool) -> None:
        with self._lock, contextlib.suppress(StoppedError):
            if not self._closed:
                self._closed = True
                self._warn(self._inner, epoch_ends=True)
        self._inner.close(wait)

    def __enter__(self) -> Loader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # After Ctrl-C, do not wait for calls of `__getitem__` that are still running.
        self._shut(wait=kind is None or not issubclass(kind, KeyboardInterrupt))

    def __setattr__(self, name: str, value: Any) -> None:
        # A subclass may have attributes of its own. Names of a loader's settings and attributes are refused there too.
        parameters = settings_of(Loader.__init__)
        known = name in (*parameters, *RARE, *ALIASES) or hasattr(Loader, name)
        if name.startswith("_") or not (known or type(self) is Loader):
            super().__setattr__(name, value)
            return
        parameter = ALIASES.get(name, name)
        what = f"pass {parameter}= to fw.Loader" if parameter in (*parameters, *RARE) else advice(name, parameters, FIELDS)
        raise AttributeError(
            f"{name} of a loader cannot be assigned, because settings are arguments of fw.Loader; "
            + ("call set_epoch(number), or pass epoch= to fw.Loader" if name == "epoch" else what)
        )

    def __reduce__(self) -> NoReturn:
        raise TypeError("a feedwater.Loader has threads and cannot be copied or pickled; build it in the process that uses it")

    def __repr__(self) -> str:
        return "<feedwater.Loader, closed>" if self._closed else f"<feedwater.Loader of {self.samples} samples>"

