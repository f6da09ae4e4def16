"""The policy: armed once, kept, obeyed by scheduled drains."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine.contract.errors import ConfigError
from tests.worker.lane_rows import NOON, berlin, charge, ended
from worker.budget import ledger
from worker.clock.window import zone_named
from worker.db import decisions
from worker.db.connection import Database
from worker.queue.deferral import Reason
from worker.read.spending import spending
from worker.schedule import governor, policy
from worker.schedule.governor import Terms
from worker.schedule.policy import Standing

Armed = Callable[..., Standing]
Tally = Callable[..., int]


def word(db: Database, now: float) -> tuple[Reason, float | None] | None:
    found = policy.withheld(db, policy.standing(db), now)
    return None if found is None else (found.reason, found.until)


@pytest.mark.requirement("LN-01")
def test_a_lane_that_nobody_armed_starts_nothing(db: Database) -> None:
    """And one that was switched off starts nothing any more."""
    assert word(db, NOON) == (Reason.NOT_ARMED, None)


def test_the_terms_name_the_machines_zone_when_nobody_chose_one() -> None:
    """Frozen when it is armed: a machine that travels keeps the hours it was told."""
    told = policy.described(policy.Policy(window="22:00-07:00"))

    assert told == f"22:00-07:00 ({zone_named(None).key})"


def test_the_terms_say_when_what_they_allow_changes_next() -> None:
    """The opening, the closing, or the last moment, whichever comes first."""
    hours = policy.Policy(window="22:00-07:00", zone="Europe/Berlin")
    opens = hours.opens_at(NOON)
    closes = hours.closes_at(opens)
    soon = hours.model_copy(update={"expires_at": NOON + 60})

    assert hours.changes_at(NOON) == opens > NOON
    assert hours.changes_at(opens) == closes
    assert soon.changes_at(NOON) == NOON + 60
    assert soon.changes_at(NOON + 61) == opens
    assert policy.Policy(zone="UTC").changes_at(NOON) is None


@pytest.mark.requirement("LN-01")
def test_an_armed_lane_keeps_its_terms_and_who_set_them(db: Database, armed: Armed) -> None:
    """They stand in the database, so no crontab line can lose the cap."""
    armed(interval_min=10, cap_usd=5, window="22:00-07:00", days="mon-fri", max_failures=3)

    found = policy.standing(db)

    assert found is not None
    assert (found.armed, found.changed_by, found.changed_at) == (True, "test", NOON)
    assert (found.interval_min, found.cap_usd, found.max_failures) == (10, 5, 3)
    assert (found.window, found.days, found.zone) == ("22:00-07:00", "mon-fri", "Europe/Berlin")


@pytest.mark.requirement("LN-01")
def test_off_disarms_and_leaves_an_audit_row_beside_the_one_of_on(
    db: Database, armed: Armed
) -> None:
    """Who, when, and the terms."""
    armed(cap_usd=5)

    policy.disarm(db, actor="cli:ada", now=NOON + 60)

    assert word(db, NOON + 61) == (Reason.NOT_ARMED, None)
    on, off = decisions.between(db, "cpu", NOON, NOON + 100)
    assert (on.what, on.actor, on.numbers["cap_usd"]) == ("armed", "test", 5)
    assert (off.what, off.actor, off.at) == ("disarmed", "cli:ada", NOON + 60)


@pytest.mark.requirement("JB-09")
def test_outside_the_window_a_job_knows_when_it_opens(db: Database, armed: Armed) -> None:
    """22:00 of the same day, by the policy's time zone."""
    armed(window="22:00-07:00")

    assert word(db, NOON) == (Reason.OUTSIDE_WINDOW, berlin("2026-06-01T22:00"))
    assert word(db, berlin("2026-06-02T03:00")) is None


def test_a_policy_that_ran_out_starts_nothing(db: Database, armed: Armed) -> None:
    """From that moment on; a run that goes on then is asked to stop."""
    standing = armed(expires_at=NOON + 3600)

    assert word(db, NOON + 3599) is None
    assert word(db, NOON + 3600) == (Reason.NOT_ARMED, None)
    assert standing.closes_at(NOON) == NOON + 3600


@pytest.mark.parametrize(
    ("outcomes", "starts"),
    [
        (["failed", "failed"], False),
        (["failed", "aborted"], False),
        (["failed", "succeeded"], True),
        (["succeeded", "failed"], True),
        (["failed", "cancelled", "failed"], False),
        (["failed"], True),
    ],
)
def test_failures_in_a_row_end_a_night(
    db: Database, armed: Armed, tally: Tally, outcomes: list[str], starts: bool
) -> None:
    """A success in between starts the count again; a cancel is a person's word and counts not."""
    armed(max_failures=2)
    for step, outcome in enumerate(outcomes, 1):
        ended(db, tally(steps=step), at=NOON + step, outcome=outcome)

    assert (word(db, NOON + 100) is None) is starts


