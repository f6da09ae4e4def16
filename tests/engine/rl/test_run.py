"""Whole runs of the real parts on a real tiny model."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer

from engine.contract.errors import NightlaneError, RLLoopError
from engine.contract.events import Event
from engine.contract.run_dir import RunDir, complete_checkpoints
from engine.contract.trace import read_trace
from engine.rl.loop import RLLoop
from engine.rl.rl_run import run as rl_run
from engine.run.session import Attempt
from engine.run.stop import Aborted, rl_hooks
from tests.engine.conftest import add_attempt, opened

NewAttempt = Callable[..., RunDir]
OpenNewest = Callable[[RunDir], Attempt]
Events = Callable[..., list[Event]]


def final_weights(run: RunDir, step: int) -> dict[str, torch.Tensor]:
    return load_file(run.checkpoint(step) / "model" / "model.safetensors")


def run_aborting_at(attempt: Attempt, poll: int) -> bool:
    """Run until the abort hook was asked `poll` times; whether it was aborted."""
    asked = 0

    def should_abort() -> bool:
        nonlocal asked
        asked += 1
        return asked >= poll

    try:
        with rl_hooks(should_abort=should_abort):
            rl_run(attempt)
    except Aborted:
        return True
    return False


@pytest.mark.requirement("RL-03")
def test_a_run_lifts_heldout_and_says_so_in_its_result(
    recipe: dict[str, Any], new_attempt: NewAttempt, open_newest: OpenNewest
) -> None:
    """Training on rewarded completions raises the score on rows the policy never saw."""
    recipe |= {"max_steps": 12, "lr": 1e-2}

    result = rl_run(open_newest(new_attempt(recipe)))

    assert result["verdict"] == "gain"
    assert result["heldout_after"] - result["heldout_before"] == pytest.approx(result["lift"])
    low, high = result["lift_ci95"]
    assert 0 < low <= result["lift"] <= high
    assert result["report_n"] == 30
    assert result["steps"] == 12
    assert result["aborted"] is False


@pytest.mark.requirement("RL-03")
def test_gates_stand_before_step_one_at_the_rhythm_and_after_the_last_step(
    recipe: dict[str, Any], new_attempt: NewAttempt, open_newest: OpenNewest, events: Events
) -> None:
    """A baseline, gates at most heldout_every apart, and one at the end, all at heldout_temp."""
    run = new_attempt(recipe | {"max_steps": 5})

    result = rl_run(open_newest(run))

    gates = [e for e in events(run, "gate") if e["split"] == "select"]
    assert [e["step"] for e in gates] == [0, 2, 4, 5]
    assert {e["temp"] for e in gates} == {0.2}
    assert {e["n"] for e in gates} == {30}
    assert all(e["ci95"][0] <= e["score"] <= e["ci95"][1] for e in gates)
    assert list(result["heldout_scores"]) == ["0", "2", "4", "5"]


def test_learning_rate_zero_proves_no_gain_and_every_paired_difference_is_zero(
    recipe: dict[str, Any], new_attempt: NewAttempt, open_newest: OpenNewest
) -> None:
    """A control run that trains nothing must not show a lift."""
    run = new_attempt(recipe | {"lr": 0})

    result = rl_run(open_newest(run))

    assert result["verdict"] == "no gain proven"
    assert (result["lift"], result["gained"], result["lost"]) == (0.0, 0, 0)
    assert len(set(result["heldout_scores"].values())) == 1
    first, last = final_weights(run, 0), final_weights(run, 6)
    assert all(torch.equal(first[name], last[name]) for name in first)


@pytest.mark.requirement("RL-04")
def test_the_split_is_stored_disjoint_and_frozen(
    recipe: dict[str, Any], new_attempt: NewAttempt, open_newest: OpenNewest
) -> None:
    """Every row is in exactly one of train, select and report, by id, with a hash over all."""
    run = new_attempt(recipe | {"max_steps": 1})

    result = rl_run(open_newest(run))

    split = json.loads(run.split.read_bytes())
    ids = [*split["train"], *split["select"], *split["report"]]
    assert sorted(ids) == sorted(f"q{i}" for i in range(120))
    assert len(split["train"]) == 60
    assert split["hash"] == result["upstream"]["corpus"]["split"]


@pytest.mark.requirement("RL-04")
def test_rollouts_and_warmup_touch_training_rows_only(
    new_attempt: NewAttempt, open_newest: OpenNewest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Held-out rows teach nothing: neither the warm-up nor a rollout ever sees one."""
    from engine.rl import warmup  # noqa: PLC0415 - patched below

    taught: set[str] = set()
    examples_of = warmup.examples_of

    def spy(*told: Any) -> Any:
        examples = examples_of(*told)
        taught.update(example.question_id for example in examples)
        return examples

    monkeypatch.setattr(warmup, "examples_of", spy)
    recipe = {
        "base": "embedded:qwen3-tiny",
        "tuning": "full",
        "max_steps": 2,
        "tasks_per_step": 4,
        "force_headroom": True,
        "data": {"limit": 400},
        "max_new_tokens": 4,
        "threads": 1,
        # any accuracy at all ends it at the first look
        "warmup": {"target_heldout": 0.001, "batch_size": 64, "eval_every": 60},
    }
    run = new_attempt(recipe)

    rl_run(open_newest(run))

    split = json.loads(run.split.read_bytes())
    trained_on = {
        json.loads(line)["id"]
        for path in run.rollouts.glob("train-*.jsonl")
        for line in path.read_text("utf-8").splitlines()
    }
    assert taught == set(split["train"])
    assert trained_on
    assert trained_on <= set(split["train"])
    reported = {
        json.loads(line)["id"]
        for path in run.rollouts.glob("heldout-report-*.jsonl")
        for line in path.read_text("utf-8").splitlines()
    }
    assert reported == set(split["report"])


