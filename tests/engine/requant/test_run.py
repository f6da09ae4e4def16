"""`requant`: merged, quantized, read back, and scored beside the 16-bit model."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from engine.__main__ import main
from engine.contract.errors import ConfigError
from engine.contract.events import Event
from engine.contract.kinds.requant import RequantConfig
from engine.contract.registry import validate
from engine.contract.run_dir import COMPLETE, ExitCode, RunDir
from engine.contract.scores import BenchScore
from engine.models import lora
from engine.models.policy import build
from engine.requant.rows import unit_of

NewAttempt = Callable[..., RunDir]
Events = Callable[..., list[Event]]


def start(run: RunDir) -> int:
    return main(["run", str(run.root)])


def told(events: list[Event]) -> str:
    return str(next(e["text"] for e in events if e["type"] == "note" and e["level"] == "error"))


def table(run: RunDir, events: Events) -> dict[str, Any]:
    found: dict[str, Any] = events(run)[-1]["result"]["requant"]
    return found


@pytest.mark.requirement("JB-11")
def test_each_format_of_what_a_run_published_is_scored_on_its_report_rows(
    full_run: RunDir, new_attempt: NewAttempt, events: Events
) -> None:
    """The run's own frozen rows, row by row beside the 16-bit model; each score is an event."""
    run = new_attempt(
        {"base": str(full_run.root), "formats": ["int8", "fp8"], "threads": 1}, kind="requant"
    )

    assert start(run) == ExitCode.DONE

    report = json.loads(full_run.split.read_bytes())["report"]
    scores = [BenchScore.model_validate(event["score"]) for event in events(run, "score")]
    step = scores[0].step
    assert step > 0
    assert [one.checkpoint for one in scores] == [
        f"step {step} bf16", f"step {step} int8", f"step {step} fp8"
    ]  # fmt: skip
    assert {(one.bench, one.run, one.n) for one in scores} == {("run-7", 7, len(report))}
    assert len({one.bench_hash for one in scores}) == 1
    for one in scores:
        path = run.rollouts / f"heldout-{one.split}-{one.step:06d}.jsonl"
        lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        assert [line["id"] for line in lines] == report
        assert sum(line["success"] for line in lines) / len(lines) == one.score
        assert lines[0]["judged"]["exact"]["success"] == lines[0]["success"]
    first, *formats = table(run, events)["formats"]
    assert first["score"] == events(full_run)[-1]["result"]["heldout_after"]
    for one in formats:
        assert one["bytes"] < first["bytes"]
        assert one["left"] == ["model.embed_tokens.weight"]
        low, high = one["ci95"]
        assert low <= one["lift"] <= high
        assert one["gained"] + one["lost"] <= one["paired"] == len(report)
    speeds = [one["tokens_per_s"] for one in (first, *formats)]
    assert speeds[0] > 0
    assert speeds[1] > 0
    assert torch.cuda.is_available() or speeds[2] is None  # a CPU computes in no float8


def test_an_adapter_is_merged_into_its_base_before_anything_is_quantized(
    lora_run: RunDir, new_attempt: NewAttempt
) -> None:
    """The 16-bit model has the adapter in its weights, rounded once; nothing of PEFT is left."""
    run = new_attempt(
        {"base": str(lora_run.root), "formats": ["int8"], "threads": 1}, kind="requant"
    )

    assert start(run) == ExitCode.DONE

    config = RequantConfig.model_validate(run.attempt(1).read_job().config)
    assert config.adapter_init is not None
    base = build(config.base, 0).model
    wanted = lora.merged(base, Path(config.adapter_init)).state_dict()
    merged = run.checkpoint(0) / "model"
    assert not (merged / "adapter_config.json").exists()
    found = AutoModelForCausalLM.from_pretrained(merged, dtype="auto").state_dict()
    for name, tensor in wanted.items():
        assert torch.equal(found[name], tensor.to(torch.bfloat16)), name
    before = build(config.base, 0).model.state_dict()
    assert any(not torch.equal(wanted[name], before[name]) for name in wanted)


