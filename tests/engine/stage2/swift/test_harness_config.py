"""The config of a trainer inside ms-swift: what the file says, what ms-swift says, and no setting
by both. Needs no ms-swift.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.contract.errors import ConfigError
from engine.stage2.swift.harness_config import SETTING, harness_config, named_config, require_plain
from tests.engine.stage2.conftest import AB, changed


def said(**more: Any) -> SimpleNamespace:
    """ms-swift's training arguments, as far as they are read."""
    given = {
        "per_device_train_batch_size": 2,
        "per_device_eval_batch_size": 3,
        "gradient_accumulation_steps": 5,
        "seed": 11,
        "metric_for_best_model": "loss",
        "world_size": 1,
        "deepspeed": None,
        "fsdp": [],
    }
    return SimpleNamespace(**given | more)


def template(**more: Any) -> SimpleNamespace:
    return SimpleNamespace(**{"packing": False, "padding_free": False} | more)


@pytest.mark.requirement("AB-01", "AB-02")
def test_batches_and_seed_are_ms_swifts_own() -> None:
    config = harness_config(AB, said())

    assert config.rollouts_per_step(1) == 10
    assert (config.seed, config.best_by) == (11, "rollout_f1")
    assert harness_config(AB, said(metric_for_best_model="eval_detection_map")).best_by == (
        "detection_map"
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model__path": "x"}, "model: is not read inside ms-swift; .* give it to swift sft"),
        ({"training__learning_rate": 1}, r"training\.learning_rate: is an argument of ms-swift"),
        (
            {"custom__extra__rollout_matching__rollout_backend": "vllm"},
            "rollout_backend: is not run inside ms-swift.*; set hf",
        ),
        ({"training": "packed"}, "training: is no section .*; write packing: true"),
        ({"stage2_ab__schedule__b_rato": 1}, "did you mean b_ratio"),
        ({"training__packing": True}, r"training\.per_device_train_batch_size: is 1 with"),
    ],
)
def test_what_ms_swift_says_or_cannot_do_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        harness_config(changed(dict(AB), **change), said())


@pytest.mark.parametrize(
    ("args", "made_by", "message"),
    [
        (said(), template(packing=True), "--packing: would pack rows before there are rollouts"),
        (said(world_size=2), template(), "--model: is shared out"),
        (said(deepspeed={"zero": 3}), template(), "--model: is shared out"),
    ],
)
def test_packed_rows_and_a_model_in_parts_are_refused(
    args: SimpleNamespace, made_by: SimpleNamespace, message: str
) -> None:
    require_plain(said(), template())

    with pytest.raises(ConfigError, match=message):
        require_plain(args, made_by)


def test_the_file_is_named_in_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(SETTING, raising=False)
    with pytest.raises(ConfigError, match="NIGHTLANE_STAGE2: is not set; set NIGHTLANE_STAGE2"):
        named_config(said())

    monkeypatch.setenv(SETTING, str(tmp_path / "none.yaml"))
    with pytest.raises(
        ConfigError, match=r"NIGHTLANE_STAGE2: cannot be read: No such file .*none.yaml"
    ):
        named_config(said())
