"""feedwater on a Ray cluster of several nodes, which are processes of this machine. Workers and nodes are killed while they read
and pack."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time

import numpy
import pytest

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
ray = pytest.importorskip("ray")
pytest.importorskip("pyarrow")

import feedwater as fw  # noqa: E402
import ray.cluster_utils  # noqa: E402
import ray.data  # noqa: E402
from conftest import pixels_of, write_image  # noqa: E402

#: Longest wait for another process, in seconds.
PATIENCE = 120

RANDOM = [fw.ops.RandomResizedCrop(width=6, height=4), fw.ops.Flip(horizontal=0.5)]
SETTINGS = {"shuffle": True, "seed": 3, "last": "partial"}
SAMPLES = 61


@pytest.fixture(scope="module")
def cluster():
    """The driver's node, where no task runs, and three nodes with one core each."""
    cluster = ray.cluster_utils.Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 0, "object_store_memory": 100 << 20, "include_dashboard": False},
    )
    for _ in range(3):
        cluster.add_node(num_cpus=1, object_store_memory=100 << 20)
    # Workers import this file, and the package that is tested.
    path = os.pathsep.join(str(pathlib.Path(it).resolve()) for it in (pathlib.Path(__file__).parent, *sys.path) if str(it))
    environment = {"env_vars": {"PYTHONPATH": path}}
    ray.init(address=cluster.address, log_to_driver=False, runtime_env=environment)
    ray.data.DataContext.get_current().enable_progress_bars = False
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """61 images in two classes."""
    root = tmp_path_factory.mktemp("images") / "set"
    for index in range(SAMPLES):
        name = root / ("cat" if index < 30 else "dog") / f"{index:02}.ppm"
        name.parent.mkdir(parents=True, exist_ok=True)
        write_image(name, pixels_of(index))
    return root


def loaded(source, chain=RANDOM, *, epochs=1, **settings):
    """Batches of one loader: images, targets, and records."""
    batches = []
    with fw.Loader(source, chain, framework="batch", **{"batch": 4, **SETTINGS, **settings}) as loader:
        for _ in range(epochs):
            batches += [(batch.numpy().copy(), batch.targets(), batch.samples) for batch in loader]
    return batches


def check(dataset, batches):
    """The rows of the data set are those of the batches, in order."""
    rows = dataset.take_all()
    expected = [record for _, _, records in batches for record in records]
    assert [row["index"] for row in rows] == [record["index"] for record in expected]
    assert [row["label"] for row in rows] == [-1 if record["label"] is None else record["label"] for record in expected]
    assert [row["padding"] for row in rows] == [record["padding"] for record in expected]
    images = numpy.concatenate([images for images, _, _ in batches])
    numpy.testing.assert_array_equal(numpy.stack([row["image"] for row in rows]), images)
    return rows


@pytest.mark.parametrize("tasks", [1, 5, 40])
def test_rows_are_those_of_one_loader_for_any_number_of_tasks(cluster, folder, tasks):
    dataset = fw.ray.read(folder, RANDOM, batch=4, epochs=2, override_num_blocks=tasks, **SETTINGS)
    rows = check(dataset, loaded(folder, epochs=2))
    assert len(rows) == 2 * SAMPLES
    assert [(row["epoch"], row["position"]) for row in rows] == [(epoch, at) for epoch in (0, 1) for at in range(SAMPLES)]
    assert all(row["location"].endswith(f"{row['index']:02}.ppm") and row["error"] is None for row in rows)


def test_padding_and_batch_operators_are_those_of_one_loader(cluster, folder):
    mixed = {"last": "pad", "batch_operators": [fw.ops.Mixup(alpha=1.0)], "classes": 2}
    settings = {**SETTINGS, **mixed}
    batches = loaded(folder, batch=6, **mixed)
    rows = check(fw.ray.read(folder, RANDOM, batch=6, override_num_blocks=4, **settings), batches)
    assert sum(row["padding"] for row in rows) == 5 and rows[-1]["position"] == SAMPLES - 1
    targets = numpy.concatenate([targets for _, targets, _ in batches])
    numpy.testing.assert_array_equal(numpy.stack([row["target"] for row in rows]), targets)


