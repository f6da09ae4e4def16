"""The engine as a child process: started, watched, ended together with all it started.

It leads a session and process group of its own, so a Ctrl-C on the drain's terminal does not
reach it, and dies with its supervisor. What it started and sent away (`setsid`, a double fork) is
found by `worker.lane.strays`. Knows no job.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Self

from worker.attempt.runner import launcher
from worker.attempt.runner.base import EngineStartError
from worker.lane import cgroup
from worker.lane.process_id import ProcessIdentity, children
from worker.lane.strays import MARK, adopt_orphans, end_attempt, mark, reap
from worker.private import OTHERS

ENGINE: Sequence[str] = (sys.executable, "-P", "-m", "engine", "run")
"""The engine's command; the run directory follows. -P: the working directory holds no modules."""

PATIENCE_S = 10.0
"""Seconds that what was killed may take to go."""


class EngineProcess:
    """One running engine. Start it from the main thread: the parent-death signal follows it."""

    def __init__(
        self,
        child: subprocess.Popen[bytes],
        identity: ProcessIdentity,
        log: Path,
        others: Collection[ProcessIdentity],
        *,
        adopted_before: bool,
    ) -> None:
        """`others`: children of this process that are none of the engine's.

        `adopted_before`: it was the parent of orphans without this engine too.
        """
        self.identity = identity
        self._child = child
        self._log = log
        self._own = {*others, identity}
        self._adopted_before = adopted_before

    @classmethod
    def start(
        cls,
        command: Sequence[str],
        run_dir: Path,
        log: Path,
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> Self:
        """Run `command RUN_DIR` with its output at the end of `log`. Raises EngineStartError.

        `environment`: what it is told beside this process's own.
        """
        adopted_before = adopt_orphans()
        others = frozenset(children(os.getpid()))
        try:
            child = cls._spawn(command, run_dir, log, environment)
        except OSError as error:
            adopt_orphans(adopted_before)
            raise EngineStartError(
                f"the engine did not start: {error}; the job is queued; see whether the machine "
                "is short of memory, of processes or of disk, and whether Python is still there"
            ) from error
        identity = ProcessIdentity.of(child.pid)
        assert identity is not None, "an unreaped child is in /proc"
        return cls(child, identity, log, others, adopted_before=adopted_before)

    @staticmethod
    def _spawn(
        command: Sequence[str], run_dir: Path, log: Path, environment: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        group = cgroup.make(log)
        with log.open("ab") as output:
            return subprocess.Popen(
                [
                    sys.executable,
                    "-IS",
                    launcher.__file__,
                    str(os.getpid()),
                    "" if group is None else str(group / cgroup.PROCS),
                    *command,
                    str(run_dir),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **environment, MARK: mark(log)},
                start_new_session=True,
                umask=OTHERS,
            )

    def poll(self) -> int | None:
        """Exit status (negative: the signal that ended it), None while it runs.

        What it started and left behind is killed before its number becomes free for others.
        """
        if self._child.returncode is not None:
            return self._child.returncode
        # Look without reaping: while the zombie stands, the group cannot be anybody else's.
        ended = os.waitid(os.P_PID, self._child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return None
        return self._end()

    def kill(self) -> int:
        """SIGKILL to all of it; returns the exit status when nothing is left."""
        if self._child.returncode is None:
            os.killpg(self._child.pid, signal.SIGKILL)
            return self._end()
        return self._child.returncode

    def _end(self) -> int:
        end_attempt(self.identity, self._log, own=self._own, patience_s=PATIENCE_S)
        status = self._child.wait()
        reap(self._own)
        adopt_orphans(self._adopted_before)
        return status
