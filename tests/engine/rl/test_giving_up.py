"""Runs that end before their last step: no headroom, no signal, collapse; and what they leave."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.__main__ import main
from engine.contract.events import Event
from engine.contract.kinds.rl_run import RLRunConfig
from engine.contract.run_dir import ExitCode, RunDir, complete_checkpoints
from engine.data.rows import Bench, Question
from engine.evaluate.gate import Gate
from engine.rewards.adapter import RewardAdapter, load_verifier
from engine.rl.guards.guard import CollapseGuard
from engine.rl.guards.headroom import Baseline, check_headroom
from engine.rl.loop import RLLoop
from engine.rl.rl_run import run as rl_run
from engine.run.session import Attempt
from engine.run.stop import Aborted, Collapsed, Declined, rl_hooks
from engine.sampling.base import Groups, Rollout

NewAttempt = Callable[..., RunDir]
OpenNewest = Callable[[RunDir], Attempt]
Events = Callable[..., list[Event]]

DEFAULTS = RLRunConfig(base="embedded:qwen3-tiny")
EARLY_KL = {"settle": 2, "patience": 1, "kl_factor": 1.5, "kl_least": 1e-4}
"""Takes the ordinary growth of the KL for a spike: a collapse whenever a run learns."""


@pytest.mark.requirement("RL-14")
@pytest.mark.parametrize(
    ("baseline", "cause"),
    [(1.0, "NO_HEADROOM"), (0.85, "NO_HEADROOM"), (0.15, "NO_SIGNAL"), (0.0, "NO_SIGNAL")],
)
def test_a_baseline_at_the_limits_is_declined_with_its_cause(baseline: float, cause: str) -> None:
    """The limits themselves count; the message names the value, the setting and the way out."""
    with pytest.raises(Declined, match="force_headroom") as caught:
        check_headroom(Baseline(baseline), DEFAULTS)

    assert caught.value.cause == cause
    assert f"{baseline:.1%}" in str(caught.value)


@pytest.mark.parametrize("baseline", [0.151, 0.5, 0.849])
def test_a_baseline_between_the_limits_may_train(baseline: float) -> None:
    """Something to learn, and something to learn from."""
    check_headroom(Baseline(baseline), DEFAULTS)


@pytest.mark.requirement("RL-14")
def test_completions_that_were_cut_off_are_the_first_thing_to_mend() -> None:
    """Easier rows would not help a policy that is not let finish; a few cut off say nothing."""
    config = RLRunConfig(base="embedded:qwen3-tiny", max_new_tokens=16)

    with pytest.raises(Declined) as mostly:
        check_headroom(Baseline(0.02, truncated=0.98), config)
    with pytest.raises(Declined) as rarely:
        check_headroom(Baseline(0.02, truncated=0.1), config)

    assert mostly.value.cause == rarely.value.cause == "NO_SIGNAL"
    assert "98.0% of its completions were cut off at max_new_tokens=16; raise" in str(mostly.value)
    assert "max_new_tokens" not in str(rarely.value)


class Seams:
    """A policy whose held-out score is known, and that must not be trained."""

    def __init__(self, baseline: float, train: bool) -> None:
        self.baseline = baseline
        self.train = train
        self.updates = 0

    def sample(self, tasks: Any, k: int) -> Groups:
        return [
            [Rollout(t.id, i, (1,), (2,), (-1.0,), str(i), False, 0) for i in range(k)]
            for t in tasks
        ]

    def update(self, *_: Any) -> dict[str, float]:
        self.updates += 1
        return {}

    def loop(self, **settings: Any) -> RLLoop:
        questions = [Question(f"q{i}", f"{i}=", "1") for i in range(120)]
        return RLLoop(
            RLRunConfig(base="embedded:qwen3-tiny", max_steps=2, **settings),
            RewardAdapter(load_verifier("exact")),
            Bench("b", questions),
            sampler=self.sample,
            trainer=self.update,
            heldout_eval=lambda _step, _tasks: self.baseline,
        )


@pytest.mark.requirement("RL-14")
@pytest.mark.parametrize("baseline", [0.97, 0.02])
def test_the_loop_ends_before_its_first_step_unless_forced(baseline: float) -> None:
    """The baseline is gated, nothing is sampled, nothing trained; `force_headroom` trains."""
    seams = Seams(baseline, train=False)

    with pytest.raises(Declined):
        seams.loop().run()
    assert seams.updates == 0

    loop = seams.loop(force_headroom=True)
    loop.run()
    assert (seams.updates, loop.state.step) == (2, 2)


@pytest.mark.requirement("RL-14")
def test_a_declined_run_says_why_and_exits_76(
    recipe: dict[str, Any], new_attempt: NewAttempt, events: Events
) -> None:
    """The baseline's gate stands, no step does; the cause is in the result."""
    recipe["force_headroom"] = False
    run = new_attempt(recipe)

    code = main(["run", str(run.root)])

    assert code == ExitCode.DECLINED
    [finished] = events(run, "finished")
    assert finished["status"] == "declined"
    assert finished["result"]["cause"] == "NO_SIGNAL"
    assert "of its completions were cut off at max_new_tokens=1;" in finished["result"]["error"]
    assert finished["result"]["heldout_scores"].keys() == {"0"}
    assert finished["result"]["steps"] == 0
    assert not run.report.exists()


