"""Compares images with captions in feedwater and in webdataset with torchvision, in one run.

    python captions.py FOLDER [--images 1000] [--rounds 5] [--workers 2]

FOLDER has JPEGs, also in folders below it. The program packs them into four WebDataset archives in a temporary folder, each with a caption of
about 100 bytes (`txt`) and a number (`json`), as CLIP is trained with. Each peer reads the samples in a random order, applies
RandomResizedCrop 224 and a flip with probability 0.5, normalizes the image, and yields batches of 64: images in f32 NCHW, lists of captions,
and numbers. The programs take turns. One epoch of each is not counted. feedwater's time includes building a loader for each epoch, because a
loader that is kept prepares batches of its next epoch while other programs run. Prints medians of images per second, and ratios to feedwater.

`feedwater, image only` is the same loader without columns.
"""

import argparse
import io
import json
import os
import tarfile
import tempfile

from turns import measure

SIDE = 224
MEAN, STD = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]
BATCH = 64
SHARDS = 4


def pack(folder, count, target):
    """Writes the archives, and returns their paths."""
    found = [os.path.join(base, name) for base, _, names in os.walk(folder) for name in names if name.lower().endswith((".jpg", ".jpeg"))]
    shards = [os.path.join(target, f"train-{shard}.tar") for shard in range(SHARDS)]
    archives = [tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) for path in shards]
    for number, path in enumerate(sorted(found)[:count]):
        with open(path, "rb") as file:
            image = file.read()
        caption = f"photograph number {number}: " + "a dog and two cats asleep in the afternoon sun on a red sofa, beside a book"
        for ending, data in [("jpg", image), ("txt", caption.encode()), ("json", json.dumps({"score": number / 10, "source": path}).encode())]:
            member = tarfile.TarInfo(f"{number:06}.{ending}")
            member.size = len(data)
            archives[number % SHARDS].addfile(member, io.BytesIO(data))
    for archive in archives:
        archive.close()
    return shards


def feedwater(shards, workers, *, columns):
    import feedwater as fw
    from feedwater import ops

    chain = [ops.RandomResizedCrop(width=SIDE, height=SIDE), ops.Flip(horizontal=0.5), ops.Normalize(mean=MEAN, std=STD)]
    settings = {"columns": {"caption": fw.text("txt"), "score": fw.array("f32", field="json:score")}} if columns else {}
    settings |= {"batch_size": BATCH, "num_workers": workers, "shuffle": True, "device": "cpu", "dtype": "f32", "framework": "torch"}
    source = fw.webdataset(*shards, label="")
    return lambda: sum(len(batch["caption"] if columns else batch[0]) for batch in fw.Loader(source, chain, epochs=1, **settings))


def webdataset(shards, workers):
    import torch
    import webdataset as wds
    from torchvision import transforms

    transform = transforms.Compose([
        transforms.RandomResizedCrop(SIDE), transforms.RandomHorizontalFlip(), transforms.ToTensor(), transforms.Normalize(MEAN, STD)
    ])
    data = wds.WebDataset(shards, shardshuffle=True, nodesplitter=wds.split_by_node).shuffle(1000).decode("pilrgb")
    data = data.to_tuple("jpg", "txt", "json").map_tuple(transform, lambda text: text, lambda fields: fields["score"]).batched(BATCH, partial=False)
    # Two processes must not use two threads each.
    init = lambda _: torch.set_num_threads(1)  # noqa: E731
    loader = wds.WebLoader(data, batch_size=None, num_workers=workers, persistent_workers=True, worker_init_fn=init)
    return lambda: sum(len(captions) for _, captions, _ in loader)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        shards = pack(arguments.folder, arguments.images, folder)
        peers = {
            "feedwater": lambda: feedwater(shards, arguments.workers, columns=True),
            "feedwater, image only": lambda: feedwater(shards, arguments.workers, columns=False),
            "webdataset, torchvision": lambda: webdataset(shards, arguments.workers),
        }
        measure(peers, arguments.rounds)


if __name__ == "__main__":
    main()
