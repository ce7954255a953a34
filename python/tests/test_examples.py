"""The examples run, and say what they promise."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = {
    "chips": ["SN40L: ", "H100-80GB: ", "A100-80GB: ", "128 of 1024 blocks are kept"],
    "study": ["3 points, the best at arch.launch.software.program_load_us = 1", "arch.launch.software.program_load_us"],
    "pod": ["ms a step, timeline", "True", "sn99"],
}
FOLDER = Path(__file__).resolve().parents[1] / "examples"


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs(name):
    done = subprocess.run([sys.executable, FOLDER / f"{name}.py"], capture_output=True, check=True, text=True)
    for words in EXAMPLES[name]:
        assert words in done.stdout


def test_all_are_run():
    assert {path.stem for path in FOLDER.glob("*.py")} == set(EXAMPLES)
