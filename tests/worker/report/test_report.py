"""The morning's report: every figure from rows, every gap explained, kept as it was."""

from __future__ import annotations

import contextlib
import datetime
import http.server
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from sqlalchemy import insert, update

from engine.contract.embedded import is_demo
from engine.verdict.verdicts import Verdict
from tests.worker.lane_rows import BERLIN, berlin, charge, ended
from tests.worker.report.conftest import MORNING, NIGHT, at, decided
from worker.budget import ledger
from worker.clock.night import night_at, night_of
from worker.clock.window import zone_named
from worker.db import decisions
from worker.db.connection import Database
from worker.db.tables import job, metric, report_snapshot
from worker.queue.states import State
from worker.report import digest
from worker.report.gains import doubtful
from worker.report.runs import RunLine
from worker.report.snapshot import SnapshotError, report_of
from worker.report.standup import Report, build, sentence
from worker.settings import WorkerSettings

Ran = Callable[..., int]
Armed = Callable[..., None]
Goes = Callable[..., int]
HOUR = 3600.0
LATE = NIGHT.end + 60
"""When the night is over."""


def verdict(word: str, lift: float = 0.021, half: float = 0.013, n: int = 1000) -> dict[str, Any]:
    """A finished run's result."""
    return {
        "verdict": word,
        "lift": lift,
        "lift_ci95": [lift - half, lift + half],
        "report_n": n,
        "mem_trace": {"peak_used_gb": 19.2},
    }


def report(db: Database, now: float = LATE) -> Report:
    return build(db, NIGHT, now)


# --- the night ---


@pytest.mark.parametrize(
    ("moment", "morning"),
    [
        ("2026-06-01T12:00", "2026-06-02"),
        ("2026-06-01T23:59", "2026-06-02"),
        ("2026-06-02T11:59:59", "2026-06-02"),
        ("2026-06-02T12:00", "2026-06-03"),
    ],
)
def test_a_night_goes_from_noon_to_noon(moment: str, morning: str) -> None:
    """And is called after its morning."""
    assert night_at(berlin(moment), BERLIN).day.isoformat() == morning


@pytest.mark.parametrize(("day", "hours"), [("2026-03-29", 23), ("2026-10-25", 25)])
def test_a_night_in_which_the_clock_changes_has_its_own_length(day: str, hours: int) -> None:
    """One hour less in spring, one more in autumn."""
    night = night_of(datetime.date.fromisoformat(day), zone_named("Europe/Berlin"))

    assert (night.end - night.begin) / 3600 == hours


# --- the sentence ---


@pytest.mark.requirement("LN-11")
def test_the_sentence_says_what_ran_what_was_learnt_and_what_it_cost(
    db: Database, armed: Armed, ran: Ran
) -> None:
    """Four runs of an hour at a dollar: a gain, a failure, one for memory, and API money."""
    armed(cap_usd=5)
    ran("22:00", "23:00", result=verdict("gain"))
    ran("23:00", "00:00", state="failed", cause="CRASH")
    twice = ran("00:00", "00:30", state="queued", cause="MEMORY")
    ran("00:30", "01:00", number=twice, n=2, result=verdict("no gain proven", 0.001))
    ledger.spend_elsewhere(db, {"usd": 0.25}, actor="test", now=at("02:00"))

    assert report(db).sentence == (
        "RAN 3 · 1 FAILED · +2.1 ± 1.3 held-out, best of 2 · peak 19.2 GB · 1 OOM-deferred · "
        "$3.25 of $5"
    )


def test_a_night_in_which_nothing_ran_says_so(db: Database, armed: Armed) -> None:
    """Nothing is left out because it is nothing."""
    armed()

    assert report(db).sentence == "RAN 0 · 0 OOM-deferred · $0.00"


def test_without_a_gain_the_sentence_says_the_verdicts(db: Database, ran: Ran) -> None:
    """Never a number that looks like one."""
    ran("22:00", "23:00", result=verdict("pool only", 0.004))
    ran("23:00", "23:30", result=verdict("no verdict"))

    assert "held-out: pool only, no verdict" in report(db).sentence


