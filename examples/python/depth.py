"""Trains a small network that predicts the distance of each pixel from 16-bit depth maps, as in NYU Depth or KITTI.

    python examples/python/depth.py train.tar --units 1000

The WebDataset archive has pairs such as 000.jpg and 000.depth.png. A depth map is a gray PNG of 16 bits. Its numbers are metres times
`--units`: 1000 for millimetres, 256 for KITTI. 0 is an unknown distance, which the loss ignores.
"""

import argparse

import feedwater as fw
import torch
from feedwater import ops
from torch import nn

UNKNOWN = 0


def main():
    options = arguments()
    torch.manual_seed(0)
    side = options.side
    normalize = ops.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225])
    # A crop that is enlarged would show objects as nearer than they are, so only crops of one size are drawn.
    moves = [ops.Resize(shorter=side * 9 // 8), ops.RandomCrop(width=side, height=side), ops.Flip(horizontal=0.5)]
    train = loader(options.data, [*moves, normalize], batch_size=options.batch, shuffle=True, seed=0)
    test = loader(options.data, [ops.Resize(width=side, height=side), normalize], batch_size=options.batch, drop_last=False)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    # The network predicts the logarithm of the metres.
    network = nn.Sequential(nn.Conv2d(3, 16, 5, padding=2), nn.ReLU(), nn.Conv2d(16, 16, 5, padding=2), nn.ReLU(), nn.Conv2d(16, 1, 1)).to(device)
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.01)
    for epoch in range(options.epochs):
        for batch in train:
            optimizer.zero_grad()
            metres, known = distances(batch, options.units)
            loss = (network(batch["image"])[:, 0] - metres.log())[known].abs().mean()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.4f}")
    error = seen = images = 0
    with torch.no_grad():
        for batch in test:
            metres, known = distances(batch, options.units)
            error += ((network(batch["image"])[:, 0].exp() - metres).abs() / metres)[known].sum().item()
            seen += known.sum().item()
            images += len(metres)
    print(f"relative error {error / seen:.3f} of {images} images")
    train.close()
    test.close()


def loader(data, chain, **settings):
    # Numbers above 255 need f32 or i64. Each pixel of the result has the number of one pixel, so no distance is a mean over an edge.
    columns = {"depth": fw.mask("depth.png", dtype="f32", fill=UNKNOWN)}
    # A 16-bit map of more than 524,288 pixels, such as 1024x768, can exceed 1 MiB, the default limit of a file in an archive.
    limits = fw.Limits(max_field_bytes=8 << 20)
    return fw.Loader(fw.webdataset(data, label=""), chain, columns=columns, limits=limits, **settings)


def distances(batch, units):
    """Returns the distances in metres [samples, height, width], with 1 for the unknown ones, and which are known."""
    known = batch["depth"] != UNKNOWN
    return (batch["depth"] / units).where(known, 1.0), known


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("data", help="a WebDataset archive, or several in quotes, as in 'train-{000..146}.tar'")
    parser.add_argument("--units", type=float, default=1000, help="numbers of the depth maps per metre")
    parser.add_argument("--side", type=int, default=224, help="width and height of the network's input, in pixels")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=16)
    return parser.parse_args()


if __name__ == "__main__":
    main()
