"""Checks of RLVR-IFEval (open-instruct) as instructions of IFEval, where one asks for the same.

Words that open-instruct looks for as text are escaped: IFEval takes them for patterns. What has no
equal is refused by name. Knows no row but its `ground_truth`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from engine.contract.golds.instructions import RLVR_FUNCTIONS
from engine.contract.golds.rows import ExpectedError

_PLAIN = {
    "validate_response_language": ("language:response_language", {"language": "language"}),
    "validate_paragraphs": (
        "length_constraints:nth_paragraph_first_word",
        {"num_paragraphs": "N", "nth_paragraph": "i", "first_word": "first_word"},
    ),
    "verify_postscript": (
        "detectable_content:postscript",
        {"postscript_marker": "postscript_marker"},
    ),
    "validate_placeholders": ("detectable_content:number_placeholders", {"num_placeholders": "N"}),
    "verify_bullet_points": ("detectable_format:number_bullet_lists", {"num_bullets": "N"}),
    "validate_title": ("detectable_format:title", {}),
    "validate_highlighted_sections": (
        "detectable_format:number_highlighted_sections",
        {"num_highlights": "N"},
    ),
    "validate_json_format": ("detectable_format:json_format", {}),
    "validate_repeat_prompt": (
        "combination:repeat_prompt",
        {"prompt_to_repeat": "original_prompt"},
    ),
    "validate_two_responses": ("combination:two_responses", {}),
    "validate_uppercase": ("change_case:english_capital", {}),
    "validate_lowercase": ("change_case:english_lowercase", {}),
    "validate_end": ("startend:end_checker", {"end_phrase": "end_phrase"}),
    "validate_quotation": ("startend:quotation", {}),
    "validate_no_commas": ("punctuation:no_comma", {}),
}
"""The instruction, and its arguments by the names that the row has them under."""

_COUNTED = {
    "validate_word_constraint": ("length_constraints:number_words", "num_words", "relation"),
    "verify_sentence_constraint": (
        "length_constraints:number_sentences",
        "num_sentences",
        "relation",
    ),
    "validate_frequency_capital_words": (
        "change_case:capital_word_frequency",
        "capital_frequency",
        "capital_relation",
    ),
}
"""The instruction, and its arguments for the number and the relation to it."""


def as_instruction(constraint: Mapping[str, Any]) -> dict[str, Any]:
    """The answer that the verifier `ifeval` reads. Raises ExpectedError for what has no equal.

    >>> as_instruction({"func_name": "validate_word_constraint", "N": 9, "quantifier": "at most"})
    {'instruction_id_list': ['length_constraints:number_words'], \
'kwargs': [{'num_words': 10, 'relation': 'less than'}]}
    """
    name = constraint["func_name"]
    made = _made(name, constraint) if isinstance(name, str) else None
    if made is None:
        nearest = RLVR_FUNCTIONS.get(str(name), "none that is known")
        raise ExpectedError(
            f"func_name {str(name)[:60]!r} is a check of RLVR-IFEval without an equal in IFEval "
            f"(nearest: {nearest})"
        )
    instruction, arguments = made
    return {"instruction_id_list": [instruction], "kwargs": [arguments]}


def _made(name: str, given: Mapping[str, Any]) -> tuple[str, dict[str, Any]] | None:
    if name in _PLAIN:
        instruction, names = _PLAIN[name]
        return instruction, {argument: given.get(key) for argument, key in names.items()}
    if name in _COUNTED:
        return _counted(name, given)
    special = _SPECIAL.get(name)
    return None if special is None else special(given)


def _counted(name: str, given: Mapping[str, Any]) -> tuple[str, dict[str, Any]] | None:
    instruction, number, relation = _COUNTED[name]
    match given.get("quantifier"), given.get("N"):
        case "at least", count:
            return instruction, {number: count, relation: "at least"}
        case "at most", int() | float() as count:
            return instruction, {number: int(count) + 1, relation: "less than"}
    return None  # "around" has no equal


def _keywords(given: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    return "keywords:existence", {"keywords": _escaped(given.get("keyword_list"))}


def _forbidden(given: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    words = _escaped(given.get("forbidden_words"))
    return "keywords:forbidden_words", {"forbidden_words": words}


def _sections(given: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    divider = given.get("section_splitter")
    arguments = {
        "section_spliter": re.escape(divider) if isinstance(divider, str) else divider,
        "num_sections": given.get("N"),
    }
    return "detectable_format:multiple_sections", arguments


_SPECIAL: Mapping[str, Callable[[Mapping[str, Any]], tuple[str, dict[str, Any]]]] = {
    "verify_keywords": _keywords,
    "validate_forbidden_words": _forbidden,
    "validate_sections": _sections,
}


def _escaped(words: Any) -> Any:
    """Sensible texts alone: whatever else stands there is refused by the verifier's own check."""
    if not isinstance(words, list):
        return words
    return [re.escape(word) if isinstance(word, str) else word for word in words]