@pytest.mark.parametrize(
    ("p", "others", "said"),
    [
        (0.03, 0, "+2.1 ± 1.3 held-out ·"),
        (0.03, 1, "held-out: 1 gain of 2 runs, which may be chance ·"),
        (0.004, 9, "+2.1 ± 1.3 held-out, best of 10 ·"),
        (0.006, 9, "held-out: 1 gain of 10 runs, which may be chance ·"),
    ],
)
def test_a_gain_is_announced_if_it_stands_among_all_runs_that_were_judged(
    db: Database, ran: Ran, p: float, others: int, said: str
) -> None:
    """The best of ten is picked too. What had too few rows for a verdict was no chance for one."""
    ran("22:00", "22:30", result=verdict("gain") | {"p_better": p})
    ran("22:30", "22:45", result=verdict("no verdict") | {"p_better": 0.5})
    for minute in range(others):
        result = verdict("no gain proven") | {"p_better": 0.5}
        ran("23:00", f"23:{minute + 10}", result=result)

    assert said in report(db).sentence


def test_of_two_gains_one_may_stand_and_one_not(db: Database, ran: Ran) -> None:
    """The larger one is not announced when chance explains it."""
    ran("22:00", "22:30", result=verdict("gain", 0.021) | {"p_better": 0.001})
    ran("22:30", "23:00", result=verdict("gain", 0.090) | {"p_better": 0.04})
    ran("23:00", "23:30", result=verdict("no gain proven") | {"p_better": 0.9})

    found = report(db)

    assert "+2.1 ± 1.3 held-out, best of 3" in found.sentence
    assert [run.job_id for run in doubtful(found.runs)] == [2]


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (0.008, 0.034, "+2.1 ± 1.3 held-out"),
        (-0.002, 0.036, "+2.1 (−0.2 to +3.6) held-out"),
        (0.0081, 0.0344, "+2.1 ± 1.3 held-out"),
    ],
)
def test_an_interval_with_two_sides_is_told_by_its_ends(
    db: Database, ran: Ran, low: float, high: float, said: str
) -> None:
    """Half of its width would hide that it includes none."""
    ran("22:00", "23:00", result=verdict("gain") | {"lift_ci95": [low, high]})

    assert said in report(db).sentence


def test_what_a_run_that_knows_no_picking_is_tested_by_is_its_exact_test(
    db: Database, ran: Ran
) -> None:
    """A loss that is significant is no gain that is."""
    ran("22:00", "22:30", result=verdict("gain") | {"p_value": 0.01})
    ran("22:30", "23:00", result=verdict("loss", -0.05) | {"p_value": 0.001})
    ran("23:00", "23:30", result=verdict("gain") | {"p_better": 0.02, "p_value": 0.5})

    assert [run.p for run in report(db).runs] == [0.01, 1.0, 0.02]


@pytest.mark.parametrize("word", get_args(Verdict))
def test_each_run_has_its_own_verdict_with_interval_and_n(
    db: Database, ran: Ran, word: str
) -> None:
    """In the engine's word, which the board and the run page say too."""
    ran("22:00", "23:00", result=verdict(word))

    [line] = report(db).runs

    assert (line.verdict, line.lift, line.n) == (word, 0.021, 1000)
    assert line.low == pytest.approx(0.008)
    assert line.high == pytest.approx(0.034)


def test_a_run_that_goes_on_has_no_verdict_yet(db: Database, ran: Ran) -> None:
    """What it measured so far decides nothing."""
    ran("22:00", "23:00", state="queued", result=verdict("gain"))

    [line] = report(db).runs

    assert (line.verdict, line.lift) == (None, None)


def test_a_run_that_collapsed_keeps_what_it_was_judged_by(db: Database, ran: Ran) -> None:
    """Its pick was judged before it was given up, and may be published; what to do is its own."""
    remedy = "lower lr, or raise kl_coef"
    result = verdict("gain") | {"diagnosis": {"rule": "KL spike", "remedy": remedy}}
    ran("22:00", "23:00", state="failed", cause="COLLAPSED", result=result)

    found = report(db)

    [line] = found.runs
    assert (line.verdict, line.lift, line.n, line.failed) == ("gain", 0.021, 1000, True)
    assert found.sentence.startswith("RAN 1 · 1 FAILED · +2.1 ± 1.3 held-out")
    [proposal] = found.proposals
    assert (proposal.rule, proposal.text) == ("COLLAPSED", f"job 1 collapsed: {remedy}")


