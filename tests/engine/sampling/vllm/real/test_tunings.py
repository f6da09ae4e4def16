"""Whole runs whose weights no adapter holds: a real vLLM is sent them merged, step after step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.contract.events import Event
from engine.contract.run_dir import ExitCode
from tests.engine import killing
from tests.engine.conftest import add_attempt
from tests.engine.sampling.vllm.conftest import serving_by
from tests.engine.sampling.vllm.test_runs import wide_base

__all__ = ["wide_base"]

pytestmark = pytest.mark.vllm
Events = Callable[..., list[Event]]


@pytest.mark.timeout(1200)
@pytest.mark.requirement("RM-06")
@pytest.mark.parametrize("tuning", ["full", "dora"] if killing.LONG_FORM else ["full"])
def test_a_run_of_any_tuning_samples_by_its_merged_weights(
    recipe: dict[str, Any], wide_base: Path, tmp_path: Path, events: Events, tuning: str
) -> None:
    """In memory, proven after each update: the sampler's log-probabilities are the trainer's."""
    served = {
        "base": str(wide_base),
        "tuning": tuning,
        "rollout_backend": "vllm",
        "max_steps": 2,
        "heldout_every": 2,
        "lr": 1e-3,
    }
    run = add_attempt(tmp_path, recipe | served, serving=serving_by("vllm"))

    assert killing.attempt(run.root, within_s=900) == ExitCode.DONE

    syncs = [e for e in events(run, "span") if e["name"] == "weight-sync"]
    assert {e["mode"] for e in syncs} == {"full"}
    assert min(e["bytes"] for e in syncs) > 1_000_000
    told = [e["values"] for e in events(run, "metric")]
    gaps = [one["train/sampler_gap_max"] for one in told if "train/sampler_gap_max" in one]
    moved = [one["sync/moved"] for one in told if "sync/moved" in one]
    assert len(gaps) == len(moved) == 2
    assert max(gaps) < 1e-4 < min(moved)
