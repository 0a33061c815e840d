"""Checks of arguments that the compiled part does not see."""

from __future__ import annotations

import importlib.util
from typing import Any

from .errors import MissingPackageError

#: Packages behind frameworks, and names for people.
_PACKAGES = {"torch": "PyTorch", "numpy": "NumPy", "jax": "JAX", "tensorflow": "TensorFlow"}
#: Names of element types in NumPy and other libraries.
_DTYPES = {"float32": "f32", "float": "f32", "float16": "f16", "half": "f16", "bfloat16": "bf16", "uint8": "u8"}


def check_framework(framework: str, dtype: str | None = None) -> None:
    """Checks that a framework exists and is installed, and what arrays of this type need."""
    if framework == "batch":
        return
    name = _PACKAGES.get(framework)
    if name is None:
        raise ValueError(f'framework is {framework!r}; it is "torch", "numpy", "jax", "tensorflow" or "batch"')
    if not _is_installed(framework):
        other = "" if framework == "numpy" else ', or framework="numpy" for arrays of NumPy'
        raise MissingPackageError(f'framework="{framework}" needs {name}, which is not installed: pip install {framework}{other}', what=framework)
    if framework == "numpy" and dtype == "bf16":
        require_ml_dtypes()


def require_ml_dtypes() -> None:
    """NumPy has no type of its own for 16 bits of ``bf16``."""
    if not _is_installed("ml_dtypes"):
        raise MissingPackageError(
            'arrays of NumPy with dtype="bf16" need ml_dtypes, which is not installed: pip install ml_dtypes, or use dtype="f32"',
            what="ml_dtypes",
        )


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ValueError:
        # A module that a program made itself, without a specification.
        return True


def dtype_name(dtype: Any) -> Any:
    """The name of an element type, as a pipeline file has it: also for types of PyTorch, NumPy, JAX and TensorFlow. What is none stays,
    and is refused with the key."""
    if dtype is None or (isinstance(dtype, str) and dtype not in _DTYPES):
        return dtype
    # `torch.float16`, `numpy.float16` and `numpy.dtype("float16")`, `tensorflow.float16`.
    name = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
    name = str(name).rpartition(".")[2]
    if name not in _DTYPES:
        raise ValueError(f'dtype is {dtype!r}; it is "f32", "f16", "bf16", "u8", or one of these types of a framework')
    return _DTYPES[name]
