"""What the warnings say of series written by hand, and of a real run."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.contract.events import Event
from engine.contract.kinds.rl_run import RLRunConfig
from engine.contract.run_dir import RunDir
from engine.data.rows import Question
from engine.evaluate.gate import GateResult, Scored
from engine.rewards.adapter import Reason, Verdict
from engine.rl.buffer import JudgedGroup
from engine.rl.farthest import Farthest
from engine.rl.guards.warnings.seen import WatchMemory
from engine.rl.guards.warnings.watch import Watch
from engine.rl.rl_run import run as rl_run
from engine.rl.state import LoopState, marks, marks_of
from engine.run.session import Attempt
from engine.run.stop import Aborted, rl_hooks
from engine.sampling.base import Rollout

NewAttempt = Callable[..., RunDir]
OpenNewest = Callable[[RunDir], Attempt]
Events = Callable[..., list[Event]]

USUAL = {
    "train/entropy": 0.6,
    "rollout/zero_variance": 0.2,
    "rollout/truncated": 0.0,
    "rollout/length_mean": 100.0,
    "train/kl": 0.01,
    "train/kl_max": 0.1,
    "train/clip_fraction": 0.02,
    "train/grad_norm": 1.0,
    "pool/reward_mean": 0.4,
    "pool/strict_mean": 0.4,
    "pool/reward_std": 0.5,
    "time/step_s": 60.0,
    "time/sampling_s": 40.0,
    "time/verifying_s": 5.0,
    "time/training_s": 15.0,
}


class Run:
    """A run whose steps measure what it is told; a gate every ten steps."""

    def __init__(self, max_steps: int = 400, **settings: Any) -> None:
        config = RLRunConfig(base="embedded:qwen3-tiny", max_steps=max_steps, **settings)
        self.watch, self.state = Watch(config, WatchMemory()), LoopState()
        self.state.heldout_scores[0] = 0.4

    def steps(self, count: int, *, gate: float = 0.4, **values: float) -> list[dict[str, Any]]:
        """What is said of so many more steps, each measuring what is usual but for `values`."""
        named = {name.replace("__", "/"): value for name, value in values.items()}
        found = []
        for _ in range(count):
            self.state.step += 1
            self.state.pool_scores[self.state.step] = named.get("pool/score", 0.4)
            self.state.history.append({"step": self.state.step, "seconds": 74.4})
            self.watch.sampled([GROUP])
            found += self.watch.stepped(self.state, USUAL | named, ranked=True)
            if self.state.step % 10 == 0:
                self.state.heldout_scores[self.state.step] = gate
                found += self.watch.gated(self.state, None)
        return found


def rollout(sample: int, text: str, *, truncated: bool = False) -> Rollout:
    ids = tuple(range(len(text)))
    return Rollout("q1", sample, (1,), ids, (-0.1,) * len(ids), text, truncated, 0)


GROUP = JudgedGroup(
    Question("q1", "1+1=", "2"),
    [rollout(0, "2"), rollout(1, "3"), rollout(2, "2 but so long", truncated=True)],
    [
        Verdict(1.0, "2", Reason.CORRECT),
        Verdict(0.0, "3", Reason.WRONG),
        Verdict(0.0, None, Reason.TIMEOUT),
    ],
    [1.0, -0.5, -0.5],
    version=0,
    step=1,
)


@pytest.mark.requirement("EX-25")
@pytest.mark.parametrize(
    ("code", "values", "says", "shows"),
    [
        ("ENTROPY_LOW", {"train__entropy": 0.05}, "0.05 nats a token, 8% of the first", "2"),
        ("TIES_HIGH", {"rollout__zero_variance": 0.6}, "in 60% of the groups", "2 but so long"),
        ("TRUNCATED", {"rollout__truncated": 0.2}, "20.0% of the completions", "2 but so long"),
        ("KL_CREEP", {"train__kl": 0.6}, "0.6 nats a token (0.01 in the first steps)", "2 but"),
        ("CLIPPED", {"train__clip_fraction": 0.3}, "30% of the tokens lose", "2 but so long"),
        (
            "LENGTH_PAID",
            {"rollout__length_mean": 200.0, "pool__reward_mean": 0.7},
            "grew by 100% (100 to 200 tokens) and the reward from 0.4 to 0.7",
            "2",
        ),
        (
            "SLOWER",
            {"time__step_s": 120.0, "time__verifying_s": 65.0, "pool__timeout": 0.25},
            "120.0 s and took 60.0 s at first, 60.0 s of it in verifying (25.0% of",
            "2 but so long",
        ),
    ],
)
def test_a_warning_says_what_is_so_and_what_to_do_and_shows_it(
    code: str, values: dict[str, float], says: str, shows: str
) -> None:
    """With step, numbers, and completions of the step that show it best."""
    run = Run()
    quiet = {name: 0.0 for name in values if name == "pool__timeout"}
    assert run.steps(20, **quiet) == []

    [alert] = run.steps(10, **values)

    assert (alert["code"], alert["step"]) == (code, 30)
    assert says in alert["text"]
    assert ";" in alert["text"], "what to do comes after a semicolon"
    assert alert["numbers"]
    assert alert["samples"][0]["completion"].startswith(shows)
    assert {"prompt", "completion", "reward", "reason"} == set(alert["samples"][0])
    json.dumps(alert, allow_nan=False)


@pytest.mark.requirement("EX-25")
def test_what_was_said_is_said_again_only_when_it_is_twice_as_bad() -> None:
    run = Run()
    run.steps(20)

    first = run.steps(10, rollout__truncated=0.1)
    as_bad = run.steps(50, rollout__truncated=0.19)
    worse = run.steps(10, rollout__truncated=0.2)

    assert [a["code"] for a in first] == [a["code"] for a in worse] == ["TRUNCATED"]
    assert as_bad == []


@pytest.mark.requirement("EX-25")
@pytest.mark.parametrize("off", [{"enabled": False}, {"off": ["TRUNCATED"]}])
def test_warnings_can_be_switched_off(off: dict[str, Any]) -> None:
    """All of them, or one by its code."""
    run = Run(warnings=off)
    run.steps(20)

    assert run.steps(20, rollout__truncated=0.5) == []


def test_entropy_that_stays_is_not_running_out() -> None:
    """At a third of what it was, but no longer falling: it lasts to the end of the run."""
    run = Run()
    run.steps(20)

    said = run.steps(60, train__entropy=0.2)

    assert [a["step"] for a in said] == [30], "while it falls"
    assert Run(max_steps=31).steps(31) == []


def test_a_pool_that_is_solved_needs_no_entropy() -> None:
    run = Run()
    run.steps(20)

    assert run.steps(20, train__entropy=0.01, pool__score=0.95) == []


def test_ties_of_a_solved_pool_ask_for_harder_rows() -> None:
    """The same symptom has two causes, and two remedies."""
    easy, hard = Run(), Run()

    [too_easy] = easy.steps(20, rollout__zero_variance=0.8, pool__score=0.97)
    [too_hard] = hard.steps(20, rollout__zero_variance=0.8, pool__score=0.03)

    assert "because 97% are right" in too_easy["text"]
    assert "choose harder rows" in too_easy["text"]
    assert "choose easier rows" in too_hard["text"]


def test_length_that_held_out_rows_follow_is_no_fault() -> None:
    """Policies that reason write more."""
    run = Run()
    run.steps(20)

    assert run.steps(30, gate=0.6, rollout__length_mean=200.0, pool__reward_mean=0.6) == []


@pytest.mark.requirement("EX-25")
def test_a_reward_that_rises_by_form_alone_is_named_with_what_is_paid_though_wrong() -> None:
    rewards = [{"verifier": "exact"}, {"verifier": "ifeval", "weight": 0.5}]
    values = {"pool__reward_mean": 0.7, "rewards__exact": 0.4}
    run = Run(rewards=rewards)
    run.steps(20, rewards__exact=0.4)

    said = run.steps(100, **values)

    assert [(a["code"], a["step"]) for a in said] == [("FORM_PAID", 80)]
    assert "from 0.4 to 0.7, and 0 of that is correctness (rewards/exact)" in said[0]["text"]


def gate(step: int, *, read: int, right: Collection[int], boxed: int) -> GateResult:
    """A hundred rows, of which the first so many can be read and have a box."""
    items = []
    for row in range(100):
        solved = row in right
        judged = Reason.CORRECT if solved else Reason.WRONG
        text = f"\\boxed{{{row}}}" if row < boxed else str(row)
        one = Rollout(f"h{row}", 0, (1,), (2,), (-0.1,), text, False, step)
        verdict = Verdict(float(solved), text, judged if row < read else Reason.UNPARSED)
        items.append(Scored(Question(f"h{row}", f"{row}+0=", "0"), one, verdict, solved))
    return GateResult(step, items, 0.0)


NEWLY_READ = (*range(20), *range(40, 70))


@pytest.mark.requirement("EX-25")
@pytest.mark.parametrize(
    ("now", "said"),
    [
        (gate(80, read=95, right=NEWLY_READ, boxed=90), ["FORM_PAID"]),
        (gate(80, read=95, right=range(50), boxed=90), []),
        (gate(70, read=95, right=NEWLY_READ, boxed=90), []),
    ],
)
def test_a_gain_of_what_can_be_read_alone_is_form_too(now: GateResult, said: list[str]) -> None:
    """With the form that came with it. A gain where answers were read before is none, nor is one
    of the first steps, in which form may come first.
    """
    run = Run()
    for result in (gate(0, read=40, right=range(20), boxed=5), now):
        run.state.step = result.step
        run.state.heldout_scores[result.step] = float(result)
        run.state.heldout_solved[result.step] = marks_of(result)
        run.watch.sampled([GROUP])
        found = run.watch.gated(run.state, result)

    assert [alert["code"] for alert in found] == said
    for alert in found:
        assert "held-out rose from 20.0% to 50.0% by what can be read" in alert["text"]
        assert "in 60% of the rows at first and in 5% now" in alert["text"]
        assert "(format/boxed at the gates: 5% at first, 90% now)" in alert["text"]
        assert [one["completion"] for one in alert["samples"]] == [
            "\\boxed{40}",
            "\\boxed{41}",
            "\\boxed{42}",
        ]


@pytest.mark.requirement("EX-25")
def test_one_token_far_from_the_reference_is_named_with_its_completion() -> None:
    """At once, not at the next gate: the step's completions are at hand then."""
    run = Run()
    run.steps(12)
    run.watch.sampled([GROUP])
    run.watch.trained(Farthest(120.0, "q1", 1, 0))
    run.state.step += 1

    [alert] = run.watch.stepped(run.state, USUAL | {"train/kl_max": 120.0}, ranked=True)

    assert (alert["code"], alert["step"]) == ("KL_TOKEN", 13)
    assert "120 nats from the step-0 policy (token 1 of a completion of row q1)" in alert["text"]
    assert alert["samples"][0]["completion"] == "3"


