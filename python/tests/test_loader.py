"""Tests of the loader: epochs, order, positions, shards and errors."""

import gc
import json
import logging
import os
import subprocess
import sys
import textwrap
import threading

import feedwater as fw
import numpy
import pytest
from conftest import pixels_of

#: A chain that does not change pixels.
SAME = [fw.ops.Crop(width=12, height=8)]
AS_THEY_ARE = {"transform": SAME, "dtype": "u8", "layout": "nhwc", "framework": "numpy"}


def indices(loader):
    """Returns the indices of the samples of the next epoch."""
    return [index for batch in loader.batches() for index in batch.indices]


def test_images_and_labels_are_those_of_the_files(folder):
    with fw.Loader(folder, batch_size=5, **AS_THEY_ARE) as loader:
        assert len(loader) == 4 and loader.samples == 20 and loader.classes == ["cat", "dog"]
        seen = 0
        for images, labels in loader:
            assert images.shape == (5, 8, 12, 3) and images.dtype == numpy.uint8
            assert labels.dtype == numpy.int64
            for image, label in zip(images, labels):
                numpy.testing.assert_array_equal(image, pixels_of(seen))
                assert label == (0 if seen < 10 else 1)
                seen += 1
        assert seen == 20


def test_a_recipe_normalizes_and_shuffles(folder):
    loader = fw.Loader(folder, fw.train_recipe(4), batch_size=5, seed=42, framework="numpy")
    images, labels = next(iter(loader))
    assert images.shape == (5, 3, 4, 4) and images.dtype == numpy.float32
    assert -2.2 < images.min() and images.max() < 2.7
    first, second = indices(loader), indices(loader)
    assert sorted(first) == sorted(second) == list(range(20))
    assert first != second and first != sorted(first)
    evaluation = fw.Loader(folder, fw.eval_recipe(4), batch_size=6, framework="numpy")
    assert [len(images) for images, _ in evaluation] == [6, 6, 6, 2]


def test_the_same_seed_gives_the_same_epochs(folder):
    def run(seed, workers):
        loader = fw.Loader(folder, fw.train_recipe(4), batch_size=5, seed=seed, num_workers=workers, framework="numpy")
        return numpy.concatenate([images.copy() for _ in range(2) for images, _ in loader])

    numpy.testing.assert_array_equal(run(1, 1), run(1, 3))
    assert (run(1, 2) != run(2, 2)).any()


def test_set_epoch_continues_with_that_epoch(folder):
    orders = fw.Loader(folder, fw.train_recipe(4), batch_size=5, seed=3, framework="batch")
    epochs = [indices(orders) for _ in range(4)]
    loader = fw.Loader(folder, fw.train_recipe(4), batch_size=5, seed=3, framework="batch")
    loader.set_epoch(0)
    assert indices(loader) == epochs[0]
    loader.set_epoch(3)
    assert indices(loader) == epochs[3]
    loader.set_epoch(1)
    assert indices(loader) == epochs[1] and indices(loader) == epochs[2]


def test_a_state_continues_with_exactly_what_is_left(folder):
    def loader(batch):
        return fw.Loader(folder, fw.train_recipe(4), batch_size=batch, seed=9, framework="batch")

    whole = loader(2)
    first, second = indices(whole), indices(whole)
    stopped = loader(2)
    batches = stopped.batches()
    before = [index for _ in range(3) for index in next(batches).indices]
    # Converts the state to JSON and back, as a checkpoint does.
    state = json.loads(json.dumps(stopped.state_dict()))
    resumed = loader(7)
    resumed.load_state_dict(state)
    assert before + indices(resumed) == first
    assert indices(resumed) == second[:14], "batches have seven samples, and the rest is dropped"
    # The state at the end of an epoch is the state at the beginning of the next epoch.
    ended = loader(5)
    assert indices(ended) == first
    resumed.load_state_dict(ended.state_dict())
    resumed.set_epoch(1)
    assert indices(resumed) == second[:14]


def test_a_state_of_another_set_is_an_error(folder):
    loader = fw.Loader(folder, batch_size=2, **AS_THEY_ARE)
    with pytest.raises(ValueError, match="version 7"):
        loader.load_state_dict({"version": 7, "state": {}})
    state = loader.state_dict()
    state["state"]["samples"] = 21
    with pytest.raises(fw.errors.ConfigError, match="21"):
        loader.load_state_dict(state)
    # After the refused states, the loader must read a whole epoch as before.
    assert len(indices(loader)) == 20


def test_shards_divide_the_samples(folder):
    parts = [fw.Loader(folder, batch_size=2, rank=rank, world_size=2, **AS_THEY_ARE) for rank in range(2)]
    assert [len(part) for part in parts] == [5, 5]
    both = [indices(part) for part in parts]
    assert sorted(both[0] + both[1]) == list(range(20))