def test_a_data_set_continues_where_a_loader_was_left_and_a_loader_where_a_data_set_was(cluster, folder):
    batches = loaded(folder, epochs=2)
    with fw.Loader(folder, RANDOM, batch=4, framework="batch", **SETTINGS) as loader:
        for _, _ in zip(range(5), loader.batches()):
            pass
        state = loader.state_dict()
    # The state has the seed and the order, which the data set need not be told.
    source = fw.ray.Datasource(folder, RANDOM, batch=4, epochs=2, state=state, last="partial")
    check(fw.ray.read(source, override_num_blocks=3), batches[5:])
    state = source.state_dict(rows=12)
    assert (state["state"]["epoch"], state["state"]["position"]) == (0, 32)
    with fw.Loader(folder, RANDOM, batch=4, framework="batch", last="partial") as loader:
        loader.load_state_dict(state)
        rest = [batch.numpy().copy() for _ in range(2) for batch in loader]
    numpy.testing.assert_array_equal(numpy.concatenate(rest), numpy.concatenate([it[0] for it in batches[8:]]))


@pytest.mark.parametrize("policy", ["stop", "skip", "substitute"])
def test_failed_samples_are_counted_once(cluster, folder, tmp_path, policy):
    files = sorted(str(path) for path in folder.rglob("*.ppm"))
    for number in (7, 40):
        broken = tmp_path / f"{number}.ppm"
        broken.write_bytes(pathlib.Path(files[number]).read_bytes()[:50])
        files[number] = str(broken)
    source = fw.samples(files)
    if policy == "stop":
        with pytest.raises(fw.errors.SampleError, match="40.ppm|7.ppm|samples"):
            fw.ray.read(source, RANDOM, batch=4, override_num_blocks=3, **SETTINGS).take_all()
        return
    dataset = fw.ray.read(source, RANDOM, batch=4, override_num_blocks=3, on_error=policy, **SETTINGS)
    rows = check(dataset, loaded(source, on_error=policy))
    failed = [row for row in rows if row["error"] is not None]
    assert len(rows) == SAMPLES and len(failed) == 2
    column = "replaces" if policy == "skip" else "index"
    assert sorted(row[column] for row in failed) == [7, 40]
    assert all((row["outcome"] == "substituted") == (policy == "substitute") for row in failed)


def test_settings_that_tasks_cannot_have_are_refused(cluster, folder):
    with pytest.raises(TypeError, match="rank cannot be set"):
        fw.ray.read(folder, RANDOM, rank=0, world=2)
    with pytest.raises(ValueError, match="epochs is 0"):
        fw.ray.read(folder, RANDOM, epochs=0)
    with pytest.raises(ValueError, match='dtype is "bf16"'):
        fw.ray.read(folder, RANDOM, batch=4, dtype="bf16")
    with pytest.raises(fw.errors.ConfigError, match="prefetch"):
        fw.ray.read(folder, RANDOM, batch=4, prefetch=0)
    with pytest.raises(TypeError, match="has all settings"):
        fw.ray.read(fw.ray.Datasource(folder, RANDOM, batch=4), shuffle=True)
    with pytest.raises(TypeError, match="has all settings"):
        fw.ray.read(fw.ray.Datasource(folder, RANDOM, batch=4), batch=8)


def test_a_model_is_given_the_memory_of_the_block():
    import pyarrow
    from feedwater.ray import _model
    from ray.data.extensions import ArrowTensorArray

    torch = pytest.importorskip("torch")
    images = numpy.arange(5 * 3 * 4 * 6, dtype=numpy.float32).reshape(5, 3, 4, 6)
    table = pyarrow.table({"image": ArrowTensorArray.from_numpy(images)})
    given = []
    for framework in ("numpy", "torch"):
        model = _model._Applied(lambda images: given.append(images) or images[:, 0, 0, 0], framework, "first", [])
        assert model.apply(table)["first"].to_pylist() == images[:, 0, 0, 0].tolist()
    assert numpy.shares_memory(given[0], images)
    assert isinstance(given[1], torch.Tensor) and given[1].data_ptr() == images.ctypes.data


class Mean:
    """A model whose embedding is a mean of each channel."""

    def __init__(self, scale=1.0):
        self.scale = scale

    def __call__(self, images):
        return {"mean": images.mean(axis=(2, 3)) * self.scale, "largest": images.max(axis=(1, 2, 3))}


