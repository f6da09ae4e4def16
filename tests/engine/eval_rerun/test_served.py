"""Checkpoints that a server answers for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.__main__ import main
from engine.contract.errors import ConfigError
from engine.contract.events import Event
from engine.contract.registry import get_kind, validate
from engine.contract.run_dir import ExitCode, RunDir
from engine.contract.serving import Serving
from engine.models import lora
from engine.models.policy import build
from tests.engine.conftest import add_attempt
from tests.engine.sampling.vllm.conftest import OFTEN, chat_base, serving_by

__all__ = ["chat_base"]

Events = Callable[..., list[Event]]


@pytest.fixture(scope="module", params=OFTEN)
def serving(request: pytest.FixtureRequest) -> Serving:
    """By the one server or the other."""
    return serving_by(request.param)


@pytest.fixture(scope="module")
def adapter(chat_base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A LoRA of the base that changes its answers."""
    policy = build(str(chat_base), 0)
    model = lora.attach_zero(policy.model, base=str(chat_base), rank=4, alpha=8, seed=1)
    generator = torch.Generator().manual_seed(0)
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            parameter.data.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    folder = tmp_path_factory.mktemp("adapter")
    lora.save(model, folder)
    return folder


@pytest.fixture
def asked(adapter: Path) -> dict[str, Any]:
    return {
        "base": str(adapter),
        "benches": [
            {
                "name": "sums",
                "source": "embedded:word_problems",
                "verifier": "gsm8k",
                "limit": 6,
                "max_new_tokens": 12,
            }
        ],
        "threads": 1,
    }


@pytest.mark.timeout(1200)
@pytest.mark.requirement("EX-13")
def test_a_server_answers_as_the_model_itself_does(
    asked: dict[str, Any], serving: Serving, tmp_path: Path, events: Events
) -> None:
    """Greedy: the same ids, so the same score; the server is brought the adapter and proven."""
    own = add_attempt(tmp_path / "own", asked, kind="eval_rerun")
    served = add_attempt(
        tmp_path / "served", asked | {"rollout_backend": "vllm"}, kind="eval_rerun", serving=serving
    )

    assert [main(["run", str(run.root)]) for run in (own, served)] == [ExitCode.DONE] * 2

    assert drawn(served) == drawn(own)
    assert [e["score"]["score"] for e in events(served, "score")] == [
        e["score"]["score"] for e in events(own, "score")
    ]
    assert len([e for e in events(served, "note") if e["code"] == "SERVING"]) == 1
    assert not served.serving.exists()


def test_who_is_served_may_have_to_start_the_program_unless_others_run_the_servers(
    asked: dict[str, Any],
) -> None:
    """What the lane looks at before it starts the job."""
    kind = get_kind("eval_rerun")
    external = {"server": {"base_url": "http://127.0.0.1:1", "group_port": 1}}

    for said, serves, needs in (
        ({}, False, False),
        ({"rollout_backend": "vllm"}, True, True),
        ({"rollout_backend": "vllm", "vllm": external}, True, False),
    ):
        config = validate("eval_rerun", asked | said)
        assert (kind.serves(config), kind.needs_server_program(config)) == (serves, needs)


def test_a_draw_that_a_server_cannot_tell_the_numbers_of_is_refused(asked: dict[str, Any]) -> None:
    """As for a run."""
    with pytest.raises(ConfigError, match="sampling: reshapes the draw"):
        validate("eval_rerun", asked | {"rollout_backend": "vllm", "sampling": {"top_p": 0.9}})


def drawn(run: RunDir) -> dict[str, list[int]]:
    [path] = run.rollouts.glob("heldout-sums-*.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return {line["id"]: line["completion_ids"] for line in lines}
