"""Models on many chips."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from . import _native
from ._analyses import _Json
from ._inputs import Workload, toml_value
from ._picture import Picture
from ._progress import Progress, told

Parallel = Mapping[str, int | str] | str
Phase = Literal["training", "prefill", "decode"]
Objective = Literal["time", "tokens_per_chip", "chips", "energy"]


class Pod(_Json):
    """What a model takes on many chips. Keys as of ``rdusim pod --format json``; seconds and bytes."""

    __slots__ = ("_pictures", "notes")

    def __init__(self, text: str, table: str, pictures: list[tuple[str, str]], notes: list[str]) -> None:
        super().__init__(text, table)
        self._pictures = dict(pictures)
        #: What was chosen for the caller, a sentence each.
        self.notes = notes

    def timeline(self) -> Picture:
        """The schedule of a training step. Errors: ``ValueError`` for results of other phases, and searches that found none."""
        return self._picture("timeline")

    def throughput(self) -> Picture:
        """Tokens a second of a replica against those of a user, of requests. Errors: ``ValueError`` for other results."""
        return self._picture("throughput")

    def picture(self, name: str) -> Picture:
        """A picture by its name. Prefill and decode: ``time``; requests: ``throughput``, ``token`` (where a token's time goes),
        ``memory`` and ``requests`` (that run and wait), over time. Errors: ``ValueError`` for one that the result has not."""
        return self._picture(name)

    def _picture(self, name: str) -> Picture:
        if name not in self._pictures:
            raise ValueError(f"this result has no picture {name!r}: it has {sorted(self._pictures) or 'none'}")
        return Picture(self._pictures[name], name)

    def _repr_html_(self) -> str:
        return super()._repr_html_() + next(iter(self._pictures.values()), "")


def pod(
    system: str | os.PathLike[str],
    model: Workload | str,
    *,
    parallel: Parallel,
    phase: Phase | None = None,
    stack: str | None = None,
    batch: int | None = None,
    micro_batch: int | None = None,
    seq: int | None = None,
    sparsity: float | None = None,
    flat: bool = False,
    predicted_tokens: int | None = None,
    stage_layers: Sequence[float | str] | None = None,
    stragglers: str | os.PathLike[str] | None = None,
    chakra: str | os.PathLike[str] | None = None,
    sets: Mapping[str, Any] | None = None,
    mtbf_h: float | None = None,
    checkpoint_s: float | None = None,
    restart_s: float = 0.0,
    checkpoint_every_s: float | None = None,
    draft: str | None = None,
    speculate: int | None = None,
    accept: float | None = None,
    expert_load: str | os.PathLike[str] | None = None,
) -> Pod:
    """Simulates a training step, prefill or decode of a model on many chips.

    Args:
        system: A built-in name (``dgx-a100``, ``sn40l-16``) or the path of a system file.
        model: A model's name, the path of a ``config.json``, or ``Workload.model(...)``, whose phase, batch, sequence and context
            hold unless others are given here.
        parallel: Decomposition, as ``dict(tp=8, pp=8, dp=8, schedule="1f1b")``.
        phase: ``training`` if neither is given.
        stack: Software, one of the system file's; if not given, the first that does the phase.
        batch, micro_batch: Sequences of a step and of a micro-batch (1); of prefill and decode, users, and users of a replica that
            go through a stage together. A batch that is not given is the workload's; of a step, in whole micro-batches of
            all ``dp`` ranks.
        seq: Tokens of a sequence, of a prompt, or of a context.
        sparsity: Share of the layers' weights that is pruned; RDUs only.
        flat: Every chip of a step is simulated on its own: the same result, later.
        predicted_tokens: Of training: tokens of a sequence that have logits; all if not given.
        stage_layers: Of training: layers of each stage, halves too, or ``"4+3"`` (attention and feed-forward blocks); equal shares
            if not given.
        stragglers: Of training: how much longer chips compute: ``normal:DEVIATION``, ``exponential:MEAN``, or a file of a share a
            line. The result then has ``stragglers``.
        chakra: Of training: directory that a Chakra execution trace of every chip is written into.
        sets: Fields of the system file: ``{"level.node.links": 12}``.
        mtbf_h, checkpoint_s, restart_s, checkpoint_every_s: Of training: mean hours between failures of a chip, seconds of writing a
            checkpoint, from a failure until work goes on, and of work between checkpoints (the best if not given). The
            result then has ``goodput``.
        draft, speculate, accept: Of decode: a smaller model on the same chips (its name or a ``config.json``), the tokens that it
            drafts in a round, and the probability that one is accepted. The result then has ``speculation``.
        expert_load: Of a model with experts: how tokens fall on them: ``even``, ``uniform``, ``zipf:A``, or a file of a number an
            expert; ``uniform`` if not given.

    Raises:
        InputError: Inputs that cannot be used, and a model that does not fit; the advice says what makes it fit.
    """
    base, phase = _base(system, model, parallel, phase, stack, batch, micro_batch, seq, sparsity, sets)
    base["draft"] = _draft(draft, speculate, accept)
    base["expert_load"] = _path(expert_load)
    if draft is not None and phase == "training":
        raise ValueError("draft is for the phase 'decode', found 'training'")
    failures = _failures(mtbf_h, checkpoint_s, restart_s, checkpoint_every_s)
    if phase != "training":
        options = {
            "flat": flat,
            "mtbf_h": failures,
            "predicted_tokens": predicted_tokens,
            "stage_layers": stage_layers,
            "stragglers": stragglers,
            "chakra": chakra,
        }
        given = [name for name, value in options.items() if value]
        if given:
            raise ValueError(f"{given} are for the phase 'training', found {phase!r}")
    request = {
        "base": base,
        "phase": phase,
        "flat": flat,
        "training": _training(predicted_tokens, stage_layers),
        "failures": failures,
        "stragglers": _path(stragglers),
        "chakra": _path(chakra),
    }
    return Pod(*_native.pod(json.dumps(request)))


def pod_search(
    system: str | os.PathLike[str],
    model: Workload | str,
    *,
    objective: Objective = "time",
    chips: int | None = None,
    target_step_s: float | None = None,
    parallel: Parallel = "",
    stack: str | None = None,
    batch: int | None = None,
    micro_batch: int | None = None,
    seq: int | None = None,
    sparsity: float | None = None,
    predicted_tokens: int | None = None,
    stage_layers: Sequence[float | str] | None = None,
    expert_load: str | os.PathLike[str] | None = None,
    sets: Mapping[str, Any] | None = None,
    mtbf_h: float | None = None,
    checkpoint_s: float | None = None,
    restart_s: float = 0.0,
    checkpoint_every_s: float | None = None,
    progress: Progress = None,
) -> Pod:
    """Finds the best decomposition of a training step: ``rdusim pod --search``.

    Args:
        objective: The shortest step on all ``chips`` (``time``), the most tokens a second and chip on as many or fewer
            (``tokens_per_chip``), the fewest chips whose step takes at most ``target_step_s`` (``chips``), or the least energy of a
            step on as many or fewer (``energy``).
        chips: Chips, or the most of them; all that the system can have if not given.
        parallel, micro_batch: What they give stays fixed.

    Other arguments and errors as of ``pod``. ``timeline()`` is the schedule of the best.
    """
    base, phase = _base(system, model, parallel, None, stack, batch, micro_batch, seq, sparsity, sets)
    if phase != "training":
        raise ValueError(f"a search is of a training step, found the phase {phase!r}")
    base["expert_load"] = _path(expert_load)
    failures = _failures(mtbf_h, checkpoint_s, restart_s, checkpoint_every_s)
    asked = {
        "base": base,
        "training": _training(predicted_tokens, stage_layers),
        "chips": chips,
        "objective": objective,
        "target_step_s": target_step_s,
        "failures": failures,
    }
    return Pod(*_native.pod_search(json.dumps(asked), told(progress, "searching")))


def pod_requests(
    system: str | os.PathLike[str],
    model: Workload | str,
    *,
    parallel: Parallel,
    users: int,
    trace: str | os.PathLike[str] | None = None,
    arrivals: float | None = None,
    requests: int = 1000,
    prompt_tokens: int = 1024,
    output_tokens: int = 256,
    seed: int = 1,
    stack: str | None = None,
    sparsity: float | None = None,
    kv_tokens: int | None = None,
    prefill_tokens: int = 8192,
    prefix_share: float = 0.0,
    grid: str | os.PathLike[str] | None = None,
    sets: Mapping[str, Any] | None = None,
    prefill_chunk: int | None = None,
    draft: str | None = None,
    speculate: int | None = None,
    accept: float | None = None,
    expert_load: str | os.PathLike[str] | None = None,
) -> Pod:
    """Serves requests that come and go, iteration by iteration: ``rdusim pod --phase requests`` (docs/serving.md).

    Args:
        users: Requests that run at one time on a replica (``--batch``).
        trace: A CSV file with times of arrival, tokens of prompts and of answers; or
        arrivals: ``requests`` of them at random, so many a second on average, with about ``prompt_tokens`` and ``output_tokens`` each,
            by ``seed``.
        kv_tokens: Tokens whose keys and values a replica holds at most; what fits the fastest memory if not given.
        prefill_tokens: Tokens of prompts that start in one iteration at most.
        prefix_share: Share of each prompt, from its start, whose keys and values are at hand.
        grid: A ``result.json`` of the same system, software, model and decomposition: its points are not simulated again.

        prefill_chunk: Prompts go with the tokens of requests that run, in parts of so many tokens of a pass at most, not alone.

    Other arguments and errors as of ``pod``. ``throughput()`` is the picture, ``picture(name)`` has more.
    """
    base, _ = _base(system, model, parallel, "decode", stack, users, None, None, sparsity, sets)
    base["draft"] = _draft(draft, speculate, accept)
    base["expert_load"] = _path(expert_load)
    asked = {
        "base": {**base, "seq": None},
        "trace": _path(trace),
        "arrivals": arrivals,
        "requests": requests,
        "prompt_tokens": prompt_tokens,
        "output_tokens": output_tokens,
        "seed": seed,
        "kv_tokens": kv_tokens,
        "grid": _path(grid),
        "prefix_share": prefix_share,
        "prefill_tokens": prefill_tokens,
        "prefill_chunk": prefill_chunk,
    }
    return Pod(*_native.pod_requests(json.dumps(asked)))


def _path(given: str | os.PathLike[str] | None) -> str | None:
    return None if given is None else os.fspath(given)


def _training(predicted_tokens: int | None, stage_layers: Sequence[float | str] | None) -> dict[str, Any]:
    return {
        "predicted_tokens": predicted_tokens,
        "stage_layers": None if stage_layers is None else ",".join(str(layers) for layers in stage_layers),
    }


def _draft(draft: str | None, speculate: int | None, accept: float | None) -> dict[str, Any] | None:
    given = [value is not None for value in (draft, speculate, accept)]
    if any(given) and not all(given):
        raise ValueError("draft, speculate and accept need each other")
    return {"model": draft, "tokens": speculate, "accept": accept} if all(given) else None


def _failures(
    mtbf_h: float | None, checkpoint_s: float | None, restart_s: float, checkpoint_every_s: float | None
) -> dict[str, float | None] | None:
    if mtbf_h is None and checkpoint_s is None:
        if restart_s or checkpoint_every_s is not None:
            raise ValueError("restart_s and checkpoint_every_s need mtbf_h and checkpoint_s")
        return None
    if mtbf_h is None or checkpoint_s is None:
        raise ValueError("mtbf_h and checkpoint_s need each other")
    return {
        "mtbf_h": mtbf_h,
        "checkpoint_s": checkpoint_s,
        "restart_s": restart_s,
        "checkpoint_every_s": checkpoint_every_s,
    }


def _base(
    system: str | os.PathLike[str],
    model: Workload | str,
    parallel: Parallel,
    phase: Phase | None,
    stack: str | None,
    batch: int | None,
    micro_batch: int | None,
    seq: int | None,
    sparsity: float | None,
    sets: Mapping[str, Any] | None,
) -> tuple[dict[str, Any], Phase]:
    """What all requests have, and the phase."""
    if isinstance(parallel, Mapping):
        pairs = {key: str(value) for key, value in parallel.items()}
    else:
        pairs = dict(pair.split("=", 1) for pair in parallel.split(",")) if parallel else {}
    name = model
    of_model = 1
    if isinstance(model, Workload):
        options = _options(model)
        phase = phase or options.get("phase", "forward")
        if phase not in ("training", "prefill", "decode"):
            raise ValueError(f"a pod runs training, prefill or decode: use Workload.model(..., phase='training'), found {phase!r}")
        name, of_model = options["name"], int(options.get("batch", 1))
        tokens = options.get("context", options.get("seq")) if phase == "decode" else options.get("seq")
        seq = seq if seq is not None else tokens
        sparsity = sparsity if sparsity is not None else options.get("sparsity")
        if "recompute" in options:
            pairs.setdefault("recompute", options["recompute"])
    phase = phase or "training"
    if batch is None:
        # A step is of whole micro-batches of all ranks.
        step = int(pairs.get("dp", 1)) * (micro_batch or 1) if phase == "training" else 1
        batch = -(-of_model // step) * step
    base = {
        "system": os.fspath(system),
        "sets": [f"arch.{path}={toml_value(value)}" for path, value in (sets or {}).items()],
        "model": name,
        "parallel": ",".join(f"{key}={value}" for key, value in pairs.items()),
        "stack": stack,
        "batch": batch,
        "micro_batch": micro_batch,
        "seq": seq,
        "sparsity": sparsity,
        "draft": None,
        "expert_load": None,
    }
    return base, phase


def _options(model: Workload) -> dict[str, Any]:
    """The options that a model was made with."""
    options = model._preset
    if options is None:
        raise TypeError("a pod takes a model: its name, a config.json, or Workload.model(...)")
    others = set(options) - {"name", "phase", "batch", "seq", "context", "sparsity", "recompute"}
    if others or model.sets:
        raise ValueError(f"a pod takes models as they are, without {sorted(others) or list(model.sets)}")
    return options


#: A trace of requests, by the name of what it does.
serve = pod_requests
