"""Runs the example programs on images whose classes are easy to learn."""

import os
import pathlib
import re
import subprocess
import sys

import numpy
import pytest
from conftest import write_image

EXAMPLES = pathlib.Path(__file__).resolve().parent.parent.parent / "examples" / "python"
#: Starts two processes on this machine with torchrun.
TWO_RANKS = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
IMAGES = 60


@pytest.fixture
def stripes(tmp_path):
    """60 images: class 0 has horizontal stripes, class 1 vertical ones."""
    random = numpy.random.default_rng(0)
    for index in range(IMAGES):
        image = numpy.zeros((40, 48, 3), numpy.uint8)
        if index % 2 == 0:
            image[::4] = image[1::4] = random.integers(150, 256, 3)
        else:
            image[:, ::4] = image[:, 1::4] = random.integers(150, 256, 3)
        name = tmp_path / "stripes" / str(index % 2) / f"{index:02}.ppm"
        name.parent.mkdir(parents=True, exist_ok=True)
        write_image(name, image)
    return tmp_path / "stripes"


def run(*command, cwd, **variables):
    """Runs a program and returns its output."""
    offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    environment = {**os.environ, **offline, **variables}
    command = [sys.executable, *map(str, command)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=300, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def check(out):
    """Checks the program's output: the network has learned, and the shards together contained each image once."""
    accuracy, seen = re.search(r"accuracy ([\d.]+) of (\d+) images", out).groups()
    assert float(accuracy) >= 0.95 and int(seen) == IMAGES, out


@pytest.mark.parametrize("launcher", [[], TWO_RANKS, [*TWO_RANKS, "--fsdp"]], ids=["one", "ddp", "fsdp"])
def test_pytorch(stripes, tmp_path, launcher):
    pytest.importorskip("torch")
    launcher, options = (launcher[:-1], ["--fsdp"]) if "--fsdp" in launcher else (launcher, [])
    program = [*launcher, EXAMPLES / "train.py", stripes, "--batch", 5 if launcher else 10, *options]
    out = run(*program, "--epochs", 6, cwd=tmp_path)
    assert out.count("epoch ") == 6
    check(out)
    continued = run(*program, "--epochs", 7, cwd=tmp_path)
    assert continued.startswith("epoch 6")
    check(continued)


def test_segmentation(tmp_path):
    """The class of a pixel is the brightness of its region. A border of 255 is ignored."""
    pytest.importorskip("torch")
    image_module = pytest.importorskip("PIL.Image")
    random = numpy.random.default_rng(0)
    for index in range(IMAGES):
        mask = numpy.kron(random.integers(0, 2, (4, 5), dtype=numpy.uint8), numpy.ones((12, 12), numpy.uint8))
        noise = random.integers(0, 60, (*mask.shape, 3))
        name = tmp_path / "images" / str(index % 2) / f"{index:02}.ppm"
        name.parent.mkdir(parents=True, exist_ok=True)
        write_image(name, (noise + 150 * mask[..., None]).astype(numpy.uint8))
        mask[[0, -1]] = 255
        indices = image_module.fromarray(mask, mode="P")
        indices.putpalette([value for index in range(256) for value in (index, 255 - index, 7)])
        out = tmp_path / "masks" / str(index % 2) / f"{index:02}.png"
        out.parent.mkdir(parents=True, exist_ok=True)
        indices.save(out)
    # VOC has images without masks.
    write_image(tmp_path / "images" / "0" / "without.ppm", numpy.zeros((48, 60, 3), numpy.uint8))
    folders = [tmp_path / "images", tmp_path / "masks"]
    check(run(EXAMPLES / "segment.py", *folders, "--classes", 2, "--side", 40, "--epochs", 3, cwd=tmp_path))


def test_views(stripes, tmp_path):
    pytest.importorskip("torch")
    out = run(EXAMPLES / "dino.py", stripes, "--side", 32, "--epochs", 3, "--batch", 20, cwd=tmp_path)
    assert out.count("epoch ") == 3
    check(out)


@pytest.mark.parametrize("launcher", [[], TWO_RANKS], ids=["one", "two"])
def test_lightning(stripes, tmp_path, launcher):
    pytest.importorskip("lightning")
    program = [*launcher, EXAMPLES / "lightning_train.py", stripes, "--batch", 5 if launcher else 10]
    out = run(*program, "--epochs", 6, cwd=tmp_path)
    assert "epoch 6\n" in out
    check(out)
    # The loader and Lightning must continue with the same epoch.
    continued = run(*program, "--epochs", 7, cwd=tmp_path)
    assert "epoch 7\n" in continued
    check(continued)


@pytest.mark.parametrize("launcher", [[], TWO_RANKS], ids=["one", "two"])
def test_accelerate(stripes, tmp_path, launcher):
    pytest.importorskip("accelerate")
    program = [*launcher, EXAMPLES / "accelerate_train.py", stripes, "--batch", 5 if launcher else 10]
    out = run(*program, "--epochs", 6, cwd=tmp_path)
    assert out.count("epoch ") == 6
    check(out)
    continued = run(*program, "--epochs", 7, cwd=tmp_path)
    assert continued.startswith("epoch 6")
    check(continued)


@pytest.mark.parametrize("launcher", [[], TWO_RANKS], ids=["one", "two"])
def test_trainer_of_transformers(stripes, tmp_path, launcher):
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    program = [*launcher, EXAMPLES / "hf_trainer.py", stripes, "--batch", 5 if launcher else 10]
    out = run(*program, "--epochs", 6, cwd=tmp_path)
    assert "steps 36\n" in out
    check(out)
    continued = run(*program, "--epochs", 7, cwd=tmp_path)
    assert "steps 42\n" in continued
    check(continued)


def test_jax(stripes, tmp_path):
    pytest.importorskip("jax")
    program = EXAMPLES / "jax_train.py"
    assert "device_put(" not in program.read_text()
    out = run(program, stripes, "--epochs", 6, "--batch", 10, cwd=tmp_path)
    assert out.count("epoch ") == 6
    check(out)


@pytest.mark.parametrize("backend", ["torch", "jax", "tensorflow"])
def test_keras(stripes, tmp_path, backend):
    pytest.importorskip("keras")
    pytest.importorskip(backend)
    check(run(EXAMPLES / "keras_train.py", stripes, "--epochs", 6, "--batch", 10, cwd=tmp_path, KERAS_BACKEND=backend))