def test_the_launcher_gives_the_shard(folder):
    program = f"""
        import feedwater as fw
        loader = fw.Loader({str(folder)!r}, [fw.ops.Crop(width=12, height=8)], batch_size=2, framework="batch")
        print([index for batch in loader.batches() for index in batch.indices])
    """
    seen = []
    for rank in range(2):
        launcher = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2"}
        out = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program)], env={**os.environ, **launcher}, capture_output=True, check=True
        )
        seen += json.loads(out.stdout)
    assert sorted(seen) == list(range(20))


def test_a_loop_left_early_ends_its_epoch(folder):
    loader = fw.Loader(folder, batch_size=2, framework="batch", dtype="u8", chain=SAME)
    for batch in loader:
        assert batch.epoch == 0
        break
    assert {batch.epoch for batch in loader} == {1}


def test_a_loop_ends_when_another_begins(folder):
    loader = fw.Loader(folder, batch_size=2, framework="batch", dtype="u8", chain=SAME)
    first = iter(loader)
    next(first)
    second = iter(loader)
    assert next(second).epoch == 1
    with pytest.raises(fw.errors.StoppedError, match="ended by the loop that begins at .*test_loader.py:"):
        next(first)
    assert list(first) == []
    assert sum(1 for _ in second) == 9


def test_memory_that_arrays_hold_is_not_written_again(folder):
    loader = fw.Loader(folder, batch_size=2, prefetch=4, **AS_THEY_ARE)
    held = [images for images, _ in zip((images for images, _ in loader), range(4))]
    copies = [images.copy() for images in held]
    gc.collect()
    for images, copy in zip(held, copies):
        numpy.testing.assert_array_equal(images, copy)


def test_slots_come_back_when_arrays_are_gone(folder):
    loader = fw.Loader(folder, batch_size=2, prefetch=2, framework="batch", dtype="u8", chain=SAME)
    addresses = set()
    for _ in range(5):
        for batch in loader:
            addresses.add(batch.data_ptr)
            batch.numpy()
    # All 50 batches used the same few slots, so the ring did not grow.
    assert len(addresses) <= 4


def test_other_threads_run_while_a_batch_is_awaited(folder):
    loaders = [fw.Loader(folder, fw.train_recipe(4), batch_size=2, seed=1, framework="batch") for _ in range(3)]
    orders = [None] * 3

    def work(number):
        orders[number] = indices(loaders[number])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert orders[0] == orders[1] == orders[2] and len(orders[0]) == 20


def test_a_closed_loader_says_so_and_its_arrays_stay(folder):
    with fw.Loader(folder, batch_size=5, **AS_THEY_ARE) as loader:
        images, _ = next(iter(loader))
    with pytest.raises(fw.errors.StoppedError, match="closed"):
        next(iter(loader))
    with pytest.raises(fw.errors.StoppedError):
        len(loader)
    numpy.testing.assert_array_equal(images[0], pixels_of(0))
    assert "closed" in repr(loader)
    loader.close()


def test_a_closed_loader_keeps_its_last_values(folder):
    def values(loader):
        known = [loader.samples, loader.classes, loader.shard, loader.device, loader.batches_per_epoch, loader.plan(), loader.warnings, loader.settings()]
        return [*known, loader.batch_size, loader.sampler is None, loader.state_dict(), loader.stats["images"], loader.stats["outcomes"]]

    with fw.Loader(folder, batch_size=2, prefetch=1, **AS_THEY_ARE) as loader:
        loop = iter(loader)
        for _ in range(3):
            next(loop)
        before = values(loader)
    assert values(loader) == before
    assert loader.state_dict()["state"]["position"] == 6 and loader.stats["images"] == 6 and loader.stats == loader.stats
    assert "feedwater_images_total 6" in loader.metrics
    assert loader.report().data["profile"]["batches"] == 3
    for ended in (lambda: next(loop), lambda: next(iter(loader)), loader.peek, lambda: loader.set_epoch(3), lambda: loader.load_state_dict(loader.state_dict())):
        with pytest.raises(fw.errors.StoppedError):
            ended()
    # Another loader continues at the position at which this one was closed.
    with fw.Loader(folder, batch_size=2, **AS_THEY_ARE) as rest:
        rest.load_state_dict(loader.state_dict())
        assert len(rest) == before[4] - 3
    with fw.Loader(folder, batch_size=2, **AS_THEY_ARE) as loader:
        pass
    assert loader.state_dict()["state"]["position"] == 0
    with pytest.raises(fw.errors.ConfigError, match="0 batches"):
        loader.report()


