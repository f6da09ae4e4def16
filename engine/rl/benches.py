"""The report's table: every bench, and every source of a mixture, with a verdict of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from engine.contract.asked import asked
from engine.contract.kinds.rl_run import RLRunConfig
from engine.contract.sources.benches import OWN
from engine.data.rows import Question
from engine.data.split import Split
from engine.evaluate.gate import GateResult
from engine.rl.state import LoopState, marks_of, read_of, solved_of, soundness_of
from engine.verdict import trend
from engine.verdict.benches import (
    FORMAT_ONLY,
    Looked,
    Rows,
    is_format_only,
    line,
    reasons,
    with_transfer,
)


class RunEnd(NamedTuple):
    """What a run has found when its report is made."""

    state: LoopState
    results: Mapping[int, GateResult]
    """Of the `report` rows, by step 0 and the picked step; empty without such rows."""
    picked: int
    split: Split


def bench_fields(end: RunEnd, config: RLRunConfig, report: Mapping[str, Any]) -> dict[str, Any]:
    """The table, the one that decides first, and what of it belongs into the sentence of the
    verdict. Nothing where the own rows of one source are all.
    """
    if not (config.heldout or config.data.mix):
        return {}
    looked = [*_sources(end, config), *_benches(end, config)]
    pool = trend.over_run(end.state.pool_scores, end.state.pool_groups)
    of_kind = Counter(one.kind for one in looked)
    found = [line(one, pool, config.report_min, of_kind[one.kind]) for one in looked]
    own = next((one["verdict"] for one in found if one["kind"] == "own"), report["verdict"])
    decides = _of_decider(end, config, report)
    every = [one | _known_of(one["name"], end.split) for one in (decides, *found)]
    first, *others = with_transfer(every, own, pool)
    said = [report["verdict_reason"], reasons([first, *others])]
    return {"benches": [first, *others], "verdict_reason": "; ".join(filter(None, said)) or None}


def _known_of(name: str, split: Split) -> dict[str, Any]:
    """How a bench was asked, and what of it stood in the training rows."""
    overlap = split.overlap.get(name)
    return {**split.benches.get(name, {}), **({"overlap": overlap} if overlap else {})}


def _of_decider(end: RunEnd, config: RLRunConfig, report: Mapping[str, Any]) -> dict[str, Any]:
    """The run's own numbers as a line of the table, and whether its gain is one of form alone."""
    found = None
    if end.results:
        before, after = end.results[0], end.results[end.picked]
        found = Looked("", "own", _rows(before), _rows(after), *_named(end.split.report))
    form = (
        found is not None
        and report["verdict"] == "gain"
        and is_format_only(found.before, found.after, found.asks)
    )
    return {
        "name": config.decide,
        "kind": "own" if config.decide == OWN else "bench",
        "decides": True,
        "before": report["heldout_before"],
        "after": report["heldout_after"],
        "lift": report["lift"],
        "ci95": report["lift_ci95"],
        "n": report["report_n"],
        "different": report["report_different"],
        **{name: report[name] for name in ("p_value", "gained", "lost", "verdict")},
        "unread_before": found.before.unread if found else None,
        "unread_after": found.after.unread if found else None,
        "shares_before": dict(found.before.shares) if found else {},
        "shares_after": dict(found.after.shares) if found else {},
        "reason": report["verdict_reason"] or (FORMAT_ONLY if form else None),
        "look_at": found.look_at() if found else {},
    }


def _sources(end: RunEnd, config: RLRunConfig) -> Iterator[Looked]:
    """Of the own report rows where they decide, else of all own rows that are held out."""
    if config.decide != OWN:
        yield from _sources_of_a_bench(end, config)
        return
    if not end.results:
        return
    before, after = end.results[0].by_source(), end.results[end.picked].by_source()
    for name in config.data.weights:
        if name not in before:
            continue
        rows = [row for row in end.split.report if row.source == name]
        sound = [one[name].soundness.no_verdict("report rows") for one in (before, after)]
        first, last = _rows(before[name]), _rows(after[name])
        yield Looked(name, "source", first, last, *_named(rows), next(filter(None, sound), None))


def _sources_of_a_bench(end: RunEnd, config: RLRunConfig) -> Iterator[Looked]:
    """Of the own rows as a bench beside the one that decides."""
    questions, kept = end.split.others[OWN], end.state.benches[OWN].solved
    for name in config.data.weights:
        places = [i for i, row in enumerate(questions) if row.source == name]
        first, last = ("".join(kept[step][i] for i in places) for step in (0, end.picked))
        sound = [soundness_of(one).no_verdict("rows") for one in (first, last)]
        before, after = (Rows(solved_of(one), read_of(one)) for one in (first, last))
        asks, ids = _named([questions[i] for i in places])
        if places:
            yield Looked(name, "source", before, after, asks, ids, next(filter(None, sound), None))


def _benches(end: RunEnd, config: RLRunConfig) -> Iterator[Looked]:
    for name, questions in end.split.others.items():
        kept = end.state.benches[name].solved
        shares = end.state.benches[name].shares
        first, last = (
            Rows(solved_of(kept[s]), read_of(kept[s]), shares.get(s, {})) for s in (0, end.picked)
        )
        sound = [soundness_of(kept[s]).no_verdict(f"rows at step {s}") for s in (0, end.picked)]
        unsound = next(filter(None, sound), None)
        asks, ids = _named(questions)
        if name != OWN:
            yield Looked(name, "bench", first, last, asks, ids, unsound)
            continue
        parts = [
            (weight, [i for i, row in enumerate(questions) if row.source == source])
            for source, weight in config.data.weights.items()
        ]
        yield Looked(name, "own", first, last, asks, ids, unsound, parts)


def _rows(result: GateResult) -> Rows:
    kept = marks_of(result)
    return Rows(solved_of(kept), read_of(kept), result.shares())


def _named(rows: Sequence[Question]) -> tuple[list[str], list[str]]:
    """What the rows ask, and their ids."""
    return [asked(row.prompt) for row in rows], [row.id for row in rows]
