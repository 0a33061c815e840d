"""Tests of loops that another loop ends, that are inspected, or that hold many batches."""

import gc
import itertools
import logging
import os
import re
import subprocess
import sys
import textwrap
import time

import feedwater as fw
import numpy
import pytest
from conftest import pixels_of

SAME = [fw.ops.Crop(width=12, height=8)]
AS_THEY_ARE = {"transform": SAME, "dtype": "u8", "layout": "nhwc", "framework": "numpy"}


def line():
    """Returns this file and the line of the caller."""
    return f"{__file__}:{sys._getframe(1).f_lineno}"


def test_a_loop_that_another_one_ended_says_where(folder):
    loader = fw.Loader(folder, batch_size=2, **AS_THEY_ARE)
    steps = 0
    with pytest.raises(fw.errors.StoppedError) as error:
        begun = None
        for _ in loader:
            steps += 1
            if steps == 2:
                next(iter(loader))
                begun = line()
    second = f"{__file__}:{int(begun.rpartition(':')[2]) - 1}"
    assert steps == 2 and second in str(error.value) and "8 batches before the end of epoch 0" in str(error.value)
    assert "peek()" in str(error.value)


def test_pairs_of_one_loader_with_itself_are_an_error(folder):
    loader = fw.Loader(folder, batch_size=2, **AS_THEY_ARE)
    with pytest.raises(fw.errors.StoppedError, match=re.escape(__file__)):
        list(zip(loader, loader))
    # A loop that reaches its end, and a second loop after it, raise no error.
    assert sum(1 for _ in loader) == 10
    batches = iter(loader)
    assert sum(1 for _ in batches) == 10 and next(batches, None) is None
    assert sum(1 for _ in loader) == 10


def test_a_look_leaves_the_position(folder):
    plain = [images.copy() for images, _ in fw.Loader(folder, batch_size=2, prefetch=1, epochs=2, seed=3, shuffle=True, **AS_THEY_ARE)]
    loader = fw.Loader(folder, batch_size=2, prefetch=1, epochs=2, seed=3, shuffle=True, **AS_THEY_ARE)
    seen, looks, states = [], [], []
    for _ in range(2):
        images, labels = loader.peek()
        looks.append(images)
        assert labels.dtype == numpy.int64
        for images, _ in loader:
            seen.append(images.copy())
            states.append(loader.state_dict()["state"]["position"])
            if len(seen) == 5:
                looks += [loader.peek()[0], loader.peek()[0]]
                assert loader.state_dict()["state"]["position"] == 10
    numpy.testing.assert_array_equal(seen[:10], plain)
    numpy.testing.assert_array_equal(looks[1], looks[2])
    for look, step in zip(looks, (0, 5, 5)):
        numpy.testing.assert_array_equal(look, seen[step])
    assert states[:10] == [2, 4, 6, 8, 10, 12, 14, 16, 18, 0]
    assert loader.stats["batches"] == len(seen)


def test_looks_in_every_form(folder):
    items = [(b"P6 12 8 255\n" + pixels_of(index).tobytes(), index, f"field {index}") for index in range(6)]
    loader = fw.Loader(fw.samples(items), SAME, batch_size=2, framework="batch", epochs=1, classes=6)
    batches = iter(loader)
    for number in range(3):
        look = loader.peek()
        assert look.fields == [f"field {index}" for index in look.indices] and look.labels == [2 * number, 2 * number + 1]
        assert look.targets().argmax(1).tolist() == look.labels
        batch = next(batches)
        assert batch.fields == look.fields
        numpy.testing.assert_array_equal(batch.numpy(), look.numpy())
    assert next(batches, None) is None
    with pytest.raises(fw.errors.StoppedError, match="last epoch"):
        loader.peek()
    loader.close()
    with pytest.raises(fw.errors.StoppedError, match="closed"):
        loader.peek()


