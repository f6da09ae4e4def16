"""A data directory as a busy week leaves it, without any training: for screenshots, page tests and
benches.

Three nights of one lane and the queue behind them, written by the worker's own verbs under a clock
that this module turns: some fifty jobs in every state and with every cause of an end, measured
values, gates, samples, sweeps, deferrals, an armed policy with its ledger, and one run that goes on
for as long as the block is open. Every number is drawn from one seed. Knows no page.
"""

from __future__ import annotations

import datetime
import json
import math
import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import yaml

from engine.contract.run_dir import Abort, AbortReason, ExitCode, RunDir
from tests.app.night import CONFIG, Attempt, Night, night
from tests.app.rollouts import bench_scores, fill_bench, fill_boxes, fill_run
from worker.attempt.settlement import Ending, settle
from worker.budget import ledger
from worker.clock.night import night_at
from worker.clock.window import EARLIEST, zone_named
from worker.db.connection import Database
from worker.memory.sentry import DECISIONS
from worker.memory.trace import MemoryLog
from worker.queue import control, pausing
from worker.queue.deferral import Deferral, Reason
from worker.queue.submission import submission
from worker.queue.submit import enqueue
from worker.queue.sweeps import submit_sweep
from worker.report import snapshot
from worker.schedule import governor, policy

HOUR = 3600.0
DAY = 24 * HOUR
STEPS = 40
RUNNING_STEPS = 27
"""How far the run that goes on has come."""
RUN_S = 0.3 * HOUR
"""How long a usual run takes."""
ADA, TIM = "cli:ada", "cli:tim"
STAGE2 = Path(__file__).parent.parent / "examples/stage2_ab.yaml"
POLICY = {
    "interval_min": 30,
    "window": "20:00-07:00",
    "cap_usd": 20.0,
    "max_failures": 4,
    "expires": "+30d",
}


@dataclass
class Filled:
    """What stands in the directory, by the names that tests ask for."""

    db: Database
    ids: dict[str, int] = field(default_factory=dict)
    """gain, unproven, loss, pool_only, crash, memory, declined, killed, stage2, running, …"""
    sweep_id: int = 0
    bad_night: datetime.date = EARLIEST
    """The morning after most of what can go wrong did."""
    _running: Attempt | None = None
    _lane: Night | None = None
    _rng: random.Random = field(default_factory=lambda: random.Random(7))

    def beat(self) -> None:
        """A sign of life of the running job, as its supervisor gives one every few seconds."""
        assert self._lane is not None
        self._lane.lease.keep()

    def step(self) -> int:
        """One more optimizer step of the running job, through the real ingest; its number."""
        assert self._running is not None
        step = int(self._running.result["step"]) + 1
        values = _values(self._rng, step / STEPS, 0.12)
        self._running.step(step, values["pool/score"], values)
        return step


@contextmanager
def filled(db: Database) -> Iterator[Filled]:
    """Fill an empty database; the lane is held, and one job runs, until the block ends."""
    made = Filled(db)
    clock = _Clock()
    with clock.turned():
        clock.ago(3 * DAY)
        policy.arm(db, policy.parse(POLICY, time.time()), actor=ADA, now=time.time())
        for nights_ago, fill in ((3, _first_night), (2, _second_night), (1, _third_night)):
            clock.ago(nights_ago * DAY - 2 * HOUR)
            with night(db) as lane:
                fill(made, lane, clock)
        clock.ago(0.4 * HOUR)
        _write_rollouts(made)
        _queue_tonight(made)
        _spend(db)
        with night(db) as lane:
            _start_running(made, lane, clock)
            clock.ago(0.0)
            made.beat()
            snapshot.report_of(db, None, time.time())
            yield made


class _Clock:
    """Time as this module wants it: the worker's two clocks, moved by the same amount."""

    def __init__(self) -> None:
        self._wall, self._beat = time.time, time.monotonic
        self._behind = 0.0

    @contextmanager
    def turned(self) -> Iterator[None]:
        with mock.patch("time.time", self._now), mock.patch("time.monotonic", self._tick):
            yield

    def _now(self) -> float:
        return self._wall() - self._behind

    def _tick(self) -> float:
        return self._beat() - self._behind

    def ago(self, seconds: float) -> None:
        """Go to so long before the real now."""
        self._behind = seconds

    def forward(self, seconds: float) -> None:
        self._behind -= seconds


