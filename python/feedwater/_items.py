"""Values of the items of a sequence in Python, in a form that the Rust part reads."""

from __future__ import annotations

from typing import Any

#: Modes of Pillow whose arrays are images as they are.
_MODES = ("L", "RGB", "RGBA", "I;16", "F")


def pixels(image: Any) -> Any:
    """Returns an image of Pillow whose array has the meaning of an image: indices become colours, and other colour spaces
    red, green and blue."""
    if image.mode in _MODES:
        return image
    has_alpha = "A" in image.getbands() or "transparency" in image.info
    return image.convert("RGBA" if has_alpha else "RGB")


def plain(value: Any) -> Any:
    """Returns the Python value of an array, a number of NumPy or PyTorch, or bytes, for JSON."""
    if isinstance(value, (bytes, bytearray)):
        return value.decode()
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a value of the type {type(value).__name__} is neither a number, a text, bytes, an array, nor a list or dictionary of such values")
