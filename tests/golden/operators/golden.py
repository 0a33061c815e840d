"""Functions that all scripts of this folder share: versions, the test image, and code that writes or compares golden
data."""

import argparse
import json
import pathlib
import platform
import sys

import numpy as np
import PIL
import torch
import torchvision

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from ops import picture  # noqa: E402, F401


def versions():
    return {
        "pillow": PIL.__version__, "torch": torch.__version__, "torchvision": torchvision.__version__,
        "numpy": np.__version__, "machine": platform.machine(),
    }


def text_of(golden):
    """Returns golden data as JSON text, with one line for each case."""
    parts = []
    for key, value in golden.items():
        value = value if isinstance(value, dict) else list(value)
        rows = ",\n  ".join(json.dumps(row) for row in value) if isinstance(value, list) else None
        parts.append(f'"{key}": ' + (f"[\n  {rows}\n]" if rows else json.dumps(value)))
    return "{\n" + ",\n".join(parts) + "\n}\n"


def is_near(was, now):
    """Whether two texts of numbers are equal up to rounding. Linear algebra on different processors rounds differently,
    so a difference of two units of the fifth decimal place (boxes have five decimal places) or a relative difference
    of 1e-9 is allowed."""
    try:
        first, second = float(was), float(now)
    except ValueError:
        return False
    places = len(was.partition(".")[2])
    return abs(first - second) <= (2.1e-5 if 0 < places <= 5 and "e" not in was + now else 1e-12 + 1e-9 * abs(first))


def is_same(was, now):
    """Whether golden data are equal. Texts of numbers are compared with the tolerance of `is_near`. Hashes and counts
    must be equal."""
    if isinstance(was, dict) and isinstance(now, dict):
        return was.keys() == now.keys() and all(is_same(was[key], now[key]) for key in was)
    if isinstance(was, list) and isinstance(now, list):
        return len(was) == len(now) and all(map(is_same, was, now))
    if isinstance(was, str) and isinstance(now, str):
        words, others = was.split(), now.split()
        return len(words) == len(others) and all(a == b or is_near(a, b) for a, b in zip(words, others))
    return was == now


def main(name, make, **others):
    """Writes the golden file `name`, or compares it with new results if `--check` is given. `others` are the versions
    of further libraries."""
    installed = {**versions(), **others}
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out")
    args = parser.parse_args()
    path = pathlib.Path(args.out or pathlib.Path(__file__).with_name(name))
    golden = json.loads(text_of(make(args.seed)))
    if not args.check:
        path.write_text(text_of({"made_with": installed, **golden}))
        print(f"{path}: {path.stat().st_size} bytes")
        return
    stored = json.loads(path.read_text())
    print(f"stored {stored.pop('made_with')}\ninstalled {installed}")
    wrong = [
        f"{key}[{number}]: {was} is now {now}"
        for key in golden for number, (was, now) in enumerate(zip(stored[key], golden[key])) if not is_same(was, now)
    ]
    wrong += [key for key in golden.keys() | stored.keys() if len(golden.get(key, [])) != len(stored.get(key, []))]
    print("\n".join(wrong[:20]) or "no difference")
    sys.exit(bool(wrong))
