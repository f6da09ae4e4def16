"""The control flow of the loop, on seams small enough for a hand."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

import engine.rl
from engine.contract.events import PHASES
from engine.data.rows import Bench, Question
from engine.data.split import carve
from engine.rewards.adapter import RewardAdapter, load_verifier
from engine.rl import GRPOConfig, RLLoop, RLLoopError
from engine.rl.buffer import JudgedGroup
from engine.rl.observer import LoopObserver
from engine.rl.state import LoopState
from engine.run.stop import Aborted, rl_hooks
from engine.sampling.base import Groups, Rollout
from engine.verdict.trend import pool_of

QUESTIONS = [Question(f"q{i}", f"{i}=", "yes") for i in range(10)]


def answers(*texts: str) -> Callable[[Sequence[Question], int], Groups]:
    """A sampler whose k completions of every task are these texts."""

    def sample(tasks: Sequence[Question], k: int) -> Groups:
        return [
            [
                Rollout(task.id, i, (1,), (2,), (-1.0,), text, False, 0)
                for i, text in enumerate(texts)
            ]
            for task in tasks
        ]

    return sample


@dataclass
class Seams:
    """A policy whose held-out score by step is written down in advance."""

    curve: Sequence[float]
    sampler: Any = field(default_factory=lambda: answers("yes", "no"))
    updates: list[int] = field(default_factory=list)
    gates: list[tuple[int, tuple[str, ...]]] = field(default_factory=list)

    def train(self, *seam: Any) -> dict[str, float]:
        _rollouts, _advantages, step = seam
        self.updates.append(step)
        return {"train/loss": 0.5}

    def evaluate(self, step: int, tasks: Sequence[Question]) -> float:
        self.gates.append((step, tuple(task.id for task in tasks)))
        return self.curve[step]

    def loop(self, **settings: Any) -> RLLoop:
        extra = {k: settings.pop(k) for k in ("observer", "state", "should_abort") if k in settings}
        config = GRPOConfig(
            **{
                "base": "embedded:qwen3-tiny",
                "group_k": 2,
                "tasks_per_step": 3,
                "max_steps": len(self.curve) - 1,
                "corpus_min": 10,
                "heldout_every": 1,
                **settings,
            }
        )
        return RLLoop(
            config,
            RewardAdapter(load_verifier("exact")),
            Bench("ten", QUESTIONS),
            sampler=self.sampler,
            trainer=self.train,
            heldout_eval=self.evaluate,
            **extra,
        )


@pytest.mark.requirement("RL-02")
def test_the_loop_and_its_seams_are_torch_free() -> None:
    """Orchestration can be imported, and tested, on a machine without the engine extra."""
    script = (
        "import sys; sys.modules['torch'] = None; sys.modules['numpy'] = None\n"
        "import engine.rl, engine.rl.loop, engine.data.split, engine.evaluate.gate\n"
        "import engine.rl.advantages, engine.rewards.adapter, engine.run.stop\n"
        "import engine.run.lineage, engine.contract.intervals\n"
        "assert engine.rl.RLLoop and engine.rl.GRPOConfig and engine.rl.RLLoopError\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr


@pytest.mark.requirement("RL-02")
def test_two_loops_of_one_seed_do_the_same() -> None:
    """Split, draws and gates are determined by config and seams alone."""
    runs = []
    for _ in range(2):
        seams = Seams([0.1, 0.4, 0.2])
        loop = seams.loop()
        card = loop.run()
        runs.append((seams.gates, seams.updates, card.as_dict(), dict(loop.pool_scores)))

    assert runs[0] == runs[1]


@pytest.mark.requirement("RL-02")
def test_any_object_with_questions_is_a_bench() -> None:
    """The loop asks a bench for nothing else."""

    class Exam:
        questions = QUESTIONS

    seams = Seams([0.0, 0.5])
    loop = RLLoop(
        GRPOConfig(base="embedded:qwen3-tiny", corpus_min=5, max_steps=1),
        RewardAdapter(load_verifier("exact")),
        Exam(),
        sampler=seams.sampler,
        trainer=seams.train,
        heldout_eval=seams.evaluate,
    )

    loop.run()

    assert loop.heldout_scores == {0: 0.0, 1: 0.5}


@pytest.mark.requirement("RL-03")
@pytest.mark.parametrize(
    ("max_steps", "every", "expected"),
    [(5, 2, [0, 2, 4, 5]), (4, 2, [0, 2, 4]), (1, 10, [0, 1]), (3, 1, [0, 1, 2, 3])],
)
def test_gates_stand_at_zero_at_the_rhythm_and_at_the_end(
    max_steps: int, every: int, expected: list[int]
) -> None:
    """The baseline comes before step 0's first update; the last step is never ungated."""
    seams = Seams([0.5] * (max_steps + 1))

    seams.loop(heldout_every=every).run()

    assert [step for step, _ in seams.gates] == expected


