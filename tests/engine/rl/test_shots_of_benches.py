"""Benches that show worked examples, in whole runs."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.contract.errors import RLLoopError
from engine.contract.events import Event
from engine.contract.kinds.rl_run import RLRunConfig
from engine.contract.run_dir import RunDir
from engine.contract.templates.table import TEMPLATES
from engine.data.heldout import bench_rows
from engine.data.shots import FEWSHOT_SEED
from engine.rl import parts
from engine.rl.rl_run import run as rl_run
from engine.run.session import Attempt
from engine.run.stop import Aborted, rl_hooks
from tests.engine.chat_model import save_chat_model

NewAttempt = Callable[..., RunDir]
OpenNewest = Callable[[RunDir], Attempt]
Events = Callable[..., list[Event]]


def _write(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return str(path)


def _sums(prefix: str, rows: int, **more: Any) -> list[dict[str, Any]]:
    return [
        {"id": f"{prefix}{i}", "prompt": f"What is {i} + {prefix}?", "answer": str(i), **more}
        for i in range(rows)
    ]


@pytest.fixture
def shown(tmp_path: Path) -> dict[str, Any]:
    """A run that asks in a form of its own, and two benches that are asked with examples."""
    worked = [
        {**row, "solution": f"It is {row['answer']}.\n#### {row['answer']}"}
        for row in _sums("p", 12)
    ]
    return {
        "base": str(save_chat_model(tmp_path / "base", window=1_200)),
        "tuning": "full",
        "data": {"source": _write(tmp_path / "rows.jsonl", _sums("t", 40))},
        "verifier": "gsm8k_flexible",
        "heldout": [
            {
                "name": "cot",
                "source": _write(tmp_path / "cot.jsonl", _sums("c", 6)),
                "template": "gsm8k_cot",
                "shots": 2,
            },
            {
                "name": "drawn",
                "source": _write(tmp_path / "drawn.jsonl", _sums("d", 6)),
                "template": "gsm8k",
                "shots": 3,
                "shots_from": _write(tmp_path / "pool.jsonl", worked),
            },
        ],
        "corpus_min": 20,
        "report_min": 2,
        "tasks_per_step": 2,
        "group_k": 2,
        "max_new_tokens": 4,
        "max_steps": 2,
        "heldout_every": 1,
        "save_every": 1,
        "optim": {"precision": "fp32"},
        "force_headroom": True,
        "threads": 1,
    }


def _prompts(raw: dict[str, Any], name: str) -> list[str]:
    config = RLRunConfig.model_validate(raw)
    policy = parts.build_policy(config)
    bench = next(one for one in config.heldout if one.name == name)
    rows = bench_rows(config, bench)
    builder = parts.build_prompts(config, policy, bench=bench)
    return [builder.text(row) for row in rows]


@pytest.mark.requirement("EX-11")
def test_a_bench_with_fixed_examples_is_asked_as_the_harness_asks(shown: dict[str, Any]) -> None:
    examples = TEMPLATES["gsm8k_cot"].shots[:2]
    before = "".join(f"Q: {question}\nA: {answer}\n\n" for question, answer in examples)

    asked = _prompts(shown, "cot")

    assert asked == [f"{before}Q: What is {i} + c?\nA:" for i in range(6)]


@pytest.mark.requirement("EX-11")
def test_drawn_examples_are_the_harness_s_whatever_part_of_the_bench_is_scored(
    shown: dict[str, Any],
) -> None:
    """Its stream is `Random(1234).sample(training rows, n)`, once a row in the rows' order."""
    stream = random.Random(FEWSHOT_SEED)
    expected = []
    for i in range(6):
        places = stream.sample(range(12), 3)
        before = "".join(
            f"Question: What is {p} + p?\nAnswer: It is {p}.\n#### {p}\n\n" for p in places
        )
        expected.append(f"{before}Question: What is {i} + d?\nAnswer:")

    assert _prompts(shown, "drawn") == expected
    shown["heldout"][1]["limit"] = 4
    assert _prompts(shown, "drawn") == expected[:4]


