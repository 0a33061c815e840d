"""The formats of the comparison: how feedwater names each format, and functions that write and read
it with its own tools.

A reading function reads the part of the files that belongs to its worker, in the fastest way that
the format's own library offers. It calls `sample(bytes)` with the encoded bytes of every image.
`run.py` starts this file as a program to measure the reader of one format.
"""

import functools
import glob
import io
import json
import multiprocessing
import os
import sys
import time
import zlib

SHARDS = 4


class Format:
    """One format. `source` is the setting with which feedwater reads it. `modules` are the Python
    modules that writer and reader import. `threads` is true if the reader starts its own threads.
    Otherwise the reader runs as several processes that each read a part of the files, like the
    workers of a DataLoader. `shuffled` is true if the reader can also read in shuffled order."""

    def __init__(self, name, source, modules, write, read, threads=False, shuffled=False):
        self.name, self.source, self.modules = name, source, modules
        self.write, self.read, self.threads, self.shuffled = write, read, threads, shuffled


def shards(folder, ending):
    return sorted(glob.glob(os.path.join(folder, "*" + ending)))


def part(files, worker, workers):
    return files[worker::workers]


# Folder


def write_folder(folder, images):
    for number, (label, image) in enumerate(images):
        os.makedirs(f"{folder}/{label:04d}", exist_ok=True)
        with open(f"{folder}/{label:04d}/{number:06d}.jpg", "wb") as file:
            file.write(image)


def read_folder(folder, sample, worker, workers, order):
    files = [entry.path for label in sorted(os.listdir(folder)) for entry in os.scandir(f"{folder}/{label}")]
    for path in part(order(sorted(files)), worker, workers):
        with open(path, "rb", buffering=0) as file:
            sample(file.read())


# TFRecord


