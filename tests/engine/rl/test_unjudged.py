"""What a verifier broke on, or did not judge, is counted and never learnt from."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

import pytest

from engine.contract.events import Event
from engine.contract.intervals import compare
from engine.contract.kinds.rl_run import RLRunConfig
from engine.contract.rl.objective import Advantages, LossName, ObjectiveConfig
from engine.contract.run_dir import RunDir
from engine.data.rows import Bench, Question
from engine.evaluate.gate import Gate
from engine.rewards.adapter import Reason, RewardAdapter
from engine.rewards.soundness import Soundness
from engine.rl import RLLoop
from engine.rl.advantages import step_advantages
from engine.rl.report import report_fields
from engine.rl.rl_run import run as rl_run
from engine.rl.state import LoopState, marks
from engine.run.session import Attempt
from engine.sampling.base import Groups, Rollout
from engine.verdict.selection import Heldout, p_better

NewAttempt = Callable[..., RunDir]
OpenNewest = Callable[[RunDir], Attempt]
Events = Callable[..., list[Event]]


def group(*texts: str) -> list[Rollout]:
    return [
        Rollout("q", i, (1,), (2 + i,), (-1.0,), text, False, 0) for i, text in enumerate(texts)
    ]


@pytest.mark.requirement("RL-17")
@pytest.mark.parametrize("loss", get_args(LossName))
def test_a_crash_in_a_group_of_negative_rewards_is_not_its_best(loss: LossName) -> None:
    """With every estimator: the others are ranked as if it had not been sampled."""
    objective = ObjectiveConfig(loss=loss, overlong_buffer=0)
    rollouts = [group("a", "b", "c", "d")]

    [found] = step_advantages([[-1.0, None, -2.0, -3.0]], rollouts, objective, 8)
    [alone] = step_advantages([[-1.0, -2.0, -3.0]], [group("a", "c", "d")], objective, 8)

    assert found[1] == 0.0
    assert [found[0], found[2], found[3]] == alone
    assert found[0] == max(found) > 0


@pytest.mark.parametrize("advantages", get_args(Advantages))
@pytest.mark.parametrize("rewards", [[1.0, None, None], [None, None, None]])
def test_fewer_than_two_judged_completions_tie(
    rewards: list[float | None], advantages: Advantages
) -> None:
    """One alone would be its own baseline; the overlong penalty ranks it neither."""
    objective = ObjectiveConfig(loss="dapo", advantages=advantages, zero_signal="keep")

    assert step_advantages([rewards], [group("a", "b", "c")], objective, 1) == [[0.0, 0.0, 0.0]]


def rates(completion: str, _expected: str) -> Any:
    """A reward by the completion's own word."""
    match completion:
        case "raise":
            raise ValueError("odd gold")
        case "late":
            raise TimeoutError
        case "none":
            return None
        case _:
            return float(completion)


@pytest.mark.requirement("RL-17")
@pytest.mark.parametrize(
    ("said", "reason", "reward"),
    [
        ("nan", Reason.CRASH, 0.0),
        ("inf", Reason.CRASH, 0.0),
        ("-inf", Reason.CRASH, 0.0),
        ("raise", Reason.CRASH, 0.0),
        ("late", Reason.TIMEOUT, 0.0),
        ("none", Reason.UNJUDGED, 0.0),
        ("-2", Reason.WRONG, -2.0),
        ("0.75", Reason.CORRECT, 0.75),
    ],
)
def test_what_a_verifier_may_return(said: str, reason: Reason, reward: float) -> None:
    """A number, None; what is no finite number is a crash."""
    verdict = RewardAdapter(rates, threshold=0.5).judge(said, "")

    assert (verdict.reason, verdict.reward) == (reason, reward)


def test_what_broke_is_no_success_however_low_the_threshold() -> None:
    """A crash is worth 0, and 0 is above −1."""
    adapter = RewardAdapter(rates, threshold=-1.0)

    assert not adapter.success(adapter.judge("raise", ""))
    assert adapter.success(adapter.judge("-0.5", ""))
    assert not adapter.success(adapter.judge("-1.5", ""))


