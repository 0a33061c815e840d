"""Trains a small network that finds the keypoints of people in images, from a COCO file such as `person_keypoints_train2017.json`.

    python examples/python/keypoints.py annotations/person_keypoints_train2017.json train2017

The keypoints follow the crops and flips of their image. If the image is flipped, `left_eye` and `right_eye` change places. COCO's keypoints
are indices of pixels, so `offset=0.5` puts them at the centres of their pixels before they move. They are indices again in batches.
"""

import argparse
import json

import feedwater as fw
import torch
from feedwater import ops
from torch import nn
from torch.nn import functional

#: Width and height of a cell, in pixels. The network predicts a cell for each keypoint.
CELL = 4


def main():
    options = arguments()
    torch.manual_seed(0)
    side, names = options.side, keypoint_names(options.annotations)
    normalize = ops.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225])
    moves = [ops.RandomResizedCrop(width=side, height=side, scale=(0.5, 1)), ops.Flip(horizontal=0.5)]
    train = loader(options, names, [*moves, normalize], batch_size=options.batch, shuffle=True, seed=0)
    test = loader(options, names, [ops.Resize(width=side, height=side), normalize], batch_size=options.batch, drop_last=False)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    layers = [nn.Conv2d(3, 16, 4, stride=2, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 4, stride=2, padding=1), nn.ReLU()]
    network = nn.Sequential(*layers, nn.Conv2d(32, 32, 7, padding=3), nn.ReLU(), nn.Conv2d(32, len(names), 1)).to(device)
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.005)
    for epoch in range(options.epochs):
        for batch in train:
            sample, point, position, _ = shown_points(batch)
            if len(sample) == 0:
                continue
            optimizer.zero_grad()
            cells = network(batch["image"])
            column, row = ((position + 0.5) / CELL).long().clamp(max=cells.shape[-1] - 1).unbind(1)
            loss = functional.cross_entropy(cells.flatten(2)[sample, point], row * cells.shape[-1] + column)
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.4f}")
    right = seen = images = 0
    with torch.no_grad():
        for batch in test:
            sample, point, position, size = shown_points(batch)
            cells = network(batch["image"])
            best = cells.flatten(2).argmax(2)[sample, point]
            predicted = torch.stack([best % cells.shape[-1], best // cells.shape[-1]], dim=1) * CELL + (CELL - 1) / 2
            # A keypoint is found if the prediction differs by at most a fifth of the longer side of the object's box.
            right += ((predicted - position).norm(dim=1) <= size / 5).sum().item()
            seen += len(sample)
            images += len(batch["image"])
    print(f"accuracy {right / seen:.3f} of {images} images")
    train.close()
    test.close()


def loader(options, names, chain, **settings):
    # The two sides of each pair, such as (1, 2) for left_eye and right_eye.
    pairs = [(place, names.index(name.replace("left", "right"))) for place, name in enumerate(names) if name.startswith("left")]
    columns = {
        # Images without an object that has keypoints get an empty list.
        "keypoints": fw.points(shape=(len(names), 3), flip_pairs=pairs, offset=0.5, default=[]),
        "boxes": fw.boxes(format="xywh"),
    }
    return fw.Loader(fw.coco(options.annotations, images=options.images), chain, columns=columns, **settings)


def keypoint_names(annotations):
    with open(annotations, encoding="utf-8") as file:
        return json.load(file)["categories"][0]["keypoints"]


def shown_points(batch):
    """Returns of each keypoint that is annotated and that the crop shows: the place of its image in the batch, its number, its x and y,
    and the longer side of its object's box, in pixels."""
    objects, boxes = batch["keypoints"], batch["boxes"]
    # The values have the objects of all images, one after another.
    image = torch.arange(len(objects), device=boxes.values.device).repeat_interleave(objects.offsets.diff())
    entry, point = (objects.values[..., 2] > 0).nonzero(as_tuple=True)
    # An image whose objects have no keypoints has boxes, but no entries. So entries and boxes are matched within each image.
    box = entry - objects.offsets[image[entry]] + boxes.offsets[image[entry]]
    size = (boxes.values[box, 2:] - boxes.values[box, :2]).amax(1)
    return image[entry], point, objects.values[entry, point, :2], size


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("annotations", help="a COCO file with keypoints")
    parser.add_argument("images", help="folder of the images")
    parser.add_argument("--side", type=int, default=128, help="width and height of the network's input, in pixels")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=16)
    return parser.parse_args()


if __name__ == "__main__":
    main()
