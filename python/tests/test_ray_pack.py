"""Tests of packing on a Ray cluster. Its nodes are processes of this machine. Some tests kill workers and nodes."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import textwrap

import pytest

ray = pytest.importorskip("ray")
pytest.importorskip("pyarrow")

import feedwater as fw  # noqa: E402
from ray_helpers import SAMPLES, Killing, files, labels, wait_for  # noqa: E402


def packed(source, directory, **settings):
    return fw.ray.pack(source, directory, **{"shard_bytes": 1 << 20, "samples_per_task": 5, **settings})


def on_one_machine(source, directory, *arguments):
    command = [sys.executable, "-m", "feedwater", "pack", str(source), str(directory), "--shard-mib", "1", *arguments]
    subprocess.run(command, check=True, capture_output=True)
    return files(directory)


@pytest.mark.parametrize(
    "settings, arguments",
    [
        ({"samples_per_task": 1, "tasks": 1}, []),
        ({"format": "tfrecord", "name": "set", "samples_per_task": 100}, ["--format", "tfrecord", "--name", "set"]),
        ({"shorter": 80, "quality": 100, "num_cpus": 0.5}, ["--shorter", "80", "--quality", "100"]),
    ],
    ids=["webdataset", "tfrecord", "smaller"],
)
def test_shards_are_those_of_one_machine(cluster, large, tmp_path, settings, arguments):
    manifest = packed(large, tmp_path / "cluster", **settings)
    expected = on_one_machine(large, tmp_path / "one", *arguments)
    found = files(tmp_path / "cluster")
    assert found == expected
    assert len(manifest["shards"]) > 1 and manifest["complete"]
    assert sum(shard["samples"] for shard in manifest["shards"]) == SAMPLES
    if "shorter" in settings:
        assert "train-000000.tar.rows" in expected
    # A second call has nothing left to do.
    assert packed(large, tmp_path / "cluster", **settings) == manifest


def test_shards_of_a_sequence_and_a_folder_are_those_of_the_folder(cluster, large, tmp_path):
    paths = sorted(str(path) for path in large.rglob("*.ppm"))
    sequence = fw.samples(paths, labels(), classes=["cat", "dog"])
    manifest = packed(fw.concat(sequence.select(take=40), fw.directory(large).select(skip=40)), tmp_path / "cluster")
    assert manifest["complete"] and manifest["classes"] == ["cat", "dog"]
    on_one_machine(large, tmp_path / "one")
    assert files(tmp_path / "cluster", ".tar") == files(tmp_path / "one", ".tar")


def test_unusable_samples_stop_or_are_skipped_as_on_one_machine(cluster, large, tmp_path):
    broken = tmp_path / "set"
    for path in sorted(large.rglob("*.ppm")):
        copy = broken / path.parent.name / path.name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes()[: 50 if path.stem in ("25", "60") else None])
    with pytest.raises(fw.errors.SampleError, match="25.ppm"):
        packed(broken, tmp_path / "stopped")
    # The shards before the bad sample remain, and packing continues after them.
    manifest = json.loads((tmp_path / "stopped" / ".feedwater-pack.json").read_text())
    assert len(manifest["shards"]) == 1 and not manifest["complete"]
    manifest = packed(broken, tmp_path / "skipped", skip=True)
    assert [skipped["index"] for skipped in manifest["skipped_first"]] == [25, 60]
    assert files(tmp_path / "skipped") == on_one_machine(broken, tmp_path / "one", "--skip")


def test_a_pack_into_a_directory_of_another_source_is_refused(cluster, large, many, tmp_path):
    packed(large, tmp_path)
    with pytest.raises(fw.errors.ConfigError, match="another source"):
        packed(many, tmp_path)
    with pytest.raises(fw.errors.ConfigError, match="shard_bytes"):
        packed(large, tmp_path / "other", shard_bytes=0)
    with pytest.raises(ValueError, match="tasks is 0"):
        packed(large, tmp_path / "other", tasks=0)
    with pytest.raises(ValueError, match="num_cpus is 0"):
        packed(large, tmp_path / "other", num_cpus=0)
    assert packed(many, tmp_path, overwrite=True)["made"]["samples"] == SAMPLES


@pytest.mark.parametrize("node", [False, True], ids=["worker", "node"])
def test_a_worker_that_is_killed_while_it_encodes_loses_and_repeats_nothing(cluster, large, tmp_path, node):
    source = fw.samples(Killing(large, 33, tmp_path / "killed", node=node), labels(), classes=["cat", "dog"])
    packed(source, tmp_path / "cluster")
    assert (tmp_path / "killed").exists()
    if node:
        cluster.add_node(num_cpus=1, object_store_memory=100 << 20)
    on_one_machine(large, tmp_path / "one")
    assert files(tmp_path / "cluster", ".tar") == files(tmp_path / "one", ".tar")


def dying_write(job, shard, *rest):
    """Writes a shard. The first process that writes shard 1 is killed in the middle of its file."""
    from feedwater.ray import _pack

    number, directory = json.loads(shard)["number"], pathlib.Path(job.directory)
    if number == 1 and not (directory.parent / "killed").exists():
        (directory / f".train-000001.tar.{os.getpid()}-0.part").write_bytes(b"half of a shard")
        (directory.parent / "killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return _pack._opened(job).write(shard, list(rest[1:]), rest[0])


def test_a_worker_that_is_killed_while_it_writes_loses_and_repeats_nothing(cluster, large, tmp_path, monkeypatch):
    from feedwater.ray import _pack

    monkeypatch.setattr(_pack, "_write", dying_write)
    packed(large, tmp_path / "cluster")
    assert (tmp_path / "killed").exists()
    # The files must be equal, so the incomplete file of the killed process is gone.
    assert files(tmp_path / "cluster") == on_one_machine(large, tmp_path / "one")


class Held:
    """The images of a folder. Reading one of them waits while a file exists."""

    def __init__(self, folder, index, hold):
        self.files = sorted(str(path) for path in folder.rglob("*.ppm"))
        self.index = index
        self.hold = str(hold)

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        if index == self.index:
            wait_for(lambda: not os.path.exists(self.hold))
        return self.files[index]


DRIVER = """
    import pathlib, sys
    import feedwater as fw, ray, test_ray_pack
    large, directory, hold, address, environment = sys.argv[1:]
    ray.init(address=address, log_to_driver=False, runtime_env={"env_vars": {"PYTHONPATH": environment}})
    test_ray_pack.packed(fw.samples(test_ray_pack.Held(pathlib.Path(large), 50, hold), test_ray_pack.labels(), classes=["cat", "dog"]), directory)