def test_the_bench_that_decided_a_run_is_asked_as_the_run_asked_it(
    base_recipe: dict[str, Any], new_attempt: NewAttempt, tmp_path: Path
) -> None:
    """Its report half, its limit and its judge; the own rows of the run stay out."""
    rows = [{"id": f"e{i}", "prompt": f"{i}+", "answer": "8"} for i in range(100, 160)]
    (tmp_path / "e.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    bench = {"name": "eights", "source": str(tmp_path / "e.jsonl"), "verifier": "gsm8k_last_number"}
    decides = {"heldout": [bench | {"max_new_tokens": 2}], "decide": "eights", "max_steps": 1}
    run = new_attempt(base_recipe | decides, name="8")
    assert start(run) == ExitCode.DONE

    found = unit_of(RequantConfig.model_validate({"base": str(run.root), "formats": ["int8"]}))

    report = json.loads(run.split.read_bytes())["report"]
    assert found.name == "run-8"
    assert [row.id for row in found.rows] == report
    assert all(id_.startswith("eights/") for id_ in report)
    assert (found.max_new_tokens, found.worth) == (2, [("gsm8k_last_number", "success")])


def test_rows_of_ones_own_may_be_asked(
    requant_recipe: dict[str, Any], new_attempt: NewAttempt, events: Events
) -> None:
    """Of a model that no run here trained."""
    run = new_attempt(requant_recipe | {"formats": ["int8", "int4"]}, kind="requant")

    assert start(run) == ExitCode.DONE

    found = table(run, events)
    assert (found["of"], found["bench"]) == (None, "sevens")
    assert {one["n"] for one in found["formats"]} == {120}
    assert found["formats"][2]["group_size"] == 128
    assert [e["score"]["checkpoint"] for e in events(run, "score")][1].endswith(" int8")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"formats": ["int9"]}, "formats.*'int9' is no format .*; did you mean int8"),
        ({"formats": []}, "formats"),
        ({"formats": ["int8", "int8"]}, "formats: is named twice"),
        ({"formats": ["gguf_q8_0"], "base": "embedded:qwen3-tiny"}, "not written for embedded"),
        ({"formats": ["w8a8"]}, "needs llmcompressor.*NIGHTLANE_QUANT_PYTHON.*make setup-quant"),
        ({"bench": None}, "bench: is missing, and base is no checkpoint of an rl_run"),
        ({"bench": {"name": "b", "source": "x.jsonl"}}, "bench.verifier: is missing"),
    ],
)
def test_what_cannot_be_is_refused_before_a_job_is_made(
    change: dict[str, Any],
    said: str,
    requant_recipe: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By field and value, with what to do."""
    monkeypatch.delenv("NIGHTLANE_QUANT_PYTHON", raising=False)

    with pytest.raises(ConfigError, match=said):
        validate("requant", requant_recipe | change)


def test_a_torn_checkpoint_is_refused_by_name(
    full_run: RunDir, new_attempt: NewAttempt, events: Events, tmp_path: Path
) -> None:
    """One without its last file at once, one with a changed byte before its model is loaded."""
    copied = RunDir(tmp_path / "runs" / "7")
    shutil.copytree(full_run.root, copied.root, symlinks=True)
    checkpoint = copied.selected.resolve()
    recipe = {"base": str(checkpoint), "formats": ["int8"]}
    weights = next(checkpoint.rglob("*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
    run = new_attempt(recipe, kind="requant")

    assert start(run) == ExitCode.CONFIG
    assert "is damaged" in told(events(run))
    assert not (run.checkpoints / "step-000000").exists()

    (checkpoint / COMPLETE).unlink()
    with pytest.raises(ConfigError, match=r"no complete checkpoint: complete.json is missing"):
        validate("requant", recipe)


def test_an_adapter_of_another_base_is_refused_by_name(
    lora_run: RunDir,
    requant_recipe: dict[str, Any],
    new_attempt: NewAttempt,
    events: Events,
    tmp_path: Path,
) -> None:
    """Its matrices find no layer of their shape."""
    from tests.engine.requant.families import save_family  # noqa: PLC0415 - it loads a tokenizer

    other = save_family(tmp_path / "other", "qwen3", tied=True)
    adapter = lora_run.selected.resolve() / "adapter"
    recipe = requant_recipe | {"base": str(other), "adapter_init": str(adapter)}
    run = new_attempt(recipe, kind="requant")

    assert start(run) == ExitCode.CONFIG

    assert "adapter_init: does not fit the base" in told(events(run))
    assert list(run.checkpoints.glob("step-*")) == []


def test_a_disk_without_room_is_said_before_a_model_is_loaded(
    requant_recipe: dict[str, Any],
    new_attempt: NewAttempt,
    events: Events,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With what is needed and what is left."""
    run = new_attempt(requant_recipe, kind="requant")
    usage = shutil.disk_usage(run.root)._replace(free=10**5)
    monkeypatch.setattr("engine.requant.standing.shutil.disk_usage", lambda _: usage)

    assert start(run) == ExitCode.CONFIG

    assert "may need 0.00" in told(events(run))
    assert "make room, or name fewer formats" in told(events(run))
    assert "which has 0.0001 GB left" in told(events(run))
    assert not run.checkpoints.exists()
