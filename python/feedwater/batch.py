"""A batch of images. Its tensor can become an array of another library without a copy."""

from __future__ import annotations

import struct
import threading
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from . import _feedwater, _sheet
from ._checks import check_framework, require_ml_dtypes
from ._tensor import CPU, CUDA, Tensor
from ._torchvision.rest import way_out
from .columns import Ragged
from .objects import Objects

if TYPE_CHECKING:
    from typing import TypeAlias

    from jax import Array as JaxArray
    from numpy import ndarray
    from tensorflow import Tensor as TensorFlowTensor
    from torch import Tensor as TorchTensor

    NumpyArray: TypeAlias = ndarray[Any, Any]

__all__ = ["Batch"]

Framework = Literal["torch", "numpy", "jax", "tensorflow"]


class Meaning(NamedTuple):
    """What the labels and tensor values of a loader's batches mean."""

    #: Names of the classes in the order of their labels.
    classes: Sequence[str] = ()
    #: Tensor values of the bytes 0 and 255 for each channel, by column. Values of columns that are not listed are 0 to 255, and columns with
    #: infinite ones have indices.
    ends: Mapping[str, Sequence[Sequence[float]]] = MappingProxyType({})
    #: Names of the transforms that run in Python after the chain and may move the images.
    moved_by: Sequence[str] = ()


