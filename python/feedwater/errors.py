"""Errors, grouped by who can solve the problem. Each message names the setting, its value and what to do."""

from __future__ import annotations

__all__ = [
    "BudgetError",
    "CompileError",
    "ConfigError",
    "ConversionError",
    "DeviceError",
    "Error",
    "FileError",
    "ForkedError",
    "HostMemoryError",
    "InternalError",
    "MissingPackageError",
    "SampleError",
    "StoppedError",
    "UnavailableError",
]


class Error(Exception):
    """An error of feedwater."""

    def __init__(self, message: str, **fields: object) -> None:
        super().__init__(message)
        for name, value in fields.items():
            setattr(self, name, value)


class ConfigError(Error, ValueError):
    """A setting is wrong."""

    #: The setting, as in a pipeline file: ``chain[2].std``.
    key: str


class ConversionError(Error, ValueError):
    """A transform of torchvision or timm cannot be converted to operators."""

    #: The transforms that cannot be converted, each with the reason.
    problems: list[str]


class SampleError(Error, ValueError):
    """A sample is unusable, and ``on_error`` is ``"stop"``."""

    #: Index of the sample in the source.
    index: int
    #: Path, URL or other name of the sample.
    location: str
    #: Category: ``unreadable``, ``empty``, ``truncated``, ``corrupt``, ``unsupported``, ``oversized``, ``out_of_memory`` or ``label``.
    reason: str


class FileError(Error, OSError):
    """A file or folder that is not a sample cannot be read or written."""

    filename: str

    def __str__(self) -> str:
        # `OSError.__str__` omits the message if there is a file name.
        return str(self.args[0])


class UnavailableError(Error, RuntimeError):
    """A GPU or a library is missing."""

    #: Name of the missing device or library, such as ``a gpu`` or ``nvJPEG``.
    what: str


class MissingPackageError(UnavailableError, ImportError):
    """A Python package that an argument needs is not installed."""


class BudgetError(Error, MemoryError):
    """A memory limit is too small."""

    #: ``row`` is the entry of the memory plan that does not fit, ``needed`` its bytes, ``limit`` the bytes that the limit leaves for it.
    row: str
    needed: int
    limit: int


class HostMemoryError(Error, MemoryError):
    """The machine, its control group or a limit of the process has too little memory."""

    #: Bytes of memory that are needed and available. ``available`` is ``None`` if the system refused an allocation.
    needed: int
    available: int | None


class ForkedError(Error, RuntimeError):
    """A loader that was built before ``fork`` was used in the child process. Build loaders after ``fork``."""

    #: ID of the process that built the loader.
    built_in: int


class DeviceError(Error, RuntimeError):
    """The GPU or its driver refused a call."""

    call: str


class CompileError(Error, RuntimeError):
    """The CUDA source of an operator does not compile."""


class StoppedError(Error, RuntimeError):
    """The loader was closed, its last epoch has ended, or another loop over the loader has ended this loop."""


class InternalError(Error, RuntimeError):
    """An error of feedwater itself, or of a user's operator."""