def test_a_look_after_a_loop_that_was_left_is_no_part_of_the_next_one(folder):
    loader = fw.Loader(folder, batch_size=2, **AS_THEY_ARE)
    next(iter(loader))
    loader.peek()
    images = [image for batch, _ in loader for image in batch.copy()]
    numpy.testing.assert_array_equal(images, [pixels_of(index) for index in range(20)])


@pytest.mark.parametrize("keep", ["list", "cycle", "sum"])
def test_a_program_that_holds_every_batch_gets_more_memory(folder, caplog, keep):
    loader = fw.Loader(folder, batch_size=2, prefetch=2, epochs=1, **AS_THEY_ARE)
    expected = [pixels_of(index) for index in range(20)]
    begin = time.monotonic()
    with caplog.at_level(logging.WARNING, "feedwater"):
        if keep == "list":
            held = list(loader)
        elif keep == "cycle":
            held = list(itertools.islice(itertools.cycle(loader), 25))[:10]
        else:
            held, kept = [], []
            for images, labels in loader:
                held.append((images, labels))
                if len(held) == 5:
                    kept += [(images.copy(), labels) for images, labels in held]
                    held = []
                    del images
                    gc.collect()
            held = kept + held
        loader._warn(loader._inner)
    assert time.monotonic() - begin < 30
    numpy.testing.assert_array_equal([image for images, _ in held for image in images], expected)
    (record,) = [record for record in caplog.records if "prefetch" in record.getMessage()]
    assert "clone" in record.getMessage()
    assert loader.stats["batches_added"] >= (7 if keep != "sum" else 2)


def test_memory_that_was_added_is_given_back(folder):
    loader = fw.Loader(folder, batch_size=2, prefetch=1, **AS_THEY_ARE)
    for _ in range(3):
        addresses = {images.__array_interface__["data"][0] for images, _ in list(loader)}
        assert len(addresses) == 10
        gc.collect()
    added = loader.stats["batches_added"]
    assert 8 <= added <= 24
    # The ring keeps at most twice its initial number of slots.
    assert len({images.__array_interface__["data"][0] for images, _ in loader}) <= 4
    assert loader.stats["batches_added"] == added


def test_held_batches_stay_within_the_limit(folder):
    bare = fw.Loader(folder, batch_size=2, prefetch=2, **AS_THEY_ARE)
    predicted, each = bare._inner.memory, 2 * (12 * 8 * 3 + 8 + 688 + 2 * 32)
    bare.close()
    loader = fw.Loader(folder, batch_size=2, prefetch=2, limits={"host_memory": predicted + 3 * each + each // 2}, **AS_THEY_ARE)
    held = []
    with pytest.raises(fw.errors.HostMemoryError, match=r"limits.host_memory.*clone|clone.*") as error:
        held.extend(iter(loader))
    assert "all 6 batches are held" in str(error.value) and "limits.host_memory" in str(error.value)
    assert error.value.needed == each
    assert len(held) == 6 and loader.stats["batches_added"] == 3


def test_an_error_of_a_signal_handler_ends_a_wait(folder):
    """The signal handler raises an error of a class that waiting for a batch could raise too. The loader reads each item
    once while it is built. The second read blocks until the program continues, so only the signal can end a wait."""
    program = """
        import signal, threading
        import feedwater as fw

        known, go = set(), threading.Event()

        class Slow:
            def __len__(self):
                return 100

            def __getitem__(self, index):
                if index in known:
                    go.wait()
                known.add(index)
                return b"P6 1 1 255\\n..."

        def expired(*_):
            raise TimeoutError("the user's")

        signal.signal(signal.SIGALRM, expired)
        loader = fw.Loader(fw.samples(Slow()), [fw.ops.Crop(width=1, height=1)], batch_size=8, num_workers=1, framework="batch")
        assert len(known) == 100, known
        for wait in (lambda: next(iter(loader)), loader.peek):
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            try:
                wait()
            except TimeoutError as error:
                print(error)
        go.set()
    """
    out = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120)
    assert out.stdout.splitlines() == ["the user's"] * 2, out.stderr


@pytest.mark.parametrize("launcher", ["torchrun", "slurm"])
def test_a_shard_of_the_environment_is_told_once(folder, launcher):
    variables = {
        "torchrun": {"RANK": "0", "WORLD_SIZE": "2"},
        "slurm": {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_ID": "0"},
    }[launcher]

    def logged(arguments):
        program = f"""
            import logging
            import feedwater as fw
            logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
            loader = fw.Loader({str(folder)!r}, [fw.ops.Crop(width=12, height=8)], batch_size=2, framework="batch", {arguments})
            for _ in range(2):
                print(sum(1 for _ in loader))
        """
        out = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program)], env={**os.environ, **variables}, capture_output=True, text=True, check=True
        )
        return out.stdout.split(), [line for line in out.stderr.splitlines() if line.startswith("WARNING")]

    batches, (warning,) = logged("")
    assert batches == ["5", "5"] and 'shard = "none"' in warning and f'shard = "{launcher}"' in warning and "rank 0 of 2" in warning
    assert logged('loader={"shard": "none"}') == (["10", "10"], [])
    assert logged(f'loader={{"shard": "{launcher}"}}') == logged("rank=0, world_size=2") == (["5", "5"], [])


