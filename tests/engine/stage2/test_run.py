"""Whole `stage2_ab` runs of the real parts on a real tiny Qwen3-VL."""

from __future__ import annotations

import dataclasses
import json
import shlex
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import TrainingArguments

from engine.__main__ import main
from engine.__main__ import main as engine
from engine.contract.documents import parse_yaml
from engine.contract.errors import ConfigError, NightlaneError
from engine.contract.events import Event
from engine.contract.registry import cautions, validate
from engine.contract.run_dir import Abort, AbortReason, ExitCode, RunDir, complete_checkpoints
from engine.contract.sources.records import Record
from engine.contract.stage2.config import Stage2Config
from engine.contract.stage2.training_arguments import DECIDED
from engine.models.lora import attach_zero, without_deprecations
from engine.models.qwen3_vl import ModelError, forward, load
from engine.run import report
from engine.run.session import Attempt
from engine.run.stop import Aborted, rl_hooks, telling_of_life
from engine.run.warmup import SFTSchedule
from engine.stage2 import opening
from engine.stage2.callback import RunCallback
from engine.stage2.embedded import shapes, tiny_vl
from engine.stage2.evaluation import Evaluation, RolloutEval
from engine.stage2.parse.pieces import TokenizerError
from engine.stage2.report import report_fields
from engine.stage2.stage2_ab import run as stage2_run
from tests.engine.conftest import add_attempt, opened
from tests.engine.stage2.conftest import changed, folder_of
from tests.engine.stage2.target.test_desc_gate import model_folder

OpenNewest = Callable[[RunDir], Attempt]
Events = Callable[..., list[Event]]
Recipe = dict[str, Any]


@pytest.fixture
def new_run(tmp_path: Path) -> Callable[..., RunDir]:
    def make(raw: Recipe, name: str = "run") -> RunDir:
        return add_attempt(tmp_path, raw, name=name, kind="stage2_ab")

    return make


NewRun = Callable[..., RunDir]


def weights(run: RunDir, step: int) -> dict[str, torch.Tensor]:
    return load_file(folder_of(run, step) / "model.safetensors")


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def values(events: list[Event], series: str) -> dict[int, float]:
    """A series by step, as it stands after resumes."""
    found: dict[int, float] = {}
    for event in events:
        if event["type"] == "started":
            kept = event["resumed_from"]
            found = {s: v for s, v in found.items() if kept is not None and s <= kept}
        elif event["type"] == "metric" and series in event["values"]:
            found[event["step"]] = event["values"][series]
    return found


@pytest.fixture(scope="module")
def unbroken(
    ab_recipe: Recipe, tmp_path_factory: pytest.TempPathFactory
) -> tuple[RunDir, dict[str, Any]]:
    run = add_attempt(tmp_path_factory.mktemp("unbroken"), ab_recipe, kind="stage2_ab")
    with opened(run) as attempt:
        return run, stage2_run(attempt)


@pytest.mark.requirement("AB-01")
@pytest.mark.requirement("AB-06")
@pytest.mark.requirement("AB-08")
def test_a_run_alternates_its_channels_and_tells_every_series(
    unbroken: tuple[RunDir, dict[str, Any]], events: Events
) -> None:
    """b_ratio 0.5: odd steps by soft context, even ones by rollouts, counters in each of these."""
    run, result = unbroken
    seen = events(run)

    assert values(seen, "stage2/channel_b") == {1: 0, 2: 1, 3: 0, 4: 1, 5: 0, 6: 1}
    assert values(seen, "train/samples") == dict.fromkeys(range(1, 7), 4.0)
    assert values(seen, "stage2/raw_rollouts") == {2: 4.0, 4: 4.0, 6: 4.0}
    root = "stage2_ab/channel_b"
    for series in (
        f"{root}/strict_drop/N_valid_pred",
        f"{root}/strict_drop/N_drop_invalid",
        f"{root}/strict_drop/reason/missing_desc",
        f"{root}/semantic_desc_gate/is_active",
        "stage2/invalid_rollout",
        "rollout/f1",
        "rollout/parse_truncated_rate",
        "time/rollout_generate_s",
    ):
        assert list(values(seen, series)) == [2, 4, 6], series
    assert list(values(seen, "loss/bbox_ciou")) == [1, 2, 3, 4, 5, 6]
    assert list(values(seen, "train/grad_norm")) == [1, 2, 3, 4, 5, 6]
    assert {event["max_steps"] for event in seen if "max_steps" in event} == {6}
    assert result["steps"] == 6
    assert result["aborted"] is False


@pytest.mark.requirement("AB-13")
def test_each_channel_b_step_logs_its_seed_base(
    unbroken: tuple[RunDir, dict[str, Any]], events: Events
) -> None:
    """(training seed + optimizer step · 1000003) & 0x7FFFFFFF, steps from 0, and how it decoded."""
    run, _ = unbroken

    assert values(events(run), "stage2/rollout_seed_base") == {
        step: (11 + (step - 1) * 1000003) & 0x7FFFFFFF for step in (2, 4, 6)
    }
    (note,) = [e for e in events(run, "note") if e["code"] == "DECODING"]
    assert '"temperature": 0.0' in note["text"]


@pytest.mark.requirement("AB-02")
def test_checkpoints_keep_the_trainers_form_and_carry_our_marker(
    unbroken: tuple[RunDir, dict[str, Any]], events: Events
) -> None:
    """checkpoint-N/ with weights, optimizer, schedule, random state and trainer state."""
    run, _ = unbroken

    steps = [step for step, _ in complete_checkpoints(run)]
    assert steps[-1] == 6
    names = {path.name for path in folder_of(run, 6).iterdir()}
    assert names >= {
        *("model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth"),
        *("trainer_state.json", "tokenizer.json", "config.json", "complete.json"),
    }
    load(str(folder_of(run, 6)), dtype="float32", attn_implementation="sdpa")
    written = [e["path"] for e in events(run, "checkpoint")]
    assert written[-1] == "checkpoints/checkpoint-6"


def test_gates_score_by_rollout_f1_and_the_best_is_published(
    unbroken: tuple[RunDir, dict[str, Any]], events: Events
) -> None:
    """Before step one, at the rhythm and after the last step; the earliest of equals wins."""
    run, result = unbroken

    gates = events(run, "gate")
    assert [gate["step"] for gate in gates] == [0, 3, 6]
    assert {(gate["split"], gate["n"], gate["temp"]) for gate in gates} == {("select", 4, 0.0)}
    assert list(values(events(run), "eval_rollout_f1")) == [0, 3, 6]
    best = min(gates, key=lambda gate: (-gate["score"], gate["step"]))
    assert result["selected_step"] == best["step"]
    assert run.selected.resolve() == folder_of(run, best["step"]).resolve()


