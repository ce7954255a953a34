"""Pictures: SVG that notebooks show and files hold."""

from __future__ import annotations

import html
from pathlib import Path


class Picture:
    """A chart. A notebook shows it; ``save`` writes it as SVG."""

    def __init__(self, svg: str, title: str) -> None:
        self.svg = svg
        self.title = title

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | Path) -> None:
        """Writes the picture as an SVG file."""
        Path(path).write_text(self.svg, encoding="utf-8")

    def __repr__(self) -> str:
        return f"<rdusim.Picture {self.title!r}, {len(self.svg)} bytes of SVG>"


def preformatted(text: str) -> str:
    """A text table as HTML, its columns as they are."""
    return f'<pre style="line-height: 1.25; overflow-x: auto">{html.escape(text)}</pre>'


def framed(page: str, height: int = 720) -> str:
    """A page of its own inside another: its style and scripts touch nothing around it."""
    return (
        f'<iframe srcdoc="{html.escape(page, quote=True)}" sandbox="allow-scripts" '
        f'style="width: 100%; height: {height}px; border: 1px solid #ccc"></iframe>'
    )