def test_attempts_of_other_nights_are_not_counted(db: Database, ran: Ran) -> None:
    """A run of two nights is half of each."""
    number = ran("11:00", "11:59", state="queued")
    ran("12:01", "13:00", number=number, n=2)  # the afternoon before: the same night
    ran("22:00", "23:00", number=number, n=3)

    [line] = report(db).runs
    other = build(db, night_of(MORNING + datetime.timedelta(days=1), BERLIN), LATE)

    assert [entry.n for entry in line.attempts] == [2, 3, 1]
    assert other.runs == []


@pytest.mark.requirement("LN-11")
def test_a_failure_shows_its_cause_and_last_lines(
    db: Database, ran: Ran, settings: WorkerSettings
) -> None:
    """So that nobody has to look for a log in the morning."""
    number = ran("22:00", "23:00", state="failed", cause="CRASH", error="the engine crashed")
    log = settings.runs_dir / str(number) / "attempts/001/engine.log"
    log.parent.mkdir(parents=True)
    log.write_text("".join(f"line {index}\n" for index in range(100)) + "ValueError: no\n")

    [line] = report(db).runs

    assert (line.error, len(line.last_lines), line.last_lines[-1]) == (
        "the engine crashed",
        5,
        "ValueError: no",
    )


def test_what_the_error_says_is_not_said_again_by_the_log(
    db: Database, ran: Ran, settings: WorkerSettings
) -> None:
    """An engine writes its refusal, line by line, into its log too."""
    problems = "lr: must be positive (got -1); use 1e-6\ngroup_k: is 1; use 2"
    number = ran("22:00", "23:00", state="failed", cause="CONFIG", error=problems)
    log = settings.runs_dir / str(number) / "attempts/001/engine.log"
    log.parent.mkdir(parents=True)
    log.write_text(f"reading\n{problems}\n")

    [line] = report(db).runs

    assert (line.error, line.last_lines) == (problems, ["reading"])


@pytest.mark.requirement("LN-11")
def test_what_was_put_off_stands_in_the_report_with_rule_and_numbers(
    db: Database, tally: Callable[..., int], ran: Ran
) -> None:
    """A night that deferred a job did not forget it."""
    number = tally()
    numbers = {"need_gb": 30.0, "free_gb": 20.0}
    decided(db, "22:00", "defer", "too large", number, rule="OOM_ENVELOPE", numbers=numbers)

    found = report(db)

    assert found.deferred == {"OOM_ENVELOPE": [number]}
    assert found.decisions[0].numbers == numbers


# --- what goes on ---


@pytest.mark.requirement("LN-11")
def test_a_run_that_goes_on_makes_no_hour_idle(db: Database, armed: Armed, goes: Goes) -> None:
    """In the morning it is what the night was spent on, though nothing has ended yet."""
    armed(cap_usd=50)
    number = goes("23:00", "05:00")

    found = report(db, at("05:00"))

    assert found.sentence == "RAN 0 · 1 RUNNING · 0 OOM-deferred · $6.00 of $50"
    assert [(gap.begin, gap.end) for gap in found.gaps] == [(at("22:00"), at("23:00"))]
    assert (found.lane_hours, found.idle_hours) == (6.0, 1.0)
    [line] = found.going
    assert (line.job_id, line.seconds, line.usd, line.alive) == (number, 6 * HOUR, 6.0, True)


@pytest.mark.requirement("LN-11")
def test_a_run_of_many_nights_has_its_hours_and_money_in_each(
    db: Database, armed: Armed, ran: Ran, tally: Callable[..., int]
) -> None:
    """It began 20 hours before this night, and ends six hours behind it."""
    armed(window=None)
    number = tally()
    begin, end = NIGHT.begin - 20 * HOUR, NIGHT.end + 6 * HOUR
    for piece in range(50):
        charge(db, number, seconds=HOUR, at=begin + (piece + 1) * HOUR)
    ended(db, number, at=end, seconds=50 * HOUR)
    nights = [night_of(MORNING + datetime.timedelta(days=days), BERLIN) for days in (-1, 0, 1)]

    before, this, last = (build(db, night, end + HOUR) for night in nights)

    assert [found.lane_hours for found in (before, this, last)] == [20.0, 24.0, 6.0]
    # What was metered at noon itself belongs to the night that begins then.
    assert [found.spent_usd for found in (before, this, last)] == [19.0, 24.0, 7.0]
    assert [found.ran for found in (before, this, last)] == [0, 0, 1]
    assert [len(found.going) for found in (before, this, last)] == [1, 1, 0]
    assert this.gaps == []
    [line] = last.runs
    assert (line.seconds, line.seconds_before, line.usd_before) == (50 * HOUR, 44 * HOUR, 43.0)


