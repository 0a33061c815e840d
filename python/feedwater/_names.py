"""Other names of the loader's parameters, and advice for parameters that only the loaders of other libraries have."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    from ._settings import Operator
    from .loader import Loader

#: Other names of parameters: former names, which are accepted until 1.0, and names in PyTorch, DALI and Grain. The value is the name of feedwater's parameter.
ALIASES = {
    "chain": "transform",
    "transforms": "transform",
    "batch": "batch_size",
    "max_batch_size": "batch_size",
    "workers": "num_workers",
    "num_threads": "num_workers",
    "worker_count": "num_workers",
    "prefetch_queue_depth": "prefetch",
    "last": "last_batch",
    "last_batch_policy": "last_batch",
    "random_shuffle": "shuffle",
    "shard_id": "rank",
    "world": "world_size",
    "num_shards": "world_size",
}
#: Parameters that are not in the signature, because few programs need them.
RARE = ("layout", "epoch", "positions", "classes", "smoothing", "classes_of")
#: Parameters of other libraries' loaders that feedwater does not have, and what to write instead.
_FOREIGN = {
    "collate_fn": 'leave it out: batches are single tensors; framework="batch" returns objects with the labels, indices and other data of all samples',
    "sampler": "write shuffle=True for a new order in each epoch, or source.select(subset=[...]) for samples in an order of your own",
    "batch_sampler": "write batch_size=, and shuffle=True for a new order in each epoch",
    "pin_memory": "leave it out: batches for a GPU are made on the GPU",
    "pin_memory_device": 'write device="cuda:0"; batches are made there',
    "prefetch_factor": "write prefetch=, the number of batches of the whole loader; prefetch_factor of PyTorch counts them for each worker",
    "persistent_workers": "leave it out: worker threads live as long as the loader",
    "multiprocessing_context": "leave it out: workers are threads, not processes",
    "worker_init_fn": "leave it out: workers are threads without state in Python, and all random numbers depend on seed",
    "generator": "write seed=0",
    "timeout": "write storage=fw.Storage(timeout=10) for requests; no other wait has a limit",
    "in_order": "leave it out: batches always come in order",
    "device_id": 'write device="cuda:0"',
    "gpu_id": 'write device="cuda:0"',
    "initial_fill": "write shuffle=True for the whole set, or loader=fw.LoaderSettings(shuffle_window=4096) for files of many samples",
    "shuffle_buffer_size": "write shuffle=True for the whole set, or loader=fw.LoaderSettings(shuffle_window=4096) for files of many samples",
    "pad_last_batch": 'write last_batch="pad"',
    "shard_options": "write rank= and world_size=; by default both come from the launcher",
    "operations": "write transform=[...], a list of operators of fw.ops",
    "read_options": "write num_workers= and prefetch=",
    "worker_buffer_size": "write prefetch=, the number of batches of the whole loader",
    "exec_async": "leave it out: batches are always prefetched",
    "exec_pipelined": "leave it out: batches are always prefetched",
}


class MoreParameters(TypedDict, total=False):
    """Types of the parameters that are not in the signature: rarely needed ones, and other names of parameters."""

    layout: Literal["nchw", "nhwc"] | None
    epoch: int
    positions: tuple[int, int] | None
    classes: int | None
    smoothing: float | None
    classes_of: Loader | Mapping[str, Any] | Sequence[str] | None
    # Former names of parameters, which are accepted until 1.0.
    chain: Operator | Sequence[Operator]
    batch: int
    workers: int | Literal["auto"] | None
    last: Literal["drop", "pad", "partial"] | None
    world: int | None
    # Names of feedwater's parameters in PyTorch, DALI and Grain.
    transforms: Operator | Sequence[Operator]
    max_batch_size: int
    num_threads: int | Literal["auto"] | None
    worker_count: int | Literal["auto"] | None
    prefetch_queue_depth: int | Literal["auto"] | None
    last_batch_policy: Any
    random_shuffle: bool | None
    shard_id: int | None
    num_shards: int | None


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Returns the known name that is most similar to this name, or ``None`` if no name is similar."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)), None)


def unknown(name: str, parameters: Iterable[str], fields: Mapping[str, str]) -> TypeError:
    """Returns the error for a parameter that does not exist. ``fields`` maps each setting of a group to its group, such as
    ``decode=fw.Decode``."""
    if name in _FOREIGN:
        return TypeError(f"fw.Loader has no parameter {name}; {_FOREIGN[name]}")
    if name in fields:
        return TypeError(f"fw.Loader has no parameter {name}; write {fields[name]}({name}=...)")
    near = nearest(name, [*parameters, *RARE, *ALIASES])
    if near is not None:
        return TypeError(f"fw.Loader has no parameter {name}; did you mean {ALIASES.get(near, near)}?")
    near = nearest(name, fields)
    if near is not None:
        return TypeError(f"fw.Loader has no parameter {name}; did you mean {fields[near]}({near}=...)?")
    return TypeError(f"fw.Loader has no parameter {name}; its parameters are {', '.join(parameters)}")


def settled(given: Mapping[str, Any], more: Mapping[str, Any], fields: Mapping[str, str]) -> dict[str, Any]:
    """Returns the given parameters by name. ``given``: the parameters in the signature, where ``None`` means not given. ``more``: all other
    parameters."""
    settled = {name: value for name, value in given.items() if value is not None}
    written = {name: name for name in settled}
    for name, value in more.items():
        parameter = ALIASES.get(name, name)
        if parameter not in given and parameter not in RARE:
            raise unknown(name, given, fields)
        if value is None:
            continue
        if parameter in settled:
            raise TypeError(f"{name} and {written[parameter]} are the same parameter; give only {parameter}")
        settled[parameter], written[parameter] = value, name
    if "drop_last" in settled and "last_batch" in settled:
        raise TypeError(
            f"drop_last and {written['last_batch']} are both given; give only one: drop_last=True means last_batch=\"drop\", "
            'drop_last=False means last_batch="partial"'
        )
    if written.get("last_batch") == "last_batch_policy":
        settled["last_batch"] = _policy(settled["last_batch"])
    if "drop_last" in settled:
        settled["last_batch"] = _last_batch(settled.pop("drop_last"))
    return settled


def _last_batch(drop_last: Any) -> str:
    if not isinstance(drop_last, bool):
        raise TypeError(f'drop_last is {drop_last!r}; it is True or False. last_batch is "drop", "pad" or "partial"')
    return "drop" if drop_last else "partial"


def _policy(policy: Any) -> str:
    """Converts DALI's ``LastBatchPolicy``, or its name, to a value of ``last_batch``."""
    name = str(getattr(policy, "name", policy)).rpartition(".")[2].lower()
    if name == "fill":
        raise ValueError('last_batch_policy is FILL, which does not exist here; last_batch="pad" repeats the last sample and marks it as padding')
    return name


def named(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the parameters. Replaces names of other libraries, such as PyTorch, by feedwater's names."""
    named: dict[str, Any] = {}
    for name, value in settings.items():
        parameter = ALIASES.get(name, name)
        if parameter in named:
            raise TypeError(f"{parameter} is given twice, the second time as {name}; give only {parameter}")
        named[parameter] = value
    return named
