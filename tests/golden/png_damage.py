"""Writes tests/golden/png_damage.txt: Pillow's results for the damaged PNGs of tests/images/png_damage/files.rs.

Commands to run this script with Pillow 12.x (FILE is the path that the first command prints):
    cargo test --workspace --test images -- --ignored png_damage:: --nocapture
    python tests/golden/png_damage.py FILE

A line of the file describes a group of files. It has the group's name, the first 12 digits of the SHA-256 of all the
files one after another, and a result for each file. A result is the first 12 digits of the SHA-256 of the bytes of
`Image.open(file).convert("RGB")`, or `-` if Pillow raises an exception. `x*3` stands for three results x in a row.
"""

import hashlib
import io
import itertools
import pathlib
import struct
import sys
import warnings

import PIL
from PIL import Image, features


def outcome(data):
    try:
        return digest(Image.open(io.BytesIO(data)).convert("RGB").tobytes())
    except Exception:
        return "-"


def digest(data):
    return hashlib.sha256(data).hexdigest()[:12]


def texts(path):
    with open(path, "rb") as file:
        while head := file.read(4):
            yield file.read(struct.unpack("<I", head)[0])


def main(path):
    warnings.simplefilter("ignore")
    parts = texts(path)
    lines = [
        f"# Pillow {PIL.__version__}, zlib {features.version('zlib')}, by tests/golden/png_damage.py",
    ]
    for name in parts:
        (count,) = struct.unpack("<I", next(parts))
        files = list(itertools.islice(parts, count))
        runs = ((key, len(list(run))) for key, run in itertools.groupby(map(outcome, files)))
        runs = (key if length == 1 else f"{key}*{length}" for key, length in runs)
        lines.append(" ".join([name.decode(), digest(b"".join(files)), *runs]))
    (pathlib.Path(__file__).parent / "png_damage.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
