"""Compares ten crops per image, as DINO makes them, in feedwater and torchvision, in one run.

    python multi_crop.py FOLDER [--images 500] [--rounds 5] [--workers 2]

FOLDER has JPEGs, also in folders below it. Each peer reads the images in a random order, and makes two crops of 224 pixels and eight of 96
pixels of each (bicubic, a flip with probability 0.5, normalized). `colours` adds DINO's changes of colours and blur. Each peer yields
batches of 64 images as PyTorch tensors in f32 NCHW. The programs take turns. One epoch of each is not counted. Prints medians of images per
second (not crops), and ratios to feedwater. feedwater's time includes opening the set and building a loader for each epoch, because a loader
that is kept prepares batches of its next epoch while other programs run.

`feedwater, one loader per crop` is ten loaders of one crop each, as loaders without views must do. `torchvision` is the code of DINO's
repository: a transform on PIL images for each crop. `torchvision v2` does the same on tensors.
"""

import argparse
import os

from PIL import Image
from turns import measure

CROPS = {"large": (224, (0.4, 1.0), 2), "small": (96, (0.05, 0.4), 8)}
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
BATCH = 64


def operators(side, scale, *, colours):
    from feedwater import ops

    chain = [ops.RandomResizedCrop(width=side, height=side, scale=scale, filter="bicubic"), ops.Flip(horizontal=0.5)]
    if colours:
        jitter = ops.ColorJitter(brightness=0.4, contrast=0.4, saturation=0.2, hue=0.1)
        blur = ops.GaussianBlur(kernel_size=9, sigma=(0.1, 2.0))
        chain += [ops.RandomApply([jitter], probability=0.8), ops.RandomGrayscale(probability=0.2), ops.RandomApply([blur], probability=0.5)]
    return [*chain, ops.Normalize(mean=MEAN, std=STD)]


def feedwater(folder, workers, colours):
    import feedwater as fw

    columns = {name: fw.view(operators(side, scale, colours=colours), count=count) for name, (side, scale, count) in CROPS.items()}
    settings = {"batch_size": BATCH, "num_workers": workers, "shuffle": True, "device": "cpu", "dtype": "f32", "epochs": 1}
    return lambda: sum(len(batch["large"]) for batch in fw.Loader(folder, columns=columns, **settings))


def one_by_one(folder, workers, colours):
    import feedwater as fw

    settings = {"batch_size": BATCH, "num_workers": workers, "shuffle": True, "device": "cpu", "dtype": "f32", "epochs": 1}
    chains = [operators(side, scale, colours=colours) for side, scale, count in CROPS.values() for _ in range(count)]
    return lambda: [sum(len(images) for images, _ in fw.Loader(folder, chain, **settings)) for chain in chains][0]


class Crops:
    """A dataset of PyTorch."""

    def __init__(self, paths, read, transforms):
        self.paths, self.read, self.transforms = paths, read, transforms

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        image = self.read(self.paths[index])
        return [transform(image) for transform, count in self.transforms for _ in range(count)]


def data_loader(paths, read, transforms, workers):
    import torch

    # Two processes must not use two threads each.
    init = lambda _: torch.set_num_threads(1)  # noqa: E731
    loader = torch.utils.data.DataLoader(
        Crops(paths, read, transforms), BATCH, shuffle=True, num_workers=workers, drop_last=True, persistent_workers=True, worker_init_fn=init
    )
    return lambda: sum(len(crops[0]) for crops in loader)


def torchvision(folder, workers, colours, *, tensors):
    import torch
    from torchvision import io
    from torchvision.transforms import InterpolationMode, v2
    from torchvision.transforms import transforms as v1

    kind = v2 if tensors else v1

    def chain(side, scale):
        steps = [kind.RandomResizedCrop(side, scale=scale, interpolation=InterpolationMode.BICUBIC, antialias=True), kind.RandomHorizontalFlip()]
        if colours:
            steps += [kind.RandomApply([kind.ColorJitter(0.4, 0.4, 0.2, 0.1)], 0.8), kind.RandomGrayscale(0.2)]
            steps += [kind.RandomApply([kind.GaussianBlur(9, (0.1, 2.0))], 0.5)]
        last = [v2.ToDtype(torch.float32, scale=True)] if tensors else [kind.ToTensor()]
        return kind.Compose([*steps, *last, kind.Normalize(MEAN, STD)])

    paths = [os.path.join(base, name) for base, _, names in os.walk(folder) for name in names]
    read = (lambda path: io.decode_image(path, io.ImageReadMode.RGB)) if tensors else (lambda path: Image.open(path).convert("RGB"))
    return data_loader(sorted(paths), read, [(chain(side, scale), count) for side, scale, count in CROPS.values()], workers)


def main():
    import tempfile

    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--images", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    found = [os.path.join(base, name) for base, _, names in os.walk(arguments.folder) for name in names if name.lower().endswith((".jpg", ".jpeg"))]
    with tempfile.TemporaryDirectory() as folder:
        for number, path in enumerate(sorted(found)[: arguments.images]):
            os.symlink(os.path.abspath(path), os.path.join(folder, f"{number:05}.jpg"))
        for colours in (False, True):
            print(f"\n{'crops with changes of colours' if colours else 'crops'}\n", flush=True)
            compare(folder, arguments, colours)


def compare(folder, arguments, colours):
    workers = arguments.workers
    peers = {
        "feedwater": lambda: feedwater(folder, workers, colours),
        "feedwater, one loader per crop": lambda: one_by_one(folder, workers, colours),
        "torchvision": lambda: torchvision(folder, workers, colours, tensors=False),
        "torchvision v2": lambda: torchvision(folder, workers, colours, tensors=True),
    }
    measure(peers, arguments.rounds)


if __name__ == "__main__":
    main()
