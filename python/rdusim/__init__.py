"""rdusim: a cycle-approximate simulator of dataflow accelerators.

>>> import rdusim as rs
>>> result = rs.compare(rs.Chip("sn40l"), rs.Workload("tiny-mlp"))
>>> result.fused.mode
'fused'

docs/python.md is the guide.
"""

from ._analyses import (
    Difference,
    Explanation,
    Map,
    Mask,
    Proof,
    Result,
    Runs,
    Validation,
    Verdict,
    builtins,
    compare,
    diff,
    explain,
    map,
    prove,
    run,
    sparsity,
    validate,
    verify,
)
from ._errors import DeadlockError, FileError, InputError, LimitError, MismatchError, ProofError, RdusimError
from ._inputs import Chip, Graph, Workload, from_torch
from ._native import __version__
from ._picture import Picture
from ._pods import Pod, pod, pod_requests, pod_search, serve
from ._search import Search, search
from ._study import Study, Table, merge, sweep
from ._view import Run, Section, View

__all__ = [
    "Chip",
    "DeadlockError",
    "Difference",
    "Explanation",
    "FileError",
    "Graph",
    "InputError",
    "LimitError",
    "Map",
    "Mask",
    "MismatchError",
    "Picture",
    "Pod",
    "Proof",
    "ProofError",
    "RdusimError",
    "Result",
    "Run",
    "Runs",
    "Search",
    "Section",
    "Study",
    "Table",
    "Validation",
    "Verdict",
    "View",
    "Workload",
    "__version__",
    "builtins",
    "compare",
    "diff",
    "explain",
    "from_torch",
    "map",
    "merge",
    "pod",
    "pod_requests",
    "pod_search",
    "prove",
    "run",
    "search",
    "serve",
    "sparsity",
    "sweep",
    "validate",
    "verify",
]