@pytest.mark.requirement("RL-03")
@pytest.mark.parametrize(
    ("curve", "selected"),
    [
        ([0.2, 0.5, 0.4], 1),
        ([0.5, 0.5, 0.5], 0),  # equal is no better: the earliest stays
        ([0.9, 0.1, 0.2], 0),
        ([0.1, 0.2, 0.3], 2),
    ],
)
def test_selection_follows_heldout_and_never_the_pool(curve: list[float], selected: int) -> None:
    """The pool score is the same whatever is selected: here it is always perfect."""
    loop = Seams(curve, sampler=answers("yes", "yes")).loop()

    loop.run()

    assert loop.selected_step == selected
    assert loop.selected_heldout_score == curve[selected]
    assert set(loop.pool_scores.values()) == {1.0}
    assert loop.summary()["selected_on"] == "heldout/select"


@pytest.mark.requirement("RL-03")
def test_gates_see_the_select_rows_and_no_other() -> None:
    """`report` rows stay unseen through the whole loop, training rows never judge it."""
    seams = Seams([0.1, 0.2, 0.3])
    split = carve(QUESTIONS, heldout_frac=0.4, select_frac=0.5, seed=0)

    seams.loop(heldout_frac=0.4).run()

    assert {ids for _, ids in seams.gates} == {tuple(q.id for q in split.select)}


@pytest.mark.requirement("RL-05")
def test_a_corpus_under_its_floor_is_refused_before_anything_runs() -> None:
    """Small corpora collapse onto one answer."""
    seams = Seams([0.1, 0.2])

    with pytest.raises(RLLoopError, match="has 10 rows, under the floor corpus_min=100"):
        seams.loop(corpus_min=100).run()

    assert seams.gates == []


@pytest.mark.requirement("RL-05")
@pytest.mark.parametrize("name", ["sampler", "trainer", "heldout_eval"])
def test_a_missing_seam_is_refused_by_name(name: str) -> None:
    """The error says which seam, and where to get one."""
    loop = Seams([0.1, 0.2]).loop()
    setattr(loop, name, None)

    with pytest.raises(RLLoopError, match=f"{name}: is missing; .*gpu_seams"):
        loop.run()


@pytest.mark.requirement("RL-01")
@pytest.mark.requirement("RL-05")
@pytest.mark.parametrize(
    "wrong",
    [{"lr": -1}, {"temp": 0}, {"group_k": 1}, {"heldout_frac": 1}, {"lr": float("nan")}, {"x": 1}],
)
def test_the_config_is_validated_on_construction(wrong: dict[str, Any]) -> None:
    """A knob out of range never reaches the loop."""
    with pytest.raises(RLLoopError, match=next(iter(wrong))):
        GRPOConfig(base="embedded:qwen3-tiny", **wrong)


@pytest.mark.requirement("RL-16")
@pytest.mark.parametrize("texts", [("yes", "yes"), ("no", "no")])
def test_a_step_whose_groups_all_tie_trains_nothing_and_says_so(texts: tuple[str, str]) -> None:
    """No ranking, no update; the loop goes on to its end."""
    seams = Seams([0.1, 0.1, 0.1], sampler=answers(*texts))

    loop = seams.loop()
    loop.run()

    assert seams.updates == []
    assert [entry["trained"] for entry in loop.state.history] == [False, False]
    assert [entry["n_used"] for entry in loop.state.history] == [0, 0]
    assert loop.state.step == 2


