"""Tests of Python sequences as sources."""

import gc
import itertools
import subprocess
import sys
import textwrap
import threading
import weakref

import feedwater as fw
import numpy
import pytest
from conftest import interrupted, pixels_of

SAME = [fw.ops.Crop(width=12, height=8)]


def encoded(index):
    return b"P6 12 8 255\n" + pixels_of(index).tobytes()


class Set:
    """A sequence that creates images when they are read."""

    def __init__(self, count):
        self.count = count
        self.threads = set()

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        self.threads.add(threading.get_ident())
        if index == 3:
            raise LookupError(f"no image {index}")
        return encoded(index), index % 5


def test_bytes_with_labels(folder):
    source = fw.samples([encoded(index) for index in range(10)], range(10), classes=[str(it) for it in range(10)])
    loader = fw.Loader(source, SAME, batch_size=5, dtype="u8", layout="nhwc", framework="numpy")
    assert loader.samples == 10 and loader.classes[3] == "3" and len(loader) == 2
    for number, (images, labels) in enumerate(loader):
        for place, image in enumerate(images):
            numpy.testing.assert_array_equal(image, pixels_of(5 * number + place))
            assert labels[place] == 5 * number + place


def test_paths_of_files(folder):
    paths = sorted(folder.glob("*/*.ppm"))
    loader = fw.Loader(fw.samples([(str(path), None) for path in paths]), SAME, batch_size=20, dtype="u8", layout="nhwc", framework="numpy")
    images, labels = next(iter(loader))
    assert (labels == -1).all()
    numpy.testing.assert_array_equal(images[17], pixels_of(17))
    missing = fw.Loader(fw.samples([paths[0], folder / "none.ppm"]), SAME, batch_size=2, framework="numpy")
    with pytest.raises(fw.errors.SampleError, match="none.ppm"):
        next(iter(missing))


def test_items_are_asked_for_by_worker_threads():
    items = Set(40)
    loader = fw.Loader(fw.samples(items), SAME, batch_size=4, on_error="skip", num_workers=3, framework="batch", seed=1, shuffle=True)
    seen, failed = {}, []
    for batch in loader:
        seen.update(zip(batch.indices, batch.labels))
        failed += batch.errors
    assert items.threads - {threading.get_ident()}
    assert all(label == index % 5 for index, label in seen.items())
    assert [index for index, _ in failed] == [3] and "LookupError: no image 3" in failed[0][1]
    with pytest.raises(fw.errors.SampleError, match=r"samples\[3\].*no image 3"):
        for _ in fw.Loader(fw.samples(items), SAME, batch_size=1, framework="batch"):
            pass


class Captioned(Set):
    """A sequence of images with fields, of which some items are read more than once."""

    def __getitem__(self, index):
        return encoded(index), index, {"caption": f"image {index}", "boxes": [(index, 0, 4, 4)]}


@pytest.mark.parametrize("cache", [None, {"decoded": "1 MiB"}])
def test_fields_come_with_the_batch(cache):
    source = fw.samples(Captioned(11))
    loader = fw.Loader(source, SAME, batch_size=4, last_batch="pad", framework="batch", seed=1, shuffle=True, cache=cache)
    for _ in range(2):
        for batch in loader:
            assert [it["caption"] for it in batch.fields] == [f"image {index}" for index in batch.indices]
            assert batch.fields[0]["boxes"] == [(batch.indices[0], 0, 4, 4)] and batch.labels == batch.indices


