"""Trains a small network with accelerate on a folder of classes, on one or several processes, and continues from its checkpoint.

    python examples/python/accelerate_train.py data/train --epochs 4
    accelerate launch --num_processes 2 examples/python/accelerate_train.py data/train --epochs 4

`prepare` returns a loader unchanged, because each process already reads its own shard. `save_state` also stores the
loader's position.
"""

import argparse
import pathlib

import feedwater as fw
import torch
from accelerate import Accelerator
from torch import nn


def main():
    options = arguments()
    accelerator = Accelerator(cpu=not torch.cuda.is_available())
    torch.manual_seed(0)
    loader = fw.Loader(options.data, fw.train_recipe(32), batch_size=options.batch, seed=0)
    network = small_network(len(loader.classes))
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.01)
    network, optimizer, loader = accelerator.prepare(network, optimizer, loader)
    accelerator.register_for_checkpointing(loader)
    if options.out.exists():
        accelerator.load_state(options.out)
    for epoch in range(loader.state_dict()["state"]["epoch"], options.epochs):
        for images, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(network(images), labels)
            accelerator.backward(loss)
            optimizer.step()
        accelerator.save_state(options.out)
        accelerator.print(f"epoch {epoch}: loss {loss.item():.4f}")
    right, seen = evaluate(network, options, accelerator)
    accelerator.print(f"accuracy {right / seen:.3f} of {seen} images")
    accelerator.end_training()


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("data", help="folder with one sub-folder per class")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=16, help="images per process")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("accelerate"), help="folder of the checkpoint")
    return parser.parse_args()


def small_network(classes):
    layers = [nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, classes))


def evaluate(network, options, accelerator):
    """Returns the numbers of correct and of all images, over all processes."""
    counts = torch.zeros(2, device=accelerator.device)
    network.eval()
    # `last_batch="pad"` gives all processes the same number of batches. Padding is not counted.
    evaluation = fw.Loader(options.data, fw.eval_recipe(32), batch_size=options.batch, last_batch="pad", framework="batch")
    with evaluation as loader, torch.inference_mode():
        for batch in loader:
            counted = torch.tensor([not sample["padding"] for sample in batch.samples], device=accelerator.device)
            images, labels = batch.pair("torch")
            counts += torch.stack([((network(images).argmax(1) == labels) & counted).sum(), counted.sum()])
    return (int(count) for count in accelerator.reduce(counts))


if __name__ == "__main__":
    main()