@pytest.mark.requirement("EX-09")
def test_a_partial_batch_at_an_epochs_end_is_trained() -> None:
    """Eight training rows in steps of three are 3 + 3 + 2, then the next epoch begins."""
    sizes: list[int] = []

    class Sizes(LoopObserver):
        def sampled(self, step: int, groups: Sequence[JudgedGroup], *, recalled: bool) -> None:  # noqa: ARG002 - the observer's signature
            sizes.append(len(groups))

    seams = Seams([0.0] * 7)

    seams.loop(observer=Sizes()).run()

    assert sizes == [3, 3, 2, 3, 3, 2]
    assert seams.updates == [1, 2, 3, 4, 5, 6]


def test_patience_stops_after_so_many_gates_without_a_new_best() -> None:
    """Off by default; with 2, the second gate behind the best one is the last."""
    seams = Seams([0.1, 0.5, 0.4, 0.4, 0.9])

    loop = seams.loop(heldout_patience=2)
    loop.run()

    assert loop.state.step == 3
    assert loop.selected_step == 1


@pytest.mark.requirement("RL-12")
def test_the_card_and_the_summary_tell_the_run() -> None:
    """Baseline, steps and gates by name; the chain leads from the baseline to the best."""
    loop = Seams([0.1, 0.6, 0.3]).loop()

    card = loop.run()

    assert [t.name for t in card.trials] == [
        "baseline",
        "rl-001",
        "heldout-001",
        "rl-002",
        "heldout-002",
    ]
    assert card.current_best == "heldout-001"
    assert card.chain_to_best == ["baseline", "rl-001", "heldout-001"]
    summary = loop.summary()
    assert summary["selected_step"] == 1
    assert summary["selected_heldout_score"] == 0.6
    assert summary["pool_scores"] == {"1": 0.5, "2": 0.5}
    assert len(summary["step_history"]) == 2


@pytest.mark.requirement("RL-11")
def test_explicit_hooks_win_over_the_ambient_ones() -> None:
    """A loop that was given its own hook does not ask the surrounding block's."""
    seams = Seams([0.1, 0.2, 0.3])
    loop = seams.loop(should_abort=lambda: False)

    with rl_hooks(should_abort=lambda: True):
        loop.run()

    assert loop.state.step == 2


@pytest.mark.requirement("RL-11")
def test_ambient_hooks_hear_progress_and_can_stop_the_loop() -> None:
    """An unmodified loop reports and obeys inside `rl_hooks`."""
    heard: list[Any] = []
    seams = Seams([0.1, 0.2, 0.3, 0.4])
    loop = seams.loop()

    with (
        pytest.raises(Aborted),
        rl_hooks(heard.append, lambda: any("trained" in f for f in heard)),
    ):
        loop.run()

    assert loop.state.step == 1
    assert loop.summary()["aborted"] is True
    assert loop.lineage().trials[-1].name == "aborted-001"
    steps = [fields for fields in heard if "trained" in fields]
    assert steps[0]["pool_score"] == 0.5
    assert steps[0]["max_steps"] == 3
    assert {"eta_s", "keep_rate", "n_used", "adv_spread", "trained"} <= set(steps[0])
    assert {"last_heldout": 0.1} in heard


def test_an_abort_inside_a_phase_keeps_the_state_of_the_last_whole_step() -> None:
    """The observer is asked for a checkpoint of exactly that state, if none stands yet."""
    kept: list[tuple[int, bool]] = []

    class Keeper(LoopObserver):
        def checkpoint(self, state: LoopState, *, gate: bool, stopping: bool) -> bool:
            kept.append((state.step, stopping))
            return gate or stopping or state.step == 0

    seams = Seams([0.1] * 9)
    seams.sampler = _stopping_at(3)

    with pytest.raises(Aborted):
        seams.loop(heldout_every=5, observer=Keeper()).run()

    assert kept == [(0, False), (1, False), (2, False), (2, True)]


def _stopping_at(call: int) -> Any:
    calls = 0

    def sample(tasks: Sequence[Question], k: int) -> Groups:
        nonlocal calls
        calls += 1
        if calls == call:
            raise Aborted
        return answers("yes", "no")(tasks, k)

    return sample


def test_the_rollouts_behind_a_pool_score_are_remembered_by_prompt() -> None:
    """Their sum is the score, and a resumed loop still knows them."""
    loop = Seams([0.1, 0.2, 0.3], sampler=answers("yes", "no")).loop()
    loop.run()
    kept = LoopState.from_dict(json.loads(json.dumps(loop.state.as_dict())))
    pool = pool_of(kept.pool_scores, kept.pool_groups)

    assert kept.pool_groups == loop.state.pool_groups
    for step, score in loop.pool_scores.items():
        assert sum(t.solved for t in pool[step]) / sum(t.judged for t in pool[step]) == score
        assert {t.judged for t in pool[step]} == {loop.config.group_k}
    assert all("groups" not in entry for entry in loop.state.history)