@pytest.mark.parametrize("cache", ["encoded", "decoded"])
@pytest.mark.parametrize("columns", [None, {"caption": fw.text()}])
def test_items_of_cached_samples_are_only_read_for_fields_that_are_used(cache, columns):
    class Counted(Captioned):
        calls = 0

        def __getitem__(self, index):
            self.calls += 1
            return super().__getitem__(index)

    items = Counted(8)
    loader = fw.Loader(fw.samples(items), SAME, batch_size=4, framework="numpy", num_workers=1, epochs=3, cache={cache: "1 MiB"}, columns=columns)
    assert len(list(loader)) == 2
    read = items.calls
    assert len(list(loader)) == 2 and items.calls == read
    last = list(loader.batches())
    assert items.calls == read
    for number, batch in enumerate(last, start=1):
        # The second time, the same list is returned.
        assert [it["caption"] for it in batch.fields] == [f"image {index}" for index in batch.indices] and batch.fields is batch.fields
        assert items.calls == read + 4 * number


def test_a_loop_of_tensors_keeps_no_fields():
    class Field(dict):
        alive = weakref.WeakSet()
        __hash__ = object.__hash__

        def __init__(self):
            self.alive.add(self)

    class Fields(Set):
        all_read = threading.Event()

        def __getitem__(self, index):
            if index + 1 == len(self):
                self.all_read.set()
            return encoded(index), index, Field()

    items = Fields(12)
    loader = fw.Loader(fw.samples(items), SAME, batch_size=4, num_workers=1, framework="numpy", prefetch=2, epochs=1)
    loop = iter(loader)
    next(loop)
    # The worker has read the items of all three batches.
    assert items.all_read.wait(60)
    gc.collect()
    # The worker may hold the item that it read last, and the one before.
    assert len(Field.alive) <= 2


def test_an_item_that_is_gone_raises_when_its_fields_are_read():
    class Gone(Captioned):
        is_gone = False

        def __getitem__(self, index):
            if self.is_gone:
                raise LookupError(f"item {index} is gone")
            return super().__getitem__(index)

    items = Gone(4)
    loader = fw.Loader(fw.samples(items), SAME, batch_size=4, framework="batch", num_workers=1, epochs=2, cache={"encoded": "1 MiB"})
    assert len(list(loader)) == 1
    items.is_gone = True
    batch = next(iter(loader))
    assert batch.labels == [0, 1, 2, 3]
    with pytest.raises(LookupError, match="item 0 is gone"):
        _ = batch.fields
    items.is_gone = False
    assert batch.fields[3]["caption"] == "image 3"


def test_a_failed_item_has_no_fields():
    class Broken(Captioned):
        def __getitem__(self, index):
            if index == 3:
                raise LookupError("gone")
            return super().__getitem__(index)

    loader = fw.Loader(fw.samples(Broken(6)), SAME, batch_size=6, framework="batch", on_error="substitute")
    batch = next(loader.batches())
    assert [it and it["caption"] for it in batch.fields] == [None if index == 3 else f"image {index}" for index in range(6)]


def test_items_without_fields_have_none():
    items = [encoded(0), (encoded(1), 1), (encoded(2), 2, "two"), (encoded(3), 3, None)]
    batch = next(fw.Loader(fw.samples(items), SAME, batch_size=4, framework="batch").batches())
    assert batch.fields == [None, None, "two", None]
    batch = next(fw.Loader(fw.samples(items[:2]), SAME, batch_size=2, framework="batch").batches())
    assert batch.fields == [None, None]


def test_wrong_items_are_named():
    with pytest.raises(fw.errors.ConfigError, match="empty"):
        fw.Loader(fw.samples([]), SAME, framework="numpy")
    with pytest.raises(fw.errors.ConfigError, match="2 labels for 1 items"):
        fw.Loader(fw.samples([b""], [1, 2]), SAME, framework="numpy")
    loader = fw.Loader(fw.samples([5.0, encoded(1)]), SAME, batch_size=2, framework="numpy")
    with pytest.raises(fw.errors.SampleError, match="float"):
        next(iter(loader))


class Relabelled(Set):
    """Images whose label changes with each read. The first pixel value is the number of the read."""

    def __init__(self, count):
        super().__init__(count)
        self.reads = [itertools.count(1) for _ in range(count)]

    def __getitem__(self, index):
        # Threads may read an item for several epochs at once, in any order.
        read = next(self.reads[index])
        pixels = pixels_of(index)
        pixels[0, 0, 0] = read
        return b"P6 12 8 255\n" + pixels.tobytes(), read


