"""What a batch that is ready costs in Python: microseconds per step of a `for` loop over `fw.Loader`.

    python benches/peers/overhead.py [--rounds 5] [--check]      # in an environment with feedwater, numpy and torch

Each epoch has as many batches as the loader prefetches. The loop waits until all of them are ready, takes them one after the other
without freeing any, so that no worker runs meanwhile, and then frees them. `take` is the time of one `next`, `free` the time until
a tensor's memory is the loader's again, and the overhead is the sum of their medians. Ways take turns, round after round. The bar of
100 microseconds is for images and labels as tensors of PyTorch."""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

BAR_MICROSECONDS = 100
SIDE_TINY, SIDE_LARGE = 8, 224
PREFETCH = 4
# Batch size, side of the images in the batch.
CASES = [(1, SIDE_TINY), (64, SIDE_TINY), (256, SIDE_TINY), (64, SIDE_LARGE), (256, SIDE_LARGE)]
REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def batches(loader):
    """Only `fw.Batch`: what the binding itself costs."""
    return loader.batches()


def images_alone(loader):
    """Images as tensors of PyTorch, labels not asked for."""
    return (batch.torch() for batch in loader.batches())


def labels_alone(loader):
    """Labels as tensors of PyTorch, images not asked for."""
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
    print("| batch | tensor | way | take | p90 | free | overhead |")
    print("|------:|--------|-----|-----:|----:|-----:|---------:|")
    missed = []
    with tempfile.TemporaryDirectory() as scratch:
        for batch, side in CASES:
            folder = os.path.join(scratch, str(batch))
            if not os.path.exists(folder):
                write(folder, batch * PREFETCH)
            for way, overhead in case(folder, batch, side, options):
                if way == "images, labels (torch)" and overhead >= BAR_MICROSECONDS:
                    missed.append(f"{overhead:.1f} microseconds for a batch of {batch}")
        print("\n" + same_pointer(os.path.join(scratch, "64")))
    if options.check and missed:
        sys.exit(f"the bar of {BAR_MICROSECONDS} microseconds is missed: {', '.join(missed)}")


def case(folder, batch, side, options):
    """Measures all ways with one batch size and prints them; returns pairs of way and overhead."""
    takes, frees = {}, {}
    for _ in range(options.rounds):
        for way in WAYS:
            taken, freed = measured(way, folder, batch, side, options.epochs)
            takes.setdefault(way, []).extend(taken)
            frees.setdefault(way, []).extend(freed)
    if options.rust:
        takes["loop in Rust"], frees["loop in Rust"] = in_rust(folder, batch, side, options)
    found = []
    for way, times in takes.items():
        take, free = statistics.median(times), statistics.median(frees[way])
        tail = statistics.quantiles(times, n=10)[-1]
        print(f"| {batch} | {side}x{side} | {way} | {take:.1f} | {tail:.1f} | {free:.1f} | {take + free:.1f} |", flush=True)
        found.append((way, take + free))
    return found


def measured(way, folder, batch, side, epochs):
    """Returns the microseconds of each `next`, and of freeing each batch."""
    framework, steps = WAYS[way]
    with loader(folder, batch, side, framework) as images:
        start = time.perf_counter()
        for _ in steps(images):
            pass
        pause = 0.02 + 2 * (time.perf_counter() - start)
        taken, freed = [], []
        for _ in range(epochs):
            time.sleep(pause)
            held, iterator = [], steps(images)
            for _ in range(PREFETCH):
                begin = time.perf_counter_ns()
                held.append(next(iterator))
                taken.append((time.perf_counter_ns() - begin) / 1e3)
            while held:
                begin = time.perf_counter_ns()
                del held[0]
                freed.append((time.perf_counter_ns() - begin) / 1e3)
            iterator.close()
    return taken, freed


def in_rust(folder, batch, side, options):
    """Returns the same times of a loop in Rust: `benches/ready.rs`."""
    values = [folder, batch, side, PREFETCH, options.rounds * options.epochs]
    done = subprocess.run([options.rust, *map(str, values)], capture_output=True, text=True, check=True)
    taken, freed = done.stdout.strip().splitlines()
    return [float(it) for it in taken.split()], [float(it) for it in freed.split()]


def loader(folder, batch, side, framework):
    """Returns the loader of a way: a chain that is cheap, and as many batches ahead as an epoch has."""
    import feedwater as fw

    chain = [fw.ops.Resize(width=side, height=side)]
    return fw.Loader(folder, chain, batch=batch, prefetch=PREFETCH, dtype="f16", device="cpu", framework=framework)


def same_pointer(folder):
    """Says whether the tensors of PyTorch and the arrays of NumPy have the addresses of the loader's memory."""
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
    parser = argparse.ArgumentParser(description="the cost of a batch that is ready, in Python")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=10, help="measured epochs of a round")
    parser.add_argument("--rust", metavar="PROGRAM", help="the program of `cargo bench --no-run --bench ready`, for the loop in Rust")
    parser.add_argument("--check", action="store_true", help="fails if the bar is missed")
    return parser.parse_args()


if __name__ == "__main__":
    main()
