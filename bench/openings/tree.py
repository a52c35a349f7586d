"""The tree of another commit, to be measured beside this one by the benchmarks of this one."""

import io
import shutil
import subprocess
import tarfile
from pathlib import Path

from bench.fanout.servers import ROOT

BENCH = "bench"
BEFORE = "883e0bfd"
"""Before openings, calls and frames were made cheaper."""


def checked_out(commit: str, folder: Path) -> Path:
    """That commit's code in this folder, with today's benchmarks in it: both are asked the same."""
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
    shutil.rmtree(folder / BENCH)
    shutil.copytree(ROOT / BENCH, folder / BENCH, ignore=shutil.ignore_patterns("results", "__pycache__"))
    return folder
