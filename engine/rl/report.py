"""What a run showed, from per-row outcomes alone: verdict, size, cost, and what is published.

The size of the gain comes from the `report` rows, which picked nothing; whether there is one from
all held-out rows (`engine.verdict.selection`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.contract.asked import asked
from engine.contract.intervals import PairedAt, PairedComparison, compare, weighted
from engine.contract.kinds.rl_run import RLRunConfig
from engine.contract.sources.benches import OWN
from engine.data.split import Split
from engine.evaluate.gate import Gate, GateResult
from engine.models.policy import Policy
from engine.rl.benches import RunEnd, bench_fields
from engine.rl.loop import RLLoop
from engine.rl.recorder import LoopRecorder
from engine.rl.state import LoopState
from engine.run.checkpoint import CheckpointStore
from engine.run.report import report_once, result_fields, to_score
from engine.run.session import Attempt
from engine.verdict import trend
from engine.verdict.selection import Better, Heldout, Outcomes, better
from engine.verdict.verdicts import judge, published_step


def final_report(
    attempt: Attempt, store: CheckpointStore, loop: RLLoop, policy: Policy, recorder: LoopRecorder
) -> dict[str, Any]:
    """The `report` rows, once: step 0 against the picked step, row by row. Then publish."""

    config, gate = loop.config, loop.heldout_eval
    assert isinstance(config, RLRunConfig)
    assert isinstance(gate, Gate)
    rows = loop.split.report if loop.split else []

    def load(step: int) -> None:
        policy.load(to_score(attempt, store, step).path, version=step)

    def make(picked: int) -> dict[str, Any]:
        recorder.phase("heldout-gate", loop.state.step)
        results: dict[int, GateResult] = {}
        for step in sorted({0, picked}):
            behind = loop.benches_behind(step)
            if rows or behind:
                load(step)
            if rows:
                results[step] = gate(step, rows)
                recorder.record_gate("report", results[step], selected=step == picked)
            for bench in behind:
                loop.score(bench, step)
        outcomes = {step: result.outcomes for step, result in results.items()}
        unsound = _unsound(loop.state, results, picked)
        if unsound is not None:
            loop.alert("VERIFIER_FAILED", f"no verdict: {unsound}")
        report = report_fields(loop.state, outcomes, config, picked, loop.split, unsound=unsound)
        if loop.split is not None:
            end = RunEnd(loop.state, results, picked, loop.split)
            report |= bench_fields(end, config, report)
        return report | {"diagnosis": loop.state.diagnosis}

    best = loop.selected_step or 0
    report, alert = report_once(store, best=best, scores=loop.heldout_scores, make=make)
    if alert is not None:
        loop.alert(**alert)
    recorder.let_go(report.get("selected_step", best))
    return report


def _unsound(state: LoopState, reported: Mapping[int, GateResult], picked: int) -> str | None:
    """Why the gates that a verdict rests on carry none: those of step 0 and of the picked step."""
    for step in sorted({0, picked}):
        reasons = [state.gate_soundness(step).no_verdict(f"select rows at step {step}")]
        if step in reported:
            reasons.append(reported[step].soundness.no_verdict(f"report rows at step {step}"))
        if found := next(filter(None, reasons), None):
            return found
    return None


def run_result(
    attempt: Attempt, loop: RLLoop, recorder: LoopRecorder, upstream: Mapping[str, Any]
) -> dict[str, Any]:
    """What the run came to, without its report. `upstream`: what it began with, beside its rows."""
    assert isinstance(loop.config, RLRunConfig)
    assert loop.split is not None
    corpus = {"source": loop.config.data.source, "split": loop.split.hash}
    return {
        **result_fields(attempt, loop.state.step, loop.state.seconds),
        **loop.summary(),
        "lineage_card": recorder.card(loop.state),
        "upstream": {"corpus": corpus, **upstream},
    }


def report_fields(
    state: LoopState,
    reported: Mapping[int, Outcomes],
    config: RLRunConfig,
    picked: int | None = None,
    split: Split | None = None,
    *,
    unsound: str | None = None,
) -> dict[str, Any]:
    """The report's part of the result. `reported`: by step 0 and the picked step, may be empty.

    Scores are null where there was no row to score, and the cost of a point where no gain was
    shown. `picked` is another step than the best where the checkpoint of that one is lost: its
    evidence is still held against the best of all gates, so the test errs on the careful side.
    `split` tells which rows ask the same; without it all differ.
    """
    if picked is None:
        picked = state.selected_step or 0
    scored = any(one is not None for one in reported.get(0, ()))
    select_asks = None if split is None else [asked(row.prompt) for row in split.select]
    report_asks = None if split is None else [asked(row.prompt) for row in split.report]
    report = overall = compare([], [])
    found = Better(1.0, 0.0)
    if scored:
        select = state.outcomes()
        report = compare(reported[0], reported[picked], report_asks)
        heldout = Heldout(select, reported, select_asks, report_asks)
        found = better(heldout, picked, seed=config.seed)
        overall = _overall(heldout, picked)
        if split is not None:
            report = _by_weight(report, reported, picked, config, split)
    pool = trend.over_run(state.pool_scores, state.pool_groups)
    verdict = judge(report, found.p, pool, config.report_min, overall, unsound=unsound)
    gained = verdict == "gain"
    return {
        "heldout_before": report.before if scored else None,
        "heldout_after": report.after if scored else None,
        "lift": report.lift if scored else None,
        "lift_ci95": list(report.ci95) if scored else None,
        "lift_at_least": found.at_least if gained else None,
        "p_value": report.p_value,
        "p_better": found.p,
        "gained": report.gained,
        "lost": report.lost,
        "report_n": report.n,
        "report_different": report.different,
        "pool_rise": pool.by,
        "verdict": verdict,
        "verdict_reason": unsound,
        "published_step": published_step(verdict, picked),
        "seconds_per_point": round(state.seconds / (100 * report.lift), 1) if gained else None,
    }


def _by_weight(
    report: PairedComparison,
    reported: Mapping[int, Outcomes],
    picked: int,
    config: RLRunConfig,
    split: Split,
) -> PairedComparison:
    """The own rows of a mixture: its sources count by their weights."""
    if config.decide != OWN or not config.data.mix:
        return report
    parts = []
    for name, weight in config.data.weights.items():
        places = [i for i, row in enumerate(split.report) if row.source == name]
        before, after = ([reported[step][i] for i in places] for step in (0, picked))
        asks = [asked(split.report[i].prompt) for i in places]
        parts.append(PairedAt(weight, compare(before, after, asks)))
    return weighted(report, parts)


def _overall(heldout: Heldout, picked: int) -> PairedComparison:
    """Step 0 against the end on all held-out rows: `select` at the last gate, which nobody picked,
    and `report` at the picked step.
    """
    select, questions = heldout.select, heldout.select_questions
    first, last = (select[0], select[max(select)]) if 0 in select else ((), ())
    asks = None
    if questions is not None and heldout.report_questions is not None:
        asks = [*questions[: len(first)], *heldout.report_questions]
    return compare([*first, *heldout.report[0]], [*last, *heldout.report[picked]], asks)
