"""Tests of unusual calls: if feedwater cannot do what the code asks for, it must raise an error that explains why."""

import os
import subprocess
import sys
import threading
import types

import pytest
from conftest import pixels_of, write_image

import feedwater as fw

CHAIN = [fw.ops.Resize(width=8, height=12)]


def loader(source, chain=CHAIN, **settings):
    settings = {"framework": "batch", "batch_size": 4, "num_workers": 1, "last_batch": "partial", **settings}
    return fw.Loader(source, chain, device="cpu", **settings)


def labels_of(loader):
    return [int(label) for batch in loader for label in batch.labels]


@pytest.fixture
def paths(tmp_path):
    """Paths of four images."""
    for index in range(4):
        write_image(tmp_path / f"{index}.ppm", pixels_of(index))
    return [str(tmp_path / f"{index}.ppm") for index in range(4)]


class Changing:
    """Items whose label is the number of the epoch. The test sets this number."""

    def __init__(self, paths):
        self.paths = paths
        self.label = 0

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return self.paths[index], self.label


@pytest.mark.parametrize("cache", [{}, {"encoded": "1 MiB"}])
def test_a_fresh_epoch_has_the_labels_of_now(paths, cache):
    items = Changing(paths)
    with loader(fw.samples(items), cache=cache, batch_size=1, prefetch=3) as it:
        for epoch in range(3):
            items.label = epoch
            it.set_epoch(epoch, fresh=True)
            assert labels_of(it) == [epoch] * 4


@pytest.mark.parametrize("settings", [{"epochs": 0}, {"epochs": -1}, {"epochs": "1"}, {"epoch": -1}, {"epoch": 2**32}, {"epoch": True}])
def test_numbers_of_epochs_are_checked(paths, settings):
    (key,) = settings
    with pytest.raises(fw.errors.ConfigError, match=key) as problem:
        loader(paths and fw.samples(paths), **settings)
    assert problem.value.key == key


