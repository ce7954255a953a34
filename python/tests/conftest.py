"""Paths and the command line that results are compared with."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def cli():
    """Runs the release binary; its standard output."""
    binary = Path(os.environ.get("RDUSIM", ROOT / "target/release/rdusim"))
    if not binary.is_file():
        pytest.fail(f"{binary} is missing: cargo build --release --locked")

    def run(*arguments: str) -> str:
        done = subprocess.run([binary, *arguments], capture_output=True, check=True, cwd=ROOT)
        return done.stdout.decode()

    return run
