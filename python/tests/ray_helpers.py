"""What the tests of feedwater on a Ray cluster share. Workers import this file too."""

import os
import pathlib
import signal
import time

import feedwater as fw
import numpy

#: Longest wait for another process, in seconds.
PATIENCE = 300

RANDOM = [fw.ops.RandomResizedCrop(width=6, height=4), fw.ops.Flip(horizontal=0.5)]
SETTINGS = {"shuffle": True, "seed": 3, "last_batch": "partial"}
#: Images of the sets `many` and `large`.
SAMPLES = 61


def loaded(source, chain=RANDOM, *, epochs=1, **settings):
    """Batches of one loader: images, targets, and records."""
    batches = []
    with fw.Loader(source, chain, framework="batch", **{"batch_size": 4, **SETTINGS, **settings}) as loader:
        for _ in range(epochs):
            batches += [(batch.numpy().copy(), batch.targets(), batch.samples) for batch in loader]
    return batches


def label_of(record):
    """The label that a loss sees: -100 for zeros in place of a sample, -1 for none."""
    if record["outcome"] == "substituted":
        return -100
    return -1 if record["label"] is None else record["label"]


def check(dataset, batches):
    """The rows of the data set are those of the batches, in order."""
    rows = dataset.take_all()
    expected = [record for _, _, records in batches for record in records]
    assert [row["index"] for row in rows] == [record["index"] for record in expected]
    assert [row["label"] for row in rows] == [label_of(record) for record in expected]
    assert [row["padding"] for row in rows] == [record["padding"] for record in expected]
    images = numpy.concatenate([images for images, _, _ in batches])
    numpy.testing.assert_array_equal(numpy.stack([row["image"] for row in rows]), images)
    return rows


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


def files(directory, ending=""):
    """Every file that packing wrote, with its bytes, except the lock and indexes of shards, whose names depend on the path."""
    paths = [path for path in pathlib.Path(directory).iterdir() if not path.name.endswith((".lock", ".feedwater1"))]
    return {path.name: path.read_bytes() for path in paths if path.name.endswith(ending)}
