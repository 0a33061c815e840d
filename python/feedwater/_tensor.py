"""Columns of a batch whose memory is passed to other libraries without a copy: images, views, masks, and other columns of numbers."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from . import _feedwater
from ._checks import require_ml_dtypes

if TYPE_CHECKING:
    from typing import TypeAlias

    from jax import Array as JaxArray
    from numpy import ndarray
    from tensorflow import Tensor as TensorFlowTensor
    from torch import Tensor as TorchTensor

    NumpyArray: TypeAlias = ndarray[Any, Any]

# DLPack's device types.
CPU = 1
CUDA = 2


class Tensor:
    """A column of a batch, or offsets of a column of lists.

    :meth:`torch`, :meth:`numpy`, :meth:`jax` and :meth:`tensorflow` return arrays that share the memory of the column. The
    array of the first call owns this memory. If ``__dlpack__`` is called before these methods, the library that called it
    owns the memory, and the methods raise ``BufferError``. The loader reuses the memory of a batch when the arrays of all
    its columns are gone.
    """

    def __init__(self, inner: _feedwater.Batch, name: str, dtype: str, shape: list[int], lock: Any, *, part: str = "values") -> None:
        self._inner = inner
        self._name = name
        self._part = part
        self.dtype = dtype
        self.shape = shape
        # The array that owns the memory. The lock is held while a library takes the memory by calling `__dlpack__`.
        self._array: Any = None
        self._lock = lock

    @property
    def device(self) -> str:
        """``"cpu"`` or ``"cuda:N"``, as PyTorch writes it."""
        kind, number = self._inner.device
        return "cpu" if kind == CPU else f"cuda:{number}"

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._inner.device

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        device = self._inner.device if dl_device is None else (int(dl_device[0]), int(dl_device[1]))
        if device != self._inner.device and device != (CPU, 0):
            raise BufferError(f"the batch is on {self.device}; it can stay on this device or be copied to the CPU, but cannot be copied to {device}")
        if copy or device != self._inner.device:
            if copy is False:
                raise BufferError(f"the batch is on {self.device}, so it must be copied to the CPU, but copy=False forbids copies")
            if device != (CPU, 0):
                raise BufferError(
                    "a batch on a GPU can be copied only to the CPU; to copy it on the GPU, copy the array that you get without "
                    "copy=True"
                )
            return _exported(self.host_copy(), max_version)
        with self._lock:
            if self._array is None:
                versioned = max_version is not None and max_version[0] >= 1
                return self._inner.dlpack(self._name, stream, versioned, part=self._part)
        return _exported(self._array, max_version, stream)

    def torch(self) -> TorchTensor:
        """The tensor for PyTorch, on the loader's device."""
        import torch

        with self._lock:
            if self._array is None and self._inner.device[0] == CPU:
                # Passing a capsule is faster than passing the batch, because PyTorch would first query the batch's device and versions.
                self._array = torch.utils.dlpack.from_dlpack(self._inner.dlpack(self._name, None, False, part=self._part))
                return self._array
        return self._owned(torch.from_dlpack)

    def numpy(self) -> NumpyArray:
        """The tensor as an array of NumPy. A tensor on a GPU is copied. ``bf16`` needs the package ``ml_dtypes``."""
        import numpy

        if self.is_shared_with_numpy:
            array: NumpyArray = self._owned(numpy.from_dlpack)
            return array
        return self.host_copy()

    def jax(self) -> JaxArray:
        """The tensor for JAX, on the loader's device."""
        import jax.dlpack

        return self._owned(jax.dlpack.from_dlpack)

    def tensorflow(self) -> TensorFlowTensor:
        """The tensor for TensorFlow, on the loader's device. On a GPU, this call blocks until the batch is filled.
        After TensorFlow has freed the tensor, the loader first waits for all GPU work that the process has enqueued
        until then, and then reuses the memory. If this column on a GPU was already passed to another framework, this call
        raises ``BufferError``."""
        from tensorflow.experimental import dlpack

        with self._lock:
            if self._array is None:
                self._array = dlpack.from_dlpack(self._inner.dlpack(self._name, None, False, True, self._part))
                return self._array
            owner = self._array
        if self._inner.device[0] == CUDA and not type(owner).__module__.startswith("tensorflow"):
            # The owner frees the memory when the work in its own streams is done. It does not wait for work in TensorFlow's streams.
            raise BufferError(
                f"the column {self._name!r} on {self.device} was already passed to {type(owner).__module__}, whose array does not wait for TensorFlow's work; "
                "call tensorflow() first, or copy that array"
            )
        return dlpack.from_dlpack(_exported(owner, None))

    def of(self, framework: str) -> Any:
        """The tensor for a framework."""
        return getattr(self, framework)()

    def copied(self, framework: str) -> Any | None:
        """Copies the tensor on the loader's device, for PyTorch, JAX or TensorFlow. The copy is made in the stream in which the library
        computes, and does not use the memory of the batch. The column can still be passed to libraries. Returns ``None`` if it was
        already passed to one."""
        lent = _Lent(self._inner, self._name, self._part)
        try:
            if framework == "torch":
                import torch

                return torch.from_dlpack(lent).clone()
            if framework == "jax":
                import jax.dlpack
                import jax.numpy

                # This also makes integers of 32 bits, unless `jax_enable_x64` is set.
                return jax.numpy.array(jax.dlpack.from_dlpack(lent), copy=True)
            import tensorflow

            shared = tensorflow.experimental.dlpack.from_dlpack(lent.for_any_stream())
            # `tensorflow.identity` would return the same memory.
            with tensorflow.device(shared.device):
                return tensorflow.raw_ops.DeepCopy(x=shared)
        except BufferError:
            return None

    def integers_on_host(self) -> list[int] | None:
        """The 64-bit integers of offsets in host memory. Does not wait for the device. Returns ``None`` if the offsets were passed to a
        library."""
        try:
            data = self._unowned_bytes(self.shape[0])
        except BufferError:
            return None
        return None if data is None else memoryview(data).cast("q").tolist()

    @property
    def is_shared_with_numpy(self) -> bool:
        """Whether arrays of NumPy share the memory of the column."""
        return self._inner.device[0] == CPU and self.dtype != "bf16"

    def host_copy(self) -> NumpyArray:
        """Copies the tensor to host memory."""
        import numpy

        data = self._unowned_bytes(self.shape[0])
        if data is None:
            array: NumpyArray = numpy.array(_on_host(self._array))
            return array
        kind: Any = {"u8": numpy.uint8, "i64": numpy.int64, "f16": numpy.float16, "f32": numpy.float32}.get(self.dtype)
        if kind is None:
            require_ml_dtypes()
            import ml_dtypes

            kind = ml_dtypes.bfloat16
        return numpy.frombuffer(bytearray(data), kind).reshape(self.shape)

    def first_on_host(self, samples: int) -> NumpyArray | None:
        """Copies the first samples to host memory, as floats. Returns ``None`` if ``__dlpack__`` has passed the tensor
        to another library."""
        import numpy

        try:
            data = self._unowned_bytes(samples)
        except BufferError:
            return None
        if data is None:
            array: NumpyArray = _on_host(self._array[:samples]).astype(numpy.float32)
            return array
        shape = (-1, *self.shape[1:])
        if self.dtype == "bf16":
            # The bits of a bf16 are the upper half of a 32-bit float.
            return (numpy.frombuffer(data, numpy.uint16).astype(numpy.uint32) << 16).view(numpy.float32).reshape(shape)
        kind: Any = {"u8": numpy.uint8, "i64": numpy.int64, "f16": numpy.float16, "f32": numpy.float32}[self.dtype]
        return numpy.frombuffer(data, kind).astype(numpy.float32).reshape(shape)

    def _unowned_bytes(self, samples: int) -> bytes | None:
        """Copies the first samples to host memory. Returns ``None`` if an array already owns the memory of the batch."""
        with self._lock:
            return self._inner.to_host(self._name, samples, self._part) if self._array is None else None

    def _owned(self, from_dlpack: Any) -> Any:
        """Returns an array that shares the batch's memory. The first array owns the memory."""
        with self._lock:
            if self._array is None:
                self._array = from_dlpack(self)
                return self._array
        return from_dlpack(self._array)


