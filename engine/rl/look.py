"""What an `rl_run` is asked before it is queued: can its reward functions be imported and called,
and do an adapter and weights that look odd fit their model?

Runs in the child process of `python -m engine look`. Whatever else of a config needs torch or a
user's module is one more part here, and its settings one more line of the kind's `asks`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path

from engine.contract.errors import ConfigProblem
from engine.contract.hub import in_hub_cache
from engine.contract.kinds.rl_run import JudgedRows, RLRunConfig
from engine.contract.look import Looked
from engine.contract.model_folder import asks_for_weights
from engine.contract.rl.serving import stacks_problem
from engine.contract.sources.config import SourceConfig
from engine.contract.sources.mixture import JudgedSource
from engine.data.rows import Question, load
from engine.rewards.case import Case
from engine.rewards.functions import FunctionError, Functions, Said, columns_of
from engine.rewards.imported import files_of

_ROWS = 1_000
"""Rows of which the columns are known."""
_TRIAL_S = 20.0
"""Of a call on one row."""


def look(config: RLRunConfig) -> Looked:
    """Every part's findings."""
    return _rewards(config) + _weights(config)


def _rewards(config: RLRunConfig) -> Looked:
    """Each function imported, held against the columns of the rows that it judges, and tried on the
    first of them.
    """
    found = Looked()
    for path in config.reward_functions:
        found += Looked(files=tuple(files_of(path.partition(":")[0])))
        limit = min(_TRIAL_S, config.reward_timeout_s)
        functions = Functions([path], timeout_s=limit, max_steps=config.max_steps, own_group=False)
        with closing(functions):
            for judged in config.sources:
                if path in judged.verifiers:
                    found += _tried(_field(config, judged), path, functions, _first(judged.config))
    return found


def _field(config: RLRunConfig, judged: JudgedRows) -> str:
    """The setting that names the function."""
    source = judged.config
    if isinstance(source, JudgedSource) and source.verifier is not None:
        return judged.verifier_setting
    return "rewards" if config.rewards else "verifier"


def _first(source: SourceConfig) -> Sequence[Question]:
    few = source.model_copy(update={"limit": min(source.limit or _ROWS, _ROWS)})
    return load(few).questions


def _tried(field: str, path: str, functions: Functions, rows: Sequence[Question]) -> Looked:
    if not rows:
        return Looked()  # refused with its own sentence
    try:
        wrong = functions.signature_problem(path, list(columns_of(case_of(rows[0], ""))))
        if wrong is not None:
            remedy = "name columns that the rows have, or take **columns"
            return Looked([ConfigProblem(field, path, wrong, remedy)])
        problems = list(_wrong(field, path, functions, rows[0]))
    except FunctionError as error:
        if error.outside:
            return Looked.unknown(str(error))
        return Looked([ConfigProblem(field, path, str(error), "correct the module")])
    refused = [problem for problem, refuses in problems if refuses]
    return Looked(refused, [problem for problem, refuses in problems if not refuses])


def _wrong(
    field: str, path: str, functions: Functions, row: Question
) -> Iterator[tuple[ConfigProblem, bool]]:
    """What it says to the row's own answer and to an empty completion, where that is no reward; and
    whether it refuses the job.

    What breaks on an empty completion breaks on few; a judge that does not answer now may at night.
    """
    trials = (("its own answer", row.solution or row.answer), ("an empty completion", ""))
    for i, (what, completion) in enumerate(trials):
        [said] = functions.ask([case_of(row, completion)])[path]
        why = _failure(said)
        if why is None:
            continue
        refuses = i == 0 and not said.outside and not (said.error or {}).get("late")
        problem = f"on the first row ({row.id!r}) with {what}: {why}"
        remedy = "correct the function" if refuses else "such a completion is counted as a crash"
        yield ConfigProblem(field, path, problem, remedy), refuses


def _failure(said: Said) -> str | None:
    if said.error is not None:
        return str(said.error["crash"])
    verdict = said.verdict(0.5)
    return None if verdict.judged or verdict.counted is False else str(verdict.answer)


def case_of(row: Question, completion: str) -> Case:
    """A completion of a row that no model wrote: its ids are its bytes, with an end token."""
    prompt = row.prompt if row.messages is None else row.messages
    ids = (*islice(completion.encode(), 4096), 0)
    return Case(completion, row.answer, prompt, ids, row.columns)


def _weights(config: RLRunConfig) -> Looked:
    """By names and shapes; no weight of the base is read. A hub id that is not on this machine can
    be told nothing of.
    """
    asked = config.adapter_init is not None or asks_for_weights(config.base)
    if not asked or not (Path(config.base).is_absolute() or in_hub_cache(config.base)):
        return Looked()
    # Seconds to import, and nothing that a reward needs.
    from engine.models import fitting, lora  # noqa: PLC0415

    found = fitting.tried(config.base, config.adapter_init)
    if found.problems:
        return Looked(found.problems)
    adapter = config.adapter_init
    if config.sends_adapters and adapter is not None and lora.reaches_stacks(found.model):
        return Looked([stacks_problem(adapter)])
    return Looked()