def test_errors_have_key_file_and_reason(folder, tmp_path):
    with pytest.raises(fw.errors.ConfigError, match="batch") as wrong:
        fw.Loader(folder, batch_size=0)
    assert wrong.value.key == "loader.batch_size" and isinstance(wrong.value, ValueError)
    with pytest.raises(fw.errors.ConfigError, match="max_pixels") as wrong:
        fw.Loader(folder, limits={"max_pixel": 5})
    assert "max_pixel" in str(wrong.value)
    with pytest.raises(fw.errors.FileError, match="missing.*No such file") as wrong:
        fw.Loader(tmp_path / "missing")
    assert isinstance(wrong.value, OSError) and "missing" in wrong.value.filename
    with pytest.raises(TypeError, match="int"):
        fw.Loader(5)
    with pytest.raises(ValueError, match="tensor"):
        fw.Loader(folder, framework="tensor")
    (folder / "cat" / "03.ppm").write_bytes(b"P6 12 8 255\n too short")
    with pytest.raises(fw.errors.SampleError, match="03.ppm") as wrong:
        indices(fw.Loader(folder, batch_size=2, **AS_THEY_ARE))
    assert (wrong.value.index, wrong.value.reason) == (3, "truncated")
    assert wrong.value.location.endswith("03.ppm")


def test_unusable_samples_are_counted(folder):
    (folder / "cat" / "03.ppm").write_bytes(b"P6 12 8 255\n too short")
    loader = fw.Loader(folder, batch_size=5, on_error="skip", last_batch="partial", framework="batch", dtype="u8", chain=SAME)
    seen, failed = [], []
    for batch in loader:
        seen += batch.indices
        failed += batch.errors
    assert 3 not in seen and [index for index, _ in failed] == [3] and "03.ppm" in failed[0][1]
    assert {reason: count for reason, count in loader.stats["errors"].items() if count} == {"truncated": 1}
    loader = fw.Loader(folder, batch_size=5, on_error="substitute", framework="batch", dtype="u8", chain=SAME)
    outcomes = [sample["outcome"] for batch in loader for sample in batch.samples]
    assert outcomes == ["cpu"] * 3 + ["substituted"] + ["cpu"] * 16


def test_stats_plan_report_and_settings(folder, tmp_path):
    loader = fw.Loader(folder, fw.train_recipe(4), batch_size=2, framework="numpy")
    assert sum(1 for _ in loader) == 10
    assert loader.stats["batches"] == 10 and loader.stats["images"] == 20
    assert "\nfeedwater_images_total 20\n" in loader.metrics
    assert "RandomResizedCrop" in loader.plan()
    assert "seed = 0" in loader.settings()
    assert loader.location(0).endswith("cat/00.ppm")
    with pytest.raises(IndexError, match="20"):
        loader.location(20)
    report = loader.report()
    assert report.data and str(report)
    assert "<html" in report.html and "<iframe" in report._repr_html_()
    report.save(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text() == report.html


def test_a_pipeline_file_is_the_same_loader(folder, tmp_path):
    loader = fw.Loader(folder, fw.train_recipe(4), batch_size=5, seed=2, framework="numpy")
    (tmp_path / "pipeline.toml").write_text(loader.settings())
    again = fw.Loader.from_toml(tmp_path / "pipeline.toml", framework="numpy")
    for (images, labels), (others, other_labels) in zip(loader, again, strict=True):
        numpy.testing.assert_array_equal(images, others)
        numpy.testing.assert_array_equal(labels, other_labels)


def test_progress_bars_know_the_end(folder, capsys):
    tqdm = pytest.importorskip("tqdm")
    loader = fw.Loader(folder, batch_size=5, **AS_THEY_ARE)
    bar = tqdm.tqdm(loader, mininterval=0, ascii=True)
    assert bar.total == 4 and sum(1 for _ in bar) == 4
    assert "4/4" in capsys.readouterr().err


def test_a_loop_holds_no_batch_itself(folder):
    """The loader has two slots, and the test holds one batch. The other slot is filled again for each batch."""
    for framework in ("batch", "numpy"):
        loader = fw.Loader(folder, batch_size=2, prefetch=1, **{**AS_THEY_ARE, "framework": framework})
        batches = iter(loader)
        held = next(batches)
        for _ in range(9):
            next(batches)
        assert held is not None


def test_warnings_are_logged_once(folder, caplog):
    mixed = {"batch_operators": [fw.ops.Mixup(alpha=1.0)], "classes": 2, "shuffle": True, "loader": {"repeats": 2}}
    loader = fw.Loader(folder, SAME, batch_size=4, framework="batch", **mixed)
    with caplog.at_level(logging.WARNING, "feedwater"):
        for _ in range(2):
            indices(loader)
    (record,) = caplog.records
    assert record.name == "feedwater" and "loader.repeats is 2" in record.getMessage()
    assert [record.getMessage()] == loader.warnings
