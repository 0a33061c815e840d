"""Checks of arguments that are used only in Python, so that the compiled part does not check them."""

from __future__ import annotations

import importlib.util
import operator
from collections.abc import Iterable, Mapping
from typing import Any

from .errors import ConfigError, MissingPackageError

#: Values of the argument ``framework``, and for each the name that messages use.
_PACKAGES = {"torch": "PyTorch", "numpy": "NumPy", "jax": "JAX", "tensorflow": "TensorFlow"}
#: Names of element types in NumPy and other libraries.
_DTYPES = {"float32": "f32", "float": "f32", "float16": "f16", "half": "f16", "bfloat16": "bf16", "uint8": "u8"}


def check_framework(framework: str, dtype: str | None = None) -> None:
    """Checks that a framework is known and installed, and also the packages that its arrays of type ``dtype`` need."""
    if framework == "batch":
        return
    name = _PACKAGES.get(framework)
    if name is None:
        raise ValueError(f'framework is {framework!r}; it must be "torch", "numpy", "jax", "tensorflow" or "batch"')
    if not _is_installed(framework):
        other = "" if framework == "numpy" else ', or framework="numpy" for arrays of NumPy'
        raise MissingPackageError(f'framework="{framework}" needs {name}, which is not installed: pip install {framework}{other}', what=framework)
    if framework == "numpy" and dtype == "bf16":
        require_ml_dtypes()


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
    try:
        value = operator.index(number)
    except TypeError:
        value = -1
    if isinstance(number, bool) or not least <= value < 2**32:
        raise ConfigError(f"{name} is {number!r}; it must be a whole number from {least} to 2^32 - 1", key=name)


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


def operators_of(chain: Any) -> list[Any]:
    """Returns the operators of the argument ``transform``, which may be a single operator."""
    if hasattr(chain, "settings") and not hasattr(chain, "sections"):
        return [chain]
    foreign: list[Any] = [chain]
    if isinstance(chain, Iterable) and not isinstance(chain, (str, bytes, Mapping)):
        steps = list(chain)
        foreign = [step for step in steps if not callable(getattr(step, "settings", None)) and not isinstance(step, Mapping)]
        if not foreign:
            return steps
    kind = type(foreign[0])
    if kind.__module__.split(".")[0] in ("torchvision", "timm", "torch"):
        advice = "for transforms of torchvision or timm: transform=fw.from_torchvision(transform)"
    else:
        advice = "it is a list of operators of fw.ops, or a recipe such as fw.train_recipe(224)"
    raise TypeError(f"transform contains a {kind.__name__}, which is no operator of feedwater; {advice}")


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
