"""Compares feedwater's sources with each format's own reader: raw samples from the page cache, without decoding.

    cargo bench --no-run --bench sources           # prints the program's path
    python benches/sources/run.py --program PATH   # in an environment that has the readers

Each format's own writer creates the sets once, from JPEGs of 500x375 (for NumPy, from raw images of
224x224). First, feedwater and the format's own reader read every sample, and the sums of their
checksums must be equal. Then the two readers alternate in every round. The table shows the medians
over the rounds, and the medians of the rounds' ratios. On a machine with other load, use the ratio
of processor time.

With more than one thread (`--threads`), feedwater and TensorFlow use threads, and the other readers
use processes. These processes have an advantage here: unlike the workers of a DataLoader, they do
not pass their samples to another process. Readers that are not installed, and formats that this
build of feedwater does not support, are listed with the reason. `--python FORMAT=PATH` selects
another interpreter for a format.
"""

import argparse
import io
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys

import formats

HERE = os.path.dirname(os.path.abspath(__file__))


def main():
    options = arguments()
    print(f"{processor()}, {os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}; "
          f"{options.images} images, {options.rounds} rounds of {options.seconds} s")
    images = None
    rows, absent = [], {}
    for name in options.formats:
        form = formats.FORMATS[name]
        python = options.python.get(name, sys.executable)
        folder = os.path.join(options.cache, f"{name}-{options.images}")
        reason = unavailable(form, python)
        if not reason and not os.path.exists(folder + ".complete"):
            images = images or make(options)
            reason = written(form, python, folder, options)
        if not reason:
            reason = verified(form, python, folder, options)
        if reason:
            absent[name] = reason
            continue
        orders = [False, True] if form.shuffled else [False]
        try:
            for shuffled in orders:
                for threads in options.threads:
                    rows.append(compare(form, python, folder, shuffled, threads, options))
                    print(row(rows[-1]), flush=True)
        except RuntimeError as error:
            absent[name] = str(error)
    print(f"\n{HEAD}")
    for it in rows:
        print(row(it))
    for name, reason in absent.items():
        print(f"{name:<15}skipped: {reason}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"rows": rows, "absent": absent}, file, indent=1)


HEAD = (f"{'':<15}{'order':<10}{'threads':<9}{'samples/s':>10}{'MB/s':>8}{'its own':>10}{'MB/s':>8}{'ratio':>8}"
        f"{'CPU us':>9}{'its own':>9}{'ratio':>8}")


def row(it):
    """Prints one line of the table."""
    own, other = it["feedwater"], it["reader"]
    return (f"{it['format']:<15}{it['order']:<10}{it['threads']:<9}{own['rate']:>10.0f}{own['mb']:>8.0f}{other['rate']:>10.0f}"
            f"{other['mb']:>8.0f}{it['ratio']:>8.2f}{own['cpu']:>9.1f}{other['cpu']:>9.1f}{it['cpu_ratio']:>8.2f}")


def compare(form, python, folder, shuffled, threads, options):
    """Measures one row of the table in several rounds, and returns the medians."""
    rounds = []
    for number in range(options.rounds):
        turns = [lambda: own(form, folder, options, threads, shuffled),
                 lambda: reader(form, python, folder, options, threads, shuffled)]
        if number % 2:
            other, mine = turns[1](), turns[0]()
        else:
            mine, other = turns[0](), turns[1]()
        rounds.append((mine, other))

    def middle(side, key):
        return statistics.median(it[side][key] for it in rounds)

    sides = [{key: middle(side, key) for key in ("rate", "mb", "cpu")} for side in (0, 1)]
    return {
        "format": form.name, "order": "shuffled" if shuffled else "in order", "threads": threads,
        "feedwater": sides[0], "reader": sides[1],
        "ratio": statistics.median(it[0]["rate"] / it[1]["rate"] for it in rounds),
        "cpu_ratio": statistics.median(it[1]["cpu"] / it[0]["cpu"] for it in rounds if it[0]["cpu"]),
    }


def figures(report):
    """Returns samples per second, MB per second, and microseconds of processor time per sample."""
    rate = report.get("rate") or report["samples"] / report["seconds"]
    return {"rate": rate, "mb": rate * report["bytes"] / report["samples"] / 1e6,
            "cpu": report["cpu_seconds"] / report["samples"] * 1e6}


def own(form, folder, options, threads, shuffled, verify=False):
    """Runs feedwater's reader. Returns the values of `figures`, or, with `verify`, the whole report."""
    argv = [options.program, "--source", form.source.format(folder=folder), "--threads", str(threads),
            "--seconds", str(options.seconds)]
    argv += ["--shuffled"] if shuffled else []
    report = said(argv + (["--verify"] if verify else []))
    return report if verify else figures(report)


def reader(form, python, folder, options, threads, shuffled, verify=False):
    """Runs the format's own reader. Returns the values of `figures`, or, with `verify`, the whole report."""
    job = {"format": form.name, "folder": folder, "threads": threads, "shuffled": shuffled, "seconds": options.seconds,
           "verify": verify}
    report = said([python, os.path.join(HERE, "formats.py"), json.dumps(job)])
    return report if verify else figures(report)


def said(argv):
    """Runs a program. Returns the JSON object that it prints last."""
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(argv, capture_output=True, text=True, env=environment)
    lines = done.stderr.strip().splitlines()
    if done.returncode:
        raise RuntimeError(lines[-1] if lines else f"exit {done.returncode}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def verified(form, python, folder, options):
    """Lets feedwater and the format's own reader read every sample. Returns why the two cannot be
    compared, or None."""
    try:
        mine = own(form, folder, options, 1, False, verify=True)
        other = reader(form, python, folder, options, 1, False, verify=True)
    except RuntimeError as error:
        return str(error)
    same = all(mine[key] == other[key] for key in ("samples", "bytes", "sum"))
    return None if same else f"the readers disagree: {mine} and {other}"


def unavailable(form, python):
    """Returns why the format's own tools do not run, or None."""
    imports = "; ".join(f"import {module}" for module in form.modules)
    if "ffcv" in imports:
        imports = f"import formats; formats.stand_in(); {imports}"
    done = subprocess.run([python, "-c", imports], cwd=HERE, capture_output=True, text=True)
    return done.stderr.strip().splitlines()[-1] if done.returncode else None


def written(form, python, folder, options):
    """Creates a set with the format's own writer. Returns why this failed, or None."""
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    program = ("import sys, formats, run; "
               "formats.FORMATS[sys.argv[1]].write(sys.argv[2], run.kept(sys.argv[3]))")
    done = subprocess.run([python, "-c", program, form.name, folder, images_folder(options)], cwd=HERE,
                          capture_output=True, text=True)
    if done.returncode:
        return done.stderr.strip().splitlines()[-1]
    with open(folder + ".complete", "w", encoding="utf-8"):
        return None


def images_folder(options):
    """Returns the folder of the JPEGs from which the sets of all formats are created."""
    return os.path.join(options.cache, f"images-{options.images}")


def kept(folder):
    """Returns label and bytes of each JPEG in the folder."""
    images = []
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), "rb") as file:
            images.append((int(name[:4]), file.read()))
    return images