# --- three nights ---


def _first_night(made: Filled, lane: Night, clock: _Clock) -> None:
    """Learning rates by hand, with most of what can go wrong."""
    for name, lr, lift in (
        ("lr 1e-4", 1e-4, 0.09),
        ("lr 3e-4", 3e-4, 0.21),
        ("lr 6e-4", 6e-4, 0.12),
    ):
        made.ids[name] = _finished(made, lane, clock, name, lift, lr=lr, tags=["lr"])
    made.ids["gain"] = made.ids["lr 3e-4"]
    made.ids["loss"] = _finished(
        made, lane, clock, "lr 1e-3, too high", -0.14, lr=1e-3, tags=["lr"]
    )
    made.ids["unproven"] = _finished(made, lane, clock, "control without updates", 0.012, lr=0.0)
    made.ids["pool_only"] = _finished(
        made, lane, clock, "format reward alone", -0.004, verdict="pool only", lr=2e-4
    )
    made.ids["crash"] = _ended(
        made, lane, clock, "new verifier", Ending(1, None, None, "ValueError: no column 'answer'")
    )
    memory = Abort(reason=AbortReason.MEMORY, headroom_gb=3.1, floor_gb=4.0)
    made.ids["memory"] = _ended(
        made,
        lane,
        clock,
        "batch of 512",
        Ending(ExitCode.ABORTED, memory, None, "", oom_deferred=1),
    )
    made.ids["declined"] = _declined(made, lane, clock)
    made.bad_night = night_at(time.time(), zone_named(None)).day


def _second_night(made: Filled, lane: Night, clock: _Clock) -> None:
    """A sweep of nine, a run that somebody killed, two that people stopped."""
    axes = {"lr": [1e-4, 2e-4, 4e-4], "group_k": [4, 8, 16]}
    wanted = submission(
        {
            "kind": "rl_run",
            "config": CONFIG,
            "name": "lr × group",
            "sweep": axes,
            "tags": ["sweep"],
            "force": True,
        }
    )
    made.sweep_id = submit_sweep(made.db, wanted, actor=TIM).sweep_id
    for index in range(9):
        _learn_and_finish(made, lane.start(), clock, 0.05 + 0.02 * index)
        clock.forward(60)
    made.ids["killed"] = _ended(made, lane, clock, "killed by hand", Ending(-9, None, None, ""))
    made.ids["cancelled"] = _cancelled(made, lane, clock, "wrong corpus")
    waiting = _queue(made, "not needed any more")
    control.cancel(made.db, waiting, actor=TIM)


def _third_night(made: Filled, lane: Night, clock: _Clock) -> None:
    """The base and one change at a time, over seeds; and a stage-2 run."""
    for arm, lift, changed in (
        ("base", 0.16, {"kl_coef": 0.01}),
        ("KL 0.1", 0.13, {"kl_coef": 0.1}),
        ("dr. GRPO", 0.19, {"kl_coef": 0.01, "objective": {"loss": "dr_grpo"}}),
    ):
        for seed in range(5):
            name = f"{arm}, seed {seed}"
            made.ids[name] = _finished(
                made,
                lane,
                clock,
                name,
                lift + made._rng.gauss(0, 0.02),
                seed=seed,
                data={"split_seed": 0},
                tags=["seeds", arm],
                **changed,
            )
    made.ids["seeds"], made.ids["other_seeds"] = (
        made.ids["base, seed 0"],
        made.ids["KL 0.1, seed 0"],
    )
    made.ids["stage2"] = _stage2(made, lane, clock)
    made.ids["crash again"] = _ended(
        made, lane, clock, "new verifier, second try", Ending(-11, None, None, "")
    )


# --- what stands in the queue now ---


