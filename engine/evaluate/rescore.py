"""`python -m engine rescore`, the child: what to judge again on stdin, the tables on stdout.

A gate's or an evaluation's completions, or another harness's sample log, by any verifiers. Bounded
in time and memory as a look is.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from engine.contract.errors import ConfigError, ConfigProblem, RLLoopError
from engine.contract.rescored import (
    MOST_KEPT,
    MOST_ROWS,
    Answer,
    BenchAsk,
    BenchRescored,
    Completions,
    JudgedBy,
    Problem,
    RescoreAsk,
    Rescored,
    RowJudged,
)
from engine.contract.run_dir import write_atomic
from engine.evaluate.changes import Side, changes_of, pairs_of
from engine.evaluate.completions import Completion
from engine.evaluate.golds import with_golds
from engine.evaluate.judged_tables import Sections, pass_rates, sections_of, table_of
from engine.evaluate.logs.files import read
from engine.evaluate.rejudge import Judge, Judged, load_judges, stored
from engine.rewards.text.forms import forms_of
from engine.rewards.workers.fork_server import die_with_parent
from engine.run.child import answer_from_stdin

_LONGEST_ANSWER = 120


def rescore_from_stdin(limit_s: int, memory_gb: int) -> None:
    """Answer one question and return; ends with whoever asked, however long it would take."""
    die_with_parent(os.getppid())
    answer_from_stdin(limit_s, memory_gb, lambda asked: _answered(asked, memory_gb))


def _answered(asked: Any, memory_gb: int) -> bytes:
    answer, keep = Answer(), None
    try:
        ask = RescoreAsk.model_validate(asked)
        keep = ask.keep
        answer.found = rescore(ask)
    except ConfigError as error:
        answer.problems = [Problem.of(one) for one in error.problems]
    except MemoryError:
        problem = f"judging them needs more than {memory_gb} GB"
        refused = ConfigProblem("FILE", None, problem, "name one split, or a smaller file")
        answer.problems = [Problem.of(refused)]
    text = answer.model_dump_json().encode() + b"\n"
    if keep is not None and answer.found is not None:
        _keep(Path(keep), text)
    return text


def _keep(path: Path, text: bytes) -> None:
    """Older answers beside it make room."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, text)
    kept = sorted(path.parent.glob("*.json"), key=lambda one: one.stat().st_mtime_ns)
    for old in kept[:-MOST_KEPT]:
        old.unlink(missing_ok=True)


def rescore(ask: RescoreAsk) -> Rescored:
    """Raises RLLoopError for a file that cannot be read or a verifier that cannot run here."""
    judges = load_judges(ask.verifiers, ask.threshold)
    benches = [_bench(one, judges, ask) for one in ask.benches]
    if ask.by is not None and not any(ask.by in bench.columns for bench in benches):
        has = ", ".join(dict.fromkeys(name for one in benches for name in one.columns)) or "nothing"
        problem = "is no column of these rows"
        raise RLLoopError.of("by", ask.by, problem, f"they can be split by: {has}")
    changes = [change for bench in benches for change in bench.changes]
    tested = [c for one in changes for c in (one.whole, *one.parts) if c.p is not None]
    return Rescored(benches=benches, verifiers=list(ask.verifiers), comparisons=len(tested))


def _bench(ask: BenchAsk, judges: Sequence[Judge], config: RescoreAsk) -> BenchRescored:
    after = _side(ask.after, judges)
    before = None if ask.before is None else _side(ask.before, judges)
    columns = _columns(after)
    by = config.by or next((name for name, parts in columns.items() if parts > 1), None)
    rates = _rates(before) if before else _rates_of(ask.baseline)
    found = BenchRescored(
        name=ask.name,
        after_name=ask.after.name,
        judged=_tables(after, by, rates),
        columns=list(columns),
        said=[*_said(ask.after, after)],
        rows=_rows(after) if config.rows else [],
    )
    if before is not None and ask.before is not None:
        found.before_name = ask.before.name
        found.judged_before = _tables(before, by, rates)
        found.said += _said(ask.before, before)
        one_run = ask.before.run == ask.after.run
        _compare(found, before, after, sections_of(after.completions, by, rates), one_run=one_run)
    return found


def _columns(side: Side) -> dict[str, int]:
    """How many parts each column makes of the rows."""
    found: dict[str, set[str]] = {}
    for one in side.completions:
        for name, value in one.columns.items():
            found.setdefault(name, set()).add(str(value))
    return {name: len(values) for name, values in found.items()}


def _tables(side: Side, by: str | None, rates: Mapping[str, float]) -> list[JudgedBy]:
    sections = sections_of(side.completions, by, rates)
    first = next(one for one in side.judged if not one.stored)
    return [table_of(side.completions, one, first, sections) for one in side.judged]


def _compare(
    found: BenchRescored, before: Side, after: Side, sections: Sections, *, one_run: bool
) -> None:
    pairs = pairs_of(before, after)
    found.changes = changes_of(before, after, pairs, sections, one_run=one_run)
    found.said += _said_of_pairs(pairs.other_prompts, pairs.places)


def _side(asked: Completions, judges: Sequence[Judge]) -> Side:
    file = read(Path(asked.file))
    found = with_golds(file.completions, asked.run, asked.file)
    return Side(found, [*stored(found), *(judge(found) for judge in judges)], file.said)


def _rates(side: Side) -> dict[str, float]:
    """Pass rates as they were judged then, else by the first verifier."""
    return pass_rates(side.completions, side.judged[0])


def _rates_of(baseline: Completions | None) -> dict[str, float]:
    """Of a file that nobody judges again: without a judgement of its own no band is known."""
    if baseline is None:
        return {}
    found = read(Path(baseline.file)).completions
    judged = stored(found)
    return pass_rates(found, judged[0]) if judged else {}


def _said(asked: Completions, side: Side) -> Sequence[str]:
    unknown = any(one.truncated is None for one in side.completions)
    cut = ["the file does not say which completions were cut off"] if unknown else []
    return [f"{asked.name}: {told}" for told in (*cut, *side.said)]


def _said_of_pairs(others: int, places: Sequence[object]) -> Sequence[str]:
    told: list[str] = []
    if others:
        told.append(f"{others} rows have the same id and ask something else: they are left out")
    if not places:
        told.append("no row in common: rates are compared, nothing is paired and nothing is tested")
    return told


def _rows(side: Side) -> list[RowJudged]:
    if len(side.completions) > MOST_ROWS:
        return []
    return [_row(one, place, side.judged) for place, one in enumerate(side.completions)]


def _row(one: Completion, place: int, judged: Sequence[Judged]) -> RowJudged:
    said = [each.verdicts[place] for each in judged]
    return RowJudged(
        id=one.id,
        sample=one.sample,
        forms=forms_of(one.text),
        success=[each.solved[place] for each in judged],
        reason=[verdict.reason.value for verdict in said],
        answer=[verdict.answer and verdict.answer[:_LONGEST_ANSWER] for verdict in said],
    )
