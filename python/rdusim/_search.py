"""Search over fields of chip and workload, by the samplers of Optuna."""

from __future__ import annotations

import html
import os
from collections.abc import Mapping, Sequence
from typing import Any

from ._analyses import ChipLike, WorkloadLike
from ._errors import InputError
from ._picture import Picture
from ._study import Study, sweep
from ._view import html_table

#: Metrics that a point's lower bound has too: a point whose bound is beaten is not simulated.
_BOUNDED = ("cycles", "time_s")


class Search:
    """What a search found. ``optuna`` is its study, for everything else that Optuna offers."""

    def __init__(self, study: Any, objectives: Sequence[str], maximize: Sequence[bool]) -> None:
        self.optuna = study
        self.objectives, self._maximize = list(objectives), list(maximize)

    @property
    def front(self) -> list[dict[str, Any]]:
        """Points that no other beats in every objective: fields, then objectives; by the first objective."""
        rows = [
            {**trial.user_attrs["fields"], **dict(zip(self.objectives, trial.values, strict=True))}
            for trial in self.optuna.best_trials
        ]
        return sorted(rows, key=lambda row: [row[name] for name in self.objectives])

    @property
    def best(self) -> dict[str, Any]:
        """The first of the front. Errors: ``ValueError`` if no point satisfies the constraints."""
        if not self.front:
            raise ValueError("no point ran and satisfied the constraints")
        return self.front[0]

    def counts(self) -> dict[str, int]:
        """Points by how they ended: ``simulated``, ``bounded`` (the bound was beaten already), ``refused``."""
        counts: dict[str, int] = {}
        for trial in self.optuna.trials:
            ended = trial.user_attrs.get("ended", "open")
            counts[ended] = counts.get(ended, 0) + 1
        return counts

    def _repr_html_(self) -> str:
        front = self.front
        columns = list(front[0]) if front else self.objectives
        told = ", ".join(f"{count} {ended}" for ended, count in sorted(self.counts().items()))
        return f"{html_table(columns, [list(row.values()) for row in front])}<p>{told}</p>"

    def plot(self) -> Picture:
        """The front and all points of the first two objectives (of one: its value by trial)."""
        done = [t for t in self.optuna.trials if t.values is not None]
        two = len(self.objectives) > 1
        points = [(t.values[0], t.values[1]) if two else (float(t.number), t.values[0]) for t in done]
        best = {t.number for t in self.optuna.best_trials}
        x, y = (self.objectives[0], self.objectives[1]) if two else ("trial", self.objectives[0])
        return Picture(_scatter(points, [t.number in best for t in done], x, y), "front")


