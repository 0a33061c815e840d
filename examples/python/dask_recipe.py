"""Runs a model on the images of a data set with Dask, and writes a vector for each image to Parquet.

    python examples/python/dask_recipe.py /data/train vectors --tasks 64 --scheduler tcp://scheduler:8786

Each Dask task reads a part of the epoch's order with its own loader, and writes one file. Together
the files have the same rows as the output of a single loader. If Dask repeats a task, the task
writes the same file again. All machines need feedwater and access to both paths. Without
`--scheduler`, two processes on this machine run the tasks.
"""

import argparse
import os
import pathlib

import feedwater as fw
import pyarrow
from dask.distributed import Client, LocalCluster
from pyarrow import parquet

BATCH = 64


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("source", help="folder, shards or another source")
    parser.add_argument("directory", type=pathlib.Path, help="folder of Parquet files to write")
    parser.add_argument("--tasks", type=int, default=64)
    parser.add_argument("--scheduler")
    options = parser.parse_args()
    options.directory.mkdir(parents=True, exist_ok=True)
    with fw.Loader(options.source, fw.eval_recipe(224), framework="batch") as loader:
        samples = loader.samples
    local = {"n_workers": 2, "threads_per_worker": 1, "host": "127.0.0.1", "dashboard_address": None}
    with Client(options.scheduler or LocalCluster(**local)) as client:
        work = list(enumerate(parts(samples, options.tasks)))
        written = client.gather(client.map(write, work, source=options.source, directory=options.directory.resolve()))
    print(f"{sum(written)} vectors in {len(written)} files")


def parts(samples, tasks):
    """Returns the part of each task: its first position, and the position after its last one. Each
    part begins with the first sample of a batch."""
    batches = -(-samples // BATCH)
    bounds = [min(batches * task // tasks * BATCH, samples) for task in range(tasks + 1)]
    return [(begin, end) for begin, end in zip(bounds, bounds[1:]) if begin < end]


def write(work, source, directory):
    """Writes the vectors of a part, and returns their number."""
    number, positions = work
    tables = []
    # Use one thread per core of the task.
    with fw.Loader(
        source,
        fw.eval_recipe(224),
        batch_size=BATCH,
        positions=positions,
        epochs=1,
        num_workers=1,
        device="cpu",
        framework="batch",
        loader={"shard": "none"},
    ) as loader:
        for batch in loader:
            vectors = model(batch.numpy())
            tables.append(
                pyarrow.table(
                    {
                        "index": batch.indices,
                        "label": batch.labels,
                        "location": [loader.location(index) for index in batch.indices],
                        "vector": pyarrow.array(list(vectors), pyarrow.list_(pyarrow.float32())),
                    }
                )
            )
    table = pyarrow.concat_tables(tables)
    # Write the file completely or not at all, because two workers may run the same task for a while.
    path = directory / f"part-{number:05}.parquet"
    temporary = directory / f".{path.name}.{os.getpid()}"
    parquet.write_table(table, temporary)
    temporary.replace(path)
    return len(table)


def model(images):
    """Stands in for a model: returns the mean of each channel."""
    return images.mean(axis=(2, 3))


if __name__ == "__main__":
    main()
