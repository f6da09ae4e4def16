"""The three real seams without a run directory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.contract.kinds.rl_run import RLRunConfig
from engine.data.rows import load
from engine.rewards.adapter import RewardAdapter, load_verifier
from engine.rl import GRPOConfig, RLLoop, gpu_seams


@pytest.mark.requirement("RL-08")
def test_the_real_seams_drive_a_loop_and_lift_its_heldout_score(recipe: dict[str, Any]) -> None:
    """Sampler, trainer and gate share one policy: what is trained is what is sampled."""
    config = RLRunConfig(**recipe | {"max_steps": 12, "lr": 1e-2})
    reward = RewardAdapter(load_verifier("exact"))

    loop = RLLoop(config, reward, load(config.data), **gpu_seams(config)._asdict())
    loop.run()

    assert loop.selected_heldout_score is not None
    assert loop.selected_heldout_score > loop.heldout_scores[0] + 0.5


@pytest.mark.requirement("RL-08")
def test_a_plain_config_gets_lora_seams(base_folder: Path) -> None:
    """The published loop's config is enough; the rest are the defaults of `rl_run`."""
    seams = gpu_seams(GRPOConfig(base=str(base_folder), lora_rank=4))

    names = list(seams.trainer.policy.trainable())  # type: ignore[attr-defined]

    assert names
    assert all("lora_" in name for name in names)


@pytest.mark.requirement("RL-08")
@pytest.mark.parametrize("missing", ["torch", "peft"])
def test_without_the_engine_extra_the_error_names_it(missing: str) -> None:
    """One RLLoopError that says what is missing and what to install."""
    script = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "from engine.rl import GRPOConfig, RLLoopError, gpu_seams\n"
        "try: gpu_seams(GRPOConfig(base='embedded:qwen3-tiny'))\n"
        "except RLLoopError as error: print(error)\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert missing in done.stdout
    assert "pip install 'nightlane[engine]'" in done.stdout
    assert len(done.stdout.splitlines()) == 1