def _queue_tonight(made: Filled) -> None:
    made.ids["running"] = _queue(made, "addition, 120 steps", priority=5, tags=["night"])
    for number in range(6):
        _queue(made, f"temperature {0.7 + number / 10:.1f}", temp=0.7 + number / 10, tags=["night"])
    first = _queue(made, "pre-train the verifier", lr=5e-5, tags=["night"])
    made.ids["follows"] = _queue(made, "then with it", lr=6e-5, after=[first])
    made.ids["later"] = _queue(made, "when the grid is green", lr=7e-5, not_before="+6h")
    again = {"lr": 2e-4, "max_steps": 80, "clone_of": made.ids["gain"]}
    made.ids["clone"] = _queue(made, "lr 3e-4 once more, slower", **again)
    capped = _queue(made, "a week of steps", max_steps=4000)
    large = _queue(made, "batch of 1,024", lr=8e-5)
    _put_off(
        made.db,
        capped,
        Deferral(
            Reason.OVER_DAILY_CAP,
            "$3.10 of today's $20 is spent, and this run is expected to cost $31.20; "
            "raise the cap with: cockpit autonomy on, or run it now with: cockpit drain",
        ),
    )
    _put_off(
        made.db,
        large,
        Deferral(
            Reason.OOM_ENVELOPE,
            "it needs 41.0 GB (its last run's peak) and 17.3 GB may be taken; "
            "end what else uses memory",
            time.time() + HOUR,
        ),
    )
    made.ids["over_cap"], made.ids["too_large"] = capped, large
    pausing.pause(made.db, actor=TIM, why="the driver is being updated")
    pausing.resume(made.db, actor=TIM)


def _put_off(db: Database, job_id: int, deferral: Deferral) -> None:
    with db.write_tx() as conn:
        governor.put_off(
            conn,
            db.settings.lane,
            job_id,
            deferral,
            numbers={"cap_usd": 20.0, "spent_usd": 3.1, "expected_usd": 31.2},
            actor="drain:1",
            now=time.time(),
        )


def _spend(db: Database) -> None:
    spent = {"usd": 3.1, "note": "labels from the judge's API"}
    ledger.spend_elsewhere(db, spent, actor=ADA, now=time.time())


def _start_running(made: Filled, lane: Night, clock: _Clock) -> None:
    clock.ago((RUNNING_STEPS + 1) * RUN_S / STEPS)  # its newest step is one step old
    attempt = lane.start()
    made._running, made._lane = attempt, lane
    _trace(attempt.run.attempt(1).root, time.time(), 12.0)
    _learn(made, attempt, clock, lift=0.12, until=RUNNING_STEPS)


# --- one run ---


def _queue(made: Filled, name: str, **given: Any) -> int:
    placement = {
        key: given.pop(key)
        for key in ("tags", "after", "not_before", "priority", "clone_of")
        if key in given
    }
    config = CONFIG | {"max_steps": STEPS} | given
    return enqueue(made.db, "rl_run", config, actor=ADA, name=name, force=True, **placement)


