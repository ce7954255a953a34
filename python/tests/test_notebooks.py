"""The notebooks run, and what they say is what is committed."""

import json
import os
import re
from pathlib import Path

import pytest

nbclient = pytest.importorskip("nbclient", reason="skipped: nbclient is not installed")
nbformat = pytest.importorskip("nbformat")

NOTEBOOKS = sorted((Path(__file__).resolve().parents[2] / "notebooks").glob("*.ipynb"))


def outputs(notebook) -> list[list[object]]:
    """What cells show: texts and pictures, without warnings and what differs from run to run."""

    def shown(output) -> object:
        data = dict(output.get("data", {}))
        return re.sub(r"0x[0-9a-f]+", "0x", json.dumps(data or output.get("text", ""), sort_keys=True))

    return [[shown(output) for output in results(cell)] for cell in notebook.cells]


def results(cell) -> list[dict]:
    """The outputs of a cell but for warnings, which name paths of the machine.

    What is printed arrives in pieces that depend on the machine's speed: they are joined.
    """
    joined: list[dict] = []
    for output in cell.get("outputs", []):
        if output.get("name") == "stderr":
            continue
        if joined and output.get("output_type") == "stream" and joined[-1].get("output_type") == "stream":
            joined[-1] = nbformat.from_dict({**joined[-1], "text": joined[-1]["text"] + output["text"]})
        else:
            joined.append(output)
    return joined


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_says_what_is_committed(path):
    committed = nbformat.read(path, as_version=4)
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = []
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", store_widget_state=False, record_timing=False).execute()
    if os.environ.get("RDUSIM_UPDATE_NOTEBOOKS"):
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.outputs = results(cell)
        nbformat.write(notebook, path)
    else:
        assert outputs(notebook) == outputs(committed)


def test_there_are_four():
    assert len(NOTEBOOKS) == 4
