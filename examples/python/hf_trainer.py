"""Trains a small network with the Trainer of transformers on a folder of classes, on one or several processes.

    python examples/python/hf_trainer.py data/train --epochs 4
    torchrun --nproc-per-node 2 examples/python/hf_trainer.py data/train --epochs 4

The Trainer of `feedwater.integrations.huggingface` accepts loaders as data sets. Run the program again to continue from
its last checkpoint.
"""

import argparse
import pathlib

import feedwater as fw
import torch
from feedwater.integrations.huggingface import Trainer
from torch import nn
from transformers import TrainingArguments
from transformers.trainer_utils import get_last_checkpoint


def main():
    options = arguments()
    settings = TrainingArguments(
        output_dir=str(options.out),
        num_train_epochs=options.epochs,
        per_device_train_batch_size=options.batch,
        per_device_eval_batch_size=options.batch,
        learning_rate=0.01,
        lr_scheduler_type="constant",
        save_strategy="epoch",
        report_to=[],
        disable_tqdm=True,
        use_cpu=not torch.cuda.is_available(),
    )
    torch.manual_seed(0)
    loader = fw.Loader(options.data, fw.train_recipe(32), batch_size=options.batch, seed=0)
    # `last_batch="pad"` gives all ranks the same number of batches. Padding has the label -100.
    evaluation = fw.Loader(options.data, fw.eval_recipe(32), batch_size=options.batch, last_batch="pad")
    network = Classifier(len(loader.classes))
    trainer = Trainer(model=network, args=settings, train_dataset=loader, eval_dataset=evaluation, compute_metrics=metrics)
    last = get_last_checkpoint(options.out) if options.out.exists() else None
    trainer.train(resume_from_checkpoint=last)
    result = trainer.evaluate()
    if trainer.is_world_process_zero():
        print(f"steps {trainer.state.global_step}")
        print(f"accuracy {result['eval_accuracy']:.3f} of {result['eval_images']} images")


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("data", help="folder with one sub-folder per class")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=16, help="images per process")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("trainer"), help="folder of the checkpoints")
    return parser.parse_args()


class Classifier(nn.Module):
    """A model in the Trainer's convention: its arguments are the keys of a batch, and it returns the loss."""

    def __init__(self, classes):
        super().__init__()
        layers = [nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU()]
        self.network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, classes))

    def forward(self, pixel_values, labels=None):
        logits = self.network(pixel_values)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def metrics(predictions):
    counted = predictions.label_ids != -100
    right = predictions.predictions.argmax(1)[counted] == predictions.label_ids[counted]
    return {"accuracy": right.mean(), "images": int(counted.sum())}


if __name__ == "__main__":
    main()
