"""Prompt templates by name."""

from __future__ import annotations

import hashlib
import json

import pytest
from pydantic import ValidationError

from engine.contract.rl.prompting import PromptingConfig
from engine.contract.templates.table import TEMPLATES, shots_problem
from engine.contract.templates.template import PLACEHOLDER, Template
from engine.contract.verifiers import verifier_names


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("math", "Problem:\nHow many?\n\nSolution:"),
        ("gsm8k", "Question: How many?\nAnswer:"),
        ("gsm8k_cot", "Q: How many?\nA:"),
        ("hendrycks_math", "Problem: How many?\nAnswer:"),
        ("minerva_math", "Problem:\nHow many?\n\nSolution:"),
        (
            "boxed",
            "How many?\nPlease reason step by step, and put your final answer within \\boxed{}.",
        ),
    ],
)
def test_a_template_writes_a_question_to_the_character(name: str, written: str) -> None:
    assert TEMPLATES[name].write("How many?") == written


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=lambda template: template.name)
def test_every_template_has_one_place_for_the_question_and_known_verifiers(
    template: Template,
) -> None:
    assert template.question.count(PLACEHOLDER) == 1
    assert set(template.verifiers) <= set(verifier_names())
    assert template.about


@pytest.mark.parametrize(
    ("name", "shots", "digest"),
    [
        ("gsm8k_cot", 8, "8891624983ad7951"),
        ("minerva_math", 4, "fd92c7e5c11c8ff7"),
    ],
)
def test_worked_examples_are_those_of_the_harness(name: str, shots: int, digest: str) -> None:
    """The digest was taken of lm_eval 0.4.13's own task files."""
    shown = TEMPLATES[name].shots

    assert len(shown) == TEMPLATES[name].usual_shots == shots
    assert hashlib.sha256(json.dumps(shown).encode()).hexdigest()[:16] == digest


def test_a_form_is_said_once() -> None:
    assert PromptingConfig(template="gsm8k_cot").form == "Q: {prompt}\nA:"
    with pytest.raises(ValidationError, match="both say how a question is written; remove one"):
        PromptingConfig(template="gsm8k_cot", question_format="Q: {prompt}")


def test_an_unknown_template_is_refused_with_those_there_are() -> None:
    with pytest.raises(ValidationError, match="is not a template; known: answer_is, boxed, gsm8k"):
        PromptingConfig(template="gsm8k_cto")


def test_a_bench_may_ask_in_a_form_of_its_own() -> None:
    """Whatever the run's form is; the rest of the section stays."""
    run = PromptingConfig(question_format="Q: {prompt}", system_prompt="Add.")

    bench = run.under("hendrycks_math")

    assert (bench.form, bench.system_prompt) == ("Problem: {prompt}\nAnswer:", "Add.")
    assert run.under(None) is run


@pytest.mark.parametrize(
    ("name", "shots", "problem"),
    [
        ("gsm8k_cot", 8, None),
        ("minerva_math", 5, "minerva_math has 4 worked examples, not 5"),
        ("gsm8k", 5, "gsm8k has no worked examples of its own"),
        (None, 1, "a form of your own has no worked examples of its own"),
        (None, 0, None),
    ],
)
def test_more_examples_than_a_template_has_are_refused(
    name: str | None, shots: int, problem: str | None
) -> None:
    found = shots_problem(name, shots)

    assert (found and found[0]) == problem
