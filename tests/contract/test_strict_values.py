"""A number is a number and a switch is true or false, for every kind and every setting."""

from __future__ import annotations

import typing
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from engine.contract.documents import dump_yaml, number_of, parse_yaml
from engine.contract.errors import MOST_PROBLEMS, ConfigError
from engine.contract.kinds.rl_run import RLRunConfig
from engine.contract.problems import problems_of
from engine.contract.registry import kinds, validate
from engine.contract.stage2.config import Stage2Config

BASE: dict[str, Any] = {"base": "embedded:qwen3-tiny", "tuning": "full"}


def settings(model: type[BaseModel], above: str = "") -> Iterator[tuple[str, type]]:
    """Dotted name of each number and switch of a config, at any depth."""
    for name, field in model.model_fields.items():
        if field.exclude:
            continue
        parts = {field.annotation, *typing.get_args(field.annotation)}
        kind = next((one for one in (bool, int, float) if one in parts), None)
        if kind is not None and str not in parts:
            yield f"{above}{name}", kind
        # The entries of a list are told by their place: tests of their own.
        listed = typing.get_origin(field.annotation) in {list, tuple, Sequence}
        for part in () if listed else parts:
            if isinstance(part, type) and issubclass(part, BaseModel):
                yield from settings(part, f"{above}{name}.")


SETTINGS = [
    *((RLRunConfig, name, kind) for name, kind in settings(RLRunConfig)),
    *((Stage2Config, name, kind) for name, kind in settings(Stage2Config)),
]
OTHER = {
    bool: ("yes", "no", "on", "off", "y", "1", "0", "'true'", "1.0"),
    int: ("yes", "no", "'3'", "010", "1:30", "0x10", "1_000", "0o17", "true", "3.0", "1e3", ".inf"),
    float: ("yes", "no", "'0.5'", "010", "1:30", "0x10", "1_000", "0b1", "true", ".nan", "-.inf"),
}


def refusals(model: type[BaseModel], name: str, written: str) -> list[str]:
    """What is wrong with one setting when a document says so."""
    value: Any = parse_yaml(f"value: {written}")["value"]
    for part in reversed(name.split(".")):
        value = {part: value}
    try:
        model(**(BASE if model is RLRunConfig else {}) | value)
    except ConfigError as error:
        found = error.problems
    except ValueError as error:
        found = tuple(problems_of(typing.cast("Any", error), model))
    else:
        return []
    return [one.line() for one in found if one.field == name]


@pytest.mark.parametrize(("model", "name", "kind"), SETTINGS, ids=str)
def test_no_other_spelling_passes_for_a_number_or_a_switch(
    model: type[BaseModel], name: str, kind: type
) -> None:
    """YAML of 1.1 has eight more words for true and false, and octal and sexagesimal numbers."""
    taken = [written for written in OTHER[kind] if not refusals(model, name, written)]

    assert not taken


def test_every_kind_is_asked() -> None:
    """A new kind has to be held against the same rule."""
    assert {kind.config for kind in kinds().values()} >= {RLRunConfig, Stage2Config}
    assert len(SETTINGS) > 120


