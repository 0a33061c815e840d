"""Measures the cost of a ready batch in Python: microseconds per step of a `for` loop over
`fw.Loader`.

    python benches/peers/overhead.py [--rounds 5] [--check]      # in an environment with feedwater, numpy and torch

Each epoch has as many batches as the loader prefetches. The loop waits until all batches are ready,
and takes one after the other. It frees the batches only at the end, because workers would fill the
free slots and disturb the measurement. All ways of using a batch alternate in every round. The
columns are:

* `in a row`: a `next` that follows another `next` at once. The first one of an epoch is left out.
* `after a pause`: a `next` after a sleep of 10 ms, as after a training step. Then the loop's code
  is no longer in the processor's caches. For comparison, the row "two calls of torch" has the time
  of `torch.empty(4)[1:]` after the same sleep.
* `first`: the first `next` of an epoch, which begins the epoch. It follows the wait for all
  batches.
* `free`: returning the memory of a tensor to the loader.

For images and labels as tensors of PyTorch, the sum of `in a row` and `free` must be below 100
microseconds (the bar). Times after a pause depend mostly on the rest of the system. Compare them
with the two calls of torch.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

BAR_MICROSECONDS = 100
PAUSE_SECONDS = 0.01
COLUMNS = ("in a row", "after a pause", "first", "free")
SIDE_TINY, SIDE_LARGE = 8, 224
PREFETCH = 4
# Each case has a batch size, and the side of its images in pixels.
CASES = [(1, SIDE_TINY), (64, SIDE_TINY), (256, SIDE_TINY), (64, SIDE_LARGE), (256, SIDE_LARGE)]
REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def batches(loader):
    """Yields `fw.Batch` only, to measure the cost of the binding itself."""
    return loader.batches()


def images_alone(loader):
    """Yields images as tensors of PyTorch, without accessing the labels."""
    return (batch.torch() for batch in loader.batches())


def labels_alone(loader):
    """Yields labels as tensors of PyTorch, without accessing the images."""
    import torch

    return (torch.from_numpy(batch.targets()) for batch in loader.batches())


WAYS = {
    "fw.Batch": ("batch", batches),
    "images to torch": ("batch", images_alone),
    "labels to torch": ("batch", labels_alone),
    "images, labels (torch)": ("torch", iter),
    "images, labels (numpy)": ("numpy", iter),
}


def main():
    options = arguments()
    import feedwater as fw
    import torch

    print(f"feedwater {fw.__version__}, torch {torch.__version__}, Python {sys.version.split()[0]}, {os.cpu_count()} cores; "
          f"microseconds per batch, medians of {options.rounds} rounds of {options.epochs} epochs of {PREFETCH} batches\n")
    print(f"| batch | tensor | way | {' | '.join(COLUMNS)} |")
    print("|------:|--------|-----|" + "---:|" * len(COLUMNS))
    missed = []
    with tempfile.TemporaryDirectory() as scratch:
        for batch, side in CASES:
            folder = os.path.join(scratch, str(batch))
            if not os.path.exists(folder):
                write(folder, batch * PREFETCH)
            found = case(folder, batch, side, options)["images, labels (torch)"]
            if found["in a row"] + found["free"] >= BAR_MICROSECONDS:
                missed.append(f"{found['in a row'] + found['free']:.1f} with a batch of {batch} of {side}x{side}")
        print(f"| | | two calls of torch | | {two_calls(options):.1f} | | |")
        print("\n" + same_pointer(os.path.join(scratch, "64")))
    print(f"bar of {BAR_MICROSECONDS} microseconds: {'missed: ' + ', '.join(missed) if missed else 'met'}")
    if options.check and missed:
        sys.exit(1)


def case(folder, batch, side, options):
    """Measures all ways of using batches, with one batch size, and prints the results. Returns the medians of each way."""
    times = {}
    for _ in range(options.rounds):
        for way in WAYS:
            for column, values in measured(way, folder, batch, side, options.epochs).items():
                times.setdefault(way, {}).setdefault(column, []).extend(values)
    if options.rust:
        times["loop in Rust"] = in_rust(folder, batch, side, options)
    medians = {way: {column: statistics.median(values[column]) for column in COLUMNS} for way, values in times.items()}
    for way, values in medians.items():
        print(f"| {batch} | {side}x{side} | {way} | {' | '.join(f'{values[column]:.1f}' for column in COLUMNS)} |", flush=True)
    return medians


def measured(way, folder, batch, side, epochs):
    """Measures one way of using batches for some epochs. Returns the microseconds of each step, by
    column."""
    framework, steps = WAYS[way]
    times = {column: [] for column in COLUMNS}
    with loader(folder, batch, side, framework) as images:
        start = time.perf_counter()
        for _ in steps(images):
            pass
        ready = 0.02 + 2 * (time.perf_counter() - start)
        for epoch in range(epochs):
            time.sleep(ready)
            held, iterator = [], steps(images)
            for number in range(PREFETCH):
                column = "first" if number == 0 else COLUMNS[epoch % 2]
                if column == "after a pause":
                    time.sleep(PAUSE_SECONDS)
                begin = time.perf_counter_ns()
                held.append(next(iterator))
                times[column].append((time.perf_counter_ns() - begin) / 1e3)
            while held:
                begin = time.perf_counter_ns()
                del held[0]
                times["free"].append((time.perf_counter_ns() - begin) / 1e3)
    return times


def in_rust(folder, batch, side, options):
    """Returns the times of each column for a loop in Rust, which `benches/ready.rs` measures."""
    values = [folder, batch, side, PREFETCH, options.rounds * options.epochs, round(1e3 * PAUSE_SECONDS)]
    done = subprocess.run([options.rust, *map(str, values)], capture_output=True, text=True, check=True)
    return {column: [float(it) for it in line.split()] for column, line in zip(COLUMNS, done.stdout.strip().splitlines())}


def two_calls(options):
    """Returns the median time of two calls of PyTorch after a pause, in microseconds."""
    import torch

    times = []
    for _ in range(options.rounds * options.epochs):
        time.sleep(PAUSE_SECONDS)
        begin = time.perf_counter_ns()
        torch.empty(4)[1:]
        times.append((time.perf_counter_ns() - begin) / 1e3)
    return statistics.median(times)


def loader(folder, batch, side, framework):
    """Returns a loader with a cheap chain. It prefetches as many batches as an epoch has."""
    import feedwater as fw

    chain = [fw.ops.Resize(width=side, height=side)]
    return fw.Loader(folder, chain, batch_size=batch, prefetch=PREFETCH, dtype="f16", device="cpu", framework=framework)


def same_pointer(folder):
    """Checks that PyTorch's tensors and NumPy's arrays have the addresses of the loader's memory. Returns the result
    as a sentence."""
    with loader(folder, 64, SIDE_LARGE, "batch") as images:
        pairs = []
        for batch in images.batches():
            address = batch.data_ptr
            pairs.append((address, batch.torch().data_ptr(), batch.numpy().ctypes.data))
    if any(len(set(addresses)) > 1 for addresses in pairs):
        sys.exit(f"a batch was copied: {pairs}")
    return f"no copy: in {len(pairs)} batches the addresses of the loader's memory, of torch's tensor and of numpy's array are equal"


def write(folder, count):
    """Writes images of 8x8 pixels without compression."""
    os.makedirs(os.path.join(folder, "class"))
    for number in range(count):
        with open(os.path.join(folder, "class", f"{number:05}.ppm"), "wb") as file:
            file.write(b"P6 8 8 255\n" + bytes((number + it) % 256 for it in range(8 * 8 * 3)))


def arguments():
    """Parses the command line."""
    parser = argparse.ArgumentParser(description="cost of a ready batch in Python")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=10, help="measured epochs of a round")
    parser.add_argument("--rust", metavar="PROGRAM", help="the program of `cargo bench --no-run --bench ready`, for the loop in Rust")
    parser.add_argument("--check", action="store_true", help="fails if the bar is missed")
    return parser.parse_args()


if __name__ == "__main__":
    main()
