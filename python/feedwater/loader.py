"""The loader."""

from __future__ import annotations

import atexit
import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from . import _feedwater
from ._datasets import Dataset
from ._loops import Loops
from ._names import ALIASES, RARE, MoreParameters, advice, needing_source, settings_of, settled, suggesting
from ._pipeline import pipeline_file
from ._running import Framework
from ._settings import BatchOperator, Operator, Samples, Source
from .columns import named
from .sections import SECTIONS, Cache, Decode, Limits, LoaderSettings, Output, Storage, Targets

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

#: For each setting of a group: how a call of the loader passes the group, such as `cache=fw.Cache`.
FIELDS = {field: f"{name}=fw.{kind.__name__}" for name, kind in SECTIONS.items() for field in kind.FIELDS}


class _Default(int):
    """A default value. It can be distinguished from the same number given in a call."""


#: Default of ``batch_size``.
BATCH_SIZE = _Default(64)

# Close all loaders before the interpreter ends, because their threads may need it.
atexit.register(_feedwater.finish)
# In a frozen program, `sys.executable` is the program itself and not a Python interpreter.
if os.path.basename(sys.executable or "").startswith("python") and not hasattr(sys, "frozen"):
    # The check of the JPEG engines may crash, so it runs in a process of its own.
    # With `-P`, this process does not import modules from the current folder.
    _safe = ["-P"] if sys.version_info >= (3, 11) else []
    _feedwater.set_checking_program([sys.executable, *_safe, "-m", "feedwater"])


class Loader(Loops):
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
        file = pipeline_file(source, given.get("transform", transform), framework, device, given, wrote)
        #: Text of the pipeline file, and the sources of :func:`feedwater.samples` that it names.
        self._text = file.text
        self._own = file.own
        with named(file.columns, file.views):
            pipeline = _feedwater.Pipeline.from_toml(file.text, os.getcwd(), file.own)
            self._begin(pipeline, framework, file.rest, given.get("epoch", 0), epochs, given.get("positions"), "columns" in given)

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
