"""The report on the bottleneck of a training loop, and on settings that would speed it up."""

from __future__ import annotations

import json
import os
from typing import Any

__all__ = ["Report"]


class Report:
    """The report on a loop up to now. ``str`` returns the text that ``feedwater explain`` prints; Jupyter shows the HTML page."""

    def __init__(self, text: str, data: str, html: str) -> None:
        self._text = text
        self._data = data
        #: The report as a self-contained HTML document.
        self.html = html

    @property
    def data(self) -> dict[str, Any]:
        """The report as ``feedwater explain --json`` writes it."""
        data: dict[str, Any] = json.loads(self._data)
        return data

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the HTML page to a file."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.html)

    def __str__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        # Put the page into a frame. Otherwise its style sheet would change the notebook.
        page = self.html.replace("&", "&amp;").replace('"', "&quot;")
        return f'<iframe srcdoc="{page}" style="width: 100%; height: 640px; border: 0"></iframe>'