@pytest.mark.requirement("EX-22")
def test_a_run_says_its_benches_with_their_shots(
    shown: dict[str, Any], new_attempt: NewAttempt, open_newest: OpenNewest, events: Events
) -> None:
    """In the result, and in the prompt that is said as it begins; series keep the plain name."""
    run = new_attempt(shown)

    result = rl_run(open_newest(run))

    _, cot, drawn = result["benches"]
    assert (cot["name"], cot["label"], cot["shots"]) == ("cot", "cot (2-shot)", 2)
    assert (drawn["label"], drawn["template"]) == ("drawn (3-shot)", "gsm8k")
    assert (drawn["temp"], drawn["max_new_tokens"]) == (0.2, 4)
    said = [e["text"] for e in events(run, "note") if e["code"] == "PROMPT_EXAMPLE"]
    assert [text.partition(":")[0] for text in said[1:]] == ["cot (2-shot)", "drawn (3-shot)"]
    assert "Q: There are 15 trees" in said[1]
    gates = {e["split"]: e.get("label") for e in events(run, "gate")}
    assert gates == {
        "select": None,
        "report": None,
        "cot": "cot (2-shot)",
        "drawn": "drawn (3-shot)",
    }


def test_how_a_bench_is_asked_is_in_its_hash(
    shown: dict[str, Any], new_attempt: NewAttempt, open_newest: OpenNewest
) -> None:
    shown |= {"max_steps": 1}
    hashes = []
    for i, change in enumerate(
        [{}, {"shots": 1}, {"temp": 0.5}, {"max_new_tokens": 3}, {"template": "minerva_math"}]
    ):
        raw = shown | {"heldout": [shown["heldout"][0] | change]}
        run = new_attempt(raw, name=f"run{i}")
        [_, bench] = rl_run(open_newest(run))["benches"]
        hashes.append(bench["hash"])
        assert json.loads(run.split.read_bytes())["benches"] == {"cot": bench["hash"]}

    assert len(set(hashes)) == len(hashes)


def test_a_stopped_run_goes_on_with_the_same_examples(
    shown: dict[str, Any], new_attempt: NewAttempt, open_newest: OpenNewest
) -> None:
    whole = rl_run(open_newest(new_attempt(shown, name="whole")))
    polls = iter(range(1_000))
    run = new_attempt(shown, name="stopped")
    with pytest.raises(Aborted), rl_hooks(should_abort=lambda: next(polls) > 12):
        rl_run(open_newest(run))
    again = rl_run(open_newest(new_attempt(shown, name="stopped")))

    assert again["benches"] == whole["benches"]


def test_examples_that_changed_under_a_run_are_refused(
    shown: dict[str, Any], tmp_path: Path, new_attempt: NewAttempt, open_newest: OpenNewest
) -> None:
    """Rows behind those that train do not matter, unless they may be shown."""
    source = tmp_path / "rows.jsonl"
    shown["heldout"][1]["shots_from"] = str(source)
    polls = iter(range(1_000))
    run = new_attempt(shown)
    with pytest.raises(Aborted), rl_hooks(should_abort=lambda: next(polls) > 12):
        rl_run(open_newest(run))

    _write(source, _sums("t", 90))

    with pytest.raises(RLLoopError, match="a bench is not asked as when this run began"):
        rl_run(open_newest(new_attempt(shown)))


def test_a_row_without_room_behind_its_examples_is_named(
    shown: dict[str, Any], tmp_path: Path, new_attempt: NewAttempt, open_newest: OpenNewest
) -> None:
    """The bare question would fit."""
    shown["base"] = str(save_chat_model(tmp_path / "narrow", window=160))

    with pytest.raises(
        RLLoopError, match=r"no room for .*'cot/c0' \(251 tokens\).* with fewer shots"
    ):
        rl_run(open_newest(new_attempt(shown)))


def test_a_pool_that_is_too_small_is_named_by_the_bench(
    shown: dict[str, Any], tmp_path: Path
) -> None:
    shown["heldout"][1]["shots_from"] = _write(tmp_path / "few.jsonl", _sums("p", 2))

    with pytest.raises(RLLoopError, match=r"heldout\.1\.shots: cannot be drawn from 2 rows"):
        _prompts(shown, "drawn")
