"""Class names of loaders and of their states."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .errors import ConfigError

if TYPE_CHECKING:
    from .loader import Loader

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
        names = classes_of.get("classes", ())
    elif isinstance(classes_of, Sequence):
        names = classes_of
    else:
        # An object that wraps a loader may have the loader's class names in its attribute `classes`.
        names = getattr(classes_of, "classes", None)
        if names is None:
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
        if isinstance(number, bool) or numbers[name] < 0:
            raise ConfigError(f"class {name!r} has the number {number!r}; it must be a whole number, 0 or more", key="classes")
    return numbers


def check_classes(saved: Sequence[str] | None, classes: Sequence[str]) -> None:
    """Raises an error if the state was saved with other class names."""
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