def test_a_run_that_ended_later_stands_in_the_kept_night(db: Database, goes: Goes) -> None:
    """Also when the night is first asked for days later."""
    number = goes("11:00", NIGHT.end + 3 * HOUR)

    [line] = report(db, NIGHT.end + 3 * HOUR).going

    assert (line.job_id, line.until, line.alive) == (number, NIGHT.end, True)


@pytest.mark.requirement("LN-11")
def test_what_a_dead_supervisor_left_behind_is_no_work(
    db: Database, armed: Armed, goes: Goes
) -> None:
    """The lane worked up to its last sign of life; since then it is idle, and why is said."""
    armed()
    goes("22:00", "02:00")

    found = report(db, at("06:00"))

    why = "the supervisor or the machine died; nobody has looked at the queue since"
    assert [(gap.begin, gap.end, gap.why) for gap in found.gaps] == [
        (at("02:00"), at("06:00"), why)
    ]
    [line] = found.going
    assert (line.alive, line.until, line.seconds) == (False, at("02:00"), 4 * HOUR)
    assert found.sentence == "RAN 0 · 1 STALE · 0 OOM-deferred · $4.00"


def test_one_that_died_before_the_night_is_none_of_its_runs(db: Database, goes: Goes) -> None:
    """Whoever looks at its job finds it stale; this night had nothing of it."""
    goes(NIGHT.begin - 9 * HOUR, NIGHT.begin - 8 * HOUR)

    assert report(db, at("06:00")).going == []


@pytest.mark.requirement("LN-11")
def test_what_goes_on_is_told_as_far_as_it_had_come(db: Database, goes: Goes) -> None:
    """A kept night knows no step and no gate of the day behind it."""
    number = goes("22:00", NIGHT.end + 2 * HOUR)
    measured = {10: at("23:00"), 20: at("11:00"), 30: NIGHT.end + HOUR}
    series = ("pool/score", "heldout/select")
    rows = [
        {"job_id": number, "series": name, "step": step, "attempt": 1, "value": step / 100, "at": t}
        for name in series
        for step, t in measured.items()
    ]
    with db.write_tx() as conn:
        conn.execute(insert(metric), rows)

    [line] = report(db, NIGHT.end + 2 * HOUR).going

    assert (line.step, line.heldout) == (20, [(10, 0.1), (20, 0.2)])


# --- gaps ---


def gaps(db: Database) -> list[tuple[float, float, str]]:
    return [(gap.begin, gap.end, gap.why) for gap in report(db).gaps]


@pytest.mark.requirement("LN-11")
def test_every_idle_hour_of_the_window_is_explained(
    db: Database, armed: Armed, ran: Ran, tally: Callable[..., int]
) -> None:
    """A crash of the supervisor, a cap, a queue that was done; before 22:00 nothing is idle."""
    armed()
    ran("22:00", "23:00", cause="LOST", outcome="queued", state="queued")
    ran("23:30", "00:30")
    number = tally()
    decided(db, "00:30", "defer", "capped", number, rule="OVER_DAILY_CAP", numbers={})
    ran("02:00", "03:00")
    decided(db, "03:00", "drain", "the drain ended: nothing more could be started")

    assert gaps(db) == [
        (
            at("23:00"),
            at("23:30"),
            "the supervisor or the machine died; the next look at the queue came then",
        ),
        (at("00:30"), at("02:00"), f"job {number}: OVER_DAILY_CAP"),
        (at("03:00"), at("07:00"), f"job {number}: OVER_DAILY_CAP"),
    ]


def test_a_deferral_that_ended_explains_no_later_gap(
    db: Database, armed: Armed, ran: Ran, tally: Callable[..., int]
) -> None:
    """What the drain said last does then."""
    armed()
    until = {"until": at("00:00")}
    decided(db, "22:00", "defer", "full", tally(), rule="OOM_ENVELOPE", numbers=until)
    ran("00:00", "01:00")
    decided(db, "01:00", "drain", "the drain ended: nothing more could be started")

    assert [why for *_, why in gaps(db)] == [
        "job 1: OOM_ENVELOPE",
        "the drain ended: nothing more could be started",
    ]


