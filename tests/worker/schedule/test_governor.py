"""The governor: cap, memory and program are asked before a start; a no holds nobody else up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from engine.contract import kinds, registry
from engine.contract.run_dir import AbortReason
from tests.worker.lane_rows import BERLIN, NOON, berlin, charge, ended, row_of, succeeded
from worker.budget import ledger
from worker.budget.ledger import Spent
from worker.clock.window import CapDays
from worker.db import decisions
from worker.db.connection import Database
from worker.db.tables import job
from worker.drain import drain
from worker.queue.deferral import Reason
from worker.queue.states import State
from worker.queue.submit import enqueue
from worker.read import jobs
from worker.schedule import governor
from worker.schedule.governor import Memory, Ruling, Terms, stop_reason
from worker.schedule.policy import Standing
from worker.settings import WorkerSettings

Armed = Callable[..., Standing]
Tally = Callable[..., int]
Priced = Callable[..., WorkerSettings]
ROOMY = Memory(free_gb=20.0, total_gb=25.0, floor_gb=2.0)

LARGE = '''
"""Says how much memory it wants, and whether it serves."""

from pydantic import BaseModel

from engine.contract.envelope import Envelope
from engine.contract.kind import Kind


class Config(BaseModel):
    gb: float = 1.0
    served: bool = False
    elsewhere: bool = False


def run(attempt):
    return {"kind": "large"}


KIND = Kind(
    name="large",
    summary="Wants memory.",
    config=Config,
    entry=f"{__name__}:run",
    envelope=lambda config: Envelope(weights=config.gb, runtime=0.0),
    serves=lambda config: config.served,
    needs_server_program=lambda config: config.served and not config.elsewhere,
)
'''


@pytest.fixture
def large(
    db: Database, kinds_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., int]]:
    """Enqueue a job that wants `gb` of memory."""
    folder = tmp_path / "more-kinds"
    folder.mkdir()
    (folder / "large.py").write_text(LARGE)
    monkeypatch.setenv("NIGHTLANE_KINDS_PATH", f"{kinds_path}:{folder}")
    monkeypatch.setattr(kinds, "__path__", [*kinds.__path__, str(folder)])
    registry.kinds.cache_clear()
    yield lambda **config: enqueue(db, "large", config, actor="test", force=True)
    registry.kinds.cache_clear()


def ask(
    db: Database,
    number: int,
    *,
    standing: Standing | None = None,
    memory: Memory = ROOMY,
    now: float = NOON,
) -> Ruling:
    with db.read() as conn:
        terms = Terms(db.settings, standing, now)
        look = governor.Look(conn, db.settings.lane)
        return governor.judge(look, terms, row_of(db, number), lambda: memory)


def reason(ruling: Ruling) -> str | None:
    return None if ruling.deferral is None else ruling.deferral.reason


@pytest.mark.requirement("LN-05", "JB-09")
def test_a_run_that_would_spend_more_than_the_cap_waits_for_the_next_day(
    db: Database, armed: Armed, priced: Priced, tally: Tally
) -> None:
    """Spent 4 $, expected 2 $, cap 5 $: put off until midnight of the policy's zone."""
    priced(price_usd_h=2.0)
    standing = armed(cap_usd=5)
    charge(db, tally(), seconds=2 * 3600, at=NOON, price=2.0)

    ruling = ask(db, tally(steps=5), standing=standing)

    assert reason(ruling) == Reason.OVER_DAILY_CAP
    assert ruling.deferral is not None
    assert ruling.deferral.until == berlin("2026-06-02T00:00")
    assert "$4.00 of today's $5 is spent" in ruling.deferral.detail
    assert (ruling.numbers["spent_usd"], ruling.numbers["expected_usd"]) == (4.0, 2.0)


@pytest.mark.requirement("LN-05")
def test_a_night_on_both_sides_of_midnight_has_one_cap(
    db: Database, armed: Armed, priced: Priced, tally: Tally
) -> None:
    """It counts for the day on which it opened: what it spent before midnight is spent after it."""
    priced(price_usd_h=2.0)
    standing = armed(cap_usd=6, window="22:00-07:00")
    days = standing.cap_days()
    meter = ledger.Meter(db.settings.lane, tally(), 1, 2.0, days, "test")
    begin = berlin("2026-06-01T22:30")
    with db.write_tx() as conn:
        ledger.use(conn, meter, begin=begin, seconds=3 * 3600, at=begin + 3 * 3600)

    late = ask(db, tally(steps=5), standing=standing, now=berlin("2026-06-02T02:00"))
    evening = ask(db, tally(steps=6), standing=standing, now=berlin("2026-06-02T22:00"))

    assert late.numbers["spent_usd"] == 6.0
    assert late.deferral is not None
    assert late.deferral.until == berlin("2026-06-02T22:00")
    assert evening.deferral is None


