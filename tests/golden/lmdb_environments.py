"""Writes tests/golden/lmdb/ with py-lmdb: environments with the images of tests/golden/records/. In some of them, the
values are Datum messages of Caffe, which protobuf serializes.

Run with lmdb 3.0 (it has both LMDB 0.9.36 and 1.0.2), protobuf 7.36 and grpcio-tools 1.85 for the protobuf compiler:
python tests/golden/lmdb_environments.py
"""

import importlib
import pathlib
import shutil
import sys
import tempfile

import lmdb
from grpc_tools import protoc

HERE = pathlib.Path(__file__).parent
OUT = HERE / "lmdb"
LABELS = [7, 0, -3, 1000]

# The declaration of the message Datum in Caffe's src/caffe/proto/caffe.proto.
DATUM = """
syntax = "proto2";
package caffe;
message Datum {
  optional int32 channels = 1;
  optional int32 height = 2;
  optional int32 width = 3;
  optional bytes data = 4;
  optional int32 label = 5;
  repeated float float_data = 6;
  optional bool encoded = 7 [default = false];
}
"""


def datum_class():
    folder = pathlib.Path(tempfile.mkdtemp())
    (folder / "datum.proto").write_text(DATUM)
    assert protoc.main(["", f"-I{folder}", f"--python_out={folder}", str(folder / "datum.proto")]) == 0
    sys.path.insert(0, str(folder))
    return importlib.import_module("datum_pb2").Datum


def write(name, databases, **options):
    """Writes a one-file environment. Each database is written in its own transaction."""
    folder = tempfile.mkdtemp()
    environment = lmdb.open(folder, map_size=1 << 24, max_dbs=4, **options.pop("environment", {}))
    for database, pairs in databases.items():
        handle = environment.open_db(database, **options) if database else None
        with environment.begin(write=True, db=handle) as transaction:
            for key, value in pairs:
                transaction.put(key, value)
    environment.close()
    target = OUT / name
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(pathlib.Path(folder) / "data.mdb", target)


def main():
    Datum = datum_class()
    pictures = [(HERE / "records" / f"{number}.jpg").read_bytes() for number in range(4)]
    large = (HERE / "decode" / "png-gray-alpha-16.png").read_bytes()

    # The pairs are written in reverse order, so that the values in the file are in another order than the keys. One value needs overflow pages.
    pairs = [(b"image-%04d" % number, pictures[number % 4]) for number in reversed(range(12))]
    pairs += [(b"image-0005", large), (b"__len__", b"12"), (b"num-samples", b"12")]
    pairs += [(b"label-%04d" % number, b"word") for number in range(12)]
    for name, options in [("image/data.mdb", {}), ("image-1.0.mdb", {"environment": {"lib_version": 1}})]:
        write(name, {None: pairs}, **options)

    def datum(picture, label):
        return Datum(channels=3, height=16, width=16, data=picture, label=label, encoded=True).SerializeToString()

    samples = list(zip(pictures, LABELS))
    pairs = [(b"%08d_%d.jpg" % (number, number), datum(*sample)) for number, sample in enumerate(samples)]
    pairs.append((b"00000004_4.png", datum(large, 12)))
    named = {b"train": pairs, b"val": pairs[:2]}
    write("datum.mdb", {None: pairs})
    write("named.mdb", named)
    write("named-1.0.mdb", named, environment={"lib_version": 1})
    # Images of 4x2 pixels as Caffe's convert_imageset and convert_cifar_data store them: planar, blue first.
    planar = bytes(100 * channel + pixel for channel in range(3) for pixel in range(8))
    raw = Datum(channels=3, height=2, width=4, data=planar, label=3).SerializeToString()
    gray = Datum(channels=1, height=2, width=4, data=planar[:8], label=4).SerializeToString()
    floats = Datum(channels=1, height=1, width=2, float_data=[0.5, 1.5], label=5).SerializeToString()
    write("raw.mdb", {None: [(b"0", raw), (b"1", gray)]})
    write("float.mdb", {None: [(b"0", floats)]})
    write("dupsort.mdb", {b"many": [(b"a", b"1"), (b"a", b"2")]}, dupsort=True)
    write("empty.mdb", {None: []})


main()