@pytest.mark.requirement("UI-08")
def test_every_rollout_is_kept_with_its_record_its_boxes_and_its_picture(
    unbroken: tuple[RunDir, dict[str, Any]],
) -> None:
    """In training also with the roles and weights of its tokens; pictures lie beside the rows."""
    run, _ = unbroken

    for name, extra in (("train-000002", {"ids", "spans"}), ("heldout-select-000003", set())):
        lines = (run.rollouts / f"{name}.jsonl").read_text("utf-8").splitlines()
        rows = [json.loads(line) for line in lines]
        assert len(rows) == 4
        for row in rows:
            assert row.keys() >= {"record", "objects", "entries", "picture"} | extra
            assert row["record"].startswith("train.jsonl line ")
            assert (run.rollouts / "pictures" / row["picture"]["name"]).is_file()
            assert len(row["objects"]) == row["matched"] + row["missed"]


def test_live_progress_shows_channel_losses_drops_and_scores(
    unbroken: tuple[RunDir, dict[str, Any]], events: Events
) -> None:
    """What a person sees while it runs; of a Channel-B step the last figures stay."""
    run, _ = unbroken

    live = [e["stage2"] for e in events(run, "progress") if "stage2" in e]

    assert [one["channel"] for one in live] == ["A", "B", "A", "B", "A", "B"]
    assert live[-1].keys() == {
        *("channel", "loss", "ce", "smoothl1", "ciou", "dropped", "precision", "recall", "f1")
    }


def run_aborting_at(attempt: Attempt, poll: int) -> bool:
    """Run until a stop was asked for the poll-th time; whether it was aborted."""
    asked = 0

    def should_abort() -> bool:
        nonlocal asked
        asked += 1
        return asked >= poll

    try:
        with rl_hooks(should_abort=should_abort):
            stage2_run(attempt)
    except Aborted:
        return True
    return False


@pytest.mark.requirement("AB-06")
@pytest.mark.requirement("AB-02")
@pytest.mark.parametrize("polls", [[1, 20], [25, 10]])
def test_a_run_that_was_stopped_and_resumed_equals_an_unbroken_one(
    polls: list[int],
    unbroken: tuple[RunDir, dict[str, Any]],
    ab_recipe: Recipe,
    new_run: NewRun,
    events: Events,
) -> None:
    """Bit for bit, wherever it was stopped; the schedule goes on where it was.

    Inside the first evaluation, inside one that follows a step, inside a rollout, inside a forward.
    """
    whole, expected = unbroken
    run = new_run(ab_recipe, name="broken")
    for poll in polls:
        with opened(run) as attempt:
            assert run_aborting_at(attempt, poll)
        new_run(ab_recipe, name="broken")

    with opened(run) as attempt:
        result = stage2_run(attempt)

    assert same(weights(run, 6), weights(whole, 6))
    for series in ("stage2/channel_b", "train/loss", "rollout/f1", "stage2/rollout_seed_base"):
        assert values(events(run), series) == values(events(whole), series), series
    assert result["heldout_scores"] == expected["heldout_scores"]
    assert len(events(run, "started")) == len(polls) + 1
    assert result["pool_scores"] == expected["pool_scores"]
    assert result["seconds"] == pytest.approx(
        sum(values(events(run), "time/step_s").values()), abs=0.06
    )
    assert json.loads(run.lineage.read_bytes()) == result["lineage_card"]
    trials = result["lineage_card"]["trials"]
    kept = [trial["name"] for trial in trials if trial["kind"] != "aborted"]
    assert kept == [trial["name"] for trial in expected["lineage_card"]["trials"]]
    assert len(kept) < len(trials)


def stopping_after(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody asks for a stop while so many steps are made."""
    ends = RunCallback.on_step_end

    def asked(self: RunCallback, args: Any, state: Any, control: Any, **more: Any) -> Any:
        if state.global_step == step:
            self.attempt.dir.request_abort(Abort(reason=AbortReason.OPERATOR))
        return ends(self, args, state, control, **more)

    monkeypatch.setattr(RunCallback, "on_step_end", asked)


@pytest.mark.parametrize(
    ("change", "stop", "gates"),
    [
        ({"training__num_train_epochs": 1, "training__max_steps": -1}, 6, [0, 4, 6]),
        ({"training__eval_steps": 0.5}, 2, [0, 3, 6]),
        ({"training__eval_delay": 5}, 4, [0, 6]),
    ],
)
def test_a_resumed_run_is_scored_where_an_unbroken_one_is(
    change: dict[str, Any],
    stop: int,
    gates: list[int],
    ab_recipe: Recipe,
    new_run: NewRun,
    events: Events,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Stopped behind its last step, before a share of it, or before scores begin."""
    raw = changed(ab_recipe, **{"training__eval_steps": 4, **change})
    run = new_run(raw)
    with monkeypatch.context() as patch:
        stopping_after(stop, patch)
        with opened(run) as attempt, pytest.raises(Aborted):
            stage2_run(attempt)
    new_run(raw)

    with opened(run) as attempt:
        stage2_run(attempt)

    assert [gate["step"] for gate in events(run, "gate")] == gates


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"training__dataloader_drop_last": True, "training__per_device_train_batch_size": 25},
            r"training\.dataloader_drop_last: leaves nothing of 24 records in passes of 25",
        ),
        (
            {
                "training__num_train_epochs": 1,
                "training__max_steps": -1,
                "training__eval_delay": 7,
            },
            r"training\.eval_delay: is more than the run's 6 steps",
        ),
    ],
)
def test_a_run_that_would_train_or_score_nothing_is_refused_before_its_first_step(
    change: dict[str, Any], message: str, ab_recipe: Recipe, new_run: NewRun
) -> None:
    """It would end well, with nothing learnt."""
    run = new_run(changed(ab_recipe, **change))

    with pytest.raises(ConfigError, match=message), opened(run) as attempt:
        stage2_run(attempt)

    assert complete_checkpoints(run) == []


def test_the_sentinel_stops_a_run_at_the_end_of_its_step(
    ab_recipe: Recipe, new_run: NewRun, events: Events
) -> None:
    """Without ambient hooks too: every rank would hear it between two steps."""
    run = new_run(ab_recipe)
    with opened(run) as attempt:
        attempt.dir.request_abort(Abort())

        with pytest.raises(Aborted) as stopped:
            stage2_run(attempt)

    assert stopped.value.result["steps"] == 1
    assert [step for step, _ in complete_checkpoints(run)] == [0, 1]
    assert [trial["kind"] for trial in stopped.value.result["lineage_card"]["trials"]][-1] == (
        "aborted"
    )


def test_a_checkpoint_that_is_half_written_is_ignored_and_done_again(
    unbroken: tuple[RunDir, dict[str, Any]],
    ab_recipe: Recipe,
    new_run: NewRun,
    events: Events,
    tmp_path: Path,
) -> None:
    """A kill inside a save costs the steps since the one before."""
    whole, _ = unbroken
    shutil.copytree(whole.root, tmp_path / "run", symlinks=True)
    run = new_run(ab_recipe)
    expected = weights(run, 6)
    (folder_of(run, 6) / "complete.json").unlink()

    with opened(run) as attempt:
        stage2_run(attempt)

    assert events(run, "started")[-1]["resumed_from"] == 4
    assert "CHECKPOINT_INCOMPLETE" in {note["code"] for note in events(run, "note")}
    assert same(weights(run, 6), expected)


