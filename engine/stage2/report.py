"""What a run showed on its report records: step 0 against the picked step, and the verdict."""

from __future__ import annotations

import time
from typing import Any

from engine.contract.intervals import compare
from engine.contract.stage2.config import Stage2Config
from engine.run.report import report_once, result_fields, to_score
from engine.stage2.callback import RunCallback
from engine.stage2.corpus import Corpus
from engine.stage2.evaluation import Evaluation
from engine.stage2.trainer import Stage2Trainer
from engine.verdict.verdicts import Verdict, published_step


def final_report(
    callback: RunCallback, trainer: Stage2Trainer, corpus: Corpus, report_min: int
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """The report records, once: step 0 against the selected step, picture by picture. Then publish.

    With the alert where another step stands in for the selected one; ({}, None) without records.
    """
    if not corpus.report:
        return {}, None
    recorder = callback.recorder
    attempt, store = recorder.attempt, recorder.store

    def score(step: int, picked: int) -> Evaluation:
        trainer.load_weights(to_score(attempt, store, step).path)
        found = trainer.parts.evaluation(corpus.report)
        callback.gate("report", step, found, corpus.report, selected=step == picked)
        return found

    def make(picked: int) -> dict[str, Any]:
        callback.phase("heldout-gate", trainer.state.global_step, trainer.state.max_steps)
        before = score(0, picked)
        after = before if picked == 0 else score(picked, picked)
        return report_fields(before, after, report_min, picked)

    best, scores = callback.best_step or 0, callback.scores
    return report_once(store, best=best, scores=scores, make=make, writes=recorder.writes)


def so_far(
    callback: RunCallback, config: Stage2Config, corpus: Corpus, warmup: Any
) -> dict[str, Any]:
    """The result of what was trained, with a report or without."""
    data, best = config.data, callback.best_step
    source = {"source": data.train_jsonl, "records": len(corpus.train)}
    return {
        **result_fields(callback.attempt, callback.trainer.state.global_step, callback.seconds),
        "base": config.model.path,
        "selected_step": best,
        "selected_heldout_score": None if best is None else callback.scores[best],
        "selected_on": None if best is None else f"eval_{config.best_by}",
        "heldout_scores": {str(s): score for s, score in sorted(callback.scores.items())},
        "pool_scores": {str(s): f1 for s, f1 in sorted(callback.f1_of_rollouts.items())},
        "lineage_card": callback.card(),
        "upstream": {"corpus": source, "sft_init": warmup, "bench": data.val_jsonl},
        "finished_at": round(time.time(), 3),
    }


def report_fields(
    before: Evaluation, after: Evaluation, report_min: int, picked: int
) -> dict[str, Any]:
    """Score of step 0 and of the picked step, the interval of their difference, whether pictures
    agree with it, and what is published. Records of one picture count as one.
    """
    asks = before.asks
    solved = compare(before.solved, after.solved, asks)
    low, high = after.lift_ci95(before)
    verdict: Verdict
    if solved.different < report_min:
        verdict = "no verdict"
    elif low > 0 and solved.p_value < 0.05 and solved.lift > 0:
        verdict = "gain"
    elif high < 0 and solved.p_value < 0.05 and solved.lift < 0:
        verdict = "loss"
    else:
        verdict = "no gain proven"
    return {
        "heldout_before": before.score,
        "heldout_after": after.score,
        "lift": after.score - before.score,
        "lift_ci95": [low, high],
        "p_value": solved.p_value,
        "gained": solved.gained,
        "lost": solved.lost,
        "report_n": solved.n,
        "report_different": solved.different,
        "verdict": verdict,
        "published_step": published_step(verdict, picked),
    }