def _scatter(points: list[tuple[float, float]], best: list[bool], x: str, y: str) -> str:
    lows = [min((p[axis] for p in points), default=0.0) for axis in (0, 1)]
    highs = [max((p[axis] for p in points), default=1.0) for axis in (0, 1)]
    ticks = [[(low, 0.0), (high, 1.0)] if high > low else [(low, 0.5)] for low, high in zip(lows, highs, strict=True)]
    # Every label stands inside the picture: margins are as wide as what is written in them, at most 8 pixels a character.
    longest = [max(len(f"{value:.4g}") for value, _ in axis) for axis in ticks]
    left, right, top, bottom = 20 + 8 * longest[1], 20 + 4 * longest[0], 70, 60
    width = max(640, left + right + 8 * max(len(x), len(y)))
    height = 440

    def place(point: tuple[float, float]) -> tuple[float, float]:
        at = [(p - low) / (high - low) if high > low else 0.5 for p, low, high in zip(point, lows, highs, strict=True)]
        return left + at[0] * (width - left - right), height - bottom - at[1] * (height - top - bottom)

    def text(px: float, py: float, anchor: str, words: str) -> str:
        style = "font-family='sans-serif' font-size='13'"
        return f"<text x='{px:.1f}' y='{py:.1f}' text-anchor='{anchor}' {style}>{html.escape(words)}</text>"

    parts = [f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' width='{width}' height='{height}'>"]
    parts.append(f"<rect width='{width}' height='{height}' fill='white'/>")
    parts.append(f"<path d='M{left},{top} V{height - bottom} H{width - right}' fill='none' stroke='black'/>")
    for point, is_best in sorted(zip(points, best, strict=True), key=lambda pair: pair[1]):
        px, py = place(point)
        colour, radius = ("#0072b2", 5) if is_best else ("#999999", 3)
        parts.append(f"<circle cx='{px:.1f}' cy='{py:.1f}' r='{radius}' fill='{colour}'/>")
    for value, share in ticks[0]:
        parts.append(text(left + share * (width - left - right), height - bottom + 20, "middle", f"{value:.4g}"))
    for value, share in ticks[1]:
        parts.append(text(left - 8, height - bottom - share * (height - top - bottom) + 4, "end", f"{value:.4g}"))
    parts.append(text((left + width - right) / 2, height - 14, "middle", x))
    parts.append(text(10, 48, "start", y))
    parts.append("<circle cx='14' cy='20' r='5' fill='#0072b2'/>" + text(26, 24, "start", "no other point beats it"))
    parts.append("<circle cx='214' cy='20' r='3' fill='#999999'/>" + text(224, 24, "start", "other points"))
    return "".join([*parts, "</svg>"])


def search(
    chip: ChipLike,
    workload: WorkloadLike,
    *,
    fields: Mapping[str, Sequence[Any] | tuple[float, float] | Mapping[str, Any]],
    minimize: Sequence[str] = (),
    maximize: Sequence[str] = (),
    constraints: Sequence[str] = (),
    trials: int = 100,
    seed: int = 0,
    sampler: Any = None,
    journal: str | os.PathLike[str] | None = None,
    name: str = "search",
) -> Search:
    """Looks for the best points by a sampler of Optuna. Needs ``pip install rdusim[search]``.

    Args:
        fields: By path, a list of values, or ``{"low": a, "high": b}`` with ``"log": True`` and ``"step": s`` where wanted; whole
            numbers if both ends are.
        minimize, maximize: Metrics of studies, such as ``fused.time_s`` and ``area_mm2``.
        constraints: As of ``Study``; points that violate one are left out.
        trials: Points in all; with ``journal``, of all workers together, and one more for each other worker at most.
        sampler: One of Optuna's; by default ``TPESampler``, with ``seed`` unless there is a ``journal``, whose workers must not try the
            same points.
        journal: A file through which several workers, each a process that calls this function, take part in one search; a search
            that was stopped goes on.

    A point's lower bound is computed first, where every objective has one or depends on the inputs alone; if a point that ran is as
    good in every objective, the point is not simulated.

    Raises:
        InputError: A study that cannot be, at the first point.
    """
    try:
        import optuna
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend
    except ImportError as error:
        raise ImportError("search needs Optuna: pip install 'rdusim[search]'") from error
    objectives = [*minimize, *maximize]
    if not objectives:
        raise ValueError("search needs something to minimize or maximize")
    signs = [False] * len(minimize) + [True] * len(maximize)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = JournalStorage(JournalFileBackend(os.fspath(journal))) if journal is not None else None
    found = optuna.create_study(
        study_name=name,
        storage=storage,
        load_if_exists=True,
        # Workers of one journal with one seed would try the same points.
        sampler=sampler or optuna.samplers.TPESampler(seed=seed if storage is None else None),
        directions=["maximize" if sign else "minimize" for sign in signs],
    )

    def row(trial_fields: Mapping[str, Any], fidelity: str) -> dict[str, Any] | None:
        axes = {path: [value] for path, value in trial_fields.items()}
        study = Study(
            chip, workload, axes=axes, metrics=[*objectives, "status"], fidelity=fidelity, constraints=constraints  # type: ignore[arg-type]
        )
        rows = list(sweep(study, threads=1, progress=False))
        return rows[0] if rows else None

    bounded = [metric.rsplit(".", 1)[-1] in _BOUNDED or "." not in metric for metric in objectives]
    # A least time is an optimistic value of a time that is minimised, and of nothing that is maximised.
    is_bounded = [ok and not (sign and "." in metric) for ok, sign, metric in zip(bounded, signs, objectives, strict=True)]
    can_bound = all(is_bounded) and not any(metric.startswith("speedup") for metric in objectives)

    def objective(trial: Any) -> list[float]:
        values = {path: _suggested(trial, path, domain) for path, domain in fields.items()}
        trial.set_user_attr("fields", values)
        try:
            if can_bound:
                bound = row(values, "bound")
                if bound is None:
                    return _left_out(trial, "refused")
                if _is_beaten([bound[metric] for metric in objectives], signs, trial.study.get_trials(deepcopy=False)):
                    return _left_out(trial, "bounded")
            result = row(values, "event")
        except InputError as error:
            if trial.number == 0:
                raise
            trial.set_user_attr("why", error.message)
            return _left_out(trial, "refused")
        if result is None or str(result["status"]).startswith("refused"):
            return _left_out(trial, "refused")
        trial.set_user_attr("ended", "simulated")
        return [float(result[metric]) for metric in objectives]

    left = trials - len(found.trials)
    if left > 0:
        stop = optuna.study.MaxTrialsCallback(trials, states=None)
        found.optimize(objective, n_trials=left, callbacks=[stop])
    return Search(found, objectives, signs)


def _left_out(trial: Any, ended: str) -> list[float]:
    import optuna

    trial.set_user_attr("ended", ended)
    raise optuna.TrialPruned


def _suggested(trial: Any, path: str, domain: Any) -> Any:
    if isinstance(domain, Mapping):
        low, high = domain["low"], domain["high"]
        log, step = bool(domain.get("log", False)), domain.get("step")
        if isinstance(low, int) and isinstance(high, int):
            return trial.suggest_int(path, low, high, step=step or 1, log=log)
        return trial.suggest_float(path, low, high, step=step, log=log)
    return trial.suggest_categorical(path, list(domain))


def _is_beaten(bound: list[float], signs: list[bool], trials: Sequence[Any]) -> bool:
    def as_cost(values: Sequence[float]) -> list[float]:
        return [-value if sign else value for value, sign in zip(values, signs, strict=True)]

    cost = as_cost(bound)
    ran = (trial.values for trial in trials if trial.user_attrs.get("ended") == "simulated" and trial.values is not None)
    return any(all(a <= b for a, b in zip(as_cost(values), cost, strict=True)) for values in ran)
