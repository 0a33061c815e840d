"""Runs the same job in feedwater and its peers, on the same files and in alternation. Prints a table with ratios.

    python3 benches/peers/run.py                 # see README.md beside this file

First the program searches for the best settings of every peer, with one short run per setting. Then
the peers alternate in every round, with their best settings. The table shows the medians over the
rounds, and the medians of the rounds' ratios. Every run is a separate process. The output lists
peers that are not installed or that fail, with the reason.
"""

import argparse
import atexit
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import dali_peer
import datasets_peer
import feedwater_peer
import feedwater_python_peer
import ffcv_peer
import grain_peer
import job as the_job
import measure
import spdl_peer
import torchvision_peer

PEERS = {peer.NAME: peer for peer in (feedwater_peer, feedwater_python_peer, torchvision_peer, dali_peer, ffcv_peer, spdl_peer, grain_peer,
                                      datasets_peer)}
REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# For each set: arguments of `feedwater synth`, and the number by which --images is divided.
SETS = {
    "imagenet-like": ([], 1),
    "500x375": (["--width", "500", "--height", "375"], 1),
    "2048x1536": (["--width", "2048", "--height", "1536"], 8),
}

# Columns of the table: title, key in a run's result, divisor of the value, number of decimal places, whether higher is
# better.
COLUMNS = [
    ("images/s", "images_per_second", 1, 0, True),
    ("CPU s/1000", "cpu_seconds_per_1000_images", 1, 3, False),
    ("host MiB", "host_bytes", 1 << 20, 0, False),
    ("device MiB", "device_bytes", 1 << 20, 0, False),
    ("first batch s", "first_batch_seconds", 1, 2, False),
]


def main():
    options = arguments()
    device, device_memory = open_device(options)
    batch = options.batch or (256 if device == "gpu" else 64)
    context = measure.context_bytes(device_memory) if device_memory else 0
    print(f"{platform.machine()}, {processor()}, {os.cpu_count()} cores, Linux {platform.release()}, Python "
          f"{platform.python_version()}; device {device}, batch {batch}")
    if device_memory:
        print(f"an empty CUDA context uses {context / 2**20:.0f} MiB, which the table excludes")
    reports = []
    with tempfile.TemporaryDirectory() as scratch:
        for name, data in datasets(options):
            base = {"data": data, "batch": batch, "device": device, "epochs": options.epochs,
                    "feedwater": options.feedwater, "scratch": scratch}
            reports.append({"set": name})
            compare(reports[-1], base, options, device_memory, context, lambda: save(reports, options.json))
    failed = [f"{it['set']}: {it['absent']['feedwater']}" for it in reports if "feedwater" in it["absent"]]
    if failed:
        sys.exit("feedwater failed: " + "; ".join(failed))


def save(reports, path):
    """Writes the results so far. If the program is killed, these results remain."""
    if path:
        with open(f"{path}.part", "w", encoding="utf-8") as file:
            json.dump(reports, file, indent=1)
        os.replace(f"{path}.part", path)


def compare(report, base, options, device_memory, context, keep):
    """Measures one set: searches settings, runs the rounds, prints the table. Fills the report, and calls `keep`
    after each run."""
    print(f"\n{report['set']}", flush=True)
    absent, best, search = {}, {}, {}
    report.update(search=search, best=best, absent=absent, rounds=[])
    for peer in options.peers:
        reason = unavailable(peer, base["device"], options)
        if reason:
            absent[peer] = reason
            continue
        tried = search[peer] = []
        candidates = PEERS[peer].candidates
        if options.fixed:
            candidates = getattr(PEERS[peer], "fixed", candidates)
        for settings in candidates(base["device"], os.cpu_count()):
            run = measured(peer, base | {"settings": settings}, options, device_memory, context)
            tried.append((settings, run))
            keep()
            if settings:
                figures = run.get("reason") or (f"{run['images_per_second']:.0f} images/s, "
                                                f"{run['cpu_seconds_per_1000_images']:.2f} CPU s/1000")
                print(f"  tried {peer} {words(settings)}: {figures}", flush=True)
        sound = [it for it in tried if "reason" not in it[1]]
        if sound:
            best[peer] = max(sound, key=lambda it: it[1]["images_per_second"])[0]
        else:
            absent[peer] = tried[0][1]["reason"]
    rounds = []
    for number in range(options.rounds):
        # The order of the peers rotates between rounds.
        peers = list(best)[number % len(best):] + list(best)[:number % len(best)] if best else []
        runs = {}
        for peer in peers:
            runs[peer] = measured(peer, base | {"settings": best[peer]}, options, device_memory, context)
            report["rounds"] = [*rounds, runs]
            keep()
        broken = {peer: run["reason"] for peer, run in runs.items() if "reason" in run}
        for peer, reason in broken.items():
            absent[peer] = f"round {number}: {reason}"
            del best[peer]
        rounds.append({peer: run for peer, run in runs.items() if peer not in broken})
    rounds = [{peer: runs[peer] for peer in best} for runs in rounds]
    report["rounds"] = rounds
    keep()
    table(best, rounds, absent, device_memory)


