"""Writes tests/golden/recordio/: files of MXNet's own RecordIO writer (dmlc-core) with the images of
tests/golden/records/.

Run with Python 3.11 or older, mxnet 1.9.1 and numpy 1.23:  python tests/golden/recordio.py
"""

import pathlib
import struct

import mxnet as mx

HERE = pathlib.Path(__file__).parent
OUT = HERE / "recordio"
LABELS = [7, 0, -3, 1000]
MAGIC = struct.pack("<I", 0xCED7230A)


def write(name, records):
    writer = mx.recordio.MXIndexedRecordIO(str(OUT / f"{name}.idx"), str(OUT / f"{name}.rec"), "w")
    for number, (label, content) in enumerate(records):
        header = mx.recordio.IRHeader(0, label, number, 0)
        writer.write_idx(number, mx.recordio.pack(header, content))
    writer.close()


def main():
    OUT.mkdir(exist_ok=True)
    pictures = [(HERE / "records" / f"{number}.jpg").read_bytes() for number in range(4)]
    write("train", zip(LABELS, pictures))
    write("arrays", [([5], pictures[0]), ([6, 2.5, 9], pictures[1])])
    # These contents include the magic number. If it is aligned, the writer drops it and splits the record there.
    # Contents begin at byte 24 of a record, so offsets 0, 4, 8, ... of the contents are aligned.
    contents = [
        b"abc" + MAGIC + b"not aligned",
        b"in 3" + MAGIC + b"parts of" + MAGIC + b"one record",
        MAGIC + MAGIC,
        pictures[2] + bytes(-len(pictures[2]) % 4) + MAGIC + b"end",
        b"whole",
    ]
    write("parts", enumerate(contents))


main()
