"""What a check found, in the words of its panel: one line that judges, and the figures under it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from app.forms.job_check import MEMORY_WORDS, TIME_WORDS, Check
from app.text.wording import dollars, duration, gigabytes
from worker.read.check import Prospect


class Line(NamedTuple):
    """The judgement."""

    tone: Literal["good", "bad", "warn", ""]
    words: str
    note: str = ""


class Figure(NamedTuple):
    """One of memory, time, money and disk."""

    name: str
    value: str
    note: str = ""


def judgement(check: Check) -> Line:
    """Whether it can be sent and fits."""
    wrong, missing = len(check.wrong), len(check.missing)
    if wrong:
        return Line("bad", f"Not yet: {wrong} {'problem' if wrong == 1 else 'problems'}")
    if check.problems:
        return Line(
            "", f"Not yet: {missing} {'setting' if missing == 1 else 'settings'} to fill in"
        )
    too = "; it was tried already, or waits" if check.tried else ""
    if check.fits is None:
        what = "all of them fit" if check.jobs > 1 else "it fits"
        most = check.largest
        unread = most is not None and most.room_gb is None
        note = "free memory cannot be read" if unread else "this kind names no memory beforehand"
        return Line("warn", f"Nobody can tell whether {what}{too}", note)
    if check.jobs == 1:
        return Line("good", f"✓ It fits now{too}") if check.fits else _no(f"It does{_NOT}{too}")
    looked = f"{len(check.looked)} that were looked at"
    whole = len(check.looked) == check.jobs
    if check.fits:
        return Line("good", f"✓ {'All of them' if whole else f'All {looked}'} fit now{too}")
    verb = "does" if check.too_large == 1 else "do"
    return _no(f"{check.too_large} of {check.jobs if whole else looked} {verb}{_NOT}{too}")


_NOT = " not fit now"


def _no(words: str) -> Line:
    return Line("bad", f"✕ {words}")


def figures(check: Check) -> Iterator[Figure]:
    """Those of all jobs together; none where the config does not hold."""
    most, vaguest = check.largest, check.vaguest
    if most is None or vaguest is None:
        return
    yield from _memory(check, most)
    seconds, price = duration(check.seconds), f"at {dollars(most.price_usd_h)} an hour"
    cost = f"${check.cost_usd:.2f}"
    if vaguest.expected_by == "guess":
        why = f"no run of this kind and model ended here; counted as {seconds}"
        yield Figure("takes", "nobody can tell", why)
        yield Figure("costs", "nobody can tell", f"counted as {cost}, {price}")
    else:
        runs = f" ({vaguest.runs} {'run' if vaguest.runs == 1 else 'runs'})" if vaguest.runs else ""
        yield Figure("takes", seconds, f"{TIME_WORDS[vaguest.expected_by]}{runs}")
        yield Figure("costs", cost, price)
    if check.disk_gb is not None:
        free = f"of {gigabytes(check.disk_free_gb)} free: " if check.disk_free_gb else ""
        yield Figure("disk", gigabytes(check.disk_gb), f"{free}its checkpoints at once")


def _memory(check: Check, most: Prospect) -> Iterator[Figure]:
    whole = len(check.looked) == check.jobs and check.fits is not None
    needs = "needs at most" if whole else "most that was found"
    by = MEMORY_WORDS[most.need_by] if most.need_by else ""
    yield Figure("needs" if check.jobs == 1 else needs, gigabytes(most.need_gb), by)
    returns = most.memory.returns_gb
    back = f", {gigabytes(returns)} come back from the resident" if returns else ""
    free = f"{gigabytes(most.memory.free_gb)} free, floor {gigabytes(most.memory.floor_gb)}{back}"
    yield Figure("may be taken now", gigabytes(most.room_gb), free)