def measured(peer, job, options, device_memory, context):
    """Runs a peer in its own process. Returns its results, or a `reason` if it failed."""
    module = PEERS[peer]
    own = hasattr(module, "command")
    argv = module.command(job) if own else the_job.command(f"{peer}_peer", job)
    peaks = measure.Peaks(device_memory)
    busy, cpu, begin = measure.machine_busy_seconds(), measure.children_cpu_seconds(), time.monotonic()
    with tempfile.TemporaryFile("w+") as stdout, tempfile.TemporaryFile("w+") as stderr:
        process = subprocess.Popen(argv, stdout=stdout, stderr=stderr)
        peaks.watch(process.pid)
        try:
            code = process.wait(options.timeout)
        except subprocess.TimeoutExpired:
            for one in measure.descendants(process.pid):
                os.kill(one, signal.SIGKILL)
            process.wait()
            code = f"timeout after {options.timeout} s"
        finally:
            peaks.stop()
        wall = time.monotonic() - begin
        stdout.seek(0)
        stderr.seek(0)
        said, complaint = stdout.read(), stderr.read().strip().splitlines()
    if code != 0:
        return {"reason": f"exit {code}: {complaint[-1] if complaint else 'no message'}"}
    try:
        result = module.result(said, job) if own else the_job.result(said)
    except (IndexError, KeyError, ValueError) as error:
        return {"reason": f"its output has no result: {error!r}"}
    shape = [job["batch"], 3, the_job.SIDE, the_job.SIDE]
    if (result["shape"][1:], result["dtype"]) != (shape[1:], "float16"):
        return {"reason": f"it made {result['shape']} {result['dtype']}, not {shape} float16"}
    others = measure.machine_busy_seconds() - busy - (measure.children_cpu_seconds() - cpu)
    return result | {
        "host_bytes": peaks.host_bytes,
        "device_bytes": max(0, peaks.device_bytes - context),
        "others_cores": max(0.0, others / wall),
    }


def table(best, rounds, absent, device_memory):
    """Prints the medians of all peers, and feedwater's ratio to each peer, as Markdown tables."""
    columns = [it for it in COLUMNS if it[1] != "device_bytes" or device_memory]
    titles = [title for title, *_ in columns]
    lines = []
    for peer, settings in best.items():
        runs = [it[peer] for it in rounds]
        cells = [f"{statistics.median(run[key] / unit for run in runs):.{digits}f}" for _, key, unit, digits, _ in columns]
        imports = statistics.median(run["import_seconds"] for run in runs)
        others = statistics.median(run["others_cores"] for run in runs)
        lines.append([runs[0]["versions"], *cells, f"{imports:.2f}", f"{others:.2f}", words(settings) or "defaults"])
    print("\n" + markdown([f"medians of {len(rounds)} rounds", *titles, "imports s", "others", "settings"], lines))
    if "feedwater" in best:
        lines = [[peer, *(ratio(rounds, peer, key) for _, key, *_ in columns)] for peer in best if peer != "feedwater"]
        print("\n" + markdown(["feedwater divided by", *titles], lines))
    for peer, reason in absent.items():
        print(f"\n{peer}: skipped: {reason}")
    sys.stdout.flush()


def markdown(titles, lines):
    """Formats a Markdown table. Pads the cells so that the columns are aligned as plain text too:
    words to the left, numbers to the right."""
    rows = [titles, *lines]
    widths = [max(len(row[column]) for row in rows) for column in range(len(titles))]
    right = [column > 0 and titles[column] != "settings" for column in range(len(titles))]
    bar = "|" + "|".join("-" * (width + 1) + (":" if aligned else "-") for width, aligned in zip(widths, right)) + "|"
    text = ["| " + " | ".join(cell.rjust(width) if aligned else cell.ljust(width)
                              for cell, width, aligned in zip(row, widths, right)) + " |" for row in rows]
    return "\n".join([text[0], bar, *text[1:]])


def ratio(rounds, peer, key):
    """Returns the median of feedwater's value divided by the peer's value in each round."""
    ratios = [runs["feedwater"][key] / runs[peer][key] for runs in rounds if runs[peer][key]]
    return f"{statistics.median(ratios):.3f}" if ratios else "-"