class Told:
    """A policy that says what it is told, and a trainer that remembers what it got."""

    def __init__(self, *texts: str) -> None:
        self.texts = texts
        self.trained: list[tuple[list[list[str]], Sequence[Sequence[float]]]] = []

    def sample(self, tasks: Sequence[Question], k: int) -> Groups:
        return [
            [
                Rollout(t.id, i, (1,), (2 + i,), (-1.0,), self.texts[i % len(self.texts)], False, 0)
                for i in range(k)
            ]
            for t in tasks
        ]

    def train(
        self, rollouts: Groups, advantages: Sequence[Sequence[float]], _step: int
    ) -> dict[str, float]:
        self.trained.append(([[r.text for r in group] for group in rollouts], advantages))
        return {}

    def loop(self, heldout: Any = None, **settings: Any) -> RLLoop:
        questions = [Question(f"q{i}", f"{i}=", "1") for i in range(120)]
        few = {"group_k": 4, "tasks_per_step": 2, "max_steps": 1, "force_headroom": True}
        reward = RewardAdapter(rates)
        return RLLoop(
            RLRunConfig(base="embedded:qwen3-tiny", **(few | settings)),
            reward,
            Bench("b", questions),
            sampler=self.sample,
            trainer=self.train,
            heldout_eval=heldout or (lambda _step, _tasks: 0.5),
        )


@pytest.mark.requirement("RL-17")
def test_the_trainer_gets_the_judged_completions_alone() -> None:
    """So no denominator and no KL term knows the others."""
    policy = Told("1", "raise", "none", "0")

    policy.loop(objective={"loss": "grpo"}).run()

    [(texts, advantages)] = policy.trained
    assert texts == [["1", "0"], ["1", "0"]]
    assert [[round(a, 3) for a in group] for group in advantages] == [[1.0, -1.0]] * 2


def test_a_crash_counts_as_0_in_the_pool_and_none_does_not_count() -> None:
    """2 of 3: right, right, crash; the None is in no mean."""
    policy = Told("1", "1", "raise", "none")
    loop = policy.loop()

    loop.run()

    assert loop.pool_scores == {1: pytest.approx(2 / 3)}
    assert loop.state.history[0]["soundness"] == {
        "n": 8,
        "crashes": 2,
        "timeouts": 0,
        "unjudged": 2,
        "first": "ValueError: odd gold",
    }


def test_a_step_in_which_nothing_was_judged_has_no_pool_score() -> None:
    """And trains on nothing."""
    policy = Told("none")
    loop = policy.loop(max_steps=2, objective={"loss": "grpo"})

    loop.run()

    assert loop.pool_scores == {}
    assert policy.trained == []


@pytest.mark.parametrize(
    ("texts", "code", "said"),
    [
        (("1", "0", "0", "raise"), "VERIFIER_FAILED", "broke on 2 of 8 training rollouts"),
        (("1", "0", "0", "none"), "NOT_JUDGED", "judged 6 of 8 training rollouts"),
        (("1", "0", "0", "late"), "VERIFIER_TIMEOUT", "out of time on 2 of 8 training rollouts"),
    ],
)
def test_it_is_said_where_only_training_rows_break(
    texts: tuple[str, ...], code: str, said: str
) -> None:
    """Once, however many steps it goes on."""
    loop = Told(*texts).loop(max_steps=3)

    loop.run()

    [alert] = loop.state.alerts
    assert alert["code"] == code
    assert said in alert["text"]


def test_a_share_within_the_limits_is_no_alert() -> None:
    """One in a hundred breaks; one in twelve takes too long, which may be the completion's."""
    assert not [*Soundness(100, crashes=2, timeouts=10, unjudged=2).alerts("rows")]
    assert len([*Soundness(100, crashes=3, timeouts=11, unjudged=3).alerts("rows")]) == 3


# --- gates and verdicts ---


def gated(texts: Sequence[str], step: int = 0) -> Any:
    questions = [Question(f"q{i}", f"{i}=", "1") for i in range(len(texts))]

    def sample(tasks: Sequence[Question], k: int) -> Groups:
        return [
            [Rollout(t.id, 0, (1,), (2,), (-1.0,), text, False, 0)]
            for t, text in zip(tasks, texts, strict=True)
        ]

    return Gate(sample, RewardAdapter(rates), 0.2)(step, questions)


