"""Reads operators and sources with their settings from the doc comments in src/, for scripts that write references."""

import functools
import pathlib
import re
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parent.parent
OPERATORS = ROOT / "src" / "op"
SOURCES = ROOT / "src" / "source"


class Setting(NamedTuple):
    name: str
    rust: str
    doc: str
    is_required: bool
    # Whether one value may stand for a list.
    is_one_or_each: bool


class Described(NamedTuple):
    """An operator or a source, with its settings."""

    key: str
    type: str
    doc: str
    settings: list


def operators():
    """Yields pairs of a folder of src/op/ (empty for src/op/ itself) and its operators, in the order of the lists.
    `batch` is last."""
    alone, folders = listed("operators", OPERATORS / "mod.rs").split(";", 1)
    groups = [("", alone)] + re.findall(r"(\w+)(?: \[[\w, ]+\])? \{(.*?)\}", folders, re.S)
    groups.append(("batch", listed("batch_operators", OPERATORS / "batch" / "mod.rs")))
    for folder, names in groups:
        modules = re.findall(r"(\w+)::(\w+)", names)
        yield folder, [operator(file(OPERATORS / folder, module), name) for module, name in modules]


def file(folder, module):
    """The file of an operator: its own, or the first of its folder."""
    path = folder / f"{module}.rs"
    return path if path.is_file() else folder / module / "mod.rs"


def operator(path, name):
    """Returns the operator that is the struct `name` of a file."""
    source = path.read_text()
    doc, settings = struct(source, name)
    return Described(re.search(r"const NAME: &'static str = \"(\w+)\";", source)[1], name, doc, settings)


def sources():
    """Yields the sources in the order of their list. The settings of each are a struct whose name ends in
    `Settings`."""
    for module, name in re.findall(r"(\w+)::(\w+)", listed("sources", SOURCES / "mod.rs")):
        files = [SOURCES / f"{module}.rs", *sorted((SOURCES / module).glob("*.rs"))]
        text = "\n".join(file.read_text() for file in files if file.is_file())
        doc = re.search(rf"((?:^///[^\n]*\n)+)(?:^#\[[^\n]*\n)*^pub (?:struct|type) {name}\b", text, re.M)[1]
        settings = re.search(r"^pub struct (\w+Settings) \{", text, re.M)[1]
        key = re.search(r"const KEY: &'static str = \"(\w+)\";", text)[1]
        yield Described(key, name, comment(doc.splitlines()), struct(text, settings)[1])


def struct(source, name):
    """Returns the doc comment of a struct and its settings. If serde reads the struct from another one, the settings
    are the fields of that one."""
    pattern = rf"((?:^///[^\n]*\n)+)((?:^#\[[^\n]*\n)*)^(?:pub )?struct {name} (?:\{{(.*?)^\}}$|\{{\}}$)"
    found = re.search(pattern, source, re.M | re.S)
    if written := re.search(r"serde\(from = \"(\w+)\"", found[2]):
        return comment(found[1].splitlines()), struct(source, written[1])[1]
    all_optional = re.search(r"#\[serde\([^\]]*\bdefault\b", found[2]) is not None
    settings, doc, attributes = [], [], ""
    for line in (found[3] or "").splitlines():
        if line.strip().startswith("///"):
            doc.append(line)
        elif field := re.match(r"    (?:pub )?(\w+): (.+),$", line):
            if "serde(skip)" not in attributes:
                required = not all_optional and re.search(r"\bdefault\b", attributes) is None
                each = re.search(r"one_or_each|around_", attributes) is not None
                settings.append(Setting(field[1], field[2], comment(doc), required, each))
            doc, attributes = [], ""
        else:
            attributes += line
    return comment(found[1].splitlines()), settings


@functools.cache
def choices(name):
    """Returns the texts of an enum whose variants are written in lower case."""
    for path in sorted((ROOT / "src").rglob("*.rs")):
        pattern = rf"rename_all = \"lowercase\"[^\n]*\n(?:^#\[[^\n]*\n)*^pub enum {name} \{{(.*?)^\}}"
        if found := re.search(pattern, path.read_text(), re.M | re.S):
            return [variant.lower() for variant in re.findall(r"^    (\w+),$", found[1], re.M)]
    raise LookupError(f"no enum {name} in src/")


def comment(lines):
    """Returns the text of doc comments, without links of rustdoc."""
    text = "\n".join(line.strip().removeprefix("///").removeprefix(" ") for line in lines)
    return re.sub(r"\[(`[^`\]]+`)\](\([^)]*\))?", r"\1", text).strip()


def listed(macro, path):
    """Returns the arguments with which a macro is called."""
    return re.search(rf"^{macro}! \{{(.*?)^\}}", path.read_text(), re.M | re.S)[1]
