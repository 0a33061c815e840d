#!/usr/bin/env python3
"""Applies each mutation of mutations.toml to a scratch copy of the repository, and runs tests until one fails.

    tests/mutations/run.py [--only NAME]... [--target-dir FOLDER] [--env NAME=VALUE]... [--limit SECONDS]
    tests/mutations/run.py --list

The scratch copy is a git worktree of HEAD in the target directory (TARGET/mutations/tree, which is kept for the next
run). Uncommitted changes are not tested, and the user's files are never changed. Results are written to RESULTS.md.
With --only, only the rows of the named mutations change. The output of each mutation is in TARGET/mutations/NAME.log.

A mutation is killed by the first test that fails, ends the test program or exceeds the time limit.
A mutation that does not compile proves nothing, and mutations.toml must be corrected. Mutations
with `device_code = true` do not affect kernels that are compiled for the host. They run only with
`--env` variables that make the tests execute code compiled for the device.

Needs Python 3.11, git and cargo. A full run takes more than an hour.
"""

import argparse
import dataclasses
import fcntl
import os
import pathlib
import queue
import re
import signal
import subprocess
import sys
import threading
import time
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
RESULTS = HERE / "RESULTS.md"
SURVIVED = "survived"
STARTED = re.compile(r"^test (\S+)(?: - should panic)? \.\.\. ?(.*)")


@dataclasses.dataclass
class Mutation:
    name: str
    file: str
    old: str
    new: str
    breaks: str
    group: str
    tests: list[str] = dataclasses.field(default_factory=list)
    survives: str = ""
    device_code: bool = False


@dataclasses.dataclass
class Result:
    """`killed_by` is the test that killed the mutation. `problem` is the reason why the run proved
    nothing. If both fields are empty, the mutation survived all tests."""

    killed_by: str = ""
    problem: str = ""


def main():
    parser = argparse.ArgumentParser(description="See the top of this file.")
    parser.add_argument("--only", action="append", metavar="NAME", help="run this mutation only; repeatable")
    parser.add_argument("--list", action="store_true", help="list the mutations without running them")
    parser.add_argument("--target-dir", type=pathlib.Path, default=ROOT / "target")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="variable of the tests; repeatable")
    parser.add_argument("--limit", type=float, default=300, metavar="SECONDS", help="time limit of one test program, by default 300")
    options = parser.parse_args()

    groups, mutations = read_list()
    by_name = {it.name: it for it in mutations}
    unknown = set(options.only or []) - by_name.keys()
    if unknown:
        sys.exit(f"no such mutation: {', '.join(sorted(unknown))}")
    chosen = [by_name[name] for name in options.only] if options.only else mutations
    if options.list:
        for it in chosen:
            print(f"{it.name:32} {it.file:42} {it.breaks}")
        return

    environment = dict(pair.split("=", 1) for pair in options.env)
    runner = Runner(groups, options.target_dir.resolve(), environment, options.limit)
    for it in chosen:
        check(it, runner.tree)
    if not options.only:
        runner.must_pass_unchanged()
    rows = {} if not options.only else read_results()
    failed = False
    for it in chosen:
        if it.device_code and not environment:
            rows.setdefault(it.name, "not run: needs code compiled for the device")
            continue
        begin = time.monotonic()
        result = runner.run(it)
        rows[it.name] = outcome(it, result)
        print(f"{it.name}: {rows[it.name]} ({time.monotonic() - begin:.0f} s)", flush=True)
        failed |= bool(result.problem) or not (result.killed_by or it.survives)
        write_results(mutations, rows)
    write_results(mutations, rows)
    sys.exit(failed)


def read_list():
    """Returns the test programs of each group, and all mutations."""
    table = tomllib.loads((HERE / "mutations.toml").read_text())
    return table["groups"], [Mutation(**it) for it in table["mutation"]]


def check(it, tree):
    """Ends the program unless the old text occurs exactly once in the file."""
    count = (tree / it.file).read_text().count(it.old)
    if count != 1 or it.old == it.new:
        sys.exit(f"{it.name}: the old text occurs {count} times in {it.file}, or equals the new one")


def outcome(it, result):
    if result.problem:
        return f"**error**: {result.problem}"
    if result.killed_by:
        return f"killed by {result.killed_by}"
    return SURVIVED


