"""The forms of an answer, by which prompts, rewards and benches are compared before a run."""

from __future__ import annotations

import importlib

import pytest

from engine.contract.templates.answers import FORMS, READS
from engine.contract.verifiers import verifier_names


@pytest.mark.parametrize("name", READS)
def test_a_verifier_is_known_to_read_what_it_pays(name: str) -> None:
    """Right answers in each form, judged by the verifier itself."""
    verifier = importlib.import_module(f"engine.rewards.verifiers.{name}")
    paid = set()
    for form, said in FORMS.items():
        completion = said if form == "bare" else f"Nine and nine make it.\n{said}"
        quick = getattr(verifier, "quick", lambda *_: None)(completion, "18")
        if (quick or verifier.verify(completion, "18")).reward:
            paid.add(form)

    assert paid == READS[name]


def test_of_every_verifier_of_numbers_the_forms_are_known() -> None:
    """Those of code, instructions and patterns have none."""
    others = {"apps", "format", "json_schema", "reasoning_gym", "regex"}
    others |= {"humaneval", "humaneval_pass_at_1", "mbpp", "mbpp_pass_at_1"}
    others |= {"ifeval", "ifeval_inst_strict", "ifeval_prompt_strict"}

    assert set(verifier_names()) - others == set(READS)
