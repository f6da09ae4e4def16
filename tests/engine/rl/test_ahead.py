"""Rollouts that are drawn while a step trains: at most so many versions old, and never lost."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from engine.contract.kinds.rl_run import RLRunConfig
from engine.data.rows import Bench, Question
from engine.rewards.adapter import RewardAdapter, load_verifier
from engine.rl.ahead import AheadSampler
from engine.rl.journal import Journal
from engine.rl.loop import RLLoop
from engine.rl.observer import LoopObserver
from engine.rl.state import LoopState, StepReport
from engine.run.stop import Aborted, check_abort, rl_hooks
from engine.sampling.base import Groups, Rollout
from engine.sampling.contradiction import SamplerContradicted

QUESTIONS = [Question(f"q{i}", f"{i}=", "yes") for i in range(40)]
WAIT_S = 20.0
"""For an event that must come; it never passes."""

pytestmark = pytest.mark.requirement("EX-15")


def nothing(*_: Any) -> None:
    """Happens."""


@dataclass
class Served:
    """Trainer and server, recorded: each step moves the weights unless it is said to tie."""

    ties: Sequence[int] = ()
    version: int = 0
    """Of the trainer's weights."""
    served: int = 0
    """Of those that the server has."""
    drawing: int = 0
    """Draws under way."""
    log: list[str] = field(default_factory=list)
    trained: dict[int, list[Rollout]] = field(default_factory=dict)
    """By step."""
    asked: list[tuple[str, ...]] = field(default_factory=list)
    on_draw: Callable[[int], None] = nothing
    on_train: Callable[[int], None] = nothing
    on_verify: Callable[[Groups], None] = nothing

    def __call__(self, tasks: Sequence[Question], k: int) -> Groups:
        version = self.bring()
        return [[replace(r, version=version) for r in group] for group in self.draw(tasks, k)]

    def bring(self) -> int:
        assert self.drawing == 0, "weights are sent while requests are in flight"
        self.served = self.version
        self.log.append(f"bring {self.version}")
        return self.version

    def draw(self, tasks: Sequence[Question], k: int) -> Groups:
        self.drawing += 1
        self.asked.append(tuple(task.id for task in tasks))
        self.log.append(f"draw {len(self.asked)}")
        self.on_draw(len(self.asked))
        weights = self.served
        groups = [
            [
                # What it says tells weights and seed; who draws ahead writes the version down.
                Rollout(t.id, i, (1,), (weights, t.draw or 0, i), (-1.0,) * 3, "no", False, -1)
                for i in range(k)
            ]
            for t in tasks
        ]
        if not tasks or (tasks[0].draw or 0) + 1 not in self.ties:
            groups = [[replace(first, text="yes"), *others] for first, *others in groups]
        self.log.append(f"drawn {len(self.asked)}")
        self.drawing -= 1
        return groups

    def verify(self, groups: Groups) -> float:
        self.on_verify(groups)
        return 0.0

    def train(self, groups: Groups, _: Any, step: int) -> dict[str, float]:
        self.log.append(f"train {step}")
        self.on_train(step)
        self.trained[step] = [one for group in groups for one in group]
        self.version = step
        self.log.append(f"trained {step}")
        return {"train/loss": 0.5, "train/updates": 1.0}

    def evaluate(self, step: int, _: Sequence[Question]) -> float:
        assert self.drawing == 0, "a gate samples while another draw is in flight"
        self.log.append(f"gate {step}")
        self.bring()
        return 0.5

    def loop(
        self,
        staleness: int,
        *,
        steps: int = 6,
        journal: Journal | None = None,
        state: LoopState | None = None,
        observer: LoopObserver | None = None,
        **settings: Any,
    ) -> RLLoop:
        self.version = self.version if state is None else state.version
        config = RLRunConfig(
            **{
                "base": "embedded:qwen3-tiny",
                "group_k": 2,
                "tasks_per_step": 3,
                "max_steps": steps,
                "corpus_min": 10,
                "heldout_every": 3,
                "rollout_backend": "vllm",
                "force_headroom": True,
                "guard": {"collapse": False},
                "warnings": {"enabled": False},
                "buffer": {"max_staleness": staleness},
                "objective": {"sampler_correction": "tis", "zero_signal": "filter"},
                **settings,
            }
        )
        return RLLoop(
            config,
            RewardAdapter(load_verifier("exact")),
            Bench("forty", QUESTIONS),
            sampler=self,
            trainer=self.train,
            heldout_eval=self.evaluate,
            journal=journal,
            state=state,
            observer=observer,
        )


class Kept(LoopObserver):
    """Keeps what steps measured, and each checkpoint as JSON has it."""

    def __init__(self) -> None:
        self.states: dict[int, str] = {}
        self.reports: list[StepReport] = []

    def stepped(self, report: StepReport, state: LoopState) -> dict[str, float]:
        self.reports.append(report)
        return dict(super().stepped(report, state))

    def checkpoint(self, state: LoopState, **_: bool) -> bool:
        self.states[state.step] = json.dumps(state.as_dict())
        return True


