"""What is right, for completions of an older file whose lines do not say it: from the rows of their
run, where those are still the ones that it was split with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from engine.contract.documents import read_json_object
from engine.contract.errors import NightlaneError, RLLoopError
from engine.contract.kinds.eval_rerun import EvalRerunConfig
from engine.contract.kinds.rl_run import RLRunConfig
from engine.contract.run_dir import RunDir
from engine.data.heldout import load_rows
from engine.data.rows import Question, load
from engine.data.split import thawed
from engine.evaluate.completions import Completion, split_columns
from engine.run.session import read_newest_job

_REMEDY = "put the data files back as they were, or score the checkpoint anew: cockpit eval"


def with_golds(found: Sequence[Completion], run: str | None, file: str) -> list[Completion]:
    """All with what is right. Raises RLLoopError where it cannot be found out."""
    if all(one.gold is not None for one in found):
        return list(found)
    if run is None:
        problem = "does not say what is right: its lines have no field gold"
        raise RLLoopError.of("FILE", file, problem, "name the job instead, whose rows say it")
    rows = _rows(RunDir(Path(run)), file)
    return [one if one.gold is not None else _golden(one, rows, file) for one in found]


def _golden(one: Completion, rows: Mapping[str, Question], file: str) -> Completion:
    row = rows.get(one.id)
    if row is None or (one.prompt and row.prompt != one.prompt):
        what = "is not among the rows of its run" if row is None else "asks something else now"
        raise RLLoopError.of("FILE", file, f"row {one.id!r} {what}", _REMEDY)
    columns = dict(one.columns) or split_columns(row.columns)
    return one.but(gold=row.answer, prompt=row.prompt, columns=columns)


def _rows(run: RunDir, file: str) -> dict[str, Question]:
    """By id, as they are now; of a run with a split only where its hash is the same."""
    try:
        return _read(run)
    except (OSError, ValueError, NightlaneError) as error:
        problem = f"does not say what is right, and the rows of its run cannot be read: {error}"
        raise RLLoopError.of("FILE", file, problem, _REMEDY) from error


def _read(run: RunDir) -> dict[str, Question]:
    _, job = read_newest_job(run)
    if job.kind == "eval_rerun":
        config = EvalRerunConfig.model_validate(job.config)
        return {row.id: row for row in load(config.data).questions}
    if job.kind != "rl_run":
        raise ValueError(f"a job of kind {job.kind} has no rows that a verifier judges")
    found = load_rows(RLRunConfig.model_validate(job.config))
    every = [*found.corpus.questions, *(row for rows in found.benches.values() for row in rows)]
    split = thawed(every, run.split)
    if split is None or split.hash != read_json_object(run.split)["hash"]:
        raise ValueError("they are no longer those that it was split with")
    return {row.id: row for row in split.rows}