def _saying(text: str, answer: str, verifier: str, *, truncated: bool = False) -> RLLoop:
    """A loop whose policy always says the same."""
    questions = [Question(f"q{i}", f"{i}=", answer) for i in range(120)]

    def sample(tasks: Any, k: int) -> Groups:
        return [
            [Rollout(t.id, i, (1,), (2,), (-1.0,), text, truncated, 0) for i in range(k)]
            for t in tasks
        ]

    reward = RewardAdapter(load_verifier(verifier))
    return RLLoop(
        RLRunConfig(base="org/model", max_steps=20, verifier=verifier, guard={"tied_steps": 2}),
        reward,
        Bench("b", questions),
        sampler=sample,
        trainer=lambda *_: {},
        heldout_eval=Gate(sample, reward, 0.2),
    )


@pytest.mark.requirement("EX-14")
@pytest.mark.parametrize(
    ("verifier", "text", "answer", "words"),
    [
        (
            "gsm8k",
            "So it is \\boxed{18}",
            "18",
            ["12 of 12 completions are unreadable by gsm8k", "boxed{18}", "math reads 12 of 12"],
        ),
        ("minerva_math", "The answer is 18.", "18", ["unreadable by minerva_math", "12 right"]),
        ("exact", "I think it is #### 18", "18", ["set verifier:", "12 right"]),
        ("exact", "  ", "18", ["12 of 12 completions are unreadable by exact", "they are empty"]),
    ],
)
def test_answers_that_are_not_read_are_no_policy_that_knows_nothing(
    verifier: str, text: str, answer: str, words: list[str]
) -> None:
    """How many, one of them, and which verifier of ours would read them; easier rows would not."""
    with pytest.raises(Declined) as caught:
        _saying(text, answer, verifier).run()

    assert caught.value.cause == "NO_SIGNAL"
    for word in words:
        assert word in str(caught.value)


def test_a_policy_that_is_read_and_wrong_is_told_to_take_easier_rows() -> None:
    """Nothing else would help."""
    with pytest.raises(Declined) as caught:
        _saying("The answer is 17.", "18", "gsm8k").run()

    assert "choose easier rows" in str(caught.value)
    assert "unreadable" not in str(caught.value)


def test_a_run_in_which_all_groups_tie_says_what_was_not_read() -> None:
    """Forced past the baseline it ends for the same reason a few steps later."""
    loop = _saying("no idea", "18", "gsm8k", truncated=True)
    loop.config = loop.config.model_copy(update={"force_headroom": True})

    with pytest.raises(Collapsed) as caught:
        loop.run()

    assert caught.value.cause == "NO_SIGNAL"
    assert "32 of 32 were cut off" in str(caught.value)