def test_the_length_is_that_of_the_next_loop(folder):
    loader = fw.Loader(folder, batch_size=2, epochs=3, **AS_THEY_ARE)
    assert len(loader) == loader.batches_per_epoch == 10
    batches = iter(loader)
    for _ in range(3):
        next(batches)
    state = loader.state_dict()
    assert len(loader) == 10
    loader.load_state_dict(state)
    assert len(loader) == 7 and loader.batches_per_epoch == 10
    for number, _ in enumerate(loader, 1):
        assert len(loader) == (7 if number < 7 else 10)
    assert number == 7 and len(loader) == sum(1 for _ in loader) == 10
    assert sum(1 for _ in loader) == 10 and len(loader) == 0


def test_what_frameworks_ask_a_loader_for(folder):
    loader = fw.Loader(folder, batch_size=3, **AS_THEY_ARE)
    assert loader.batch_size == 3 and len(loader.dataset) == 20
    with pytest.raises(TypeError, match="torch_dataset"):
        loader[0]


@pytest.mark.parametrize("state", [5, None, {"version": 1}, {"version": 1, "state": 5}, {"version": 1, "state": {}, "failed": 3}, {"state": 5}])
def test_what_is_no_state_is_named(folder, state):
    loader = fw.Loader(folder, batch_size=3, **AS_THEY_ARE)
    with pytest.raises(fw.errors.ConfigError) as error:
        loader.load_state_dict(state)
    assert error.value.key in ("state", "version", "failed")
    assert len(loader) == 6


def test_a_type_of_a_framework_is_taken(folder):
    for dtype, name in ((numpy.float32, "f32"), (numpy.dtype("float16"), "f16"), ("uint8", "u8"), (numpy.uint8, "u8"), ("bf16", "bf16")):
        with fw.Loader(folder, SAME, batch_size=2, dtype=dtype, framework="batch") as loader:
            assert next(iter(loader)).dtype == name
    for dtype in (numpy.int64, "float64", 3):
        with pytest.raises(ValueError, match="dtype"):
            fw.Loader(folder, SAME, batch_size=2, dtype=dtype, framework="batch")


def test_a_missing_package_is_told_when_the_loader_is_built(folder):
    program = f"""
        import importlib.util, sys
        find = importlib.util.find_spec
        importlib.util.find_spec = lambda name, *rest: None if name in ("torch", "jax", "ml_dtypes") else find(name, *rest)
        import feedwater as fw
        chain = [fw.ops.Crop(width=12, height=8)]
        for arguments in ({{}}, {{"framework": "jax"}}, {{"framework": "numpy", "dtype": "bf16"}}):
            try:
                fw.Loader({str(folder)!r}, chain, batch_size=2, **arguments)
            except ImportError as error:
                print(type(error).__name__, isinstance(error, fw.errors.UnavailableError), error.what, error)
    """
    out = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True)
    torch, jax, bf16 = out.stdout.splitlines()
    assert torch.startswith("MissingPackageError True torch") and 'framework="numpy"' in torch and "pip install torch" in torch
    assert "jax" in jax and "ml_dtypes" in bf16 and 'dtype="f32"' in bf16


