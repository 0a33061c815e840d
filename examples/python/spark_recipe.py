"""Runs a model on the images of a data set with Spark, and writes a vector for each image to Parquet.

    spark-submit examples/python/spark_recipe.py /data/train vectors --tasks 64

Each Spark task reads a part of the epoch's order with its own loader. Together the tasks write the
same rows as a single loader. If Spark repeats a task, the task returns the same rows again. All
machines need feedwater, and the images at the same path.
"""

import argparse

import feedwater as fw
import pyarrow
from pyspark.sql import SparkSession

BATCH = 64


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("source", help="folder, shards or another source")
    parser.add_argument("directory", help="folder of Parquet files to write")
    parser.add_argument("--tasks", type=int, default=64)
    options = parser.parse_args()
    spark = SparkSession.builder.appName("feedwater").getOrCreate()
    with fw.Loader(options.source, fw.eval_recipe(224), framework="batch") as loader:
        samples = loader.samples
    work = parts(samples, options.tasks)
    # Each Spark task gets one row, which describes one part.
    table = spark.createDataFrame(spark.sparkContext.parallelize(work, len(work)), "begin long, end long")
    vectors = table.mapInArrow(task(options.source), "index long, label long, location string, vector array<float>")
    vectors.write.mode("overwrite").parquet(options.directory)
    spark.stop()


def parts(samples, tasks):
    """Returns the part of each task: its first position, and the position after its last one. Each
    part begins with the first sample of a batch."""
    batches = -(-samples // BATCH)
    bounds = [min(batches * task // tasks * BATCH, samples) for task in range(tasks + 1)]
    return [(begin, end) for begin, end in zip(bounds, bounds[1:]) if begin < end]


def task(source):
    """Returns the function that Spark runs on each part."""

    def run(tables):
        for table in tables:
            for part in table.to_pylist():
                # Use one thread per core of the task (spark.task.cpus).
                with fw.Loader(
                    source,
                    fw.eval_recipe(224),
                    batch_size=BATCH,
                    positions=(part["begin"], part["end"]),
                    epochs=1,
                    num_workers=1,
                    device="cpu",
                    framework="batch",
                    loader={"shard": "none"},
                ) as loader:
                    for batch in loader:
                        vectors = model(batch.numpy())
                        yield pyarrow.RecordBatch.from_pydict(
                            {
                                "index": batch.indices,
                                "label": batch.labels,
                                "location": [loader.location(index) for index in batch.indices],
                                "vector": pyarrow.array(list(vectors), pyarrow.list_(pyarrow.float32())),
                            }
                        )

    return run


def model(images):
    """Stands in for a model: returns the mean of each channel."""
    return images.mean(axis=(2, 3))


if __name__ == "__main__":
    main()