def test_a_record_among_rare_tokens_is_no_token_that_lies_apart() -> None:
    """As a healthy run of the demo has it: the value grows as e to the power of the log-ratio."""
    run = Run()

    assert run.steps(1, train__kl_max=0.0) == run.steps(12, train__kl_max=33.6) == []
    assert run.steps(1, train__kl_max=185.0) == []
    assert [a["code"] for a in run.steps(1, train__kl_max=60_000.0)] == ["KL_TOKEN"]


def test_in_step_1_the_policy_is_the_reference() -> None:
    """A token that lies apart there was computed apart, not learnt."""
    [alert] = Run().steps(1, train__kl_max=1.5)

    assert "before it had moved" in alert["text"]
    assert Run().steps(12, train__kl_max=0.9) == []


@pytest.mark.requirement("EX-25")
def test_a_plateau_says_what_it_cost() -> None:
    """After a gain sixty flat steps are enough; without one 150 are asked for."""
    learnt, never = Run(), Run()
    for step in range(1, 41):
        learnt.steps(1, pool__score=0.2 + step / 200)

    after_gain = learnt.steps(150, pool__score=0.4)
    without = never.steps(160)

    assert [a["code"] for a in after_gain] == ["PLATEAU"]
    assert [(a["code"], a["step"]) for a in without] == [("PLATEAU", 150)]
    assert "the last 60 steps brought nothing (1.2 h)" in without[0]["text"]


