"""Stored completions judged again: which files a job has, the child that judges, and what is kept.

`python -m engine rescore` judges; nothing of it enters this process. What it found of a run stays
in `rollouts/rescored/`, under a name made of the files and the verifiers, and goes when they do.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from engine.contract.documents import read_text
from engine.contract.errors import ConfigError, ConfigProblem
from engine.contract.known import whole
from engine.contract.rescored import (
    MOST_VERIFIERS,
    Answer,
    BenchAsk,
    Completions,
    RescoreAsk,
    Rescored,
)
from engine.contract.run_dir import RunDir
from engine.contract.verifiers import verifier_names, verifier_problem
from worker.queue.asking import answer_of
from worker.queue.tried import canonical_hash
from worker.read.jobs import JobView
from worker.read.samples.files import Split, nearest, rollout_files

LIMIT_S = 3600.0
"""Symbolic comparison takes up to seconds a completion."""
MEMORY_GB = 8
MOST_BYTES = 2**28
"""Of an answer."""
_VERSION = 1
"""Of what is kept: another form of it, or another way to judge, is another file."""

COMMAND: Sequence[str] = (sys.executable, "-P", "-m", "engine", "rescore")


class Target(NamedTuple):
    """A run, or a file of another harness, whose completions are judged again."""

    label: str
    """`job 7`, or the file's name."""
    run: Path | None
    file: Path | None = None
    picked: int | None = None
    """The step that held-out picked."""
    step: int | None = None
    """The one asked for."""


def target_of(job: JobView, step: int | None = None) -> Target:
    """A job's run directory. Raises ConfigError for one that was pruned."""
    if job.pruned_at is not None:
        problem = "was pruned: its completions are gone"
        remedy = f"run it again: cockpit retry {job.id} --fresh"
        raise ConfigError([ConfigProblem("JOB", str(job.id), problem, remedy)])
    picked = whole(job.result.get("selected_step"))
    return Target(f"job {job.id}", job.run_dir, picked=picked, step=step)


def files_of(target: Target, split: str | None) -> dict[str, Completions]:
    """By bench its file at the step. Raises ConfigError where there is none."""
    if target.file is not None:
        return {target.file.stem: Completions(file=str(target.file), name=target.label)}
    assert target.run is not None, "a target is a run or a file"
    every = rollout_files(target.run)
    held_out = {name: steps for name, steps in every.items() if name != Split.POOL}
    wanted = held_out if split is None else {split: held_out.get(split, {})}
    found = {
        name: _completions(target, steps[step], step)
        for name, steps in wanted.items()
        if (step := _step_of(target, steps)) is not None
    }
    if not found:
        raise ConfigError([_nothing(target, split, held_out)])
    return found


def _step_of(target: Target, steps: Mapping[int, Path]) -> int | None:
    """The one asked for, else the picked one, else the newest."""
    if target.step is not None:
        return target.step if target.step in steps else None
    return target.picked if target.picked in steps else nearest(steps, None)


def _completions(target: Target, path: Path, step: int) -> Completions:
    name = f"{target.label}, step {step}"
    return Completions(file=str(path), name=name, run=str(target.run), step=step)


def _nothing(
    target: Target, split: str | None, held_out: Mapping[str, Mapping[int, Path]]
) -> ConfigProblem:
    known = "; ".join(
        f"{name} at {', '.join(map(str, list(steps)[:20]))}" for name, steps in held_out.items()
    )
    at = "" if target.step is None else f" at step {target.step}"
    problem = f"has no held-out completions{f' of {split!r}' if split else ''}{at}"
    remedy = f"it has: {known}" if known else "wait for its first gate, or name another job"
    return ConfigProblem("JOB", target.label, problem, remedy)


def ask_of(
    first: Target,
    second: Target | None,
    verifiers: Sequence[str],
    *,
    split: str | None = None,
    by: str | None = None,
) -> RescoreAsk:
    """One target by itself, or from the first to the second bench by bench. Raises ConfigError."""
    _check(verifiers)
    before = files_of(first, split)
    if second is None:
        benches = [
            BenchAsk(name=name, after=one, baseline=_baseline(first, name, one))
            for name, one in before.items()
        ]
    else:
        after = files_of(second, split)
        benches = [
            BenchAsk(name=name, after=last, before=one) for name, one, last in _met(before, after)
        ]
        if not benches:
            problem = f"has {', '.join(after)}, and {first.label} has {', '.join(before)}"
            remedy = "name two that have a bench in common, or one bench of each with --split"
            raise ConfigError([ConfigProblem("JOB", second.label, problem, remedy)])
    return RescoreAsk(benches=benches, verifiers=list(verifiers), by=by)


def _check(verifiers: Sequence[str]) -> None:
    known = f"known: {', '.join(verifier_names())}; or module:function"
    if not 1 <= len(set(verifiers)) <= MOST_VERIFIERS:
        problem = f"names {len(set(verifiers))} verifiers; 1 to {MOST_VERIFIERS} judge at once"
        raise ConfigError([ConfigProblem("verifier", None, problem, known)])
    wrong = [(name, said) for name in verifiers if (said := verifier_problem(name))]
    if wrong:
        remedy = "name another one"
        raise ConfigError([ConfigProblem("verifier", n, said, remedy) for n, said in wrong])


