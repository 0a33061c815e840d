"""Errors, grouped by who can mend the problem. Each says the noun, the value and the way out."""

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
    """A transform of torchvision or timm has no equal chain."""

    #: The transforms, each with the reason.
    problems: list[str]


class SampleError(Error, ValueError):
    """A sample is unusable, and ``on_error`` is ``"stop"``."""

    #: Place of the sample in the source.
    index: int
    #: Its path, URL or other name.
    location: str
    #: ``"unreadable"``, ``"empty"``, ``"truncated"``, ``"corrupt"``, ``"unsupported"``, ``"oversized"``, ``"out_of_memory"`` or
    #: ``"label"``.
    reason: str


class FileError(Error, OSError):
    """A file or folder outside the data cannot be read or written."""

    filename: str

    def __str__(self) -> str:
        # That of `OSError` has no message once there is a name.
        return str(self.args[0])


class UnavailableError(Error, RuntimeError):
    """A GPU or a library is missing."""

    #: What is missing.
    what: str


class MissingPackageError(UnavailableError, ImportError):
    """A package of Python that an argument needs is not installed."""


class BudgetError(Error, MemoryError):
    """A limit of memory is too small."""

    #: The row of the footprint, its bytes, and the bytes that the limit leaves.
    row: str
    needed: int
    limit: int


class HostMemoryError(Error, MemoryError):
    """The machine, its control group or a limit of the process has too little memory."""

    #: Bytes. ``available`` is ``None`` where the system refused an allocation.
    needed: int
    available: int | None


class ForkedError(Error, RuntimeError):
    """A loader of the parent process was used in a child. Build loaders after ``fork``."""

    #: Process that built the loader.
    built_in: int


class DeviceError(Error, RuntimeError):
    """The GPU or its driver refused a call."""

    call: str


class CompileError(Error, RuntimeError):
    """The CUDA text of an operator does not compile."""


class StoppedError(Error, RuntimeError):
    """The loader was closed, or another loop over it has ended this one."""


class InternalError(Error, RuntimeError):
    """A fault of feedwater, or of a user's operator."""