def ages(served: Served) -> dict[int, set[int]]:
    """By step, how many versions its rollouts lay behind the trainer's."""
    version, found = 0, {}
    for step, rollouts in sorted(served.trained.items()):
        found[step] = {version - one.version for one in rollouts}
        version = step
    return found


@given(
    staleness=st.integers(0, 4),
    steps=st.integers(1, 14),
    every=st.integers(1, 10),
    ties=st.sets(st.integers(1, 14)),
    refill=st.booleans(),
)
@examples(max_examples=40, deadline=None)
def test_no_rollout_is_older_than_allowed_and_each_says_who_drew_it(
    staleness: int, steps: int, every: int, ties: set[int], refill: bool
) -> None:
    """Whatever ties, whenever gates come: also where weights stand still for a while."""
    served = Served(tuple(ties))
    zero_signal = "refill" if refill else "filter"

    served.loop(
        staleness,
        steps=steps,
        heldout_every=every,
        objective={"sampler_correction": "tis", "zero_signal": zero_signal},
    ).run()

    assert all(max(found) <= staleness for found in ages(served).values())
    trained = [one for rollouts in served.trained.values() for one in rollouts]
    assert all(one.completion_ids[0] == one.version for one in trained)
    assert set(served.trained) == set(range(1, steps + 1)) - ties


def test_the_server_draws_the_next_step_while_this_one_trains() -> None:
    """Told by events: each training waits until the next draw began, and the other way round."""
    steps, began, training = 5, {}, {}
    served = Served()
    for number in range(1, steps + 1):
        began[number], training[number] = threading.Event(), threading.Event()

    def on_draw(number: int) -> None:
        began[number].set()
        if number > 1:  # the first one has no step to overlap with
            assert training[number - 1].wait(WAIT_S)

    def on_train(step: int) -> None:
        training[step].set()
        if step < steps:
            assert began[step + 1].wait(WAIT_S)

    served.on_draw, served.on_train = on_draw, on_train

    served.loop(1, steps=steps, heldout_every=10).run()

    assert ages(served) == {step: {0 if step == 1 else 1} for step in range(1, steps + 1)}
    assert len(served.asked) == steps


def test_more_than_so_many_batches_never_wait() -> None:
    """A fast server waits for the trainer: when step t trains, steps to t + 2 are drawn at most."""
    served = Served()

    def on_train(step: int) -> None:
        drawn = len(served.asked)
        assert step <= drawn <= step + 2

    served.on_train = on_train

    served.loop(2, steps=8, heldout_every=10).run()

    assert len(served.asked) == 8


def test_rows_are_those_of_a_synchronous_run() -> None:
    """The same prompts in the same order under the same numbers, three a step."""
    ahead, waiting = Served(), Served()

    ahead.loop(2).run()
    waiting.loop(0).run()

    assert ahead.asked == waiting.asked
    drawn = [
        {
            step: [(r.question_id, r.completion_ids[1]) for r in rows]
            for step, rows in s.trained.items()
        }
        for s in (ahead, waiting)
    ]
    assert drawn[0] == drawn[1]


def test_a_synchronous_run_starts_no_thread() -> None:
    """The default: the server waits for the weights of each step."""
    served, threads = Served(), set()
    served.on_draw = lambda _: threads.add(threading.current_thread())

    served.loop(0).run()

    assert threads == {threading.main_thread()}
    assert set().union(*ages(served).values()) == {0}


def test_a_step_says_how_old_its_rollouts_were_and_what_became_of_them() -> None:
    """Fates by step, staleness and the seconds of the draw among its series."""
    served, kept = Served(ties=(3,)), Kept()

    served.loop(1, observer=kept).run()

    assert [report.fates["used"] for report in kept.reports] == [3, 3, 0, 3, 3, 3]
    assert [report.fates["filtered"] for report in kept.reports] == [0, 0, 3, 0, 0, 0]
    staleness = [report.metrics.get("rollout/staleness") for report in kept.reports]
    # Step 3 left the weights alone: step 4 is of the newest, and nothing new for step 5 was there.
    assert staleness == [None, 1, 1, 0, None, 1]
    assert all("time/ahead_s" in kept.reports[i].metrics for i in (1, 2, 3, 5))


@pytest.mark.parametrize("staleness", [1, 2])
@pytest.mark.parametrize("killed", [2, 3, 4])
def test_a_killed_run_goes_on_with_the_same_groups(
    staleness: int, killed: int, tmp_path: Path
) -> None:
    """Killed while a step trains: its rollouts stand in the journal, and so do those that were
    drawn ahead; nothing is drawn twice."""
    whole = Served()
    whole.loop(staleness, journal=Journal(tmp_path / "whole"), heldout_every=10).run()
    journal, kept, broken = Journal(tmp_path / "broken"), Kept(), Served()
    beyond = killed + 1

    def on_train(step: int) -> None:
        if step == killed:
            wait_for(lambda: len(broken.asked) >= beyond and not broken.drawing)
            raise KeyboardInterrupt

    broken.on_train = on_train
    with pytest.raises(KeyboardInterrupt):
        broken.loop(staleness, journal=journal, observer=kept, heldout_every=10).run()
    drawn = len(broken.asked)
    again = Served(trained=broken.trained)
    state = LoopState.from_dict(json.loads(kept.states[killed - 1]))
    again.loop(staleness, journal=journal, state=state, heldout_every=10).run()

    assert broken.asked + again.asked == whole.asked
    if staleness == 1:
        assert again.trained == whole.trained
    assert max(set().union(*ages(again).values())) <= staleness
    assert drawn >= beyond
    assert not list(journal.folder.glob("ahead-*"))


