"""Other names of the loader's parameters, and errors for unknown names."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypedDict, TypeVar

from . import _foreign

if TYPE_CHECKING:
    from ._settings import Operator
    from .columns import Column, View
    from .loader import Loader

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

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
RARE = ("columns", "layout", "epoch", "positions", "classes", "smoothing", "classes_of")


class MoreParameters(TypedDict, total=False):
    """Types of the parameters that are not in the signature: rarely needed ones, and other names of parameters."""

    columns: Mapping[str, Column | View] | None
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
    """Returns the known name that needs the fewest edits, or ``None`` if no name is similar: a wrong suggestion is worse than none."""
    plain = _plain(name)
    most = max(1, len(plain) // 5)
    edits = {it: _edits(plain, _plain(it)) for it in known if abs(len(_plain(it)) - len(plain)) <= most}
    best = min(edits, key=edits.__getitem__, default=None)
    # A name of three letters or less is within one edit of unrelated names.
    return best if best is not None and edits[best] <= (most if len(plain) > 3 else 0) else None


def _plain(name: str) -> str:
    return name.lower().replace("_", "")


def _edits(first: str, second: str) -> int:
    """Returns how many letters must be inserted, removed, replaced or exchanged with their neighbour to turn one text into the other."""
    rows = [list(range(len(second) + 1))]
    for i, a in enumerate(first, 1):
        row = [i]
        for j, b in enumerate(second, 1):
            edits = min(rows[-1][j] + 1, row[-1] + 1, rows[-1][j - 1] + (a != b))
            if i > 1 and j > 1 and (a, b) == (second[j - 2], first[i - 2]):
                edits = min(edits, rows[-2][j - 2] + 1)
            row.append(edits)
        rows.append(row)
    return rows[-1][-1]


def unknown(name: str, parameters: Iterable[str], fields: Mapping[str, str]) -> TypeError:
    """Returns the error for a parameter of the loader that does not exist. ``fields`` maps each setting of a group to its group, such as
    ``decode=fw.Decode``."""
    return TypeError(f"fw.Loader has no parameter {name}; {advice(name, parameters, fields)}")


def advice(name: str, parameters: Iterable[str], fields: Mapping[str, str]) -> str:
    """Returns what to write instead of a parameter of the loader that does not exist."""
    if name in _foreign.PARAMETERS:
        return _foreign.PARAMETERS[name]
    if name in fields:
        return f"write {fields[name]}({name}=...)"
    near = nearest(name, [*parameters, *RARE, *ALIASES, *fields])
    if near is None:
        return f"its parameters are {', '.join(parameters)}"
    is_field = near in fields and near not in (*parameters, *RARE, *ALIASES)
    return f"did you mean {fields[near]}({near}=...)?" if is_field else f"did you mean {ALIASES.get(near, near)}?"


def unknown_setting(title: str, name: str, known: Sequence[str], why: str | None = None) -> TypeError:
    """Returns the error for a setting that a class or function of the package does not have. ``why``: what to do if no setting is similar."""
    other = [it for it in (ALIASES.get(name, name), *_foreign.SETTINGS.get(name, ())) if it in known]
    near = other[0] if other else nearest(name, known)
    advice = f"did you mean {near}?" if near else why or (f"its settings are {', '.join(known)}" if known else "it has no settings")
    return TypeError(f"{title} has no setting {name}; {advice}")


def unknown_operator(name: str, known: Sequence[str]) -> AttributeError:
    """Returns the error for an operator that does not exist."""
    near = nearest(name, known)
    advice = _foreign.OPERATORS.get(name) or (f"did you mean fw.ops.{near}?" if near else "docs/reference/operators.md lists the operators")
    return AttributeError(f"fw.ops has no operator {name}; {advice}", name=name)


def settings_of(function: Callable[..., Any]) -> tuple[str, ...]:
    """Returns the names of a function's keyword arguments."""
    kinds = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(name for name, it in inspect.signature(function).parameters.items() if it.kind in kinds and name not in ("self", "cls"))


def _positions(title: str, function: Callable[..., Any]) -> Callable[[Sequence[Any]], None]:
    """Returns a function that checks the number of arguments without a name. ``title``: name of the function in the error."""
    parameters = inspect.signature(function).parameters
    places = [name for name, it in parameters.items() if it.kind is it.POSITIONAL_OR_KEYWORD]
    has_all = any(it.kind is it.VAR_POSITIONAL for it in parameters.values())

    def check(arguments: Sequence[Any]) -> None:
        if has_all or len(arguments) <= len(places):
            return
        named = [name for name in settings_of(function) if name not in places]
        without = [name for name in places if name not in ("self", "cls")]
        only = f"only {' and '.join(without)} without a name" if without else "no arguments without a name"
        advice = f"; name the others: {', '.join(f'{name}=' for name in named)}" if named else ""
        raise TypeError(f"{title} takes {only}{advice}")

    return check


def suggesting(title: str, why: str | None = None) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Returns a decorator for functions. The error for an unknown keyword argument then suggests a similar one. ``title``: name of the function in
    the error. ``why``: what to do if no argument is similar."""

    def wrapped(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        known, check = settings_of(function), _positions(title, function)

        @functools.wraps(function)
        def checked(*arguments: Parameters.args, **settings: Parameters.kwargs) -> Result:
            for name in settings:
                if name not in known:
                    raise unknown_setting(title, name, known, why)
            check(arguments)
            return function(*arguments, **settings)

        return checked

    return wrapped


def needing_source(fields: Mapping[str, str]) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Returns a decorator for the constructor of the loader. Without a source, the error is about the unknown argument that is meant as the source,
    if there is one. ``fields``: as for :func:`unknown`."""

    def wrapped(init: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        known, check = settings_of(init), _positions("fw.Loader", init)

        @functools.wraps(init)
        def checked(*arguments: Parameters.args, **settings: Parameters.kwargs) -> Result:
            # The first argument is the loader itself.
            if len(arguments) < 2 and "source" not in settings:
                for name in settings:
                    if name not in (*known, *RARE, *ALIASES):
                        raise unknown(name, known, fields)
                raise TypeError("fw.Loader has no source; write source=, or pass the path as the first argument")
            check(arguments)
            return init(*arguments, **settings)

        return checked

    return wrapped


def settled(given: Mapping[str, Any], more: Mapping[str, Any], fields: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Returns the given parameters by name, and for each the name that the program wrote. ``given``: the parameters in the signature, where
    ``None`` means not given. ``more``: all other parameters."""
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
        settled["last_batch"], written["last_batch"] = _last_batch(settled.pop("drop_last")), "drop_last"
    return settled, written


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
