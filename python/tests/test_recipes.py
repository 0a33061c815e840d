"""Tests that the example programs for Spark and Dask give the same results as a single loader."""

import os
import pathlib
import shutil
import subprocess
import sys

import feedwater as fw
import numpy
import pytest
from conftest import pixels_of, write_image

parquet = pytest.importorskip("pyarrow.parquet")
EXAMPLES = pathlib.Path(__file__).resolve().parent.parent.parent / "examples" / "python"
SAMPLES = 150


@pytest.fixture
def folder(tmp_path):
    """150 images, which make three batches."""
    for index in range(SAMPLES):
        name = tmp_path / "set" / ("cat" if index < 70 else "dog") / f"{index:03}.ppm"
        name.parent.mkdir(parents=True, exist_ok=True)
        write_image(name, pixels_of(index, width=24, height=20))
    return tmp_path / "set"


def run(program, folder, directory, **environment):
    command = [sys.executable, str(EXAMPLES / program), str(folder), str(directory), "--tasks", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env={**os.environ, **environment})
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(list(directory.glob("part-*.parquet"))) == 2
    table = parquet.read_table(directory).sort_by("index")
    assert table["index"].to_pylist() == list(range(SAMPLES))
    assert table["label"].to_pylist() == [0] * 70 + [1] * 80
    assert all(location.endswith(f"{index:03}.ppm") for index, location in enumerate(table["location"].to_pylist()))
    with fw.Loader(folder, fw.eval_recipe(224), batch_size=50, framework="numpy") as loader:
        vectors = numpy.concatenate([images.mean(axis=(2, 3)) for images, _ in loader])
    numpy.testing.assert_array_equal(numpy.array(table["vector"].to_pylist(), numpy.float32), vectors)


def test_dask(folder, tmp_path):
    pytest.importorskip("distributed")
    run("dask_recipe.py", folder, tmp_path / "vectors")


def test_spark(folder, tmp_path):
    pytest.importorskip("pyspark")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java 17")
    local = {
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_SUBMIT_ARGS": "--master local[2] --conf spark.ui.enabled=false --driver-memory 512m pyspark-shell",
    }
    run("spark_recipe.py", folder, tmp_path / "vectors", **local)
