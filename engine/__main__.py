"""`python -m engine run RUN_DIR`: one attempt of one job here; or `look`, `rescore`, `export`,
`selftest`.

Reads the newest attempt's job.json, calls the entry of the job's kind and turns how it ended
into an exit code (`engine.contract.run_dir.ExitCode`). SIGTERM and Ctrl-C become the abort
sentinel, so the run stops at its next resumable state. Knows no kind.
"""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from engine.contract.errors import ConfigError, ConfigProblem, NightlaneError, UnfitError
from engine.contract.events import EventLog
from engine.contract.ranks import ranks_of
from engine.contract.registry import get_kind
from engine.contract.run_dir import (
    Abort,
    AbortReason,
    AttemptDir,
    ExitCode,
    JobFile,
    RunDir,
    RunDirError,
)
from engine.run.launch import CRASHED, LOST, RankLostError, launch, tie_to
from engine.run.look import look_from_stdin
from engine.run.session import Attempt, open_attempt, read_newest_job
from engine.run.shadow import shadows_in
from engine.run.stop import Aborted, rl_hooks, telling_of_life


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the process's exit code."""
    parser = argparse.ArgumentParser(prog="python -m engine", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run the newest attempt of a run directory")
    run.add_argument("run_dir", type=Path, metavar="RUN_DIR")
    run.add_argument(
        "--by-hand", action="store_true", help="without the drain that job.json names, if any"
    )
    run.add_argument("--rank-of", type=int, metavar="PID", help=argparse.SUPPRESS)
    commands.add_parser("selftest", help="overfit ten samples; the reward must rise")
    export = commands.add_parser("export", help="write a checkpoint as one whole model")
    export.add_argument("checkpoint", type=Path, metavar="CHECKPOINT", help="`selected`, or one of")
    export.add_argument("target", type=Path, metavar="OUT", help="a new or an empty folder")
    look = commands.add_parser("look", help="try a config: JSON on stdin, JSON on stdout")
    rescore = commands.add_parser("rescore", help="judge completions again: JSON in, JSON out")
    for child in (look, rescore):
        child.add_argument("limit_s", type=int, metavar="SECONDS")
        child.add_argument("memory_gb", type=int, metavar="GB")
    arguments = parser.parse_args(argv)
    if arguments.command == "selftest":
        return _selftest()
    if arguments.command == "export":
        return _export(arguments.checkpoint, arguments.target)
    if arguments.command == "look":
        look_from_stdin(arguments.limit_s, arguments.memory_gb)
        return ExitCode.DONE
    if arguments.command == "rescore":
        return _rescore(arguments.limit_s, arguments.memory_gb)
    run_dir = RunDir(arguments.run_dir.resolve())
    return run_newest_attempt(run_dir, by_hand=arguments.by_hand, launcher=arguments.rank_of)


def _selftest() -> int:
    """Its training libraries are imported here, so that `run` can say what is missing."""
    from engine import selftest  # noqa: PLC0415

    result = selftest.run()
    print(result)  # noqa: T201 - the command's answer
    return ExitCode.DONE if result.passed else CRASHED


def _export(checkpoint: Path, target: Path) -> int:
    """0, or 2 with what is wrong on stderr. Its training libraries are imported here, as those of
    the selftest.
    """
    from engine.models import export as of_text  # noqa: PLC0415
    from engine.run.checkpoint import folder_of_one_piece  # noqa: PLC0415
    from engine.stage2 import export as of_stage2  # noqa: PLC0415

    kind = of_text if of_text.is_of_text(checkpoint) else of_stage2
    try:
        with folder_of_one_piece(target.absolute()) as folder:
            kind.export(checkpoint, folder)
    except NightlaneError as error:
        print(error, file=sys.stderr)  # noqa: T201 - what is wrong, for whoever asked
        return 2
    print(target)  # noqa: T201 - the command's answer
    return ExitCode.DONE


def _rescore(limit_s: int, memory_gb: int) -> int:
    """Its verifiers' libraries are imported here, so that `run` can say what is missing."""
    from engine.evaluate.rescore import rescore_from_stdin  # noqa: PLC0415

    rescore_from_stdin(limit_s, memory_gb)
    return ExitCode.DONE


def run_newest_attempt(run: RunDir, *, by_hand: bool = False, launcher: int | None = None) -> int:
    """Open the attempt, run it, close its books; of several ranks, start them and wait.

    `by_hand`: nobody supervises it; `launcher`: the engine that this process is a rank of.
    """
    try:
        directory, job = read_newest_job(run)
        if by_hand or launcher is not None:
            job = job.model_copy(update={"supervisor_pid": launcher})
    except RunDirError as error:
        print(error, file=sys.stderr)  # noqa: T201 - stderr is the engine's log
        return ExitCode.CONFIG
    if launcher is not None:
        tie_to(launcher)
    _stop_on_signals(directory)
    code = _attempted(run, directory, job, is_rank=launcher is not None)
    return launch(run, directory, ranks_of(job.config)) if code is None else code


def _attempted(run: RunDir, directory: AttemptDir, job: JobFile, *, is_rank: bool) -> int | None:
    """None: nothing was run here, the attempt is one of several ranks that are to be started."""
    events = EventLog(_event_file(run, directory), job.attempt)
    try:
        attempt = open_attempt(run, directory, job, events)
        return _run(attempt)
    except RankLostError as error:
        if not is_rank:
            _explain(events, "FAILED", str(error))
            return CRASHED
        print(error, file=sys.stderr)  # noqa: T201 - who is to blame says it in the events
        return LOST
    except (ConfigError, UnfitError) as error:
        _explain(events, "CONFIG", str(error))
        return ExitCode.CONFIG
    except NightlaneError as error:
        _explain(events, "FAILED", str(error))
        return CRASHED
    except Exception as error:  # noqa: BLE001 - the process boundary: record it, exit as a crash
        traceback.print_exc()
        line = traceback.format_exception_only(error)[-1].strip()
        events.write("note", level="error", code="CRASH", text=line)
        return CRASHED
    finally:
        events.close()


def _run(attempt: Attempt) -> int | None:
    """Call the kind's entry. A dict it returns is the final result; None: it wrote its own.

    None where its ranks are to be started: who is told of a rank is one.
    """
    if attempt.orphaned():
        text = "the supervisor is gone; nothing was started; --by-hand starts it without one"
        _explain(attempt.events, "ORPHANED", text)
        return ExitCode.ABORTED
    if "RANK" not in os.environ and ranks_of(attempt.job.config) > 1:
        return None
    attempt.events.write("progress", phase="lane-bringup")
    try:
        hooks = rl_hooks(should_abort=attempt.should_abort)
        shadows = shadows_in(attempt.dir.shadows, attempt.note)
        with hooks, shadows, telling_of_life(attempt.still_works):
            result = _entry(attempt)(attempt)
    except Aborted as stop:
        attempt.events.write("finished", status="aborted", result=dict(stop.result))
        return ExitCode.ABORTED
    except NightlaneError as end:
        if end.cause is None:
            raise
        return _end_by_name(attempt, end, end.cause)
    if result is not None:
        attempt.events.write("finished", status="done", result=result)
    return ExitCode.DONE


def _end_by_name(attempt: Attempt, end: NightlaneError, cause: str) -> ExitCode:
    """What the engine found out itself: failed with its cause, or put off where time may help."""
    _explain(attempt.events, cause, str(end))
    result = {**end.result, "cause": cause, "error": str(end)}
    attempt.events.write(
        "finished", status="aborted" if end.retryable else "declined", result=result
    )
    return ExitCode.ABORTED if end.retryable else ExitCode.DECLINED


def _entry(attempt: Attempt) -> Callable[[Attempt], dict[str, Any] | None]:
    """Raises ConfigError when the kind needs a library that is not installed."""
    kind = get_kind(attempt.job.kind)
    module, _, function = (kind.entry_of(attempt.config) or kind.entry).partition(":")
    try:
        entry: Callable[[Attempt], dict[str, Any] | None] = getattr(
            importlib.import_module(module), function
        )
    except ModuleNotFoundError as error:
        problem = f"needs {error.name}, which is not installed"
        remedy = "the training libraries come with: pip install 'nightlane[engine]'"
        raise ConfigError([ConfigProblem("kind", kind.name, problem, remedy)]) from error
    return entry


def _event_file(run: RunDir, directory: AttemptDir) -> Path:
    """The run's own; of several ranks under `torchrun` the first writes it, others beside it."""
    rank = int(os.environ.get("RANK", "0"))
    return run.events if rank == 0 else directory.events_of_rank(rank)


def _stop_on_signals(directory: AttemptDir) -> None:
    def request(_number: int, _frame: FrameType | None) -> None:
        directory.request_abort(Abort(reason=AbortReason.SIGTERM))

    signal.signal(signal.SIGTERM, request)
    signal.signal(signal.SIGINT, request)


def _explain(events: EventLog, code: str, text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201 - stderr is the engine's log
    events.write("note", level="error", code=code, text=text)


if __name__ == "__main__":
    os.umask(0o077)  # what a run writes is its user's alone
    sys.exit(main())