@pytest.mark.requirement("RL-04")
def test_report_rows_are_scored_once_and_after_the_last_gate(
    recipe: dict[str, Any], new_attempt: NewAttempt, open_newest: OpenNewest, events: Events
) -> None:
    """What selects must not report: the report gates come last, for step 0 and the pick alone."""
    run = new_attempt(recipe)

    result = rl_run(open_newest(run))

    gates = [(e["split"], e["step"]) for e in events(run, "gate")]
    expected = {0, result["selected_step"]}
    assert {step for split, step in gates if split == "report"} == expected
    first_report = next(i for i, (split, _) in enumerate(gates) if split == "report")
    assert all(split == "report" for split, _ in gates[first_report:])
    assert len(gates[first_report:]) == len(expected)


@pytest.mark.requirement("RL-04")
def test_too_few_report_rows_give_no_verdict(
    recipe: dict[str, Any], new_attempt: NewAttempt, open_newest: OpenNewest
) -> None:
    """A handful of rows cannot carry a claim."""
    recipe |= {"max_steps": 12, "lr": 1e-2, "report_min": 31}

    result = rl_run(open_newest(new_attempt(recipe)))

    assert result["lift"] > 0.5
    assert result["verdict"] == "no verdict"


@pytest.mark.requirement("RL-04")
def test_without_report_rows_there_is_no_number_and_no_verdict(
    recipe: dict[str, Any], new_attempt: NewAttempt, open_newest: OpenNewest
) -> None:
    """One held-out row selects, none reports: null, never 0."""
    run = new_attempt(recipe | {"heldout_frac": 0.001, "max_steps": 1, "report_min": 1})

    result = rl_run(open_newest(run))

    assert result["verdict"] == "no verdict"
    assert [result[name] for name in ("heldout_before", "lift", "lift_ci95")] == [None] * 3
    assert result["report_n"] == 0
    json.loads(run.report.read_bytes(), parse_constant=pytest.fail)


