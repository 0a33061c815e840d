#!/usr/bin/env python3
"""Writes tests/golden/operators/orders.json: the indices that timm's RepeatAugSampler, with shuffling off, gives each
rank.

Commands to run this script (`--check` compares results with the stored ones and writes nothing):
    python -m venv venv && venv/bin/pip install pillow==12.3.0 numpy torch==2.11.0 torchvision==0.26.0 timm==1.0.31
    venv/bin/python tests/golden/operators/orders.py [--check]
"""

import timm
from golden import main
from timm.data.distributed_sampler import RepeatAugSampler


def repeats():
    for samples, world, repeats in [(10, 1, 3), (64, 4, 4), (61, 3, 4), (40, 8, 3), (7, 2, 9)]:
        for rank in range(world):
            # `selected_round=0` turns off rounding to a multiple of 256 samples.
            sampler = RepeatAugSampler(
                range(samples), num_replicas=world, rank=rank, shuffle=False, num_repeats=repeats, selected_round=0
            )
            settings = {"samples": samples, "world": world, "repeats": repeats, "rank": rank}
            yield {**settings, "indices": list(sampler)}


if __name__ == "__main__":
    main("orders.json", lambda _: {"repeats": repeats()}, timm=timm.__version__)