def test_a_gate_counts_a_crash_as_0_and_leaves_out_what_was_not_judged() -> None:
    """Its interval and its n are of the rows that count."""
    found = gated(["1", "0", "raise", "none"])

    assert float(found) == pytest.approx(1 / 3)
    assert found.outcomes == [True, False, False, None]
    assert len(found.counted) == 3
    assert found.values() == {
        "unparsed": 0.0,
        "truncated": 0.0,
        "truncated/right": 0.0,
        "truncated/wrong": 0.0,
        "crash": 0.25,
        "timeout": 0.0,
        "unjudged": 0.25,
    }
    assert marks(found.outcomes, found.broke) == "10x-"


def test_a_gate_that_judged_nothing_scores_0_and_says_so() -> None:
    """There is no mean of no row."""
    found = gated(["none"] * 3)

    assert float(found) == 0.0
    assert "did not judge 3 of 3" in str(found.failure)


def test_a_row_that_one_side_did_not_judge_leaves_both() -> None:
    """In the comparison, and in the test of whether it is better."""
    before: list[bool | None] = [False, False, None, True]
    after: list[bool | None] = [True, None, True, True]

    found = compare(before, after)

    assert (found.n, found.gained, found.lost) == (2, 1, 0)
    table = {0: before, 5: after}
    kept = {0: [False, True], 5: [True, True]}
    assert p_better(Heldout(table, table), 5, seed=0) == p_better(Heldout(kept, kept), 5, seed=0)


def state_of(select: dict[int, str]) -> LoopState:
    state = LoopState(heldout_solved=dict(select))
    for step, solved in select.items():
        judged = [c for c in solved if c != "-"]
        state.heldout_scores[step] = sum(c == "1" for c in judged) / len(judged)
    return state


def test_the_states_rows_come_back_from_json() -> None:
    """A resumed run compares the same rows."""
    state = state_of({0: "10x-", 5: "11-0"})

    back = LoopState.from_dict(json.loads(json.dumps(state.as_dict())))

    assert back.outcomes() == {0: [True, False, False, None], 5: [True, True, None, False]}
    assert back.gate_soundness(0) == Soundness(4, crashes=1, unjudged=1)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (Soundness(100, 15, 6), "the verifier broke or ran out of time on 21 of 100 rows"),
        (Soundness(100, unjudged=3), "3 of 100 rows were not judged"),
        (Soundness(100, crashes=20, unjudged=2), None),
    ],
)
def test_a_gate_with_too_many_of_them_carries_no_verdict(
    found: Soundness, said: str | None
) -> None:
    """More than a fifth broken, or more than 2 % not judged."""
    assert found.no_verdict("rows") == said


def test_no_verdict_has_its_reason_and_publishes_the_base() -> None:
    """Whatever the rows that were judged say."""
    state = state_of({0: "0" * 60, 5: "1" * 60})
    reported = {0: [False] * 60, 5: [True] * 60}
    config = RLRunConfig(base="embedded:qwen3-tiny")

    sound = report_fields(state, reported, config)
    unsound = report_fields(state, reported, config, unsound="the verifier broke")

    assert (sound["verdict"], sound["published_step"]) == ("gain", 5)
    assert (unsound["verdict"], unsound["published_step"]) == ("no verdict", 0)
    assert unsound["verdict_reason"] == "the verifier broke"


@pytest.mark.requirement("RL-17")
def test_a_run_whose_verifier_breaks_on_held_out_rows_has_no_verdict(
    recipe: dict[str, Any],
    new_attempt: NewAttempt,
    open_newest: OpenNewest,
    events: Events,
    tmp_path: Path,
) -> None:
    """Their schemas cannot be read: through the whole run."""
    path = tmp_path / "rows.jsonl"
    rows = [
        {"prompt": f"{i:03d}=", "answer": {"schema": {} if i % 2 else {"type": "no such type"}}}
        for i in range(120)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    recipe |= {"data": {"source": str(path)}, "verifier": "json_schema", "max_steps": 2}
    run = new_attempt(recipe)

    result = rl_run(open_newest(run))

    assert result["verdict"] == "no verdict"
    assert "broke or ran out of time on" in result["verdict_reason"]
    assert {"VERIFIER_FAILED"} == {alert["code"] for alert in result["alerts"]}
    gate = events(run, "gate")[0]["values"]
    assert gate["crash"] > 0.2
    [first, *_] = [e["values"] for e in events(run, "metric") if "pool/score" in e["values"]]
    assert first["pool/crash"] > 0
    assert all(math.isfinite(value) for value in first.values())
