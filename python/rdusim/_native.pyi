"""
The native half: requests as JSON texts in, results as texts out. Use the package, not this module.
"""

from _typeshed import SupportsGetItem
from os import PathLike
from typing import Any, Final, SupportsIndex, final

__all__ = ["__version__", "Collector", "Runs", "Study", "Table", "builtins", "check_proof", "chip_json", "compare", "diff", "explain", "import_text", "line_content", "line_of", "map", "model_text", "pod", "pod_requests", "pod_search", "prove", "sparsity", "text_of", "to_toml", "validate", "verify", "workload_json"]

__version__: Final[str]
"""
Version of the simulator.
"""

@final
class Collector:
    """
    Takes the lines of points, each point once, in any order.
    """
    def add(self, /, lines: SupportsGetItem[int, str]) -> int:
        """
        Takes lines into the journal; returns how many were new.
        """
    def close(self, /) -> None:
        """
        Lets go of the journal.
        """
    def finish(self, /) -> Table:
        """
        The table; the collector is closed.
        """
    def pending(self, /) -> list[int]:
        """
        Points that no line has come of.
        """

@final
class Runs:
    """
    What ran, ready to be shown.
    """
    def json(self, /) -> str:
        """
        The result as the command line prints it with `--format json`, byte for byte.
        """
    def page(self, /) -> str:
        """
        The page, one HTML file.
        """
    def svg(self, /, chart: str) -> str:
        """
        A chart as SVG: `traffic`, `time` or `roofline`.
        """
    def table(self, /) -> str:
        """
        The table that the command line prints.
        """
    def write(self, /, directory: str | PathLike[str]) -> None:
        """
        Writes the files of `--out DIR`.
        """

@final
class Study:
    """
    A study, ready to run.
    """
    def __new__(cls, /, request: str) -> Study: ...
    def collector(self, /, out: str | PathLike[str] | None = None) -> Collector:
        """
        Goes on from the journal in `out` with lines that others make.
        """
    @property
    def columns(self, /) -> list[str]: ...
    def keys(self, /) -> list[str | None]:
        """
        For each point, a hash of everything that its result depends on.
        """
    def merge(self, /, directories: SupportsGetItem[int, str | PathLike[str]], out: str | PathLike[str] | None = None) -> Table:
        """
        Joins the journals of shards.
        """
    @property
    def name(self, /) -> str: ...
    @property
    def points(self, /) -> int: ...
    def run_points(self, /, indices: SupportsGetItem[int, SupportsIndex], threads: SupportsIndex | None = None, progress: Any | None = None) -> list[str]:
        """
        Runs some points; a line with a checksum for each.
        """
    def sweep(self, /, threads: SupportsIndex | None = None, out: str | PathLike[str] | None = None, shard: tuple[SupportsIndex, SupportsIndex] | None = None, progress: Any | None = None) -> Table:
        """
        Runs the points that the journal in `out` does not have yet; `shard`: part i of n, from 1.
        """

@final
class Table:
    """
    The rows of a study.
    """
    def __arrow_c_stream__(self, /, requested_schema: Any | None = None) -> Any:
        """
        The table as a stream of the Arrow C data interface; `requested_schema` is not followed, as that interface allows.
        """
    def __len__(self, /) -> int: ...
    @property
    def columns(self, /) -> list[str]: ...
    def csv(self, /) -> str:
        """
        The bytes of `results.csv`.
        """
    def json(self, /) -> str:
        """
        The bytes of `summary.json`.
        """
    @property
    def rows(self, /) -> list[list[str]]:
        """
        Cells as in the CSV file, in the order of the columns.
        """
    def text(self, /) -> str:
        """
        The bytes of `summary.txt`.
        """
    @property
    def warnings(self, /) -> list[str]: ...

def builtins() -> list[tuple[str, str]]:
    """
    What is built in: kind and name of each.
    """

def check_proof(certificate: str, inputs: str | None = None) -> None:
    """
    Checks a certificate; `inputs`: chip and workload, if they are no files.
    """

def chip_json(request: str) -> str:
    """
    The `arch` object of results, for a chip with overrides.
    """

def compare(request: str, progress: Any | None = None) -> Runs:
    """
    Runs a workload in some modes.
    """

def diff(a: str, b: str) -> tuple[str, str]:
    """
    What changed between two results of `compare` or `run`, given as their JSON: JSON and text.
    """

def explain(request: str, progress: Any | None = None) -> tuple[str, str]:
    """
    What bounds each section, and what one more of each resource saves: JSON and text.
    """

def import_text(request: str) -> str:
    """
    The workload file of a model file.
    """

def line_content(line: str) -> str | None:
    """
    What a line says without its point's index; `None` if it is damaged.
    """

def line_of(content: str, index: SupportsIndex) -> str | None:
    """
    The line of a point from such content; `None` if it is damaged.
    """

def map(request: str) -> tuple[str, str]:
    """
    The first mode's mapping with names and coordinates: JSON and text.
    """

def model_text(request: str) -> str:
    """
    The workload file of a model.
    """

def pod(request: str) -> tuple[str, str, list[tuple[str, str]], list[str]]:
    """
    A training step, prefill or decode on many chips.
    """

def pod_requests(request: str) -> tuple[str, str, list[tuple[str, str]], list[str]]:
    """
    Requests that come and go.
    """

def pod_search(request: str, progress: Any | None = None) -> tuple[str, str, list[tuple[str, str]], list[str]]:
    """
    The best decomposition of a training step; `progress` hears how many are simulated of those that fit.
    """

def prove(request: str) -> tuple[str, str]:
    """
    A certificate of how far the first mode's mapping is from the best: JSON and text.
    """

def sparsity(request: str) -> tuple[str, str, str]:
    """
    The numbers of a mask: JSON, text, and the picture as SVG.
    """

def text_of(name: str) -> str | None:
    """
    The text of a file or a built-in name.
    """

def to_toml(json: str) -> str:
    """
    A JSON object as TOML.
    """

def validate(request: str) -> tuple[str, str]:
    """
    Simulates published measurements: JSON and text.
    """

def verify(request: str) -> tuple[str, str, list[str]]:
    """
    Runs the configurations on numbers: JSON, text, and the modes that do not compute what the graph says.
    """

def workload_json(request: str) -> str:
    """
    Name, dimensions, operators and tensors of a workload.
    """
