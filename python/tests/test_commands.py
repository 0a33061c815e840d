"""Tests of the command line program in the package."""

import json
import os
import subprocess
import sys

import feedwater as fw


def feedwater(*arguments, cwd=None, **variables):
    command = [sys.executable, "-m", "feedwater", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=300, env={**os.environ, **variables})


def test_a_pipeline_of_python_runs_on_the_command_line(folder, tmp_path):
    loader = fw.Loader(folder, fw.train_recipe(8), batch_size=4, framework="numpy")
    (tmp_path / "pipeline.toml").write_text(loader.settings())
    done = feedwater("run", "pipeline.toml", "--epochs", "2", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["images"] == 40
    # `bench` starts the same program again for each case.
    done = feedwater("bench", "pipeline.toml", "--epochs", "1", cwd=tmp_path)
    assert done.returncode == 0 and "images/s" in done.stdout, done.stdout + done.stderr


def test_exit_codes_and_messages_are_those_of_the_program():
    assert feedwater("--version").stdout.strip() == f"feedwater {fw.__version__}"
    assert "demo" in feedwater("--help").stdout
    wrong = feedwater("plan", "missing.toml")
    assert wrong.returncode == 1 and "missing.toml" in wrong.stderr
    assert feedwater("plan").returncode == 2
    assert feedwater("doctor").returncode == 0


def test_a_demonstration_and_an_explanation(folder, tmp_path):
    done = feedwater("demo", "--images", "16", "--json", "--device", "cpu", cwd=tmp_path, FEEDWATER_CACHE=str(tmp_path / "cache"))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["images"] == 16
    (tmp_path / "pipeline.toml").write_text(fw.Loader(folder, fw.train_recipe(8), batch_size=4, framework="numpy").settings())
    done = feedwater("explain", "pipeline.toml", cwd=tmp_path)
    assert done.returncode == 0 and done.stdout.strip(), done.stderr