@pytest.mark.requirement("AB-05")
def test_packing_changes_how_a_step_computes_and_not_what(
    ab_recipe: Recipe, new_run: NewRun, events: Events
) -> None:
    """Losses of a packed run are those of an unpacked one; its fill is logged."""
    short = changed(ab_recipe, training__max_steps=2)
    packed = changed(
        short,
        global_max_length=400,
        training__packing=True,
        training__per_device_train_batch_size=1,
        training__gradient_accumulation_steps=4,
    )
    runs = []
    for name, raw in (("plain", short), ("packed", packed)):
        run = new_run(raw, name=name)
        with opened(run) as attempt:
            stage2_run(attempt)
        runs.append(events(run))

    plain, other = (values(seen, "train/loss") for seen in runs)
    assert other == pytest.approx(plain, rel=1e-5)
    fill = values(runs[1], "packing/post_rollout_fill")
    assert list(fill) == [1, 2]
    assert all(0 < share <= 1 for share in fill.values())
    assert values(runs[1], "train/forwards")[1] < values(runs[0], "train/forwards")[1] + 1


@pytest.mark.requirement("AB-21")
@pytest.mark.parametrize("wanted", [3, 7])
def test_a_step_rolls_out_as_many_samples_as_it_was_told(
    wanted: int, ab_recipe: Recipe, new_run: NewRun, events: Events
) -> None:
    """Fewer than the window leaves some out, more draws others; one update either way."""
    raw = changed(
        ab_recipe,
        stage2_ab__channel_b__rollouts_per_step=wanted,
        stage2_ab__schedule__b_ratio=1.0,
        training__max_steps=2,
    )
    run = new_run(raw)

    with opened(run) as attempt:
        result = stage2_run(attempt)

    assert values(events(run), "stage2/raw_rollouts") == {1: wanted, 2: wanted}
    assert values(events(run), "train/samples") == {1: wanted, 2: wanted}
    assert result["steps"] == 2


@pytest.mark.requirement("AB-24")
@pytest.mark.parametrize("weights_there", [True, False])
def test_the_desc_gate_says_once_what_it_is(
    weights_there: bool, ab_recipe: Recipe, new_run: NewRun, events: Events, tmp_path: Path
) -> None:
    """Resolved to the hash of its weights; or absent, inactive, and the run goes on."""
    path = model_folder() if weights_there else str(tmp_path / "none")
    gate = {"enabled": True, "model_name_or_path": path, "revision": "pinned"}
    raw = changed(
        ab_recipe,
        stage2_ab__channel_b__semantic_desc_gate=gate,
        stage2_ab__schedule__b_ratio=1.0,
        training__max_steps=2,
        data__val_jsonl=None,
    )
    run = new_run(raw)

    with opened(run) as attempt:
        stage2_run(attempt)

    said = [note for note in events(run, "note") if note["code"].startswith("DESC_GATE")]
    assert len(said) == 1
    assert said[0]["level"] == ("info" if weights_there else "warning")
    assert ("sha256:" in said[0]["text"]) == weights_there
    active = values(events(run), "stage2_ab/channel_b/semantic_desc_gate/is_active")
    assert active == dict.fromkeys((1, 2), float(weights_there))


@pytest.mark.parametrize("tuning", ["lora", "dora"])
def test_an_adapter_trains_the_language_tower_alone(
    tuning: str, ab_recipe: Recipe, new_run: NewRun
) -> None:
    """Its checkpoints hold the adapter, and the run resumes from them."""
    raw = changed(ab_recipe, model__tuning=tuning, model__lora_rank=2, training__max_steps=2)
    run = new_run(raw)

    with opened(run) as attempt:
        result = stage2_run(attempt)

    assert result["lineage_card"]["adapter_reach"] == {"share": 1.0, "missed": None}
    first, last = (load_file(folder_of(run, step) / "adapter_model.safetensors") for step in (0, 2))
    assert all("language_model" in name for name in last)
    assert any(not torch.equal(first[name], last[name]) for name in last)
    assert_export_answers_like(folder_of(run, 2), raw["model"]["path"], run.root)


def assert_export_answers_like(checkpoint: Path, base: str, folder: Path) -> None:
    """Merged weights in a plain folder give the adapter's logits, and not the base's."""
    assert engine(["export", str(checkpoint), str(folder / "merged")]) == 0
    merged, plain = (
        load(str(path), dtype="float32", attn_implementation="sdpa")
        for path in (folder / "merged", base)
    )
    bare: Any = load(base, dtype="float32", attn_implementation="sdpa").model
    with without_deprecations():
        adapted = PeftModel.from_pretrained(bare, str(checkpoint)).eval()
    ids = torch.arange(20)[None]
    given = {"input_ids": ids, "position_ids": torch.arange(20).expand(3, 1, 20)}
    with torch.inference_mode():
        one, other, before = (
            forward(model.eval(), given) for model in (merged.model, adapted, plain.model)
        )
    assert float((one - other).abs().max()) <= 1e-4
    assert not torch.equal(one, before)


def test_a_report_is_scored_once_on_its_own_records(
    ab_recipe: Recipe, tmp_path: Path, new_run: NewRun, events: Events
) -> None:
    """Step 0 against the selected checkpoint; too few records give no verdict."""
    report = shapes.write(
        tmp_path, "report", shapes.distinct(5, 12, shapes.Style()), shapes.Style()
    )
    run = new_run(changed(ab_recipe, data__report_jsonl=str(report), training__max_steps=2))

    with opened(run) as attempt:
        result = stage2_run(attempt)

    assert result["verdict"] == "no verdict"
    assert result["report_n"] == 5
    assert json.loads(run.report.read_bytes())["lift"] == result["lift"]
    assert {gate["step"] for gate in events(run, "gate") if gate["split"] == "report"} == {0}


