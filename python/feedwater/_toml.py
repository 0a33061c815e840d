"""Writes settings as TOML for the compiled part."""

from __future__ import annotations

import os
import urllib.parse
from collections.abc import Mapping
from typing import Any


def table(settings: Mapping[str, Any]) -> str:
    """Returns a table as TOML: ``{a = 1, b = "c"}``. Settings that are ``None`` are omitted."""
    pairs = []
    for key, item in settings.items():
        if item is None:
            continue
        try:
            pairs.append(f"{text(str(key))} = {value(item)}")
        except (TypeError, OverflowError) as problem:
            raise type(problem)(f"{key}: {problem}") from None
    return "{" + ", ".join(pairs) + "}"


def value(item: Any) -> str:
    """Returns a value as TOML."""
    if isinstance(item, bool):
        return "true" if item else "false"
    if isinstance(item, int):
        if not -(2**63) <= item < 2**63:
            raise OverflowError(f"{item} has more than 64 bits; the largest number that a setting accepts is {2**63 - 1}")
        return str(item)
    if isinstance(item, float):
        return number(item)
    if isinstance(item, (str, bytes, os.PathLike)):
        return text(os.fspath(item))
    if isinstance(item, Mapping):
        return table(item)
    settings = getattr(item, "settings", None)
    if callable(settings):
        written: Any = settings()
        return table(written)
    # Any other item must be a list, a tuple or an array of NumPy.
    if hasattr(item, "tolist"):
        return value(item.tolist())
    try:
        items = iter(item)
    except TypeError:
        kind = type(item).__name__
        raise TypeError(f"{item!r} is a {kind}, which no setting accepts") from None
    return "[" + ", ".join(value(it) for it in items) + "]"


def number(item: float) -> str:
    """Returns a float as TOML."""
    written = repr(float(item))
    return written if any(sign in written for sign in ".einf") else written + ".0"


def text(item: str | bytes) -> str:
    """Returns a text as TOML."""
    if isinstance(item, bytes):
        item = os.fsdecode(item)
    try:
        item.encode()
    except UnicodeEncodeError:
        # The text is a path from `os.fsdecode` whose bytes are not Unicode. TOML must be Unicode, so write the path as a URL.
        item = "file://" + urllib.parse.quote(os.fsencode(os.path.abspath(item)))
    out = ['"']
    for sign in item:
        if sign in '"\\':
            out.append("\\" + sign)
        elif ord(sign) < 32 or ord(sign) == 127:
            out.append(f"\\u{ord(sign):04x}")
        else:
            out.append(sign)
    out.append('"')
    return "".join(out)
