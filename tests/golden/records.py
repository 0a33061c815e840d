"""Writes tests/golden/records/: files with many samples each, written by the tools of each format, and the images of
these samples as `0.jpg`, `1.jpg`, ... (small JPEGs of a seeded pattern).

Run with Pillow, numpy, tensorflow-cpu 2.21 and webdataset 1.0:  python tests/golden/records.py
"""

import io
import pathlib
import tarfile

import numpy as np
import tensorflow as tf
import webdataset
from PIL import Image

OUT = pathlib.Path(__file__).parent / "records"
LABELS = [7, 0, -3, 1 << 40]


def pictures():
    random = np.random.default_rng(4)
    for number in range(len(LABELS)):
        pixels = random.integers(0, 255, (2 + number, 3, 3), np.uint8)
        picture = Image.fromarray(pixels).resize((16 + 8 * number, 16), Image.BILINEAR)
        file = io.BytesIO()
        picture.save(file, "JPEG", quality=60)
        yield file.getvalue()


def bytes_feature(*values):
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))


def int64_feature(*values):
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def example(picture, label, number):
    """Returns a TFRecord Example with the features that TensorFlow's ImageNet script writes, and with a list of floats."""
    features = {
        "image/encoded": bytes_feature(picture),
        "image/class/label": int64_feature(label),
        "image/class/synset": bytes_feature(b"n0144076%d" % number),
        "image/filename": bytes_feature(b"%d.jpg" % number),
        "image/height": int64_feature(16),
        "image/object/bbox/xmin": tf.train.Feature(float_list=tf.train.FloatList(value=[0.5, 0.25])),
        "image/object/bbox/label": int64_feature(1, 2, 3),
    }
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString(deterministic=True)


def write_tfrecord(name, samples, compression=None):
    with tf.io.TFRecordWriter(str(OUT / name), compression) as writer:
        for sample in samples:
            writer.write(sample)


def write_webdataset(name, pictures_and_labels, first):
    with webdataset.TarWriter(str(OUT / name), mtime=0) as writer:
        for number, (picture, label) in enumerate(pictures_and_labels, first):
            key = f"train/sample-{number:04d}"
            writer.write({"__key__": key, "jpg": picture, "cls": label, "json": {"id": number, "label": label + 1}})


def write_tar(name, form, files):
    """Writes an archive with Python's tarfile. `form` is one of tarfile's three formats."""
    with tarfile.open(OUT / name, "w", format=form) as archive:
        for path, content in files:
            member = tarfile.TarInfo(path)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def main():
    OUT.mkdir(exist_ok=True)
    encoded = list(pictures())
    for number, picture in enumerate(encoded):
        (OUT / f"{number}.jpg").write_bytes(picture)
    examples = [example(*sample) for sample in zip(encoded, LABELS, range(len(LABELS)))]
    write_tfrecord("train-00000-of-00002", examples[:3])
    write_tfrecord("train-00001-of-00002", examples[3:])
    write_tfrecord("gzip.tfrecord", examples[:1], "GZIP")
    write_tfrecord("zlib.tfrecord", examples[:1], "ZLIB")
    samples = list(zip(encoded, LABELS))
    write_webdataset("train-000000.tar", samples[:3], 0)
    write_webdataset("train-000001.tar", samples[3:], 3)
    with webdataset.TarWriter(str(OUT / "train.tar.gz"), mtime=0) as writer:
        writer.write({"__key__": "a", "jpg": encoded[0], "cls": 7})
    # Each tar format stores long names in its own way: with a prefix field, a preceding member, or an extended header.
    long = "folder.with.dots/" + 10 * "0123456789" + "/sample"
    files = [(long + ".jpg", encoded[0]), (long + ".cls", b"7\n")]
    write_tar("ustar.tar", tarfile.USTAR_FORMAT, files)
    for name, form in [("gnu.tar", tarfile.GNU_FORMAT), ("pax.tar", tarfile.PAX_FORMAT)]:
        write_tar(name, form, [(2 * long[:-7] + file[len(long) - 7 :], content) for file, content in files])


main()
