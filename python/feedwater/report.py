"""The report on what limits a loop and what to change."""

from __future__ import annotations

import json
import os
from typing import Any

__all__ = ["Report"]


class Report:
    """The report on a run so far. ``str`` returns the text of ``feedwater explain``; Jupyter shows the page."""

    def __init__(self, text: str, data: str, html: str) -> None:
        self._text = text
        self._data = data
        #: The page as a self-contained HTML document.
        self.html = html

    @property
    def data(self) -> dict[str, Any]:
        """The report as ``feedwater explain --json`` writes it."""
        data: dict[str, Any] = json.loads(self._data)
        return data

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the page to a file."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.html)

    def __str__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        # Use a frame, so that the page's style does not change the notebook's.
        page = self.html.replace("&", "&amp;").replace('"', "&quot;")
        return f'<iframe srcdoc="{page}" style="width: 100%; height: 640px; border: 0"></iframe>'
