"""The preview: tonight's order with the clock put forward, and why each job must wait."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import update

from tests.worker.lane_rows import NOON, berlin, charge, ended, succeeded
from worker.db.connection import Database
from worker.db.tables import job
from worker.estimate.time_left import LONGEST_S
from worker.queue import pausing
from worker.queue.deferral import Deferral, Reason, columns_of
from worker.queue.submit import enqueue
from worker.read.tonight import Preview, preview
from worker.schedule import policy
from worker.schedule.governor import Memory
from worker.schedule.one_night import one_night
from worker.schedule.policy import Standing
from worker.settings import WorkerSettings

Armed = Callable[..., Standing]
Tally = Callable[..., int]
HOUR = 3600.0
ROOMY = Memory(20.0, 25.0, 2.0)


def look(db: Database, now: float = NOON) -> Preview:
    return preview(db, now, lambda: ROOMY)


@pytest.fixture
def queue(db: Database, tally: Tally) -> list[int]:
    """Runs of a kind that took 10 minutes a step; three of 6, 3 and 12 steps wait."""
    done = tally(steps=2)
    ended(db, done, at=NOON - 86_400, seconds=1200.0)
    succeeded(db, done)
    return [tally(steps=steps) for steps in (6, 3, 12)]


@pytest.mark.requirement("LN-04")
def test_jobs_follow_each_other_from_the_opening_of_the_window(
    db: Database, armed: Armed, queue: list[int]
) -> None:
    """An hour, half an hour, two hours, from 22:00 on."""
    armed(window="22:00-07:00")

    found = look(db)

    begin = berlin("2026-06-01T22:00")
    assert found.starts_at == begin
    assert [(step.job_id, step.starts_at, step.finishes_at) for step in found.steps] == [
        (queue[0], begin, begin + HOUR),
        (queue[1], begin + HOUR, begin + 1.5 * HOUR),
        (queue[2], begin + 1.5 * HOUR, begin + 3.5 * HOUR),
    ]
    assert {step.expected_by for step in found.steps} == {"kind"}


def test_a_run_over_the_end_of_the_window_stops_there_and_the_next_waits_a_day(
    db: Database, armed: Armed, queue: list[int]
) -> None:
    """The window is an hour and a quarter long."""
    armed(window="22:00-23:15")

    first, second, third = look(db).steps

    assert (first.stops_at, first.finishes_at) == (None, berlin("2026-06-01T23:00"))
    assert (second.stops_at, second.finishes_at) == (berlin("2026-06-01T23:15"), None)
    assert third.starts_at == berlin("2026-06-02T22:00")


@pytest.mark.parametrize("steps", [10**12, 10**99])
def test_jobs_of_more_steps_than_anybody_can_wait_for_leave_the_night_readable(
    db: Database, armed: Armed, tally: Tally, queue: list[int], steps: int
) -> None:
    """Ten years are counted for each: no clock is put forward beyond what a calendar holds."""
    armed()
    for seed in (1, 2):
        tally(steps=steps, seed=seed)

    found = {step.job_id: step for step in look(db).steps}

    last = found[max(found)]
    assert last.expected_s == LONGEST_S
    assert last.finishes_at == pytest.approx(NOON + 3.5 * HOUR + 2 * LONGEST_S)


@pytest.mark.requirement("LN-05")
def test_the_cap_is_spent_job_by_job(
    db: Database, armed: Armed, priced: Callable[..., WorkerSettings], queue: list[int]
) -> None:
    """2 $ a day at 1 $/h, 0.4 spent: 1 + 0.5 fit, the third would make it 3.9."""
    priced(price_usd_h=1.0)
    armed(cap_usd=2)
    charge(db, queue[0], seconds=0.4 * HOUR, at=NOON)

    found = look(db)

    assert [step.reason for step in found.steps] == [None, None, "OVER_DAILY_CAP"]
    assert found.steps[2].next_eligible_at == berlin("2026-06-02T00:00")
    assert found.spent_usd == pytest.approx(0.4)
    assert found.expected_usd == pytest.approx(1.5)
    assert [step.cost_usd for step in found.steps] == [1.0, 0.5, 2.0]


def test_a_job_starts_behind_all_of_those_that_it_runs_after(
    db: Database, armed: Armed, queue: list[int]
) -> None:
    """However early its place is; it counts in what the night is expected to cost."""
    armed(window="22:00-07:00")
    child = enqueue(
        db, "tally", {"steps": 1}, actor="test", priority=5, after=[queue[0], queue[1]], force=True
    )
    grandchild = enqueue(db, "tally", {"steps": 1}, actor="test", after=[child], force=True)

    found = look(db)

    begin = berlin("2026-06-01T22:00")
    assert [(step.job_id, step.starts_at, step.reason) for step in found.steps] == [
        (queue[0], begin, None),
        (queue[1], begin + HOUR, None),
        (child, begin + 1.5 * HOUR, None),
        (queue[2], begin + 1.5 * HOUR + 600, None),
        (grandchild, begin + 3.5 * HOUR + 600, None),
    ]
    assert found.expected_usd == sum(step.cost_usd for step in found.steps)


def test_a_job_behind_one_without_a_time_says_why_and_has_none(
    db: Database, armed: Armed, queue: list[int]
) -> None:
    """The window ends its parent before it is done; those behind it keep their place."""
    armed(window="22:00-22:30")
    child = enqueue(db, "tally", {"steps": 1}, actor="test", after=[queue[0]], force=True)

    *planned, last = look(db).steps

    assert [step.job_id for step in planned] == queue
    assert planned[0].stops_at == berlin("2026-06-01T22:30")
    assert (last.job_id, last.starts_at, last.reason) == (child, None, "WAITING_FOR")
    assert last.detail == f"runs after job {queue[0]}"


def test_a_start_time_of_tonight_is_waited_for(
    db: Database, armed: Armed, queue: list[int]
) -> None:
    """Others go before it; an idle stretch does not end the night."""
    armed(window="22:00-07:00")
    late = enqueue(
        db, "tally", {"steps": 6}, actor="test", priority=5, not_before="+1h", force=True
    )
    four = berlin("2026-06-02T04:00")
    with db.write_tx() as conn:
        conn.execute(
            update(job).where(job.c.id == late).values(not_before=four, next_eligible_at=four)
        )

    *planned, last = look(db).steps

    assert [step.job_id for step in planned] == queue
    assert (last.job_id, last.starts_at) == (late, four)


def test_behind_the_end_of_the_policy_nothing_starts_by_itself(
    db: Database, armed: Armed, queue: list[int]
) -> None:
    """The one that runs at that moment is asked to stop."""
    armed(expires_at=NOON + HOUR / 2)

    found = look(db)

    assert [(step.starts_at, step.stops_at) for step in found.steps] == [
        (NOON, NOON + HOUR / 2),
        (None, None),
        (None, None),
    ]


@pytest.mark.parametrize("pause", [False, True])
def test_a_night_without_permission_starts_nothing(
    db: Database, armed: Armed, queue: list[int], pause: bool
) -> None:
    """Not armed, or paused: no start is promised, the expected cost is nothing."""
    if pause:
        armed()
        pausing.pause(db, actor="test")

    found = look(db)

    assert found.starts_at is None
    assert found.reason == ("PAUSED" if pause else "NOT_ARMED")
    assert [step.starts_at for step in found.steps] == [None, None, None]
    assert found.expected_usd == 0.0


def test_a_paused_queue_shows_how_it_would_go_on(
    db: Database, armed: Armed, queue: list[int]
) -> None:
    """As if it were resumed now; it stays paused."""
    armed()
    pausing.pause(db, actor="test")

    found = preview(db, NOON, lambda: ROOMY, resumed=True)

    assert (found.starts_at, found.reason) == (NOON, None)
    assert [step.job_id for step in found.tonight] == queue
    assert look(db).starts_at is None


def test_looking_ahead_writes_nothing(db: Database, armed: Armed, queue: list[int]) -> None:
    """The same twice, and no job is put off by it."""
    armed(cap_usd=0)

    assert look(db) == look(db)


def test_a_night_in_which_the_clock_changes_is_planned_by_real_hours(
    db: Database, armed: Armed, queue: list[int]
) -> None:
    """One hour from 01:30 ends at 03:30 by the clock on the wall in spring."""
    armed(window="01:30-07:00")

    first, *_ = look(db, berlin("2026-03-28T12:00")).steps

    assert first.starts_at == berlin("2026-03-29T01:30")
    assert first.finishes_at == berlin("2026-03-29T03:30")


@pytest.mark.parametrize("until", [None, NOON + HOUR])
def test_what_the_governor_put_off_is_planned_by_what_it_says_now(
    db: Database, armed: Armed, queue: list[int], until: float | None
) -> None:
    """The next drain asks it again: what was true when it was put off may be so no more."""
    armed()
    with db.write_tx() as conn:
        deferral = Deferral(Reason.OOM_ENVELOPE, "it needs 41 GB", until)
        columns = columns_of(deferral)
        conn.execute(update(job).where(job.c.id == queue[0]).values(columns))

    steps = {step.job_id: step for step in look(db).steps}
    by_hand = preview(db, NOON, lambda: ROOMY, by_hand=True)

    assert (steps[queue[0]].starts_at, steps[queue[0]].detail) == (NOON, None)
    assert by_hand.steps[0].job_id == queue[0]
    assert by_hand.steps[0].starts_at == NOON


def test_what_the_cap_still_forbids_is_planned_for_the_next_day(
    db: Database, armed: Armed, priced: Callable[..., WorkerSettings], queue: list[int]
) -> None:
    """With the figures of now: the price was 8 dollars when it was put off, and is 2."""
    priced(price_usd_h=2.0)
    armed(cap_usd=2.5)
    charge(db, queue[1], seconds=HOUR, at=NOON, price=2.0)
    with db.write_tx() as conn:
        told = Deferral(Reason.OVER_DAILY_CAP, "this run is expected to cost $8.00", NOON + 99)
        columns = columns_of(told)
        conn.execute(update(job).where(job.c.id == queue[0]).values(columns))

    step = next(step for step in look(db).steps if step.job_id == queue[0])

    assert step.cost_usd == 2.0
    assert step.starts_at == berlin("2026-06-02T00:00")


@pytest.mark.requirement("UI-04")
def test_a_night_is_foreseen_under_terms_that_nobody_armed_yet(
    db: Database, priced: Callable[..., WorkerSettings], queue: list[int]
) -> None:
    """One night of three hours and 1.60 $: two jobs fit, the third is over the cap; nothing is
    written by looking.
    """
    priced(price_usd_h=1.0)
    asked = one_night(
        {"opens": "22:00", "closes": "01:00", "cap_usd": 1.6, "zone": "Europe/Berlin"}, NOON
    )

    found = preview(db, NOON, lambda: ROOMY, proposed=asked)

    begin = berlin("2026-06-01T22:00")
    assert (found.starts_at, found.closes_at) == (begin, begin + 3 * HOUR)
    assert [step.job_id for step in found.tonight] == queue[:2]
    assert found.steps[2].reason == "OVER_DAILY_CAP"
    assert found.cap_usd == 1.6
    assert policy.standing(db) is None


@pytest.mark.requirement("UI-04")
def test_the_money_of_a_night_grows_with_its_jobs(
    db: Database, armed: Armed, priced: Callable[..., WorkerSettings], queue: list[int]
) -> None:
    """At 1 $/h: one dollar after an hour, half a dollar more after another half; never the cap."""
    priced(price_usd_h=1.0)
    armed(window="22:00-07:00", cap_usd=2)

    found = look(db)

    begin = berlin("2026-06-01T22:00")
    assert [(one.at - begin) / HOUR for one in found.money] == [0.0, 0.0, 1.0, 1.0, 1.5]
    assert [one.usd for one in found.money] == pytest.approx([0.0, 0.0, 1.0, 1.0, 1.5])
    assert found.capped_at is None


@pytest.mark.requirement("UI-04")
def test_the_range_of_an_end_comes_from_the_fastest_and_the_slowest_run_like_it(
    db: Database, armed: Armed, tally: Tally
) -> None:
    """Three runs took 8, 10 and 14 minutes a step; two alone would say nothing of a range."""
    for n, minutes in enumerate((8, 10)):
        done = tally(steps=2, seed=n)
        ended(db, done, at=NOON - 86_400, seconds=120.0 * minutes)
        succeeded(db, done)
    waits = tally(steps=6)
    armed()
    (step,) = look(db).steps
    assert (step.ends_from, step.ends_to, step.expected_runs) == (None, None, 2)

    done = tally(steps=2, seed=2)
    ended(db, done, at=NOON - 86_400, seconds=120.0 * 14)
    succeeded(db, done)
    (step,) = look(db).steps

    assert step.job_id == waits
    assert step.finishes_at == NOON + HOUR
    assert step.ends_from == pytest.approx(NOON + 48 * 60)
    assert step.ends_to == pytest.approx(NOON + 84 * 60)
    assert step.expected_runs == 3


def test_what_comes_behind_the_end_of_the_policy_says_so(
    db: Database, armed: Armed, queue: list[int]
) -> None:
    """Its turn does not come any more under these terms."""
    armed(expires_at=NOON + HOUR / 2)

    _, second, third = look(db).steps

    assert {second.reason, third.reason} == {"NOT_ARMED"}
    assert second.detail == "what is armed ends before its turn comes"
