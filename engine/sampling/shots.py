"""The worked examples of a bench: the template's own, or rows drawn from a training source."""

from __future__ import annotations

from collections.abc import Sequence

from engine.contract.errors import RLLoopError
from engine.contract.rl.format import FormatConfig
from engine.contract.templates.table import TEMPLATES, shots_problem
from engine.data.rows import Question
from engine.data.shots import FEWSHOT_SEED, shots_for
from engine.sampling.prompts import Examples, demonstration, no_examples


def fixed_examples(template: str | None, shots: int) -> Examples:
    """The first so many worked examples of the template, the same before every question.

    Raises RLLoopError where it has fewer.
    """
    if shots == 0:
        return no_examples
    if wrong := shots_problem(template, shots):
        raise RLLoopError.of("shots", shots, *wrong)
    assert template is not None
    shown = [
        (Question(f"{template}:{i}", shot.question, ""), shot.answer)
        for i, shot in enumerate(TEMPLATES[template].shots[:shots], 1)
    ]
    return lambda _question: shown


def drawn_examples(
    rows: Sequence[Question],
    pool: Sequence[Question],
    shots: int,
    *,
    template: str | None,
    config: FormatConfig,
    seed: int = FEWSHOT_SEED,
) -> Examples:
    """Training rows, drawn for each of a bench's `rows` as `shots_for` draws them.

    `rows` are all of the bench, also where fewer are asked. Raises RLLoopError as that does.
    """
    bare = template is not None and TEMPLATES[template].shows_gold
    found = shots_for(rows, pool, shots, seed)
    drawn = {row.id: shown for row, shown in zip(rows, found, strict=True)}

    def shown(question: Question) -> Sequence[tuple[Question, str]]:
        return [
            (shot, shot.answer if bare else demonstration(shot, config))
            for shot in drawn[question.id]
        ]

    return shown
