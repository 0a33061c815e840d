"""Helpers of the tests on a Ray cluster. Workers import this file too."""

import os
import pathlib
import signal
import time

import feedwater as fw
import numpy

#: Maximum wait for another process, in seconds.
PATIENCE = 300

RANDOM = [fw.ops.RandomResizedCrop(width=6, height=4), fw.ops.Flip(horizontal=0.5)]
SETTINGS = {"shuffle": True, "seed": 3, "last_batch": "partial"}
#: Number of images in the sets `many` and `large`.
SAMPLES = 61


def loaded(source, chain=RANDOM, *, epochs=1, **settings):
    """Returns the batches of a single loader: images, targets and records."""
    batches = []
    with fw.Loader(source, chain, framework="batch", **{"batch_size": 4, **SETTINGS, **settings}) as loader:
        for _ in range(epochs):
            batches += [(batch.numpy().copy(), batch.targets(), batch.samples) for batch in loader]
    return batches


def label_of(record):
    """Returns the label that a loss function gets for a sample: -100 if zeros replace the sample, -1 without a label."""
    if record["outcome"] == "substituted":
        return -100
    return -1 if record["label"] is None else record["label"]


def check(dataset, batches):
    """Checks that the rows of the data set equal those of the batches, in order."""
    rows = dataset.take_all()
    expected = [record for _, _, records in batches for record in records]
    assert [row["index"] for row in rows] == [record["index"] for record in expected]
    assert [row["label"] for row in rows] == [label_of(record) for record in expected]
    assert [row["padding"] for row in rows] == [record["padding"] for record in expected]
    images = numpy.concatenate([images for images, _, _ in batches])
    numpy.testing.assert_array_equal(numpy.stack([row["image"] for row in rows]), images)
    return rows


class Killing:
    """The images of a folder. Kills the first worker process that reads image `index` for the `question`-th time. With
    `node`, also kills its node. With `go`, first waits until the file `go` exists."""

    def __init__(self, folder, index, killed, *, go=None, question=1, node=False):
        self.files = sorted(str(path) for path in folder.rglob("*.ppm"))
        self.index = index
        self.go = go and str(go)
        self.killed = str(killed)
        # The driver opens the source too, but must not be killed.
        self.driver = os.getpid()
        #: Which read of the image kills the worker. The first read may be that of building the loader, which reads some items.
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
                # The parent process of a worker is the raylet of its node.
                for process in [os.getppid(), os.getpid()] if self.node else [os.getpid()]:
                    os.kill(process, signal.SIGKILL)
        return self.files[index]


def wait_for(condition):
    """Waits until the condition holds. Fails after `PATIENCE` seconds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {PATIENCE} s in vain")
        time.sleep(0.01)


def labels():
    return [0 if index < 30 else 1 for index in range(SAMPLES)]


def files(directory, ending=""):
    """Returns the bytes of every file that packing wrote, by name. Leaves out the lock and the indexes of shards, because
    their names depend on the path."""
    paths = [path for path in pathlib.Path(directory).iterdir() if not path.name.endswith((".lock", ".feedwater1"))]
    return {path.name: path.read_bytes() for path in paths if path.name.endswith(ending)}
