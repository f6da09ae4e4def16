"""What runs an engine, as its supervisor sees it.

Supervisor, pages and whoever asks for a stop know one run directory. An engine may work on a copy
of it elsewhere: `start` takes the directory there, `fetch` brings back what is new, a stop request
is taken to where the engine looks. An attempt is named by run directory and number, and an engine
by a text that stands in its job's row, so that another process can end what a dead supervisor left.
Knows no job, no lane and no verdict.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from engine.contract.errors import NightlaneError
from engine.contract.run_dir import Abort, RunDir


class EngineStartError(NightlaneError):
    """The machine could not start an engine; the job is not to blame."""

    retryable = True


class Exit(NamedTuple):
    """How an engine ended."""

    status: int
    """Its exit code; negative: the signal that ended it."""
    killed: bool = False
    """No checkpoint was waited for: memory ran out where it ran."""
    full_disk: str = ""
    """What is left on the disk that it wrote to, where that is next to nothing."""


class Engine(Protocol):
    """One engine, for the supervisor that started it."""

    @property
    def identity(self) -> str:
        """What `Runner.kill` finds it by."""

    def follow(self, phase: str | None, step: int | None) -> Exit | None:
        """Look after it; how it ended, once nothing that it started is left. Asked all the time.

        `phase`, `step`: where its training stands, as far as its events tell. Raises
        WatchdogError when nothing guards it any more, StillAliveError.
        """

    def ask_to_stop(self, request: Abort) -> None:
        """Put the sentinel where the engine looks; one that stands there stays. Raises OSError."""

    def kill(self) -> None:
        """End it and all that it started; `follow` tells how. Raises StillAliveError."""


class Runner(Protocol):
    """A place where engines run. It bears what passes: a connection that is down for a moment."""

    def start(self, run: RunDir, attempt: int) -> Engine:
        """Run the attempt whose `job.json` stands in the run directory.

        That file names this process as the engine's parent; elsewhere the runner names its own.
        Raises WatchdogError and EngineStartError; then nothing is left of it.
        """

    def kill(self, run: RunDir, attempt: int, engine: str | None) -> None:
        """End an engine of any process, and all that it started, and wait until it is gone.

        `engine`: its identity; None where its supervisor died before it was noted. The engine
        need not have run, or run any more. Raises StillAliveError.
        """

    def fetch(self, run: RunDir, attempt: int) -> None:
        """Make the run directory what the engine made of it, up to now: all, once it has ended.

        Nobody sees half a file, nor a checkpoint marked complete without its files; of the events
        whole lines are added. What stands here of the worker's own, a stop request among it, stays.
        """