@pytest.mark.requirement("LN-05")
@pytest.mark.parametrize(("spent_h", "starts"), [(1.5, True), (1.51, False)])
def test_exactly_the_cap_may_be_spent(
    db: Database, armed: Armed, priced: Priced, tally: Tally, spent_h: float, starts: bool
) -> None:
    """The rule is spent + expected > cap: 3 + 2 is 5, 3.02 + 2 is over."""
    priced(price_usd_h=2.0)
    standing = armed(cap_usd=5)
    charge(db, tally(), seconds=spent_h * 3600, at=NOON, price=2.0)

    assert (reason(ask(db, tally(steps=5), standing=standing)) is None) is starts


@pytest.mark.parametrize(("price", "starts"), [(0.0, True), (0.01, False)])
def test_a_cap_of_nothing_lets_only_free_runs_start(
    db: Database, armed: Armed, priced: Priced, tally: Tally, price: float, starts: bool
) -> None:
    """0 is a cap like any other."""
    priced(price_usd_h=price)

    assert (reason(ask(db, tally(), standing=armed(cap_usd=0))) is None) is starts


def test_what_is_dearer_than_a_whole_day_waits_for_a_person(
    db: Database, armed: Armed, priced: Priced, tally: Tally
) -> None:
    """Tomorrow it would not fit either."""
    priced(price_usd_h=6.0)

    ruling = ask(db, tally(), standing=armed(cap_usd=5))

    assert ruling.deferral is not None
    assert (ruling.deferral.reason, ruling.deferral.until) == (Reason.OVER_DAILY_CAP, None)


@pytest.mark.requirement("LN-05")
def test_lane_hours_are_capped_like_money(db: Database, armed: Armed, tally: Tally) -> None:
    """3 h used, 1 h expected, 3.5 h allowed; the price is 0."""
    standing = armed(cap_gpu_hours=3.5)
    charge(db, tally(), seconds=3 * 3600, at=NOON, price=0.0)

    assert reason(ask(db, tally(steps=5), standing=standing)) == Reason.OVER_DAILY_CAP


def test_a_cap_says_itself_in_every_digit_and_what_is_held_for_a_run(
    db: Database, armed: Armed, priced: Priced, tally: Tally
) -> None:
    """1 $ spent, 3 $ held, 2 $ expected: without what is held nobody could follow the sum."""
    priced(price_usd_h=2.0)
    standing = armed(cap_usd=5.001234567)
    other = tally()
    charge(db, other, seconds=1800, at=NOON, price=2.0)
    with db.write_tx() as conn:
        conn.execute(update(job).where(job.c.id == other).values(state=State.RUNNING, attempt=1))
        meter = ledger.Meter(db.settings.lane, other, 1, 2.0, CapDays(BERLIN), "test")
        ledger.reserve(conn, meter, 7200, at=NOON)

    ruling = ask(db, tally(steps=5), standing=standing)

    assert ruling.deferral is not None
    assert ruling.deferral.detail.startswith(
        "$1.00 of today's $5.001234567 is spent, $3.00 is reserved for what runs, "
        "and this run is expected to cost $2.00; "
    )


@pytest.mark.parametrize(
    ("cap_usd", "told"),
    [(4, "$4.00 of today's $4 is spent, "), (1000, "2.00 of today's 2.5 lane hours are used, ")],
)
def test_the_cap_that_is_reached_is_the_one_that_is_told(
    db: Database, armed: Armed, priced: Priced, tally: Tally, cap_usd: float, told: str
) -> None:
    """Two hours of two dollars; of lane hours two and a half are allowed, and one more is asked."""
    priced(price_usd_h=2.0)
    standing = armed(cap_usd=cap_usd, cap_gpu_hours=2.5)
    charge(db, tally(), seconds=2 * 3600, at=NOON, price=2.0)

    ruling = ask(db, tally(steps=5), standing=standing)

    assert ruling.deferral is not None
    assert ruling.deferral.detail.startswith(told)


def test_a_job_that_a_cap_has_stopped_tells_every_cap_there_is(
    db: Database, armed: Armed, tally: Tally
) -> None:
    """It was the hours, and a price of nothing never was money."""
    standing = armed(cap_usd=5, cap_gpu_hours=2)
    charge(db, tally(), seconds=2 * 3600, at=NOON, price=0.0)

    with db.read() as conn:
        deferral = governor.over_cap_now(conn, Terms(db.settings, standing, NOON))

    assert deferral.detail.startswith(
        "today's cap is reached: $0.00 of today's $5 is spent "
        "and 2.00 of today's 2 lane hours are used; "
    )


