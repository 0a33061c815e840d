"""Checks of arguments that are used only in Python, so that the compiled part does not check them."""

from __future__ import annotations

import importlib.util
import math
import numbers
import operator
from collections.abc import Iterable, Mapping
from typing import Any

from ._settings import BatchOperator, Operator, Source, _Settings, given
from .errors import ConfigError, MissingPackageError

#: Values of the argument ``framework``, and for each the name that messages use.
_PACKAGES = {"torch": "PyTorch", "numpy": "NumPy", "jax": "JAX", "tensorflow": "TensorFlow"}
#: Names of element types in NumPy and other libraries.
_DTYPES = {"float32": "f32", "float": "f32", "float16": "f16", "half": "f16", "bfloat16": "bf16", "uint8": "u8"}


def check_framework(framework: str, dtype: str | None = None) -> None:
    """Checks that a framework is known and installed, and also the packages that its arrays of type ``dtype`` need."""
    if isinstance(framework, str) and framework == "batch":
        return
    name = _PACKAGES.get(framework) if isinstance(framework, str) else None
    if name is None:
        raise ValueError(f'framework is {framework!r}; it must be "torch", "numpy", "jax", "tensorflow" or "batch"')
    other = "" if framework == "numpy" else ', or framework="numpy" for arrays of NumPy'
    require_package(f'framework="{framework}"', framework, name, other)
    if framework == "numpy" and dtype == "bf16":
        require_ml_dtypes()


def check_pixels(operators: Iterable[Operator], pixels: Any, setting: str) -> None:
    """Checks that a chain is correct for a pixel format. ``setting``: the setting with the format, for messages."""
    if str(pixels).startswith(("u16", "f32")) and any(it.OF_BYTES for it in operators):
        raise ValueError(
            f"{setting} is {pixels!r}, but the mean and std of the Normalize that follows ToDtype or ConvertImageDtype without scale=True are "
            "converted for values from 0 to 255; leave it out of the converted transforms, and add fw.ops.Normalize to the recipe"
        )


def require_package(user: str, package: str, name: str, other: str = "") -> None:
    """Checks that a package is installed. ``user``: what needs it. ``name``: its name in messages. ``other``: what else to do, for messages."""
    if not _is_installed(package):
        raise MissingPackageError(f"{user} needs {name}, which is not installed: pip install {package}{other}", what=package)


def require_ml_dtypes() -> None:
    """Checks that ml_dtypes is installed. NumPy itself has no ``bf16``."""
    if not _is_installed("ml_dtypes"):
        raise MissingPackageError(
            'arrays of NumPy with dtype="bf16" need ml_dtypes, which is not installed: pip install ml_dtypes, or use dtype="f32"',
            what="ml_dtypes",
        )


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ValueError:
        # `find_spec` raises this error for a module without `__spec__`. Such a module is loaded: the program created it, as a test does for a fake.
        return True


def check_epoch(name: str, number: Any, least: int) -> None:
    """Checks an argument that is the number of an epoch, or a number of epochs. ``least`` is its minimum."""
    checked_whole(name, number, least, 2**32 - 1, "2^32 - 1")


def checked_whole(name: str, number: Any, least: int, most: int = 2**63 - 1, shown: str = "2^63 - 1") -> int:
    """Checks an argument that is a whole number from ``least`` to ``most``, which messages show as ``shown``, and returns the number."""
    try:
        value = operator.index(number)
    except TypeError:
        value = least - 1
    if isinstance(number, bool) or not least <= value <= most:
        raise ConfigError(f"{name} is {number!r}; it must be a whole number from {least} to {shown}", key=name)
    return value


def checked_amount(name: str, amount: Any, *, is_zero_allowed: bool) -> float:
    """Checks an argument that is an amount of cores or GPUs, such as 0.5, and returns it."""
    is_number = isinstance(amount, numbers.Real) and not isinstance(amount, bool) and math.isfinite(amount)
    if not is_number or amount < 0 or (amount == 0 and not is_zero_allowed):
        raise ConfigError(f"{name} is {amount!r}; it must be a number, {'at least' if is_zero_allowed else 'more than'} 0", key=name)
    return float(amount)


def check_section(name: str, table: Mapping[str, Any]) -> None:
    """Checks settings that programs written for other libraries give another meaning."""
    workers, classes = table.get("num_workers"), table.get("classes")
    if name == "loader" and isinstance(workers, int) and not isinstance(workers, bool) and workers == 0:
        raise ConfigError(
            "num_workers is 0; workers are threads of this process, not processes, and at least 1 must read images: write num_workers=1, or leave it out "
            "for one thread per core",
            key="loader.num_workers",
        )
    if name == "targets" and isinstance(classes, Iterable):
        raise ConfigError(
            f"classes is {classes!r}; it is the number of classes of soft targets, such as classes=10. For the names of the classes write classes_of=",
            key="targets.classes",
        )


