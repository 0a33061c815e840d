"""Compares images with masks in feedwater, torchvision and Albumentations, in one run.

    python segmentation.py FOLDER [--images 1000] [--rounds 5] [--workers 2]

FOLDER has JPEGs, also in folders below it. For each image the program writes a palette PNG of 21 classes with smooth regions
of the same size to a temporary folder. Each peer reads images and masks in a random order, applies RandomResizedCrop 224
and a flip with probability 0.5 to both, normalizes the image, and yields batches of 64: images in f32 NCHW and masks in i64.
The programs take turns. One epoch of each is not counted. feedwater's time includes
building a loader for each epoch, because a loader that is kept prepares batches of its next epoch while other programs run. Prints medians of images per second, and ratios to feedwater.

`feedwater, image only` is the same loader without the mask. `feedwater, two loads` reads the mask as a second image with a
loader of its own, as pipelines without masks must do.
"""

import argparse
import os
import tempfile

import numpy
from PIL import Image
from turns import measure

SIDE = 224
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
BATCH = 64


def pairs(folder, count, target):
    """Writes the masks, and returns the paths of images and masks. The masks are also in one folder."""
    found = [os.path.join(base, name) for base, _, names in os.walk(folder) for name in names if name.lower().endswith((".jpg", ".jpeg"))]
    made = []
    random = numpy.random.default_rng(1)
    for number, path in enumerate(sorted(found)[:count]):
        with Image.open(path) as image:
            size = image.size
        coarse = Image.fromarray(random.integers(0, 21, (8, 10), dtype=numpy.uint8))
        # An enlarged gray image has smooth borders. Rounding gives regions as objects have them.
        mask = Image.fromarray(numpy.asarray(coarse.resize(size, Image.Resampling.BICUBIC)) % 21, mode="P")
        mask.putpalette([value for index in range(21) for value in (index * 12, 255 - index * 12, index * 7 % 256)])
        out = os.path.join(target, "images", f"{number:05}.jpg"), os.path.join(target, "masks", f"{number:05}.png")
        os.symlink(os.path.abspath(path), out[0])
        mask.save(out[1])
        made.append(out)
    return made


def feedwater(folder, workers, *, mask):
    import feedwater as fw
    from feedwater import ops

    chain = [ops.RandomResizedCrop(width=SIDE, height=SIDE), ops.Flip(horizontal=0.5), ops.Normalize(mean=MEAN, std=STD)]
    source = fw.directory(os.path.join(folder, "images"), side_files={"mask": "../masks/{stem}.png"})
    settings = {"columns": {"mask": fw.mask(dtype="i64")}} if mask else {}
    settings |= {"batch_size": BATCH, "num_workers": workers, "shuffle": True, "device": "cpu", "dtype": "f32", "framework": "torch"}
    settings |= {"epochs": 1}
    return lambda: sum(len(batch["image"] if mask else batch[0]) for batch in fw.Loader(source, chain, **settings))


def two_loads(folder, workers):
    """A second loader reads the masks as images."""
    import feedwater as fw
    from feedwater import ops

    first = feedwater(folder, workers, mask=False)
    chain = [ops.RandomResizedCrop(width=SIDE, height=SIDE, filter="nearest"), ops.Flip(horizontal=0.5)]
    settings = {"batch_size": BATCH, "num_workers": workers, "shuffle": True, "device": "cpu", "dtype": "u8", "epochs": 1}
    return lambda: (first(), sum(len(images) for images, _ in fw.Loader(os.path.join(folder, "masks"), chain, **settings)))[0]


class Pairs:
    """A dataset of PyTorch."""

    def __init__(self, paths, transform):
        self.paths, self.transform = paths, transform

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        image, mask = self.paths[index]
        return self.transform(Image.open(image).convert("RGB"), Image.open(mask))


def data_loader(paths, transform, workers):
    import torch

    # Two processes must not use two threads each.
    init = lambda _: torch.set_num_threads(1)  # noqa: E731
    loader = torch.utils.data.DataLoader(
        Pairs(paths, transform), BATCH, shuffle=True, num_workers=workers, drop_last=True, persistent_workers=True, worker_init_fn=init
    )
    return lambda: sum(len(images) for images, _ in loader)


def torchvision(paths, workers):
    import torch
    from torchvision import tv_tensors
    from torchvision.transforms import v2

    both = v2.Compose([v2.RandomResizedCrop(SIDE, antialias=True), v2.RandomHorizontalFlip()])
    image_only = v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)])

    def transform(image, mask):
        image, mask = both(image, tv_tensors.Mask(torch.from_numpy(numpy.array(mask))))
        return image_only(image), mask.long()

    return data_loader(paths, transform, workers)


def albumentations(paths, workers):
    import albumentations as albu
    import cv2
    import torch

    cv2.setNumThreads(1)
    chain = albu.Compose([albu.RandomResizedCrop(size=(SIDE, SIDE)), albu.HorizontalFlip(p=0.5), albu.Normalize(MEAN, STD)])

    def transform(image, mask):
        done = chain(image=numpy.asarray(image), mask=numpy.asarray(mask))
        return torch.from_numpy(done["image"].transpose(2, 0, 1).copy()), torch.from_numpy(done["mask"]).long()

    return data_loader(paths, transform, workers)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.makedirs(os.path.join(folder, "images")), os.makedirs(os.path.join(folder, "masks"))
        paths = pairs(arguments.folder, arguments.images, folder)
        peers = {
            "feedwater": lambda: feedwater(folder, arguments.workers, mask=True),
            "feedwater, image only": lambda: feedwater(folder, arguments.workers, mask=False),
            "feedwater, two loads": lambda: two_loads(folder, arguments.workers),
            "torchvision v2": lambda: torchvision(paths, arguments.workers),
            "albumentations": lambda: albumentations(paths, arguments.workers),
        }
        measure(peers, arguments.rounds)


if __name__ == "__main__":
    main()
