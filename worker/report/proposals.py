"""Proposals for tonight: what a person may want to change, each with the rule it comes from.

A proposal about a run holds the whole config that it proposes, one about a cap the new cap, so that
an approval does what was read and nothing else; what can only be done by hand says so by holding
neither. Looks at the night that was; knows nothing of what the person wants.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from engine.contract.ends import OF_SERVERS
from engine.contract.registry import make_smaller
from engine.contract.rl.shares import heldout_frac_for, rows_for
from worker.attempt.fruitless import NO_PROGRESS
from worker.attempt.settlement import CANNOT_BEGIN
from worker.db.decisions import DEFER, DecisionView
from worker.queue.deferral import Reason
from worker.queue.states import State
from worker.queue.submission import MAX_NAME
from worker.report.runs import COLLAPSED, LOSS, LOST, MEMORY, POOL_ONLY, UNJUDGED, UNPROVEN, RunLine

BROKEN = frozenset({"CRASH", LOST, "NO_RESULT"})
"""Causes that say nothing against the job; every other failure is a finding about its work."""

FEW_ROWS = 300
"""Under so many report rows only a large difference can be told from none."""


class Change(BaseModel):
    """One setting of the run or of the lane's terms, as it was and as it is proposed."""

    model_config = ConfigDict(frozen=True)

    setting: str
    """Dotted."""
    before: Any
    after: Any


class Proposal(BaseModel):
    """One thing to do, and why."""

    model_config = ConfigDict(frozen=True)

    rule: str
    job_id: int | None
    text: str
    kind: str | None = None
    """Of the job that an approval queues; None = it queues none."""
    name: str | None = None
    config: dict[str, Any] | None = None
    """Whole, with the changes in it."""
    changes: list[Change] = []
    """Of the run that an approval queues; without a `kind`, of the lane's terms."""

    @property
    def by_hand(self) -> bool:
        """A person does it, and says so; an approval changes nothing by itself."""
        return self.kind is None and not self.changes

    @property
    def key(self) -> str:
        """What it is called among the proposals of its night."""
        return self.rule if self.job_id is None else f"{self.rule}-{self.job_id}"


Rule = Mapping[str, Callable[[Any], Any]]
"""Dotted setting → the value to try instead of the one it had; None = leave it."""

SMALLER: Rule = {
    name: lambda size: size // 2 if isinstance(size, int) and size > 1 else None
    for name in ("micro_batch", "rollout_batch", "custom.extra.rollout_matching.decode_batch_size")
}
SAYS_IT_ALL = OF_SERVERS | {NO_PROGRESS, CANNOT_BEGIN}
"""Failures whose error says what to do."""
SLOWER: Rule = {
    name: lambda rate: rate / 2 if isinstance(rate, float) and rate > 0 else None
    for name in ("lr", "training.learning_rate")
}
CLOSER: Rule = {
    "kl_coef": lambda weight: (
        (weight * 2 if weight > 0 else 0.05) if isinstance(weight, float | int) else None
    )
}
AGAIN: Rule = {}


def proposals_of(
    runs: Sequence[RunLine],
    found: Sequence[DecisionView],
    configs: Mapping[int, Mapping[str, Any]],
) -> list[Proposal]:
    """In the order of the runs, what concerns the whole lane last. `configs`: of those runs."""
    return [
        *(proposal for run in runs for proposal in _of_run(run, configs.get(run.job_id))),
        *_of_lane(found),
    ]


def _of_run(run: RunLine, config: Mapping[str, Any] | None) -> Iterator[Proposal]:
    def propose(rule: str, text: str, tried: Rule) -> Proposal:
        return _proposal(run, rule, text, config, tried)

    if run.state is State.FAILED and run.cause in BROKEN:
        text = f"job {run.job_id} failed ({run.cause}): mend that, then cockpit retry {run.job_id}"
        yield propose("FAILED", text, AGAIN)
    elif run.state is State.FAILED and run.cause == COLLAPSED:
        text = f"job {run.job_id} collapsed: {run.remedy or run.error or 'look at its alerts'}"
        yield Proposal(rule="COLLAPSED", job_id=run.job_id, text=text)
    elif run.state is State.FAILED and run.cause in SAYS_IT_ALL:
        retry = f"; then cockpit retry {run.job_id}" if run.cause in OF_SERVERS else ""
        text = f"job {run.job_id}: {run.error}{retry}"
        yield Proposal(rule="REFUSED", job_id=run.job_id, text=text)
    elif run.state is State.FAILED:
        text = (
            f"job {run.job_id} was refused ({run.cause}), and the same settings would be again: "
            "edit them in the form, or mend the file that the refusal names, "
            f"then cockpit retry {run.job_id}"
        )
        yield Proposal(rule="REFUSED", job_id=run.job_id, text=text)
    if any(entry.cause == MEMORY for entry in run.attempts) or run.cause == MEMORY:
        text = f"job {run.job_id} ran out of memory: {make_smaller(run.kind)}"
        yield propose("OUT_OF_MEMORY", text, SMALLER)
    # With its settings one that collapsed would again, whatever it was judged before.
    verdict = None if run.cause == COLLAPSED else run.verdict
    if verdict == POOL_ONLY:
        text = f"job {run.job_id} learnt its pool, not the task: more rows, or a larger kl_coef"
        yield propose("POOL_ONLY", text, CLOSER)
    if verdict == LOSS:
        text = f"job {run.job_id} made the model worse: a smaller lr"
        yield propose("WORSE", text, SLOWER)
    if verdict == UNJUDGED or (verdict == UNPROVEN and (run.n or 0) < FEW_ROWS):
        yield _more_rows(run, config)


