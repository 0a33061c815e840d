"""A batch, and its tensor as an array of other libraries without a copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from . import _feedwater

if TYPE_CHECKING:
    from typing import TypeAlias

    from jax import Array as JaxArray
    from numpy import ndarray
    from tensorflow import Tensor as TensorFlowTensor
    from torch import Tensor as TorchTensor

    NumpyArray: TypeAlias = ndarray[Any, Any]

__all__ = ["Batch"]

Framework = Literal["torch", "numpy", "jax", "tensorflow"]

# DLPack's type of a device.
_CPU = 1
_CUDA = 2


class Batch:
    """Images that are ready for the model, in host memory or on a GPU.

    The first call of :meth:`torch`, :meth:`numpy`, :meth:`jax`, :meth:`tensorflow` or ``__dlpack__`` gives the memory to the array that
    it returns; later calls return arrays of the same memory. The memory goes back to the loader when all of them are gone.
    """

    def __init__(self, inner: _feedwater.Batch, fields: list[Any] | None = None) -> None:
        self._inner = inner
        self._fields = fields
        # The array that owns the memory.
        self._array: Any = None

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Extents in the order of ``layout``."""
        return self._inner.shape

    @property
    def dtype(self) -> str:
        """``"u8"``, ``"f16"``, ``"bf16"`` or ``"f32"``."""
        return self._inner.dtype

    @property
    def layout(self) -> str:
        """``"nchw"`` or ``"nhwc"``."""
        return self._inner.layout

    @property
    def device(self) -> str:
        """``"cpu"`` or ``"cuda:N"``, as PyTorch writes it."""
        kind, number = self._inner.device
        return "cpu" if kind == _CPU else f"cuda:{number}"

    @property
    def epoch(self) -> int:
        """Epoch, from 0."""
        return self._inner.epoch

    @property
    def number(self) -> int:
        """Number of the batch in the epoch, from 0."""
        return self._inner.number

    @property
    def labels(self) -> list[int]:
        """Label of each sample, -1 if it has none."""
        return self._inner.labels

    @property
    def indices(self) -> list[int]:
        """Place of each sample in the source."""
        return self._inner.indices

    @property
    def classes(self) -> int:
        """Classes of the soft targets, 0 without."""
        return self._inner.classes

    @property
    def fields(self) -> list[Any] | None:
        """What the items of :func:`feedwater.samples` have beside image and label, for each sample; ``None`` if they have nothing."""
        return self._fields

    @property
    def samples(self) -> list[dict[str, Any]]:
        """What happened to each sample, with the keys of ``feedwater dump``."""
        return self._inner.samples()

    @property
    def errors(self) -> list[tuple[int, str]]:
        """Place and message of each sample that failed."""
        return self._inner.errors

    @property
    def data_ptr(self) -> int:
        """Address of the tensor on its device. Ask before the tensor is used."""
        return self._inner.data_ptr

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        kind = f"{self.dtype} {self.layout} {list(self.shape)} on {self.device}"
        return f"<feedwater.Batch {self.number} of epoch {self.epoch}: {kind}>"

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
        if dl_device is not None and tuple(dl_device) != self._inner.device:
            raise BufferError(f"the batch is on {self.device} and is not copied to another device; copy its array")
        if copy:
            raise BufferError("the batch is not copied; copy its array")
        if self._array is not None:
            return self._array.__dlpack__()
        versioned = max_version is not None and max_version[0] >= 1
        return self._inner.dlpack(stream, versioned)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self._inner.device[0] != _CUDA:
            raise AttributeError("a batch in host memory has no __cuda_array_interface__")
        return self._inner.cuda_array_interface()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NumpyArray:
        import numpy

        array = self.numpy()
        return array.astype(dtype) if dtype is not None and array.dtype != dtype else numpy.array(array, copy=copy)

    def torch(self) -> TorchTensor:
        """The tensor for PyTorch, on the loader's device."""
        import torch

        if self._array is None and self._inner.device[0] == _CPU:
            # PyTorch takes a capsule in less time than an object, whose device and versions it asks for first.
            self._array = torch.utils.dlpack.from_dlpack(self._inner.dlpack(None, False))
            return self._array
        return self._owned(torch.from_dlpack)

    def numpy(self) -> NumpyArray:
        """The tensor for NumPy. One on a GPU is copied; ``bf16`` needs ``ml_dtypes``."""
        import numpy

        if self._inner.device[0] == _CPU and self.dtype != "bf16":
            array: NumpyArray = self._owned(numpy.from_dlpack)
            return array
        kind: Any = {"u8": numpy.uint8, "f16": numpy.float16, "f32": numpy.float32}.get(self.dtype)
        if kind is None:
            import ml_dtypes

            kind = ml_dtypes.bfloat16
        return numpy.frombuffer(self._inner.to_host(), kind).reshape(self.shape)

    def jax(self) -> JaxArray:
        """The tensor for JAX, on the loader's device."""
        import jax.dlpack

        return self._owned(jax.dlpack.from_dlpack)

    def tensorflow(self) -> TensorFlowTensor:
        """The tensor for TensorFlow, on the loader's device."""
        from tensorflow.experimental import dlpack

        return self._owned(lambda batch: dlpack.from_dlpack(batch.__dlpack__()))

    def targets(self) -> NumpyArray:
        """Soft targets, ``[samples, classes]`` of f32, if ``classes`` is set; else labels as 64-bit integers."""
        import numpy

        if self.classes > 0:
            targets = numpy.frombuffer(self._inner.soft_target_bytes(), numpy.float32)
            return targets.reshape(len(self), self.classes)
        return numpy.frombuffer(self._inner.label_bytes(), numpy.int64)

    def pair(self, framework: Framework) -> tuple[Any, Any]:
        """Images and targets as tensors or arrays of a framework, on the loader's device."""
        if framework == "torch":
            import torch

            images = self.torch()
            if self.classes > 0:
                targets = torch.frombuffer(self._inner.soft_target_bytes(), dtype=torch.float32)
                targets = targets.reshape(len(self), self.classes)
            else:
                targets = torch.frombuffer(self._inner.label_bytes(), dtype=torch.int64)
            return images, targets if self._inner.device[0] == _CPU else targets.to(images.device, non_blocking=True)
        if framework == "jax":
            import jax

            images = self.jax()
            return images, jax.device_put(self.targets(), images.device)
        if framework == "tensorflow":
            import tensorflow

            return self.tensorflow(), tensorflow.convert_to_tensor(self.targets())
        return self.numpy(), self.targets()

    def _owned(self, from_dlpack: Any) -> Any:
        """An array of the memory. The first one owns it."""
        if self._array is not None:
            return from_dlpack(self._array)
        self._array = from_dlpack(self)
        return self._array
