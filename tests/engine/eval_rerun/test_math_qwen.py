"""`examples/benches/math_qwen.yaml`: a bench that is a file; its user adds the rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.__main__ import main
from engine.contract.events import Event
from engine.contract.run_dir import ExitCode, RunDir
from tests.engine.evaluate.harness.chain_model import chain_policy

FILE = Path(__file__).parents[3] / "examples/benches/math_qwen.yaml"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A model that answers 5, whatever is asked."""
    policy = chain_policy(": 5", window=8192)
    policy.model.save_pretrained(tmp_path / "base")
    policy.tokenizer.save_pretrained(tmp_path / "base")
    return tmp_path / "base"


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """The answer is 5 at level 1, and at level 2 it is not."""
    path = tmp_path / "math.jsonl"
    found = [
        {
            "problem": f"What is ${i}$?",
            "solution": f"It is $\\boxed{{{5 + i % 2}}}$.",
            "level": f"Level {1 + i % 2}",
        }
        for i in range(6)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in found), "utf-8")
    return path


def test_it_is_scored_by_level_behind_four_worked_answers(
    base: Path,
    rows: Path,
    new_attempt: Callable[..., RunDir],
    events: Callable[..., list[Event]],
) -> None:
    """Two judges of the same completions; the box that was not written is the strict one's 0."""
    bench = {"bench": str(FILE), "source": str(rows)}
    run = new_attempt({"base": str(base), "benches": [bench], "threads": 1}, kind="eval_rerun")

    assert main(["run", str(run.root)]) == ExitCode.DONE

    first, strict = (event["score"] for event in events(run, "score"))
    assert (first["bench"], first["filter"], first["shots"]) == ("math_qwen", "math", 4)
    assert (first["score"], strict["score"]) == (0.5, 0.0)
    assert [(part["name"], part["score"]) for part in first["parts"]] == [
        ("Level 1", 1.0),
        ("Level 2", 0.0),
    ]
    [file] = run.rollouts.glob("heldout-math_qwen*.jsonl")
    line = json.loads(file.read_text("utf-8").splitlines()[0])
    read = str(chain_policy(": 5").tokenizer.decode(line["prompt_ids"]))
    assert read.count("The answer is ") == read.count("Question: ") - 1 == 4
    assert read.endswith("Question: What is $0$?\nAnswer:")
    assert line["finish_reason"] == "stop"