def checked_positions(positions: Any) -> tuple[int, int]:
    """Checks the argument ``positions``. Returns the first position and the position after the last."""
    try:
        first, end = (operator.index(position) for position in positions)
    except (TypeError, ValueError):
        first, end = -1, -1
    if not (0 <= first < 2**64 and 0 <= end < 2**64):
        raise ConfigError(
            f"positions is {positions!r}; it must be a pair of whole numbers: the first position, and the position after the last",
            key="positions",
        )
    return first, end


def operators_of(chain: Any, argument: str = "transform") -> list[Any]:
    """Returns the operators of the argument ``transform``, or of another argument with operators. It may be a single operator."""
    return [_checked(step, argument) for step in _steps(chain)]


def batch_operators_of(operators: Any) -> list[Any]:
    """Returns the operators of the argument ``batch_operators``. It may be a single operator."""
    return [_checked(step, "batch_operators", BatchOperator) for step in _steps(operators)]


def _steps(chain: Any) -> list[Any]:
    is_single = isinstance(chain, (str, bytes, Mapping, type, Source)) or _is_operator(chain) or hasattr(chain, "state_dict")
    return list(chain) if isinstance(chain, Iterable) and not is_single else [chain]


def _is_operator(step: Any) -> bool:
    return callable(getattr(step, "settings", None)) and not hasattr(step, "state_dict")


def _checked(step: Any, argument: str, kind: type[_Settings] = Operator) -> Any:
    """Checks a step of a chain, and returns it."""
    if isinstance(step, kind):
        return step
    if isinstance(step, Mapping):
        return _checked_table(step)
    name = f"a {type(step).__name__}"
    if isinstance(step, type):
        name = f"the class {step.__name__}"
        advice = f"create an operator with parentheses: {getattr(step, 'MADE_BY', step.__name__)}(...)"
    elif isinstance(step, BatchOperator):
        advice = f"it mixes the samples of a batch, so pass batch_operators=[{step.MADE_BY}(...)] and classes= to the loader"
    elif isinstance(step, Operator):
        advice = "it changes single images, so pass it to the loader as transform=[...]"
    elif isinstance(step, _Settings) and "chain" in step.FIELDS:
        advice = 'it is a column, so pass it to the loader as columns={"name": fw.view(...)}'
    elif isinstance(step, (_Settings, Source)):
        advice = f"pass it to the loader as {getattr(step, 'SECTION', 'source')}="
    elif hasattr(step, "sections") and isinstance(step, list):
        advice = "a list does not contain recipes: pass the recipe itself, or add operators to it: recipe + [operator]"
    elif type(step).__module__.split(".")[0] in ("torchvision", "timm", "torch"):
        advice = "for transforms of torchvision or timm: transform=fw.from_torchvision(transform)"
    elif kind is Operator and _is_operator(step):
        return step
    elif kind is Operator:
        advice = "it is a list of operators of fw.ops, or a recipe such as fw.train_recipe(224)"
    else:
        advice = "it is a list of operators such as fw.ops.Mixup(alpha=0.2)"
    raise TypeError(f"{argument} contains {name}, which is no operator of feedwater{' for images' if isinstance(step, BatchOperator) else ''}; {advice}")


def _checked_table(step: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the given settings of an operator that is written as a table, with those of its own operators."""
    known = ["op"]
    for kind in (*Operator.__subclasses__(), *BatchOperator.__subclasses__()):
        if getattr(kind, "OP", None) == step.get("op"):
            known += kind.FIELDS
    table = given(step, known)
    inner = table.get("operators")
    if isinstance(inner, (list, tuple)):
        table["operators"] = [_checked_table(it) if isinstance(it, Mapping) else it for it in inner]
    return table


def dtype_name(dtype: Any) -> Any:
    """Returns the name of an element type in a pipeline file, also for types of PyTorch, NumPy, JAX and TensorFlow.
    Other texts are returned unchanged. The compiled part rejects them and names the key."""
    if dtype is None or (isinstance(dtype, str) and dtype not in _DTYPES):
        return dtype
    # All of `torch.float16`, `numpy.float16`, `numpy.dtype("float16")` and `tensorflow.float16` have the name `float16`.
    name = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
    name = str(name).rpartition(".")[2]
    if name not in _DTYPES:
        raise ValueError(f'dtype is {dtype!r}; it is "f32", "f16", "bf16", "u8", or one of these types of a framework')
    return _DTYPES[name]