def _met(
    before: Mapping[str, Completions], after: Mapping[str, Completions]
) -> list[tuple[str, Completions, Completions]]:
    """Benches of one name; where both sides have one alone, those."""
    if len(before) == len(after) == 1:
        [(name, first)], [last] = before.items(), after.values()
        return [(name, first, last)]
    return [(name, before[name], after[name]) for name in before if name in after]


def _baseline(target: Target, split: str, one: Completions) -> Completions | None:
    """Step 0 of the same rows."""
    first = {} if target.run is None else rollout_files(target.run).get(split, {})
    if 0 not in first or str(first[0]) == one.file:
        return None
    return _completions(target, first[0], 0)


def rescored(ask: RescoreAsk) -> Rescored:
    """Judged now, by the child. Raises ConfigError with what it says instead."""
    return _read(_asked(ask))


def _asked(ask: RescoreAsk) -> Answer:
    limits = [str(int(LIMIT_S) + 5), str(MEMORY_GB)]
    question = ask.model_dump_json().encode()
    try:
        said = answer_of([*COMMAND, *limits], question, limit_s=LIMIT_S, most_bytes=MOST_BYTES)
    except OSError as error:
        raise _unanswered(f"the process that judges did not start: {error.strerror}") from None
    if said is None:
        raise _unanswered(f"they were not judged within {LIMIT_S / 60:g} min")
    try:
        return Answer.model_validate_json(said)
    except ValueError:
        reason = "the process that judges ended without an answer, as after a crash"
        raise _unanswered(reason) from None


def _unanswered(problem: str) -> ConfigError:
    remedy = "name one split or fewer verifiers, or see what a child says: python -m engine rescore"
    return ConfigError([ConfigProblem("FILE", None, problem, remedy)])


def _read(answer: Answer) -> Rescored:
    if answer.found is None:
        raise ConfigError([problem.read() for problem in answer.problems])
    return answer.found


# --- what a page shows: kept, or being judged beside it ---


class Looked(NamedTuple):
    """What is known of an ask."""

    found: Rescored | None = None
    since: float | None = None
    """While it is being judged: when that began, in Unix seconds."""


class _Judging(NamedTuple):
    since: float
    done: threading.Event
    failed: list[ConfigError]


_judging: dict[Path, _Judging] = {}
_turn = threading.Lock()
_one_at_a_time = threading.Lock()


def kept(ask: RescoreAsk, run: Path) -> Rescored | None:
    """What was found before, of the same files; None where nothing was."""
    try:
        return _read(Answer.model_validate_json(read_text(_place(ask, run), MOST_BYTES)))
    except (OSError, ValueError, ConfigError):
        return None


def look(ask: RescoreAsk, run: Path, *, patience_s: float = 0.0) -> Looked:
    """What is kept; else it is judged beside this process, at most `patience_s` are waited.

    Raises ConfigError with why it could not be judged; asked again, it is tried again. Refuses
    reward functions: nobody here knows whether their module changed since.
    """
    for name in ask.verifiers:
        if ":" in name:
            problem, remedy = "is a reward function, whose answers are not kept", "cockpit rescore"
            raise ConfigError([ConfigProblem("verifier", name, problem, f"ask it by: {remedy}")])
    path = _place(ask, run)
    if (found := kept(ask, run)) is not None:
        with _turn:
            _judging.pop(path, None)
        return Looked(found)
    with _turn:
        judging = _judging.get(path)
        if judging is None:
            judging = _judging[path] = _Judging(time.time(), threading.Event(), [])
            work = ask.model_copy(update={"keep": str(path)})
            threading.Thread(target=_judge, args=(work, judging), daemon=True).start()
    if not judging.done.wait(patience_s):
        return Looked(since=judging.since)
    with _turn:
        _judging.pop(path, None)
    if judging.failed:
        raise judging.failed[0]
    return Looked(kept(ask, run))


def _judge(ask: RescoreAsk, judging: _Judging) -> None:
    """Two children at once would take the machine from the run that goes on beside them."""
    try:
        with _one_at_a_time:
            rescored(ask)
    except ConfigError as error:
        judging.failed.append(error)
    finally:
        judging.done.set()


def _place(ask: RescoreAsk, run: Path) -> Path:
    """Named by the files as they stand, and by how they are judged."""
    asked = ask.model_dump(mode="json", exclude={"keep"})
    sides = [one for b in ask.benches for one in (b.after, b.before, b.baseline) if one is not None]
    stamps = [_stamp(Path(one.file)) for one in sides]
    return RunDir(run).rescored / f"{canonical_hash([_VERSION, asked, stamps])[:32]}.json"


def _stamp(path: Path) -> Sequence[int]:
    try:
        status = path.stat()
    except OSError:
        return ()
    return status.st_size, status.st_mtime_ns
