"""A theoretical model of feedwater on 1 to 1,024 GPUs. It computes which resource saturates first,
what loading costs, and which placement of the files and of the loading work is the cheapest.

    python3 benches/scale_model.py                                  # prints the tables of docs/distributed.md
    python3 benches/scale_model.py --write docs/distributed.md      # writes them into the page
    python3 benches/scale_model.py --inputs mine.toml               # with your own inputs

The inputs and their sources are in scale_model.toml beside this file. docs/distributed.md explains
the formulas. The program needs only Python 3.11. Unless a name states its unit, rates are per
second, times are in seconds, and sizes are in bytes.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
GPUS = (1, 2, 4, 8, 64, 256, 1024)
#: Sections of the inputs for the kinds of images, with the names that the tables use for them.
IMAGES = {"photo": "500x375", "camera": "2048x1536"}
PLACEMENTS = ("direct", "cpu machines", "cached", "copied", "packed small")
KEYS = {"value", "low", "high", "unit", "kind", "source"}
KINDS = {"measured", "computed", "published", "assumption"}


@dataclass(frozen=True)
class Outcome:
    """Loads and cost of one placement of the loading work, for one number of GPUs and one kind of
    images."""

    placement: str
    #: Utilization of each resource if the GPUs did not wait. If a utilization is above 1, the GPUs wait for that resource.
    loads: dict[str, float]
    #: Cost of waiting GPUs, CPU machines, requests to the storage, and transferred bytes, in dollars per million images.
    dollars: float
    #: Number of cores that loading uses on all GPU machines together, and number of CPU machines.
    cores: float
    cpu_machines: float
    #: Why the placement cannot be used. Empty if it can be used.
    refused: str = ""

    @property
    def first(self) -> str:
        """The resource that saturates first."""
        return max(self.loads, key=lambda name: self.loads[name])

    @property
    def load(self) -> float:
        return self.loads[self.first]


class Inputs:
    """The values of the inputs file."""

    def __init__(self, sections: dict[str, dict[str, dict[str, Any]]]) -> None:
        for section, entries in sections.items():
            for name, entry in entries.items():
                if set(entry) != KEYS:
                    raise ValueError(f"{section}.{name} has the keys {sorted(entry)}, but must have exactly the keys {sorted(KEYS)}")
                if entry["kind"] not in KINDS:
                    raise ValueError(f"{section}.{name}: kind is {entry['kind']!r}, but must be one of {sorted(KINDS)}")
                if not entry["low"] <= entry["value"] <= entry["high"]:
                    raise ValueError(f"{section}.{name}: the value {entry['value']} is not between low ({entry['low']}) and high ({entry['high']})")
        self.sections = sections

    def __call__(self, name: str) -> float:
        """Returns the value of `section.name`."""
        section, _, key = name.partition(".")
        return float(self.sections[section][key]["value"])

    def entries(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yields name and entry of each input."""
        for section, entries in self.sections.items():
            for name, entry in entries.items():
                yield f"{section}.{name}", entry

    def changed(self, name: str, value: float) -> Inputs:
        """Returns the same inputs with one changed value."""
        section, _, key = name.partition(".")
        sections = {it: dict(entries) for it, entries in self.sections.items()}
        sections[section][key] = {**sections[section][key], "value": value, "low": value, "high": value}
        return Inputs(sections)


def read(path: str) -> Inputs:
    """Reads an inputs file. Raises `ValueError` with the name of a wrong input."""
    with open(path, "rb") as file:
        return Inputs(tomllib.load(file))


def missed(machines: float, epochs: float) -> float:
    """Returns the share of all reads that miss the machines' caches. In each epoch, a machine reads
    another random part of the set. So after e epochs, the machine's cache lacks the share
    (1 - 1/machines)^e of the set."""
    if machines <= 1:
        return 1 / epochs
    lacking: float = (1 - 1 / machines) ** epochs
    return (1 - lacking) * machines / epochs


