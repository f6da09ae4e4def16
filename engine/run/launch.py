"""Starts the learner processes of a run, and ends all of them with the first that fails.

Each is the same engine on the same run directory, told its place as `torchrun` tells it (RANK,
LOCAL_RANK, WORLD_SIZE). They meet at a file, so that no port is taken. The first rank writes the
run's events; what another one failed of is added to them once all are gone. Torch-free.
"""

from __future__ import annotations

import ctypes
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

from engine.contract.errors import NightlaneError
from engine.contract.events import Event, EventLog, usable
from engine.contract.ranks import RENDEZVOUS
from engine.contract.run_dir import AttemptDir, ExitCode, RunDir

ENGINE: Sequence[str] = (sys.executable, "-P", "-m", "engine", "run")
"""What each rank runs; the run directory follows. -P: the working directory holds no modules."""
CRASHED = 1
LOST = 79
"""Exit status of a rank that is only without the others: whoever is to blame is another one."""
_AGREED = frozenset({ExitCode.ABORTED, ExitCode.DECLINED, ExitCode.CONFIG})
"""Ends that all ranks come to; the first one may still have a checkpoint to seal."""
_GRACE_S, _PATIENCE_S = 10.0, 600.0
"""Seconds that the others have after a rank that crashed, and after one that ended by itself."""
_LOOK_S = 0.05
_PR_SET_PDEATHSIG = 1


class RankLostError(NightlaneError):
    """Another learner of this run is gone."""

    retryable = True


def launch(run: RunDir, directory: AttemptDir, size: int, engine: Sequence[str] = ENGINE) -> int:
    """Run an attempt on so many ranks; the exit status of the one that decided how it ended."""
    directory.rendezvous.unlink(missing_ok=True)
    for rank in range(1, size):
        directory.events_of_rank(rank).unlink(missing_ok=True)
    ranks: list[subprocess.Popen[bytes]] = []
    try:
        command = [*engine, str(run.root), "--rank-of", str(os.getpid())]
        ranks += (_start(command, directory, rank, size) for rank in range(size))
        ended = _ended(ranks)
    finally:
        for process in ranks:
            process.kill()
            process.wait()
        directory.rendezvous.unlink(missing_ok=True)
    return _told(run, directory, ended, size)


def tie_to(launcher: int) -> None:
    """This process ends with the one that started it, which it is told by its number."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != launcher:
        sys.exit("the engine that started this rank is gone")


def _start(
    command: Sequence[str], directory: AttemptDir, rank: int, size: int
) -> subprocess.Popen[bytes]:
    told = {
        "RANK": rank,
        "LOCAL_RANK": rank,
        "WORLD_SIZE": size,
        "LOCAL_WORLD_SIZE": size,
        RENDEZVOUS: directory.rendezvous,
    }
    defaults = {
        # Neighbours on one machine: nobody else can reach what they tell each other.
        "GLOO_SOCKET_IFNAME": "lo",
        "NCCL_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // size)),
    }
    told_as_text = {name: str(value) for name, value in told.items()}
    return subprocess.Popen(command, env={**defaults, **os.environ, **told_as_text})


def _ended(ranks: Sequence[subprocess.Popen[bytes]]) -> Mapping[int, int]:
    """Exit status by rank, in the order in which they ended; those not waited for are left out."""
    ended: dict[int, int] = {}
    deadline = math.inf
    while len(ended) < len(ranks) and time.monotonic() < deadline:
        new = {n: one.poll() for n, one in enumerate(ranks) if n not in ended}
        gone = {n: status for n, status in new.items() if status is not None}
        # Who was killed cannot have lost anybody before.
        for number, status in sorted(gone.items(), key=lambda one: one[1] >= 0):
            ended[number] = status
            if status:
                patience = _PATIENCE_S if status in _AGREED else _GRACE_S
                deadline = min(deadline, time.monotonic() + patience)
        if not gone:
            time.sleep(_LOOK_S)
    return ended


def _told(run: RunDir, directory: AttemptDir, ended: Mapping[int, int], size: int) -> int:
    """How the run ended; what the first rank has not written of it is added to the events."""
    failed = {rank: status for rank, status in ended.items() if status not in {0, LOST}}
    if len(ended) == size and not any(ended.values()):
        return ExitCode.DONE
    rank = 0 if failed.get(0) in _AGREED else next(iter(failed), None)
    if rank == 0 and failed[0] > 0:
        return failed[0]
    words, events = _words(directory, rank, failed, size)
    log = EventLog(run.events, int(directory.root.name))
    for event in events:
        fields = {k: v for k, v in event.items() if k not in {"seq", "attempt", "t", "type"}}
        log.write(event["type"], **fields)
    log.close()
    print(words, file=sys.stderr)  # noqa: T201 - the last line of the engine's log
    return CRASHED if rank is None or failed[rank] < 0 else failed[rank]


def _words(
    directory: AttemptDir, rank: int | None, failed: Mapping[int, int], size: int
) -> tuple[str, Sequence[Event]]:
    """Who ended the run and why, in a line; and the events that say so."""
    said: list[Event] = []
    if rank is None:
        words = f"the {size} ranks of this run lost one another and none says why; see engine.log"
    elif failed[rank] < 0:
        name = signal.Signals(-failed[rank]).name
        words = f"rank {rank} of {size} was killed by {name}, and the others were ended with it"
    else:
        said = [e for e in usable(directory.events_of_rank(rank)) if _is_end(e)]
        notes = [str(event["text"]) for event in said if event["type"] == "note"]
        why = notes[-1].splitlines()[-1] if notes else f"it ended with status {failed[rank]}"
        words = f"rank {rank} of {size}: {why}"
    return words, said or [{"type": "note", "level": "error", "code": "RANK_LOST", "text": words}]


def _is_end(event: Event) -> bool:
    return event["type"] == "finished" or (
        event["type"] == "note" and event.get("level") == "error"
    )
