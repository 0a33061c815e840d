"""Measures programs that take turns, and prints a table."""

import statistics
import time


def measure(peers, rounds):
    """Prints medians of images per second, and ratios to the first of ``peers``. ``peers`` has for each name a function that returns a
    function for one epoch, which returns the number of images. One epoch of each is not counted. Peers that are not installed are left out."""
    epochs = {}
    for name, make in peers.items():
        try:
            epochs[name] = make()
            epochs[name]()
        except ImportError as error:
            epochs.pop(name, None)
            print(f"not measured: {name}: {error}")
    rates = {name: [] for name in epochs}
    for _ in range(rounds):
        for name, epoch in epochs.items():
            begin = time.monotonic()
            count = epoch()
            rates[name].append(count / (time.monotonic() - begin))
    first = statistics.median(rates[next(iter(peers))])
    print("| program | images/s | feedwater is faster by |\n|---|---|---|")
    for name, rate in rates.items():
        median = statistics.median(rate)
        print(f"| {name} | {median:.0f} ({min(rate):.0f} to {max(rate):.0f}) | {first / median:.2f} |", flush=True)