NOTHING = "the drain ended: nothing more could be started"
NOBODY = "nobody looked at the queue: no tick, no cron, no drain"


def test_a_cause_explains_the_hours_in_which_it_held(
    db: Database, armed: Armed, ran: Ran, tally: Callable[..., int]
) -> None:
    """A pause, then a cap; nobody had looked before, and what was paused is no cap."""
    armed()
    paused = "the drain ended: it was asked to end, or the queue is paused"
    decided(db, "23:00", "drain", paused)
    number = tally()
    decided(db, "01:00", "defer", "capped", number, rule="OVER_DAILY_CAP", numbers={})
    decided(db, "01:00", "drain", NOTHING)
    ran("04:00", "07:00", number=number)

    assert gaps(db) == [
        (at("22:00"), at("23:00"), NOBODY),
        (at("23:00"), at("01:00"), paused),
        (at("01:00"), at("04:00"), f"job {number}: OVER_DAILY_CAP"),
    ]


def test_a_job_that_ran_after_all_keeps_no_later_hour_idle(
    db: Database, armed: Armed, ran: Ran, tally: Callable[..., int]
) -> None:
    """Put off until tomorrow, the price was lowered, it ran: what came then was an empty queue."""
    armed()
    number = tally()
    until = {"until": at("06:00")}
    decided(db, "22:00", "defer", "capped", number, rule="OVER_DAILY_CAP", numbers=until)
    decided(db, "22:00", "drain", NOTHING)
    ran("23:00", "23:30", number=number)
    decided(db, "23:30", "drain", NOTHING)

    assert gaps(db) == [
        (at("22:00"), at("23:00"), f"job {number}: OVER_DAILY_CAP"),
        (at("23:30"), at("07:00"), NOTHING),
    ]


def test_a_job_that_was_cancelled_keeps_no_later_hour_idle(
    db: Database, armed: Armed, tally: Callable[..., int]
) -> None:
    """The other one that waited still does."""
    armed()
    first, second = tally(), tally()
    for number, reason in ((first, "OVER_DAILY_CAP"), (second, "OOM_ENVELOPE")):
        decided(db, "22:00", "defer", "held", number, rule=reason, numbers={})
    decided(db, "22:00", "drain", NOTHING)
    with db.write_tx() as conn:
        gone = {"state": "cancelled", "finished_at": at("02:00")}
        conn.execute(update(job).where(job.c.id == first).values(gone))

    assert gaps(db) == [
        (at("22:00"), at("02:00"), f"job {first}: OVER_DAILY_CAP, job {second}: OOM_ENVELOPE"),
        (at("02:00"), at("07:00"), f"job {second}: OOM_ENVELOPE"),
    ]


def test_an_hour_after_a_death_is_explained_by_the_next_decision(
    db: Database, armed: Armed, ran: Ran, tally: Callable[..., int]
) -> None:
    """The death explains the time until somebody looked."""
    armed()
    ran("22:00", "23:00", cause="LOST", outcome="queued", state="queued")
    number = tally()
    decided(db, "00:00", "defer", "held", number, rule="OOM_ENVELOPE", numbers={})

    assert gaps(db) == [
        (
            at("23:00"),
            at("00:00"),
            "the supervisor or the machine died; the next look at the queue came then",
        ),
        (at("00:00"), at("07:00"), f"job {number}: OOM_ENVELOPE"),
    ]


def test_a_queue_that_nobody_looked_at_says_so(db: Database, ran: Ran, armed: Armed) -> None:
    """Armed, but neither a board nor cron was there."""
    armed(when="21:00")

    [(begin, end, why)] = gaps(db)

    assert (begin, end) == (at("22:00"), at("07:00"))
    assert why == "nobody looked at the queue: no tick, no cron, no drain"


def test_an_unarmed_lane_has_no_gaps(db: Database, ran: Ran) -> None:
    """Nobody asked it to work."""
    ran("22:00", "22:30")
    ran("03:00", "04:00")

    assert gaps(db) == []


def test_running_and_idle_hours_fill_the_window(db: Database, armed: Armed, ran: Ran) -> None:
    """Nine hours: two of work, seven without."""
    armed()
    ran("22:00", "23:00")
    ran("02:00", "03:00")

    found = report(db)

    assert found.lane_hours + found.idle_hours == pytest.approx(9.0)


