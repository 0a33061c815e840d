"""Writes tests/golden/beton/: FFCV files, written by DatasetWriter of ffcv 1.0.2. Files named `<name>.<number>` beside
them have the expected sample: raw pixels, or the JPEG that FFCV's encoder wrote.

Run with ffcv 1.0.2 (built from PyPI with libopencv-dev and libturbojpeg0-dev), numpy and opencv:
python tests/golden/beton.py

The files differ from those of a default run in one way: pages have 4 KiB instead of the writer's minimum of 2 MiB, to
keep the files small. Nothing else in the files depends on the page size. If torch is not installed, an empty module
replaces it. ffcv imports torch for its loader, but does not use it to write files.
"""

import pathlib
import sys
from unittest.mock import MagicMock

import numpy as np

try:
    import torch  # noqa: F401
except ImportError:
    for name in ["torch", "torch.nn", "torch.nn.functional", "torch.utils", "torch.utils.data", "torch.cuda"]:
        sys.modules[name] = MagicMock()
    sys.modules["torch"].dtype = sys.modules["torch"].Tensor = type("Absent", (), {})

import ffcv.fields.rgb_image as rgb_image
import ffcv.writer as writer
from ffcv.fields import BytesField, FloatField, IntField, JSONField, NDArrayField, RGBImageField

OUT = pathlib.Path(__file__).parent / "beton"
PAGE = 4096
writer.MIN_PAGE_SIZE = PAGE
LABELS = [7, 0, -3, 1 << 40, 5, 6]


def picture(number):
    width, height = 16 + 5 * number, 12 + 3 * number
    y, x = np.mgrid[0:height, 0:width]
    planes = [127 + 100 * np.sin(x / (3.0 + c) + number) * np.cos(y / (4.0 + c)) for c in range(3)]
    return np.stack(planes, -1).astype(np.uint8)


class Samples:
    """A data set as the writer expects it. Each of `values` is a function that returns one field of sample `number`."""

    def __init__(self, count, *values):
        self.count, self.values = count, values

    def __len__(self):
        return self.count

    def __getitem__(self, number):
        return tuple(value(number) for value in self.values)


def write(name, fields, samples, workers=1):
    writer.DatasetWriter(str(OUT / f"{name}.beton"), fields, page_size=PAGE, num_workers=workers).from_indexed_dataset(
        samples, chunksize=2
    )


def label(number):
    return LABELS[number]


def expect(name, number, raw, quality=90):
    pixels = picture(number)
    data = pixels.tobytes() if raw else rgb_image.encode_jpeg(pixels, quality).tobytes()
    (OUT / f"{name}.{number}").write_bytes(data)


def main():
    OUT.mkdir(exist_ok=True)
    for old in OUT.iterdir():
        old.unlink()
    write("raw", {"image": RGBImageField("raw"), "label": IntField()}, Samples(5, picture, label))
    write("jpg", {"image": RGBImageField("jpg", jpeg_quality=70), "label": IntField()}, Samples(5, picture, label))
    # Images with more bytes than this threshold become JPEGs. These are the last three of the six images.
    threshold = picture(2).nbytes
    fields = {"label": IntField(), "image": RGBImageField("smart", smart_threshold=threshold)}
    write("smart", fields, Samples(6, label, picture), workers=2)
    # A file with all field types, in an order that needs padding, and with a second image and a second number.
    fields = {
        "id": BytesField(),
        "a name longer than 16 bytes": FloatField(),
        "thumb": RGBImageField("raw"),
        "box": NDArrayField(np.dtype("<f4"), (4,)),
        "about": JSONField(),
        "image": RGBImageField("jpg"),
        "label": IntField(),
        "epoch": IntField(),
    }
    samples = Samples(
        4,
        lambda it: np.frombuffer(b"id %d" % it, np.uint8),
        float,
        lambda it: np.ascontiguousarray(picture(it)[::4, ::4]),
        lambda it: np.full(4, it, np.float32),
        lambda it: {"number": int(it)},
        picture,
        label,
        lambda it: 100 + it,
    )
    write("fields", fields, samples)
    for number in range(5):
        expect("raw", number, True)
        expect("jpg", number, False, 70)
        if number < 4:
            expect("fields", number, False)
    for number in range(6):
        expect("smart", number, number < 3)


main()
