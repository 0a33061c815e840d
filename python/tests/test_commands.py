"""The command line in the package."""

import json
import subprocess
import sys

import feedwater as fw


def feedwater(*arguments, cwd=None):
    return subprocess.run([sys.executable, "-m", "feedwater", *arguments], capture_output=True, text=True, cwd=cwd, timeout=300)


def test_a_pipeline_of_python_runs_on_the_command_line(folder, tmp_path):
    loader = fw.Loader(folder, fw.train_recipe(8), batch=4, framework="numpy")
    (tmp_path / "pipeline.toml").write_text(loader.settings())
    done = feedwater("run", "pipeline.toml", "--epochs", "2", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["images"] == 40
    # Starts the same program again for each case.
    done = feedwater("bench", "pipeline.toml", "--epochs", "1", cwd=tmp_path)
    assert done.returncode == 0 and "images/s" in done.stdout, done.stdout + done.stderr


def test_exit_codes_and_messages_are_those_of_the_program():
    assert feedwater("--version").stdout.strip() == f"feedwater {fw.__version__}"
    assert "demo" in feedwater("--help").stdout
    wrong = feedwater("plan", "missing.toml")
    assert wrong.returncode == 1 and "missing.toml" in wrong.stderr
    assert feedwater("plan").returncode == 2
    assert feedwater("doctor").returncode == 0