# --- money ---


def test_the_money_is_told_for_each_local_day_with_its_cap(
    db: Database, armed: Armed, ran: Ran
) -> None:
    """A run over midnight: an hour on each side, at a dollar."""
    armed(cap_usd=5)
    ran("23:00", "01:00")

    found = report(db)

    assert [(str(day.day), day.spent_usd, day.cap_usd) for day in found.days] == [
        ("2026-06-01", 1.0, 5.0),
        ("2026-06-02", 1.0, 5.0),
    ]
    assert found.spent_usd == pytest.approx(2.0)


def test_money_of_another_day_that_was_written_tonight_is_not_tonights(
    db: Database, armed: Armed
) -> None:
    """The headline stands before the days' table, and both must tell the same."""
    armed(cap_usd=5)
    for day, usd in (("2026-05-20", 16), ("2026-06-01", 1), ("2026-06-02", 2), ("2026-06-03", 8)):
        ledger.spend_elsewhere(db, {"usd": usd, "day": day}, actor="test", now=at("02:00"))

    found = report(db)

    assert found.external_usd == found.spent_usd == 3.0
    assert sum(day.spent_usd for day in found.days) == 3.0
    assert found.sentence.endswith("$3.00 of $5")


def test_what_two_days_spent_is_not_held_against_the_cap_of_one(db: Database, armed: Armed) -> None:
    """A lane that is armed at all hours has a night of two days, and a cap for each of them."""
    armed(cap_usd=5)
    for day, usd in (("2026-06-01", 4), ("2026-06-02", 3)):
        ledger.spend_elsewhere(db, {"usd": usd, "day": day}, actor="test", now=at("02:00"))

    assert report(db).sentence.endswith("$7.00 of $5 a day")


# --- proposals ---


@pytest.mark.requirement("LN-11")
def test_the_report_proposes_what_to_change_tonight(
    db: Database, ran: Ran, tally: Callable[..., int]
) -> None:
    """One rule, one line: mend, shrink, hold back, raise."""
    ran("22:00", "22:30", state="failed", cause="CRASH")
    ran("22:30", "23:00", state="aborted", cause="MEMORY")
    ran("23:00", "23:30", result=verdict("pool only"))
    ran("23:30", "23:45", result=verdict("no gain proven", n=40))
    ran("23:45", "23:50", result=verdict("gain"))
    decided(db, "23:50", "defer", "capped", tally(), rule="OVER_DAILY_CAP", numbers={})

    proposals = report(db).proposals

    rules = [proposal.rule for proposal in proposals]
    assert rules == ["FAILED", "OUT_OF_MEMORY", "POOL_ONLY", "FEW_ROWS", "CAP_MET"]
    assert proposals[-1].text.startswith("1 job met the day's cap: raise it, or expect it a night")


@pytest.mark.parametrize("cause", ["SERVER_LOST", "STALE_WEIGHTS"])
def test_what_a_server_did_is_told_with_the_engines_own_remedy(
    db: Database, ran: Ran, cause: str
) -> None:
    """The job's settings are not to blame: it is tried again as it is."""
    number = ran("22:00", "23:00", state="failed", cause=cause, error="a:1 is gone; start it")

    [proposal] = report(db).proposals

    assert proposal.text == f"job {number}: a:1 is gone; start it; then cockpit retry {number}"
    assert proposal.by_hand


@pytest.mark.parametrize(
    ("word", "n", "proposed", "text"),
    [
        ("no verdict", 15, 0.42, "judged on 15 rows, and 30 are wanted: hold more back"),
        ("no gain proven", 200, 0.31, "judged on 200 rows, and 300 are wanted: hold more back"),
        ("no verdict", 10, None, "30 are wanted: a larger heldout_frac is not enough, have about"),
        ("no verdict", 0, None, "have about 298 rows in all"),
        ("no gain proven", 40, None, "have about 2998 rows in all"),
    ],
)
def test_as_many_rows_are_proposed_as_a_verdict_takes(
    db: Database, ran: Ran, word: str, n: int, proposed: float | None, text: str
) -> None:
    """Held back where the smallest corpus of such a run has them; no share is that cannot do."""
    config = {"heldout_frac": 0.2, "select_frac": 0.5, "report_min": 30}
    ran("22:00", "23:00", result=verdict(word, n=n), config=config)

    [found] = report(db).proposals

    assert text in found.text
    assert [change.after for change in found.changes] == ([proposed] if proposed else [])
    assert found.by_hand is (proposed is None)