def test_a_plateau_whose_cause_was_said_is_not_said() -> None:
    run = Run()

    said = run.steps(200, rollout__zero_variance=0.9)

    assert [a["code"] for a in said] == ["TIES_HIGH"]


@pytest.mark.requirement("EX-25")
def test_a_peak_is_told_with_its_gate_once_the_fall_is_beyond_chance() -> None:
    """Unless the inversion alarm says it: there the pool rises meanwhile."""
    run, alarmed = Run(), Run()
    alarmed.state.inversion = {"best": 10}
    for one in (run, alarmed):
        for step, solved in ((10, 60), (20, 58), (30, 40), (40, 38)):
            one.state.step = step
            one.state.heldout_scores[step] = solved / 100
            one.state.heldout_solved[step] = marks([row < solved for row in range(100)])
        one.watch.sampled([GROUP])

    [alert] = run.watch.gated(run.state, None)

    assert alert["code"] == "PEAKED"
    assert "best at step 10 (60.0%) and is 38.0% now, 22 rows lost and 0 won" in alert["text"]
    assert alarmed.watch.gated(alarmed.state, None) == []


NUMBERS = st.floats(allow_nan=True, allow_infinity=True)
STEP = st.dictionaries(st.sampled_from([*USUAL, "pool/timeout", "other"]), NUMBERS, max_size=15)