def test_a_verifier_that_breaks_is_not_taken_for_a_policy_that_knows_nothing(
    recipe: dict[str, Any], new_attempt: NewAttempt, open_newest: OpenNewest, tmp_path: Path
) -> None:
    """Easier rows would not help: the column of answers is not what the verifier reads."""
    path = tmp_path / "rows.jsonl"
    rows = [{"prompt": f"{i}=", "answer": {"schema": {"tpye": "a"}}} for i in range(120)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    recipe |= {"data": {"source": str(path)}, "verifier": "json_schema", "force_headroom": False}
    run = new_attempt(recipe)

    with pytest.raises(Declined, match="force_headroom") as caught:
        rl_run(open_newest(run))

    assert caught.value.cause == "VERIFIER_FAILED"
    said = str(caught.value)
    assert re.search(r"the verifier broke on (\d+) of \1 held-out rows", said)
    assert "ExpectedError: " in said
    [alert] = caught.value.result["alerts"]
    assert (alert["code"], alert["step"]) == ("VERIFIER_FAILED", 0)


@pytest.mark.requirement("EX-14")
def test_a_corpus_nobody_can_solve_ends_as_no_signal_after_a_few_steps(
    recipe: dict[str, Any], new_attempt: NewAttempt, open_newest: OpenNewest, tmp_path: Path
) -> None:
    """An answer longer than any completion: every group ties, in every step."""
    path = tmp_path / "impossible.jsonl"
    rows = [{"prompt": f"{i}=", "answer": "777"} for i in range(120)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    recipe |= {"data": {"source": str(path)}, "max_steps": 50, "guard": {"tied_steps": 3}}

    with pytest.raises(Collapsed, match="3 steps in a row; choose rows") as caught:
        rl_run(open_newest(new_attempt(recipe)))

    assert caught.value.cause == "NO_SIGNAL"
    assert caught.value.result["steps"] == 3


@pytest.mark.requirement("EX-14")
def test_a_collapsed_run_stops_at_a_checkpoint_with_a_diagnosis_and_completions_that_show_it(
    recipe: dict[str, Any], new_attempt: NewAttempt, events: Events
) -> None:
    """Exit 76 and COLLAPSED; what was learnt before is still judged and reported."""
    recipe |= {"max_steps": 40, "guard": EARLY_KL, "save_every": 100, "heldout_every": 10}
    run = new_attempt(recipe)

    code = main(["run", str(run.root)])

    assert code == ExitCode.DECLINED
    [finished] = events(run, "finished")
    result = finished["result"]
    assert result["cause"] == "COLLAPSED"
    diagnosis = result["diagnosis"]
    assert diagnosis["rule"] == "KL spike"
    assert diagnosis["value"] > diagnosis["limit"]
    assert diagnosis["step"] == result["steps"] < 40
    assert diagnosis["remedy"] in result["error"]
    assert len(diagnosis["samples"]) == 4
    assert {"prompt", "completion", "reward", "reason"} == set(diagnosis["samples"][0])
    assert complete_checkpoints(run)[-1][0] == diagnosis["step"]
    assert json.loads(run.report.read_bytes())["diagnosis"] == diagnosis
    assert result["verdict"] in {"no gain proven", "pool only"}
    assert "COLLAPSED" in {e["code"] for e in events(run, "note")}


def test_a_collapsed_run_that_is_started_again_collapses_again_and_trains_no_more(
    recipe: dict[str, Any], new_attempt: NewAttempt, events: Events
) -> None:
    """Killed between its checkpoint and its report, it goes on with the report."""
    recipe |= {"max_steps": 40, "guard": EARLY_KL}
    run = new_attempt(recipe)
    main(["run", str(run.root)])
    run.report.unlink()
    steps = len(events(run, "metric"))

    new_attempt(recipe)
    code = main(["run", str(run.root)])

    assert code == ExitCode.DECLINED
    assert len(events(run, "metric")) == steps
    first, second = events(run, "finished")
    assert second["result"]["diagnosis"] == first["result"]["diagnosis"]
    assert run.report.exists()


@pytest.mark.requirement("EX-14")
def test_a_rollback_goes_on_from_the_best_gate_with_half_the_learning_rate(
    recipe: dict[str, Any], new_attempt: NewAttempt, open_newest: OpenNewest, events: Events
) -> None:
    """As often as allowed; then the collapse ends the run. Later steps are void."""
    recipe |= {"max_steps": 40, "guard": EARLY_KL | {"rollbacks": 1}, "heldout_every": 2}
    run = new_attempt(recipe)

    with pytest.raises(Collapsed) as caught:
        rl_run(open_newest(run))

    result = caught.value.result
    [rolled] = result["rollbacks"]
    assert rolled["rule"] == "KL spike"
    started = [e["resumed_from"] for e in events(run, "started")]
    assert started == [None, rolled["to"]]
    lr = [
        (e["step"], e["values"]["train/lr"])
        for e in events(run, "metric")
        if "train/lr" in e["values"]
    ]
    # whole from the first step to the collapse, half from the best gate to the second one
    assert {rate for step, rate in lr[: rolled["step"]]} == {3e-3}
    assert {rate for step, rate in lr[rolled["step"] :]} == {1.5e-3}
    assert lr[rolled["step"]][0] == rolled["to"] + 1
    assert [a["code"] for a in result["alerts"]] == ["ROLLED_BACK"]


def test_a_stop_after_a_rollback_reports_the_run_that_went_back(
    recipe: dict[str, Any], new_attempt: NewAttempt, open_newest: OpenNewest, events: Events
) -> None:
    """Its step, its alerts and its rollback; not those of the loop that collapsed."""
    recipe |= {"max_steps": 40, "guard": EARLY_KL | {"rollbacks": 1}, "heldout_every": 2}
    run = new_attempt(recipe)

    def gone_back() -> bool:
        return len(events(run, "started")) == 2

    with pytest.raises(Aborted) as caught, rl_hooks(should_abort=gone_back):
        rl_run(open_newest(run))

    [rolled] = caught.value.result["rollbacks"]
    assert caught.value.result["steps"] == rolled["to"]
    assert caught.value.result["diagnosis"] is None


@pytest.mark.requirement("EX-14")
def test_a_loss_that_is_no_number_ends_the_run_with_the_weights_before_it(
    recipe: dict[str, Any], new_attempt: NewAttempt, open_newest: OpenNewest
) -> None:
    """A KL weight beyond fp32: the very first loss is NaN, and no weight takes it."""
    run = new_attempt(recipe | {"kl_coef": 1e39})

    with pytest.raises(Collapsed, match="not a number") as caught:
        rl_run(open_newest(run))

    assert caught.value.diagnosis.value is None
    assert caught.value.result["steps"] == 0
    assert [step for step, _ in complete_checkpoints(run)] == [0]


@pytest.mark.requirement("EX-14")
def test_steps_whose_every_update_is_left_out_train_nothing_and_end_the_run(
    recipe: dict[str, Any], new_attempt: NewAttempt, open_newest: OpenNewest, events: Events
) -> None:
    """They rank, so they are not called tied; the weights and their version are still step 0's."""
    recipe |= {"kl_coef": 1e39, "max_steps": 20, "optim": {"nonfinite": "skip"}}
    run = new_attempt(recipe | {"guard": {"patience": 3}, "heldout_every": 10})

    with pytest.raises(Collapsed, match="left out as not finite, 3 steps in a row") as caught:
        rl_run(open_newest(run))

    history = caught.value.result["step_history"]
    assert [(step["trained"], step["n_used"] > 0) for step in history] == [(False, True)] * 3
    state = json.loads((run.checkpoint(3) / "loop.json").read_bytes())
    assert (state["step"], state["version"]) == (3, 0)
    codes = [e["code"] for e in events(run, "note")]
    assert codes.count("UPDATE_SKIPPED") == 3
    assert "NO_SIGNAL_STEP" not in codes
    measured = {series for e in events(run, "metric") for series in e["values"]}
    assert "train/updates" in measured
    assert measured.isdisjoint({"train/loss", "train/kl", "train/entropy", "train/grad_norm"})


@pytest.mark.requirement("RL-06")
def test_an_inversion_is_an_alert_in_events_progress_and_result(
    recipe: dict[str, Any], new_attempt: NewAttempt, open_newest: OpenNewest, events: Events
) -> None:
    """Held-out rows want another answer than the training rows: learning is forgetting."""
    recipe |= {"max_steps": 24, "heldout_every": 4, "guard": {"collapse": False}}
    attempt = open_newest(new_attempt(recipe))

    result = _with_heldout_answers_turned(attempt)

    assert result["inversion"]["pool_rise"] > 0.3
    assert result["inversion"]["heldout_fall"] > 0.3
    assert [a["code"] for a in result["alerts"]].count("INVERSION") == 1
    live = [e["alerts"] for e in events(attempt.run, "progress") if "alerts" in e]
    assert live[-1] == result["alerts"]
    assert "INVERSION" in {e["code"] for e in events(attempt.run, "note")}
    assert result["verdict"] in {"pool only", "loss"}
    assert result["published_step"] == 0
    assert attempt.run.selected.resolve() == attempt.run.checkpoint(0)


def _with_heldout_answers_turned(attempt: Attempt) -> dict[str, Any]:
    """Run with held-out rows that are solved by anything but 7."""
    from engine.evaluate import gate  # noqa: PLC0415 - patched for this run

    kept = gate.Gate._score

    def turned(self: Any, *asked: Any) -> Any:
        from dataclasses import replace  # noqa: PLC0415

        return [
            replace(scored, success=scored.rollout.text != "7") for scored in kept(self, *asked)
        ]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gate.Gate, "_score", turned)
        return rl_run(attempt)


@pytest.mark.requirement("EX-14")
def test_a_stuck_step_stops_at_the_step_before_and_goes_on_when_tried_again(
    recipe: dict[str, Any],
    new_attempt: NewAttempt,
    open_newest: OpenNewest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Noticed inside the step, by the poll that hears a stop; the weights are whole."""
    run = new_attempt(recipe)
    # The third step is over its time before it has begun.
    monkeypatch.setattr(
        CollapseGuard, "stuck_after", lambda guard: -1.0 if guard.memory.steps == 2 else None
    )

    with pytest.raises(Collapsed, match="stuck step") as caught:
        rl_run(open_newest(run))

    stopped = caught.value.result["steps"]
    assert stopped == 2
    assert complete_checkpoints(run)[-1][0] == stopped
    assert not run.report.exists()
    monkeypatch.undo()
    new_attempt(recipe)
    result = rl_run(open_newest(run))
    assert (result["steps"], result["diagnosis"]) == (6, None)