"""


def listed(directory):
    """Returns the shards that the manifest lists."""
    manifest = directory / ".feedwater-pack.json"
    return json.loads(manifest.read_text())["shards"] if manifest.exists() else []


def test_a_pack_whose_driver_was_killed_continues(cluster, large, tmp_path):
    hold, directory = tmp_path / "hold", tmp_path / "cluster"
    hold.touch()
    path = ray.get_runtime_context().runtime_env["env_vars"]["PYTHONPATH"]
    arguments = [str(large), str(directory), str(hold), cluster.address, path]
    driver = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(DRIVER), *arguments], env={**os.environ, "PYTHONPATH": path}
    )
    try:
        # Sample 50 is held back, so the run cannot end. The shards before this sample can be completed.
        wait_for(lambda: len(listed(directory)) == 2 or driver.poll() is not None)
    finally:
        driver.kill()
        driver.wait()
    before = listed(directory)
    assert len(before) == 2 and before[-1]["end"] < 50
    written = {shard["name"]: (directory / shard["name"]).stat() for shard in before}
    hold.unlink()
    manifest = packed(fw.samples(Held(large, 50, hold), labels(), classes=["cat", "dog"]), directory)
    assert manifest["complete"] and manifest["shards"][:2] == before
    for name, old in written.items():
        new = (directory / name).stat()
        assert (new.st_ino, new.st_mtime_ns) == (old.st_ino, old.st_mtime_ns)
    on_one_machine(large, tmp_path / "one")
    assert files(directory, ".tar") == files(tmp_path / "one", ".tar")


def recorded(function, kind):
    """Wraps a task of a pack, and records how much memory Ray has reserved for it."""

    def task(job, *rest):
        reserved = ray.get_runtime_context().get_assigned_resources().get("memory", 0)
        pathlib.Path(job.directory).parent.joinpath(f"{kind}-{reserved:.0f}").touch()
        return function(job, *rest)

    return task


@pytest.mark.parametrize("given", [None, 100 << 20], ids=["predicted", "given"])
def test_tasks_reserve_memory(cluster, large, tmp_path, monkeypatch, given):
    from feedwater.ray import _pack

    for kind in ("_encode", "_write"):
        monkeypatch.setattr(_pack, kind, recorded(getattr(_pack, kind), kind))
    packed(large, tmp_path / "cluster", ray_remote_args=given and {"memory": given})
    reserved = {kind: {int(path.name.split("-")[1]) for path in tmp_path.glob(f"{kind}-*")} for kind in ("_encode", "_write")}
    if given:
        assert reserved == {"_encode": {given}, "_write": {given}}
        return
    # The encoded images have 54 KB each, with less than 1.1 KB of additional data per image.
    ((encode,), (write,)) = reserved.values()
    assert 4 * 5 * 54_000 < encode - (128 << 20) < 4 * 5 * 55_100
    assert write == encode + (1 << 20)


def test_a_task_for_which_no_node_has_memory_is_refused(cluster, large, tmp_path):
    with pytest.raises(RuntimeError, match="a task that writes needs 1 CPU, 1073741[0-9]* MiB of memory, which no node .* Lower shard_bytes"):
        packed(large, tmp_path, shard_bytes=1 << 50)
    with pytest.raises(RuntimeError, match="a task that encodes needs .* Lower samples_per_task"):
        packed(large, tmp_path, samples_per_task=1 << 30)
    with pytest.raises(RuntimeError, match="a task that encodes needs 1 CPU, 1048[0-9]{3} MiB"):
        packed(large, tmp_path, shorter=80, limits={"large_image_memory": "1 TiB"})
    with pytest.raises(RuntimeError, match="needs 1 CPU, .* MiB of memory, 1 shelf, .* at most 1 CPU, .* 0 shelf"):
        packed(large, tmp_path, ray_remote_args={"resources": {"shelf": 1}})
    # Packing again succeeds, so the lock of the directory is free.
    assert packed(large, tmp_path)["complete"]


def test_a_directory_is_not_a_url(large):
    with pytest.raises(ValueError, match="directory is 's3://bucket/shards'; shards are written to a file system"):
        fw.ray.pack(large, "s3://bucket/shards")
