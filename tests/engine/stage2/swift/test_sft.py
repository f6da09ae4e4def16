"""`swift sft` with the plugin: real commands, a real Qwen3-VL, raw records, real rollouts."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file

from engine.models.qwen3_vl import FORWARD_KEYS, load
from tests.engine.stage2.conftest import AB
from tests.engine.stage2.swift.conftest import (
    MATCHING,
    PLUGIN,
    REAL,
    ROOT,
    Child,
    arguments,
)

pytestmark = [pytest.mark.swift, pytest.mark.timeout(1800)]


def logged(output: Path, name: str) -> list[float]:
    """A series of ms-swift's own log, by step."""
    lines = (output / "logging.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    return [float(row[name]) for row in rows if name in row]


@pytest.mark.requirement("AB-01", "AB-02")
def test_both_channels_train_and_a_resumed_run_equals_an_unbroken_one(
    sft: Child, swift_rows: Path, tmp_path: Path
) -> None:
    """From ms-swift's own checkpoint, with its `--resume_from_checkpoint`."""
    whole, resumed = tmp_path / "out", tmp_path / "resumed"
    done = sft(AB, swift_rows)
    assert done.returncode == 0, done.stdout[-3000:]
    again = sft(
        AB,
        swift_rows,
        output_dir=resumed,
        resume_from_checkpoint=whole / "checkpoint-2",
    )
    assert again.returncode == 0, again.stdout[-3000:]

    assert logged(whole, "stage2/channel_a") == [1, 0, 1, 0]
    assert logged(whole, "stage2/channel_b") == [0, 1, 0, 1]
    assert logged(whole, "stage2/raw_rollouts") == [4, 4]
    assert logged(resumed, "train/loss") == logged(whole, "train/loss")[2:]
    names = {path.name for path in (whole / "checkpoint-4").iterdir()}
    assert names >= {
        *("model.safetensors", "optimizer.pt", "scheduler.pt", "trainer_state.json"),
        *("args.json", "tokenizer.json", "preprocessor_config.json"),
    }
    ours, theirs = (load_file(one / "checkpoint-4/model.safetensors") for one in (resumed, whole))
    assert all(torch.equal(value, theirs[name]) for name, value in ours.items())
    load(str(whole / "checkpoint-4"), dtype="float32", attn_implementation="sdpa")


@pytest.mark.requirement("RM-01", "AB-02")
def test_rollout_matching_trains_on_the_answer_alone_and_picks_by_rollouts(
    sft: Child, payload_rows: Path, tmp_path: Path
) -> None:
    """`assistant_payload` instead of `objects`; validation answers are rollouts too."""
    done = sft(
        MATCHING,
        payload_rows,
        val_dataset=f"{payload_rows}#4",
        eval_steps=2,
        remove_unused_columns="false",
    )

    assert done.returncode == 0, done.stdout[-3000:]
    output = tmp_path / "out"
    assert logged(output, "stage2/raw_rollouts") == [4, 4, 4, 4]
    assert len(logged(output, "loss/coord_w1")) == 4
    assert logged(output, "eval_rollout_pictures") == [4, 4]
    state = json.loads((output / "checkpoint-4/trainer_state.json").read_text())
    assert state["best_metric"] == max(logged(output, "eval_rollout_f1"))


@pytest.mark.requirement("AB-02")
def test_an_adapter_of_ms_swifts_learns_in_packs(
    sft: Child, swift_rows: Path, tmp_path: Path
) -> None:
    """`--tuner_type lora`; packs are made of rollouts, in the file's own words."""
    config = {**AB, "training": {"packing": True}, "global_max_length": 400}
    one = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 3}

    done = sft(config, swift_rows, tuner_type="lora", max_steps=2, **one)

    assert done.returncode == 0, done.stdout[-3000:]
    output = tmp_path / "out"
    assert logged(output, "packing/post_rollout_segments") == [3, 3]
    assert logged(output, "packing/post_rollout_packs") == [1, 1]
    assert (output / "checkpoint-2/adapter_model.safetensors").is_file()
    assert not (output / "checkpoint-2/model.safetensors").exists()


@pytest.fixture(scope="module")
def seen(
    model: Path,
    swift_rows: Path,
    surroundings: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Any]:
    """What a child saw of ms-swift's harness without the plugin, and with it."""
    folder = tmp_path_factory.mktemp("inside")
    (folder / "stage2.yaml").write_text(yaml.safe_dump(dict(AB)))
    (folder / "nothing.py").write_text("# ms-swift replaces some things for any plugin\n")
    short = {"max_steps": 2, "save_strategy": "no"}

    def plan(name: str, **more: Any) -> list[str]:
        return arguments(model, swift_rows, folder / name, **short, **more)

    ours = {"external_plugins": PLUGIN, "callbacks": "spy", "use_logits_to_keep": "true"}
    done = subprocess.run(
        [REAL or "", "-m", "tests.engine.stage2.swift.inside"],
        input=json.dumps(
            {
                "stock": plan("stock", external_plugins=folder / "nothing.py"),
                "ours": plan("ours", **ours),
                "streaming": plan("streaming", **ours, streaming="true"),
            }
        ),
        cwd=ROOT,
        env=surroundings | {"NIGHTLANE_STAGE2": str(folder / "stage2.yaml")},
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (line,) = [one for one in done.stdout.splitlines() if one.startswith("SEEN ")]
    found: dict[str, Any] = json.loads(line.removeprefix("SEEN "))
    return found


@pytest.mark.requirement("AB-02")
def test_ms_swifts_harness_constructs_the_trainer_on_its_own(seen: dict[str, Any]) -> None:
    """Ours in front, ms-swift's behind it; batches are the samples as they were read."""
    names = seen["trainer"]

    assert names[0] == "engine.stage2.swift.harness_trainer.SwiftStage2Trainer"
    assert names.index("engine.stage2.trainer.Stage2Trainer") < names.index(
        "swift.trainers.seq2seq_trainer.Seq2SeqTrainer"
    )
    assert seen["window"] == "Alternating"
    assert seen["samples"] == ["Record"]


@pytest.mark.requirement("AB-02")
def test_a_prompt_by_ms_swifts_template_is_the_chat_templates(seen: dict[str, Any]) -> None:
    """Token for token, and patch for patch of a picture that is not resized: rollouts compare."""
    assert (seen["same_prompt"], seen["same_patches"]) == (True, True)


@pytest.mark.requirement("AB-02", "AB-03")
def test_what_the_harness_adds_does_not_reach_the_model(seen: dict[str, Any]) -> None:
    """Rows with a channel, and `--use_logits_to_keep true`, in both channels."""
    assert {"input_ids", "inputs_embeds"} <= {*seen["forward_keys"]}
    assert {*seen["forward_keys"]} <= FORWARD_KEYS | {"use_cache"}
    assert seen["use_logits_to_keep"] is False


@pytest.mark.requirement("AB-02")
def test_the_plugin_patches_nothing(seen: dict[str, Any]) -> None:
    """ms-swift replaces much of Transformers' by itself; the plugin adds nothing to that."""
    assert seen["replaced"] == []


def test_rows_that_are_encoded_already_are_refused(seen: dict[str, Any]) -> None:
    assert "--dataset: is encoded already; leave out --streaming" in seen["refused"]
