"""Writes tests/golden/parquet/: small Parquet files in many variants, written by pyarrow and by Hugging Face's
datasets. Row r has the image r % 7: the file tests/golden/records/{r % 7 % 4}.jpg followed by the text `#{r % 7}`.
The text makes images distinct and lets dictionary encoding find repeated values. The label is r % 3 - 1 unless stated
otherwise.

Run with pyarrow 26.0 and datasets 5.2:  python tests/golden/parquet.py
"""

import pathlib

import datasets
import pyarrow as pa
import pyarrow.parquet as pq

GOLDEN = pathlib.Path(__file__).parent
OUT = GOLDEN / "parquet"
JPEGS = [(GOLDEN / "records" / f"{number}.jpg").read_bytes() for number in range(4)]
ROWS = 20
IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def picture(row):
    return JPEGS[row % 7 % 4] + b"#%d" % (row % 7)


def table(null=lambda row: False, label=lambda row: row % 3 - 1, kind=pa.int64()):
    rows = range(ROWS)
    images = [None if null(row) else {"bytes": picture(row), "path": f"{row}.jpg"} for row in rows]
    return pa.table({"image": pa.array(images, IMAGE), "label": pa.array([label(row) for row in rows], kind)})


def labels():
    """Returns a table with labels of every integer type, and with columns that cannot be labels."""
    rows = range(ROWS)
    null = lambda value: [None if row == 4 else value(row) for row in rows]
    return pa.table({
        "image": pa.array([picture(row) for row in rows], pa.binary()),
        "u64": pa.array(null(lambda row: row), pa.uint64()),
        "u64-large": pa.array(null(lambda row: 2**64 - 1 if row == 11 else row), pa.uint64()),
        "u32": pa.array([2**32 - 1 - row for row in rows], pa.uint32()),
        "f64": pa.array(null(lambda row: row % 12), pa.float64()),
        "f32": pa.array([row % 12 for row in rows], pa.float32()),
        "f64-fraction": pa.array([1.5 if row == 11 else row for row in rows], pa.float64()),
        "digits": pa.array(null(lambda row: str(row % 12)), pa.string()),
        "digits-float": pa.array([f"{row % 12}.0" for row in rows], pa.string()),
        "digits-fraction": pa.array(["1.5" if row == 11 else str(row) for row in rows], pa.string()),
        "digits-and-names": pa.array(["cat" if row == 11 else str(row) for row in rows], pa.string()),
    })


def bools():
    """Returns a table with labels of type bool."""
    rows = range(ROWS)
    values = [row % 3 == 0 or row > 12 for row in rows]
    return pa.table({
        "image": pa.array([picture(row) for row in rows], pa.binary()),
        "is_cat": pa.array(values, pa.bool_()),
        "is_null": pa.array([None if row % 7 == 3 else values[row] for row in rows], pa.bool_()),
    })


def write(name, table, **settings):
    pq.write_table(table, OUT / f"{name}.parquet", **settings)


def main():
    OUT.mkdir(exist_ok=True)
    write("bools", bools(), row_group_size=9)
    write("bools-v2", bools(), data_page_version="2.0")
    # Row groups have nine rows. The writer may start a page after two rows. A dictionary holds few images.
    small = dict(row_group_size=9, write_batch_size=2, data_page_size=1000, dictionary_pagesize_limit=1500)
    small["write_statistics"] = False
    write("snappy", table(), row_group_size=9)
    write("snappy-fallback", table(), **small, write_page_checksum=True)
    write("zstd-v2", table(), compression="zstd", data_page_version="2.0", write_page_index=True, **small)
    checked = dict(write_page_checksum=True, write_page_index=True)
    write("none", table(), compression="none", use_dictionary=False, **checked, **small)
    write("none-dictionary", table(lambda row: row % 5 == 3), compression="none", row_group_size=9)
    nulls = table(lambda row: row % 5 == 3 or row > 17)
    write("gzip-v2-nulls", nulls, compression="gzip", use_dictionary=False, data_page_version="2.0", **small)
    write("brotli-nulls", nulls, compression="brotli", **small)
    lengths = {"image.bytes": "DELTA_LENGTH_BYTE_ARRAY", "label": "DELTA_BINARY_PACKED"}
    write("lz4-delta", table(), compression="lz4", use_dictionary=False, column_encoding=lengths, **small)
    write("none-delta-v2", table(lambda row: row % 5 == 3, lambda row: (-1) ** row * row**11), compression="none",
          use_dictionary=False, column_encoding=lengths, data_page_version="2.0", row_group_size=16)
    # Images of 5000 bytes. A reader that needs only their lengths gains by skipping the bytes.
    long = [None if row == 3 else {"bytes": picture(row).ljust(5000, b"."), "path": ""} for row in range(6)]
    long = pa.table({"image": pa.array(long, IMAGE), "label": list(range(6))})
    write("large", long, compression="none", use_dictionary=False, write_statistics=False)
    write("large-v2", long, compression="none", data_page_version="2.0", write_statistics=False)
    # A column of bytes that is not nullable, and labels that are strings or null.
    images = pa.array([picture(row) for row in range(ROWS)], pa.binary())
    kinds = pa.array([None if row == 4 else ["eel", "cat", "dog"][row % 3] for row in range(ROWS)])
    flat = pa.schema([pa.field("pixels", pa.binary(), nullable=False), pa.field("kind", pa.string())])
    write("texts", pa.table([images, kinds], flat), row_group_size=9)
    write("int32", table(kind=pa.int32(), label=lambda row: None if row == 4 else row))
    write("labels", labels(), row_group_size=9)
    # Rows with a path instead of image bytes, and rows with neither a path nor bytes.
    paths = [{"bytes": None, "path": "0.jpg"}, {"bytes": None, "path": None}, {"bytes": picture(2), "path": "2.jpg"}, None]
    write("paths", pa.table({"image": pa.array(paths, IMAGE), "label": [5, 6, 7, 8]}))
    many = pa.array([[picture(row), picture(row + 1)] for row in range(3)])
    write("several", pa.table({"image": many, "label": [0, 1, 2]}))
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog", "eel"])})
    images = [{"bytes": picture(row), "path": f"{row}.jpg"} for row in range(ROWS)]
    whole = {"image": images, "label": [row % 3 for row in range(ROWS)]}
    whole = datasets.Dataset.from_dict(whole, features=features)
    for number in range(2):
        shard = whole.shard(2, number, contiguous=True)
        shard.to_parquet(OUT / f"train-0000{number}-of-00002.parquet", batch_size=5)


main()
