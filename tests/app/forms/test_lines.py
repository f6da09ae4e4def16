"""A problem of a config stands at the line of its YAML that says it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.forms.lines import Place, at_lines
from engine.contract.errors import ConfigProblem

TEXT = """\
# mine
base: acme/small
objective:
  loss: dappo
heldout:
  - {name: own, source: /a.jsonl}
  - name: math
    shotz: 4
"""


def problem(field: str, value: object = None, remedy: str = "correct it") -> ConfigProblem:
    return ConfigProblem(field, value, "is wrong", remedy)


@pytest.mark.requirement("UI-15")
@pytest.mark.parametrize(
    ("field", "value", "place"),
    [
        ("base", "acme/small", Place(2, 6, 16)),
        ("objective.loss", "dappo", Place(4, 8, 13)),
        ("objective", None, Place(3, 0, 9)),
        ("heldout.0.source", "/a.jsonl", Place(6, 24, 32)),
        ("heldout.1.shotz", None, Place(8, 4, 9)),
        ("heldout[1].name", "math", Place(7, 10, 14)),
        ("objective.clip", None, Place(3, 0, 9)),  # what a section lacks is said at the section
        ("lr", None, None),
        ("(config)", None, None),
    ],
)
def test_a_problem_stands_at_the_value_or_the_name_that_is_wrong(
    field: str, value: object, place: Place | None
) -> None:
    """A wrong value at the value, an unknown setting at its name."""
    [found] = at_lines(TEXT, [problem(field, value)])

    assert found.place == place


@pytest.mark.requirement("UI-15")
def test_what_a_remedy_names_can_be_written_in_its_place() -> None:
    """A name of another section is not: it does not belong there."""
    wrong = [
        problem("objective.loss", "dappo", "did you mean dapo?"),
        problem("heldout.1.shotz", None, "did you mean shots?"),
        problem("base", None, "did you mean model.path?"),
        problem("base", "acme/small", "name a folder"),
    ]

    assert [one.instead for one in at_lines(TEXT, wrong)] == ["dapo", "shots", None, None]


@pytest.mark.requirement("UI-15")
def test_a_document_that_is_no_yaml_has_its_problem_where_the_reader_stopped() -> None:
    """With no line outside the text."""
    [found] = at_lines("a: 1\nb: [1, 2\nc: 3\n", [problem("(config)")])

    assert found.place is not None
    assert 2 <= found.place.line <= 4


@given(st.text(max_size=80), st.text("ab.0[]", max_size=8))
def test_no_text_and_no_name_break_it(text: str, field: str) -> None:
    """A place is inside the text."""
    for one in at_lines(text, [problem(field, 1)]):
        assert one.place is None or 1 <= one.place.line <= max(1, len(text.splitlines()) + 1)