def _more_rows(run: RunLine, config: Mapping[str, Any] | None) -> Proposal:
    """Enough rows for a verdict, or for one that sees more than a large difference: held back where
    the corpus has them, else by hand.
    """
    had, settings = run.n or 0, config or {}
    share, select = (settings.get(name) for name in ("heldout_frac", "select_frac"))
    wanted = settings.get("report_min", FEW_ROWS) if run.verdict == UNJUDGED else FEW_ROWS
    text = f"job {run.job_id} was judged on {had} rows, and {wanted} are wanted"
    if not isinstance(share, float) or not isinstance(select, float):
        return Proposal(rule="FEW_ROWS", job_id=run.job_id, text=f"{text}: add held-out rows")
    larger = heldout_frac_for(wanted, rows_for(had, share, select), select) if had else None
    if larger is None:
        text = f"{text}: a larger heldout_frac is not enough, have about "
        text += f"{rows_for(wanted, share, select)} rows in all"
        return Proposal(rule="FEW_ROWS", job_id=run.job_id, text=text)
    text = f"{text}: hold more back (heldout_frac)"
    return _proposal(run, "FEW_ROWS", text, config, {"heldout_frac": lambda _: larger})


def _proposal(
    run: RunLine, rule: str, text: str, config: Mapping[str, Any] | None, tried: Rule
) -> Proposal:
    """With the config to queue, where the run's settings offer something to change."""
    wanted = copy.deepcopy(dict(config or {}))
    changes = []
    for dotted, change in tried.items():
        *path, last = dotted.split(".")
        section: Any = wanted
        for part in path:
            section = section.get(part) if isinstance(section, dict) else None
        if not isinstance(section, dict) or last not in section:
            continue
        before = section[last]
        after = change(before)
        if after is not None:
            section[last] = after
            changes.append(Change(setting=dotted, before=before, after=after))
    if not wanted or (tried and not changes):
        return Proposal(rule=rule, job_id=run.job_id, text=text)
    words = ", ".join(f"{one.setting.rpartition('.')[2]} {one.after:g}" for one in changes)
    name = f"{run.name}, {words or 'again'}"
    return Proposal(
        rule=rule,
        job_id=run.job_id,
        text=text,
        kind=run.kind,
        name=name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 1]}…",
        config=wanted,
        changes=changes,
    )


def _of_lane(found: Sequence[DecisionView]) -> Iterator[Proposal]:
    capped = {
        entry.job_id: entry.numbers for entry in found if _put_off(entry, Reason.OVER_DAILY_CAP)
    }
    if capped:
        jobs, them = ("1 job", "it") if len(capped) == 1 else (f"{len(capped)} jobs", "them")
        text = f"{jobs} met the day's cap: raise it, or expect {them} a night later"
        changes = _larger_caps(list(capped.values()))
        yield Proposal(rule="CAP_MET", job_id=None, text=text, changes=changes)
    stuck = [entry for entry in found if entry.what in {"resident-stuck", "resident-not-restored"}]
    if stuck:
        text = f"the resident model needs a look: {stuck[-1].detail}"
        yield Proposal(rule="RESIDENT", job_id=None, text=text)


_CAPS: Mapping[str, tuple[Sequence[str], str]] = {
    "cap_usd": (("spent_usd", "held_usd"), "expected_usd"),
    "cap_gpu_hours": (("used_hours",), "expected_hours"),
}
"""A cap of the policy → what had used it up, and what each job put off would have used."""


def _larger_caps(found: Sequence[Mapping[str, Any]]) -> list[Change]:
    """The caps, in whole dollars and hours, that let all of these jobs run in one day."""
    changes = []
    for cap, (used, expected) in _CAPS.items():
        known = [one for one in found if one.get(cap) is not None and one.get(expected) is not None]
        if not known:
            continue
        before = max(float(one[cap]) for one in known)
        begun = max(sum(float(one.get(name) or 0) for name in used) for one in known)
        after = float(math.ceil(begun + sum(float(one[expected]) for one in known)))
        if after > before:
            changes.append(Change(setting=cap, before=before, after=after))
    return changes


def _put_off(entry: DecisionView, reason: Reason) -> bool:
    return entry.what == DEFER and entry.rule == reason
