"""Trains a detector of torchvision, with a small backbone, on a COCO file such as `instances_train2017.json`.

    python examples/python/detect.py annotations/instances_train2017.json train2017

The boxes follow the crops and flips of their image. The columns `boxes`, `categories` and `iscrowd` have an entry for each object.
"""

import argparse
import json

import feedwater as fw
import torch
from feedwater import ops
from torch import nn
from torchvision.models.detection import FCOS
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.ops import box_iou


def main():
    options = arguments()
    torch.manual_seed(0)
    side, names = options.side, category_names(options.annotations)
    normalize = ops.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225])
    resize = ops.Resize(width=side, height=side)
    train = loader(options, [ops.RandomIouCrop(), ops.Flip(horizontal=0.5), resize, normalize], batch_size=options.batch, shuffle=True, seed=0)
    test = loader(options, [resize, normalize], batch_size=options.batch, drop_last=False)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    network = detector(side, len(names)).to(device)
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.002)
    for epoch in range(options.epochs):
        for batch in train:
            optimizer.zero_grad()
            loss = sum(network(list(batch["image"]), targets(batch)).values())
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.4f}")
    network.eval()
    found = seen = images = 0
    with torch.no_grad():
        for batch in test:
            for target, result in zip(targets(batch), network(list(batch["image"]))):
                same = target["labels"][:, None] == result["labels"]
                overlap = box_iou(target["boxes"], result["boxes"]) * same * (result["scores"] > 0.5)
                found += (overlap > 0.5).any(1).sum().item()
                seen += len(overlap)
                images += 1
    print(f"recall {found / seen:.3f} of {seen} objects in {images} images")
    train.close()
    test.close()


def loader(options, chain, **settings):
    columns = {"boxes": fw.boxes(format="xywh"), "categories": fw.list_("i64"), "iscrowd": fw.list_("u8")}
    return fw.Loader(fw.coco(options.annotations, images=options.images), chain, columns=columns, **settings)


def targets(batch):
    """Returns the targets for a detector of torchvision. It numbers the categories from 1, and 0 is the background."""
    found = []
    for boxes, categories, crowd in zip(batch["boxes"], batch["categories"], batch["iscrowd"]):
        # The box of an object that the crop does not show has four zeros.
        kept = (boxes[:, 2] > boxes[:, 0]) & (crowd == 0)
        found.append({"boxes": boxes[kept], "labels": categories[kept] + 1})
    return found


def category_names(annotations):
    """Returns the names in the order of the column `categories`, which is that of the IDs."""
    with open(annotations, encoding="utf-8") as file:
        categories = json.load(file)["categories"]
    return [category["name"] for category in sorted(categories, key=lambda it: it["id"])]


def detector(side, categories):
    layers = [nn.Conv2d(3, 16, 4, stride=2, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 4, stride=2, padding=1), nn.ReLU()]
    backbone = nn.Sequential(*layers, nn.Conv2d(32, 32, 4, stride=2, padding=1), nn.ReLU())
    backbone.out_channels = 32
    # The size of an anchor is the stride of the backbone. feedwater has resized and normalized the images.
    settings = {"min_size": side, "max_size": side, "image_mean": [0, 0, 0], "image_std": [1, 1, 1]}
    return FCOS(backbone, categories + 1, anchor_generator=AnchorGenerator(sizes=((8,),), aspect_ratios=((1.0,),)), **settings)


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("annotations", help="a COCO file with boxes")
    parser.add_argument("images", help="folder of the images")
    parser.add_argument("--side", type=int, default=128, help="width and height of the network's input, in pixels")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=8)
    return parser.parse_args()


if __name__ == "__main__":
    main()