# --- the snapshot ---


def test_a_night_that_is_over_is_kept_as_it_was(db: Database, armed: Armed, ran: Ran) -> None:
    """What happens to its rows later changes nothing."""
    armed()
    number = ran("22:00", "23:00", result=verdict("gain"))
    first = report_of(db, MORNING, LATE)

    ran("23:00", "23:30", number=number, n=2)
    ran("05:00", "06:00")
    second = report_of(db, MORNING, LATE + 1000)

    assert first == second
    assert second.ran == 1


def test_a_night_that_is_not_over_is_told_anew_each_time(
    db: Database, armed: Armed, ran: Ran
) -> None:
    """And is not kept."""
    armed()
    ran("22:00", "23:00")
    first = report_of(db, MORNING, at("03:00"))

    ran("03:00", "04:00")

    assert (first.over, first.ran) == (False, 1)
    assert report_of(db, MORNING, at("05:00")).ran == 2


def test_a_snapshot_that_was_changed_is_not_shown(db: Database, armed: Armed, ran: Ran) -> None:
    """Its hash does not fit any more, and the message says which day."""
    armed()
    ran("22:00", "23:00")
    body = report_of(db, MORNING, LATE).model_dump(mode="json") | {"sentence": "RAN 99"}
    with db.write_tx() as conn:
        conn.execute(update(report_snapshot).values(body=body))

    with pytest.raises(SnapshotError, match="2026-06-02"):
        report_of(db, MORNING, LATE)


# --- the digest ---


class Post:
    """A web hook on this machine: keeps what it is sent, and may refuse it."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.works = True
        self.elsewhere = ""
        """Where it sends whoever comes; empty: nowhere."""
        self.trickles = False
        self.over = threading.Event()
        posts = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                posts.sent.append(json.loads(self.rfile.read(length)) | {"path": self.path})
                if posts.elsewhere and self.path != posts.elsewhere:
                    self.send_response(307)
                    self.send_header("Location", posts.elsewhere)
                else:
                    self.send_response(200 if posts.works else 500)
                self.end_headers()
                with contextlib.suppress(OSError):
                    while posts.trickles and not posts.over.wait(0.02):
                        self.wfile.write(b"x")

            def log_message(self, *_: Any) -> None:
                """Silence."""

        self.server = http.server.HTTPServer(("127.0.0.1", 0), Handler)


@pytest.fixture
def post(settings: WorkerSettings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Post]:
    """One address in the configuration file, and what reaches it."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    found = Post()
    thread = threading.Thread(target=found.server.serve_forever, args=(0.02,))
    thread.start()
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    address = f"json://127.0.0.1:{found.server.server_port}/"
    (settings.data_dir / "notify.yml").write_text(f"urls:\n  - {address}\n")
    yield found
    found.over.set()
    found.server.shutdown()
    thread.join()
    found.server.server_close()


@pytest.mark.requirement("LN-11")
def test_a_night_gets_one_digest(db: Database, armed: Armed, ran: Ran, post: Post) -> None:
    """Sentence, a line a job, proposals; a second drain of the night sends nothing more."""
    armed()
    ran("22:00", "23:00", state="failed", cause="CRASH")

    first = digest.send_once(db, at("23:01"))
    second = digest.send_once(db, at("03:00"))

    assert (first, second) == (True, False)
    [message] = post.sent
    assert message["title"].startswith("Nightlane 2026-06-02: RAN 1 · 1 FAILED")
    assert "cockpit retry 1" in message["message"]


def test_a_digest_that_cannot_be_sent_stands_in_the_audit(
    db: Database, ran: Ran, post: Post
) -> None:
    """No drain fails for it, and the next one tries again."""
    ran("22:00", "23:00")
    post.works = False
    failed = digest.send_once(db, at("23:01"))
    post.works = True

    again = digest.send_once(db, at("23:30"))

    assert (failed, again) == (False, True)
    whats = [entry.what for entry in decisions.newest(db, "cpu", 10)]
    assert whats == ["digest-sent", "digest-failed"]