def make(options):
    """Creates photo-like JPEGs of 500x375: smooth shapes and noise."""
    import numpy
    import PIL.Image

    folder = images_folder(options)
    if os.path.exists(folder) and len(os.listdir(folder)) == options.images:
        return True
    os.makedirs(folder, exist_ok=True)
    random = numpy.random.default_rng(1)
    for number in range(options.images):
        coarse = PIL.Image.fromarray(random.integers(0, 256, (12, 16, 3), numpy.uint8)).resize((500, 375), PIL.Image.BICUBIC)
        noise = random.normal(0, 9, (375, 500, 1))
        pixels = numpy.clip(numpy.asarray(coarse) + noise, 0, 255).astype(numpy.uint8)
        file = io.BytesIO()
        PIL.Image.fromarray(pixels).save(file, "JPEG", quality=75 + number % 15)
        label = number * 100 // options.images
        with open(f"{folder}/{label:04d}-{number:06d}.jpg", "wb") as out:
            out.write(file.getvalue())
    return True


def processor():
    """Returns the processor's name."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        return next((line.split(": ", 1)[1].strip() for line in file if line.startswith("model name")), "unknown")


def arguments():
    """Parses the command line."""
    parser = argparse.ArgumentParser(description="feedwater's sources against each format's own reader")
    parser.add_argument("--program", required=True, help="path of the bench program, printed by cargo bench --no-run --bench sources")
    parser.add_argument("--cache", required=True, help="folder for the sets")
    parser.add_argument("--formats", type=lambda it: it.split(","), default=list(formats.FORMATS),
                        help=",".join(formats.FORMATS))
    parser.add_argument("--images", type=int, default=4000)
    parser.add_argument("--threads", type=lambda it: [int(one) for one in it.split(",")], default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="seconds per run")
    parser.add_argument("--python", action="append", default=[], metavar="FORMAT=PATH", help="Python interpreter for a format")
    parser.add_argument("--json", metavar="FILE", help="write every row to FILE")
    options = parser.parse_args()
    options.python = dict(it.split("=", 1) for it in options.python)
    for name in [*options.formats, *options.python]:
        if name not in formats.FORMATS:
            parser.error(f"{name} is not one of {', '.join(formats.FORMATS)}")
    options.cache = os.path.abspath(options.cache)
    return options


if __name__ == "__main__":
    main()