@pytest.mark.requirement("LN-05")
def test_yesterdays_money_is_forgotten(
    db: Database, armed: Armed, priced: Priced, tally: Tally
) -> None:
    """Per day, never all-time."""
    priced(price_usd_h=2.0)
    standing = armed(cap_usd=5)
    charge(db, tally(), seconds=10 * 3600, at=berlin("2026-05-31T20:00"), price=2.0)

    assert reason(ask(db, tally(steps=5), standing=standing)) is None


def test_a_persons_order_asks_no_cap(db: Database, priced: Priced, tally: Tally) -> None:
    """Without a policy to obey there is none."""
    priced(price_usd_h=1000.0)

    assert reason(ask(db, tally(), standing=None)) is None


@pytest.mark.requirement("LN-04", "JB-09")
@pytest.mark.parametrize(
    ("free", "returns", "starts"),
    [(12.1, 0.0, True), (11.9, 0.0, False), (8.0, 4.1, True), (8.0, 3.9, False)],
)
def test_a_run_starts_when_its_envelope_fits_above_the_floor(
    db: Database, large: Tally, free: float, returns: float, starts: bool
) -> None:
    """10 GB and a floor of 2 want 12 free, with what the resident model gives back."""
    memory = Memory(free, 25.0, 2.0, returns)

    ruling = ask(db, large(gb=10), memory=memory)

    assert (reason(ruling) is None) is starts
    assert ruling.numbers["need_gb"] == 10.0
    if ruling.deferral:
        assert ruling.deferral.reason == Reason.OOM_ENVELOPE
        assert ruling.deferral.until == NOON + governor.AGAIN_S


def test_what_nobody_measured_yet_is_measured_after_the_stop(db: Database, large: Tally) -> None:
    """The resident's first stop: only the machine's total can say no before it."""
    unknown = Memory(free_gb=3.0, total_gb=25.0, floor_gb=2.0, returns_gb=None)

    assert reason(ask(db, large(gb=10), memory=unknown)) is None
    assert reason(ask(db, large(gb=24), memory=unknown)) == Reason.OOM_ENVELOPE


def test_what_no_night_can_hold_waits_for_a_person(db: Database, large: Tally) -> None:
    """No time at which it would be tried again: it never fits."""
    ruling = ask(db, large(gb=24))

    assert ruling.deferral is not None
    assert ruling.deferral.until is None
    assert "make it smaller" in ruling.deferral.detail


@pytest.mark.requirement("LN-04")
def test_the_envelope_is_corrected_by_what_earlier_runs_used(db: Database, large: Tally) -> None:
    """Runs of the kind used twice their estimate: the next estimate is doubled."""
    trace = {"total_gb": 25.0, "headroom_at_spawn_gb": 20.0, "peak_used_gb": 9.0}  # 4 GB its own
    succeeded(db, large(gb=2), result={"mem_trace": trace})

    found = ask(db, large(gb=3)).need

    assert found is not None
    assert (found.gb, found.basis) == (6.0, "kind")


def test_a_job_that_ran_before_needs_what_it_used_and_a_tenth(db: Database, large: Tally) -> None:
    """Stopped for memory, it is not started again into the same shortage."""
    number = large(gb=1)
    trace = {"total_gb": 25.0, "headroom_at_spawn_gb": 20.0, "peak_used_gb": 15.0}
    _set_result(db, number, {"mem_trace": trace})

    ruling = ask(db, number, memory=Memory(12.0, 25.0, 2.0))

    assert ruling.need is not None
    assert (round(ruling.need.gb, 6), ruling.need.basis) == (11.0, "own")
    assert reason(ruling) == Reason.OOM_ENVELOPE


@pytest.mark.requirement("LN-04", "JB-09")
def test_a_run_that_serves_waits_for_the_program(
    db: Database, priced: Priced, large: Tally
) -> None:
    """A clean deferral with the remedy; one that serves nothing starts all the same, and one whose
    servers are others' to run.
    """
    priced(vllm_bin="/nowhere/vllm")

    serving, plain = ask(db, large(served=True)), ask(db, large())
    by_others = ask(db, large(served=True, elsewhere=True))

    assert reason(serving) == Reason.LANE_BIN_ABSENT
    assert serving.deferral is not None
    assert "NIGHTLANE_VLLM_BIN" in serving.deferral.detail
    assert reason(plain) is None
    assert reason(by_others) is None


def test_a_program_that_is_there_may_be_named_by_path(
    db: Database, priced: Priced, large: Tally
) -> None:
    """Or by name, on the PATH."""
    priced(vllm_bin="true")

    assert reason(ask(db, large(served=True))) is None


def test_the_cap_is_asked_before_memory_and_memory_before_the_program(
    db: Database, armed: Armed, priced: Priced, large: Tally
) -> None:
    """One word for one job: the first no counts."""
    priced(price_usd_h=1.0, vllm_bin="/nowhere/vllm")
    number = large(gb=24, served=True)

    assert reason(ask(db, number, standing=armed(cap_usd=0))) == Reason.OVER_DAILY_CAP
    assert reason(ask(db, number)) == Reason.OOM_ENVELOPE


