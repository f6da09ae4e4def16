"""Rows as a task of lm-evaluation-harness asks them, and the worked examples in front of each."""

from __future__ import annotations

from collections.abc import Sequence

from engine.contract.errors import RLLoopError
from engine.contract.rl.format import FormatConfig
from engine.contract.task_rows import TaskRowError, asked_by, subject_of
from engine.contract.tasks import Task
from engine.data.rows import Question
from engine.data.shots import never_asked
from engine.sampling.prompts import Examples
from engine.sampling.shots import drawn_examples


def task_questions(task: Task, rows: Sequence[Question], field: str) -> list[Question]:
    """What the task makes of each row. Raises RLLoopError, by `field`, for one it cannot read."""
    try:
        return [_question(task, row) for row in rows]
    except TaskRowError as error:
        remedy = f"name rows of layout {' or '.join(task.layouts)}"
        raise RLLoopError.of(field, None, str(error), remedy) from error


def _question(task: Task, row: Question) -> Question:
    made = asked_by(task, row)
    return Question(row.id, made.prompt, made.gold, made.solution, columns=row.columns)


def drawn_by_subject(
    task: Task, rows: Sequence[Question], pool: Sequence[Question], shots: int, seed: int
) -> Examples:
    """Training rows in front of each question, of its own subject and by a stream of its own, as
    the harness draws them for the subtasks of a group. Raises RLLoopError for too few.
    """
    left = never_asked(rows, pool)
    groups: dict[str, list[Question]] = {}
    for row in rows:
        groups.setdefault(subject_of(task, row), []).append(row)
    found: dict[str, Examples] = {}
    for subject, some in groups.items():
        own = [row for row in left if subject_of(task, row) == subject]
        found[subject] = drawn_examples(
            some, own, shots, template=task.template.name, config=FormatConfig(), seed=seed
        )
    return lambda question: found[subject_of(task, question)](question)
