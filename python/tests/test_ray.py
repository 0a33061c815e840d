"""Tests of reading on a Ray cluster. Its nodes are processes of this machine. Some tests kill workers and nodes."""

import pathlib

import numpy
import pytest

ray = pytest.importorskip("ray")
pytest.importorskip("pyarrow")

import feedwater as fw  # noqa: E402
import ray.data  # noqa: E402
from ray_helpers import RANDOM, SAMPLES, SETTINGS, Killing, check, labels, loaded  # noqa: E402


@pytest.mark.parametrize("tasks", [1, 5, 40])
def test_rows_are_those_of_one_loader_for_any_number_of_tasks(cluster, many, tasks):
    dataset = fw.ray.read(many, RANDOM, batch_size=4, epochs=2, override_num_blocks=tasks, **SETTINGS)
    rows = check(dataset, loaded(many, epochs=2))
    assert len(rows) == 2 * SAMPLES
    assert [(row["epoch"], row["position"]) for row in rows] == [(epoch, at) for epoch in (0, 1) for at in range(SAMPLES)]
    assert all(row["location"].endswith(f"{row['index']:02}.ppm") and row["error"] is None for row in rows)


def test_padding_and_batch_operators_are_those_of_one_loader(cluster, many):
    mixed = {"last_batch": "pad", "batch_operators": [fw.ops.Mixup(alpha=1.0)], "classes": 2}
    settings = {**SETTINGS, **mixed}
    batches = loaded(many, batch_size=6, **mixed)
    rows = check(fw.ray.read(many, RANDOM, batch_size=6, override_num_blocks=4, **settings), batches)
    assert sum(row["padding"] for row in rows) == 5 and rows[-1]["position"] == SAMPLES - 1
    targets = numpy.concatenate([targets for _, targets, _ in batches])
    numpy.testing.assert_array_equal(numpy.stack([row["target"] for row in rows]), targets)


def test_a_data_set_continues_where_a_loader_was_left_and_a_loader_where_a_data_set_was(cluster, many):
    batches = loaded(many, epochs=2)
    with fw.Loader(many, RANDOM, batch_size=4, framework="batch", **SETTINGS) as loader:
        for _, _ in zip(range(5), loader.batches()):
            pass
        state = loader.state_dict()
    # The state contains seed and order, so the data set does not need these settings.
    source = fw.ray.Datasource(many, RANDOM, batch_size=4, epochs=2, state=state, last_batch="partial")
    check(fw.ray.read(source, override_num_blocks=3), batches[5:])
    state = source.state_dict(rows=12)
    assert (state["state"]["epoch"], state["state"]["position"]) == (0, 32)
    with fw.Loader(many, RANDOM, batch_size=4, framework="batch", last_batch="partial") as loader:
        loader.load_state_dict(state)
        rest = [batch.numpy().copy() for _ in range(2) for batch in loader]
    numpy.testing.assert_array_equal(numpy.concatenate(rest), numpy.concatenate([it[0] for it in batches[8:]]))


@pytest.mark.parametrize("policy", ["stop", "skip", "substitute"])
def test_failed_samples_are_counted_once(cluster, many, tmp_path, policy):
    files = sorted(str(path) for path in many.rglob("*.ppm"))
    for number in (7, 40):
        broken = tmp_path / f"{number}.ppm"
        broken.write_bytes(pathlib.Path(files[number]).read_bytes()[:50])
        files[number] = str(broken)
    source = fw.samples(files)
    if policy == "stop":
        with pytest.raises(fw.errors.SampleError, match="40.ppm|7.ppm|samples"):
            fw.ray.read(source, RANDOM, batch_size=4, override_num_blocks=3, **SETTINGS).take_all()
        return
    dataset = fw.ray.read(source, RANDOM, batch_size=4, override_num_blocks=3, on_error=policy, **SETTINGS)
    rows = check(dataset, loaded(source, on_error=policy))
    failed = [row for row in rows if row["error"] is not None]
    assert len(rows) == SAMPLES and len(failed) == 2
    column = "replaces" if policy == "skip" else "index"
    assert sorted(row[column] for row in failed) == [7, 40]
    assert all((row["outcome"] == "substituted") == (policy == "substitute") for row in failed)


def test_settings_that_tasks_cannot_have_are_refused(cluster, many):
    with pytest.raises(TypeError, match="rank cannot be set"):
        fw.ray.read(many, RANDOM, rank=0, world_size=2)
    with pytest.raises(ValueError, match="epochs is 0"):
        fw.ray.read(many, RANDOM, epochs=0)
    with pytest.raises(ValueError, match="num_gpus is -1"):
        fw.ray.read(many, RANDOM, num_gpus=-1)
    with pytest.raises(fw.errors.ConfigError, match="prefetch"):
        fw.ray.read(many, RANDOM, batch_size=4, prefetch=0)
    with pytest.raises(TypeError, match="has all settings"):
        fw.ray.read(fw.ray.Datasource(many, RANDOM, batch_size=4), shuffle=True)
    with pytest.raises(TypeError, match="has all settings"):
        fw.ray.read(fw.ray.Datasource(many, RANDOM, batch_size=4), batch_size=8)


def test_other_names_mean_the_same_to_tasks(cluster, many):
    loader = fw.LoaderSettings(num_workers=2, tune=False)
    source = fw.ray.Datasource(many, chain=RANDOM, batch=4, last="partial", loader=loader)
    assert len(source) == len(fw.ray.Datasource(many, RANDOM, batch_size=4, drop_last=False))
    for setting in ('"num_workers" = 2', '"last_batch" = "partial"', '"shard" = "none"', '"tune" = false'):
        assert setting in source._job.text
    with pytest.raises(TypeError, match="world_size cannot be set"):
        fw.ray.read(many, RANDOM, world=2)
    with pytest.raises(TypeError, match="did you mean shuffle"):
        fw.ray.read(many, RANDOM, shufle=True)


@pytest.mark.parametrize("node", [False, True], ids=["worker", "node"])
def test_a_killed_reader_loses_and_repeats_nothing(cluster, many, tmp_path, node):
    go, killed = tmp_path / "go", tmp_path / "killed"
    batches = loaded(many)
    # Index of a sample in the middle of the first of two tasks. When the task is killed there, the consumer already has the earlier blocks.
    victim = batches[6][2][1]["index"]
    source = fw.samples(Killing(many, victim, killed, go=go, question=2, node=node), labels())
    context = ray.data.DataContext.get_current()
    before = context.target_max_block_size
    # Limits the size of blocks, so that each batch is a block.
    context.target_max_block_size = 4 * 3 * 4 * 6 * 4
    try:
        dataset = fw.ray.read(source, RANDOM, batch_size=4, override_num_blocks=2, **SETTINGS)
        rows = []
        for block in dataset.iter_batches(batch_size=None):
            rows += zip(block["index"], block["position"], block["image"])
            # The consumer has received the first blocks, so the process that makes the next blocks may now be killed.
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


def test_a_sequence_in_a_mixture_is_read_as_by_one_loader(cluster, many):
    sequence = fw.samples(sorted(str(path) for path in many.rglob("*.ppm")), labels(), classes=["cat", "dog"])
    source = fw.mixture(sequence, fw.directory(many).select(take=9), sequence.select(skip=50), weights=[3, 1, 1])
    dataset = fw.ray.read(source, RANDOM, batch_size=4, epochs=2, override_num_blocks=5, **SETTINGS)
    assert {row["location"].split("[")[0] for row in check(dataset, loaded(source, epochs=2))} > {"samples"}