class Batch:
    """Images that are ready for the model, in host memory or on a GPU.

    :meth:`torch`, :meth:`numpy`, :meth:`jax` and :meth:`tensorflow` return arrays that share the memory of the batch. The
    array of the first call owns this memory. If ``__dlpack__`` is called before these methods, the library that called it
    owns the memory, and the methods raise ``BufferError``. The loader reuses the memory when the batch and all of its
    arrays are gone. Threads may share a batch.
    """

    def __init__(self, inner: _feedwater.Batch, meaning: Meaning | None = None, fields: _feedwater.BatchFields | None = None) -> None:
        self._inner = inner
        self._meaning = meaning or Meaning()
        self._fields = fields
        lock = threading.RLock()
        self._tensors = {name: Tensor(inner, name, dtype, shape, lock) for name, dtype, shape in inner.exported}
        # Other columns of numbers, and the offsets of those that are ragged.
        self._numbers: dict[str, Tensor] = {}
        self._offsets: dict[str, Tensor] = {}
        self._list_offsets: dict[str, Tensor] = {}
        for name, dtype, shape, (offsets, list_offsets) in inner.numbers:
            self._numbers[name] = Tensor(inner, name, dtype, shape, lock)
            if offsets is not None:
                self._offsets[name] = Tensor(inner, name, "i64", [offsets], lock, part="offsets")
            if list_offsets is not None:
                self._list_offsets[name] = Tensor(inner, name, "i64", [list_offsets], lock, part="list_offsets")

    @property
    def _images(self) -> Tensor:
        """The tensor of the images. Raises ``ValueError`` if all outputs of the loader are views."""
        images = self._tensors["image"]
        if 0 in images.shape[1:]:
            views = ", ".join(repr(name) for name in self._tensors if name != "image")
            raise ValueError(f"the batch has no images, because the loader has no operators of its own; use batch.column(name) with a view: {views}")
        return images

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Shape of the tensor, with its axes in the order of ``layout``. Width and height are 0 if all outputs are views."""
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
        return "cpu" if kind == CPU else f"cuda:{number}"

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
        """Label of each sample; -1 for a sample without a label."""
        return self._inner.labels

    @property
    def indices(self) -> list[int]:
        """Index of each sample in the loader's source, as :meth:`feedwater.Loader.location` takes it. If the source was
        made by ``select``, ``concat`` or ``mixture``, this is the index in the result; see :attr:`source_indices`."""
        return self._inner.indices

    @property
    def source_indices(self) -> list[int]:
        """Index of each sample in its original source, such as a folder, a data set or :func:`feedwater.samples`,
        before ``select``, ``concat`` and ``mixture``."""
        return self._inner.source_indices

    @property
    def classes(self) -> int:
        """Number of classes of the soft targets; 0 without soft targets."""
        return self._inner.classes

    @property
    def fields(self) -> list[Any] | None:
        """Fields of each sample, from items of :func:`feedwater.samples` that consist of image, label and fields. ``None``
        for a sample without fields. The whole list is ``None`` if the loader's source contains no
        :func:`feedwater.samples`. Calls ``__getitem__`` for a sample whose fields are not in memory,
        such as one from a cache, and raises what it raises."""
        return None if self._fields is None else self._fields.list()

    def objects(self, *, visible: float = 0, crowd: bool = True) -> list[Objects]:
        """Annotated objects of each sample, with boxes, categories and masks in pixels of its
        tensor. A sample has no objects if its source has no annotations, or if zeros replace the
        sample. Each call computes the objects again. This method also works after the tensor was
        passed to another library.

        Leaves out objects if less than the fraction ``visible`` (0 to 1) of their box is visible, and crowds if ``crowd``
        is False. Also leaves out boxes whose width or height is 0 in 32-bit floats. Operators on pairs, such as
        ``ops.Mixup``, do not change the objects. A mixed image also shows objects of its partner, which are not in the
        list.

        Raises ``ValueError`` if transforms that stay Python (``keep_rest`` of :func:`feedwater.from_torchvision`) may move the
        images, because the objects would not follow them.
        """
        self._check_moves()
        if not 0 <= visible <= 1:
            raise ValueError(f"visible is {visible}; it must be a number from 0 to 1, because it is a share of a box")
        return self._objects(visible, crowd)

    def _all_objects(self) -> list[Objects]:
        """The objects of :meth:`objects`, and those that the tensor does not show, in the order of the annotations. Hidden objects have boxes of
        four zeros and no masks."""
        self._check_moves()
        return [Objects(it) for it in self._inner.all_objects()]

    def _check_moves(self) -> None:
        moved_by = self._meaning.moved_by
        if moved_by:
            raise ValueError(
                f"the recipe has transforms that stay Python (keep_rest), and {', '.join(moved_by)} may move the images without the objects; "
                f"{way_out(len(moved_by) > 1)}"
            )

    def _objects(self, visible: float = 0, crowd: bool = True) -> list[Objects]:
        """Objects in pixels of the tensor, before transforms that stay Python."""
        return [Objects(it) for it in self._inner.objects(visible, crowd)]

    @property
    def samples(self) -> list[dict[str, Any]]:
        """Record of each sample, with the keys of ``feedwater dump``. ``operators`` lists the random choices of the chain:
        for each operator a dictionary with the keys ``op`` and ``actions``. Each action has ``kind``, ``formula``,
        ``params`` (by name, in the units of the operator's settings) and ``size``. ``views`` has, for each view of this
        image, such a list per output. ``location`` is the path of the sample,
        or another name. ``source_index`` is its index as in :attr:`source_indices`."""
        return self._inner.samples()

    @property
    def errors(self) -> list[tuple[int, str]]:
        """Index and message of each sample that failed."""
        return self._inner.errors

    @property
    def data_ptr(self) -> int:
        """Address of the tensor on its device. Available only until the tensor is passed to another library."""
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
        return self._images.__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self._inner.device[0] != CUDA:
            raise AttributeError("the batch is in host memory, so it has no __cuda_array_interface__; use numpy()")
        return self._inner.cuda_array_interface()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NumpyArray:
        import numpy

        wanted = None if dtype is None else numpy.dtype(dtype)
        if copy is False and not self._images.is_shared_with_numpy:
            raise ValueError(f"a {self.dtype} batch on {self.device} becomes an array of NumPy only by a copy, but copy=False forbids copies")
        array = self.numpy()
        if wanted is not None and array.dtype != wanted:
            if copy is False:
                raise ValueError(f"{array.dtype} becomes {wanted} only by a copy, but copy=False forbids copies")
            return array.astype(wanted)
        return array.copy() if copy else array

    def torch(self) -> TorchTensor:
        """The tensor for PyTorch, on the loader's device."""
        return self._images.torch()

    def numpy(self) -> NumpyArray:
        """The tensor as an array of NumPy. A tensor on a GPU is copied. ``bf16`` needs the package ``ml_dtypes``."""
        return self._images.numpy()

    def jax(self) -> JaxArray:
        """The tensor for JAX, on the loader's device."""
        return self._images.jax()

    def tensorflow(self) -> TensorFlowTensor:
        """The tensor for TensorFlow, on the loader's device. On a GPU, this call blocks until the batch is filled.
        After TensorFlow has freed the tensor, the loader first waits for all GPU work that the process has enqueued
        until then, and then reuses the memory. If a batch on a GPU was already passed to another framework, this call
        raises ``BufferError``."""
        return self._images.tensorflow()

    @property
    def columns(self) -> list[str]:
        """Names of the columns that the loader's parameter ``columns`` added."""
        return self._inner.columns

    def column(self, name: str, framework: Framework = "numpy") -> Any:
        """A column that the loader's parameter ``columns`` added: an array or tensor of ``framework``, a
        :class:`feedwater.Ragged` for lists, a list of texts or bytes, or a list of lists of texts. Views and masks share the memory of the batch, as
        the images do, and are copied in the same cases. Other columns are copied: to host memory for ``"numpy"``, otherwise to
        the batch's device. If the batch is on a GPU, columns of numbers are copied there, and their memory stays available by :meth:`values`.
        The loader reuses the memory of the batch after these copies."""
        if name not in self._inner.columns:
            names = ", ".join(self._inner.columns) or "no columns"
            raise KeyError(f"the batch has {names}, and none has the name {name!r}; add columns with fw.Loader(..., columns={{...}})")
        check_framework(framework)
        if str(framework) == "batch":
            raise ValueError('framework is "batch", which has no arrays; use "torch", "numpy", "jax" or "tensorflow"')
        if name in self._tensors:
            return self._tensors[name].of(framework)
        if (copy := self._device_copy(name, framework)) is not None:
            return copy
        kind, dtype, shape, data, offsets, ends = self._inner.column(name)
        if kind in ("text", "texts", "bytes"):
            begins = (ends if kind == "texts" else offsets) or [0]
            parts = [bytes(data[begin:end]) for begin, end in zip(begins, begins[1:])]
            if kind == "bytes":
                return parts
            texts = [part.decode() for part in parts]
            samples = offsets or [0]
            return texts if kind == "text" else [texts[begin:end] for begin, end in zip(samples, samples[1:])]
        values = self._converted(data, dtype, shape, framework)
        if offsets is None:
            return values
        if ends is not None:
            values = Ragged(values, self._integers(ends, framework), host_offsets=ends)
        return Ragged(values, self._integers(offsets, framework), host_offsets=offsets)

    def _is_on_device(self, name: str, framework: Framework) -> bool:
        """Whether arrays or tensors of a framework are made from the memory of a column on the device."""
        return name in self._tensors or (name in self._numbers and framework != "numpy" and self._inner.device[0] != CPU)

    def _device_copy(self, name: str, framework: Framework) -> Any | None:
        """Copies labels, soft targets or a column of numbers on the device, for a framework. The copy does not use the memory of the batch.
        Returns ``None`` if they are copied from host memory instead: for NumPy, and if the memory on the device was passed to a library."""
        if not self._is_on_device(name, framework):
            return None
        copy = self._numbers[name].copied(framework)
        for tensor in (self._list_offsets.get(name), self._offsets.get(name)):
            if tensor is None or copy is None:
                continue
            host, offsets = tensor.integers_on_host(), tensor.copied(framework)
            copy = None if host is None or offsets is None else Ragged(copy, offsets, host_offsets=host)
        return copy

    def _columns(self, framework: Framework) -> dict[str, Any]:
        """All columns for a framework. Afterwards, :meth:`column` returns only those on the device."""
        names = self.columns
        copies = {name: self.column(name, framework) for name in names if not self._is_on_device(name, framework)}
        # Otherwise the batch would copy the columns to host memory when the first of them is exported.
        self._inner.forget_columns()
        return {name: copies[name] if name in copies else self.column(name, framework) for name in names}

    def _integers(self, numbers: list[int], framework: Framework) -> Any:
        packed = bytearray(struct.pack(f"{len(numbers)}q", *numbers))
        return self._converted(packed, "i64", [len(numbers)], framework)

    def values(self, name: str) -> Tensor:
        """The values of a column of numbers as a tensor that shares the memory of the batch, as the images do: call ``torch()``, ``numpy()``,
        ``jax()`` or ``tensorflow()``, or pass it to a library that reads ``__dlpack__``. Of lists, points and boxes, these are the entries of
        all samples, one after another, and :meth:`offsets` has their beginnings."""
        found = {**self._tensors, **self._numbers}
        return self._found(found, name, "column of numbers")

    def offsets(self, name: str) -> Tensor:
        """The offsets of a column of lists, points or boxes as a tensor of 64-bit integers, ``[samples + 1]``, that shares the memory of the
        batch: sample ``i`` has the entries of :meth:`values` from ``offsets[i]`` up to, but without, ``offsets[i + 1]``."""
        return self._found(self._offsets, name, "column of lists, points or boxes")

    def list_offsets(self, name: str) -> Tensor:
        """The second offsets of a column of run lengths, ``[objects + 1]``, as a tensor of 64-bit integers that shares the memory of the batch.
        Sample ``i`` has the objects from ``offsets[i]`` up to, but without, ``offsets[i + 1]``, and object ``k`` of the batch has the
        :meth:`values` from ``list_offsets[k]`` up to, but without, ``list_offsets[k + 1]``."""
        return self._found(self._list_offsets, name, "column of run lengths")

    def _found(self, tensors: Mapping[str, Tensor], name: str, kind: str) -> Tensor:
        if name not in tensors:
            names = ", ".join(map(repr, tensors)) or "none"
            raise KeyError(f"the batch has no {kind} with the name {name!r}; those that it has are {names}")
        return tensors[name]

    def _labels(self, framework: Framework) -> Any:
        """The labels as an array or tensor of a framework."""
        copy = self._device_copy("label", framework)
        return self._converted(self._inner.label_bytes(), "i64", [len(self)], framework) if copy is None else copy

    def _targets(self, framework: Framework) -> Any:
        """The soft targets as an array or tensor of a framework, or the labels if there are none."""
        if self.classes == 0:
            return self._labels(framework)
        copy = self._device_copy("target", framework)
        return self._converted(self._inner.soft_target_bytes(), "f32", [len(self), self.classes], framework) if copy is None else copy

    def _converted(self, data: bytearray, dtype: str, shape: list[int], framework: Framework) -> Any:
        """Converts the elements of a column to an array or tensor of a framework, on the batch's device."""
        on_cpu = self._inner.device[0] == CPU
        if framework == "torch":
            import torch

            names = {"u8": torch.uint8, "i64": torch.int64, "f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}
            # PyTorch refuses empty buffers.
            tensor = torch.frombuffer(data, dtype=names[dtype]) if data else torch.empty(0, dtype=names[dtype])
            tensor = tensor.reshape(shape)
            return tensor if on_cpu else tensor.to(self.device, non_blocking=True)
        import numpy

        if dtype == "bf16":
            require_ml_dtypes()
            import ml_dtypes

            kind: Any = ml_dtypes.bfloat16
        else:
            kind = {"u8": numpy.uint8, "i64": numpy.int64, "f16": numpy.float16, "f32": numpy.float32}[dtype]
        array: NumpyArray = numpy.frombuffer(data, kind).reshape(shape)
        if framework == "jax":
            import jax

            return jax.device_put(array, None if on_cpu else jax.devices("cuda")[self._inner.device[1]])
        if framework == "tensorflow":
            import tensorflow

            with tensorflow.device("CPU:0" if on_cpu else f"GPU:{self._inner.device[1]}"):
                return tensorflow.convert_to_tensor(array)
        return array

    def targets(self) -> NumpyArray:
        """Soft targets, ``[samples, classes]`` of f32, if ``classes`` is set; otherwise labels as 64-bit integers."""
        import numpy

        if self.classes > 0:
            targets = numpy.frombuffer(self._inner.soft_target_bytes(), numpy.float32)
            return targets.reshape(len(self), self.classes)
        return numpy.frombuffer(self._inner.label_bytes(), numpy.int64)

    def pair(self, framework: Framework) -> tuple[Any, Any]:
        """Images and targets as tensors or arrays of a framework, on the loader's device."""
        images = self._images.of(framework)
        if framework != "jax" or self._inner.device[0] != CPU:
            return images, self._targets(framework)
        import jax

        targets = self.targets()
        if targets.dtype == "int64" and not jax.config.jax_enable_x64:
            targets = targets.astype("int32")
        return images, jax.dlpack.from_dlpack(targets, device=images.device)

    def _repr_html_(self) -> str:
        """Returns the contact sheet of the first images, for Jupyter, or of the first view if there are no other images. The batch keeps its
        tensors."""
        name = next((name for name, tensor in self._tensors.items() if 0 not in tensor.shape[1:]), "image")
        tensor = self._tensors[name]
        outputs = tensor.shape[1] if len(tensor.shape) == 5 else 1
        count = min(len(self) * outputs, _sheet.MOST_IMAGES)
        shape = " x ".join(str(extent) for extent in tensor.shape)
        title = f"Batch {self.number} of epoch {self.epoch}: {tensor.dtype} {self.layout} {shape} on {self.device}"
        if name != "image":
            title += f", view {name}"
        if count < len(self) * outputs:
            title += f", the first {count} images"
        images = tensor.first_on_host(-(-count // outputs))
        if images is not None and outputs > 1:
            images = images.reshape(-1, *tensor.shape[2:])
        samples = [sample for sample in self.samples for _ in range(outputs)][:count]
        # Objects are in pixels of the images, not of a view. Transforms that stay Python have not moved these images.
        objects = self._objects()[:count] if name == "image" else [()] * count
        classes, ends = self._meaning.classes, self._meaning.ends.get(name)
        return _sheet.html(title, images, self.layout, samples, objects, self.errors, classes, ends)