def test_damaged_samples_are_dropped_for_exact_evaluation(folder, caplog):
    damaged = [3, 4, 5, 6, 7, 17]
    for index in damaged:
        (folder / ("cat" if index < 10 else "dog") / f"{index:02}.ppm").write_bytes(b"P6 12 8 255\n too short")
    loader = fw.Loader(folder, batch_size=4, on_error="drop", last_batch="partial", classes=2, epochs=2, **AS_THEY_ARE)
    with caplog.at_level(logging.WARNING, "feedwater"):
        for _ in range(2):
            seen, sizes, targets = [], [], []
            for images, soft in loader:
                seen += list(images.copy())
                sizes.append(len(images))
                targets += soft.argmax(1).tolist()
            # Samples 4 to 7, a whole batch, are damaged, so this batch is left out.
            assert sizes == [3, 4, 4, 3]
            good = [index for index in range(20) if index not in damaged]
            numpy.testing.assert_array_equal(seen, [pixels_of(index) for index in good])
            assert targets == [int(index >= 10) for index in good]
            state = loader.state_dict()
    (record,) = caplog.records
    assert record.getMessage().startswith("6 samples could not be used") and "left out" in record.getMessage() and "03.ppm" in record.getMessage()
    assert loader.stats["outcomes"]["dropped"] == 12 and loader.stats["errors"]["truncated"] == 12 and loader.stats["images"] == 28
    assert state["failed"] == {"dropped": 12}
    assert loader.warnings[-1].startswith("12 samples")
    with fw.Loader(folder, batch_size=4, on_error="drop", **AS_THEY_ARE) as resumed:
        resumed.load_state_dict({**state, "state": {**state["state"], "epoch": 0, "position": 12}})
        assert [len(labels) for _, labels in resumed] == [4, 3] and resumed.state_dict()["failed"] == {"dropped": 13}


def test_samples_that_zeros_replace_have_a_label_that_losses_ignore(folder, caplog):
    (folder / "cat" / "03.ppm").write_bytes(b"P6 12 8 255\n too short")
    for settings, label in (({}, -100), ({"loader": {"ignore_label": 7}}, 7)):
        caplog.clear()
        with fw.Loader(folder, batch_size=5, on_error="substitute", **settings, **AS_THEY_ARE) as loader:
            labels = [label for _, labels in loader for label in labels.tolist()]
            assert labels == [0] * 3 + [label] + [0] * 6 + [1] * 10
            assert loader.state_dict()["failed"] == {"substituted": 1}
        (record,) = caplog.records
        assert "1 sample could not be used and was replaced by zeros" in record.getMessage()
    with fw.Loader(folder, batch_size=20, on_error="substitute", classes=2, **AS_THEY_ARE) as loader:
        (targets,) = [targets for _, targets in loader]
        assert targets[3].tolist() == [0, 0] and targets[4].tolist() == [1, 0]


def test_samples_that_others_replace_are_told(folder, caplog):
    (folder / "cat" / "03.ppm").write_bytes(b"P6 12 8 255\n too short")
    loader = fw.Loader(folder, batch_size=5, on_error="skip", epochs=2, **AS_THEY_ARE)
    for _ in range(2):
        assert sum(1 for _ in loader) == 4
    loader.close()
    (record,) = caplog.records
    assert "1 sample could not be used and was replaced by other samples" in record.getMessage() and "more than once" in record.getMessage()
    # If a loop is left early, its failed samples are logged when the next loop begins.
    caplog.clear()
    loader = fw.Loader(folder, batch_size=5, on_error="skip", **AS_THEY_ARE)
    next(iter(loader))
    assert not caplog.records
    next(iter(loader))
    assert len(caplog.records) == 1