class _Lent:
    """A part of a column that a library copies. The batch keeps its memory."""

    def __init__(self, inner: _feedwater.Batch, name: str, part: str) -> None:
        self._inner = inner
        self._name = name
        self._part = part

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._inner.device

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        versioned = max_version is not None and max_version[0] >= 1
        return self._inner.dlpack(self._name, stream, versioned, part=self._part, lent=True)

    def for_any_stream(self) -> object:
        """Returns a capsule for a library whose streams are unknown. Waits until the batch is filled."""
        return self._inner.dlpack(self._name, None, False, unnamed=True, part=self._part, lent=True)


def _exported(array: Any, max_version: tuple[int, int] | None, stream: int | None = None) -> object:
    """Returns the capsule of an array of any framework."""
    if not hasattr(array, "__dlpack__"):
        # TensorFlow's tensors.
        from tensorflow.experimental import dlpack

        return dlpack.to_dlpack(array)
    given: dict[str, Any] = {} if stream is None else {"stream": stream}
    try:
        return array.__dlpack__(max_version=max_version, **given)
    except TypeError:
        # The array's library supports only DLPack before version 1, whose `__dlpack__` has fewer arguments.
        return array.__dlpack__(**given)


def _on_host(array: Any) -> Any:
    """Converts an array or tensor of any framework to an array of NumPy, with a copy if needed."""
    import numpy

    torch = sys.modules.get("torch")
    if torch is None or not isinstance(array, torch.Tensor):
        return numpy.asarray(array)
    array = array.detach().cpu()
    if array.dtype != torch.bfloat16:
        return array.numpy()
    require_ml_dtypes()
    import ml_dtypes

    return array.view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