def outcome(inputs: Inputs, placement: str, gpus: int, kind: str) -> Outcome:
    """Computes the loads and the cost of a placement for a number of GPUs and a kind of images."""
    rate = gpus * inputs("model.rate_per_gpu")
    # If a job uses only some GPUs of a machine, it gets the same share of the machine's resources.
    share = gpus / inputs("gpu_machine.gpus")
    machines = max(1.0, share)
    epochs, images = inputs("model.epochs"), inputs("model.images")
    small = placement == "packed small"
    size = inputs(f"{kind}.packed_bytes" if small else f"{kind}.bytes")
    work = inputs(f"{kind}.packed_core_us" if small else f"{kind}.core_us") / 1e6
    request = inputs("network.request_us") / 1e6

    def moved(size: float) -> float:
        """Returns the core seconds that sending or receiving `size` bytes takes."""
        return 8 * size / (1e9 * inputs("network.gbit_per_core"))

    # Number of images that are read from storage per image that the model consumes.
    fetched = {"direct": 1.0, "cpu machines": 1.0, "cached": missed(machines, epochs)}.get(placement, 0.0)
    tensor = inputs("tensor.bytes")
    remote = placement == "cpu machines"
    arriving = tensor if remote else fetched * size
    core_seconds = moved(tensor) if remote else work + fetched * (request + moved(size))
    loads = {
        "cores of GPU machines": rate * core_seconds / (share * inputs("gpu_machine.cores")),
        "network of GPU machines": 8 * rate * arriving / (share * 1e9 * inputs("gpu_machine.nic_gbit")),
    }
    if fetched:
        loads["storage requests"] = rate * fetched / inputs("storage.requests")
        loads["storage bytes"] = 8 * rate * fetched * size / (1e9 * inputs("storage.gbit"))
    on_disk = placement in ("cached", "copied", "packed small")
    if on_disk:
        loads["disks of GPU machines"] = rate * size / (share * 1e9 * inputs("gpu_machine.disk_gb_per_s"))
    cpu_machines = 0.0
    if remote:
        seconds = work + request + moved(size) + moved(tensor)
        by_cores = inputs("cpu_machine.cores") / seconds
        by_network = 1e9 * inputs("cpu_machine.nic_gbit") / (8 * max(size, tensor))
        cpu_machines = rate / min(by_cores, by_network)

    # The GPUs wait if a resource is overloaded. They also wait while the set is copied to every machine.
    seconds = max(1.0, *loads.values())
    copies = machines if placement in ("copied", "packed small") else 0.0
    copying = 8 * copies * images * size / min(1e9 * inputs("storage.gbit"), share * 1e9 * inputs("gpu_machine.nic_gbit"))
    waiting = (seconds - 1) / rate + copying / (epochs * images)
    bytes_from_storage = fetched * size + copies * size / epochs
    dollars = 1e6 * (
        waiting * share * inputs("gpu_machine.dollars_per_hour") / 3600
        + seconds / rate * cpu_machines * inputs("cpu_machine.dollars_per_hour") / 3600
        + fetched * inputs("storage.dollars_per_million_requests") / 1e6
        + (bytes_from_storage + (tensor if remote else 0)) * inputs("storage.dollars_per_gb") / 1e9
    )
    too_large = on_disk and images * size > min(1.0, share) * 1e12 * inputs("gpu_machine.disk_tb")
    refused = "set larger than disks" if too_large else ""
    return Outcome(placement, loads, dollars, rate * core_seconds, cpu_machines, refused)


def cheapest(inputs: Inputs, gpus: int, kind: str, placements: tuple[str, ...] = PLACEMENTS) -> Outcome:
    """Returns the cheapest usable placement. Of equally cheap ones, returns the first."""
    found = [outcome(inputs, placement, gpus, kind) for placement in placements]
    return min((it for it in found if not it.refused), key=lambda it: round(it.dollars, 4))


