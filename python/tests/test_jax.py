"""Tests of batches as arrays of JAX."""

import feedwater as fw
import numpy
import pytest
from conftest import pixels_of

jax = pytest.importorskip("jax")
SAME = [fw.ops.Crop(width=12, height=8)]


def test_an_array_has_the_memory_of_the_batch(folder):
    batch = next(iter(fw.Loader(folder, SAME, batch_size=4, framework="batch", dtype="u8", layout="nhwc")))
    address = batch.data_ptr
    array = batch.jax()
    assert array.unsafe_buffer_pointer() == address
    numpy.testing.assert_array_equal(array[3], pixels_of(3))


def test_a_function_is_differentiated_over_batches(folder):
    loader = fw.Loader(folder, fw.train_recipe(8), batch_size=5, framework="jax")

    @jax.jit
    def loss(weights, images, labels):
        scores = jax.numpy.einsum("nchw,chwk->nk", images, weights)
        return -jax.nn.log_softmax(scores)[jax.numpy.arange(5), labels].mean()

    weights = jax.numpy.zeros((3, 8, 8, 2))
    for images, labels in loader:
        assert images.dtype == jax.numpy.float32 and images.device == labels.device
        weights -= 0.01 * jax.grad(loss)(weights, images, labels)
    assert bool(jax.numpy.isfinite(weights).all()) and float(abs(weights).max()) > 0


def test_labels_go_over_dlpack_too(folder, monkeypatch):
    loader = fw.Loader(folder, SAME, batch_size=4, framework="jax")
    monkeypatch.setattr(jax, "device_put", None)
    seen = []
    for images, labels in loader:
        assert labels.dtype == jax.numpy.int32 and labels.device == images.device
        seen += labels.tolist()
    assert seen == [0] * 10 + [1] * 10
    soft = next(iter(fw.Loader(folder, SAME, batch_size=4, classes=2, framework="jax")))[1]
    assert soft.dtype == jax.numpy.float32 and soft.tolist() == [[1, 0]] * 4


def test_an_array_outlives_its_batch_and_is_shown(folder):
    batch = next(iter(fw.Loader(folder, SAME, batch_size=4, framework="batch", dtype="bf16")))
    array = batch.jax()
    assert batch._repr_html_().count("<img") == 4
    assert batch.numpy().dtype == array.dtype
    del batch
    assert float(array[3, 0, 0, 0]) == pixels_of(3)[0, 0, 0]