@pytest.mark.parametrize(
    ("written", "line"),
    [
        ("lr: no", "lr: takes a number, and this is read as text (got 'no'); write a number, such "
         "as 2e-05"),
        ("max_steps: '3'", "max_steps: takes a whole number, and this is read as text (got '3'); "
         "write 3, without quotes"),
        ("max_steps: 010", "max_steps: takes a whole number, and this is read as text (got '010'); "
         "write 10"),
        ("max_steps: 0x10", "max_steps: takes a whole number, and this is read as text (got "
         "'0x10'); write 16"),
        ("lr: 1_0.5", "lr: takes a number, and this is read as text (got '1_0.5'); write 10.5"),
        ("max_steps: 3.0", "max_steps: takes a whole number, and this is read as a number with a "
         "point (got 3.0); write 3"),
        ("threads: true", "threads: takes a whole number, and this is read as true or false (got "
         "True); write a whole number"),
        ("force_headroom: yes", "force_headroom: takes true or false, and this is read as text "
         "(got 'yes'); write true"),
        ("optim: {gradient_checkpointing: 'false'}", "optim.gradient_checkpointing: takes true or "
         "false, and this is read as text (got 'false'); write false, without quotes"),
        ("verifier: 3", "verifier: takes text, and this is read as a whole number (got 3); write "
         "it in quotes: '3'"),
        ("max_steps:", "max_steps: takes a whole number, and this is read as nothing; write a "
         "whole number, such as 34"),
        ("guard: 3", "guard: takes a mapping, and this is read as a whole number (got 3); write a "
         "mapping"),
    ],
)  # fmt: skip
def test_a_refusal_says_what_was_read_and_what_to_write(written: str, line: str) -> None:
    """So that nobody has to know which YAML this is."""
    with pytest.raises(ConfigError) as refused:
        validate("rl_run", BASE | parse_yaml(written))

    assert str(refused.value) == line


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *(("30", 30), ("-3", -3), ("+3", 3), ("0", 0), ("1e-6", 1e-6), (".5", 0.5), ("5.", 5.0)),
        *((text, None) for text in ("010", "1_000", "0x1", "1:30", "inf", "nan", "1e999", "٣", "")),
        *((text, None) for text in (" 1", "1 ", "--1", "1e", "9" * 101, "true")),
    ],
)
def test_a_number_in_a_text_is_one_as_json_writes_it(text: str, number: float | None) -> None:
    """For doors that know text alone: a form, a variable, a command line."""
    assert number_of(text) == number
    assert type(number_of(text)) is type(number)


@pytest.mark.parametrize("raw", ["", "{}", "null", "# a comment alone", "---", "~"])
def test_an_empty_config_is_refused(raw: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job names its base: 15 GB are nobody's intention."""
    monkeypatch.delenv("FK_RL_BASE_MODEL", raising=False)
    with pytest.raises(ConfigError) as refused:
        validate("rl_run", parse_yaml(raw))

    assert "FK_RL_BASE_MODEL is not set; add it" in str(refused.value)
    monkeypatch.setenv("FK_RL_BASE_MODEL", "embedded:qwen3-tiny")
    assert validate("rl_run", parse_yaml(raw)).model_dump()["base"] == "embedded:qwen3-tiny"


@pytest.mark.parametrize("told", ["1_0", "0x1", "yes", "٣", "nan"])
def test_the_operators_variables_are_read_as_strictly(
    told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text is all that an environment has."""
    monkeypatch.setenv("FK_RL_HELDOUT_TEMP", told)
    with pytest.raises(ConfigError, match="FK_RL_HELDOUT_TEMP is"):
        validate("rl_run", BASE)


def test_of_very_many_problems_the_first_are_told() -> None:
    """209 kB of unknown settings are one mistake, not 31 MB of answer."""
    names = {f"unknown_setting_{n}": n for n in range(8_000)}
    for kind, raw in (("rl_run", BASE | names), ("stage2_ab", {"training": names})):
        with pytest.raises(ConfigError) as refused:
            validate(kind, raw)

        *told, last = refused.value.problems
        assert len(told) == MOST_PROBLEMS
        assert last.problem.startswith("and 79") or last.problem.startswith("and 80")
        assert len(str(refused.value)) < 20_000


words = st.text(max_size=12) | st.sampled_from(
    [
        "no",
        "Yes",
        "010",
        "1e3",
        "1.5e3",
        "+.5",
        "0x1F",
        "1:30",
        "~",
        "null",
        "<<",
        "=",
        "2026-01-02",
    ]
)
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats(allow_nan=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)


@given(value=st.dictionaries(words, plain, max_size=3))
def test_what_is_written_as_yaml_is_read_as_the_same(value: dict[str, Any]) -> None:
    """A cloned job has the config of its original, whatever its texts look like."""
    for in_one_line in (False, True):
        assert parse_yaml(dump_yaml(value, in_one_line=in_one_line)) == value