def test_arming_again_forgets_the_failures_before(db: Database, armed: Armed, tally: Tally) -> None:
    """A person has looked."""
    armed(max_failures=1)
    ended(db, tally(), at=NOON + 1, outcome="failed")
    assert word(db, NOON + 2) is not None

    armed(at=NOON + 3, max_failures=1)

    assert word(db, NOON + 4) is None


@pytest.mark.parametrize("fast_s", [3600, -3600, 86_400 * 400])
def test_failures_are_counted_in_their_order_whatever_the_clock_said(
    db: Database, armed: Armed, tally: Tally, fast_s: float
) -> None:
    """Armed while the clock was an hour fast: what fails after that ends before it was armed."""
    armed(at=NOON + fast_s, max_failures=2)
    for step in range(2):
        assert word(db, NOON + 10) is None
        ended(db, tally(steps=step), at=NOON + step, outcome="failed")

    assert word(db, NOON + 10) is not None
    ended(db, tally(steps=5), at=NOON - 7200, outcome="succeeded")  # the clock was put back
    assert word(db, NOON + 10) is None


@pytest.mark.requirement("LN-05")
@pytest.mark.parametrize(
    "after",
    [
        {"zone": "Pacific/Pago_Pago"},
        {"zone": "Pacific/Kiritimati"},
        {"zone": "UTC", "window": "22:00-14:30"},
    ],
)
def test_what_the_day_has_come_to_still_counts_when_its_days_are_counted_anew(
    db: Database, armed: Armed, tally: Tally, after: dict[str, str]
) -> None:
    """Another zone, or a night over midnight, gives the same moment another date."""
    armed(zone="UTC", cap_usd=5)
    ledger.spend_elsewhere(db, {"usd": 4.0}, actor="test", now=NOON)
    charge(db, tally(), seconds=7200, at=NOON, price=1.0)

    for terms in (after, {"zone": "UTC"}, after):
        found = armed(at=NOON + 1, cap_usd=5, **terms)
        with db.read() as conn:
            now = Terms(db.settings, found, NOON + 2)
            assert governor.spent_today(conn, now) == (6.0, 7200.0)

    days = spending(db, NOON + 2).days
    assert sum(day.usd for day in days) == 6.0


def test_the_audit_tells_which_terms_were_in_force_when(db: Database, armed: Armed) -> None:
    """Also for a lane that is off by now."""
    armed(cap_usd=1)
    armed(at=NOON + 100, cap_usd=2)
    policy.disarm(db, actor="test", now=NOON + 200)

    found = policy.in_force(db, NOON + 50, NOON + 1000)

    assert [(part.begin - NOON, part.end - NOON, part.terms.cap_usd) for part in found] == [
        (50, 100, 1),
        (100, 200, 2),
    ]
    assert policy.in_force(db, NOON + 300, NOON + 400) == []


def test_a_lane_that_was_never_armed_has_no_terms_in_force(db: Database) -> None:
    """An empty history is a history."""
    assert policy.in_force(db, 0, NOON) == []


@pytest.mark.parametrize(
    ("raw", "line"),
    [
        ({"interval_min": 0}, "interval_min: input should be greater than or equal to 0.02"),
        ({"cap_usd": -1}, "cap_usd: input should be greater than or equal to 0"),
        ({"cap_usd": float("nan")}, "cap_usd: "),
        ({"cap_gpu_hours": -0.5}, "cap_gpu_hours: "),
        ({"max_failures": 0}, "max_failures: "),
        ({"window": "22-7"}, "window: is no window"),
        ({"days": "caturday"}, "days: are no days of the week"),
        ({"zone": "Mars/One"}, "zone: is no time zone"),
        ({"expires": "yesterday"}, "expires: is no time"),
        ({"cap_euro": 5}, "cap_euro: is not a setting; did you mean cap_usd?"),
    ],
)
def test_terms_that_cannot_hold_are_refused_in_one_line(raw: dict[str, object], line: str) -> None:
    """Field, value, remedy; nothing is armed."""
    with pytest.raises(ConfigError) as refused:
        policy.parse(raw, NOON)

    assert str(refused.value).startswith(line)
    assert "\n" not in str(refused.value)


WRONG = {
    "interval_min": "0",
    "window": "25:00-07:00",
    "days": "someday",
    "zone": "Mars/Base",
    "cap_usd": "-1",
    "expires": "yesterday",
    "cap_eur": "5",
}


@pytest.mark.requirement("LN-01")
def test_every_wrong_term_is_named_at_once() -> None:
    """Whoever mends a form should send it once more, not once for each mistake."""
    with pytest.raises(ConfigError) as refused:
        policy.parse(WRONG, NOON)

    assert sorted(problem.field for problem in refused.value.problems) == sorted(WRONG)


@pytest.mark.parametrize("name", ["window", "days", "zone"])
def test_a_term_that_is_no_text_is_refused_like_any_other(name: str) -> None:
    """REST sends whatever JSON holds."""
    with pytest.raises(ConfigError) as refused:
        policy.parse({name: 5}, NOON)

    assert [problem.field for problem in refused.value.problems] == [name]