def tables(inputs: Inputs) -> dict[str, str]:
    """Returns all tables of docs/distributed.md, by name."""
    made = {"inputs": inputs_table(inputs)}
    for kind in IMAGES:
        made[f"demand-{kind}"] = demand_table(inputs, kind)
        made[f"saturation-{kind}"] = saturation_table(inputs, kind)
        made[f"cost-{kind}"] = cost_table(inputs, kind)
    made["rates"] = rates_table(inputs)
    made["sensitivity"] = sensitivity_table(inputs)
    return made


def inputs_table(inputs: Inputs) -> str:
    lines = [[f"`{name}`", f"{number(entry['value'])} {entry['unit']}", f"{number(entry['low'])} to {number(entry['high'])}",
              entry["kind"], entry["source"]] for name, entry in inputs.entries()]
    return markdown(["input", "value", "range", "kind", "source"], lines)


def demand_table(inputs: Inputs, kind: str) -> str:
    """Returns the table of the images/s, cores, machines and bandwidth that each number of GPUs
    needs."""
    lines = []
    for gpus in GPUS:
        rate = gpus * inputs("model.rate_per_gpu")
        at = {placement: outcome(inputs, placement, gpus, kind) for placement in PLACEMENTS}
        per_machine = rate / max(1.0, gpus / inputs("gpu_machine.gpus"))
        gbit = 8 * per_machine / 1e9
        lines.append([number(gpus), number(rate), number(at["direct"].cores), number(at["packed small"].cores),
                      number(at["cpu machines"].cores), number(at["cpu machines"].cpu_machines), number(8 * rate * inputs(f"{kind}.bytes") / 1e9),
                      number(gbit * inputs(f"{kind}.bytes")), number(gbit * inputs("tensor.bytes")),
                      number(per_machine * inputs("network.latency_ms") / 1e3)])
    return markdown(["GPUs", "images/s", "cores, direct", "cores, packed small", "cores, receiving tensors", "CPU machines",
                     "storage Gb/s, direct", "Gb/s per GPU machine, encoded", "Gb/s per GPU machine, tensors",
                     "requests in flight per GPU machine"], lines)


def saturation_table(inputs: Inputs, kind: str) -> str:
    """Returns the table of the resource that saturates first and its utilization, by GPUs and
    placement."""
    lines = []
    for gpus in GPUS:
        cells = []
        for placement in PLACEMENTS:
            it = outcome(inputs, placement, gpus, kind)
            text = it.refused or f"{it.first}, {100 * it.load:.0f} %"
            cells.append(f"**{text}**" if it.load > 1 and not it.refused else text)
        lines.append([number(gpus), *cells])
    return markdown(["GPUs", *PLACEMENTS], lines)


def cost_table(inputs: Inputs, kind: str) -> str:
    """Returns the table of dollars per million images, in addition to the GPUs' own cost."""
    price = inputs("gpu_machine.dollars_per_hour") / inputs("gpu_machine.gpus") / 3600 * 1e6 / inputs("model.rate_per_gpu")
    lines = []
    for gpus in GPUS:
        found = [outcome(inputs, placement, gpus, kind) for placement in PLACEMENTS]
        cells = ["-" if it.refused else f"{it.dollars:.2f}" for it in found]
        lines.append([number(gpus), f"{price:.2f}", *cells, cheapest(inputs, gpus, kind).placement, exact(inputs, gpus, kind)])
    return markdown(["GPUs", "the GPUs' own", *PLACEMENTS, "cheapest", "cheapest with unchanged files"], lines)


