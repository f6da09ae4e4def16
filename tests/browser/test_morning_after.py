"""Tasks of the morning after, as somebody does them who has read no manual."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from playwright.sync_api import expect
from transformers import AutoModelForCausalLM

from engine.contract.run_dir import RunDir
from engine.models import lora, tiny
from engine.models.policy import build
from engine.run import checkpoint as checkpoints
from tests.app.night import night, queue
from tests.browser.conftest import House, Visit

pytestmark = pytest.mark.browser
Visits = Callable[..., Visit]
SECONDS = 60
COPIED = "navigator.clipboard.readText()"


def published(run: RunDir, base: Path, step: int) -> None:
    """A LoRA checkpoint as an engine leaves it, and a later one that nobody chose."""
    run.split.write_text("{}")
    for number in (step, step + 10):
        policy = build(str(base), seed=0)
        policy.model = lora.attach_zero(policy.model, rank=2, alpha=8, seed=1, base=str(base))
        with torch.no_grad():
            for name, parameter in policy.model.named_parameters():
                if "lora_B" in name:
                    parameter.fill_(0.01 * number)
        policy.save(run.checkpoint(number))
        checkpoints.seal(run.checkpoint(number), {}, step=number)
    run.selected.symlink_to(Path("checkpoints") / run.checkpoint(step).name)


def logits(folder: Path, adapter: Path | None = None) -> torch.Tensor:
    model = AutoModelForCausalLM.from_pretrained(folder)
    model = model if adapter is None else lora.merged(model, adapter)
    with torch.inference_mode():
        found: torch.Tensor = model.eval()(input_ids=torch.arange(12)[None]).logits
    return found


@pytest.mark.requirement("UI-13")
def test_the_chosen_checkpoint_is_found_and_merged_from_the_run_page(
    visit: Visits, house: House, tmp_path: Path
) -> None:
    """Opened, copied, pasted into a shell: the folder loads and answers as the chosen step does."""
    base = tmp_path / "base"
    tiny.build_model(seed=3).save_pretrained(base)
    tiny.build_tokenizer().save_pretrained(base)
    number = queue(house.db, "night one", base=str(base), tuning="lora", lr=1e-3)
    with night(house.db) as lane:
        attempt = lane.start()
        published(attempt.run, base, 20)
        attempt.finish(verdict="gain", selected_step=20, published_step=20)
    seen = visit(house, permissions=["clipboard-read", "clipboard-write"])
    began = time.monotonic()

    page = seen.open(f"/jobs/{number}")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Gain: step 20 solves 25.8 points")
    box = page.get_by_role("region", name="Checkpoint, step 20, an adapter")
    box.get_by_role("button", name="copy the path").click()
    expect(box.get_by_role("button", name="copy the path")).to_have_text("copied")
    path = Path(page.evaluate(COPIED))
    box.get_by_role("button", name="copy the command to merge it").click()
    expect(box.get_by_role("button", name="copy the command to merge it")).to_have_text("copied")
    command = page.evaluate(COPIED)
    found_s = time.monotonic() - began
    environment = os.environ | {
        "NIGHTLANE_DATA_DIR": str(house.db.settings.data_dir),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    subprocess.run(shlex.split(command), cwd=tmp_path, env=environment, check=True)

    [merged] = (tmp_path / "models").iterdir()
    assert path == (RunDir(path.parents[2]).checkpoint(20) / "adapter")
    assert torch.allclose(logits(merged), logits(base, path), atol=1e-5)
    assert not torch.allclose(logits(merged), logits(base), atol=1e-2)
    assert found_s < SECONDS
    assert seen.complaints == []
