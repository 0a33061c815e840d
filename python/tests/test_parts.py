"""Tests of parts of an epoch: loaders that read a part, and the division of a data set for a cluster. Needs neither Ray
nor a framework."""

import importlib.util
import json
import pathlib
import subprocess
import sys

import feedwater as fw
import numpy
import pytest

# Load the module from its file, because importing the package `feedwater.ray` needs Ray, but this module does not.
_SPEC = importlib.util.spec_from_file_location("_parts", pathlib.Path(fw.__file__).parent / "ray" / "_parts.py")
_parts = importlib.util.module_from_spec(_SPEC)
sys.modules["_parts"] = _parts
_SPEC.loader.exec_module(_parts)

RANDOM = [fw.ops.RandomResizedCrop(width=6, height=4), fw.ops.Flip(horizontal=0.5)]
MIXED = {"batch_operators": [fw.ops.Mixup(alpha=1.0)], "classes": 2}


def batches(folder, **settings):
    """Returns images, targets and indices of each batch of the next epoch."""
    with fw.Loader(folder, RANDOM, shuffle=True, seed=3, framework="batch", **settings) as loader:
        return [(batch.numpy().copy(), batch.targets(), batch.indices) for batch in loader]


def same(parts, whole):
    assert len(parts) == len(whole)
    for part, expected in zip(parts, whole):
        assert part[2] == expected[2]
        numpy.testing.assert_array_equal(part[0], expected[0])
        numpy.testing.assert_array_equal(part[1], expected[1])


@pytest.mark.parametrize("last", ["drop", "pad", "partial"])
@pytest.mark.parametrize("extra", [{}, MIXED], ids=["plain", "mixed"])
def test_loaders_of_parts_give_what_one_loader_gives(folder, last, extra):
    settings = {"batch_size": 6, "last_batch": last, "epoch": 2, **extra}
    whole = batches(folder, **settings)
    end = 18 if last == "drop" else 20
    for cuts in ([0, 6, 12, end], [0, 18, end], [0, 12, 18, end]):
        pairs = [(begin, end) for begin, end in zip(cuts, cuts[1:]) if begin < end]
        parts = [batches(folder, positions=pair, num_workers=1 + pair[0] % 2, **settings) for pair in pairs]
        same([batch for part in parts for batch in part], whole)


def test_a_loader_ends_after_its_epochs(folder):
    with fw.Loader(folder, RANDOM, batch_size=5, epoch=4, epochs=2, positions=(5, 15), framework="batch") as loader:
        assert len(loader) == 2
        assert [[batch.epoch for batch in loader] for _ in range(4)] == [[4, 4], [5, 5], [], []]
        loader.set_epoch(5)
        assert [[batch.epoch for batch in loader] for _ in range(2)] == [[5, 5], []]


def test_positions_are_checked(folder):
    for positions in [(3, 3), (5, 21), (9, 4)]:
        with pytest.raises(fw.errors.ConfigError, match=f"{positions[0]} to {positions[1]}.*0 to 20") as refused:
            fw.Loader(folder, RANDOM, batch_size=2, positions=positions, framework="numpy")
        assert refused.value.key == "positions"


@pytest.mark.parametrize("last", ["drop", "pad", "partial"])
@pytest.mark.parametrize("position", [0, 7, 18, 20])
def test_tasks_have_every_batch_once_and_in_order(last, position):
    for samples, batch, epochs in [(20, 3, 1), (20, 5, 2), (20, 64, 3)]:
        order = _parts.Order(samples, batch, last, 4, position, epochs)
        expected = []
        for epoch in range(epochs):
            begin = position if epoch == 0 else 0
            for first in range(begin, samples, batch):
                end = min(first + batch, samples)
                if last != "drop" or end - first == batch:
                    expected.append((4 + epoch, first, end, end - first if last == "partial" else batch))
        for count in (1, 2, 3, 7, 1000):
            tasks = order.tasks(count)
            assert len(tasks) == max(1, min(count, len(expected)))
            found = []
            for part in (part for task in tasks for part in task):
                rows = part.rows
                for first in range(part.begin, part.end, batch):
                    end = min(first + batch, part.end)
                    own = min(rows, end - first if last == "partial" else batch)
                    found.append((part.epoch, first, end, own))
                    rows -= own
                assert rows == 0
            assert found == expected
            sizes = [sum(part.rows for part in task) for task in tasks]
            assert sum(sizes) == order.rows and max(sizes) - min(sizes) <= 2 * batch


@pytest.mark.parametrize("last", ["drop", "pad", "partial"])
def test_the_position_after_some_rows_is_that_of_a_loader(folder, last):
    with fw.Loader(folder, RANDOM, batch_size=3, last_batch=last, framework="batch") as loader:
        order = _parts.Order(20, 3, last, 0, 0, 2)
        rows = 0
        for _ in range(2):
            for batch in loader.batches():
                rows += len(batch)
                state = loader.state_dict()["state"]
                assert order.after(rows) == (state["epoch"], state["position"])
    assert rows == order.rows
    with pytest.raises(ValueError, match=str(rows + 1 - order.rows)):
        order.after(rows + 1)


def test_the_package_does_not_import_ray():
    code = "import sys, json, feedwater; print(json.dumps([name for name in ('ray', 'pyarrow', 'numpy') if name in sys.modules]))"
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert json.loads(out) == []


def test_without_ray_the_error_says_what_to_install():
    code = "import sys; sys.modules['ray'] = None\nimport feedwater as fw\nfw.ray"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 1 and 'pip install "ray[data]"' in run.stderr