def test_embeddings_lie_beside_what_they_belong_to(cluster, folder, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    settings = {**SETTINGS, "last": "pad"}
    dataset = fw.ray.read(folder, RANDOM, batch=4, override_num_blocks=4, **settings)
    embedded = fw.ray.map_batches(
        dataset, Mean, framework="numpy", arguments={"scale": 2.0}, compute=ray.data.ActorPoolStrategy(size=1), num_cpus=0.5
    )
    embedded.write_parquet(str(tmp_path / "embeddings"))
    table = parquet.read_table(tmp_path / "embeddings").sort_by("index")
    assert table.column_names == ["index", "label", "location", "mean", "largest"]
    assert table["index"].to_pylist() == list(range(SAMPLES))
    means = {}
    for images, _, records in loaded(folder):
        means |= {record["index"]: image.mean(axis=(1, 2)) * 2.0 for record, image in zip(records, images)}
    found = numpy.array(table["mean"].to_pylist(), numpy.float32)
    numpy.testing.assert_array_equal(found, numpy.stack([means[index] for index in range(SAMPLES)]))


def test_models_that_give_too_few_rows_are_refused(cluster, folder):
    dataset = fw.ray.read(folder, RANDOM, batch=4, override_num_blocks=1, **SETTINGS)
    with pytest.raises(Exception, match="embedding of the model has shape"):
        fw.ray.map_batches(dataset, lambda images: images[:1].mean(axis=(2, 3)), framework="numpy").take_all()


class Killing:
    """The images of a folder. The first worker that is asked for a certain one is killed, or its node, once there is a file."""

    def __init__(self, folder, index, killed, *, go=None, question=1, node=False):
        self.files = sorted(str(path) for path in folder.rglob("*.ppm"))
        self.index = index
        self.go = go and str(go)
        self.killed = str(killed)
        # The driver opens the source too.
        self.driver = os.getpid()
        #: A loader asks for some items when it is built, of a small set for all.
        self.question = question
        self.node = node
        self.asked = 0

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        if index == self.index and os.getpid() != self.driver and not os.path.exists(self.killed):
            self.asked += 1
            if self.asked == self.question:
                if self.go:
                    wait_for(lambda: os.path.exists(self.go))
                pathlib.Path(self.killed).touch()
                # The parent of a worker is the raylet of its node.
                for process in [os.getppid(), os.getpid()] if self.node else [os.getpid()]:
                    os.kill(process, signal.SIGKILL)
        return self.files[index]


def wait_for(condition):
    """Waits until something holds, and fails after a long time."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {PATIENCE} s in vain")
        time.sleep(0.01)


def labels():
    return [0 if index < 30 else 1 for index in range(SAMPLES)]


@pytest.mark.parametrize("node", [False, True], ids=["worker", "node"])
def test_a_killed_reader_loses_and_repeats_nothing(cluster, folder, tmp_path, node):
    go, killed = tmp_path / "go", tmp_path / "killed"
    batches = loaded(folder)
    # The fifth sample of a batch in the middle of the first of two tasks, whose earlier blocks the consumer has already.
    victim = batches[6][2][1]["index"]
    source = fw.samples(Killing(folder, victim, killed, go=go, question=2, node=node), labels())
    context = ray.data.DataContext.get_current()
    before = context.target_max_block_size
    # Each batch is a block.
    context.target_max_block_size = 4 * 3 * 4 * 6 * 4
    try:
        dataset = fw.ray.read(source, RANDOM, batch=4, override_num_blocks=2, **SETTINGS)
        rows = []
        for block in dataset.iter_batches(batch_size=None):
            rows += zip(block["index"], block["position"], block["image"])
            # The first blocks are here, so the process that makes the next ones may be killed.
            go.touch()
    finally:
        context.target_max_block_size = before
    assert killed.exists()
    if node:
        cluster.add_node(num_cpus=1, object_store_memory=100 << 20)
    assert [int(position) for _, position, _ in rows] == list(range(SAMPLES))
    assert [int(index) for index, _, _ in rows] == [record["index"] for _, _, records in batches for record in records]
    images = numpy.concatenate([images for images, _, _ in batches])
    numpy.testing.assert_array_equal(numpy.stack([image for _, _, image in rows]), images)


def test_a_sequence_in_a_mixture_is_read_as_by_one_loader(cluster, folder):
    sequence = fw.samples(sorted(str(path) for path in folder.rglob("*.ppm")), labels(), classes=["cat", "dog"])
    source = fw.mixture(sequence, fw.directory(folder).select(take=9), sequence.select(skip=50), weights=[3, 1, 1])
    dataset = fw.ray.read(source, RANDOM, batch=4, epochs=2, override_num_blocks=5, **SETTINGS)
    assert {row["location"].split("[")[0] for row in check(dataset, loaded(source, epochs=2))} > {"samples"}


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """61 images of 54 KB, so that shards of 1 MiB have 19 or 20 of them."""
    root = tmp_path_factory.mktemp("large") / "set"
    for index in range(SAMPLES):
        name = root / ("cat" if index < 30 else "dog") / f"{index:02}.ppm"
        name.parent.mkdir(parents=True, exist_ok=True)
        write_image(name, pixels_of(index, width=180, height=100))
    return root


def packed(source, directory, **settings):
    return fw.ray.pack(source, directory, **{"shard_bytes": 1 << 20, "samples_per_task": 5, **settings})


def files(directory, ending=""):
    """Every file that packing wrote, with its bytes, except the lock and indexes of shards, whose names depend on the path."""
    paths = [path for path in pathlib.Path(directory).iterdir() if not path.name.endswith((".lock", ".feedwater1"))]
    return {path.name: path.read_bytes() for path in paths if path.name.endswith(ending)}


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
    # Nothing is left to do.
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
    # The shards before it stay, and packing continues after them.
    manifest = json.loads((tmp_path / "stopped" / ".feedwater-pack.json").read_text())
    assert len(manifest["shards"]) == 1 and not manifest["complete"]
    manifest = packed(broken, tmp_path / "skipped", skip=True)
    assert [skipped["index"] for skipped in manifest["skipped_first"]] == [25, 60]
    assert files(tmp_path / "skipped") == on_one_machine(broken, tmp_path / "one", "--skip")


def test_a_pack_into_a_directory_of_another_source_is_refused(cluster, large, folder, tmp_path):
    packed(large, tmp_path)
    with pytest.raises(fw.errors.ConfigError, match="another source"):
        packed(folder, tmp_path)
    with pytest.raises(fw.errors.ConfigError, match="shard_bytes"):
        packed(large, tmp_path / "other", shard_bytes=0)
    with pytest.raises(ValueError, match="tasks is 0"):
        packed(large, tmp_path / "other", tasks=0)
    with pytest.raises(ValueError, match="num_cpus is 0"):
        packed(large, tmp_path / "other", num_cpus=0)
    assert packed(folder, tmp_path, overwrite=True)["made"]["samples"] == SAMPLES


@pytest.mark.parametrize("node", [False, True], ids=["worker", "node"])
def test_a_worker_that_is_killed_while_it_encodes_loses_and_repeats_nothing(cluster, large, tmp_path, node):
    source = fw.samples(Killing(large, 33, tmp_path / "killed", node=node), labels())
    packed(source, tmp_path / "cluster")
    assert (tmp_path / "killed").exists()
    if node:
        cluster.add_node(num_cpus=1, object_store_memory=100 << 20)
    on_one_machine(large, tmp_path / "one")
    assert files(tmp_path / "cluster", ".tar") == files(tmp_path / "one", ".tar")


def dying_write(job, shard, *rest):
    """Writes a shard, but the first process that has shard 1 is killed in the middle of its file."""
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
    # The half of a file is gone too.
    assert files(tmp_path / "cluster") == on_one_machine(large, tmp_path / "one")


class Held:
    """The images of a folder, one of which is not given while a file is there."""

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
    import feedwater as fw, ray, test_ray
    large, directory, hold, address, environment = sys.argv[1:]
    ray.init(address=address, log_to_driver=False, runtime_env={"env_vars": {"PYTHONPATH": environment}})
    test_ray.packed(fw.samples(test_ray.Held(pathlib.Path(large), 50, hold), test_ray.labels()), directory)
"""


def listed(directory):
    """The shards that the manifest lists."""
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
        # Sample 50 is held back, so the run cannot end; the shards before it can.
        wait_for(lambda: len(listed(directory)) == 2 or driver.poll() is not None)
    finally:
        driver.kill()
        driver.wait()
    before = listed(directory)
    assert len(before) == 2 and before[-1]["end"] < 50
    written = {shard["name"]: (directory / shard["name"]).stat() for shard in before}
    hold.unlink()
    manifest = packed(fw.samples(Held(large, 50, hold), labels()), directory)
    assert manifest["complete"] and manifest["shards"][:2] == before
    for name, old in written.items():
        new = (directory / name).stat()
        assert (new.st_ino, new.st_mtime_ns) == (old.st_ino, old.st_mtime_ns)
    on_one_machine(large, tmp_path / "one")
    assert files(directory, ".tar") == files(tmp_path / "one", ".tar")