@pytest.mark.requirement("EX-25")
@settings(max_examples=60, deadline=None)
@given(st.lists(STEP, max_size=45), st.lists(NUMBERS, max_size=45))
def test_no_series_breaks_a_run(steps: list[dict[str, float]], pool: list[float]) -> None:
    """NaN, infinite, huge, missing: what is said is JSON, and a short series says nothing."""
    run = Run(warnings={"window": 5, "plateau_steps": 10})
    for values, score in zip(steps, [*pool, *[0.5] * len(steps)], strict=False):
        run.state.step += 1
        run.state.pool_scores[run.state.step] = score
        run.state.history.append({"step": run.state.step, "seconds": 1.0})
        run.watch.stepped(run.state, values, ranked=True)
        run.state.heldout_scores[run.state.step] = 0.5
        said = run.watch.gated(run.state, None)
        json.dumps(said, allow_nan=False)
        assert said == [] or run.state.step >= 10


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(sorted(USUAL)))
def test_a_series_that_is_missing_is_not_spoken_of(name: str) -> None:
    """It was measured at first and then no more, or turned into NaN: no finding comes of it."""
    run = Run()
    run.steps(20)
    steps: list[Mapping[str, float]] = [
        {n: v for n, v in USUAL.items() if n != name},
        USUAL | {name: float("nan")},
    ]

    for values in steps * 10:
        run.state.step += 1
        assert run.watch.stepped(run.state, values, ranked=True) == []
        assert run.watch.gated(run.state, None) == []


@pytest.fixture
def saturating(recipe: dict[str, Any]) -> dict[str, Any]:
    """A run that has learnt its rows long before it ends: all groups tie."""
    return recipe | {"max_steps": 22, "heldout_every": 4, "save_every": 100}


@pytest.mark.requirement("EX-25")
def test_a_real_run_says_it_in_its_events_and_its_result(
    saturating: dict[str, Any], new_attempt: NewAttempt, open_newest: OpenNewest, events: Events
) -> None:
    """At the first gate after twice the window, with completions of that step."""
    run = new_attempt(saturating)

    result = rl_run(open_newest(run))

    [alert] = [one for one in result["alerts"] if one["code"] == "TIES_HIGH"]
    assert alert["step"] == 20
    assert [one["completion"] for one in alert["samples"]] == ["7", "7", "7"]
    assert "choose harder rows" in alert["text"]
    notes = [e["text"] for e in events(run, "note") if e["code"] == "TIES_HIGH"]
    assert notes == [f"step 20: {alert['text']}"]
    live = [e["alerts"] for e in events(run, "progress") if "alerts" in e]
    assert live[-1] == result["alerts"]
    assert all("train/kl_max" in e["values"] for e in events(run, "metric") if e["step"] < 3)


@pytest.mark.requirement("EX-25")
def test_a_run_stopped_inside_that_gate_says_the_same_when_it_goes_on(
    saturating: dict[str, Any], new_attempt: NewAttempt, open_newest: OpenNewest, events: Events
) -> None:
    """The completions that show it are found in the journal then."""
    whole = rl_run(open_newest(new_attempt(saturating)))
    run = new_attempt(saturating, name="stopped")

    def in_the_gate() -> bool:
        newest = [e for e in events(run, "progress") if "phase" in e][-1:]
        return [(e["phase"], e["step"]) for e in newest] == [("heldout-gate", 20)]

    with rl_hooks(should_abort=in_the_gate), pytest.raises(Aborted):
        rl_run(open_newest(run))
    resumed = rl_run(open_newest(new_attempt(saturating, name="stopped")))

    assert resumed["alerts"] == whole["alerts"]