@pytest.mark.requirement("RL-03")
def test_the_selected_link_points_to_the_best_heldout_checkpoint(
    recipe: dict[str, Any], new_attempt: NewAttempt, open_newest: OpenNewest
) -> None:
    """The published checkpoint is the pick of the `select` rows, and it survives retention."""
    run = new_attempt(recipe | {"max_steps": 9, "lr": 1e-2, "keep_checkpoints": 1})

    result = rl_run(open_newest(run))

    scores = {int(step): score for step, score in result["heldout_scores"].items()}
    best = min(step for step, score in scores.items() if score == max(scores.values()))
    assert result["selected_step"] == best
    assert run.selected.resolve() == run.checkpoint(best)
    kept = {step for step, _ in complete_checkpoints(run)}
    assert kept == {0, best, 9}


@pytest.mark.requirement("RL-12")
def test_the_result_carries_scores_selection_history_and_run_card(
    recipe: dict[str, Any], new_attempt: NewAttempt, open_newest: OpenNewest
) -> None:
    """The final result holds every field that the contract of result_json names."""
    run = new_attempt(recipe | {"max_steps": 2})

    result = rl_run(open_newest(run))

    assert {
        *("kind", "base", "n_steps", "selected_step", "selected_heldout_score"),
        *("heldout_scores", "pool_scores", "selected_on", "step_history", "lineage_card"),
        *("upstream", "aborted", "heldout_before", "heldout_after", "lift", "lift_ci95"),
        *("verdict", "report_n", "steps", "seconds", "peak_gb"),
    } <= set(result)
    assert len(result["step_history"]) == 2
    assert result["lineage_card"] == json.loads(run.lineage.read_bytes())
    assert [t["name"] for t in result["lineage_card"]["trials"]] == [
        "baseline",
        "rl-001",
        "rl-002",
        "heldout-002",
    ]
    json.dumps(result, allow_nan=False)


