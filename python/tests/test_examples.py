"""The example programs, on images that are easy to tell apart."""

import pathlib
import subprocess
import sys

import numpy
import pytest
from conftest import write_image

pytest.importorskip("torch")
EXAMPLES = pathlib.Path(__file__).resolve().parent.parent.parent / "examples" / "python"


@pytest.fixture
def stripes(tmp_path):
    """60 images: class 0 has horizontal stripes, class 1 vertical ones."""
    random = numpy.random.default_rng(0)
    for index in range(60):
        image = numpy.zeros((40, 48, 3), numpy.uint8)
        if index % 2 == 0:
            image[::4] = image[1::4] = random.integers(150, 256, 3)
        else:
            image[:, ::4] = image[:, 1::4] = random.integers(150, 256, 3)
        name = tmp_path / "stripes" / str(index % 2) / f"{index:02}.ppm"
        name.parent.mkdir(parents=True, exist_ok=True)
        write_image(name, image)
    return tmp_path / "stripes"


def run(*command, cwd):
    done = subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True, cwd=cwd, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_network_learns_and_continues_from_its_checkpoint(stripes, tmp_path):
    program = EXAMPLES / "train.py"
    out = run(program, stripes, "--epochs", "6", "--batch", "10", cwd=tmp_path)
    assert out.count("epoch ") == 6
    accuracy, seen = out.splitlines()[-1].split()[1::2][0], out.split()[-2]
    assert float(accuracy) >= 0.95 and seen == "60"
    assert run(program, stripes, "--epochs", "7", "--batch", "10", cwd=tmp_path).startswith("epoch 6")


def test_two_ranks_of_torchrun_train_together(stripes, tmp_path):
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    out = run(*launcher, EXAMPLES / "train.py", stripes, "--epochs", "6", "--batch", "5", cwd=tmp_path)
    assert out.count("epoch ") == 6 and float(out.split("accuracy ")[1].split()[0]) >= 0.95
    assert out.strip().endswith("of 60 images")