@pytest.mark.parametrize("published", [0, 3])
def test_what_the_report_publishes_is_what_the_link_points_at(
    published: int,
    ab_recipe: Recipe,
    tmp_path: Path,
    new_run: NewRun,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Until then the best gate; with a verdict that proves no gain the base, as in an `rl_run`."""
    raw = changed(ab_recipe, data__report_jsonl=str(drawn(tmp_path, "report", 5)))
    run = new_run(changed(raw, training__max_steps=3))
    newest = property(lambda callback: max(callback.scores, default=None))
    monkeypatch.setattr(RunCallback, "best_step", newest)
    if published:  # five pictures prove nothing
        gain = {"verdict": "gain", "published_step": published}
        monkeypatch.setattr(
            "engine.stage2.report.report_fields", lambda *a: report_fields(*a) | gain
        )

    with opened(run) as attempt:
        result = stage2_run(attempt)

    assert (result["selected_step"], result["published_step"]) == (3, published)
    assert run.selected.resolve() == folder_of(run, published).resolve()


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"model__tuning": "lora", "training__learning_rate": 1e30}, "the loss is nan"),
        ({"training__optim": "sgd", "training__learning_rate": 1e6}, "the gradient's norm is nan"),
        (
            {  # broken weights are also sampled from
                "custom__extra__rollout_matching__decoding": {"temperature": 1.0},
                "stage2_ab__schedule__b_ratio": 1.0,
                "training__learning_rate": 1e38,
            },
            "the loss is nan",
        ),
    ],
)
def test_what_is_no_number_ends_the_run_with_the_weights_before_it(
    change: dict[str, Any],
    what: str,
    ab_recipe: Recipe,
    tmp_path: Path,
    new_run: NewRun,
    events: Events,
) -> None:
    """Exit 76 and COLLAPSED; what held-out picked is reported, and a retry ends the same way."""
    given = {"training__max_grad_norm": 0, "training__lr_scheduler_type": "constant", **change}
    raw = changed(ab_recipe, data__report_jsonl=str(drawn(tmp_path, "report", 5)), **given)
    run = new_run(raw)

    codes = [main(["run", str(run.root)])]
    new_run(raw)
    codes.append(main(["run", str(run.root)]))

    assert codes == [ExitCode.DECLINED, ExitCode.DECLINED]
    for finished in events(run, "finished"):
        result = finished["result"]
        assert (result["cause"], result["steps"], result["verdict"]) == (
            *("COLLAPSED", 1, "no verdict"),
        )
        assert f"step 2: not a number: {what}" in result["error"]
        assert result["diagnosis"]["rule"] == "not a number"
    assert [step for step, _ in complete_checkpoints(run)] == [0, 1]
    assert list(values(events(run), "train/loss")) == [1]


def spoil(run: RunDir, step: int) -> None:
    path = folder_of(run, step) / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")


def reported(run: RunDir, **kept: Any) -> dict[str, Any]:
    with opened(run) as attempt:
        result = stage2_run(attempt)
    names = ("verdict", "heldout_before", "heldout_after", "published_step", "selected_step")
    return {name: result[name] for name in names} | kept


@pytest.mark.parametrize("warmup", [None, {"target_f1": 1e-9, "max_steps": 1}])
@pytest.mark.parametrize("harm", ["gone", "damaged"])
def test_a_lost_step_0_is_made_anew_before_a_run_goes_on(
    harm: str,
    warmup: dict[str, Any] | None,
    ab_recipe: Recipe,
    tmp_path: Path,
    new_run: NewRun,
    events: Events,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No training that is done is thrown away for it, and the report is that of an unbroken run."""
    monkeypatch.setattr("engine.stage2.warmup.teach", one_update)
    report = str(drawn(tmp_path, "report", 5))
    raw = changed(ab_recipe, data__report_jsonl=report, training__max_steps=3, warmup=warmup)
    expected = reported(new_run(raw, "whole"))
    run = new_run(raw)
    with opened(run) as attempt:
        assert run_aborting_at(attempt, 25)
    if harm == "gone":
        shutil.rmtree(folder_of(run, 0))
    else:
        spoil(run, 0)
    new_run(raw)

    assert reported(run) == expected

    assert events(run, "started")[-1]["resumed_from"] > 0
    [note] = [note for note in events(run, "note") if note["code"] == "STEP_ZERO_REBUILT"]
    assert ("with the same weights" in note["text"]) == (harm == "damaged")
    assert same(weights(run, 3), weights(RunDir(tmp_path / "whole"), 3))


def one_update(
    _schedule: SFTSchedule, update: Callable[[int], float], **_: Any
) -> tuple[int, float]:
    update(1)
    return 1, 0.5


def test_no_run_goes_on_from_weights_that_were_only_made_to_be_scored(
    ab_recipe: Recipe, tmp_path: Path, new_run: NewRun, events: Events
) -> None:
    """They have no optimizer beside them. A run that begins anew leaves nothing of before."""
    raw = changed(ab_recipe, data__report_jsonl=str(drawn(tmp_path, "report", 5)))
    run = new_run(raw)
    with opened(run) as attempt:
        assert run_aborting_at(attempt, 25)
    shutil.rmtree(folder_of(run, 0))
    new_run(raw)
    with opened(run) as attempt:
        assert run_aborting_at(attempt, 1)
    for step, _ in complete_checkpoints(run):
        if step:
            spoil(run, step)
    new_run(raw)

    reported(run)

    assert events(run, "started")[-1]["resumed_from"] is None


def test_a_picked_checkpoint_that_is_damaged_is_never_scored(
    ab_recipe: Recipe,
    tmp_path: Path,
    new_run: NewRun,
    events: Events,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The best gate whose checkpoint is whole stands in for it, and the result says so."""
    raw = changed(ab_recipe, data__report_jsonl=str(drawn(tmp_path, "report", 5)))
    run = new_run(changed(raw, training__eval_steps=1, training__max_steps=3))
    newest = property(lambda callback: max(callback.scores, default=None))
    monkeypatch.setattr(RunCallback, "best_step", newest)
    report_once = report.report_once

    def harmed(*given: Any, **named: Any) -> Any:
        spoil(run, 3)
        return report_once(*given, **named)

    monkeypatch.setattr("engine.stage2.report.report_once", harmed)

    with opened(run) as attempt:
        result = stage2_run(attempt)

    expected = result["selected_step"]
    assert expected != 3
    assert result["selected_heldout_score"] == result["heldout_scores"][str(expected)]
    assert {e["step"] for e in events(run, "gate") if e["split"] == "report"} == {0, expected}
    [alert] = [one for one in result["alerts"] if one["code"] == "CHECKPOINT_CORRUPT"]
    assert "step 3, which held-out picked" in alert["text"]
    assert alert["text"] in {note["text"] for note in events(run, "note")}


@pytest.mark.parametrize("others", ["train", "val"])
def test_a_report_on_pictures_that_train_or_pick_is_refused(
    others: str, ab_recipe: Recipe, shapes_file: Path, tmp_path: Path
) -> None:
    """A verdict on them would be a score of what is remembered; a link is the same picture."""
    own = Path(write_record(tmp_path))
    (tmp_path / "same.png").symlink_to(shapes_file.parent / "train" / "00003.png")
    record = json.loads(own.read_text())
    rows = [record, record | {"images": ["same.png"]}]
    own.write_text("".join(json.dumps(row) + "\n" for row in rows))
    raw = changed(ab_recipe, data__report_jsonl=str(own))
    if others == "val":
        raw = changed(raw, data__train_jsonl=write_elsewhere(tmp_path))

    with pytest.raises(ConfigError) as caught:
        validate("stage2_ab", raw)

    assert str(caught.value).startswith(
        f"data.report_jsonl: shares 1 of its 2 pictures with data.{others}_jsonl "
        "(data.jsonl line 2: 00003.png)"
    )
    validate("stage2_ab", changed(raw, data__report_limit=1))


@pytest.mark.parametrize("shared", [4, 1, 0])
def test_a_run_says_when_pictures_that_pick_are_trained_on(
    shared: int,
    ab_recipe: Recipe,
    shapes_file: Path,
    tmp_path: Path,
    new_run: NewRun,
    events: Events,
) -> None:
    """To overfit is a fair test of a set-up; its F1 must not be read as one of new pictures."""
    own = drawn(tmp_path, "val", 4)
    rows = [json.loads(line) for line in own.read_text().splitlines()]
    for number, row in enumerate(rows[:shared]):
        row["images"] = [str(shapes_file.parent / "train" / f"{number:05d}.png")]
    own.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = new_run(changed(ab_recipe, data__val_jsonl=str(own), training__max_steps=1))

    with opened(run) as attempt:
        result = stage2_run(attempt)

    said = [note["text"] for note in events(run, "note") if note["code"] == "VAL_TRAINED"]
    assert [alert["text"] for alert in result["alerts"]] == said
    assert len(said) == bool(shared)
    if shared:
        assert said[0].startswith(f"{shared} of the 4 validation records show pictures")
        assert any("alerts" in progress for progress in events(run, "progress"))


@pytest.mark.parametrize(
    ("change", "heard"),
    [
        ({}, 1),
        ({"training__learning_rate": 1e-3}, 0),
        ({"model__tuning": "lora"}, 0),
        ({"model__dtype": "float32", "training__bf16": True}, 0),
    ],
)
def test_weights_that_are_too_coarse_for_their_updates_are_said(
    change: dict[str, Any],
    heard: int,
    ab_recipe: Recipe,
    vl_folder: Path,
    tmp_path: Path,
    new_run: NewRun,
) -> None:
    """When the job is sent, and by the run; what the remedy says trains."""
    coarse = load(str(vl_folder), dtype="bfloat16", attn_implementation="sdpa")
    model: Any = coarse.model
    model.save_pretrained(tmp_path / "model")
    for part in (coarse.tokenizer, coarse.image_processor):
        part.save_pretrained(tmp_path / "model")
    given = {"training__learning_rate": 2e-5, "training__max_steps": 1, **change}
    raw = changed(ab_recipe, model__path=str(tmp_path / "model"), **given)
    raw["data"]["val_jsonl"] = None

    sent = [caution.line() for caution in cautions("stage2_ab", raw)]
    with opened(new_run(raw)) as attempt:
        result = stage2_run(attempt)

    assert [alert["text"] for alert in result["alerts"]] == sent
    assert [alert["code"] for alert in result["alerts"]] == ["UPDATES_ROUNDED"] * heard
    assert all("at learning_rate 2e-05 round to nothing there" in line for line in sent)


# --- bad input ---


def start(raw: Recipe, new_run: NewRun) -> None:
    with opened(new_run(raw)) as attempt:
        stage2_run(attempt)


def write_record(folder: Path, **change: Any) -> str:
    """A JSONL of one record, changed; a key with None is left out."""
    tiny_vl_image = folder / "a.png"
    if not tiny_vl_image.exists():
        from PIL import Image  # noqa: PLC0415 - only here

        Image.new("RGB", (64, 64)).save(tiny_vl_image)
    record = {
        "images": ["a.png"],
        "objects": [{"desc": "red box", "bbox_2d": [1, 2, 3, 4]}],
        "width": 64,
        "height": 64,
    } | change
    path = folder / "data.jsonl"
    path.write_text(json.dumps({k: v for k, v in record.items() if v is not None}) + "\n")
    return str(path)


def drawn(folder: Path, name: str, count: int) -> Path:
    """Records with pictures of their own."""
    return shapes.write(folder, name, shapes.distinct(count, 12, shapes.Style()), shapes.Style())


def picture_of(data: Path, line: int) -> Path:
    """The picture of one record."""
    record = json.loads(data.read_text().splitlines()[line - 1])
    return data.parent / str(record["images"][0])


def test_a_record_of_ms_swift_trains_as_it_is(
    ab_recipe: Recipe, new_run: NewRun, tmp_path: Path
) -> None:
    """Boxes in pixels, a picture named in the text, no width and no height."""
    path = Path(write_record(tmp_path))
    turns = [
        {"role": "user", "content": "<image>Locate every object."},
        {"role": "assistant", "content": "<ref-object><bbox>"},
    ]
    objects = {"ref": ["red box"], "bbox": [[0, 0, 32, 64]]}
    record = {"messages": turns, "images": ["a.png"], "objects": objects}
    path.write_text(json.dumps(record) + "\n")

    start(changed(ab_recipe, data__train_jsonl=str(path), training__max_steps=1), new_run)


@pytest.mark.parametrize(("most", "tokens"), [(64 * 64, 16), (32 * 32, 4)])
def test_pictures_keep_to_the_pixels_that_the_config_allows(
    most: int, tokens: int, ab_recipe: Recipe, new_run: NewRun, tmp_path: Path
) -> None:
    """In training and in every checkpoint, which says so to whoever loads it."""
    path = write_record(tmp_path)
    run = new_run(
        changed(
            ab_recipe,
            data__train_jsonl=path,
            data__val_jsonl=path,
            model__max_pixels=most,
            training__max_steps=1,
        )
    )
    with opened(run) as attempt:
        stage2_run(attempt)

    saved = load(str(folder_of(run, 1)), dtype="auto", attn_implementation="sdpa")
    assert saved.image_processor.get_number_of_image_patches(64, 64) // saved.merge_area == tokens
    assert saved.image_processor.size["longest_edge"] == most


@pytest.mark.parametrize(
    ("pixels", "message"),
    [
        ({"model__max_pixels": 100}, "model.max_pixels 100 is less than the 256"),
        ({"model__max_pixels": 2000, "model__min_pixels": 3000}, "is more than max_pixels 2000"),
    ],
)
def test_pixels_that_leave_no_picture_are_refused(
    pixels: dict[str, Any], message: str, ab_recipe: Recipe, new_run: NewRun
) -> None:
    with pytest.raises(NightlaneError, match=message):
        start(changed(ab_recipe, **pixels), new_run)


def test_an_adapter_as_the_model_is_refused_with_the_command_that_merges_it(
    ab_recipe: Recipe, new_run: NewRun, tmp_path: Path, vl_folder: Path
) -> None:
    """A stage 1 by LoRA leaves a folder without a model; the remedy is run as it is written."""
    base = load(str(vl_folder), dtype="auto", attn_implementation="sdpa")
    within = opening.LANGUAGE_MODEL
    adapted = attach_zero(base.model, rank=2, alpha=4, seed=3, base=str(vl_folder), within=within)
    adapter, whole = tmp_path / "adapter", tmp_path / "whole"
    adapted.save_pretrained(adapter)
    raw = changed(ab_recipe, model__path=str(adapter), training__max_steps=1)

    with pytest.raises(ConfigError, match="is an adapter, and no whole model") as caught:
        validate("stage2_ab", raw)
    (problem,) = caught.value.problems
    command = problem.remedy.removeprefix("merge it into its base: ").partition(";")[0]
    *start_with, module, word, checkpoint, _ = shlex.split(command)

    assert (*start_with, module) == ("python", "-m", "engine")
    assert main([word, checkpoint, str(whole)]) == 0
    start(changed(raw, model__path=str(whole)), new_run)


def test_a_kernel_that_is_not_there_is_no_fault_of_the_models_folder(
    ab_recipe: Recipe, new_run: NewRun
) -> None:
    """What is missing, and which setting does without it."""
    raw = changed(ab_recipe, model__attn_implementation="flash_attention_2")

    with pytest.raises(ModelError, match="flash-attn is not installed") as caught:
        start(raw, new_run)

    assert "set model.attn_implementation: sdpa" in str(caught.value)
    assert "name a folder" not in str(caught.value)


def write_elsewhere(folder: Path) -> str:
    """A record with a picture that nobody else has."""
    (folder / "elsewhere").mkdir()
    return write_record(folder / "elsewhere")


BAD_RECORDS = [
    ({"objects": [{"desc": "a", "poly": [1, 2, 3, 4, 5, 6]}]}, "only geometry, not poly"),
    ({"objects": [{"desc": "a", "bbox_2d": [3, 2, 1, 4]}]}, "is out of order"),
    ({"objects": [{"desc": "a", "bbox_2d": [1, 2, 1000, 4]}]}, r"bbox_2d\[2\] 1000 is outside"),
    ({"objects": [{"desc": "\ud83d", "bbox_2d": [1, 2, 3, 4]}]}, "remove the lone surrogate"),
    ({"objects": None}, "objects is not a list"),
    ({"images": ["gone.png"]}, "gone.png does not exist"),
    ({"images": ["a\0b/c.png"]}, "is no path"),
    ({"images": ["\ud83d.png"]}, "correct the path"),
    ({"images": []}, "name a picture"),
    ({"width": 0}, "width 0 is no size"),
    ({"width": 10**50}, "width is no size of a picture"),
    ({"width": float("nan")}, "NaN stands in it"),
    ({"messages": ["?"]}, "give it a role and a content"),
    ({"messages": [{"role": "user", "content": "\ud83d"}]}, "remove the lone surrogate"),
    ({"messages": [{"role": "user", "content": 5}]}, r"messages\[0\].content is neither text"),
    ({"messages": [{"role": "user", "content": ["?"]}]}, "nor a list of parts"),
    ({"messages": [{"role": "user"}]}, r"messages\[0\].content is neither text"),
]


@pytest.mark.parametrize(("change", "message"), BAD_RECORDS)
def test_a_bad_record_is_refused_at_enqueue_with_line_field_and_remedy(
    change: dict[str, Any], message: str, ab_recipe: Recipe, tmp_path: Path
) -> None:
    """Not at two in the morning."""
    path = write_record(tmp_path, **change)

    with pytest.raises(ConfigError, match=message) as caught:
        validate("stage2_ab", changed(ab_recipe, data__train_jsonl=path))

    assert str(caught.value).startswith("data.train_jsonl: data.jsonl line 1: ")


def test_records_behind_the_limit_and_of_an_editor_on_windows_do_no_harm(
    ab_recipe: Recipe, tmp_path: Path
) -> None:
    """What is not trained on is not judged; a byte order mark is no part of the first record."""
    path = Path(write_record(tmp_path))
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().rstrip() + b"\r\n\r\n{\r\n")

    validate("stage2_ab", changed(ab_recipe, data__val_jsonl=str(path), data__val_limit=1))
    with pytest.raises(ConfigError, match=r"data\.jsonl line 3: record is not JSON"):
        validate("stage2_ab", changed(ab_recipe, data__val_jsonl=str(path)))


def test_a_record_spoiled_in_the_queue_stops_the_run_in_one_line(
    ab_recipe: Recipe, new_run: NewRun, tmp_path: Path
) -> None:
    """What held at enqueue may have been written over since."""
    run = new_run(changed(ab_recipe, data__train_jsonl=write_record(tmp_path)))
    write_record(tmp_path, objects=None)

    with pytest.raises(ConfigError, match="line 1: objects is not a list"), opened(run):
        pass


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([{"type": "image"}, {"type": "image"}], "ask for 2 pictures, images has 1"),
        ("<image> and <image>", "ask for 2 pictures, images has 1"),
    ],
)
def test_turns_that_ask_for_other_pictures_stop_the_run(
    content: Any, message: str, ab_recipe: Recipe, new_run: NewRun, tmp_path: Path
) -> None:
    """A picture that no turn names stands in front of the question; one too many is a slip."""
    path = write_record(tmp_path, messages=[{"role": "user", "content": content}])

    with pytest.raises(ConfigError, match=rf"data\.train_jsonl: data\.jsonl line 1: .*{message}"):
        start(changed(ab_recipe, data__train_jsonl=path), new_run)


def test_turns_that_the_models_template_refuses_stop_the_run_with_their_line(
    ab_recipe: Recipe, new_run: NewRun, tmp_path: Path, vl_folder: Path
) -> None:
    """Many templates know some roles and no others."""
    model = Path(shutil.copytree(vl_folder, tmp_path / "model"))
    (model / "chat_template.jinja").write_text("{{ raise_exception('only user and assistant') }}")
    path = write_record(tmp_path, messages=[{"role": "tool", "content": "?"}])
    raw = changed(ab_recipe, data__train_jsonl=path, data__val_jsonl=None)
    del raw["data"]["val_limit"]

    with pytest.raises(ConfigError, match=r"line 1: messages are refused .*: only user and"):
        start(changed(raw, model__path=str(model)), new_run)


@pytest.mark.parametrize("text", ["", "\n\n"])
def test_an_empty_data_set_is_refused_with_its_remedy(
    text: str, ab_recipe: Recipe, tmp_path: Path
) -> None:
    """Empty lines are no records."""
    path = tmp_path / "none.jsonl"
    path.write_text(text)

    with pytest.raises(ConfigError, match=r"none\.jsonl: records are none") as caught:
        validate("stage2_ab", changed(ab_recipe, data__train_jsonl=str(path)))
    assert "write one JSON object a line" in str(caught.value)


def test_an_unreadable_picture_stops_the_run(
    ab_recipe: Recipe, new_run: NewRun, tmp_path: Path
) -> None:
    """A file that is no picture is named with its record."""
    path = write_record(tmp_path)
    (tmp_path / "a.png").write_bytes(b"no picture")

    with pytest.raises(ConfigError, match=r"line 1: images\[0\] .*cannot be read"):
        start(changed(ab_recipe, data__train_jsonl=path), new_run)


def test_all_that_cannot_be_learnt_is_found_before_the_first_step(
    ab_recipe: Recipe,
    new_run: NewRun,
    events: Events,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Not at the hour of the night at which the schedule comes to it, and not one at a time."""
    train, report = drawn(tmp_path / "t", "train", 6), drawn(tmp_path / "r", "report", 2)
    spoilt = [picture_of(train, 3), picture_of(train, 6), picture_of(report, 2)]
    for picture in spoilt:
        picture.write_bytes(picture.read_bytes()[:-40])
    raw = changed(ab_recipe, data__train_jsonl=str(train), data__report_jsonl=str(report))
    run = new_run(raw)

    with pytest.raises(ConfigError) as caught, opened(run) as attempt:
        stage2_run(attempt)

    first, second = caught.value.problems
    assert (first.field, second.field) == ("data.train_jsonl", "data.report_jsonl")
    assert "line 3: images[0]" in first.problem
    assert "(and 1 more of its 6 records, each in the log)" in first.problem
    assert "truncated" in first.problem
    assert "more" not in second.problem
    log = capfd.readouterr().err
    assert all(str(picture) in log for picture in spoilt)
    assert not run.checkpoints.exists()
    assert {event["type"] for event in events(run)} == {"started", "progress"}


def test_boxes_of_an_upright_picture_over_one_that_lies_are_said(
    ab_recipe: Recipe, new_run: NewRun, events: Events, tmp_path: Path
) -> None:
    """A camera writes a turned picture and a tag; whoever drew the boxes saw it upright."""
    path = write_record(tmp_path, width=64, height=128)
    run = new_run(changed(ab_recipe, data__train_jsonl=path, training__max_steps=1))

    with opened(run) as attempt:
        result = stage2_run(attempt)

    [said] = [note["text"] for note in events(run, "note") if note["code"] == "SHAPE_DIFFERS"]
    assert "1 of the 1 records in data.train_jsonl" in said
    assert "data.jsonl line 1: 64 × 128 in the record, 64 × 64 in the picture" in said
    assert result["alerts"] == [{"code": "SHAPE_DIFFERS", "step": 0, "text": said}]


def test_a_run_says_when_its_boxes_look_like_pixels(
    ab_recipe: Recipe, new_run: NewRun, tmp_path: Path
) -> None:
    """It would learn places that nobody meant."""
    box = {"desc": "red box", "bbox_2d": [1, 2, 63, 64]}
    path = write_record(tmp_path, objects=[box] * 100)
    run = new_run(changed(ab_recipe, data__train_jsonl=path, training__max_steps=1))

    with opened(run) as attempt:
        result = stage2_run(attempt)

    [alert] = result["alerts"]
    assert (alert["code"], alert["step"]) == ("PIXEL_BOXES", 0)
    assert "data.train_jsonl holds 100 boxes" in alert["text"]


@pytest.mark.requirement("AB-26")
@pytest.mark.parametrize(("packing", "b_ratio", "fits"), [(1, 0.5, 0), (1, 0.0, 1), (0, 0.5, 1)])
def test_a_pack_without_room_for_the_longest_rollout_is_refused_before_the_first_step(
    packing: int, b_ratio: float, fits: int, ab_recipe: Recipe, new_run: NewRun
) -> None:
    """Only where rollouts are packed."""
    raw = changed(
        ab_recipe,
        global_max_length=400,
        custom__extra__rollout_matching__max_new_tokens=390,
        stage2_ab__schedule__b_ratio=b_ratio,
        training__packing=bool(packing),
        training__per_device_train_batch_size=1,
        training__max_steps=1,
        data__val_jsonl=None,
    )

    with nullcontext() if fits else pytest.raises(ConfigError, match="behind a rollout of 390"):
        start(raw, new_run)


def test_a_record_longer_than_the_model_may_read_is_named(
    ab_recipe: Recipe, new_run: NewRun
) -> None:
    """Nothing is cut off silently."""
    raw = changed(ab_recipe, global_max_length=40)

    with pytest.raises(ConfigError, match="raise global_max_length 40"):
        start(raw, new_run)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"training__optim": "adamw_8bit"}, "bitsandbytes"),
        ({"training__optim_args": "x"}, "unpack"),
        ({"training__report_to": "comet_ml"}, "comet"),
        ({"training__lr_scheduler_type": "cosine_with_min_lr"}, "min_lr"),
        ({"training__lr_scheduler_type": "warmup_stable_decay"}, "num_decay_steps"),
    ],
)
def test_what_transformers_cannot_honour_here_ends_a_run_before_it_begins(
    change: dict[str, Any], why: str, ab_recipe: Recipe, new_run: NewRun
) -> None:
    """Not behind the warm-up, and not as a crash."""
    run = new_run(changed(ab_recipe, **change))

    with pytest.raises(ConfigError, match=rf"training: is refused by Transformers: .*{why}"):
        start(changed(ab_recipe, **change), lambda _: run)

    assert not run.checkpoints.exists()


