"""The report rows, looked at once, after the last gate: step 0 against the picked step.

Then the step that the verdict names is published. Knows no score of a kind: scoring comes in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from engine.contract.documents import read_json_object
from engine.contract.errors import NightlaneError
from engine.contract.run_dir import write_json
from engine.run.checkpoint import Checkpoint, CheckpointStore
from engine.run.session import Attempt
from engine.run.stop import Declined


def report_once(
    store: CheckpointStore,
    *,
    best: int,
    scores: Mapping[int, float],
    make: Callable[[int], dict[str, Any]],
    writes: bool = True,
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """The report, as an earlier attempt wrote it or as `make(picked)` scores it now, and the alert
    where the picked checkpoint is lost and another stands in for it.

    `best`: the step that held-out picked; `scores`: held-out score by gated step. Only who
    `writes` touches the disk.
    """
    path = store.run.report
    report = _written(store)
    if report is None:
        picked = store.best_whole(best, scores)
        report = make(picked)
        if picked != best:
            report |= {"selected_step": picked, "selected_heldout_score": scores.get(picked)}
        if writes:
            write_json(path, report)
    if writes:
        store.select(report["published_step"])
    picked = report.get("selected_step", best)
    return report, None if picked == best else _stand_in(best, picked)


def _written(store: CheckpointStore) -> dict[str, Any] | None:
    """The report of an earlier attempt; None without a whole one."""
    try:
        found = read_json_object(store.run.report)
        if type(found["published_step"]) is int:
            return found
    except FileNotFoundError:
        return None
    except (OSError, KeyError):
        pass
    store.warn("REPORT_REBUILT", "report.json cannot be read; the report rows are scored again")
    return None


def _stand_in(picked: int, found: int) -> dict[str, Any]:
    """The alert where a report is on another checkpoint than the one that held-out picked."""
    text = (
        f"the checkpoint of step {picked}, which held-out picked, is damaged or gone and was not "
        f"scored; step {found}, the best of those that are whole, stands in for it"
    )
    return {"code": "CHECKPOINT_CORRUPT", "step": picked, "text": text}


def to_score(attempt: Attempt, store: CheckpointStore, step: int) -> Checkpoint:
    """Raises NightlaneError for a checkpoint that is damaged or gone: it is never scored."""
    found = store.verified(step)
    if found is None:
        raise NightlaneError(
            f"{store.folder(step)} is damaged and was not scored; "
            f"cockpit retry {attempt.job.job_id} goes on from the last whole checkpoint"
        )
    return found


def result_fields(attempt: Attempt, steps: int, seconds: float) -> dict[str, Any]:
    """What the result of every kind says of how it ran."""
    return {
        "kind": attempt.job.kind,
        "n_steps": steps,
        "steps": steps,
        "seconds": round(seconds, 1),
        "peak_gb": round(attempt.peaks.peak_gb, 3),
        "mem_trace": attempt.peaks.trace(),
    }


def ended(
    attempt: Attempt, step: int, result: dict[str, Any], refusal: Declined | None
) -> dict[str, Any]:
    """The last phase, and the result; raises the refusal with it where there is one."""
    attempt.progress(phase="teardown", step=step)
    if refusal is None:
        return result
    refusal.result = result
    raise refusal
