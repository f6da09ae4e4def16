"""What a task of lm-evaluation-harness makes of a row: its columns, its question, its gold.

A row of any layout becomes the document that the task reads, by the task's own column names; from
that come the prompt and what verifiers expect, so that both runners ask and judge the same. What a
row lacks or has too much is said. Knows no lm_eval and no file.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from engine.contract.documents import UnreadableError, parse_json
from engine.contract.golds.boxes import last_boxed
from engine.contract.tasks import Task
from engine.contract.templates.table import TEMPLATES
from engine.contract.templates.template import PLACEHOLDER

Document = Mapping[str, Any]
"""A row by the task's own column names."""

_INSTRUCTIONS = tuple(
    TEMPLATES[name].question.removeprefix(PLACEHOLDER) for name in ("verl_gsm8k", "verl_math")
)


class TaskRow(Protocol):
    """What is read of a row: `Row` of a source and `Question` of the engine are such."""

    @property
    def id(self) -> str: ...
    @property
    def prompt(self) -> str: ...
    @property
    def answer(self) -> str: ...
    @property
    def solution(self) -> str | None: ...
    @property
    def columns(self) -> Mapping[str, Any]: ...


class TaskRowError(ValueError):
    """A row that the task cannot be made of: what is wrong with it."""


class Asked(NamedTuple):
    """A row as the task asks it."""

    document: Document
    prompt: str
    """The question, without the template."""
    gold: str
    """What its verifiers expect."""
    solution: str | None
    """What it shows as a worked answer."""


def asked_by(task: Task, row: TaskRow) -> Asked:
    """Raises TaskRowError, with the row's id, for a row that lacks what the task reads."""
    try:
        made = _MAKERS[task.layouts[0]](row)
    except TaskRowError as error:
        raise TaskRowError(f"row {row.id!r} of task {task.name}: {error}") from error
    if task.template.shows_gold:  # its worked examples are the bare answer, blanks with it
        return made._replace(gold=last_boxed(made.gold) or row.answer)
    return made


def changes(task: Task, rows: Iterable[TaskRow]) -> list[str]:
    """What was changed of rows to be asked by the task, a sentence each.

    Such as: `an instruction at the end of 60 of 60 prompts is left out: "Let's think …"`.
    """
    seen: Counter[str] = Counter()
    total = 0
    for row in rows:
        total += 1
        seen.update(_changed(task, row))
    return [what.format(n=n, total=total) for what, n in seen.items()]


def _changed(task: Task, row: TaskRow) -> Iterable[str]:
    _, instruction = _bare(row.prompt)
    if task.layouts[0] in {"gsm8k", "math"} and instruction:
        told = instruction.strip().replace("{", "{{").replace("}", "}}")
        yield f"an instruction at the end of {{n}} of {{total}} prompts is left out: {told}"
    if task.layouts[0] == "gsm8k" and not _has_hashes(row):
        yield "{n} of {total} rows have no worked answer: #### and the number stand for it"
    if task.layouts[0] == "math" and not _has_box(row):
        yield "{n} of {total} rows have no worked solution: the boxed answer stands for it"


def _bare(prompt: str) -> tuple[str, str]:
    """A prompt without the instruction that verl adds to it, and the instruction."""
    for instruction in _INSTRUCTIONS:
        if prompt.endswith(instruction):
            return prompt.removesuffix(instruction), instruction
    return prompt, ""


def _has_hashes(row: TaskRow) -> bool:
    return "####" in (row.solution or "")


def _has_box(row: TaskRow) -> bool:
    return "\\boxed" in (row.solution or "")


def _gsm8k(row: TaskRow) -> Asked:
    question, _ = _bare(row.prompt)
    worked = row.solution if row.solution and _has_hashes(row) else f"#### {row.answer}"
    return Asked({"question": question, "answer": worked}, question, worked, worked)


def _math(row: TaskRow) -> Asked:
    problem, _ = _bare(row.prompt)
    worked = row.solution if row.solution and _has_box(row) else f"$\\boxed{{{row.answer}}}$"
    return Asked({"problem": problem, "solution": worked}, problem, worked, worked)


def _ifeval(row: TaskRow) -> Asked:
    given = _gold(row, "instruction_id_list", "kwargs")
    key = row.columns.get("key", 0)
    document = {"key": key, "prompt": row.prompt, **given}
    return Asked(document, row.prompt, row.answer, None)


def _mbpp(row: TaskRow) -> Asked:
    """Three tests are shown and run, whatever else the row has."""
    tests = _gold(row, "test_list")["test_list"]
    text = row.columns.get("text", row.columns.get("prompt"))
    if not isinstance(text, str):
        raise TaskRowError("has no text; name rows with text and test_list")
    if not isinstance(tests, list) or len(tests) < 3:
        raise TaskRowError("has fewer than three tests, and the task shows three")
    shown = [str(test) for test in tests[:3]]
    question = f"{text} Your code should pass these tests:\n\n" + "\n".join(shown)
    document = {"text": text, "code": row.solution or "", "test_list": shown}
    return Asked(document, question, json.dumps({"test_list": shown}), row.solution)


def _humaneval(row: TaskRow) -> Asked:
    document = _gold(row, "prompt", "test", "entry_point")
    return Asked(document, str(document["prompt"]), row.answer, row.solution)


def _gold(row: TaskRow, *names: str) -> dict[str, Any]:
    """Of a gold that is an object."""
    try:
        value = parse_json(row.answer)
    except UnreadableError:
        value = None
    if not isinstance(value, dict) or not all(name in value for name in names):
        raise TaskRowError(f"has no {', '.join(names)}; name rows of that layout")
    return {name: value[name] for name in names}


_MAKERS = {
    "gsm8k": _gsm8k,
    "math": _math,
    "ifeval": _ifeval,
    "mbpp": _mbpp,
    "humaneval": _humaneval,
}


def instructions_of(gold: str) -> int:
    """How many instructions an ifeval row has: what `inst_level_strict_acc` counts it for.

    >>> instructions_of('{"instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}')
    1
    """
    return len(parse_json(gold)["instruction_id_list"])


def subject_of(task: Task, row: TaskRow) -> str:
    """Which of the harness's subtasks a row belongs to; empty where rows do not say."""
    names: Sequence[str] = task.subject
    return next((str(row.columns[name]) for name in names if row.columns.get(name)), "")
