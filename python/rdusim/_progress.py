"""Progress of long work: a bar in a notebook or a terminal, nothing elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

Progress = bool | Callable[[int, int], object] | None

#: Seconds before a bar is shown: shorter work shows nothing.
_PATIENCE_S = 0.5


class _Bar:
    """A line on standard error that is drawn over itself."""

    def __init__(self, title: str) -> None:
        self._title, self._start, self._is_shown = title, time.monotonic(), False

    def __call__(self, done: int, of: int) -> None:
        took = time.monotonic() - self._start
        if took < _PATIENCE_S or of == 0:
            return
        self._is_shown = True
        left = took / done * (of - done) if done else 0.0
        filled = 30 * done // of
        print(
            f"\r{self._title} [{'#' * filled}{'.' * (30 - filled)}] {done}/{of}, about {left:.0f} s left   ",
            end="" if done < of else "\n",
            file=sys.stderr,
            flush=True,
        )


def told(progress: Progress, title: str) -> Callable[[int, int], object] | None:
    """The function to be called with what is done and what there is."""
    if callable(progress):
        return progress
    if progress is None:
        progress = sys.stderr.isatty() or "ipykernel" in sys.modules
    return _Bar(title) if progress else None