def _write_rollouts(made: Filled) -> None:
    """Completions of the runs that the samples page and the comparison are looked at with."""
    runs = made.db.settings.runs_dir
    for name, right, lift in (("gain", 0.8, 0.21), ("loss", 0.44, -0.14)):
        fill_run(RunDir(runs / str(made.ids[name])), right)
        for step in (0, STEPS // 2, STEPS):
            fill_bench(RunDir(runs / str(made.ids[name])), step, lift * step / STEPS)
    fill_boxes(RunDir(runs / str(made.ids["stage2"])))
    for name, least in (("gain", 11.0), ("memory", 3.1)):
        _trace(RunDir(runs / str(made.ids[name])).attempt(1).root, time.time() - DAY, least)


def _trace(folder: Path, began: float, least: float) -> None:
    """Free memory of an attempt, once every four seconds; what came near the floor was stopped."""
    log = MemoryLog(folder)
    for second in range(0, int(RUN_S), 4):
        part = second / RUN_S
        dip = 2.0 * abs(math.sin(second / 90))
        log.note(began + second, round(20.0 - (18.0 - least) * part - dip * part, 3), "training")
    if least < 4.0:
        stop = {
            "at": began + RUN_S,
            "action": "stop",
            "rule": "floor",
            "free_gb": least,
            "step": 17,
        }
        with (folder / DECISIONS).open("a") as file:
            file.write(json.dumps(stop | {"fall_gb_s": 0.02, "phase": "training"}) + "\n")


def _finished(
    made: Filled,
    lane: Night,
    clock: _Clock,
    name: str,
    lift: float,
    *,
    verdict: str | None = None,
    **given: Any,
) -> int:
    job_id = _queue(made, name, **given)
    _learn_and_finish(made, lane.start(), clock, lift, verdict)
    clock.forward(90)
    return job_id


def _learn_and_finish(
    made: Filled, attempt: Attempt, clock: _Clock, lift: float, verdict: str | None = None
) -> None:
    _learn(made, attempt, clock, lift)
    for step in (0, STEPS // 2, STEPS):
        for one in bench_scores(attempt.job_id, step, lift * step / STEPS):
            attempt.add("score", step=step, score=one)
    said = verdict or ("gain" if lift > 0.04 else "loss" if lift < -0.04 else "no gain proven")
    attempt.log(f"step {STEPS} of {STEPS}\nheld-out {0.58 + lift:.3f}\nverdict: {said}\n")
    attempt.write("finished", status="done", result=_result(lift, said))
    attempt.settle(settle(Ending(ExitCode.DONE, None, {"status": "done"}, "")))


def _ended(made: Filled, lane: Night, clock: _Clock, name: str, ending: Ending) -> int:
    """A run that did not get to its end: half its steps, and the settlement's own verdict."""
    job_id = _queue(made, name)
    attempt = lane.start()
    _learn(made, attempt, clock, 0.05, until=17)
    attempt.log(f"step 17 of {STEPS}\n{ending.last_words}\n")
    attempt.settle(settle(ending))
    clock.forward(60)
    return job_id


def _cancelled(made: Filled, lane: Night, clock: _Clock, name: str) -> int:
    job_id = _queue(made, name)
    attempt = lane.start()
    _learn(made, attempt, clock, 0.02, until=9)
    control.cancel(made.db, job_id, actor=TIM)
    asked = Abort(reason=AbortReason.CANCEL)
    attempt.settle(settle(Ending(ExitCode.ABORTED, asked, None, "")))
    return job_id


def _declined(made: Filled, lane: Night, clock: _Clock) -> int:
    job_id = _queue(made, "a base that knows it all")
    attempt = lane.start()
    attempt.gate(0, 0.97)
    clock.forward(60)
    result = {
        "cause": "NO_HEADROOM",
        "error": "the base scores 97.0 % on held-out rows: there is no room above 85 % to learn in",
        "verdict": "no verdict",
    }
    attempt.write("finished", status="declined", result=result)
    ending = Ending(ExitCode.DECLINED, None, {"status": "declined", "result": result}, "")
    attempt.settle(settle(ending))
    return job_id


def _stage2(made: Filled, lane: Night, clock: _Clock) -> int:
    config = yaml.safe_load(STAGE2.read_text("utf-8"))
    job_id = enqueue(
        made.db,
        "stage2_ab",
        config,
        actor=TIM,
        name="boxes from own rollouts",
        force=True,
        tags=["boxes"],
    )
    attempt = lane.start()
    for step in range(0, STEPS + 1, 10):
        attempt.gate(step, 0.31 + 0.5 * step / STEPS)
    for step in range(1, STEPS + 1):
        part = step / STEPS
        attempt.add(
            "metric",
            step=step,
            values={
                "rollout/precision": 0.3 + 0.5 * part,
                "rollout/recall": 0.28 + 0.5 * part,
                "rollout/f1": 0.29 + 0.5 * part,
                "loss/total": 2.0 - part,
            },
        )
        clock.forward(RUN_S / STEPS)
    attempt.write("finished", status="done", result=_result(0.48, "gain", before=0.31, n=100))
    attempt.settle(settle(Ending(ExitCode.DONE, None, {"status": "done"}, "")))
    return job_id


def _learn(made: Filled, attempt: Attempt, clock: _Clock, lift: float, until: int = STEPS) -> None:
    """Gates every tenth step, every series that a run page draws, and a few samples."""
    attempt.add("gate", **_gate(made._rng, 0, 0.0))
    for step in range(1, until + 1):
        clock.forward(RUN_S / STEPS)
        part = step / STEPS
        values = _values(made._rng, part, lift)
        attempt.add("metric", step=step, values=values)
        if step % 10 == 0:
            attempt.add("gate", **_gate(made._rng, step, lift * part))
            attempt.add("sample", step=step, split="train", items=_samples(made._rng, values))
    attempt.write(
        "progress",
        phase="training" if until < STEPS else "teardown",
        step=until,
        max_steps=STEPS,
        base=CONFIG["base"],
        domain="addition",
        pool_score=values["pool/score"],
        eta_s=(STEPS - until) * RUN_S / STEPS,
        mem={"rss_gb": 1.9, "peak_gb": 2.3, "available_gb": 21.4},
    )


def _gate(rng: random.Random, step: int, above: float) -> dict[str, Any]:
    score = min(0.98, max(0.02, 0.58 + above + rng.gauss(0, 0.008)))
    half = 1.96 * math.sqrt(score * (1 - score) / 500)
    ci95 = [round(score - half, 4), round(score + half, 4)]
    return {
        "step": step,
        "split": "select",
        "score": round(score, 4),
        "n": 500,
        "ci95": ci95,
        "selected": True,
    }


def _values(rng: random.Random, part: float, lift: float) -> dict[str, float]:
    pool = min(0.99, max(0.01, 0.5 + lift * 1.2 * part + rng.gauss(0, 0.03)))
    return {
        "pool/score": pool,
        "pool/reward_mean": pool,
        "pool/reward_std": math.sqrt(pool * (1 - pool)),
        "rollout/zero_variance": 0.2 + 0.2 * part,
        "train/kl": 0.04 * part + abs(rng.gauss(0, 0.002)),
        "train/entropy": 0.6 - 0.3 * part,
        "train/grad_norm": 1.0 + abs(rng.gauss(0, 0.3)),
        "rollout/length_mean": 4.0 + rng.gauss(0, 0.05),
        "rollout/truncated": max(0.0, 0.05 - 0.04 * part),
        "rollout/tokens_per_s": 4100 + rng.gauss(0, 120),
        "mem/rss_gb": 1.8 + 0.1 * part,
    }


def _samples(rng: random.Random, values: Mapping[str, float]) -> list[dict[str, Any]]:
    found = []
    for _ in range(4):
        left, right = rng.randrange(100), rng.randrange(100)
        right_answer = rng.random() < values["pool/score"]
        said = left + right + (0 if right_answer else rng.choice((-1, 1, 10)))
        found.append(
            {
                "prompt": f"{left:02d}+{right:02d}=",
                "completion": f"{said:03d}",
                "reward": float(right_answer),
                "reason": "equal" if right_answer else f"expected {left + right:03d}",
                "advantage": 0.8 if right_answer else -1.1,
            }
        )
    return found


def _result(lift: float, verdict: str, before: float = 0.58, n: int = 1000) -> dict[str, Any]:
    half = 1.96 * math.sqrt(2 * 0.22 / n)
    return {
        "heldout_before": before,
        "heldout_after": before + lift,
        "lift": lift,
        "lift_ci95": [lift - half, lift + half],
        "p_value": 0.0001 if abs(lift) > half else 0.4,
        "gained": round(n * (0.05 + max(lift, 0))),
        "lost": round(n * (0.05 + max(-lift, 0))),
        "verdict": verdict,
        "report_n": n,
        "selected_step": STEPS if lift > 0 else 0,
        "published_step": STEPS if verdict == "gain" else None,
        "steps": STEPS,
        "n_steps": STEPS,
        "seconds": RUN_S,
        "seconds_per_point": RUN_S / (lift * 100) if lift > 0 else None,
        "peak_gb": 2.31,
        "pool_rise": abs(lift) + 0.05,
        "alerts": [],
    }
