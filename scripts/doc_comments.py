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
    # Whether the setting accepts a single value in place of a list.
    is_one_or_each: bool


class Described(NamedTuple):
    """An operator or a source, with its settings."""

    key: str
    type: str
    doc: str
    settings: list


def operators():
    """Yields the name of each folder of src/op/ with its operators, in the order of the list in
    src/op/mod.rs. The name of src/op/ itself is empty. The folder `batch` is last."""
    alone, folders = listed("operators", OPERATORS / "mod.rs").split(";", 1)
    groups = [("", alone)] + re.findall(r"(\w+)(?: \[[\w, ]+\])? \{(.*?)\}", folders, re.S)
    groups.append(("batch", listed("batch_operators", OPERATORS / "batch" / "mod.rs")))
    for folder, names in groups:
        modules = re.findall(r"(\w+)::(\w+)", names)
        yield folder, [operator(file(OPERATORS / folder, module), name) for module, name in modules]


def file(folder, module):
    """Returns the file of an operator's module: MODULE.rs, or MODULE/mod.rs."""
    path = folder / f"{module}.rs"
    return path if path.is_file() else folder / module / "mod.rs"


def operator(path, name):
    """Returns the operator that is defined as the struct `name` in a file."""
    source = path.read_text()
    doc, settings = struct(source, name)
    return Described(re.search(r"const NAME: &'static str = \"(\w+)\";", source)[1], name, doc, settings)


def sources():
    """Yields the sources in the order of the list in src/source/mod.rs. The settings of a source
    are the struct in its files whose name ends in `Settings`."""
    for module, name in re.findall(r"(\w+)::(\w+)", listed("sources", SOURCES / "mod.rs")):
        files = [SOURCES / f"{module}.rs", *sorted((SOURCES / module).glob("*.rs"))]
        text = "\n".join(file.read_text() for file in files if file.is_file())
        doc = re.search(rf"((?:^///[^\n]*\n)+)(?:^#\[[^\n]*\n)*^pub (?:struct|type) {name}\b", text, re.M)[1]
        settings = re.search(r"^pub struct (\w+Settings) \{", text, re.M)[1]
        key = re.search(r"const KEY: &'static str = \"(\w+)\";", text)[1]
        yield Described(key, name, comment(doc.splitlines()), struct(text, settings)[1])


def struct(source, name):
    """Returns the doc comment of a struct and its settings, which are its fields. If serde converts
    the struct from another struct (`serde(from = ...)`), the settings are the fields of the other
    struct."""
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
    """Returns the values that an enum has in a pipeline file: the names of its variants in lower
    case."""
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
