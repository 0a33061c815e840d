"""Stand-ins for PyTorch, JAX and TensorFlow on the simulated GPU of `tests/simulated/`. They read tensors by DLPack and copy them in a
stream of their own. All other functions are missing, so a copy through host memory is an error."""

import contextlib
import ctypes
import importlib.machinery
import os
import sys
import types

import numpy

driver = ctypes.CDLL(os.environ["FEEDWATER_LIBCUDA"])
#: Whether copies run at once, before any other work that no stream waits for. Otherwise they run as late as possible.
at_once = False
#: Types of elements by code and bits of DLPack.
KINDS = {(0, 64): numpy.int64, (1, 8): numpy.uint8, (2, 16): numpy.float16, (2, 32): numpy.float32}

_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_rename = ctypes.pythonapi.PyCapsule_SetName
_rename.argtypes = [ctypes.py_object, ctypes.c_char_p]


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_uint64),
        ("device_type", ctypes.c_int32),
        ("device", ctypes.c_int32),
        ("axes", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64),
    ]


Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Legacy(ctypes.Structure):
    _fields_ = [("tensor", DLTensor), ("owner", ctypes.c_void_p), ("deleter", Deleter)]


class Versioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("owner", ctypes.c_void_p), ("deleter", Deleter)]
    _fields_ += [("flags", ctypes.c_uint64), ("tensor", DLTensor)]


def check(code):
    assert code == 0, f"the driver returned {code}"


def calls(name):
    driver.sim_calls.restype = ctypes.c_ulonglong
    return driver.sim_calls(name.encode())


def retain_context():
    """Makes the primary context of the GPU current."""
    context = ctypes.c_void_p()
    check(driver.cuInit(0))
    check(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    check(driver.cuCtxSetCurrent(context))


def new_stream():
    stream = ctypes.c_void_p()
    # 1: the stream does not wait for the default stream.
    check(driver.cuStreamCreate(ctypes.byref(stream), 1))
    return stream.value


class Array:
    """An array on the GPU: the memory of a column, or a copy."""

    def __init__(self, data, shape, kind, stream, free=lambda: None):
        self.data, self.shape, self.kind, self.stream, self._free = data, shape, kind, stream, free

    def __del__(self):
        self._free()

    @property
    def bytes(self):
        return int(numpy.prod(self.shape)) * numpy.dtype(self.kind).itemsize

    def copied(self):
        """Copies the array in its stream. The host does not wait."""
        data = ctypes.c_uint64()
        check(driver.cuMemAlloc_v2(ctypes.byref(data), ctypes.c_size_t(max(self.bytes, 1))))
        if self.bytes:
            driver.cuMemcpyDtoDAsync_v2.argtypes = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p]
            check(driver.cuMemcpyDtoDAsync_v2(data.value, self.data, self.bytes, self.stream))
        if at_once:
            driver.cuStreamSynchronize.argtypes = [ctypes.c_void_p]
            check(driver.cuStreamSynchronize(self.stream))
        return Array(data.value, self.shape, self.kind, self.stream)

    clone = copied

    def numpy(self):
        """Waits for the stream, and reads the array."""
        host = numpy.empty(self.shape, self.kind)
        if self.bytes:
            driver.cuMemcpyDtoHAsync_v2.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p]
            check(driver.cuMemcpyDtoHAsync_v2(host.ctypes.data, self.data, self.bytes, self.stream))
            driver.cuStreamSynchronize.argtypes = [ctypes.c_void_p]
            check(driver.cuStreamSynchronize(self.stream))
        return host

    def __len__(self):
        return self.shape[0]

    def __getitem__(self, part):
        assert isinstance(part, slice), "reading a number of a GPU waits for the GPU"
        begin, end, _ = part.indices(len(self))
        each = self.bytes // max(len(self), 1)
        return Array(self.data + begin * each, (end - begin, *self.shape[1:]), self.kind, self.stream)


def taken(capsule, stream):
    """Takes the tensor of a capsule."""
    name, managed = (b"dltensor_versioned", Versioned) if b"dltensor_versioned" in repr(capsule).encode() else (b"dltensor", Legacy)
    address = _pointer(capsule, name)
    managed = managed.from_address(address)
    used = b"used_" + name
    _rename(capsule, used)
    tensor = managed.tensor
    assert (tensor.device_type, tensor.device, tensor.lanes, tensor.offset) == (2, 0, 1, 0)
    shape = tuple(tensor.shape[axis] for axis in range(tensor.axes))
    assert tensor.data % 256 == 0
    # The name must exist as long as the capsule.
    return Array(tensor.data, shape, KINDS[tensor.code, tensor.bits], stream, lambda used=used: managed.deleter(address))


def module(name, **functions):
    made = types.ModuleType(name)
    made.__spec__ = importlib.machinery.ModuleSpec(name, None)
    made.__dict__.update(functions)
    sys.modules[name] = made
    return made


def install():
    """Installs the stand-ins."""
    retain_context()
    streams = {name: new_stream() for name in ("torch", "jax", "tensorflow")}

    def torch_from_dlpack(column):
        if isinstance(column, Array):
            return column
        assert column.__dlpack_device__() == (2, 0)
        return taken(column.__dlpack__(stream=streams["torch"], max_version=(1, 0)), streams["torch"])

    module("torch", from_dlpack=torch_from_dlpack)

    def jax_from_dlpack(column):
        return taken(column.__dlpack__(stream=streams["jax"]), streams["jax"])

    def jax_array(array, copy):
        assert copy
        return array.copied()

    dlpack, arrays = module("jax.dlpack", from_dlpack=jax_from_dlpack), module("jax.numpy", array=jax_array)
    module("jax", dlpack=dlpack, numpy=arrays)

    def deep_copy(x):
        return x.copied()

    def tensorflow_from_dlpack(capsule):
        array = taken(capsule, streams["tensorflow"])
        array.device = "GPU:0"
        return array

    dlpack = module("tensorflow.experimental.dlpack", from_dlpack=tensorflow_from_dlpack)
    experimental = module("tensorflow.experimental", dlpack=dlpack)
    raw_ops = types.SimpleNamespace(DeepCopy=deep_copy)
    module("tensorflow", experimental=experimental, raw_ops=raw_ops, device=lambda name: contextlib.nullcontext())