def write_tfrecord(folder, images):
    import tensorflow as tf

    def feature(**one):
        return tf.train.Feature(**one)

    writers = [tf.io.TFRecordWriter(f"{folder}/train-{shard:05d}-of-{SHARDS:05d}") for shard in range(SHARDS)]
    for number, (label, image) in enumerate(images):
        features = {
            "image/encoded": feature(bytes_list=tf.train.BytesList(value=[image])),
            "image/class/label": feature(int64_list=tf.train.Int64List(value=[label])),
        }
        example = tf.train.Example(features=tf.train.Features(feature=features))
        writers[number * SHARDS // len(images)].write(example.SerializeToString())
    for writer in writers:
        writer.close()


def read_tfrecord(folder, sample, worker, workers, order):
    """Reads batches of 64 records and parses each batch with one call, as TensorFlow's guide
    recommends."""
    import tensorflow as tf

    spec = {"image/encoded": tf.io.FixedLenFeature([], tf.string), "image/class/label": tf.io.FixedLenFeature([], tf.int64)}
    files = tf.data.Dataset.from_tensor_slices(shards(folder, "-of-*"))
    records = files.interleave(tf.data.TFRecordDataset, cycle_length=workers, num_parallel_calls=workers, deterministic=False)
    parsed = records.batch(64).map(lambda batch: tf.io.parse_example(batch, spec), num_parallel_calls=workers)
    options = tf.data.Options()
    options.threading.private_threadpool_size = workers
    options.deterministic = False
    for batch in parsed.prefetch(2).with_options(options):
        for image in batch["image/encoded"].numpy():
            sample(image)


# WebDataset


def tars(folder, images, ending):
    import webdataset

    per = (len(images) + SHARDS - 1) // SHARDS
    for shard in range(SHARDS):
        with webdataset.TarWriter(f"{folder}/train-{shard:06d}{ending}") as writer:
            for number, (label, image) in list(enumerate(images))[shard * per:(shard + 1) * per]:
                writer.write({"__key__": f"{number:08d}", "jpg": image, "cls": label})


def write_webdataset(folder, images):
    tars(folder, images, ".tar")


def write_webdataset_gzip(folder, images):
    tars(folder, images, ".tar.gz")


def read_webdataset(folder, sample, worker, workers, order):
    import webdataset

    files = part(shards(folder, ".tar*"), worker, workers)
    for it in webdataset.WebDataset(files, shardshuffle=False, empty_check=False):
        sample(it["jpg"])


# LMDB


def write_lmdb(folder, images):
    import lmdb

    with lmdb.open(folder, map_size=1 << 36) as environment, environment.begin(write=True) as transaction:
        for number, (_, image) in enumerate(images):
            transaction.put(b"%08d" % number, image)


def read_lmdb(folder, sample, worker, workers, order):
    """Reads in order with a cursor, or in shuffled order by key. Copies each value into a bytes
    object."""
    import lmdb

    with lmdb.open(folder, readonly=True, lock=False, readahead=False) as environment, environment.begin() as transaction:
        count = environment.stat()["entries"]
        numbers = range(count * worker // workers, count * (worker + 1) // workers)
        if order(list(range(3))) == [0, 1, 2]:
            cursor = transaction.cursor()
            if cursor.set_key(b"%08d" % numbers[0]):
                for value, _ in zip(cursor.iternext(keys=False, values=True), numbers):
                    sample(value)
        else:
            for number in order(list(range(count)))[worker::workers]:
                sample(transaction.get(b"%08d" % number))


# Parquet


def write_parquet(folder, images):
    """Writes images as Hugging Face's `datasets` does: a struct of bytes and path, in row groups of
    100."""
    import pyarrow
    import pyarrow.parquet

    struct = pyarrow.struct({"bytes": pyarrow.binary(), "path": pyarrow.string()})
    per = (len(images) + SHARDS - 1) // SHARDS
    for shard in range(SHARDS):
        some = list(enumerate(images))[shard * per:(shard + 1) * per]
        images = pyarrow.array([{"bytes": it[1], "path": f"{number}.jpg"} for number, it in some], struct)
        labels = pyarrow.array([it[0] for _, it in some], pyarrow.int64())
        table = pyarrow.table({"image": images, "label": labels})
        pyarrow.parquet.write_table(table, f"{folder}/train-{shard:05d}-of-{SHARDS:05d}.parquet", row_group_size=100)


def read_parquet(folder, sample, worker, workers, order):
    """Reads images without copying them: each is a view of the column's buffer."""
    import pyarrow
    import pyarrow.parquet

    pyarrow.set_cpu_count(1)
    for path in part(shards(folder, ".parquet"), worker, workers):
        file = pyarrow.parquet.ParquetFile(path, memory_map=True)
        for batch in file.iter_batches(batch_size=100, columns=["image.bytes", "label"], use_threads=False):
            for image in batch.column(0).field(0):
                sample(image.as_buffer())


# RecordIO


def write_recordio(folder, images):
    import mxnet.recordio as recordio

    writer = recordio.MXIndexedRecordIO(f"{folder}/train.idx", f"{folder}/train.rec", "w")
    for number, (label, image) in enumerate(images):
        writer.write_idx(number, recordio.pack(recordio.IRHeader(0, float(label), number, 0), image))
    writer.close()


def read_recordio(folder, sample, worker, workers, order):
    import mxnet.recordio as recordio

    reader = recordio.MXIndexedRecordIO(f"{folder}/train.idx", f"{folder}/train.rec", "r")
    for number in part(order(list(reader.keys)), worker, workers):
        sample(recordio.unpack(reader.read_idx(number))[1])


# NumPy

SIDE = 224


def write_npy(folder, images):
    import numpy

    stack = numpy.lib.format.open_memmap(f"{folder}/images.npy", "w+", numpy.uint8, (len(images) // 3, SIDE, SIDE, 3))
    random = numpy.random.default_rng(3)
    for number in range(len(stack)):
        stack[number] = random.integers(0, 256, stack.shape[1:], numpy.uint8)
    stack.flush()


def read_npy(folder, sample, worker, workers, order):
    """Copies each image out of the mapped file. Adds the PNM header that feedwater adds too, so
    that both readers return the same bytes."""
    import numpy

    stack = numpy.load(f"{folder}/images.npy", mmap_mode="r")
    head = b"P6\n%d %d\n255\n" % (SIDE, SIDE)
    for number in part(order(list(range(len(stack)))), worker, workers):
        sample(stack[number].tobytes(), head)


# FFCV


def stand_in():
    """Replaces torch by a mock if it is not installed. ffcv imports torch for its loader, but writing and reading
    files do not need it."""
    import unittest.mock

    try:
        import torch  # noqa: F401
    except ImportError:
        for name in ["torch", "torch.nn", "torch.nn.functional", "torch.utils", "torch.utils.data", "torch.cuda"]:
            sys.modules[name] = unittest.mock.MagicMock()
        sys.modules["torch"].dtype = sys.modules["torch"].Tensor = type("Absent", (), {})


def write_ffcv(folder, images):
    stand_in()
    import PIL.Image
    from ffcv.fields import IntField, RGBImageField
    from ffcv.writer import DatasetWriter

    class Set:
        def __len__(self):
            return len(images)

        def __getitem__(self, number):
            label, image = images[number]
            return PIL.Image.open(io.BytesIO(image)).convert("RGB"), label

    fields = {"image": RGBImageField(write_mode="jpg", jpeg_quality=85), "label": IntField()}
    DatasetWriter(f"{folder}/train.beton", fields, num_workers=1).from_indexed_dataset(Set())


@functools.cache
def ffcv_opened(path):
    """Opens a `.beton` file once. Returns the pointers of its images, the state that FFCV's
    compiled code needs, a function that reads images, and memory for one image. The function copies
    each image into this memory with the `memcpy` of FFCV's decoder for raw images, and returns the
    number of bytes."""
    stand_in()
    import numba
    import numpy
    from ffcv.libffcv import memcpy
    from ffcv.memory_managers import OSCacheManager
    from ffcv.pipeline.compiler import Compiler
    from ffcv.reader import Reader

    manager = OSCacheManager(Reader(path))
    context = manager.schedule_epoch([])
    context.__enter__()
    read, copy = manager.compile_reader(), Compiler.compile(memcpy)

    @numba.njit(nogil=True)
    def copied(pointers, state, page):
        total = 0
        for pointer in pointers:
            data = read(pointer, state)
            copy(data, page)
            total += data.size
        return total

    pointers = numpy.ascontiguousarray(manager.reader.metadata["f0"]["data_ptr"])
    return pointers, context.state, copied, numpy.empty(int(manager.sizes.max()), numpy.uint8)


def read_ffcv(folder, sample, worker, workers, order):
    """Copies the encoded bytes of each sample out of the mapped file, where FFCV's decoders would
    read them. FFCV's compiled code copies all samples in one call. In a pass that verifies, it copies
    one sample per call."""
    pointers, state, copied, page = ffcv_opened(f"{folder}/train.beton")
    mine = pointers[part(order(list(range(len(pointers)))), worker, workers)]
    if not sample.verify:
        return sample.many(len(mine), copied(mine, state, page))
    for number in range(len(mine)):
        sample(page[:copied(mine[number:number + 1], state, page)])


FORMATS = {
    it.name: it
    for it in [
        Format("folder", 'directory = "{folder}"', ["os"], write_folder, read_folder, shuffled=True),
        Format("tfrecord", 'tfrecord = "{folder}"', ["tensorflow"], write_tfrecord, read_tfrecord, threads=True),
        Format("webdataset", 'webdataset = "{folder}"', ["webdataset"], write_webdataset, read_webdataset),
        Format("webdataset.gz", 'webdataset = "{folder}"', ["webdataset"], write_webdataset_gzip, read_webdataset),
        Format("lmdb", 'lmdb = "{folder}"', ["lmdb"], write_lmdb, read_lmdb, shuffled=True),
        Format("parquet", 'parquet = "{folder}"', ["pyarrow.parquet"], write_parquet, read_parquet),
        Format("recordio", 'recordio = "{folder}"', ["mxnet.recordio"], write_recordio, read_recordio, shuffled=True),
        Format("npy", 'npy = "{folder}/images.npy"', ["numpy"], write_npy, read_npy, shuffled=True),
        Format("ffcv", 'beton = "{folder}/train.beton"', ["ffcv"], write_ffcv, read_ffcv, shuffled=True),
    ]
}


def far(items):
    """Returns items in the scattered order of `main.rs --shuffled`: neighbours are about 0.618
    times the length apart."""
    import math

    step = max(1, int(len(items) * 0.618))
    while math.gcd(step, len(items)) != 1:
        step += 1
    return [items[place * step % len(items)] for place in range(len(items))]


class Counter:
    """Counts samples and bytes. In a pass that verifies, also sums up checksums."""

    def __init__(self, verify):
        self.samples, self.bytes, self.sum, self.verify = 0, 0, 0, verify

    def __call__(self, image, head=b""):
        self.samples += 1
        self.bytes += len(image) + len(head)
        if self.verify:
            self.sum += zlib.crc32(image, zlib.crc32(head))

    def many(self, samples, size):
        self.samples += samples
        self.bytes += int(size)


def work(job, worker, workers, ready, results):
    """Runs one worker: a warm-up pass, then passes until the job's seconds are over."""
    read, order = FORMATS[job["format"]].read, far if job["shuffled"] else list
    counter = Counter(job["verify"])
    if job["verify"]:
        read(job["folder"], counter, worker, workers, order)
        return results.put({"samples": counter.samples, "bytes": counter.bytes, "sum": counter.sum})
    read(job["folder"], counter, worker, workers, order)
    ready.wait()
    counter = Counter(False)
    begin, busy = time.monotonic(), time.process_time()
    while time.monotonic() - begin < job["seconds"]:
        read(job["folder"], counter, worker, workers, order)
    seconds = time.monotonic() - begin
    return results.put({"samples": counter.samples, "bytes": counter.bytes, "seconds": seconds,
                        "cpu_seconds": time.process_time() - busy})


def main():
    job = json.loads(sys.argv[1])
    form = FORMATS[job["format"]]
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    if form.threads or job["threads"] == 1 or job["verify"]:
        workers = job["threads"] if form.threads else 1
        work(job, 0, workers, context.Barrier(1), results)
        parts = [results.get()]
    else:
        ready = context.Barrier(job["threads"])
        processes = [context.Process(target=work, args=(job, worker, job["threads"], ready, results))
                     for worker in range(job["threads"])]
        for process in processes:
            process.start()
        parts = [results.get(timeout=600) for _ in processes]
        for process in processes:
            process.join()
    total = {key: sum(it[key] for it in parts) for key in parts[0] if key != "seconds"}
    if "seconds" in parts[0]:
        # Workers end at different times, so the total rate is the sum of the workers' rates.
        total["rate"] = sum(it["samples"] / it["seconds"] for it in parts)
        total["seconds"] = max(it["seconds"] for it in parts)
    print(json.dumps(total))


if __name__ == "__main__":
    main()
