"""Tests of read tasks on the simulated GPU of `tests/simulated/`, whose kernels run on the CPU. These tests have not run
on a real GPU."""

import subprocess
import sys

import numpy
import pytest

ray = pytest.importorskip("ray")
pytest.importorskip("pyarrow")

import feedwater as fw  # noqa: E402
from ray_helpers import RANDOM, SETTINGS, check, loaded  # noqa: E402


def test_rows_of_a_gpu_are_those_of_one_loader(cluster, many, simulated, tmp_path):
    environment = {**ray.get_runtime_context().runtime_env["env_vars"], **simulated}
    # The tasks run on the driver's node, which declares a GPU and has no core.
    tasks = {"num_gpus": 0.5, "num_cpus": 0, "override_num_blocks": 2, "ray_remote_args": {"runtime_env": {"env_vars": environment}}}
    targets = {"last_batch": "pad", "batch_operators": [fw.ops.Mixup(alpha=1.0)], "classes": 2}
    batches = loaded(many, batch_size=6, **targets)
    rows = check(fw.ray.read(many, RANDOM, batch_size=6, **tasks, **{**SETTINGS, **targets}), batches)
    numpy.testing.assert_array_equal(numpy.stack([row["target"] for row in rows]), numpy.concatenate([it for _, it, _ in batches]))
    # Also decodes JPEGs on the simulated GPU.
    subprocess.run([sys.executable, "-m", "feedwater", "synth", str(tmp_path / "set"), "--images", "8"], check=True, capture_output=True)
    rows = fw.ray.read(tmp_path / "set", RANDOM, batch_size=4, **tasks).take_all()
    assert len(rows) == 8 and any(row["outcome"].startswith("nvjpeg") for row in rows)
