"""Our verifiers against what the published harnesses said (tools/harness_agreement.py)."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.contract.tasks import TASKS
from engine.contract.verifiers import verifier_names
from engine.rewards.adapter import RewardAdapter, load_verifier
from tools.harness_agreement import MUTATIONS, human_eval_rows

FOLDER = Path(__file__).parent / "agreement"
VERIFIERS = sorted(file.stem for file in FOLDER.glob("*.jsonl"))
KNOWN: list[dict[str, Any]] = tomllib.loads((FOLDER / "disagreements.toml").read_text("utf-8"))[
    "known"
]
FEWEST_ROWS = {"mbpp": 30, "reasoning_gym": 100}


def _rows(verifier: str) -> list[dict[str, Any]]:
    lines = (FOLDER / f"{verifier}.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


def _pairs(verifier: str, rows: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """HumanEval's rows stay in their package: recorded are task and mutation."""
    if verifier != "humaneval":
        yield from ((row["completion"], row["expected"]) for row in rows)
        return
    tasks = {task["task_id"]: task for task in human_eval_rows()}
    for row in rows:
        task = tasks[row["expected"]]
        fields = {name: task[name] for name in ("prompt", "test", "entry_point")}
        yield MUTATIONS[row["completion"]](task["canonical_solution"]), json.dumps(fields)


def _known(row: dict[str, Any]) -> dict[str, Any] | None:
    for entry in KNOWN:
        if (
            entry["verifier"] == row["verifier"]
            and entry.get("case", row["case"]) == row["case"]
            and entry.get("contains", "") in row["completion"]
        ):
            return entry
    return None


@pytest.mark.requirement("EX-05")
@pytest.mark.parametrize("verifier", VERIFIERS)
def test_a_verifier_pays_what_the_harness_it_is_named_after_pays(verifier: str) -> None:
    """Every recorded row, but for the listed disagreements, each of which still exists."""
    rows = _rows(verifier)
    verdicts = RewardAdapter(load_verifier(verifier)).judge_all(list(_pairs(verifier, rows)))

    surprises, used = [], []
    for row, verdict in zip(rows, verdicts, strict=True):
        if verdict.reward == row["reward"]:
            continue
        entry = _known(row)
        if entry is None or verdict.reward != entry.get("ours", verdict.reward):
            surprises.append((row["case"], row["completion"][:80], row["expected"][:60], verdict))
        else:
            used.append(entry["because"])

    assert surprises == []
    assert len(rows) >= FEWEST_ROWS.get(verifier, 200)
    assert 0 < sum(row["reward"] for row in rows) < len(rows)
    stale = [e for e in KNOWN if e["verifier"] == verifier and e["because"] not in used]
    assert stale == [], "a listed disagreement that is none any more"


@pytest.mark.requirement("EX-05")
def test_every_verifier_of_a_published_harness_is_compared_with_it() -> None:
    """Those without recorded rows are ours alone, or asked beside lm_eval itself, whose metrics
    they bear (tests/engine/evaluate/harness)."""
    alone = {"exact", "format", "gsm8k_any", "gsm8k_last_number", "json_schema", "regex"}
    alone |= {task.verifier for named in TASKS.values() for task in named.filters} - set(VERIFIERS)

    assert set(VERIFIERS) == set(verifier_names()) - alone


@pytest.mark.requirement("EX-05")
def test_ifeval_rows_cover_all_25_kinds_and_both_answers_of_each() -> None:
    """A kind that was only ever followed, or never, would show no agreement."""
    followed: dict[str, set[float]] = {}
    for row in _rows("ifeval"):
        name = json.loads(row["expected"])["instruction_id_list"][0]
        followed.setdefault(name, set()).add(row["reward"])

    assert len(followed) == 25
    assert all(rewards == {0.0, 1.0} for rewards in followed.values())


@pytest.mark.requirement("EX-05")
def test_apps_rows_cover_both_forms_and_every_share() -> None:
    """Whole programs and calls, of which none, some and all tests pass."""
    rows = {"stdin": set[float](), "call": set[float]()}
    for row in _rows("apps"):
        rows["call" if "fn_name" in json.loads(row["expected"]) else "stdin"].add(row["reward"])

    assert all({0.0, 1 / 3, 2 / 3, 1.0} <= shares for shares in rows.values())


def test_every_row_names_the_package_and_version_that_judged_it() -> None:
    """No invented gold."""
    sources = {row["source"] for name in VERIFIERS for row in _rows(name)}

    assert all(any(part[:1].isdigit() or "@" in part for part in s.split()) for s in sources)


def test_the_recorded_rows_stay_small() -> None:
    """They travel with every clone."""
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) < 2_000_000