def test_a_pipe_among_paths_is_named_and_not_waited_for(paths, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with loader(fw.samples([*paths, str(tmp_path / "pipe")])) as it, pytest.raises(fw.errors.SampleError, match="pipe: not a regular file but a pipe"):
        list(it)


def test_an_error_names_the_path_of_an_item(paths, tmp_path):
    cut = tmp_path / "cut.ppm"
    cut.write_bytes(b"P6 4 4 255\n1")
    for items in ([*paths, str(cut)], tuple((path, 1) for path in [*paths, str(cut)])):
        with loader(fw.samples(items)) as it:
            with pytest.raises(fw.errors.SampleError, match=r"samples\[4\] \(.*cut\.ppm\)"):
                list(it)
            assert it.location(0) == f"samples[0] ({paths[0]})"


def test_a_loader_that_an_error_has_ended_keeps_its_position(paths, tmp_path):
    cut = tmp_path / "cut.ppm"
    cut.write_bytes(b"P6 4 4 255\n1")
    with loader(fw.samples([*paths, str(cut), *paths])) as it:
        for _ in range(3):
            with pytest.raises(fw.errors.SampleError, match="cut"):
                list(it)
            state = it.state_dict()["state"]
            assert (state["epoch"], state["position"]) == (0, 4)


def test_a_label_without_a_class_name_has_no_number_in_a_combination(paths):
    three = fw.samples(paths, [0, 1, 2, 0], classes=["a", "b"])
    other = fw.samples(paths, [0, 1, 0, 1], classes=["b", "c"])
    for source in (fw.concat(three, other), fw.mixture(three, other), three.with_classes(["b", "a"])):
        with loader(source, epochs=1) as it, pytest.raises(fw.errors.SampleError, match="label 2 has no class name") as problem:
            list(it)
        assert problem.value.reason == "label"


def test_numbers_of_classes_are_checked(paths):
    source = fw.samples(paths, [0, 1, 0, 1], classes=["a", "b"])
    for table, word in [({"a": 0.2, "b": 1}, "0.2"), ({"a": True}, "True"), ({1: 0}, "1"), ([None], "None"), (["a\udce9"], "Unicode")]:
        with pytest.raises(fw.errors.ConfigError, match=word):
            source.with_classes(table)
    with loader(source, epochs=1, classes_of={"b": 0, "a": 1}) as it:
        assert labels_of(it) == [1, 0, 1, 0]


def test_what_is_no_operator_is_named_with_what_to_do(paths):
    for chain in (["x"], [[]], 5, None, "crop"):
        with pytest.raises(TypeError, match="no operator of feedwater"):
            loader(fw.samples(paths), chain)
    with loader(fw.samples(paths), fw.ops.Resize(width=8, height=12), epochs=1) as it:
        assert len(labels_of(it)) == 4


def test_transforms_of_torchvision_are_named_with_what_to_do(paths):
    transforms = pytest.importorskip("torchvision.transforms")
    for chain in (transforms.Compose([transforms.Resize((8, 8))]), [transforms.Resize((8, 8))]):
        with pytest.raises(TypeError, match="from_torchvision"):
            loader(fw.samples(paths), chain)


def test_sequences_that_do_something_else_are_not_taken_apart():
    torch = pytest.importorskip("torch")
    transforms = pytest.importorskip("torchvision.transforms")
    inner = transforms.Resize((8, 8))

    class Compose(transforms.Compose):
        pass

    class Sequential(torch.nn.Sequential):
        pass

    hooked = transforms.Resize((8, 8))
    hooked.register_forward_hook(lambda *_: None)
    replaced = transforms.Resize((8, 8))
    replaced.forward = lambda image: image
    cyclic = transforms.Compose([inner])
    cyclic.transforms.append(cyclic)
    odd = transforms.Pad(2)
    odd.padding = (1, 2, 3)
    for transform in (Compose([inner]), [Sequential(inner)], hooked, replaced, cyclic, odd, transforms.Normalize(0.5, 0.5)):
        with pytest.raises(fw.errors.ConversionError):
            fw.from_torchvision(transform)


def test_data_sets_with_code_of_their_own_are_refused(paths, folder):
    datasets = pytest.importorskip("torchvision.datasets")

    class Indexed(datasets.ImageFolder):
        def __getitem__(self, index):
            return super().__getitem__(index)[0], 1000 + index

    for data, word in [(Indexed(folder), "__getitem__"), (datasets.ImageFolder(folder, loader=lambda path: path), "loader")]:
        with pytest.raises(ValueError, match=word):
            loader(data)
    with loader(datasets.ImageFolder(folder), epochs=1) as it:
        assert len(labels_of(it)) == 20


def test_transforms_that_stay_python_are_not_hidden(folder):
    pytest.importorskip("torch")
    transforms = pytest.importorskip("torchvision.transforms")
    recipe = fw.from_torchvision([transforms.Resize((8, 8)), transforms.ToTensor(), transforms.Lambda(lambda it: it)], keep_rest=True)
    with loader(folder, recipe, framework="torch") as it:
        assert it.settings().startswith("# Not in this file: transforms that stay Python: Lambda\n")
    of_images = fw.from_torchvision([transforms.Resize((8, 8)), transforms.Lambda(lambda it: it), transforms.ToTensor()], keep_rest=True)
    with loader(folder, of_images, framework="torch") as it:
        assert it.settings().startswith("# Not in this file: transforms that stay Python: Lambda, ToTensor\n")
    with pytest.raises(ValueError, match="batch operators"):
        loader(folder, recipe, framework="torch", classes=2, batch_operators=[fw.ops.Mixup()])


def test_a_module_that_is_being_imported_is_no_process_group(paths, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.distributed", types.ModuleType("torch.distributed"))
    with loader(fw.samples(paths)) as it:
        assert len(it) == 1


def test_an_exception_while_a_loader_is_replaced_closes_it(paths, monkeypatch):
    with loader(fw.samples(paths)) as it:

        class Stopped:
            """Wraps the inner loader, and raises `KeyboardInterrupt` in `close`."""

            def __init__(self, inner):
                self._inner = inner

            def __getattr__(self, name):
                return getattr(self._inner, name)

            def close(self, *wait):
                if not wait:
                    raise KeyboardInterrupt
                self._inner.close(*wait)

        it._inner = Stopped(it._inner)
        with pytest.raises(KeyboardInterrupt):
            it.set_epoch(5)
        assert repr(it) == "<feedwater.Loader, closed>"


def test_threads_that_share_a_loader_see_that_it_was_stopped(paths):
    problems = []
    with loader(fw.samples(paths), batch_size=1) as it:
        ends = threading.Event()

        def again(work):
            while not ends.is_set():
                try:
                    work()
                except fw.errors.StoppedError:
                    pass
                except Exception as problem:
                    problems.append(repr(problem))

        works = [lambda: [0 for _ in it], it.peek, lambda: it.set_epoch(5, fresh=True)]
        threads = [threading.Thread(target=again, args=(work,)) for work in works]
        for thread in threads:
            thread.start()
        for _ in range(40):
            it.set_epoch(7, fresh=True)
        ends.set()
        for thread in threads:
            thread.join()
    assert problems == []


@pytest.mark.parametrize("settings", [{"loader": 5}, {"cache": "x"}, {"positions": [0.0, 2]}, {"positions": (-1, 2)}, {"positions": 4}, {"num_workers": object}])
def test_settings_of_the_wrong_kind_are_named(paths, settings):
    (key,) = settings
    with pytest.raises((TypeError, fw.errors.ConfigError), match=key):
        loader(fw.samples(paths), **settings)


def test_the_length_of_a_tuple_that_is_no_item_is_named(paths):
    with loader(fw.samples([(paths[0], 1, {}, 2)])) as it, pytest.raises(fw.errors.SampleError, match="tuple of 4 values"):
        list(it)


def test_a_device_of_pytorch_is_one(paths):
    torch = pytest.importorskip("torch")
    with fw.Loader(fw.samples(paths), CHAIN, batch_size=4, framework="batch", device=torch.device("cpu")) as it:
        assert len(it) == 1


def test_values_of_a_reading_thread_last_from_item_to_item(paths):
    local, made = threading.local(), []

    class Items:
        def __len__(self):
            return 40 * len(paths)

        def __getitem__(self, index):
            if not hasattr(local, "handle"):
                local.handle = object()
                made.append(threading.get_ident())
            return paths[index % len(paths)], 0

    with fw.Loader(fw.samples(Items()), fw.eval_recipe(8), batch_size=4, num_workers=2, epochs=1, device="cpu", framework="numpy") as loader:
        assert sum(len(images) for images, _ in loader) == 40 * len(paths)
    assert made and len(made) == len(set(made))


FORKS = """
import os, sys, threading, time
import feedwater as fw

path, done = sys.argv[1], threading.Event()

class Items:
    def __len__(self):
        return 4000

    def __getitem__(self, index):
        return path, 0

def read():
    while not done.is_set():
        for _ in loader:
            if done.is_set():
                break

with fw.Loader(fw.samples(Items()), fw.eval_recipe(8), batch_size=16, num_workers=3, device="cpu", framework="batch") as loader:
    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(400):
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        time.sleep(0.0005)
    done.set()
    reader.join()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_process_may_fork_while_items_are_read(paths):
    """Many child processes must end. A child can hang if a thread's Python state is created during
    `fork`: 1 of 160 children hung in ``PyOS_AfterFork_Child``."""
    subprocess.run([sys.executable, "-W", "ignore", "-c", FORKS, paths[0]], check=True, timeout=300)


def test_a_loaded_state_keeps_its_order_in_other_epochs(paths, caplog):
    def built(**settings):
        return loader(fw.samples(paths * 10), batch_size=40, **settings)

    with built(seed=1, shuffle=True) as first:
        state = first.state_dict()
        orders = [[sample["index"] for sample in batch.samples] for batch, _ in zip(first, range(3))]
        first.set_epoch(1)
        orders.append([sample["index"] for batch in first.batches() for sample in batch.samples])
    with built(seed=2, shuffle=False) as second:
        second.load_state_dict(state)
        second.set_epoch(1)
        assert [sample["index"] for batch in second.batches() for sample in batch.samples] == orders[-1] != sorted(orders[-1])
    assert "seed is 1 in the state and 2 here" in caplog.text and "shuffle is True in the state and False here" in caplog.text


def test_another_epoch_begins_after_an_error(paths, tmp_path):
    damaged = tmp_path / "damaged.ppm"
    damaged.write_bytes(b"P6 9 9 255\n")
    with loader(fw.samples([*paths, str(damaged)]), batch_size=5) as it:
        for _ in range(2):
            with pytest.raises(fw.errors.SampleError, match="damaged"):
                next(iter(it))
        write_image(damaged, pixels_of(5))
        it.set_epoch(1)
        assert [batch.epoch for batch in it.batches()] == [1]


def test_a_label_beyond_the_class_names_is_an_error_of_its_sample(paths):
    items = [(path, label) for path, label in zip(paths, [0, 1, 7, 1])]
    for source in (fw.samples(items, classes=["a", "b"]), fw.samples(items, classes=["a", "b"]).with_classes(["a", "b"]), fw.samples(items).with_classes(["b", "a"])):
        with loader(source) as it, pytest.raises(fw.errors.SampleError, match="label 7 has no class name"):
            labels_of(it)


def test_classes_may_have_the_names_of_a_states_parts(paths):
    with loader(fw.samples([(path, 1) for path in paths], classes=["version", "state"]), classes_of={"state": 0, "version": 1}) as it:
        assert it.classes == ["state", "version"] and labels_of(it) == [0] * 4


def test_a_number_of_more_than_64_bits_is_named(paths):
    with pytest.raises(OverflowError, match=f"seed: must be an integer from {-(2**63)} to {2**63 - 1}, is {2**63}"):
        loader(fw.samples(paths), seed=2**63)


class Chosen:
    """A subset with a `__getitem__` of its own, as a subclass of ``torch.utils.data.Subset`` may have."""

    def __init__(self, dataset, indices):
        self.dataset = dataset
        self.indices = indices

    def __len__(self):
        return len(self.indices)

    def __getitem__(self, index):
        return self.dataset[self.indices[index]]


class Table:
    """A data set with a transform of its own, as after ``datasets.Dataset.set_transform``."""

    features = {}
    format = {"type": "custom"}

    def cast_column(self, *_):
        raise AssertionError

    def __len__(self):
        return 1

    def __getitem__(self, index):
        raise AssertionError


@pytest.mark.parametrize(("source", "problem"), [(Chosen([1, 2], [0]), "Chosen has a __getitem__ of its own"), (Table(), "set_transform")])
def test_code_of_data_sets_that_would_not_run_is_refused(source, problem):
    with pytest.raises(ValueError, match=problem):
        fw.dataset(source)
