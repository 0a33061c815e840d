"""Trains a small network with Lightning on a folder of classes, on one or several processes, and continues from its checkpoint.

    python examples/python/lightning_train.py data/train --epochs 4
    torchrun --nproc-per-node 2 examples/python/lightning_train.py data/train --epochs 4

`fit` accepts a loader. Each process reads its own shard, and Lightning's checkpoints contain the loader's position.
"""

import argparse
import os
import pathlib

import feedwater as fw
import lightning
import torch
from torch import nn


def main():
    options = arguments()
    lightning.seed_everything(0, verbose=False)
    loader = fw.Loader(options.data, fw.train_recipe(32), batch_size=options.batch, seed=0)
    # `last_batch="pad"` gives all ranks the same number of batches. Padding is not counted.
    evaluation = fw.Loader(options.data, fw.eval_recipe(32), batch_size=options.batch, last_batch="pad", framework="batch")
    trainer = lightning.Trainer(
        max_epochs=options.epochs,
        devices=int(os.environ.get("WORLD_SIZE", "1")),
        accelerator="auto" if torch.cuda.is_available() else "cpu",
        default_root_dir=options.out,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        callbacks=[lightning.pytorch.callbacks.ModelCheckpoint(options.out, save_last=True)],
    )
    last = options.out / "last.ckpt"
    trainer.fit(Classifier(len(loader.classes)), loader, evaluation, ckpt_path=last if last.exists() else None)
    if trainer.is_global_zero:
        metrics = trainer.callback_metrics
        print(f"epoch {loader.state_dict()['state']['epoch']}")
        print(f"accuracy {metrics['right'] / metrics['seen']:.3f} of {int(metrics['seen'])} images")


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("data", help="folder with one sub-folder per class")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=16, help="images per process")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("lightning"), help="folder of the checkpoints")
    return parser.parse_args()


class Classifier(lightning.LightningModule):
    def __init__(self, classes):
        super().__init__()
        layers = [nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU()]
        self.network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, classes))

    def training_step(self, batch, number):
        images, labels = batch
        return nn.functional.cross_entropy(self.network(images), labels)

    def validation_step(self, batch, number):
        images, labels = batch.pair("torch")
        counted = torch.tensor([not sample["padding"] for sample in batch.samples], device=self.device)
        right = ((self.network(images).argmax(1) == labels) & counted).sum().float()
        # Sums over all batches and ranks.
        sums = {"right": right, "seen": counted.sum().float()}
        self.log_dict(sums, on_step=False, on_epoch=True, reduce_fx="sum", sync_dist=True, batch_size=len(batch))

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.01)


if __name__ == "__main__":
    main()