@pytest.mark.parametrize("classes", [None, 100])
def test_the_label_is_that_of_the_item_that_was_read(classes):
    loader = fw.Loader(fw.samples(Relabelled(8)), SAME, batch_size=4, num_workers=3, dtype="u8", layout="nhwc", framework="batch", classes=classes)
    seen = set()
    for _ in range(4):
        for batch in loader:
            assert batch.labels == batch.numpy()[:, 0, 0, 0].tolist() == [sample["label"] for sample in batch.samples]
            if classes:
                assert batch.targets().argmax(1).tolist() == batch.labels
            seen |= {(sample["index"], sample["label"]) for sample in batch.samples}
    # Each read is in only one batch.
    assert len(seen) == 4 * 8


def test_labels_of_their_own_stay():
    loader = fw.Loader(fw.samples(Relabelled(4), [5, None, 6.0, numpy.int64(7)]), SAME, batch_size=4, framework="batch")
    for _ in range(3):
        assert next(iter(loader)).labels == [5, -1, 6, 7]


def test_a_filter_by_label_needs_labels_that_stay():
    source = fw.samples(Relabelled(4)).select(labels=[1])
    loader = fw.Loader(source, SAME, batch_size=4, framework="batch")
    with pytest.raises(fw.errors.SampleError, match=r"label is \d+ now.*source.filter") as error:
        next(iter(loader))
    assert error.value.reason == "label"
    # A changed label is accepted if the new label is selected too.
    loader = fw.Loader(fw.samples(Relabelled(4)).select(labels=range(1, 90)), SAME, batch_size=4, framework="batch")
    first, second = next(iter(loader)).labels, next(iter(loader)).labels
    assert all(one != other for one, other in zip(first, second))


def test_whole_numbers_of_any_type_are_labels():
    given = [3.0, numpy.float32(4), numpy.int16(5), True, None, numpy.array(6)]
    loader = fw.Loader(fw.samples([(encoded(0), label) for label in given]), SAME, batch_size=6, framework="batch")
    assert next(iter(loader)).labels == [3, 4, 5, 1, -1, 6]
    for label in (1.5, "cat", float("nan"), 2.0**53, 1 << 70):
        with pytest.raises(fw.errors.SampleError, match="labels are whole numbers") as error:
            next(iter(fw.Loader(fw.samples([(encoded(0), label)]), SAME, batch_size=1, framework="batch")))
        assert repr(label) in str(error.value)
        with pytest.raises(ValueError, match=r"labels\[0\]"):
            fw.samples([encoded(0)], [label if label != 2.0**53 else 2.0**70])


def test_an_exception_of_an_item_is_the_cause_of_the_error():
    loader = fw.Loader(fw.samples(Set(8)), SAME, batch_size=4, framework="numpy")
    with pytest.raises(fw.errors.SampleError) as error:
        next(iter(loader))
    message, cause = str(error.value), error.value.__cause__
    assert "samples[3]: unreadable" in message and "LookupError: no image 3" in message
    assert "probe" not in message and "on_error" in message
    assert isinstance(cause, LookupError) and cause.__traceback__.tb_frame.f_code.co_name == "__getitem__"
    # In a combined source, the sample has another index.
    source = fw.concat(fw.samples([encoded(0)]), fw.samples(Set(8)))
    with pytest.raises(fw.errors.SampleError, match="sample 4") as error:
        next(iter(fw.Loader(source, SAME, batch_size=8, framework="numpy")))
    assert isinstance(error.value.__cause__, LookupError)


