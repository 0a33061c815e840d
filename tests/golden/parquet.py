"""Writes tests/golden/parquet/: small Parquet files in many variants, written by pyarrow and by Hugging Face's
datasets. Row r has the image r % 7: the file tests/golden/records/{r % 7 % 4}.jpg followed by the text `#{r % 7}`.
The text makes images distinct and lets dictionary encoding find repeated values. The label is r % 3 - 1 unless stated
otherwise.

Run with pyarrow 26.0 and datasets 5.2:  python tests/golden/parquet.py
`python tests/golden/parquet.py fields` writes only the files whose columns are fields, which takes no `datasets`.
"""

import datetime
import decimal
import json
import pathlib
import sys

import pyarrow as pa
import pyarrow.parquet as pq

GOLDEN = pathlib.Path(__file__).parent
OUT = GOLDEN / "parquet"
JPEGS = [(GOLDEN / "records" / f"{number}.jpg").read_bytes() for number in range(4)]
ROWS = 20
FIELD_ROWS = 24
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


def fields():
    """Writes files with fields of all types. Values are null in different rows, and at every level of lists."""
    rows = range(FIELD_ROWS)

    def objects(row):
        if row % 5 == 4:
            return None
        each = range(row % 4)
        x = lambda it: None if (row + it) % 4 == 3 else row + it / 2
        name = lambda it: None if it == 2 else f"n{row * it % 3}"
        return [None if it == 1 and row % 3 == 0 else {"x": x(it), "name": name(it)} for it in each]

    null = lambda value, step: [None if row % step == step - 1 else value(row) for row in rows]
    day = datetime.datetime(2001, 2, 3, 4, 5, 6, 789)
    mask = lambda row: {"bytes": None if row % 4 == 0 else b"\xff\x00%d" % row, "path": f"{row}.png"}
    columns = {
        "image": ([picture(row % 2) for row in rows], pa.binary()),
        "label": ([row % 3 for row in rows], pa.int64()),
        "flag": (null(lambda row: row % 3 == 0, 7), pa.bool_()),
        "i8": ([-row for row in rows], pa.int8()),
        "u64": (null(lambda row: 2**64 - 1 - row, 6), pa.uint64()),
        "half": ([row / 4 for row in rows], pa.float16()),
        "f32": (null(lambda row: row / 10, 3), pa.float32()),
        "f64": ([row / 10 for row in rows], pa.float64()),
        "text": (null(lambda row: f"é {row % 5}", 4), pa.string()),
        "raw": ([b"\xff" * (row % 3) + b"a" for row in rows], pa.binary()),
        "fixed": ([b"%03d" % row for row in rows], pa.binary(3)),
        "decimal": (null(lambda row: decimal.Decimal(row - 5).scaleb(-2), 8), pa.decimal128(20, 2)),
        "time": ([day + datetime.timedelta(days=row) for row in rows], pa.timestamp("us")),
        "numbers": (null(lambda row: [row * it for it in range(row % 4)], 5), pa.list_(pa.int32())),
        "floats": ([[it / 10 for it in range(row % 3)] for row in rows], pa.list_(pa.float32())),
        "holes": ([[1, None if row == 3 else 2] for row in rows], pa.list_(pa.int64())),
        "tags": ([[f"t{it}" for it in range(row % 3)] for row in rows], pa.list_(pa.string())),
        "grid": (null(lambda row: [list(range(it)) for it in range(row % 4)], 6), pa.list_(pa.list_(pa.int16()))),
        "objects": ([objects(row) for row in rows], pa.list_(pa.struct([("x", pa.float64()), ("name", pa.string())]))),
        "map": ([[(f"k{it}", row + it) for it in range(row % 3)] for row in rows], pa.map_(pa.string(), pa.int64())),
        "mask": (null(mask, 5), IMAGE),
        "none": ([None] * FIELD_ROWS, pa.null()),
    }
    table = pa.table({name: pa.array(*column) for name, column in columns.items()})
    texts = pa.array([json.dumps({"a": row}) for row in rows], pa.string())
    table = table.append_column("json", pa.ExtensionArray.from_storage(pa.json_(), texts))
    # A dictionary has a few values, so most columns change to PLAIN within a row group.
    small = dict(row_group_size=16, write_batch_size=4, data_page_size=60, dictionary_pagesize_limit=30)
    small |= dict(write_statistics=False, store_schema=False, write_page_checksum=True)
    write("fields-v1", table, use_deprecated_int96_timestamps=True, **small)
    # The same values in the other encodings.
    encodings = dict(i8="DELTA_BINARY_PACKED", u64="DELTA_BINARY_PACKED", f32="BYTE_STREAM_SPLIT", half="BYTE_STREAM_SPLIT")
    encodings |= dict(text="DELTA_BYTE_ARRAY", raw="DELTA_LENGTH_BYTE_ARRAY", fixed="DELTA_BYTE_ARRAY", flag="RLE")
    encodings |= {"numbers.list.element": "DELTA_BINARY_PACKED", "floats.list.element": "BYTE_STREAM_SPLIT"}
    encodings |= {"tags.list.element": "DELTA_BYTE_ARRAY", "objects.list.element.x": "BYTE_STREAM_SPLIT"}
    encodings |= {"objects.list.element.name": "DELTA_LENGTH_BYTE_ARRAY", "time": "DELTA_BINARY_PACKED"}
    dictionaries = ["image", "decimal", "map.key_value.key", "grid.list.element.list.element"]
    small |= dict(use_dictionary=dictionaries, column_encoding=encodings)
    write("fields-v2", table, compression="zstd", data_page_version="2.0", **small)


def write(name, table, **settings):
    pq.write_table(table, OUT / f"{name}.parquet", **settings)


def main():
    import datasets

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


fields()
if sys.argv[1:] != ["fields"]:
    main()
