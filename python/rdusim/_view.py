"""Objects of a result, with their keys as attributes."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from typing import Any


class View(Mapping[str, Any]):
    """An object of a result: ``view.cycles`` is ``view["cycles"]``; objects inside are views too.

    Keys and units are those of the JSON that the command line prints (docs/python.md).
    """

    __slots__ = ("_data",)

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._data = data

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return wrapped(self._data[name])
        except KeyError:
            known = ", ".join(self._data)
            raise AttributeError(f"there is no {name!r}: there are {known}") from None

    def __getitem__(self, key: str) -> Any:
        return wrapped(self._data[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *(key for key in self._data if key.isidentifier())]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({dict(self._data)!r})"

    def _repr_html_(self) -> str:
        return html_table(["", ""], [[key, _short(value)] for key, value in self._data.items()])

    def to_dict(self) -> dict[str, Any]:
        """The object as plain dicts, lists, numbers and strings."""
        return dict(self._data)


def html_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table for a notebook; nothing in it is markup."""

    def line(cells: Sequence[object], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"

    first = line(head, "th") if any(head) else ""
    return f"<table>{first}{''.join(line(row, 'td') for row in rows)}</table>"


def _short(value: Any) -> str:
    """A value in a cell: of what holds others, how many."""
    if isinstance(value, dict):
        return f"{len(value)} keys: {', '.join(list(value)[:4])}{', ...' if len(value) > 4 else ''}"
    if isinstance(value, list) and any(isinstance(item, (dict, list)) for item in value):
        return f"a list of {len(value)}"
    return str(value)


def wrapped(value: Any) -> Any:
    """A value with views for dicts, also inside lists."""
    if isinstance(value, dict):
        return View(value)
    if isinstance(value, list):
        return [wrapped(item) for item in value]
    return value


class Section(View):
    """A section of a run: the operators that are configured on the chip at one time."""

    name: str
    operators: list[str]
    cycles: int
    launch_cycles: int
    bound_by: str
    pcus: int
    pmus: int
    sram_peak_bytes: int


class Run(View):
    """A run of a workload in one mode. Times in seconds, energy in joules, traffic in bytes."""

    mode: str
    fidelity: str
    cycles: int
    time_s: float
    launches: int
    tflops_dense_equivalent: float
    tflops_executed: float
    utilization: float
    bound_cycles: int
    gap: float | None
    """Cycles over the least that a mapping of the mode can take, less 1; ``None`` where no such bound is known."""

    @property
    def bound_by(self) -> str:
        """What bounds most of the cycles: ``compute``, ``memory:TIER``, ``launch`` and so on."""
        cycles: dict[str, int] = {}
        for section in self._data["sections"]:
            cycles[section["bound_by"]] = cycles.get(section["bound_by"], 0) + section["cycles"]
        return max(cycles, key=lambda bound: cycles[bound])

    @property
    def sections(self) -> list[Section]:
        """Sections in the order in which they run."""
        return [Section(section) for section in self._data["sections"]]

    @property
    def off_chip_bytes(self) -> int:
        """Bytes read from and written to off-chip memory."""
        traffic = self._data["traffic"]
        return int(traffic["off_chip_read_bytes"]) + int(traffic["off_chip_write_bytes"])
