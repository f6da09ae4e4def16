"""A running rank of a run, for tests that kill one."""

from __future__ import annotations

import psutil

from engine.contract.run_dir import RunDir
from tests.deadline import eventually


def rank_process(run: RunDir, rank: int) -> psutil.Process:
    """By what it was told."""

    def found() -> psutil.Process | None:
        for process in psutil.process_iter():
            try:
                line, told = process.cmdline(), process.environ()
            except psutil.Error:
                continue
            if str(run.root) in line and told.get("RANK") == str(rank):
                return process
        return None

    process = eventually(found, f"rank {rank}", 120)
    assert process is not None
    return process
