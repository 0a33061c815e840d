"""Trains a small network that removes blur or noise: pairs of a degraded and a sharp image, as in GoPro or SIDD.

    python examples/python/restore.py pairs.tar

The WebDataset archive has pairs such as 000.jpg, the degraded image, and 000.sharp.png of the same size. Both get the same crops and flips.
"""

import argparse

import feedwater as fw
import torch
from feedwater import ops
from torch import nn


def main():
    options = arguments()
    torch.manual_seed(0)
    side = options.side
    unit = ops.Normalize(mean=0, std=1)  # bytes become floats from 0 to 1
    moves = [ops.RandomCrop(width=side, height=side), ops.Flip(horizontal=0.5, vertical=0.5)]
    train = loader(options.data, [*moves, unit], batch_size=options.batch, shuffle=True, seed=0)
    test = loader(options.data, [ops.CenterCrop(width=side, height=side), unit], batch_size=options.batch, drop_last=False)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    network = Restorer().to(device)
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.003)
    for epoch in range(options.epochs):
        for batch in train:
            optimizer.zero_grad()
            loss = (network(batch["image"]) - batch["sharp"]).abs().mean()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.4f}")
    before = after = images = 0
    with torch.no_grad():
        for batch in test:
            before += psnr(batch["image"], batch["sharp"]).sum().item()
            after += psnr(network(batch["image"]), batch["sharp"]).sum().item()
            images += len(batch["image"])
    print(f"{before / images:.2f} dB before and {after / images:.2f} dB after, mean of {images} images")
    train.close()
    test.close()


class Restorer(nn.Module):
    """Predicts the difference between the sharp and the degraded image."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 3, 3, padding=1))

    def forward(self, image):
        return image + self.layers(image)


def loader(data, chain, **settings):
    # With `like`, the second image gets the crops and flips that are drawn for the first one.
    columns = {"sharp": fw.image("sharp.png", chain, like="image")}
    # Photographs as PNG often exceed 1 MiB, the default limit of a file in an archive.
    limits = fw.Limits(max_field_bytes=32 << 20)
    return fw.Loader(fw.webdataset(data, label=""), chain, columns=columns, limits=limits, **settings)


def psnr(found, sharp):
    """Returns the peak signal-to-noise ratio of each image in decibels."""
    error = (found.clamp(0, 1) - sharp).square().flatten(1).mean(1)
    return -10 * error.clamp(min=1e-10).log10()


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("data", help="a WebDataset archive, or several in quotes, as in 'train-{000..146}.tar'")
    parser.add_argument("--side", type=int, default=128, help="width and height of the crops, in pixels")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=16)
    return parser.parse_args()


if __name__ == "__main__":
    main()
