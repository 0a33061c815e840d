"""Sets of images that the tests make: PNM, whose pixels are known without a decoder. Programs of two processes."""

import json
import subprocess
import sys
import textwrap

import numpy
import pytest


def write_image(path, pixels):
    """Writes RGB bytes as PNM."""
    height, width, _ = pixels.shape
    path.write_bytes(b"P6 %d %d 255\n" % (width, height) + pixels.tobytes())


def pixels_of(index, width=12, height=8):
    """The pixels of image number `index`."""
    return numpy.random.default_rng(index).integers(0, 256, (height, width, 3), dtype=numpy.uint8)


@pytest.fixture
def folder(tmp_path):
    """20 images in two classes, in the order of their indices."""
    for index in range(20):
        name = tmp_path / "set" / ("cat" if index < 10 else "dog") / f"{index:02}.ppm"
        name.parent.mkdir(parents=True, exist_ok=True)
        write_image(name, pixels_of(index))
    return tmp_path / "set"


def run_two(program, folder):
    """The JSON that each of two processes prints with the shard of a launcher or process group."""
    text = textwrap.dedent(program).replace("FOLDER", repr(str(folder)))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--no-python", sys.executable, "-c", text]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]