def test_a_message_that_was_not_taken_says_why(settings: WorkerSettings, post: Post) -> None:
    """Apprise's own words, on the one line that a person sees."""
    post.works = False

    with pytest.raises(digest.NotifyError, match=r"took the message: .*JSON.*error=500") as refused:
        digest.send(settings, "title", "body")

    assert "\n" not in str(refused.value)


def test_a_redirect_takes_the_message_nowhere(settings: WorkerSettings, post: Post) -> None:
    """Only the addresses of the file get it; one that sends on did not take it."""
    post.elsewhere = "/elsewhere"

    with pytest.raises(digest.NotifyError, match=r"took the message: .*error=307"):
        digest.send(settings, "title", "body")

    assert [message["path"] for message in post.sent] == ["/"]


def test_an_answer_that_never_ends_is_waited_for_until_the_deadline(
    settings: WorkerSettings, post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each byte of it would have begun the wait anew; the drain goes home."""
    monkeypatch.setattr(digest, "DEADLINE_S", 3.0)
    post.trickles = True

    with pytest.raises(digest.NotifyError, match="gave no whole answer within 3 s"):
        digest.send(settings, "title", "body")


def test_without_an_address_or_a_run_nothing_is_sent(db: Database, ran: Ran) -> None:
    """Silence is the default."""
    assert not digest.send_once(db, at("23:01"))
    ran("22:00", "23:00")
    assert not digest.send_once(db, at("23:01"))


@pytest.mark.parametrize(
    ("text", "words"),
    [(None, "does not exist"), ("urls: []\n", "no address"), ("not: [valid\n", "no address")],
)
def test_a_trial_message_without_an_address_says_what_to_do(
    settings: WorkerSettings, tmp_path: Path, text: str | None, words: str
) -> None:
    """The file, what is wrong with it, one line."""
    file = tmp_path / "notify.yml"
    if text is not None:
        file.write_text(text)

    with pytest.raises(digest.NotifyError, match=words) as refused:
        digest.send(settings.model_copy(update={"notify_file": file}), "title", "body")

    assert str(file) in str(refused.value)
    assert "\n" not in str(refused.value)


# --- demos, copies, and gains of unknown size ---


@pytest.mark.parametrize(
    "config",
    [
        {"base": "embedded:qwen3-tiny", "data": {"source": "/rows.jsonl"}},
        {"base": "/models/real", "data": {"source": "embedded:word_problems"}},
        {"model": {"path": "embedded:qwen3-vl-tiny"}},
        {"model": {"path": "/models/vl"}, "data": {"train": "embedded:shapes", "val": None}},
    ],
)
def test_a_demo_never_leads(config: dict[str, Any]) -> None:
    """Its +26.6 stands behind a real model's +2.4, whatever of it is embedded and of which kind."""
    assert is_demo(config)
    demo, real = line(1, lift=0.266, demo=True), line(2, lift=0.024, demo=False)

    assert sentence([demo, real], [], 0.0, "").startswith("RAN 2 · +2.4 held-out, best of 2")
    assert sentence([demo], [], 0.0, "").startswith("RAN 1 · +26.6 held-out · only a demo")


def line(number: int, *, lift: float, demo: bool) -> RunLine:
    """A gain in a night."""
    known: dict[str, Any] = {"seconds": 1.0, "usd": 0.0, "n": 500, "attempts": [], "last_lines": []}
    unknown = ("joules", "low", "high", "peak_gb", "mem_trace", "cause", "error")
    return RunLine(
        job_id=number,
        name="x",
        kind="rl_run",
        state=State.SUCCEEDED,
        verdict="gain",
        lift=lift,
        demo=demo,
        **known,
        **dict.fromkeys(unknown),
    )


@pytest.mark.parametrize("lift", [None, True, "0.1", {"mean": 0.1}, float("nan")])
def test_a_gain_of_unknown_size_is_no_verdict_of_ours(db: Database, ran: Ran, lift: Any) -> None:
    """The word alone says nothing."""
    ran("22:00", "23:00", result={**verdict("gain"), "lift": lift})

    [found] = report(db).runs

    assert found.verdict is None


def test_a_line_says_how_many_different_questions_stand_behind_it(db: Database, ran: Ran) -> None:
    """45 rows that ask 37 things."""
    ran("22:00", "23:00", result=verdict("no gain proven", n=45) | {"report_different": 37})

    [found] = report(db).runs

    assert (found.n, found.different) == (45, 37)