def test_a_resumed_loop_takes_up_a_gate_that_was_due() -> None:
    """Stopped inside the gate of step 2, it begins with that gate and not with step 3."""
    state = LoopState(step=2, heldout_scores={0: 0.1}, pool_scores={1: 0.5, 2: 0.5})
    state.history = [{"step": 1, "seconds": 1.0}, {"step": 2, "seconds": 1.0}]
    seams = Seams([0.1, 0.2, 0.3, 0.4, 0.5])

    seams.loop(heldout_every=2, state=LoopState.from_dict(state.as_dict())).run()

    assert [step for step, _ in seams.gates] == [2, 4]
    assert seams.updates == [3, 4]


def test_phases_are_those_of_the_contract() -> None:
    """Pages know the names; an unknown one would show as nothing."""
    names: set[str] = set()

    class Names(LoopObserver):
        def phase(self, name: str, step: int) -> None:  # noqa: ARG002 - the observer's signature
            names.add(name)

    Seams([0.1, 0.2]).loop(observer=Names()).run()

    assert names == {"sampling", "training", "heldout-gate"}
    assert names <= set(PHASES)


# --- as the page of the seed has it ---


@dataclass
class Item:
    """A row of somebody's own bench."""

    question: str
    expected: str
    level: int = 1


@pytest.mark.requirement("RL-02")
@pytest.mark.parametrize(
    "rows",
    [
        [{"id": f"q{i}", "prompt": f"{i}=", "answer": "yes", "level": 3} for i in range(10)],
        [Item(f"{i}=", "yes", 3) for i in range(10)],
        [type("Row", (), {})() for _ in range(10)],
    ],
    ids=["dicts", "dataclasses", "objects"],
)
def test_a_bench_may_hold_dicts_or_objects_and_a_verifier_may_return_a_number(
    rows: list[Any],
) -> None:
    """The seams get the rows by their own names too."""
    for i, row in enumerate(rows):
        if not isinstance(row, dict | Item):
            row.problem, row.gold, row.level = f"{i}=", "yes", 3

    class Exam:
        questions = rows

    levels: list[Any] = []

    def sample(tasks: Sequence[Any], k: int) -> Groups:
        levels.extend(task.level for task in tasks)
        levels.extend(task["level"] for task in tasks)
        return answers("yes", "no")(tasks, k)

    seams = Seams([0.0, 0.5])
    loop = RLLoop(
        GRPOConfig(base="org/model", corpus_min=5, max_steps=1, group_k=2),
        RewardAdapter(lambda predicted, expected: float(predicted == expected)),
        Exam(),
        sampler=sample,
        trainer=seams.train,
        heldout_eval=seams.evaluate,
    )

    loop.run()

    assert set(levels) == {3}
    assert loop.pool_scores == {1: 0.5}


def test_a_bench_row_without_an_answer_is_named() -> None:
    """By its place, with the names that would do."""

    class Exam:
        questions = [{"prompt": "1=", "reply": "yes"}] * 10

    seams = Seams([0.0, 0.5])
    loop = seams.loop()
    loop.bench = Exam()

    with pytest.raises(RLLoopError, match=r"row 0 of the bench has no answer.*prompt, reply"):
        loop.run()


@pytest.mark.requirement("RL-02")
def test_the_callback_hears_phases_and_memory_without_a_recorder() -> None:
    """`rl_hooks` of `engine.rl`, around a loop that knows of none."""
    heard: list[Any] = []

    with engine.rl.rl_hooks(progress_cb=heard.append):
        assert engine.rl.current_rl_hooks().progress_cb is not None
        Seams([0.1, 0.2]).loop().run()

    phases = [fields["phase"] for fields in heard if "phase" in fields]
    assert phases == ["heldout-gate", "sampling", "training", "heldout-gate"]
    assert all(fields["mem"]["rss_gb"] > 0 for fields in heard if "phase" in fields)
    assert engine.rl.current_rl_hooks() == (None, None)
