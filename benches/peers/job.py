"""Defines the job that feedwater and every peer run, and measures the peers that run in Python.

The job reads every JPEG of a folder with one sub-folder per class, in a random order. It applies
RandomResizedCrop 224 (bilinear, antialiased), flips each image horizontally with probability 0.5,
and applies ImageNet's normalization. The results are f16 NCHW batches, which are dropped. A run has
one warm-up epoch, then epochs until SECONDS have passed.
"""

import json
import math
import os
import sys
import time

START = time.monotonic()

SIDE = 224
MEAN = [0.485, 0.456, 0.406]
STD = [0.229, 0.224, 0.225]
PREFETCH = 2
# Must equal `SECONDS` in crates/cli/src/bench/case.rs.
SECONDS = 3.0


def command(peer, job):
    """Returns the command that runs the job in a peer."""
    return [sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{peer}.py"), json.dumps(job)]


def result(stdout):
    """Parses the output of a peer. Its last line is the result as JSON."""
    return json.loads(stdout.strip().splitlines()[-1])


def samples(folder):
    """Returns path and label of every JPEG below a folder, which has one sub-folder per class."""
    classes = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir())
    return [(os.path.join(folder, name, file), label) for label, name in enumerate(classes)
            for file in sorted(os.listdir(os.path.join(folder, name))) if file.lower().endswith((".jpg", ".jpeg"))]


def window(random, width, height):
    """Returns x, y, width and height of a random resized crop, chosen like torchvision does. `random` is a
    `random.Random`."""
    for _ in range(10):
        area, aspect = width * height * random.uniform(0.08, 1), math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        across, down = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < across <= width and 0 < down <= height:
            return random.randint(0, width - across), random.randint(0, height - down), across, down
    across, down = min(width, round(height * 4 / 3)), min(height, round(width * 4 / 3))
    return (width - across) // 2, (height - down) // 2, across, down


def main(peer):
    """Runs the job of the command line in a peer, and prints the result. `peer(job)` returns the
    versions of the peer's libraries, and a function that builds its loader. That function returns
    two functions: `epoch`, which yields shape and element type of each batch of one epoch, and
    `finish`, which waits until the device has finished its work."""
    import measure

    job = json.loads(sys.argv[1])
    versions, make = peer(job)
    built = time.monotonic()
    epoch, finish = make()
    first = None
    for shape, dtype in epoch():
        if first is None:
            finish()
            first = (time.monotonic() - built, list(shape), dtype)
    finish()

    root = os.getpid()
    cpu, begin, images, epochs = measure.tree_cpu_seconds(root), time.monotonic(), 0, 0
    while epochs < job["epochs"] if job["epochs"] else time.monotonic() - begin < SECONDS:
        images += sum(shape[0] for shape, _ in epoch())
        finish()
        epochs += 1
    seconds = time.monotonic() - begin
    print(json.dumps({
        "versions": versions,
        "epochs": epochs,
        "images": images,
        "seconds": seconds,
        "images_per_second": images / seconds,
        "cpu_seconds_per_1000_images": 1e3 * (measure.tree_cpu_seconds(root) - cpu) / images,
        "import_seconds": built - START,
        "first_batch_seconds": first[0],
        "shape": first[1],
        "dtype": first[2],
    }))
