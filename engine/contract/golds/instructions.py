"""The 25 instructions of IFEval with their arguments, and those of RLVR-IFEval by their names.

The checks themselves are the engine's (`engine.rewards.text.ifeval_checks`). Knows no response.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

INSTRUCTIONS: Mapping[str, tuple[str, ...]] = {
    "change_case:capital_word_frequency": ("capital_frequency", "capital_relation"),
    "change_case:english_capital": (),
    "change_case:english_lowercase": (),
    "combination:repeat_prompt": ("prompt_to_repeat",),
    "combination:two_responses": (),
    "detectable_content:number_placeholders": ("num_placeholders",),
    "detectable_content:postscript": ("postscript_marker",),
    "detectable_format:constrained_response": (),
    "detectable_format:json_format": (),
    "detectable_format:multiple_sections": ("section_spliter", "num_sections"),
    "detectable_format:number_bullet_lists": ("num_bullets",),
    "detectable_format:number_highlighted_sections": ("num_highlights",),
    "detectable_format:title": (),
    "keywords:existence": ("keywords",),
    "keywords:forbidden_words": ("forbidden_words",),
    "keywords:frequency": ("keyword", "frequency", "relation"),
    "keywords:letter_frequency": ("letter", "let_frequency", "let_relation"),
    "language:response_language": ("language",),
    "length_constraints:nth_paragraph_first_word": (
        *("num_paragraphs", "nth_paragraph", "first_word"),
    ),
    "length_constraints:number_paragraphs": ("num_paragraphs",),
    "length_constraints:number_sentences": ("num_sentences", "relation"),
    "length_constraints:number_words": ("num_words", "relation"),
    "punctuation:no_comma": (),
    "startend:end_checker": ("end_phrase",),
    "startend:quotation": (),
}
"""Every argument is needed; null ones of a row are ignored."""

RELATIONS = ("less than", "at least")
_COUNTS = ("frequency", "num_", "nth_", "let_frequency", "capital_frequency")
_LISTS = ("keywords", "forbidden_words")

RLVR_FUNCTIONS: Mapping[str, str] = {
    "verify_keywords": "keywords:existence, whose keywords are patterns",
    "verify_keyword_frequency": 'none: IFEval counts "at least" and "less than", not exactly N',
    "validate_forbidden_words": "keywords:forbidden_words, which are whole words",
    "verify_letter_frequency": 'none: IFEval counts "at least" and "less than", not exactly N',
    "validate_response_language": "language:response_language",
    "verify_paragraph_count": "length_constraints:number_paragraphs, divided by *** and not * * *",
    "validate_word_constraint": 'length_constraints:number_words; "around" has no equal',
    "verify_sentence_constraint": 'length_constraints:number_sentences; "around" has no equal',
    "validate_paragraphs": "length_constraints:nth_paragraph_first_word",
    "verify_postscript": "detectable_content:postscript",
    "validate_placeholders": "detectable_content:number_placeholders, which is at least N",
    "verify_bullet_points": "detectable_format:number_bullet_lists",
    "validate_title": "detectable_format:title",
    "validate_choice": "none: IFEval's three answers are fixed (constrained_response)",
    "validate_highlighted_sections": "detectable_format:number_highlighted_sections",
    "validate_sections": "detectable_format:multiple_sections",
    "validate_json_format": "detectable_format:json_format",
    "validate_repeat_prompt": "combination:repeat_prompt",
    "validate_two_responses": "combination:two_responses",
    "validate_uppercase": "change_case:english_capital",
    "validate_lowercase": "change_case:english_lowercase",
    "validate_frequency_capital_words": (
        'change_case:capital_word_frequency; "around" has no equal'
    ),
    "validate_end": "startend:end_checker",
    "validate_quotation": "startend:quotation",
    "validate_no_commas": "punctuation:no_comma",
}
"""open-instruct's own checks, which rows of RLVR-IFEval name, each with the nearest of IFEval."""


def instruction_problem(name: str, given: Mapping[str, Any]) -> str | None:
    """What is wrong with one instruction of a row; None when it can be checked.

    >>> instruction_problem("length_constraints:number_words", {"num_words": 9})
    'length_constraints:number_words lacks relation'
    """
    wanted = INSTRUCTIONS.get(name)
    if wanted is None:
        return f"{name!r} is none of IFEval's {len(INSTRUCTIONS)} instructions"
    arguments = {key: value for key, value in given.items() if value is not None}
    missing = [key for key in wanted if key not in arguments]
    if missing:
        return f"{name} lacks {', '.join(missing)}"
    foreign = [key for key in arguments if key not in wanted]
    if foreign:
        takes = ", ".join(wanted) or "no arguments"
        return f"{name} has {', '.join(foreign)}, and takes {takes}"
    for key, value in arguments.items():
        fault = _argument_problem(key, value)
        if fault is not None:
            return f"{name}: {key} is {value!r}, {fault}"
    return None


def _argument_problem(key: str, value: Any) -> str | None:
    if key.startswith(_COUNTS):
        whole = isinstance(value, float) and value.is_integer()  # a column with empty cells
        is_count = (whole or isinstance(value, int)) and not isinstance(value, bool) and value >= 0
        return None if is_count else "not a whole number from 0"
    if key.endswith("relation"):
        return None if value in RELATIONS else "neither 'less than' nor 'at least'"
    if key in _LISTS:
        is_list = isinstance(value, list) and all(isinstance(item, str) for item in value)
        return None if is_list else "not a list of texts"
    return None if isinstance(value, str) else "not a text"
