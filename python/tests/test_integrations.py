"""Tests of loaders in frameworks: shards, positions, and uses that must be refused."""

import copy
import gc
import pickle

import feedwater as fw
import pytest
from conftest import run_two

torch = pytest.importorskip("torch")
from feedwater import integrations  # noqa: E402

SAME = [fw.ops.Crop(width=12, height=8)]


def test_a_loader_follows_the_process_group(folder):
    outs = run_two(
        """
        import json, os
        # As Lightning's own launcher does, whose first process has no rank in its environment.
        ranks = {name: os.environ.pop(name) for name in ("RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID")}
        import feedwater as fw
        import torch.distributed
        def build(**settings):
            return fw.Loader(FOLDER, [fw.ops.Crop(width=12, height=8)], batch_size=2, framework="batch", **settings)
        early, whole, none = build(), build(rank=0, world_size=1), build(loader={"shard": "none"})
        before = len(early), early.shard
        os.environ.update(ranks)
        torch.distributed.init_process_group("gloo")
        os.environ.update(RANK="5", WORLD_SIZE="9")
        late = build()
        seen = [[index for batch in loader.batches() for index in batch.indices] for loader in (early, late, whole, none)]
        print(json.dumps([before, len(early), early.shard, late.shard, whole.shard, none.shard, seen]), flush=True)
        torch.distributed.destroy_process_group()
        """,
        folder,
    )
    for before, batches, early, late, whole, none, _ in outs:
        assert before == [10, [0, 1]] and batches == 5 and early == late and whole == none == [0, 1]
    shards = sorted(out[2] for out in outs)
    assert shards == [[0, 2], [1, 2]]
    (one, other) = (out[6] for out in outs)
    assert sorted(one[0] + other[0]) == sorted(one[1] + other[1]) == list(range(20))
    assert one[2] == one[3] == other[2] == other[3] == list(range(20))


def test_a_loader_is_not_copied(folder):
    loader = fw.Loader(folder, SAME, batch_size=4)
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="build it in the process"):
            attempt(loader)


def test_a_data_set_has_whole_batches(folder):
    loader = fw.Loader(folder, SAME, batch_size=4, dtype="u8", shuffle=True, seed=5)
    dataset = integrations.torch_dataset(loader, ("pixel_values", "labels"))
    assert len(dataset) == len(torch.utils.data.DataLoader(dataset, batch_size=None)) == 5
    epochs = [[batch["labels"].tolist() for batch in torch.utils.data.DataLoader(dataset, batch_size=None)] for _ in range(2)]
    assert epochs[0] != epochs[1] and sorted(sum(epochs[1], [])) == [0] * 10 + [1] * 10
    dataset.set_epoch(0)
    assert [labels.tolist() for _, labels in integrations.torch_dataset(loader)] == epochs[0]
    state = dataset.state_dict()
    dataset.set_epoch(0)
    dataset.load_state_dict(state)
    assert [batch["labels"].tolist() for batch in dataset] == epochs[1]


def test_what_a_data_set_refuses(folder):
    loader = fw.Loader(folder, SAME, batch_size=4)
    workers = torch.utils.data.DataLoader(integrations.torch_dataset(loader), batch_size=None, num_workers=1)
    with pytest.raises(RuntimeError, match="num_workers=0"):
        next(iter(workers))
    with pytest.raises(ValueError, match="framework"):
        integrations.torch_dataset(fw.Loader(folder, SAME, batch_size=4, framework="numpy"))
    with pytest.raises(ValueError, match="keys"):
        integrations.torch_dataset(loader, ("images",))
    soft = integrations.torch_dataset(fw.Loader(folder, SAME, batch_size=4, classes=2), padding_label=-100)
    with pytest.raises(ValueError, match="targets are soft"):
        next(iter(soft))


def test_padding_has_the_label_that_losses_ignore(folder):
    loader = fw.Loader(folder, SAME, batch_size=12, last_batch="pad")
    _, last = [labels.tolist() for _, labels in integrations.torch_dataset(loader, padding_label=-100)]
    assert last == [1] * 8 + [-100] * 4


def test_accelerate_leaves_a_loader_as_it_is(folder):
    accelerate = pytest.importorskip("accelerate")
    from feedwater.integrations.huggingface import accelerate_loader

    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    loader = fw.Loader(folder, SAME, batch_size=4, prefetch=3)
    assert accelerator.prepare(loader) is loader
    shard = accelerate_loader(loader)
    assert accelerator.prepare(shard) is shard and len(shard) == 5
    model = accelerator.prepare(torch.nn.Linear(1, 1))
    steps = []
    for _ in shard:
        with accelerator.accumulate(model):
            steps.append(accelerator.sync_gradients)
    # Each step accumulates two batches. The last step has only the last batch.
    assert steps == [False, True, False, True, True]


def test_lightning_continues_in_the_middle_of_an_epoch(folder, tmp_path):
    lightning = pytest.importorskip("lightning")

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)
            self.seen = []

        def training_step(self, batch, number):
            self.seen.append((batch.epoch, *batch.indices))
            return self.layer(torch.ones(1, 1)).sum()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

        def transfer_batch_to_device(self, batch, device, number):
            return batch

    def trained(**settings):
        module = Module()
        loader = fw.Loader(folder, SAME, batch_size=4, shuffle=True, seed=3, framework="batch")
        saving = lightning.pytorch.callbacks.ModelCheckpoint(tmp_path, "{step}", every_n_train_steps=1, save_top_k=-1)
        quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
        lightning.Trainer(max_epochs=3, callbacks=[saving], **quiet).fit(module, loader, **settings)
        return module.seen

    whole = trained()
    assert len(whole) == 15
    for step in (3, 5, 8):
        assert trained(ckpt_path=tmp_path / f"step={step}.ckpt") == whole[step:]


def test_keras_begins_with_the_first_batch(folder, monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    pytest.importorskip("keras")
    loader = fw.Loader(folder, SAME, batch_size=4, shuffle=True, seed=3)
    expected = [labels.tolist() for _ in range(3) for _, labels in loader]
    loader.set_epoch(0)
    dataset = integrations.keras_dataset(loader)
    seen = []
    # Keras first reads one batch to learn the shapes, and then makes three passes with the indices in any order.
    for number, length in enumerate((1, 5, 5, 5)):
        dataset.on_epoch_begin()
        labels = [dataset[4 - index][1].tolist() for index in range(length)]
        seen += labels if number > 0 else []
        dataset.on_epoch_end()
    assert seen == expected
    gc.collect()
    with pytest.raises(RuntimeError, match="whole epochs"):
        dataset[5]
