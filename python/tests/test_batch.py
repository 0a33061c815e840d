"""Tests of batches as arrays: memory is not copied and has one owner, and targets are correct."""

import gc

import feedwater as fw
import numpy
import pytest
from conftest import pixels_of


#: A chain that does not change pixels.
SAME = [fw.ops.Crop(width=12, height=8)]


def first(folder, **settings):
    """Returns the first batch."""
    return next(iter(fw.Loader(folder, SAME, batch_size=4, framework="batch", **settings)))


def test_an_array_has_the_memory_of_the_batch(folder):
    batch = first(folder, dtype="u8", layout="nhwc")
    address = batch.data_ptr
    array = batch.numpy()
    assert array.ctypes.data == address
    assert batch.numpy().ctypes.data == address
    assert numpy.asarray(batch).shape == numpy.from_dlpack(batch).shape == (4, 8, 12, 3)
    with pytest.raises(BufferError, match="given away"):
        batch.data_ptr


def test_what_is_known_of_a_batch_outlives_its_tensor(folder):
    batch = first(folder, dtype="f16")
    batch.numpy()
    assert batch.shape == (4, 3, 8, 12) and batch.dtype == "f16" and batch.layout == "nchw"
    assert batch.device == "cpu" and batch.__dlpack_device__() == (1, 0)
    assert batch.labels == [0] * 4 and batch.indices == [0, 1, 2, 3] and batch.errors == []
    assert batch.samples[2]["index"] == 2 and batch.samples[2]["width"] == 12
    assert len(batch) == 4 and "f16 nchw [4, 3, 8, 12] on cpu" in repr(batch)


def test_soft_targets_come_before_or_after_the_tensor(folder):
    for early in (False, True):
        batch = first(folder, classes=3, smoothing=0.3)
        targets = batch.targets() if early else None
        batch.numpy()
        targets = batch.targets() if targets is None else targets
        numpy.testing.assert_allclose(targets, [[0.8, 0.1, 0.1]] * 4, rtol=1e-6)
    images, targets = next(iter(fw.Loader(folder, SAME, batch_size=4, classes=2, framework="numpy")))
    numpy.testing.assert_array_equal(targets, [[1, 0]] * 4)


def test_batch_operators_mix_samples(folder):
    mixup = fw.ops.Mixup(alpha=1.0)
    loader = fw.Loader(folder, SAME, batch_size=4, classes=2, batch_operators=[mixup], seed=4, shuffle=True, framework="numpy")
    targets = numpy.concatenate([targets.copy() for _, targets in loader])
    assert ((targets > 0) & (targets < 1)).any()
    numpy.testing.assert_allclose(targets.sum(axis=1), 1, rtol=1e-6)


def test_a_capsule_that_nobody_takes_is_freed(folder):
    loader = fw.Loader(folder, SAME, batch_size=4, prefetch=2, framework="batch", dtype="u8")
    for _ in range(4):
        for batch in loader:
            batch.__dlpack__()
            batch = None
    for batch in loader:
        batch.__dlpack__(max_version=(1, 0))
    assert loader.stats["batches"] == 25


def test_what_a_consumer_asks_in_vain(folder):
    batch = first(folder, dtype="u8")
    with pytest.raises(BufferError, match="cpu"):
        batch.__dlpack__(dl_device=(2, 0))
    assert not hasattr(batch, "__cuda_array_interface__")
    assert batch.numpy().dtype == numpy.uint8
    with pytest.raises(BufferError, match="cpu"):
        batch.__dlpack__(dl_device=(2, 0), copy=True)


def test_a_copy_that_is_asked_for_leaves_the_tensor(folder):
    batch = first(folder, dtype="u8", layout="nhwc")
    address = batch.data_ptr
    copy = numpy.from_dlpack(batch, copy=True)
    on_cpu = numpy.from_dlpack(batch, device="cpu", copy=True)
    assert batch.data_ptr == address not in (copy.ctypes.data, on_cpu.ctypes.data)
    copy[:] = 0
    numpy.testing.assert_array_equal(batch.numpy()[1], pixels_of(1))
    numpy.testing.assert_array_equal(on_cpu[1], pixels_of(1))
    again = numpy.from_dlpack(batch, copy=True)
    assert batch.numpy().ctypes.data == address != again.ctypes.data


def test_array_protocol_converts_and_copies(folder):
    batch = first(folder, dtype="u8")
    floats = numpy.asarray(batch, dtype=numpy.float64)
    assert floats.dtype == numpy.float64
    address = batch.numpy().ctypes.data
    assert numpy.array(batch).ctypes.data != address
    assert numpy.asarray(batch).ctypes.data == numpy.asarray(batch, dtype="u1").ctypes.data == address


@pytest.mark.skipif(numpy.lib.NumpyVersion(numpy.__version__) < "2.0.0", reason="copy=False means something else before NumPy 2")
def test_an_array_that_must_not_be_copied(folder):
    batch = first(folder, dtype="u8")
    assert numpy.array(batch, copy=False).ctypes.data == batch.numpy().ctypes.data
    with pytest.raises(ValueError, match="float64 only by a copy"):
        numpy.array(batch, dtype=numpy.float64, copy=False)
    with pytest.raises(ValueError, match="bf16 batch on cpu"):
        numpy.array(first(folder, dtype="bf16"), copy=False)


def test_memory_lives_as_long_as_any_array_of_it(folder):
    loader = fw.Loader(folder, SAME, batch_size=4, prefetch=1, framework="batch", dtype="u8", layout="nhwc")
    batches = loader.batches()
    batch = next(batches)
    owner = batch.numpy()
    # Keep only a view of a view. The arrays that own the memory are deleted.
    view = numpy.from_dlpack(numpy.from_dlpack(batch))[2]
    capsule = numpy.from_dlpack(batch).__dlpack__()
    del owner, batch
    gc.collect()
    # The loader has two slots. The held view keeps one of them, so later batches all use the other slot.
    rest = [next(batches).indices for _ in range(4)]
    assert rest[-1] == [16, 17, 18, 19]
    numpy.testing.assert_array_equal(view, pixels_of(2))
    del capsule, view
    loader.close()


def test_a_batch_of_a_closed_loader_stays(folder):
    batch = first(folder, dtype="u8", layout="nhwc")
    gc.collect()
    numpy.testing.assert_array_equal(numpy.asarray(batch)[3], pixels_of(3))