def rates_table(inputs: Inputs) -> str:
    """Returns the table of the cheapest placement that leaves the files unchanged, for three rates
    per GPU."""
    entry = inputs.sections["model"]["rate_per_gpu"]
    lines = []
    for kind, title in IMAGES.items():
        for rate in (entry["low"], entry["value"], entry["high"]):
            changed = inputs.changed("model.rate_per_gpu", rate)
            cells = []
            for gpus in GPUS:
                it = cheapest(changed, gpus, kind, PLACEMENTS[:-1])
                cells.append(f"{it.placement}, {it.dollars:.2f}" + (f" (waits: {it.first})" if it.load > 1 else ""))
            lines.append([title, number(rate), *cells])
    return markdown(["images", "images/s per GPU", *(f"{number(gpus)} GPUs" if gpus > 1 else "1 GPU" for gpus in GPUS)], lines)


def sensitivity_table(inputs: Inputs) -> str:
    """Returns the table of inputs whose lowest or highest value makes another placement the
    cheapest. Considers only placements that leave the files unchanged."""
    lines = []
    for name, entry in inputs.entries():
        for value in (entry["low"], entry["high"]):
            if value == entry["value"]:
                continue
            changed = inputs.changed(name, value)
            for kind, title in IMAGES.items():
                for gpus in (8, 64, 1024):
                    before, after = exact(inputs, gpus, kind), exact(changed, gpus, kind)
                    if before != after:
                        lines.append([f"`{name}`", f"{number(value)} {entry['unit']}", title, number(gpus), before, after,
                                      cheapest(changed, gpus, kind).placement])
    return markdown(["input", "instead", "images", "GPUs", "cheapest before", "cheapest then", "of all placements then"], lines)


def exact(inputs: Inputs, gpus: int, kind: str) -> str:
    """Returns the cheapest placement that leaves the files, and so the pixels, unchanged."""
    return cheapest(inputs, gpus, kind, PLACEMENTS[:-1]).placement


def number(value: float) -> str:
    """Formats a number with at most three significant digits and thousands separators."""
    if value == int(value) and abs(value) < 1e6:
        return f"{int(value):,}"
    if abs(value) >= 1e6:
        return f"{value / 1e6:,.3g} million" if abs(value) < 1e9 else f"{value / 1e9:,.3g} billion"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def markdown(titles: list[str], lines: list[list[str]]) -> str:
    rows = ["| " + " | ".join(row) + " |" for row in [titles, ["---"] * len(titles), *lines]]
    return "\n".join(rows)


def filled(page: str, made: dict[str, str]) -> str:
    """Returns the page with all tables filled in. Each table stands between an HTML comment with
    its name and the comment `<!-- end -->`. Raises `ValueError` if the page names a table that does
    not exist, or does not name one that exists."""
    seen = set()

    def table(match: re.Match[str]) -> str:
        name = match[1]
        if name not in made:
            raise ValueError(f"the page names the table {name!r}, which does not exist; name one of {', '.join(made)}")
        seen.add(name)
        return f"<!-- scale_model: {name} -->\n\n{made[name]}\n\n<!-- end -->"

    page = re.sub(r"<!-- scale_model: (\S+) -->.*?<!-- end -->", table, page, flags=re.DOTALL)
    if set(made) - seen:
        raise ValueError(f"the page has no place for the tables {', '.join(sorted(set(made) - seen))}; add the comments `<!-- scale_model: NAME -->` and `<!-- end -->` for each")
    return page


def main() -> None:
    parser = argparse.ArgumentParser(description="a model of loading images for 1 to 1,024 GPUs; see docs/distributed.md")
    parser.add_argument("--inputs", default=os.path.join(HERE, "scale_model.toml"), help="default: scale_model.toml beside this program")
    parser.add_argument("--write", metavar="PAGE", help="puts the tables into this page instead of printing them")
    options = parser.parse_args()
    try:
        made = tables(read(options.inputs))
        if options.write:
            with open(options.write, encoding="utf-8") as file:
                page = filled(file.read(), made)
            with open(options.write, "w", encoding="utf-8") as file:
                file.write(page)
            return
    except (OSError, KeyError, ValueError) as error:
        sys.exit(f"{type(error).__name__}: {error}")
    for name, table in made.items():
        print(f"{name}\n\n{table}\n")


if __name__ == "__main__":
    main()
