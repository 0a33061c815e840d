"""Class names of loaders and of their states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .errors import ConfigError

if TYPE_CHECKING:
    from .loader import Loader


def names_of(classes_of: Loader | Mapping[str, Any] | Sequence[str] | None) -> list[str] | None:
    """The class names of another loader, of a state, or of a list."""
    if classes_of is None:
        return None
    if isinstance(classes_of, str):
        raise TypeError("classes_of is a text; it is a loader, its state_dict() or a list of names. For a file: source.with_classes(path)")
    if isinstance(classes_of, Mapping):
        names = classes_of.get("classes", ())
    elif isinstance(classes_of, Sequence):
        names = classes_of
    else:
        # Wrappers of a loader have its names.
        names = getattr(classes_of, "classes", None)
        if names is None:
            raise TypeError(f"classes_of is a {type(classes_of).__name__}; it is a loader, its state_dict() or a list of names")
    names = [str(name) for name in names]
    if not names:
        raise ValueError("classes_of has no class names: its labels are the numbers in its data, which need no table")
    return names


def check_classes(saved: Sequence[str] | None, classes: Sequence[str]) -> None:
    """Raises an error if the state was saved with other class names."""
    if saved is None or not classes or list(saved) == list(classes):
        return
    differing = [number for number, (was, now) in enumerate(zip(saved, classes)) if was != now]
    number = differing[0] if differing else min(len(saved), len(classes))
    was, now = (repr(names[number]) if number < len(names) else "none" for names in (saved, classes))
    raise ConfigError(
        f"state.classes: class {number} was {was} and is {now} now, so labels would change their meaning; give the loader the names of "
        "the state by classes_of=state",
        key="state.classes",
    )
