"""Proposals for tonight: what a person may want to change, each with the rule it comes from.

Looks at the night that was; knows nothing of what the person wants.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pydantic import BaseModel, ConfigDict

from worker.jobs.deferral import Reason
from worker.jobs.states import State
from worker.lane.decisions import DEFER, DecisionView
from worker.report.runs import MEMORY, RunLine

FEW_ROWS = 300
"""Under so many report rows only a large difference can be told from none."""


class Proposal(BaseModel):
    """One thing to do, and why."""

    model_config = ConfigDict(frozen=True)

    rule: str
    job_id: int | None
    text: str


def proposals_of(runs: Sequence[RunLine], found: Sequence[DecisionView]) -> list[Proposal]:
    """In the order of the runs, what concerns the whole lane last."""
    return [
        *(proposal for run in runs for proposal in _of_run(run)),
        *_of_lane(found),
    ]


def _of_run(run: RunLine) -> Iterator[Proposal]:
    def propose(rule: str, text: str) -> Proposal:
        return Proposal(rule=rule, job_id=run.job_id, text=text)

    if run.state is State.FAILED:
        text = f"job {run.job_id} failed ({run.cause}): mend that, then cockpit retry {run.job_id}"
        yield propose("FAILED", text)
    if any(entry.cause == MEMORY for entry in run.attempts) or run.cause == MEMORY:
        text = f"job {run.job_id} ran out of memory: halve its micro_batch or rollout_batch"
        yield propose("OUT_OF_MEMORY", text)
    if run.verdict == "pool only":
        text = f"job {run.job_id} learnt its pool, not the task: more rows, or a larger kl_coef"
        yield propose("POOL_ONLY", text)
    if run.verdict == "worse":
        text = f"job {run.job_id} made the model worse: a smaller lr"
        yield propose("WORSE", text)
    if run.verdict in {"no difference", "invalid"} and (run.n or 0) < FEW_ROWS:
        text = f"job {run.job_id} was judged on {run.n or 0} rows: hold more back (heldout_frac)"
        yield propose("FEW_ROWS", text)


def _of_lane(found: Sequence[DecisionView]) -> Iterator[Proposal]:
    capped = {entry.job_id for entry in found if _put_off(entry, Reason.OVER_DAILY_CAP)}
    if capped:
        text = f"{len(capped)} job(s) met the day's cap: raise it, or expect them a night later"
        yield Proposal(rule="CAP_MET", job_id=None, text=text)
    stuck = [entry for entry in found if entry.what in {"resident-stuck", "resident-not-restored"}]
    if stuck:
        text = f"the resident model needs a look: {stuck[-1].detail}"
        yield Proposal(rule="RESIDENT", job_id=None, text=text)


def _put_off(entry: DecisionView, reason: Reason) -> bool:
    return entry.what == DEFER and entry.rule == reason
