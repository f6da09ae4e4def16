"""Seed groups in words: the same on pages, in the report and on the command line."""

from __future__ import annotations

from collections.abc import Sequence

from app.text import wording
from worker.read.comparison.groups import BenchOfTwo, without_score
from worker.read.groups import Between, Group, GroupRun

_MOST_NAMED = 8


def seeds(runs: Sequence[GroupRun]) -> str:
    """Which, or of many how many."""
    found = sorted({run.seed for run in runs})
    if len(found) > _MOST_NAMED:
        return f"{len(found)} seeds"
    return f"seed{'s' if len(found) > 1 else ''} {', '.join(map(str, found))}"


def members(group: Group) -> str:
    """The runs behind a group's numbers, else all of it."""
    runs = group.counted or group.runs
    if len(runs) > _MOST_NAMED:
        return f"jobs {runs[0].job_id} … {runs[-1].job_id}, {seeds(runs)}"
    numbers = ", ".join(str(run.job_id) for run in runs)
    return f"job{'s' if len(runs) > 1 else ''} {numbers} ({seeds(runs)})"


def score(found: Between) -> str:
    """A mean of scores with its interval between runs."""
    return f"{wording.percent(found.mean)} ({score_interval(found)})"


def score_interval(found: Between) -> str:
    """Of a mean of scores, or why it has none."""
    if found.low is None or found.high is None:
        return _no_interval(found)
    ends = f"{wording.percent(found.low)} to {wording.percent(found.high)}"
    return f"95 % interval between {found.n} runs {ends}"


def gain(found: Between) -> str:
    """A mean of gains with its interval between runs."""
    ends = f"95 % interval {wording.interval(found.low, found.high)}"
    return f"{wording.points(found.mean)} ({_no_interval(found) if found.low is None else ends})"


def _no_interval(found: Between) -> str:
    return f"no interval: {'one run has no spread' if found.n == 1 else 'the runs do not differ'}"


def on_run(group: Group | None, job_id: int) -> list[str]:
    """What a page of one run says of its group; nothing where no other seed was queued."""
    if group is None or len(group.seeds) < 2 or (group.over and not group.benches):
        return []
    mine = next((run for run in group.counted if run.job_id == job_id), None)
    return [*filter(None, (_spread(group, mine), _gains(group))), *without_score(group)]


def _spread(group: Group, mine: GroupRun | None) -> str:
    """How far apart the runs ended, beside what this one gained."""
    if not group.benches:
        return f"No run of this config has a score yet ({seeds(group.runs)})."
    found = group.benches[0].after
    if found.n == 1:
        return (
            f"Of the runs of this config only job {group.counted[0].job_id} "
            f"({seeds(group.counted)}) has a score: how far seeds spread is not known."
        )
    told = f"{found.n} runs of this config with {seeds(group.counted)} ended "
    if found.low is None:
        return told + f"at {wording.percent(found.mean)}, all of them: nothing to test with."
    apart = found.highest - found.lowest
    ends = f"{wording.percent(found.lowest)} and {wording.percent(found.highest)}"
    told += f"between {ends}: seeds alone move it by {_size(apart)}"
    if mine is None or mine.after is None or mine.before is None:
        return f"{told}."
    lift = mine.after - mine.before
    more = "; this run's gain is " if apart < abs(lift) else ", more than this run's gain: "
    return f"{told}{more}{wording.points(lift)}."


def _size(apart: float) -> str:
    return wording.points(apart).lstrip("+")


def _gains(group: Group) -> str | None:
    """What is true of the config, not of one of its runs."""
    if not group.benches or group.benches[0].after.n == 1:
        return None
    told = [f"{score(bench.after)}, gain {gain(bench.lift)}" for bench in group.benches]
    named = [f"{bench.label}: {said}" for bench, said in zip(group.benches, told, strict=True)]
    return f"On average {'; '.join(told[:1] + named[1:])}."


def group_line(group: Group) -> str:
    """A group in one line of a report."""
    if not group.benches:
        return f"{members(group)}: no score"
    first = group.benches[0]
    told = f"{members(group)}: {score(first.after)}, gain {gain(first.lift)}"
    return " ".join([f"{told}.", *without_score(group)])


def tested(found: BenchOfTwo) -> str:
    """How the difference of two groups was tested, or why it was not."""
    if found.tested is None:
        return f"not tested: {NOT_TESTED[found.word]}"
    one = found.tested
    return (
        f"95 % interval {wording.interval(one.low, one.high)}, p {wording.number(one.p_holm)} "
        f"between runs; so many runs with this spread can show {_size(one.shows)}"
    )


NOT_TESTED = {
    "too few runs": "one run of a config says nothing about its spread",
    "no spread": "the runs of a group do not differ",
    "not the same rows": "the groups answered other held-out rows",
}
