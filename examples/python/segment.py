"""Trains a small network for segmentation on a folder of images and a folder of masks, as in Pascal VOC and ADE20K.

    python examples/python/segment.py VOC/JPEGImages VOC/SegmentationClass --classes 21
    python examples/python/segment.py ADE20K/images ADE20K/annotations --classes 151

The mask of `1.jpg` is `1.png`, in any folders, with a palette or gray. Its numbers are the classes, and 255 is ignored, also where a rotation
shows no part of the image. Images without a mask, as most of VOC, are left out. The validation uses the whole images, resized.
"""

import argparse

import feedwater as fw
import torch
from feedwater import ops
from torch import nn
from torch.nn import functional

IGNORED = 255


def main():
    options = arguments()
    torch.manual_seed(0)
    side = options.side
    normalize = ops.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225])
    moves = [ops.RandomRotation(degrees=10, interpolation="bilinear"), ops.RandomResizedCrop(width=side, height=side, scale=(0.5, 1)), ops.Flip(horizontal=0.5)]
    train = loader(options, [*moves, ops.ColorJitter(brightness=0.3, contrast=0.3), normalize], shuffle=True, seed=0, drop_last=True)
    test = loader(options, [ops.Resize(width=side, height=side), normalize], drop_last=False)
    network = nn.Sequential(nn.Conv2d(3, 16, 5, padding=2), nn.ReLU(), nn.Conv2d(16, 16, 5, padding=2), nn.ReLU(), nn.Conv2d(16, options.classes, 1))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    network.to(device)
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.01)
    for epoch in range(options.epochs):
        for batch in train:
            optimizer.zero_grad()
            loss = functional.cross_entropy(network(batch["image"]), batch["mask"], ignore_index=IGNORED)
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.4f}")
    right = seen = images = 0
    with torch.no_grad():
        for batch in test:
            known = batch["mask"] != IGNORED
            right += (network(batch["image"]).argmax(1) == batch["mask"])[known].sum().item()
            seen += known.sum().item()
            images += len(batch["mask"])
    print(f"accuracy {right / seen:.3f} of {images} images")


def loader(options, chain, **settings):
    masks = fw.directory(options.masks, extensions=["png"])
    source = fw.directory(options.images).join(masks, missing="drop")
    columns = {"mask": fw.mask("value", dtype="i64", fill=IGNORED)}
    return fw.Loader(source, chain, columns=columns, batch_size=options.batch, dtype="f32", **settings)


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("images", help="folder of the images")
    parser.add_argument("masks", help="folder of the masks")
    parser.add_argument("--classes", type=int, default=21)
    parser.add_argument("--side", type=int, default=128, help="width and height of the network's input, in pixels")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=16)
    return parser.parse_args()


if __name__ == "__main__":
    main()
