"""feedwater: the command `feedwater bench` on a pipeline file."""

import json
import os
import subprocess

import job as the_job

NAME = "feedwater"

PIPELINE = """[source]
directory = {data}
[loader]
batch_size = {batch}
prefetch = {prefetch}
shuffle = true
last_batch = "partial"
[output]
dtype = "f16"
layout = "nchw"
[[chain]]
op = "random_resized_crop"
width = {side}
height = {side}
[[chain]]
op = "flip"
horizontal = 0.5
[[chain]]
op = "normalize"
mean = {mean}
std = {std}
"""


def candidates(_device, _cores):
    """Returns only the default settings."""
    return [{}]


def unavailable(program):
    """Returns why the program cannot run, or None."""
    if os.access(program, os.X_OK):
        return None
    return f"no program at {program}: cargo build --release -p feedwater-cli, or name it with --feedwater"


def command(job):
    """Returns the command that runs the job. It starts feedwater's program directly, without
    Python."""
    text = PIPELINE.format(data=json.dumps(job["data"]), batch=job["batch"], prefetch=the_job.PREFETCH,
                           side=the_job.SIDE, mean=the_job.MEAN, std=the_job.STD)
    path = os.path.join(job["scratch"], "pipeline.toml")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    by = "cpu" if job["device"] == "cpu" else "balanced"
    argv = [job["feedwater"], "bench", path, "--routes", by, "--device", job["device"], "--json"]
    return argv + (["--epochs", str(job["epochs"])] if job["epochs"] else [])


def result(stdout, job):
    """Returns the result of a run, with the keys that the results of the other peers have."""
    case = the_job.result(stdout)["cases"][0]
    version = subprocess.run([job["feedwater"], "--version"], capture_output=True, text=True, check=True).stdout
    return case | {
        "versions": version.strip(),
        "import_seconds": 0.0,
        "shape": [case["batch"], 3, the_job.SIDE, the_job.SIDE],
        "dtype": "float16",
    }