def test_every_completion_is_kept_with_ids_logprobs_reward_and_reason(
    recipe: dict[str, Any], new_attempt: NewAttempt, open_newest: OpenNewest
) -> None:
    """What the policy said can be read, and trained on again, afterwards."""
    run = new_attempt(recipe | {"max_steps": 2})

    rl_run(open_newest(run))

    lines = (run.rollouts / "train-000002.jsonl").read_text("utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    assert len(rows) == 64
    for row in rows:
        assert len(row["logprobs"]) == len(row["completion_ids"]) == 1
        assert row["version"] == 1
        assert row["reward"] == float(row["text"] == "7")
        reasons = {"correct"} if row["reward"] else {"truncated", "unparsed"}
        assert row["reason"] in reasons


def test_series_of_every_step_are_finite_numbers(
    recipe: dict[str, Any], new_attempt: NewAttempt, open_newest: OpenNewest, events: Events
) -> None:
    """Charts and the standup read these names."""
    run = new_attempt(recipe | {"max_steps": 3})

    rl_run(open_newest(run))

    steps = [e for e in events(run, "metric") if "pool/score" in e["values"]]
    assert [e["step"] for e in steps] == [1, 2, 3]
    wanted = {
        *("pool/score", "pool/reward_mean", "pool/reward_std", "train/loss", "train/kl"),
        *("train/entropy", "train/grad_norm", "train/lr", "train/n_used", "train/adv_spread"),
        *("rollout/length_mean", "rollout/truncated", "rollout/tokens_per_s"),
        *("rollout/zero_variance", "rollout/duplicates", "time/sampling_s", "time/training_s"),
        *("time/step_s", "mem/rss_gb", "mem/available_gb"),
    }
    for event in steps:
        assert set(event["values"]) >= wanted
        assert all(math.isfinite(value) for value in event["values"].values())
    assert steps[0]["values"]["train/kl"] == pytest.approx(0, abs=1e-6)
    assert steps[2]["values"]["train/kl"] > 0


@pytest.mark.requirement("LN-08")
@pytest.mark.parametrize("poll", [1, 4, 13, 24, 26, 51, 75])
def test_stopped_anywhere_and_resumed_a_run_ends_with_the_same_bits(
    poll: int,
    recipe: dict[str, Any],
    new_attempt: NewAttempt,
    open_newest: OpenNewest,
    unbroken: tuple[RunDir, dict[str, Any]],
    events: Events,
) -> None:
    """An abort at any poll unwinds to a state from which nothing is lost and nothing differs."""
    whole, expected = unbroken
    run = new_attempt(recipe, name="broken")

    aborted = run_aborting_at(open_newest(run), poll)
    run = new_attempt(recipe, name="broken")
    result = rl_run(open_newest(run))

    assert aborted
    for field in ("heldout_scores", "pool_scores", "selected_step", "lift", "lift_ci95"):
        assert result[field] == expected[field]
    theirs, ours = final_weights(whole, 6), final_weights(run, 6)
    assert all(torch.equal(theirs[name], ours[name]) for name in theirs)
    gates = [(e["split"], e["step"]) for e in events(run, "gate")]
    assert len(gates) == len(set(gates))


@pytest.fixture(scope="module")
def unbroken(
    base_recipe: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> tuple[RunDir, dict[str, Any]]:
    """The same recipe in one piece."""
    run = add_attempt(tmp_path_factory.mktemp("whole"), base_recipe)
    with opened(run) as attempt:
        return run, rl_run(attempt)


@pytest.mark.requirement("LN-08")
def test_the_abort_is_polled_inside_every_long_phase(
    recipe: dict[str, Any], new_attempt: NewAttempt, open_newest: OpenNewest, events: Events
) -> None:
    """Each decode step, verifier batch and micro-batch asks, in training and at gates."""
    run = new_attempt(recipe | {"max_steps": 1, "micro_batch": 16})
    polled: dict[str, int] = {}
    phase = ""

    def should_abort() -> bool:
        nonlocal phase
        phase = events(run, "progress")[-1].get("phase", phase)
        polled[phase] = polled.get(phase, 0) + 1
        return False

    with rl_hooks(should_abort=should_abort):
        rl_run(open_newest(run))

    assert polled["sampling"] >= 1 + 8  # one decode step, eight groups to judge
    assert polled["training"] >= 2
    assert polled["heldout-gate"] >= 4 * (1 + 1)


@pytest.mark.requirement("RL-04")
def test_a_resumed_run_refuses_rows_that_changed(
    recipe: dict[str, Any],
    new_attempt: NewAttempt,
    open_newest: OpenNewest,
    tmp_path: Any,
) -> None:
    """The frozen split would otherwise leak held-out rows into training."""
    rows = [json.dumps({"prompt": f"{i}=", "answer": "7"}) for i in range(100)]
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(rows) + "\n")
    recipe |= {"data": {"source": str(path)}}
    run = new_attempt(recipe)
    assert run_aborting_at(open_newest(run), 60)
    path.write_text("\n".join(rows[::-1]) + "\n")
    new_attempt(recipe)

    with pytest.raises(RLLoopError, match="no longer those"):
        rl_run(open_newest(run))


def test_a_damaged_newest_checkpoint_is_passed_over_with_a_warning(
    recipe: dict[str, Any], new_attempt: NewAttempt, open_newest: OpenNewest, events: Events
) -> None:
    """A file that changed after it was written is not trusted; the one before it is."""
    run = new_attempt(recipe)
    assert run_aborting_at(open_newest(run), 60)
    steps = [step for step, _ in complete_checkpoints(run)]
    (run.checkpoint(steps[-1]) / "optimizer.pt").write_bytes(b"torn")
    new_attempt(recipe)

    rl_run(open_newest(run))

    assert events(run, "started")[-1]["resumed_from"] == steps[-2]
    assert "CHECKPOINT_CORRUPT" in {e["code"] for e in events(run, "note")}


@pytest.mark.requirement("RL-15")
def test_a_damaged_step_zero_is_made_anew_and_the_run_ends_with_the_same_bits(
    recipe: dict[str, Any],
    new_attempt: NewAttempt,
    open_newest: OpenNewest,
    unbroken: tuple[RunDir, dict[str, Any]],
    events: Events,
) -> None:
    """The KL reference can be built again from the base; whether it is the same is said."""
    whole, expected = unbroken
    run = new_attempt(recipe)
    assert run_aborting_at(open_newest(run), 51)
    (run.checkpoint(0) / "model" / "model.safetensors").write_bytes(b"harmed")
    new_attempt(recipe)

    result = rl_run(open_newest(run))

    codes = {e["code"]: e["text"] for e in events(run, "note")}
    assert "with the same weights" in codes["STEP_ZERO_REBUILT"]
    assert result["heldout_scores"] == expected["heldout_scores"]
    assert result["lift_ci95"] == expected["lift_ci95"]
    theirs, ours = final_weights(whole, 6), final_weights(run, 6)
    assert all(torch.equal(theirs[name], ours[name]) for name in theirs)


@pytest.mark.requirement("EX-16")
def test_a_run_leaves_a_trace_of_spans_counters_and_fates(
    recipe: dict[str, Any], new_attempt: NewAttempt, open_newest: OpenNewest
) -> None:
    """Each phase lies within its step, in time; each step says what became of its groups."""
    run = new_attempt(recipe | {"max_steps": 2})

    rl_run(open_newest(run))

    trace = list(read_trace(run.trace))
    spans = [e for e in trace if e["ph"] == "X"]
    assert {"step", "sampling", "verifying", "training", "heldout-gate", "checkpoint"} == {
        e["name"] for e in spans
    }
    [step] = [e for e in spans if e["name"] == "step" and e["args"]["step"] == 2]
    for name in ("sampling", "verifying", "training"):
        [part] = [e for e in spans if e["name"] == name and e["args"]["step"] == 2]
        assert part["ts"] >= step["ts"]
        assert part["ts"] + part["dur"] <= step["ts"] + step["dur"]
    fates = [e["args"] for e in trace if e["name"] == "fates"]
    assert len(fates) == 2
    assert all(sum(fate.values()) == 8 for fate in fates)
    assert {e["name"] for e in trace if e["ph"] == "C"} == {"fates", "score", "memory"}


def test_an_unproven_gain_publishes_the_base(
    recipe: dict[str, Any], new_attempt: NewAttempt, open_newest: OpenNewest
) -> None:
    """The pick stays on record and on disk; `selected` points to step 0."""
    run = new_attempt(recipe | {"max_steps": 1, "lr": 1e-5})

    result = rl_run(open_newest(run))

    assert result["verdict"] == "no gain proven"
    assert result["published_step"] == 0
    assert result["seconds_per_point"] is None
    assert run.selected.resolve() == run.checkpoint(0)


def test_a_gain_says_what_a_point_of_it_cost(
    recipe: dict[str, Any], new_attempt: NewAttempt, open_newest: OpenNewest
) -> None:
    """Seconds of steps and gates over the points of the lift."""
    run = new_attempt(recipe | {"max_steps": 12, "lr": 1e-2})

    result = rl_run(open_newest(run))

    assert result["published_step"] == result["selected_step"] > 0
    points = result["lift"] * 100
    assert result["seconds_per_point"] == pytest.approx(result["seconds"] / points, abs=0.06)
    assert result["p_better"] < 0.001


def test_a_folder_that_is_no_model_is_one_line_with_field_value_and_remedy(
    recipe: dict[str, Any], new_attempt: NewAttempt, open_newest: OpenNewest, tmp_path: Any
) -> None:
    """Weights that cannot be read end the attempt before anything is written for it."""
    folder = tmp_path / "broken"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "qwen3"}')
    (folder / "model.safetensors").write_bytes(b"no weights")
    run = new_attempt(recipe | {"base": str(folder)})

    with pytest.raises(RLLoopError, match=r"base: cannot be loaded: .*name a folder") as caught:
        rl_run(open_newest(run))

    assert "\n" not in str(caught.value)
    assert not run.checkpoints.exists()


