"""Class names of loaders and of their states."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .errors import ConfigError

if TYPE_CHECKING:
    from .loader import Loader

#: Largest class number. It is limited because every smaller number needs memory for a name.
_MOST_NUMBER = (1 << 20) - 1
#: Allowed values of a loader's argument `classes_of`, as a text for messages.
_TAKEN = "a loader, its state_dict(), a list of class names, or a dictionary from class names to numbers"


def names_of(classes_of: Loader | Mapping[str, Any] | Sequence[str] | None) -> list[str] | dict[str, int] | None:
    """Returns the class names of a loader, a state or a list. For a mapping from names to numbers, returns the
    mapping."""
    if classes_of is None:
        return None
    if isinstance(classes_of, str):
        raise TypeError(f"classes_of is a string; it must be {_TAKEN}. For a file with class names use source.with_classes(path)")
    if isinstance(classes_of, Mapping):
        if classes_of and not isinstance(classes_of.get("state"), Mapping):
            return numbers_of(classes_of)
        names = classes_of.get("classes")
        _check_saved(names)
        names = names or ()
    elif isinstance(classes_of, Sequence):
        names = classes_of
    else:
        # An object that wraps a loader may have the loader's class names in its attribute `classes`.
        names = getattr(classes_of, "classes", None)
        if names is None or isinstance(names, (str, os.PathLike)):
            raise TypeError(f"classes_of is a {type(classes_of).__name__}; it must be {_TAKEN}")
    names = [name_of(name) for name in names]
    if not names:
        raise ValueError("classes_of has no class names, because its labels are only numbers; remove classes_of")
    return names


def name_of(name: Any) -> str:
    """Checks that a class name is a string of valid Unicode, and returns it."""
    if not isinstance(name, str):
        raise ConfigError(f"classes has the name {name!r}, which is a {type(name).__name__}; class names must be strings", key="classes")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"classes has the name {name!r}, which is not valid Unicode; use only names of valid Unicode", key="classes") from None
    return str(name)


def numbers_of(classes: Mapping[Any, Any]) -> dict[str, int]:
    """Checks a mapping from class names to class numbers, and returns it with the numbers as integers."""
    numbers = {}
    for name, number in classes.items():
        try:
            numbers[name_of(name)] = operator.index(number)
        except TypeError:
            numbers[name_of(name)] = -1
        if isinstance(number, bool) or not 0 <= numbers[name] <= _MOST_NUMBER:
            shown = number if not isinstance(number, int) or number.bit_length() <= 256 else f"a number of {number.bit_length()} bits"
            raise ConfigError(f"class {name!r} has the number {shown!r}; it must be a whole number from 0 to {_MOST_NUMBER}", key="classes")
    return numbers


def _check_saved(saved: Any) -> None:
    """Checks the entry ``classes`` of a state."""
    if saved is not None and (isinstance(saved, (str, bytes, Mapping)) or not isinstance(saved, Iterable)):
        raise ConfigError(f"the state's entry 'classes' is {saved!r}; pass the dictionary that state_dict() returned, unchanged", key="state.classes")


def check_classes(saved: Sequence[str] | None, classes: Sequence[str]) -> None:
    """Raises an error if the state was saved with other class names."""
    _check_saved(saved)
    if saved is None or not classes or list(saved) == list(classes):
        return
    differing = [number for number, (was, now) in enumerate(zip(saved, classes)) if was != now]
    number = differing[0] if differing else min(len(saved), len(classes))
    was, now = (repr(names[number]) if number < len(names) else "none" for names in (saved, classes))
    raise ConfigError(
        f"state.classes: class {number} was {was} and is {now} now, so labels would change their meaning; pass "
        "classes_of=state to keep the names of the state",
        key="state.classes",
    )