@pytest.mark.requirement("LN-04", "JB-05")
def test_a_job_that_is_put_off_holds_nobody_up(
    db: Database, settings: WorkerSettings, large: Tally, tally: Tally
) -> None:
    """The large one stands first; the drain runs the small one and says why."""
    first, second = large(gb=10_000), tally(steps=1)

    drain(settings)

    waiting, done = jobs.get_job(db, first), jobs.get_job(db, second)
    assert done.state is State.SUCCEEDED
    assert waiting.state is State.QUEUED
    assert waiting.attempt == 0
    assert waiting.waits_for is not None
    assert waiting.waits_for.reason == Reason.OOM_ENVELOPE
    [decided] = [entry for entry in decisions.newest(db, "cpu", 10) if entry.what == "defer"]
    assert (decided.job_id, decided.rule) == (first, "OOM_ENVELOPE")
    assert decided.numbers["need_gb"] == 10_000


def test_the_same_no_is_written_down_once(
    db: Database, settings: WorkerSettings, large: Tally
) -> None:
    """A queue that waits all night leaves one row a job, not one a tick."""
    large(gb=10_000)

    for _ in range(3):
        drain(settings)

    found = [entry for entry in decisions.newest(db, "cpu", 50) if entry.what == "defer"]
    assert len(found) == 1


@pytest.mark.requirement("LN-05")
def test_a_scheduled_drain_obeys_the_cap_and_a_person_does_not(
    db: Database, armed: Armed, priced: Priced, tally: Tally
) -> None:
    """The deferral of the night is no answer to somebody who wants the job now."""
    settings = priced(price_usd_h=1.0)
    armed(cap_usd=0.5)
    number = tally(steps=1)

    drain(settings, scheduled=True)
    waiting = jobs.get_job(db, number)
    drain(settings)

    assert waiting.waits_for is not None
    assert waiting.waits_for.reason == Reason.OVER_DAILY_CAP
    assert jobs.get_job(db, number).state is State.SUCCEEDED


# --- how long ---


def test_without_any_history_a_run_takes_the_configured_guess(
    db: Database, priced: Priced, tally: Tally
) -> None:
    """One hour by default."""
    priced(estimate_hours=0.5)

    assert ask(db, tally()).expected[:3] == (1800.0, "guess", 0)


def test_runs_of_the_kind_tell_seconds_a_step(db: Database, tally: Tally) -> None:
    """Two runs of 10 and 20 steps took 2 s a step: 30 steps take a minute."""
    for steps in (10, 20):
        number = tally(steps=steps)
        ended(db, number, at=NOON, seconds=2.0 * steps)
        succeeded(db, number)

    assert ask(db, tally(steps=30)).expected[:3] == (60.0, "kind", 2)


def test_a_run_that_was_begun_needs_what_is_left_of_it(db: Database, tally: Tally) -> None:
    """Three of four steps are done."""
    number = tally()
    _set_result(db, number, {"step": 3, "max_steps": 4})

    assert ask(db, number).expected.seconds == 900.0


# --- the brake ---


@pytest.mark.requirement("LN-05")
@pytest.mark.parametrize(
    ("terms", "today", "expected"),
    [
        ({"cap_usd": 5}, Spent(5.0, 0), AbortReason.BUDGET),
        ({"cap_usd": 5}, Spent(4.99, 0), None),
        ({"cap_gpu_hours": 2}, Spent(0, 7200), AbortReason.BUDGET),
        ({"window": "08:00-12:00"}, Spent(0, 0), AbortReason.WINDOW),
        ({"window": "08:00-12:01"}, Spent(0, 0), None),
        ({"expires_at": NOON}, Spent(0, 0), AbortReason.WINDOW),
        ({}, Spent(1e6, 1e9), None),
    ],
)
def test_a_running_job_is_stopped_by_cap_and_window(
    db: Database,
    armed: Armed,
    terms: dict[str, Any],
    today: Spent,
    expected: AbortReason | None,
) -> None:
    """At noon, for one dollar an hour."""
    found = stop_reason(Terms(db.settings, armed(**terms), NOON), today, price_usd_h=1.0)

    assert (found[0] if found else None) == expected


def test_a_persons_order_has_no_brake(db: Database) -> None:
    """It runs to its end."""
    assert stop_reason(Terms(db.settings, None, NOON), Spent(1e6, 1e9), price_usd_h=1.0) is None


def _set_result(db: Database, number: int, result: dict[str, Any]) -> None:
    with db.write_tx() as conn:
        conn.execute(update(job).where(job.c.id == number).values(result=result))
