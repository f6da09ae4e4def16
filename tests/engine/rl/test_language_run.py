"""A whole `rl_run` on a chat model as they are on the hub, small and with random weights."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.contract.errors import RLLoopError
from engine.contract.run_dir import RunDir
from engine.rl import rl_run as entry
from engine.sampling import hf
from engine.sampling.seeds import key
from tests.engine.chat_model import END, STOP, save_chat_model

NewAttempt = Callable[..., RunDir]
Events = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="module")
def chat_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_chat_model(tmp_path_factory.mktemp("chat"))


@pytest.fixture
def chat_recipe(chat_folder: Path) -> dict[str, Any]:
    """Two steps with LoRA on word problems; a random model earns what form alone pays."""
    return {
        "base": str(chat_folder),
        "lora_rank": 4,
        "data": {"source": "embedded:word_problems", "limit": 110},
        "prompting": {"skip_chat_template": False, "system_prompt": "Solve it."},
        "verifier": "gsm8k",
        "format": {"pattern": "[0-9]", "reward": 0.1, "composition": "added", "reward_until": 1},
        "tasks_per_step": 4,
        "group_k": 4,
        "temp": 1.0,
        "max_new_tokens": 12,
        "max_steps": 2,
        "heldout_every": 2,
        "force_headroom": True,
        "threads": 1,
    }


def rollouts(run: RunDir) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for path in sorted(run.rollouts.glob("train-*.jsonl"))
        for line in path.read_text("utf-8").splitlines()
    ]


def notes(events: Events, run: RunDir) -> dict[str, str]:
    return {event["code"]: event["text"] for event in events(run, "note")}


@pytest.mark.requirement("EX-04")
def test_a_chat_model_goes_from_its_template_to_a_verdict(
    chat_recipe: dict[str, Any],
    chat_folder: Path,
    new_attempt: NewAttempt,
    open_newest: Any,
    events: Events,
) -> None:
    """Every part on ids of a real tokenizer; sampler and trainer read the same numbers."""
    from transformers import AutoTokenizer  # noqa: PLC0415 - used here alone

    run = new_attempt(chat_recipe)

    result = entry.run(open_newest(run))

    tokenizer: Any = AutoTokenizer.from_pretrained(chat_folder)
    said = rollouts(run)
    ends = set(tokenizer.convert_tokens_to_ids([END, STOP]))
    assert len(said) == 2 * 4 * 4
    for row in said:
        asked = tokenizer.decode(row["prompt_ids"])
        assert asked.startswith("<|im_start|>system\nSolve it.<|im_end|>\n<|im_start|>user\n")
        assert asked.endswith(f"{row['prompt']}<|im_end|>\n<|im_start|>assistant\n")
        assert (row["completion_ids"][-1] in ends) is not row["truncated"]
    trained = [e["values"] for e in events(run, "metric") if "train/loss" in e["values"]]
    assert trained
    assert all(values["train/sampler_gap_max"] < 1e-4 for values in trained)
    assert result["steps"] == 2


def test_rows_that_leave_no_room_are_named_before_anything_trains(
    chat_recipe: dict[str, Any],
    new_attempt: NewAttempt,
    open_newest: Any,
    events: Events,
    tmp_path: Path,
) -> None:
    """Refused, with nothing sampled and no split stored; or dropped by choice, and it goes on."""
    tight = chat_recipe | {"base": str(save_chat_model(tmp_path / "narrow", window=64))}
    refused = new_attempt(tight, name="refused")
    with pytest.raises(RLLoopError, match=r"in the window of 64: '.*' \(\d+ tokens\)"):
        entry.run(open_newest(refused))
    prompting = chat_recipe["prompting"] | {"too_long": "drop"}
    dropping = new_attempt(tight | {"prompting": prompting}, name="dropping")

    entry.run(open_newest(dropping))

    split = json.loads(dropping.split.read_bytes())
    kept = [id_ for part in ("train", "select", "report") for id_ in split[part]]
    assert not refused.split.exists()
    assert not refused.rollouts.exists()
    assert 0 < len(kept) < 110
    assert notes(events, dropping)["PROMPTS_DROPPED"].startswith(
        f"left out: {110 - len(kept)} of 110 rows"
    )
    assert all(len(row["prompt_ids"]) + 12 <= 64 for row in rollouts(dropping))


@pytest.mark.requirement("EX-03")
def test_one_seed_for_all_requests_is_alarmed_in_the_run(
    recipe: dict[str, Any],
    new_attempt: NewAttempt,
    open_newest: Any,
    events: Events,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The defect itself, put in; and without it the same run stays silent."""
    short = recipe | {"max_steps": 1, "heldout_every": 1}
    honest = new_attempt(short, name="honest")
    entry.run(open_newest(honest))
    monkeypatch.setattr(hf, "key", lambda *_: key("one seed for everybody"))
    broken = new_attempt(short, name="broken")

    entry.run(open_newest(broken))

    assert "DUPLICATE_DRAWS" not in notes(events, honest)
    assert "repeats its random numbers" in notes(events, broken)["DUPLICATE_DRAWS"]
    [values] = [e["values"] for e in events(broken, "metric") if "pool/score" in e["values"]]
    assert values["rollout/duplicates"] == pytest.approx(7 / 8)
