"""The embedded task and the corpora beside it."""

from __future__ import annotations

import json
from pathlib import Path

from engine.contract.sources.mixture import DataConfig
from engine.contract.sources.questions import EMBEDDED_TASKS
from engine.data.addition import SOURCE, rows
from engine.data.rows import Question, load


def test_every_pair_stands_once_with_its_sum() -> None:
    """10,000 zero-padded pairs, as many as the config's check counts on."""
    everything = rows()

    assert len(everything) == EMBEDDED_TASKS[SOURCE] == 10_000
    assert len({prompt for _, prompt, _ in everything}) == 10_000
    for _, prompt, answer in everything:
        a, b = prompt.rstrip("=").split("+")
        assert (len(prompt), len(answer)) == (6, 3)
        assert int(answer) == int(a) + int(b)


def test_a_jsonl_file_becomes_questions_named_by_id_or_line(tmp_path: Path) -> None:
    """Numbers are answers too; the limit counts lines."""
    path = tmp_path / "mine.jsonl"
    lines = [{"q": "1+1", "answer": 2, "id": "a"}, {"q": "2+2", "answer": "4"}, {"q": "x"}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))

    bench = load(DataConfig(source=str(path), prompt_field="q", limit=2))

    assert bench.name == "mine"
    assert bench.questions == [Question("a", "1+1", "2"), Question("2", "2+2", "4")]


def test_a_row_may_bring_a_worked_answer(tmp_path: Path) -> None:
    """Under `solution`, or a key of the config's; whoever brings none goes without."""
    path = tmp_path / "mine.jsonl"
    lines = [
        {"prompt": "1+1", "answer": "2", "solution": "so 2", "cot": "one and one is 2"},
        {"prompt": "2+2", "answer": "4", "solution": ""},
        {"prompt": "3+3", "answer": "6", "solution": 6},
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))

    usual, other = (
        [
            q.solution
            for q in load(DataConfig.model_validate({"source": str(path), **more})).questions
        ]
        for more in ({}, {"solution_field": "cot"})
    )

    assert usual == ["so 2", None, None]
    assert other == ["one and one is 2", None, None]