@pytest.mark.parametrize("settings", [{"patience": 0}, '{"patience": 0}'])
def test_a_schedule_that_follows_the_score_holds_a_rise_for_good(
    settings: object,
    ab_recipe: Recipe,
    new_run: NewRun,
    events: Events,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The learning rate is cut where F1 stays, at once, and not where it rises."""
    scores = iter((0.1, 0.2, 0.3, 0.3, 0.3))
    evaluate = RolloutEval.__call__

    def scored(self: RolloutEval, records: list[Record]) -> Evaluation:
        found = evaluate(self, records)
        return replace(found, metrics=found.metrics | {"f1": next(scores)})

    monkeypatch.setattr(RolloutEval, "__call__", scored)
    raw = changed(
        ab_recipe,
        training__lr_scheduler_type="reduce_lr_on_plateau",
        training__lr_scheduler_kwargs=settings,
        training__eval_steps=1,
        training__max_steps=4,
    )
    run = new_run(raw)

    with opened(run) as attempt:
        stage2_run(attempt)

    assert values(events(run), "train/learning_rate") == {1: 1e-3, 2: 1e-3, 3: 1e-3, 4: 1e-4}


def test_arguments_of_transformers_may_be_set_null_or_as_they_are_anyway(
    ab_recipe: Recipe, new_run: NewRun
) -> None:
    """A recipe of another trainer brings them along."""
    given = {
        "training__remove_unused_columns": False,
        "training__dataloader_pin_memory": True,
        "training__eval_steps": None,
        "training__ddp_timeout": None,
        "training__per_device_eval_batch_size": None,
        "training__num_train_epochs": 3,
        "training__max_steps": 1,
    }
    start(changed(ab_recipe, **given), new_run)


def test_a_tokenizer_without_coord_tokens_is_refused_with_the_command_that_adds_them(
    ab_recipe: Recipe, new_run: NewRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the command does: its output trains."""
    from engine.models import coord_tokens  # noqa: PLC0415 - the command itself

    with monkeypatch.context() as patch:
        patch.setattr("engine.contract.stage2.coords.BIN_COUNT", 0)
        tiny_vl.save(tmp_path / "plain", 0, hidden=64, layers=2)
    raw = changed(ab_recipe, model__path=str(tmp_path / "plain"), training__max_steps=1)

    with pytest.raises(TokenizerError, match=r"python -m engine\.models\.coord_tokens"):
        start(raw, new_run)

    assert coord_tokens.main([str(tmp_path / "plain"), str(tmp_path / "whole")]) == 0
    start(changed(raw, model__path=str(tmp_path / "whole")), new_run)


@pytest.mark.requirement("AB-01")
@pytest.mark.parametrize(
    ("change", "field", "remedy"),
    [
        ({"training__fp16": True}, "training.fp16", "bfloat16"),
        ({"training__deepspeed": "x.json"}, "training.deepspeed", "remove it"),
        ({"training__eval_strategy": "epoch"}, "training.eval_strategy", "set eval_steps"),
        ({"training__save_strategy": "best"}, "training.save_strategy", "set save_steps"),
        ({"training__use_cpu": True}, "training.use_cpu", "remove it"),
        ({"training__do_train": False}, "training.do_train", "remove it"),
        ({"training__do_eval": False}, "training.do_eval", "data.val_jsonl"),
        ({"training__use_cache": True}, "training.use_cache", "remove it"),
        ({"training__torch_compile_mode": "default"}, "training.torch_compile_mode", "remove it"),
        ({"training__label_names": ["x"]}, "training.label_names", "remove it"),
        ({"training__run_name": "mine"}, "training.run_name", "set report_to"),
        (
            {"training__dataloader_prefetch_factor": 2},
            *("training.dataloader_prefetch_factor", "set dataloader_num_workers"),
        ),
        (
            {
                "custom__extra__rollout_matching__rollout_backend": "vllm",
                "custom__extra__rollout_matching__vllm": {
                    "mode": "server",
                    "server": {"base_url": "http://127.0.0.1:8000", "group_port": 51216},
                },
                "stage2_ab__channel_b__enable_pipeline": True,
            },
            "stage2_ab.channel_b.enable_pipeline",
            "it needs training.packing: true",
        ),
        ({"training__max_steps": -1}, "training.max_steps", "set max_steps"),
        (
            {"training__dataloader_persistent_workers": True},
            "training.dataloader_persistent_workers",
            "set dataloader_num_workers",
        ),
        ({"training__learning_rate": "2e-4"}, "training.learning_rate", "without quotes"),
        ({"training__eval_delay": 7}, "training.eval_delay", "lower it, or leave it out"),
        (
            {"training__lr_scheduler_type": "greedy", "data__val_jsonl": None},
            *("training.lr_scheduler_type", "name validation records"),
        ),
        (
            {
                "training__lr_scheduler_type": "reduce_lr_on_plateau",
                "training__lr_scheduler_kwargs": '{"mode": "min"}',
            },
            *("training.lr_scheduler_kwargs", "set mode: max"),
        ),
        ({"training__output_dir": "elsewhere"}, "training.output_dir", "remove it"),
        ({"training__max_steps": None}, "training.max_steps", "set max_steps"),
        ({"model__path": None}, "model.path", "name a Qwen3-VL folder"),
        ({"model__path": "/no/such/folder"}, "model.path", "name a model folder"),
        ({"model__path": "embedded:gpt"}, "model.path", "known: embedded:qwen3-vl-tiny"),
        ({"model__path": "embedded:qwen3-vl-tiny"}, "warmup", "begins with random weights"),
        ({"data__train_jsonl": "/no/such.jsonl"}, "data.train_jsonl", "name a readable JSONL file"),
        ({"data__train_jsonl": None}, "data.train_jsonl", "embedded:shapes"),
        ({"stage2_ab__b_ration": 1}, "stage2_ab.b_ration", "is not a setting"),
        ({"warmup": {}, "data__val_jsonl": None}, "data.val_jsonl", "warmup stops at an F1"),
    ],
)
def test_a_config_that_cannot_run_is_refused_at_the_door(
    change: dict[str, Any], field: str, remedy: str, ab_recipe: Recipe
) -> None:
    """Field and remedy, before a job is queued."""
    with pytest.raises(ConfigError) as caught:
        validate("stage2_ab", changed(ab_recipe, **change))

    lines = {problem.field: problem.line() for problem in caught.value.problems}
    assert remedy in lines[field]


@pytest.mark.requirement("AB-01")
def test_an_argument_that_says_what_is_done_anyway_may_stand_there(
    ab_recipe: Recipe, new_run: NewRun
) -> None:
    """Configs are written out by other programs, with every default of Transformers in them."""
    defaults = {
        field.name: field.default
        for field in dataclasses.fields(TrainingArguments)
        if field.name in DECIDED and isinstance(field.default, bool | int | float | str)
    }
    different = {"eval_on_start", "disable_tqdm", "do_train", "do_eval", "eval_strategy"}
    said = {f"training__{name}": defaults[name] for name in defaults.keys() - different}
    raw = changed(
        ab_recipe,
        **said,
        training__do_train=True,
        training__do_eval=True,
        training__eval_strategy="steps",
        training__metric_for_best_model="eval_rollout_f1",
        training__max_steps=1,
    )

    validate("stage2_ab", raw)
    start(raw, new_run)


def test_the_example_is_a_config_that_can_be_queued_here() -> None:
    """It needs no download, and packs nothing that it cannot check."""
    path = Path(__file__).resolve().parents[3] / "examples" / "stage2_ab.yaml"

    config = validate("stage2_ab", parse_yaml(path.read_text("utf-8")))

    assert isinstance(config, Stage2Config)
    assert (config.model.path, config.data.train_jsonl) == (
        "embedded:qwen3-vl-tiny",
        "embedded:shapes",
    )


def test_a_model_folder_is_named_by_its_whole_path(
    ab_recipe: Recipe, vl_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A drain may run in another directory; a hub id stays as it is."""
    monkeypatch.chdir(vl_folder.parent)

    relative = validate("stage2_ab", changed(ab_recipe, model__path=vl_folder.name))
    hub = validate("stage2_ab", changed(ab_recipe, model__path="org/model"))

    assert isinstance(relative, Stage2Config)
    assert isinstance(hub, Stage2Config)
    assert relative.model.path == str(vl_folder)
    assert hub.model.path == "org/model"


def test_every_long_phase_says_how_far_it_is(
    ab_recipe: Recipe, new_run: NewRun, events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a sign of life is due at once: what it says, n of N, in the run's own events."""
    monkeypatch.setattr("engine.run.session.SIGN_OF_LIFE_S", 0.0)
    run = new_run(changed(ab_recipe, training__max_steps=2))

    with opened(run) as attempt, telling_of_life(attempt.still_works):
        stage2_run(attempt)

    parts = [one["part"] for one in events(run, "progress") if one.get("part")]
    assert {"decode", "parse", "match", "encode", "learn", "evaluate: decode"} <= {
        part["doing"] for part in parts
    }
    assert all(0 <= part["done"] <= part["of"] for part in parts if part["of"] is not None)
    assert any(part["left_s"] is not None for part in parts)