def unavailable(peer, device, options):
    """Returns why a peer cannot run here, or None. Imports its modules in a separate process."""
    module = PEERS[peer]
    if device not in getattr(module, "DEVICES", ["cpu", "gpu"]):
        return "it has no job on a GPU here"
    if peer == "feedwater":
        return feedwater_peer.unavailable(options.feedwater)
    imports = "; ".join(f"import {name}" for name in module.MODULES)
    done = subprocess.run([sys.executable, "-c", imports], capture_output=True, text=True)
    return done.stderr.strip().splitlines()[-1] if done.returncode else None


def datasets(options):
    """Yields name and folder of each set: the user's set, or photo-like JPEGs that feedwater creates once."""
    if options.data:
        yield options.data, os.path.abspath(options.data)
        return
    for name in options.sets:
        arguments, part = SETS[name]
        images = max(1, options.images // part)
        folder = os.path.join(options.cache, f"peers-{images}-{name}")
        if not os.path.exists(os.path.join(folder, ".feedwater-synth.json")):
            subprocess.run([options.feedwater, "synth", folder, "--images", str(images), *arguments], check=True)
        yield f"{images} images, {name}", folder
    for number, photos in enumerate(filter(None, os.environ.get("FEEDWATER_PHOTOS", "").split(":"))):
        yield photos, classed(photos, os.path.join(options.cache, f"own-{os.getpid()}-{number}"))


def classed(photos, folder):
    """Returns a folder with links to all JPEGs below `photos` in a single sub-folder, as the peers' sources require."""
    shutil.rmtree(folder, ignore_errors=True)
    files = sorted(os.path.join(parent, name) for parent, _, names in os.walk(os.path.abspath(photos), followlinks=True)
                   for name in names if name.lower().endswith((".jpg", ".jpeg")))
    if not files:
        sys.exit(f"FEEDWATER_PHOTOS: no JPEG below {photos}")
    os.makedirs(os.path.join(folder, "photos"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for number, file in enumerate(files):
        os.symlink(file, os.path.join(folder, "photos", f"{number:07}{os.path.splitext(file)[1].lower()}"))
    return folder


def open_device(options):
    """Returns "gpu" or "cpu", and the memory of GPU 0, or None if the memory cannot be read."""
    if options.device == "cpu":
        return "cpu", None
    try:
        return "gpu", measure.DeviceMemory()
    except (AttributeError, OSError) as error:
        if measure.has_gpu():
            print(f"the table has no device memory: {error}")
            return "gpu", None
        if options.device == "gpu":
            sys.exit(f"no GPU: {error}")
        print(f"no GPU, comparing the CPU paths: {error}")
        return "cpu", None


def processor():
    """Returns the processor's name."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        return next((line.split(": ", 1)[1].strip() for line in file if line.startswith("model name")), "unknown")


def words(settings):
    """Formats settings in one line."""
    return ", ".join(f"{key} {value}" for key, value in settings.items() if value is not None)


def arguments():
    """Parses the command line."""
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(REPOSITORY, "target"))
    parser = argparse.ArgumentParser(description="feedwater and its peers on the same job; see README.md beside this file")
    parser.add_argument("--data", help="a folder with one sub-folder of JPEGs per class, instead of synthetic images")
    parser.add_argument("--images", type=int, default=2000, help="number of images of a set; of 2048x1536 an eighth of it")
    parser.add_argument("--sets", type=lambda it: it.split(",") if it else [], default=["imagenet-like"],
                        help=f"{','.join(SETS)}; default: imagenet-like. FEEDWATER_PHOTOS=DIR:DIR adds own files")
    parser.add_argument("--cache", default=os.path.join(target, "peers"), help="folder for the images")
    parser.add_argument("--feedwater", default=os.path.join(target, "release", "feedwater"), help="the program")
    parser.add_argument("--peers", type=lambda it: it.split(","), default=list(PEERS), help=",".join(PEERS))
    parser.add_argument("--device", choices=["auto", "cpu", "gpu"], default="auto")
    parser.add_argument("--batch", type=int, help="default: 256 on a GPU, 64 on the CPU")
    parser.add_argument("--epochs", type=int, help="measured epochs per run; default: until 3 seconds have passed")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--fixed", action="store_true", help="one or two settings per peer instead of a search")
    parser.add_argument("--timeout", type=float, default=600, help="seconds after which a run counts as failed")
    parser.add_argument("--json", metavar="FILE", help="write every figure of every round to FILE, after each run")
    options = parser.parse_args()
    for name in options.peers:
        if name not in PEERS:
            parser.error(f"--peers: {name} is not one of {', '.join(PEERS)}")
    for name in options.sets:
        if name not in SETS:
            parser.error(f"--sets: {name} is not one of {', '.join(SETS)}")
    if not options.data and options.sets and not os.access(options.feedwater, os.X_OK):
        parser.error(f"no program at {options.feedwater}, which creates the images: cargo build --release -p feedwater-cli, or --feedwater")
    return options


if __name__ == "__main__":
    main()
