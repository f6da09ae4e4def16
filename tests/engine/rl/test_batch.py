"""Where a step's batch comes from: filtering, refilling, reading twice."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from engine.contract.events import Event
from engine.contract.kinds.rl_run import RLRunConfig
from engine.contract.run_dir import RunDir
from engine.contract.sources.mixture import DataConfig
from engine.data.curriculum import curriculum_of
from engine.data.rows import Question
from engine.rewards.adapter import Reason, RewardAdapter, Verdict
from engine.rl.batch import Batch, BatchSource
from engine.rl.observer import LoopObserver
from engine.rl.rl_run import run as rl_run
from engine.rl.state import LoopState
from engine.run.session import Attempt
from engine.run.stop import Aborted, rl_hooks
from engine.sampling.base import Groups, Rollout

NewAttempt = Callable[..., RunDir]
OpenNewest = Callable[[RunDir], Attempt]
Events = Callable[..., list[Event]]

TRAIN = [Question(f"q{i}", f"{i}=", "7") for i in range(20)]


class Policy:
    """Samples one right and one wrong answer for the prompts it is unsure of, else two right."""

    def __init__(self, unsure: set[str], broken: set[str] = frozenset()) -> None:  # type: ignore[assignment]
        self.unsure = unsure
        self.broken = broken
        self.asked: list[list[str]] = []

    def __call__(self, tasks: Sequence[Question], k: int) -> Groups:
        self.asked.append([task.id for task in tasks])
        return [
            [Rollout(t.id, i, (1,), (2 + i,), (-1.0,), self.say(t, i), False, 0) for i in range(k)]
            for t in tasks
        ]

    def say(self, task: Question, sample: int) -> str:
        if task.id in self.broken:
            return "crash"
        return "8" if task.id in self.unsure and sample else "7"


def verify(completion: str, expected: str) -> Verdict:
    if completion == "crash":
        raise ZeroDivisionError
    return Verdict.of(completion == expected, completion)


def source(policy: Policy, state: LoopState, **settings: Any) -> BatchSource:
    few = {"group_k": 2, "tasks_per_step": 4}
    return BatchSource(
        RLRunConfig(base="embedded:qwen3-tiny", **(few | settings)),
        policy,
        RewardAdapter(verify),
        state=state,
        observer=LoopObserver(),
        journal=None,
    )


def gather(policy: Policy, **settings: Any) -> Batch:
    return source(policy, LoopState(), **settings).gather(1, TRAIN)


@pytest.mark.requirement("EX-17")
def test_groups_that_tie_leave_the_batch_and_are_counted() -> None:
    """With `filter`: sampled, measured, shown; not trained on."""
    batch = gather(Policy(unsure=set()), objective={"zero_signal": "filter"})

    assert len(batch.sampled) == 4
    assert batch.groups == []
    assert batch.fates == {"used": 0, "wasted": 0, "filtered": 4, "failed": 0}


@pytest.mark.requirement("EX-17")
def test_with_keep_tied_groups_stay_in_the_batch() -> None:
    """They count in the denominators of the losses that say so."""
    batch = gather(Policy(unsure=set()), objective={"loss": "grpo", "zero_signal": "keep"})

    assert len(batch.groups) == 4
    assert batch.fates["filtered"] == 0


@pytest.mark.requirement("EX-17")
def test_with_refill_other_prompts_are_drawn_until_the_step_is_full() -> None:
    """Never a prompt that this step has seen, and only as many as are missing."""
    policy = Policy(unsure={f"q{i}" for i in range(0, 20, 2)})

    batch = gather(policy, objective={"zero_signal": "refill", "refill_max": 10})

    assert len(batch.groups) == 4
    assert {group.task.id for group in batch.groups} <= policy.unsure
    asked = [name for round_ in policy.asked for name in round_]
    assert len(asked) == len(set(asked))
    assert batch.fates == {"used": 4, "wasted": 0, "filtered": len(asked) - 4, "failed": 0}
    assert {group.task.draw for group in batch.sampled} == {0}


@pytest.mark.requirement("EX-17")
def test_refilling_is_bounded_and_then_trains_on_what_it_has() -> None:
    """A corpus without signal costs so many rounds a step, and no more."""
    policy = Policy(unsure={"q3"})

    batch = gather(policy, objective={"zero_signal": "refill", "refill_max": 2})

    assert len(policy.asked) == 3
    assert len(batch.groups) <= 1


def test_refilling_ends_where_the_corpus_ends() -> None:
    """Twenty rows, all tied: five rounds of four, and no question twice."""
    policy = Policy(unsure=set())

    gather(policy, objective={"zero_signal": "refill", "refill_max": 50})

    assert sorted(name for round_ in policy.asked for name in round_) == sorted(
        question.id for question in TRAIN
    )


@pytest.mark.requirement("EX-15")
def test_a_group_whose_verifier_broke_on_all_of_it_has_failed() -> None:
    """Equal rewards of 0 that say nothing about the policy."""
    policy = Policy(unsure=set(), broken={q.id for q in TRAIN})

    batch = gather(policy, objective={"loss": "grpo", "zero_signal": "keep"})

    assert batch.fates["failed"] == 4
    assert batch.groups == []
    assert {v.reason for group in batch.sampled for v in group.verdicts} == {Reason.CRASH}


@pytest.mark.requirement("EX-17")
def test_a_real_run_refills_and_counts_what_it_filtered(
    recipe: dict[str, Any], new_attempt: NewAttempt, open_newest: OpenNewest, events: Events
) -> None:
    """Random weights tie at most prompts: more are sampled than a step asks for."""
    recipe |= {"max_steps": 2, "objective": {"zero_signal": "refill", "refill_max": 2}}
    run = new_attempt(recipe)

    rl_run(open_newest(run))

    [first, _] = [e["values"] for e in events(run, "metric") if "pool/score" in e["values"]]
    sampled = len((run.rollouts / "train-000001.jsonl").read_text("utf-8").splitlines()) / 8
    assert first["fate/filtered"] + first["fate/used"] == sampled
    assert 8 < sampled <= 24


@pytest.mark.requirement("EX-15")
@pytest.mark.parametrize("zero_signal", ["keep", "filter"])
def test_rollouts_may_be_read_twice_and_a_resumed_run_reads_the_same(
    zero_signal: str,
    recipe: dict[str, Any],
    new_attempt: NewAttempt,
    open_newest: OpenNewest,
    events: Events,
) -> None:
    """With two reads every second step samples nothing; the buffer outlives a stop.

    Where groups are filtered, what waits leaves room for a few: the count of rows outlives it too.
    """
    recipe |= {
        "max_steps": 6,
        "buffer": {"max_reads": 2, "max_staleness": 1},
        "objective": {"loss": "grpo", "zero_signal": zero_signal},
        "save_every": 1,
    }
    whole = new_attempt(recipe, name="whole")
    expected = rl_run(open_newest(whole))
    broken = new_attempt(recipe, name="broken")
    stopped_at = 3

    def should_abort() -> bool:
        steps = [e["step"] for e in events(broken, "metric") if "pool/score" in e["values"]]
        return bool(steps) and steps[-1] >= stopped_at

    with pytest.raises(Aborted), rl_hooks(should_abort=should_abort):
        rl_run(open_newest(broken))
    state = json.loads((broken.checkpoint(stopped_at) / "loop.json").read_bytes())
    waiting = len(state["buffer"])
    new_attempt(recipe, name="broken")
    result = rl_run(open_newest(broken))

    sampled = sorted(int(p.stem[-6:]) for p in whole.rollouts.glob("train-*"))
    rows_drawn = [len(_prompts(whole, step)) for step in sampled]
    if zero_signal == "keep":
        assert (waiting, sampled, rows_drawn) == (8, [1, 3, 5], [8, 8, 8])
    else:
        assert 0 < waiting < 8
        assert min(rows_drawn) < 8
    assert [_prompts(broken, step) for step in sampled] == [_prompts(whole, s) for s in sampled]
    assert result["pool_scores"] == expected["pool_scores"]
    assert result["heldout_scores"] == expected["heldout_scores"]
    files = [run.checkpoint(6) / "model" / "model.safetensors" for run in (whole, broken)]
    assert files[0].read_bytes() == files[1].read_bytes()


def _prompts(run: RunDir, step: int) -> list[str]:
    """Ids of the prompts that a step sampled, in their order."""
    lines = (run.rollouts / f"train-{step:06d}.jsonl").read_text("utf-8").splitlines()
    return list(dict.fromkeys(json.loads(line)["id"] for line in lines))


@pytest.mark.requirement("EX-15")
def test_every_row_is_drawn_once_an_epoch_where_steps_lack_few() -> None:
    """Half of the groups tie and leave; what waits for its second read leaves room for some."""
    policy = Policy(unsure={f"q{i}" for i in range(0, 20, 2)})
    state = LoopState()
    reading_twice = {"max_reads": 2, "max_staleness": 9}
    batches = source(policy, state, objective={"zero_signal": "filter"}, buffer=reading_twice)

    for step in range(1, 13):
        state.version = step - 1
        state.samplings += bool(batches.gather(step, TRAIN).sampled)

    assert {len(rows) for rows in policy.asked} > {4}
    asked = [name for rows in policy.asked for name in rows]
    assert len(asked) > len(TRAIN)
    assert sorted(asked[: len(TRAIN)]) == sorted(question.id for question in TRAIN)


def test_a_state_that_did_not_count_its_rows_goes_on_where_its_steps_had_come() -> None:
    """Seven steps of three are an epoch of twenty rows; one more has had 23."""
    counted, uncounted = Policy(unsure=set()), Policy(unsure=set())
    saved = LoopState(samplings=8).as_dict()
    del saved["drawn"]

    source(counted, LoopState(samplings=8, drawn=23), tasks_per_step=3).gather(9, TRAIN)
    source(uncounted, LoopState.from_dict(saved), tasks_per_step=3).gather(9, TRAIN)

    assert counted.asked == uncounted.asked


@pytest.mark.requirement("EX-15")
def test_a_step_that_reads_again_measures_no_pool_and_samples_no_tokens(
    recipe: dict[str, Any], new_attempt: NewAttempt, open_newest: OpenNewest, events: Events
) -> None:
    """One sample is one measurement: read twice it would look like two that agree."""
    recipe |= {
        "max_steps": 4,
        "buffer": {"max_reads": 2, "max_staleness": 1},
        "objective": {"loss": "grpo"},
    }
    run = new_attempt(recipe)

    result = rl_run(open_newest(run))

    values = {e["step"]: e["values"] for e in events(run, "metric")}
    assert [step for step in values if "pool/score" in values[step]] == [1, 3]
    assert {int(s): score for s, score in result["pool_scores"].items()} == {
        step: values[step]["pool/score"] for step in (1, 3)
    }
    assert [entry["pool_score"] is None for entry in result["step_history"]] == [False, True] * 2
    sampled = [
        len(json.loads(line)["completion_ids"])
        for path in run.rollouts.glob("train-*")
        for line in path.read_text("utf-8").splitlines()
    ]
    assert sum(values[step]["rollout/tokens"] for step in values) == sum(sampled)
    trials = {t["name"]: t["score"] for t in result["lineage_card"]["trials"] if t["kind"] == "rl"}
    assert [trials[f"rl-00{step}"] is None for step in (1, 2, 3, 4)] == [False, True] * 2
    live = [e["pool_score"] for e in events(run, "progress") if "pool_score" in e]
    assert live == [values[step]["pool/score"] for step in (1, 3)]


@pytest.mark.requirement("EX-07")
def test_a_tied_prompt_of_a_mixture_is_replaced_by_one_of_its_own_source() -> None:
    """Else the source that the policy has learnt would fade out of the steps."""
    train = [Question(f"{part}{i}", f"{i}=", "7", source=part) for part in "ab" for i in range(12)]
    unsure = {f"{part}{i}" for part in "ab" for i in range(0, 12, 3)}
    source_ = source(
        Policy(unsure), LoopState(), objective={"zero_signal": "refill"} | {"refill_max": 9}
    )
    source_._order = curriculum_of(train, DataConfig(), 0, {"a": 3, "b": 1})

    batch = source_.gather(1, train)

    assert sorted(group.task.source for group in batch.groups) == ["a", "a", "a", "b"]
    assert len(batch.sampled) > 4
