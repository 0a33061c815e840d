"""Writes settings as TOML for the compiled part."""

from __future__ import annotations

import os
import urllib.parse
from collections.abc import Iterable, Mapping
from typing import Any

#: Maximum depth of lists and tables in a setting. A list that contains itself is deeper.
_DEEPEST = 64
#: Depth up to which errors name the keys around a value.
_NAMED = 8
#: Types whose values cannot change.
_PLAIN = (bool, int, float, str, bytes, type(None))


def kept(item: Any, depth: int = 0) -> Any:
    """Returns a copy of a setting's value, which later changes of the program's lists and arrays do not change. Arrays become lists, and so do
    iterators, because they can be read only once."""
    if type(item) in _PLAIN or isinstance(item, (str, bytes, os.PathLike, type)):
        return item
    if hasattr(item, "tolist"):
        return item.tolist()
    if depth > _DEEPEST:
        raise ValueError(f"a setting has more than {_DEEPEST} levels of lists and tables, or contains itself; give lists of numbers, texts or operators")
    if isinstance(item, Mapping):
        return {key: kept(value, depth + 1) for key, value in item.items()}
    if callable(getattr(item, "settings", None)) or not isinstance(item, Iterable):
        return item
    items = [it if type(it) in _PLAIN else kept(it, depth + 1) for it in item]
    return tuple(items) if isinstance(item, tuple) else items


def table(settings: Mapping[str, Any], depth: int = 0) -> str:
    """Returns a table as TOML: ``{a = 1, b = "c"}``. Settings that are ``None`` are omitted."""
    pairs = []
    for key, item in settings.items():
        if item is None:
            continue
        try:
            # `str` of an enumeration member is not the member's text.
            pairs.append(f"{text(key if isinstance(key, str) else str(key))} = {value(item, depth + 1)}")
        except (TypeError, OverflowError, ValueError) as problem:
            # Name the key, except in errors with more fields than a message.
            if type(problem) not in (TypeError, OverflowError, ValueError) or depth > _NAMED:
                raise
            raise type(problem)(f"{key}: {problem}") from None
    return "{" + ", ".join(pairs) + "}"


def value(item: Any, depth: int = 0) -> str:
    """Returns a value as TOML. ``depth``: number of lists and tables around it."""
    if depth > _DEEPEST:
        raise ValueError(f"the value has more than {_DEEPEST} levels of lists and tables, or contains itself")
    if isinstance(item, bool):
        return "true" if item else "false"
    if isinstance(item, int):
        if not -(2**63) <= item < 2**63:
            shown = int.__repr__(item) if item.bit_length() <= 256 else f"a number of {item.bit_length()} bits"
            raise OverflowError(f"must be an integer from {-(2**63)} to {2**63 - 1}, is {shown}")
        # `str` of an enumeration member is not its number.
        return int.__repr__(item)
    if isinstance(item, float):
        return decimal(item)
    if isinstance(item, (str, bytes, os.PathLike)):
        return text(os.fspath(item))
    if isinstance(item, Mapping):
        return table(item, depth)
    if isinstance(item, type):
        raise TypeError(f"{item!r} is a class, which no setting accepts")
    settings = getattr(item, "settings", None)
    if callable(settings):
        written: Any = settings()
        return table(written, depth)
    # Any other item must be a list, a tuple or an array of NumPy.
    if hasattr(item, "tolist"):
        return value(item.tolist(), depth)
    try:
        items = iter(item)
    except TypeError:
        kind = type(item).__name__
        raise TypeError(f"{item!r} is a {kind}, which no setting accepts") from None
    return "[" + ", ".join(value(it, depth + 1) for it in items) + "]"


def decimal(item: float) -> str:
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
        try:
            item = "file://" + urllib.parse.quote(os.fsencode(os.path.abspath(item)))
        except UnicodeEncodeError:
            raise ValueError(f"the text {item!r} is not valid Unicode; use only valid Unicode, or a path from os.fsdecode") from None
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
