"""Tests of batches as tensors of PyTorch."""

import logging

import feedwater as fw
import pytest
from conftest import pixels_of

torch = pytest.importorskip("torch")
SAME = [fw.ops.Crop(width=12, height=8)]


def test_a_tensor_has_the_memory_of_the_batch(folder):
    batch = next(iter(fw.Loader(folder, SAME, batch_size=4, framework="batch", dtype="u8", layout="nhwc")))
    address = batch.data_ptr
    tensor = batch.torch()
    assert tensor.data_ptr() == batch.torch().data_ptr() == torch.from_dlpack(batch).data_ptr() == address
    assert (tensor[3].numpy() == pixels_of(3)).all()


@pytest.mark.parametrize("dtype", ["u8", "f16", "bf16", "f32"])
def test_every_type_of_elements(folder, dtype):
    images, labels = next(iter(fw.Loader(folder, SAME, batch_size=4, dtype=dtype)))
    expected = {"u8": torch.uint8, "f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}[dtype]
    assert images.dtype == expected and labels.dtype == torch.int64
    assert images[0, 0, 0, 0].item() == pixels_of(0)[0, 0, 0]


def test_types_of_pytorch_are_taken(folder):
    images, _ = next(iter(fw.Loader(folder, SAME, batch_size=4, dtype=torch.bfloat16)))
    assert images.dtype == torch.bfloat16


def test_a_dataloader_of_a_loader_is_an_error_with_what_to_do(folder):
    with pytest.raises(TypeError, match="torch_dataset"):
        next(iter(torch.utils.data.DataLoader(fw.Loader(folder, SAME, batch_size=4))))


@pytest.mark.parametrize("keep", ["outputs", "losses"])
def test_gradients_may_hold_every_batch(folder, caplog, keep):
    """The autograd graph keeps the input images of a layer with weights until ``backward``, so a
    program may hold every batch of an epoch."""
    torch.manual_seed(0)
    model = torch.nn.Conv2d(3, 1, 3)
    loader = fw.Loader(folder, SAME, batch_size=2, prefetch=2, epochs=1)
    held = []
    with caplog.at_level(logging.WARNING, "feedwater"):
        for images, _ in loader:
            out = model(images)
            held.append(out if keep == "outputs" else out.square().mean())
        loader._warn(loader._inner)
    del images
    loss = torch.cat(held).square().sum() if keep == "outputs" else sum(held)
    loss.backward()
    expected = torch.nn.Conv2d(3, 1, 3)
    expected.load_state_dict(model.state_dict())
    whole = torch.stack([torch.as_tensor(pixels_of(index)).permute(2, 0, 1).float() for index in range(20)])
    out = expected(whole)
    (out.square().sum() if keep == "outputs" else out.square().view(10, -1).mean(1).sum()).backward()
    # The sums have another order. An image that was overwritten changes them by far more.
    torch.testing.assert_close(model.weight.grad, expected.weight.grad, rtol=1e-4, atol=1e-4)
    assert sum("prefetch" in record.getMessage() for record in caplog.records) == 1
    assert loader.stats["batches_added"] >= 7


def test_a_model_learns_the_classes(folder):
    """The classes differ in brightness: a model must learn them from the loader's images."""
    for index in range(20):
        part = folder / ("cat" if index < 10 else "dog") / f"{index:02}.ppm"
        part.write_bytes(b"P6 12 8 255\n" + bytes([200 + index if index < 10 else 20 + index]) * 288)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 8 * 8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = fw.Loader(folder, fw.train_recipe(8), batch_size=5, seed=1)
    for _ in range(5):
        for images, labels in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
    right = sum((model(images).argmax(1) == labels).sum().item() for images, labels in fw.Loader(folder, fw.eval_recipe(8), batch_size=7))
    assert right == 20


def test_soft_targets_are_tensors(folder):
    images, targets = next(iter(fw.Loader(folder, SAME, batch_size=4, classes=3)))
    assert targets.dtype == torch.float32 and targets.tolist() == [[1, 0, 0]] * 4


def test_capsules_of_both_versions(folder):
    loader = fw.Loader(folder, SAME, batch_size=4, framework="batch", dtype="u8", layout="nhwc")
    for batch in loader:
        address = batch.data_ptr
        # Versions of PyTorch without DLPack 1 call `__dlpack__` without a version.
        tensor = torch.utils.dlpack.from_dlpack(batch.__dlpack__())
        assert tensor.data_ptr() == address
    tensor[:] = 7
    assert (tensor == 7).all(), "writable"


def test_copies_and_arrays_of_other_frameworks(folder):
    batch = next(iter(fw.Loader(folder, SAME, batch_size=4, framework="batch", dtype="u8", layout="nhwc")))
    address = batch.data_ptr
    assert torch.from_dlpack(batch, copy=True).data_ptr() != address == batch.data_ptr
    tensor = batch.torch()
    assert batch.numpy().ctypes.data == tensor.data_ptr() == address
    tensor[0] = 9
    assert (batch.numpy()[0] == 9).all() and batch._repr_html_().count("<img") == 4
    del batch
    assert (tensor[3].numpy() == pixels_of(3)).all()


def test_bf16_is_copied_for_numpy_after_its_tensor_was_used(folder):
    pytest.importorskip("ml_dtypes")
    batch = next(iter(fw.Loader(folder, SAME, batch_size=4, framework="batch", dtype="bf16")))
    tensor = batch.torch()
    assert (batch.numpy().astype("f4") == tensor.float().numpy()).all()