def wait_for(done: Callable[[], bool]) -> None:
    """Only for what a thread is about to do."""
    changed = threading.Event()
    for _ in range(2000):
        if done():
            return
        changed.wait(0.01)
    raise AssertionError("it never came")


def test_what_older_weights_drew_and_cannot_be_believed_is_drawn_anew(tmp_path: Path) -> None:
    """Of an attempt before this one, whose weights are gone."""
    journal, kept, broken = Journal(tmp_path), Kept(), Served()

    def on_train(step: int) -> None:
        if step == 3:
            wait_for(lambda: len(broken.asked) >= 4 and not broken.drawing)
            raise KeyboardInterrupt

    broken.on_train = on_train
    with pytest.raises(KeyboardInterrupt):
        broken.loop(1, journal=journal, observer=kept, heldout_every=10).run()
    again = Served()

    def contradict(groups: Groups) -> None:
        if groups[0][0].completion_ids[1] == 3:  # of step 4
            raise SamplerContradicted("too far")

    again.on_verify = contradict
    state = LoopState.from_dict(json.loads(kept.states[2]))
    again.loop(1, steps=4, journal=journal, state=state, heldout_every=10).run()

    assert again.asked == [broken.asked[3]]
    assert ages(again)[4] == {0}


def test_a_fault_of_the_server_ends_the_run_by_its_own_name() -> None:
    """Raised in the thread, and said where its batch is waited for; the step before it stands."""
    served, kept = Served(), Kept()

    def on_draw(number: int) -> None:
        if number == 3:
            raise ConnectionResetError("the server is gone")

    served.on_draw = on_draw

    with pytest.raises(ConnectionResetError, match="the server is gone"):
        served.loop(1, observer=kept, heldout_every=10).run()

    assert sorted(served.trained) == [1, 2]
    assert max(kept.states) == 2
    assert threading.active_count() == 1 or "ahead" not in {t.name for t in threading.enumerate()}


def test_a_batch_that_the_trainer_contradicts_is_kept_and_not_trained_on(tmp_path: Path) -> None:
    """Set aside, so that whoever tries again draws it anew; the steps before it are saved, also
    where none of them was due."""

    class Seldom(Kept):
        def checkpoint(self, state: LoopState, **asked: bool) -> bool:
            return (state.step == 0 or asked["stopping"]) and super().checkpoint(state, **asked)

    served, journal, kept = Served(), Journal(tmp_path), Seldom()

    def contradict(groups: Groups) -> None:
        if groups[0][0].completion_ids[1] == 2:  # of step 3
            raise SamplerContradicted("another model")

    served.on_verify = contradict

    with pytest.raises(SamplerContradicted, match="another model"):
        served.loop(1, journal=journal, observer=kept, heldout_every=10).run()

    assert sorted(served.trained) == [1, 2]
    assert sorted(kept.states) == [0, 2]
    assert sorted(path.name for path in tmp_path.iterdir() if "3" in path.name) == [
        "refused-ahead-000003.jsonl"
    ]


def test_an_abort_is_heard_while_the_server_draws() -> None:
    """Within one look at it, and nobody goes on drawing."""
    served, asked = Served(), threading.Event()

    def on_draw(number: int) -> None:
        if number == 3:
            asked.set()
            while True:  # a server that takes its time
                check_abort(working=False)

    served.on_draw = on_draw

    with rl_hooks(should_abort=asked.is_set), pytest.raises(Aborted):
        served.loop(1, heldout_every=10).run()

    assert len(served.asked) == 3
    assert "ahead" not in {thread.name for thread in threading.enumerate()}


def test_a_fault_of_the_trainer_ends_the_draw_too() -> None:
    """Nobody asks for an abort then; the thread is not left behind."""
    served, drawing = Served(), threading.Event()

    def on_draw(number: int) -> None:
        if number == 2:
            drawing.set()
            while True:
                check_abort(working=False)

    def on_train(_: int) -> None:
        assert drawing.wait(WAIT_S)
        raise FloatingPointError

    served.on_draw, served.on_train = on_draw, on_train

    with pytest.raises(FloatingPointError):
        served.loop(1, heldout_every=10).run()

    assert "ahead" not in {thread.name for thread in threading.enumerate()}


def test_the_recorded_server_is_one_that_may_draw_ahead() -> None:
    """Else every test above would test the synchronous way."""
    assert isinstance(Served(), AheadSampler)
