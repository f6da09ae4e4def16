"""`python -m …keeper COPY ATTEMPT`: what keeps an engine where its supervisor cannot.

Cuts itself off from whoever started it, says who it is, runs the engine and notes its exit status.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from engine.contract.run_dir import AttemptDir, RunDir, write_atomic, write_json
from worker.attempt.runner.process import ENGINE
from worker.lane.process_id import ProcessIdentity


def status_of(attempt: AttemptDir) -> Path:
    """Where the exit status of an attempt is noted; hidden: it is no file of the engine's."""
    return attempt.root / ".status"


def main() -> None:
    run = RunDir(Path(sys.argv[1]))
    attempt = run.attempt(int(sys.argv[2]))
    log = attempt.log.open("ab")
    if os.fork():
        os._exit(0)
    os.setsid()
    told = attempt.read_job().model_copy(update={"supervisor_pid": os.getpid()})
    write_json(attempt.job_file, told.model_dump(mode="json"))
    print(ProcessIdentity.current(), flush=True)  # noqa: T201 - the answer to who started it
    for stream in (1, 2):
        os.dup2(log.fileno(), stream)
    done = subprocess.run([*ENGINE, str(run.root)], stdin=subprocess.DEVNULL, check=False)
    write_atomic(status_of(attempt), str(done.returncode).encode())


if __name__ == "__main__":
    main()