def test_a_prompt_with_a_token_that_the_model_does_not_know_names_the_token(
    recipe: dict[str, Any], new_attempt: NewAttempt, open_newest: OpenNewest, tmp_path: Any
) -> None:
    """A tokenizer that was extended beside its model: a token that no row has does not matter."""
    folder = tmp_path / "extended"
    shutil.copytree(recipe["base"], folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(["Ω", "Ψ"])
    tokenizer.save_pretrained(folder)
    rows = [{"prompt": f"Ω{number:03d}=", "answer": "7"} for number in range(120)]
    corpus = tmp_path / "omega.jsonl"
    corpus.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    extended = recipe | {"base": str(folder)}
    told = rf"base: .*writes 'Ω' as token {len(tokenizer) - 2}, .*resize the model's embeddings"

    assert rl_run(open_newest(new_attempt(extended)))["steps"] == recipe["max_steps"]
    with pytest.raises(RLLoopError, match=told):
        rl_run(open_newest(new_attempt(extended | {"data": {"source": str(corpus)}}, name="b")))


@pytest.fixture
def lora_recipe(recipe: dict[str, Any]) -> dict[str, Any]:
    """The same run with an adapter."""
    return recipe | {"tuning": "lora", "lora_rank": 4, "lora_alpha": 8, "lr": 1e-2}


@pytest.mark.requirement("RL-07")
def test_a_lora_run_trains_its_adapter_alone_and_saves_it_per_step(
    lora_recipe: dict[str, Any], new_attempt: NewAttempt, open_newest: OpenNewest, events: Events
) -> None:
    """Each checkpoint is a PEFT folder, K3 starts at 0 against step 0, held-out rises."""
    run = new_attempt(lora_recipe | {"max_steps": 12, "keep_checkpoints": 12})

    result = rl_run(open_newest(run))

    assert result["verdict"] == "gain"
    assert [step for step, _ in complete_checkpoints(run)] == list(range(13))
    adapters = [
        load_file(run.checkpoint(step) / "adapter" / "adapter_model.safetensors")
        for step in (0, 1, 2)
    ]
    b = next(name for name in adapters[0] if "lora_B" in name)
    assert not adapters[0][b].any()
    assert not torch.equal(adapters[1][b], adapters[2][b])
    assert not (run.checkpoint(1) / "model").exists()
    kl = [e["values"]["train/kl"] for e in events(run, "metric") if "train/kl" in e["values"]]
    assert kl[0] == pytest.approx(0, abs=1e-6)
    assert kl[-1] > 1e-3


@pytest.mark.requirement("RL-07")
def test_a_lora_run_from_an_initial_adapter_measures_kl_against_it(
    lora_recipe: dict[str, Any], new_attempt: NewAttempt, open_newest: OpenNewest, events: Events
) -> None:
    """The initial adapter is the step-0 policy: the first K3 is 0 although the base differs."""
    first = new_attempt(lora_recipe | {"max_steps": 12}, name="first")
    taught = rl_run(open_newest(first))
    initial = first.selected.resolve() / "adapter"
    run = new_attempt(
        lora_recipe | {"adapter_init": str(initial), "max_steps": 1, "seed": 5}, name="second"
    )

    result = rl_run(open_newest(run))

    assert result["heldout_scores"]["0"] == taught["selected_heldout_score"]
    [step] = [e for e in events(run, "metric") if "pool/score" in e["values"]]
    assert step["values"].get("train/kl", 0.0) == pytest.approx(0, abs=1e-6)


def test_a_stopped_lora_run_resumes_to_the_same_bits(
    lora_recipe: dict[str, Any], new_attempt: NewAttempt, open_newest: OpenNewest
) -> None:
    """Adapter, optimizer and reference come back from the checkpoints."""
    whole = new_attempt(lora_recipe, name="whole")
    expected = rl_run(open_newest(whole))
    run = new_attempt(lora_recipe, name="broken")
    assert run_aborting_at(open_newest(run), 51)
    new_attempt(lora_recipe, name="broken")

    result = rl_run(open_newest(run))

    assert result["heldout_scores"] == expected["heldout_scores"]
    theirs, ours = (
        load_file(r.checkpoint(6) / "adapter" / "adapter_model.safetensors") for r in (whole, run)
    )
    assert all(torch.equal(theirs[name], ours[name]) for name in theirs)


def test_the_result_traces_memory_by_phase(
    recipe: dict[str, Any], new_attempt: NewAttempt, open_newest: OpenNewest
) -> None:
    """The engine's share of mem_trace: the peak over all and in each phase."""
    result = rl_run(open_newest(new_attempt(recipe | {"max_steps": 1})))

    trace = result["mem_trace"]
    assert set(trace["phase_used_gb"]) == {"lane-bringup", "sampling", "training", "heldout-gate"}
    assert 0.05 < max(trace["phase_used_gb"].values()) <= trace["peak_used_gb"]
    assert trace["peak_used_gb"] == result["peak_gb"]


@pytest.fixture
def harm_when_trained(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Flip a byte in a step's weights once the loop is through and before the report."""

    def arrange(run: RunDir, which: Callable[[RLLoop], int | None]) -> None:
        whole = RLLoop.run

        def harmed(loop: RLLoop) -> Any:
            card = whole(loop)
            path = run.checkpoint(which(loop) or 0) / "model" / "model.safetensors"
            path.write_bytes(path.read_bytes()[:-1] + b"\x01")
            return card

        monkeypatch.setattr(RLLoop, "run", harmed)

    return arrange


def test_a_picked_checkpoint_that_is_damaged_is_never_scored(
    recipe: dict[str, Any],
    new_attempt: NewAttempt,
    open_newest: OpenNewest,
    events: Events,
    harm_when_trained: Callable[..., None],
) -> None:
    """The best gate whose checkpoint is whole stands in for it, and the result says so."""
    run = new_attempt(recipe)
    harm_when_trained(run, lambda loop: loop.selected_step)

    result = rl_run(open_newest(run))

    scores = {int(step): score for step, score in result["heldout_scores"].items()}
    best = min(scores, key=lambda step: (-scores[step], step))
    standing = {step for step, _ in complete_checkpoints(run)} & scores.keys() - {best}
    expected = min(standing, key=lambda step: (-scores[step], step))
    assert 0 not in {best, expected}
    assert result["selected_step"] == expected
    assert result["selected_heldout_score"] == scores[expected]
    assert [e["step"] for e in events(run, "gate") if e["split"] == "report"] == [0, expected]
    assert result["published_step"] in {0, expected}
    [alert] = [one for one in result["alerts"] if one["code"] == "CHECKPOINT_CORRUPT"]
    assert f"step {best}, which held-out picked" in alert["text"]
    assert f"step {expected}, the best of those that are whole" in alert["text"]
    assert alert["text"] in events(run, "note")[-1]["text"]


def test_without_a_whole_step_0_nothing_is_reported_and_another_attempt_makes_it_anew(
    recipe: dict[str, Any],
    new_attempt: NewAttempt,
    open_newest: OpenNewest,
    monkeypatch: pytest.MonkeyPatch,
    harm_when_trained: Callable[..., None],
) -> None:
    """What was trained is not thrown away: the second attempt trains nothing, and reports."""
    expected = rl_run(open_newest(new_attempt(recipe, name="whole")))
    run = new_attempt(recipe)
    harm_when_trained(run, lambda _: 0)
    with pytest.raises(NightlaneError, match=r"step-000000 is damaged and was not scored"):
        rl_run(open_newest(run))
    assert not run.report.exists()
    monkeypatch.undo()

    result = rl_run(open_newest(new_attempt(recipe)))

    assert result["heldout_before"] == expected["heldout_before"]
    assert (result["verdict"], result["lift"]) == (expected["verdict"], expected["lift"])