def test_pairs_are_mixed_only_if_no_sample_is_dropped(folder):
    with pytest.raises(fw.errors.ConfigError, match="drop.*pair") as error:
        fw.Loader(folder, SAME, batch_size=4, on_error="drop", batch_operators=[fw.ops.Mixup(alpha=1.0)], classes=2, framework="numpy")
    assert error.value.key == "loader.on_error"


def test_what_was_drawn_is_known_by_name(folder):
    chain = [fw.ops.RandomCrop(width=6, height=5), fw.ops.Flip(horizontal=0.5), fw.ops.Hue(shift=0.25)]
    source = fw.directory(folder).select(subset=range(19, -1, -1))
    batch = next(iter(fw.Loader(source, chain, batch_size=20, seed=1, framework="batch")))
    assert batch.indices == list(range(20)) and batch.source_indices == list(range(19, -1, -1))
    flips = set()
    for sample, index in zip(batch.samples, batch.source_indices):
        assert sample["source_index"] == index and sample["location"].endswith(f"{index:02}.ppm")
        drawn = {operator["op"]: operator["actions"] for operator in sample["operators"]}
        assert list(drawn) == ["random_crop", "flip", "hue"]
        (crop,), (hue,) = drawn["random_crop"], drawn["hue"]
        assert (crop["params"]["x"], crop["params"]["y"]) == sample["roi"][:2]
        # The shift is in the unit of the setting: a fraction of a full circle.
        assert 63 / 255 <= hue["params"]["shift"] <= 0.25
        flips.add(bool(drawn["flip"]) and drawn["flip"][0]["params"]["horizontal"])
        assert (bool(drawn["flip"]) and drawn["flip"][0]["params"]["horizontal"]) == sample["flipped_horizontally"]
    assert flips == {False, True}
    # The operators are known even after NumPy has received the tensor.
    batch.numpy()
    assert len(batch.samples[0]["operators"]) == 3


@pytest.mark.parametrize("kind", ["path", "bytes", "directory", "list", "samples"])
def test_paths_that_are_not_unicode(tmp_path, kind):
    root = os.path.join(os.fsencode(tmp_path), b"caf\xe9 %41")
    paths = [os.path.join(root, name, b"\xff%d.ppm" % index) for index, name in enumerate((b"cat", b"dog"))]
    for index, path in enumerate(paths):
        os.makedirs(os.path.dirname(path))
        with open(path, "wb") as file:
            file.write(b"P6 12 8 255\n" + pixels_of(index).tobytes())
    table = os.path.join(root, b"list.csv")
    with open(table, "wb") as file:
        file.write(b"path,label\ncat/plain.ppm,3\n")
    os.link(paths[0], os.path.join(root, b"cat", b"plain.ppm"))
    source = {
        "path": os.fsdecode(root),
        "bytes": fw.directory(root),
        "directory": fw.concat(fw.directory(os.fsdecode(root))),
        "list": fw.file_list(os.fsdecode(table)),
        "samples": fw.samples([os.fsdecode(path) for path in paths], [0, 1]),
    }[kind]
    with fw.Loader(source, batch_size=1, **AS_THEY_ARE) as loader:
        images, labels = next(iter(loader))
        numpy.testing.assert_array_equal(images[0], pixels_of(0))
        if kind in ("path", "bytes", "directory"):
            found = [os.fsencode(loader.location(index)) for index in range(loader.samples)]
            assert paths[0] in found and paths[1] in found
        text = loader.settings()
    if kind in ("path", "directory"):
        (tmp_path / "pipeline.toml").write_text(text)
        with fw.Loader.from_toml(tmp_path / "pipeline.toml", framework="numpy") as loader:
            numpy.testing.assert_array_equal(next(iter(loader))[0][0], pixels_of(0))
    with pytest.raises(fw.errors.FileError) as error:
        fw.Loader(os.fsdecode(root + b"/none"), SAME, framework="numpy")
    assert os.fsencode(error.value.filename) == root + b"/none"
