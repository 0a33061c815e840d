"""Tests of loaders, batches and sources that threads share. On a free-threaded build of Python they run without the
interpreter's lock."""

import contextlib
import os
import subprocess
import sys
import sysconfig
import threading
from concurrent.futures import ThreadPoolExecutor

import feedwater as fw
import numpy
import pytest
from conftest import interrupted, pixels_of

SAME = [fw.ops.Crop(width=12, height=8)]
AS_THEY_ARE = {"transform": SAME, "dtype": "u8", "layout": "nhwc"}
#: Timeout of a wait in seconds. A wait reaches it only if a test fails.
LIMIT = 120
#: Number of threads. Each holds a batch while it waits for the next one, so loaders prefetch more batches than there are threads.
THREADS = 8


def at_once(work, count=THREADS):
    """Runs `work` in several threads that begin at the same time. Returns their results, or raises the exception of
    one thread."""
    begin = threading.Barrier(count)

    def run(number):
        begin.wait(LIMIT)
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return [done.result(LIMIT) for done in [pool.submit(run, number) for number in range(count)]]


def encoded(index):
    return b"P6 12 8 255\n" + pixels_of(index).tobytes()


@pytest.mark.skipif(not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this build of Python has a global lock")
def test_the_import_leaves_the_lock_off():
    program = "import sys, feedwater; print(sys._is_gil_enabled())"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHON_GIL"}
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_threads_with_loaders_of_their_own(folder):
    def work(_):
        with fw.Loader(folder, fw.train_recipe(4), batch_size=5, seed=1, framework="numpy") as loader:
            return numpy.concatenate([images.copy() for _ in range(5) for images, _ in loader])

    first, *others = at_once(work)
    for other in others:
        numpy.testing.assert_array_equal(first, other)


def test_threads_that_share_an_iterator_get_each_batch_once(folder):
    loader = fw.Loader(folder, batch_size=2, prefetch=2 * THREADS, framework="batch", **AS_THEY_ARE)
    for epoch in range(10):
        batches = iter(loader)

        def work(_):
            seen = []
            for batch in batches:
                for image, index in zip(batch.numpy(), batch.indices):
                    numpy.testing.assert_array_equal(image, pixels_of(index))
                seen.append((batch.epoch, batch.number, tuple(batch.indices)))
            return seen

        seen = sorted(batch for part in at_once(work) for batch in part)
        assert seen == [(epoch, number, (2 * number, 2 * number + 1)) for number in range(10)]


def test_threads_that_share_pairs_get_each_once(folder):
    loader = fw.Loader(folder, batch_size=2, prefetch=2 * THREADS, framework="numpy", **AS_THEY_ARE)
    pairs = iter(loader)
    seen = [images.copy() for part in at_once(lambda _: [(images.copy(), labels) for images, labels in pairs]) for images, _ in part]
    pixels = sorted(image.tobytes() for images in seen for image in images)
    assert pixels == sorted(pixels_of(index).tobytes() for index in range(20))


def test_a_loop_of_another_thread_ends_the_epoch(folder):
    """Each thread begins epochs of its own, which end the epochs of other threads. No batch may belong to two epochs, and
    only the last epoch must be complete."""
    loader = fw.Loader(folder, batch_size=2, prefetch=2 * THREADS, framework="batch", **AS_THEY_ARE)

    def loops_of(_):
        loops = []
        for _ in range(5):
            loops.append([])
            with contextlib.suppress(fw.errors.StoppedError):
                loops[-1].extend((batch.epoch, batch.number) for batch in loader)
        return loops

    loops = [loop for part in at_once(loops_of) for loop in part if loop]
    assert all(len({epoch for epoch, _ in loop}) == 1 for loop in loops)
    seen = [batch for loop in loops for batch in loop]
    assert len(seen) == len(set(seen))
    assert max(loops) == [(max(seen)[0], number) for number in range(10)]
    assert [batch.epoch for batch in loader] == [5 * THREADS] * 10


def test_states_while_another_thread_iterates(folder):
    def loader(batch):
        return fw.Loader(folder, fw.train_recipe(4), batch_size=batch, seed=9, framework="batch")

    order = [index for batch in loader(2).batches() for index in batch.indices]
    shared, ended = loader(2), threading.Event()
    # After each batch, the thread waits until this test has taken a state. So there is a state for each position.
    steps = threading.Barrier(2)
    states = [shared.state_dict()]

    def seen_in(state):
        return 20 * state["state"]["epoch"] + state["state"]["position"]

    def iterate():
        for _ in shared:
            steps.wait(LIMIT)
        ended.set()

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(iterate)
        for _ in range(10):
            # These calls race with `next` of the thread.
            racing = [seen_in(shared.state_dict()) for _ in range(20)]
            assert racing == sorted(racing) and racing[-1] - racing[0] <= 2
            steps.wait(LIMIT)
            states.append(shared.state_dict())
        done.result(LIMIT)
    assert ended.is_set()
    # Leave out the last states, which may be those of the end of the epoch.
    for number, state in enumerate(states[:9]):
        resumed = loader(1)
        resumed.load_state_dict(state)
        left = [index for batch in resumed.batches() for index in batch.indices]
        assert seen_in(state) in (2 * number, 2 * number + 2) and left == order[seen_in(state) :]


def test_threads_that_set_the_epoch_leave_one_loader(folder):
    loader = fw.Loader(folder, fw.train_recipe(4), batch_size=5, seed=3, framework="batch")
    orders = fw.Loader(folder, fw.train_recipe(4), batch_size=5, seed=3, framework="batch")
    expected = [[index for batch in orders.batches() for index in batch.indices] for _ in range(4)]
    for _ in range(5):
        at_once(lambda number: loader.set_epoch(number % 4), 4)
        (epoch,) = {batch.epoch for batch in loader}
        assert epoch in range(4)
        loader.set_epoch(epoch)
        assert [index for batch in loader.batches() for index in batch.indices] == expected[epoch]


def test_closing_ends_the_loops_of_other_threads(folder):
    for _ in range(10):
        loader = fw.Loader(folder, batch_size=2, framework="batch", **AS_THEY_ARE)
        going = threading.Barrier(THREADS)

        def work(number):
            if number == 0:
                going.wait(LIMIT)
                loader.close()
                return "closed"
            # `next` raises this error if another thread has begun an epoch meanwhile.
            with contextlib.suppress(fw.errors.StoppedError):
                next(loader.batches(), None)
            going.wait(LIMIT)
            while True:
                try:
                    for _ in loader:
                        pass
                except fw.errors.StoppedError as error:
                    if "was ended by" not in str(error):
                        return "stopped"

        assert at_once(work) == ["closed"] + ["stopped"] * (THREADS - 1)
        with pytest.raises(fw.errors.StoppedError):
            loader.peek()


def test_the_position_at_closing_counts_all_batches_that_threads_received():
    for _ in range(10):
        loader = fw.Loader(fw.samples([encoded(0)] * 20_000), batch_size=2, prefetch=2 * THREADS, framework="batch", **AS_THEY_ARE)
        batches = iter(loader)
        begun = threading.Event()

        def work(number):
            if number == 0:
                begun.wait(LIMIT)
                loader.close()
                return 0
            received = 0
            with contextlib.suppress(fw.errors.StoppedError):
                for _ in batches:
                    received += 1
                    begun.set()
            return received

        received = sum(at_once(work))
        state = loader.state_dict()["state"]
        assert state["epoch"] * 20_000 + state["position"] == 2 * received == loader.stats["images"]


def test_arrays_of_one_batch_in_threads_share_its_memory(folder):
    loader = fw.Loader(folder, batch_size=2, framework="batch", **AS_THEY_ARE)
    for batch in loader:
        address = batch.data_ptr
        arrays = at_once(lambda _: batch.numpy())
        assert {array.ctypes.data for array in arrays} == {address}
        numpy.testing.assert_array_equal(arrays[-1][1], pixels_of(batch.indices[1]))
        del arrays


def test_one_thread_takes_the_tensor_and_others_are_told(folder):
    loader = fw.Loader(folder, batch_size=2, framework="batch", **AS_THEY_ARE)
    for batch in loader:

        def take(_):
            try:
                return numpy.from_dlpack(batch)
            except BufferError as error:
                return str(error)

        taken = at_once(take)
        refused = [it for it in taken if isinstance(it, str)]
        assert len(refused) == THREADS - 1 and all("given away" in it for it in refused)
        (array,) = [it for it in taken if not isinstance(it, str)]
        numpy.testing.assert_array_equal(array[0], pixels_of(batch.indices[0]))
        del taken, array


def test_soft_targets_stay_when_another_thread_takes_the_tensor(folder):
    loader = fw.Loader(folder, batch_size=2, framework="batch", classes=2, **AS_THEY_ARE)
    for batch in loader:
        found = at_once(lambda number: numpy.from_dlpack(batch) if number == 0 else batch.targets())
        for targets in found[1:]:
            numpy.testing.assert_array_equal(targets.argmax(axis=1), batch.labels)
        del found, targets


def test_tensors_that_other_threads_free_go_back_to_the_loader(folder):
    """The loader has two slots. Each batch is freed by a thread other than the one that took it, either as a capsule that
    no library has consumed, or as an array."""
    loader = fw.Loader(folder, batch_size=2, prefetch=1, framework="batch", **AS_THEY_ARE)
    with ThreadPoolExecutor(4) as pool:
        for batch in loader:
            if batch.number % 2:
                held = [batch.__dlpack__(max_version=(1, 0) if batch.number % 4 == 1 else None)]
            else:
                held = [batch.numpy()]
            del batch
            pool.submit(held.clear).result(LIMIT)
    assert loader.stats["images"] == 20


def test_two_reads_of_a_sequence_run_at_once():
    """Checks that both worker threads are inside `__getitem__` at the same time. Otherwise the barrier breaks, and the
    sample is an error."""

    class Meeting:
        built = threading.Event()
        met = threading.Event()
        barrier = threading.Barrier(2)

        def __len__(self):
            return 20

        def __getitem__(self, index):
            if self.built.is_set() and not self.met.is_set():
                self.barrier.wait(LIMIT)
                self.met.set()
            return encoded(index), index

    items = Meeting()
    loader = fw.Loader(fw.samples(items), batch_size=2, num_workers=2, framework="batch", **AS_THEY_ARE)
    items.built.set()
    while not items.met.is_set():
        for batch in loader:
            assert batch.labels == batch.indices
            numpy.testing.assert_array_equal(batch.numpy()[0], pixels_of(batch.indices[0]))


def test_loaders_in_threads_share_samples_with_fields():
    class Captioned:
        def __len__(self):
            return 40

        def __getitem__(self, index):
            return encoded(index), index, {"caption": f"image {index}"}

    source = fw.samples(Captioned())

    def work(number):
        loader = fw.Loader(source, batch_size=4, num_workers=3, framework="batch", seed=number % 2, shuffle=True, **AS_THEY_ARE)
        for _ in range(5):
            for batch in loader:
                assert [it["caption"] for it in batch.fields] == [f"image {index}" for index in batch.indices]
                assert batch.labels == batch.indices
        return loader.stats["images"]

    assert at_once(work, 4) == [200] * 4


def test_an_interrupt_ends_a_wait_that_threads_share():
    """After the first batches, the source blocks until the program continues. So only the interrupt can end the wait of
    the main thread, while other threads wait for the same batch."""
    program = """
        import os, threading
        # Before the signal, which NumPy turns into an ImportError during its import.
        import numpy
        import feedwater as fw

        built, go = threading.Event(), threading.Event()

        class Slow:
            def __len__(self):
                return 100

            def __getitem__(self, index):
                if built.is_set():
                    go.wait()
                return b"P6 1 1 255\\n" + bytes(3)

        loader = fw.Loader(fw.samples(Slow()), [fw.ops.Crop(width=1, height=1)], batch_size=2, framework="numpy", num_workers=2)
        built.set()
        batches = iter(loader)
        others = [threading.Thread(target=lambda: list(zip(batches, range(200)))) for _ in range(4)]
        [thread.start() for thread in others]
        try:
            os.write(1, b"waits\\n")
            for _ in batches:
                pass
        except KeyboardInterrupt:
            print("interrupted", go.is_set(), flush=True)
        go.set()
        loader.close()
        [thread.join() for thread in others]
    """
    out, errors, _ = interrupted(program)
    assert out == "interrupted False\n", out + errors
