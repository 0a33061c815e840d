"""Tests of a Trainer of transformers that continues in the middle of an epoch."""

import feedwater as fw
import pytest
from conftest import run_two

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("accelerate")
import transformers  # noqa: E402
from feedwater.integrations.huggingface import Trainer, accelerate_loader  # noqa: E402

SAME = [fw.ops.Crop(width=12, height=8)]


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 2)

    def forward(self, pixel_values, labels):
        logits = self.layer(pixel_values.mean((2, 3)) / 255)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


class Counted(fw.Loader):
    """A loader that counts the batches it returns."""

    given = 0

    def pair(self, batch):
        self.given += 1
        return super().pair(batch)


class Recording(Trainer):
    """A Trainer that records the first pixel of each image of a step. Tests identify images by this pixel."""

    def training_step(self, model, inputs, *rest):
        self.seen.append(inputs["pixel_values"][:, :, 0, 0].long().tolist())
        return super().training_step(model, inputs, *rest)


def trained(folder, out, *, batch, accumulate=1, checkpoint=None, **settings):
    """Returns the images of each step, the weights at the end, and the number of batches read."""
    arguments = transformers.TrainingArguments(
        output_dir=str(out),
        num_train_epochs=3,
        per_device_train_batch_size=batch,
        gradient_accumulation_steps=accumulate,
        learning_rate=0.1,
        save_strategy="no" if checkpoint else "steps",
        save_steps=1,
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    )
    torch.manual_seed(0)
    with Counted(folder, SAME, batch_size=batch, shuffle=True, seed=3, **settings) as loader:
        trainer = Recording(model=Model(), args=arguments, train_dataset=loader)
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.seen = []
        trainer.train(resume_from_checkpoint=checkpoint and str(out / f"checkpoint-{checkpoint}"))
        weights = [parameter.tolist() for parameter in trainer.model.parameters()]
    return trainer.seen, weights, loader.given


@pytest.mark.parametrize("accumulate, checkpoints", [(1, [2, 7, 13]), (2, [1, 4, 6])])
def test_a_run_continues_with_the_batches_that_are_left(folder, tmp_path, accumulate, checkpoints):
    # An epoch has six batches, and two images are left over. With two accumulated batches per step, it has three steps.
    settings = {"batch": 3, "accumulate": accumulate}
    seen, weights, _ = trained(folder, tmp_path, **settings)
    assert len(seen) == 18
    for epoch in range(3):
        images = {tuple(image) for step in seen[6 * epoch : 6 * epoch + 6] for image in step}
        assert len(images) == 18
    for checkpoint in checkpoints:
        rest = seen[checkpoint * accumulate :]
        # The continued run reads only the remaining batches.
        assert trained(folder, tmp_path, checkpoint=checkpoint, **settings) == (rest, weights, len(rest))


def test_a_run_of_two_processes_continues_with_the_batches_that_are_left(folder, tmp_path):
    outs = run_two(
        f"""
        import json, pathlib
        import torch.distributed
        from test_trainer import trained
        out = pathlib.Path({str(tmp_path)!r})
        whole = trained(FOLDER, out, batch=2)
        rest = trained(FOLDER, out, batch=2, checkpoint=8)
        print(json.dumps([whole, rest]), flush=True)
        torch.distributed.destroy_process_group()
        """,
        folder,
    )
    # Each process has five batches per epoch.
    for (seen, weights, _), rest in outs:
        assert len(seen) == 15
        assert rest == [seen[8:], weights, 7]
    (one, _), (other, _) = outs
    assert one[1] == other[1]
    for epoch in range(3):
        images = {tuple(image) for seen, *_ in (one, other) for step in seen[5 * epoch : 5 * epoch + 5] for image in step}
        assert len(images) == 20


def test_other_data_is_skipped_as_by_accelerate(folder):
    loader = torch.utils.data.DataLoader(list(range(6)), batch_size=2)
    assert [batch.tolist() for batch in transformers.trainer.skip_first_batches(loader, 1)] == [[2, 3], [4, 5]]
    # A loader of a part of the epoch, with padding: the last of its three batches of 8 has one sample and seven copies of it.
    part = fw.Loader(folder, SAME, batch_size=8, last_batch="pad", positions=(3, 20))
    whole = [images.clone() for images, _ in part]
    rest = list(transformers.trainer.skip_first_batches(accelerate_loader(part), 2))
    assert len(whole) == 3 and len(rest) == 1 and torch.equal(rest[0][0], whole[2])
