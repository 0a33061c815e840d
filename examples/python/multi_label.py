"""Trains a small network on a table with several targets per image, such as the findings of an X-ray.

    python examples/python/multi_label.py train.csv

The first column is `path`. Each other column is a target: 0, 1, or a probability. An empty cell is an unknown target, which the loss ignores.
"""

import argparse
import csv

import feedwater as fw
import torch
from feedwater import ops
from torch import nn
from torch.nn import functional


def main():
    options = arguments()
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    targets = target_names(options.table)
    settings = {"batch_size": options.batch, "seed": 0}
    train = loader(options.table, targets, fw.train_recipe(options.side), **settings)
    test = loader(options.table, targets, fw.eval_recipe(options.side), **settings)
    layers = [nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, stride=2, padding=1), nn.ReLU()]
    network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, len(targets))).to(device)
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.01)
    for epoch in range(options.epochs):
        for batch in train:
            optimizer.zero_grad()
            wanted, known = target_vectors(batch, targets)
            losses = functional.binary_cross_entropy_with_logits(network(batch["image"]), wanted, reduction="none")
            loss = losses[known].mean()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.4f}")
    right, seen, images = torch.zeros(len(targets), device=device), torch.zeros(len(targets), device=device), 0
    with torch.no_grad():
        for batch in test:
            wanted, known = target_vectors(batch, targets)
            right += (((network(batch["image"]) > 0) == (wanted > 0.5)) & known).sum(0)
            seen += known.sum(0)
            images += len(wanted)
    for name, share in zip(targets, right / seen):
        print(f"{name}: {share:.3f}")
    print(f"accuracy {(right / seen).mean():.3f} of {images} images")
    train.close()
    test.close()


def target_names(table):
    """Returns the names of the columns after the first one."""
    with open(table, newline="", encoding="utf-8") as lines:
        return next(csv.reader(lines))[1:]


def loader(table, targets, chain, **settings):
    # A batch has a tensor [samples] for each column of the table. NaN replaces an empty cell.
    columns = {name: fw.array("f32", default=float("nan")) for name in targets}
    return fw.Loader(fw.file_list(table, image="path", label=""), chain, columns=columns, **settings)


def target_vectors(batch, targets):
    """Returns the targets [samples, targets], with 0 for the unknown ones, and which are known."""
    vectors = torch.stack([batch[name] for name in targets], dim=1)
    return vectors.nan_to_num(), ~vectors.isnan()


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("table", help="a CSV file with a column path and a column for each target")
    parser.add_argument("--side", type=int, default=224, help="width and height of the network's input, in pixels")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=16)
    return parser.parse_args()


if __name__ == "__main__":
    main()
