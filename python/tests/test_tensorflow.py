"""Tests of batches as tensors of TensorFlow."""

import os

import feedwater as fw
import numpy
import pytest
from conftest import pixels_of

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
tensorflow = pytest.importorskip("tensorflow")
SAME = [fw.ops.Crop(width=12, height=8)]


def address(tensor):
    return numpy.asarray(memoryview(tensor)).ctypes.data


def test_a_tensor_has_the_memory_of_the_batch(folder):
    batch = next(iter(fw.Loader(folder, SAME, batch_size=4, framework="batch", dtype="u8", layout="nhwc")))
    expected = batch.data_ptr
    tensor = batch.tensorflow()
    assert address(tensor) == address(batch.tensorflow()) == batch.numpy().ctypes.data == expected
    assert batch._repr_html_().count("<img") == 4
    numpy.testing.assert_array_equal(tensor[3].numpy(), pixels_of(3))


@pytest.mark.parametrize("dtype", ["u8", "f16", "bf16", "f32"])
def test_every_type_of_elements(folder, dtype):
    images, labels = next(iter(fw.Loader(folder, SAME, batch_size=4, dtype=dtype, framework="tensorflow")))
    assert images.dtype == {"u8": "uint8", "f16": "float16", "bf16": "bfloat16", "f32": "float32"}[dtype]
    assert labels.dtype == "int64" and labels.numpy().tolist() == [0] * 4
    assert float(images[0, 0, 0, 0]) == pixels_of(0)[0, 0, 0]


def test_gradients_and_slots(folder):
    """Runs several epochs, so that every slot is filled again."""
    loader = fw.Loader(folder, fw.train_recipe(8), batch_size=5, framework="tensorflow", layout="nhwc")
    weights = tensorflow.Variable(tensorflow.zeros((192, 2)))
    for _ in range(3):
        for images, labels in loader:
            with tensorflow.GradientTape() as tape:
                scores = tensorflow.reshape(images, (5, 192)) @ weights
                loss = tensorflow.reduce_mean(tensorflow.nn.sparse_softmax_cross_entropy_with_logits(labels, scores))
            weights.assign_sub(0.01 * tape.gradient(loss, weights))
    assert loader.stats["batches"] == 12 and float(tensorflow.reduce_max(tensorflow.abs(weights))) > 0
