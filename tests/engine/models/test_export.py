"""A text run's checkpoint as one plain model folder: the adapter's logits, whole or not at all."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

from engine.__main__ import main
from engine.contract.run_dir import RunDir
from engine.models import lora
from engine.models.policy import build
from engine.run import checkpoint as checkpoints

STEP = 3
IDS = torch.arange(12)[None]


@pytest.fixture
def adapter(recipe: dict[str, Any], base_folder: Path, new_attempt: Callable[..., RunDir]) -> Path:
    """The checkpoint of a run of low rank whose adapter has moved."""
    run = new_attempt(recipe | {"tuning": "lora", "lr": 1e-3})
    run.split.write_text("{}")
    policy = build(str(base_folder), seed=0)
    policy.model = lora.attach_zero(policy.model, rank=2, alpha=8, seed=1, base=str(base_folder))
    with torch.no_grad():
        for name, parameter in policy.model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.2)
    folder = run.checkpoint(STEP)
    policy.save(folder)
    checkpoints.seal(folder, {}, step=STEP)
    return folder


def logits(model: Any) -> torch.Tensor:
    with torch.inference_mode():
        found: torch.Tensor = model.eval()(input_ids=IDS).logits
    return found


def adapted(base: Path, checkpoint: Path) -> Any:
    with lora.without_deprecations():
        plain = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
        return PeftModel.from_pretrained(plain, str(checkpoint / "adapter"))


def export(checkpoint: Path, target: Path) -> int:
    return main(["export", str(checkpoint), str(target)])


def test_a_merged_folder_loads_with_transformers_alone_and_gives_the_adapters_logits(
    adapter: Path, base_folder: Path, tmp_path: Path
) -> None:
    """And not those of the base."""
    assert export(adapter, tmp_path / "merged") == 0

    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    assert not (tmp_path / "merged/adapter_config.json").exists()
    assert AutoTokenizer.from_pretrained(tmp_path / "merged").encode("7")
    assert torch.allclose(logits(merged), logits(adapted(base_folder, adapter)), atol=1e-5)
    plain = AutoModelForCausalLM.from_pretrained(base_folder)
    assert not torch.allclose(logits(merged), logits(plain), atol=1e-2)


def test_it_is_written_in_the_type_of_its_base(
    adapter: Path, base_folder: Path, tmp_path: Path
) -> None:
    """Merged in fp32 and rounded once: a base of 16 bit stays one."""
    AutoModelForCausalLM.from_pretrained(base_folder, dtype=torch.bfloat16).save_pretrained(
        base := tmp_path / "half"
    )
    AutoTokenizer.from_pretrained(base_folder).save_pretrained(base)
    job = adapter.parents[1] / "attempts/001/job.json"
    job.write_text(job.read_text("utf-8").replace(str(base_folder), str(base)), "utf-8")

    assert export(adapter, tmp_path / "merged") == 0

    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    assert merged.dtype == torch.bfloat16
    whole = adapted(base, adapter).merge_and_unload().state_dict()
    assert all(
        torch.equal(one, whole[name].bfloat16()) for name, one in merged.state_dict().items()
    )


@pytest.mark.parametrize("there", ["file", "full folder"])
def test_what_is_there_already_is_never_written_over(
    adapter: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], there: str
) -> None:
    """An empty folder is taken; any other name is refused, and stays as it is."""
    target = tmp_path / "taken"
    mine = target if there == "file" else target / "mine.txt"
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("mine")

    assert export(adapter, target) == 2

    assert "is not an empty folder" in capsys.readouterr().err
    assert mine.read_text() == "mine"
    (tmp_path / "empty").mkdir()
    assert export(adapter, tmp_path / "empty") == 0
    assert (tmp_path / "empty/config.json").is_file()


def _killed_while_saving(checkpoint: Path, target: Path) -> None:
    """In a child: its weights are on the disk, and nothing else is any more."""

    def die(*_: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    checkpoints.make_durable = die  # type: ignore[assignment]
    export(checkpoint, target)


def test_a_killed_merge_leaves_no_folder_and_the_next_one_is_whole(
    adapter: Path, tmp_path: Path
) -> None:
    """What it left beside the folder is taken away by the next."""
    target = tmp_path / "merged"
    child = multiprocessing.get_context("fork").Process(
        target=_killed_while_saving, args=(adapter, target)
    )
    child.start()
    child.join(60)

    assert child.exitcode == -signal.SIGKILL
    assert not target.exists()
    assert (tmp_path / ".merged.part/model/model.safetensors").is_file()
    assert export(adapter, target) == 0
    assert [path.name for path in tmp_path.glob(".merged*")] == []


def test_a_harmed_checkpoint_is_refused_by_name(
    adapter: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What came out would load, and answer wrongly."""
    weights = adapter / "adapter" / lora.WEIGHTS
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")

    assert export(adapter, tmp_path / "merged") == 2

    assert "is damaged" in capsys.readouterr().err
    assert [*tmp_path.glob("*merged*")] == []