class Runner:
    def __init__(self, groups, target, environment, limit):
        self.groups, self.limit = groups, limit
        self.logs = target / "mutations"
        self.tree = self.logs / "tree"
        variables = {"CARGO_TARGET_DIR": str(target), "CARGO_INCREMENTAL": "1"}
        self.environment = os.environ | variables | environment
        self.logs.mkdir(parents=True, exist_ok=True)
        self.lock = (self.logs / "lock").open("w")
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit(f"another run uses {self.logs}")
        head = git(ROOT, "rev-parse", "HEAD")
        if not self.tree.exists():
            git(ROOT, "worktree", "prune")
            git(ROOT, "worktree", "add", "--detach", str(self.tree), head)
        git(self.tree, "checkout", "--quiet", "--detach", "--force", head)

    def must_pass_unchanged(self):
        """Ends the program if a test fails without any mutation."""
        with (self.logs / "unchanged.log").open("w") as log:
            for test in dict.fromkeys(sum(self.groups.values(), [])):
                result = self.test(test, log)
                if result.killed_by or result.problem:
                    sys.exit(f"without a mutation: {result}")

    def run(self, it):
        """Mutates the file. Runs the tests that the mutation names, and then the rest of the mutation's group, until one fails."""
        path = self.tree / it.file
        text = path.read_text()
        path.write_text(text.replace(it.old, it.new))
        try:
            with (self.logs / f"{it.name}.log").open("w") as log:
                for test in dict.fromkeys(it.tests + self.groups[it.group]):
                    result = self.test(test, log)
                    if result.killed_by or result.problem:
                        return result
        finally:
            path.write_text(text)
        return Result()

    def test(self, test, log):
        """Builds and runs one test program. `test` is written as in `groups`: `lib` or the name of a test program, then
        filters."""
        program, *filters = test.split()
        target = ["--lib"] if program == "lib" else ["--test", program]
        build = ["cargo", "test", "--workspace", "--quiet", "--no-run", *target]
        built = subprocess.run(build, cwd=self.tree, env=self.environment, stdout=log, stderr=subprocess.STDOUT)
        if built.returncode:
            return Result(problem=f"{program} does not compile")
        run = ["cargo", "test", "--workspace", *target, "--", "--nocapture", "--test-threads=1", *filters]
        return Watched(run, self, program, log).result()


class Watched:
    """A running test program. Its output is read line by line, so that it can be ended at the first failure."""

    def __init__(self, command, runner, program, log):
        self.program, self.log = program, log
        self.end = time.monotonic() + runner.limit
        self.process = subprocess.Popen(
            command, cwd=runner.tree, env=runner.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace", start_new_session=True)
        self.lines = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def result(self):
        """Reads the output until the first failure. With one thread, libtest prints `test NAME ... `, then the output
        of the test, then `ok` or `FAILED`."""
        current = None
        try:
            while (line := self.lines.get(timeout=max(0, self.end - time.monotonic()))) is not None:
                self.log.write(line)
                if line.startswith("test result:"):
                    continue
                ended = line.strip()
                if started := STARTED.match(line):
                    current, ended = started[1], started[2].strip()
                if "the CUDA source does not compile" in line:
                    return Result(problem="the kernel does not compile, maybe for a warning")
                if ended == "FAILED":
                    return Result(killed_by=f"`{self.program}`: `{current}`")
                if ended == "ok" or ended.startswith("ignored"):
                    current = None
            if self.process.wait() == 0:
                return Result()
        except queue.Empty:
            return Result(killed_by=f"`{self.program}`: `{current}`, by the time limit")
        finally:
            self.stop()
        if current:
            return Result(killed_by=f"`{self.program}`: `{current}`, which ended the program")
        return Result(problem=f"{self.program} failed, and named no test")

    def stop(self):
        """Kills the processes of this test program, but no others."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def git(folder, *arguments):
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout.strip()


def read_results():
    """Returns the result of each mutation in RESULTS.md."""
    rows = {}
    for line in RESULTS.read_text().splitlines() if RESULTS.exists() else []:
        cells = [it.strip() for it in line.strip("|").split(" | ")]
        if line.startswith("| `") and len(cells) == 4:
            rows[cells[0].strip("`")] = SURVIVED if SURVIVED in cells[3] else cells[3]
    return rows


def explained(it, row):
    if row != SURVIVED:
        return row
    return f"{SURVIVED}: {it.survives}" if it.survives else f"**{SURVIVED}**"


def write_results(mutations, rows):
    found = [explained(it, rows.get(it.name, "not run")) for it in mutations]
    count = lambda word: sum(it.lstrip("*").startswith(word) for it in found)
    lines = [
        "# Mutations of the GPU path",
        "",
        "Written by `tests/mutations/run.py`, which describes how. The texts are in `mutations.toml`.",
        "",
        f"{len(found)} mutations: {count('killed')} killed, {count('survived')} survived, {count('not run')} not run, "
        f"{count('error')} errors.",
        "",
        "| mutation | file | what it breaks | result |",
        "|---|---|---|---|",
    ]
    lines += [f"| `{it.name}` | {it.file} | {it.breaks} | {row} |" for it, row in zip(mutations, found)]
    RESULTS.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