def test_fields_of_loops_left_early_go():
    class Field:
        alive = weakref.WeakSet()

        def __init__(self):
            self.alive.add(self)

    class Fields(Set):
        def __getitem__(self, index):
            return encoded(index), index, Field()

    loader = fw.Loader(fw.samples(Fields(2000)), SAME, batch_size=4, shuffle=True, num_workers=1, framework="batch")
    counts = []
    for _ in range(32):
        for batch in loader:
            assert None not in batch.fields
            break
        del batch
        gc.collect()
        counts.append(len(Field.alive))
    # Memory has at most the items of all slots of the ring, and one item per worker.
    assert max(counts) <= 5 * 4, counts
    loader.close()
    gc.collect()
    assert len(Field.alive) == 0


def test_a_length_beyond_the_memory_is_an_error():
    class Endless(Set):
        def __len__(self):
            return 1 << 62

    with pytest.raises(fw.errors.HostMemoryError, match=str(1 << 62)):
        fw.Loader(fw.samples(Endless(1)), SAME, framework="batch")


@pytest.mark.parametrize("use", ["next(iter(loader))", "loader.peek()", "loader.close()", "len(loader)", "loader.set_epoch(5)", "holder.clear()"])
def test_an_item_that_uses_its_loader_ends_in_time(use):
    program = f"""
        import feedwater as fw

        class Recursive:
            def __len__(self):
                return 8

            def __getitem__(self, index):
                if holder and index == 2:
                    loader = holder[0]
                    try:
                        {use}
                    finally:
                        del loader
                return b"P6 1 1 255\\n..."

        holder = []
        made = fw.Loader(fw.samples(Recursive()), [fw.ops.Crop(width=1, height=1)], batch_size=1, num_workers=1, framework="batch", prefetch=1)
        holder.append(made)
        batches = iter(made)
        del made
        try:
            for batch in batches:
                pass
            print("ended")
        except fw.Error as error:
            print(type(error).__name__, error)
    """
    out = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60)
    assert out.returncode == 0 and "panic" not in out.stderr and len(out.stdout.splitlines()) == 1, (out.stdout, out.stderr)
    if use in ("next(iter(loader))", "loader.peek()", "loader.set_epoch(5)"):
        assert "__getitem__ of fw.samples uses the loader" in out.stdout


def test_a_program_ends_while_items_are_asked_for():
    program = """
        import time
        import feedwater as fw

        class Slow:
            def __len__(self):
                return 1000

            def __getitem__(self, index):
                time.sleep(0.01)
                return b"P6 1 1 255\\n" + bytes(3)

        loader = fw.Loader(fw.samples(Slow()), [fw.ops.Crop(width=1, height=1)], batch_size=2, framework="numpy")
        batches = iter(loader)
        next(batches)
        held = loader.batches()
        del loader
        print("ended")
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "ended\n"), done.stderr


@pytest.mark.parametrize("moment", ["build", "wait", "with"])
def test_an_interrupt_ends_a_wait_for_slow_items_at_once(moment):
    """An item can be read only after the main thread has left its wait for the batch. So only the interrupt can end that wait."""
    program = f"""
        import os, threading
        # Before the signal, which NumPy turns into an ImportError during its import.
        import numpy
        import feedwater as fw

        ready, go = threading.Event(), threading.Event()

        class Slow:
            def __len__(self):
                return 100

            def __getitem__(self, index):
                if {moment == "build"} or ready.is_set():
                    # In one piece, because several threads write.
                    os.write(1, b"waits\\n")
                    go.wait()
                return b"P6 1 1 255\\n" + bytes(3)

        def build():
            return fw.Loader(fw.samples(Slow()), [fw.ops.Crop(width=1, height=1)], batch_size=2, framework="numpy", num_workers=2, shuffle=True)

        try:
            if {moment == "with"}:
                with build() as loader:
                    ready.set()
                    for _ in loader:
                        pass
            else:
                loader = build()
                ready.set()
                for _ in loader:
                    pass
        except KeyboardInterrupt:
            os.write(1, f"interrupted {{go.is_set()}}\\n".encode())
            go.set()
    """
    out, errors, code = interrupted(program)
    assert "interrupted False\n" in out and code == 0, out + errors
