"""The 25 kinds of instruction of IFEval, each a check of a response.

Source: Zhou et al. 2023 (arXiv 2311.07911) and its published checkers (lm-evaluation-harness
0.4.13, if-verifiable 0.1.2), whose readings are followed to the letter, odd ones included: a
keyword is a pattern, a highlighted section in double asterisks counts twice, text whose language
cannot be told follows every language instruction.

A missing number or relation is an error here; the published code draws one at random.
Knows no dataset row.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from engine.contract.golds.rows import ExpectedError

Check = Callable[..., bool]

CHECKS: dict[str, Check] = {}
"""Instruction id → `check(response, **kwargs)`."""

_OPTIONS = ("My answer is yes.", "My answer is no.", "My answer is maybe.")


def follows(response: str, instruction: str, kwargs: Mapping[str, Any]) -> bool:
    """Whether the response follows one instruction; an empty one follows none.

    Raises ExpectedError for an unknown instruction or arguments that do not fit it.
    """
    check = CHECKS.get(instruction)
    if check is None:
        raise ExpectedError(f"instruction {instruction!r} is none of the {len(CHECKS)} known")
    given = {name: _whole(value) for name, value in kwargs.items() if value is not None}
    negative = [name for name, value in given.items() if isinstance(value, int) and value < 0]
    if negative:
        raise ExpectedError(f"{instruction} with {given}: {negative[0]} is below 0")
    if not response.strip():
        return False
    try:
        return bool(check(response, **given))
    except (TypeError, re.error) as error:
        raise ExpectedError(f"{instruction} with {given}: {error}") from None


def _whole(value: Any) -> Any:
    """7.0 as 7: what becomes of a number in a column with empty cells."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _check(name: str) -> Callable[[Check], Check]:
    def register(check: Check) -> Check:
        CHECKS[name] = check
        return check

    return register


def _compare(count: int, relation: str, threshold: int) -> bool:
    match relation:
        case "less than":
            return count < threshold
        case "at least":
            return count >= threshold
    raise ExpectedError(f"relation {relation!r} is neither 'less than' nor 'at least'")


# --- words ----------------------------------------------------------------------------------


@_check("keywords:existence")
def _keywords(response: str, *, keywords: list[str]) -> bool:
    return all(re.search(word, response, re.IGNORECASE) for word in keywords)


@_check("keywords:frequency")
def _keyword_frequency(response: str, *, keyword: str, frequency: int, relation: str) -> bool:
    found = re.findall(keyword.strip(), response, re.IGNORECASE)
    return _compare(len(found), relation, frequency)


@_check("keywords:forbidden_words")
def _forbidden(response: str, *, forbidden_words: list[str]) -> bool:
    return not any(re.search(rf"\b{word}\b", response, re.IGNORECASE) for word in forbidden_words)


@_check("keywords:letter_frequency")
def _letters(response: str, *, letter: str, let_frequency: int, let_relation: str) -> bool:
    if len(letter) != 1 or letter.isspace():
        raise ExpectedError(f"letter {letter!r} is not one character that can be seen")
    return _compare(response.lower().count(letter.lower()), let_relation, let_frequency)


# --- language and case ----------------------------------------------------------------------


@_check("language:response_language")
def _language(response: str, *, language: str) -> bool:
    found = language_of(response)
    return found is None or found == language


@_check("change_case:english_capital")
def _upper(response: str) -> bool:
    return response.isupper() and language_of(response) in {"en", None}


@_check("change_case:english_lowercase")
def _lower(response: str) -> bool:
    return response.islower() and language_of(response) in {"en", None}


@_check("change_case:capital_word_frequency")
def _capital_words(response: str, *, capital_frequency: int, capital_relation: str) -> bool:
    count = sum(word.isupper() for word in words(response))
    return _compare(count, capital_relation, capital_frequency)


# --- length ---------------------------------------------------------------------------------


@_check("length_constraints:number_sentences")
def _sentences(response: str, *, num_sentences: int, relation: str) -> bool:
    return _compare(len(sentences(response)), relation, num_sentences)


@_check("length_constraints:number_words")
def _words(response: str, *, num_words: int, relation: str) -> bool:
    return _compare(len(re.findall(r"\w+", response)), relation, num_words)


@_check("length_constraints:number_paragraphs")
def _paragraphs(response: str, *, num_paragraphs: int) -> bool:
    """Divided by `***`; an empty one is forgiven at either end, and nowhere else."""
    parts = [bool(part.strip()) for part in re.split(r"\s?\*\*\*\s?", response)]
    return all(parts[1:-1]) and sum(parts) == num_paragraphs


@_check("length_constraints:nth_paragraph_first_word")
def _first_word(response: str, *, num_paragraphs: int, nth_paragraph: int, first_word: str) -> bool:
    """Divided by empty lines; empty paragraphs do not count, but keep their place."""
    parts = response.split("\n\n")
    count = sum(bool(part.strip()) for part in parts)
    if nth_paragraph > count or not parts[nth_paragraph - 1].strip():
        return False
    word = parts[nth_paragraph - 1].split()[0].lstrip("'").lstrip('"')
    start = re.split("[.,?!'\"]", word, maxsplit=1)[0].lower()
    return count == num_paragraphs and start == first_word.lower()


# --- content and format ---------------------------------------------------------------------


@_check("detectable_content:number_placeholders")
def _placeholders(response: str, *, num_placeholders: int) -> bool:
    return len(re.findall(r"\[.*?\]", response)) >= num_placeholders


@_check("detectable_content:postscript")
def _postscript(response: str, *, postscript_marker: str) -> bool:
    marker = postscript_marker.strip()
    patterns = {"P.P.S": r"p\.\s?p\.\s?s", "P.S.": r"p\.\s?s\."}
    return bool(re.search(patterns.get(marker, marker.lower()), response.lower()))


@_check("detectable_format:number_bullet_lists")
def _bullets(response: str, *, num_bullets: int) -> bool:
    stars = re.findall(r"^\s*\*[^\*].*$", response, re.MULTILINE)
    dashes = re.findall(r"^\s*-.*$", response, re.MULTILINE)
    return len(stars) + len(dashes) == num_bullets


@_check("detectable_format:constrained_response")
def _constrained(response: str) -> bool:
    return any(option in response for option in _OPTIONS)


@_check("detectable_format:number_highlighted_sections")
def _highlights(response: str, *, num_highlights: int) -> bool:
    single = re.findall(r"\*[^\n\*]*\*", response)
    double = re.findall(r"\*\*[^\n\*]*\*\*", response)
    count = sum(bool(part.strip("*").strip()) for part in single)
    count += sum(bool(part[2:-2].strip()) for part in double)
    return count >= num_highlights


@_check("detectable_format:multiple_sections")
def _sections(response: str, *, section_spliter: str, num_sections: int) -> bool:
    found = re.split(rf"\s?{section_spliter.strip()}\s?\d+\s?", response)
    return len(found) - 1 >= num_sections


@_check("detectable_format:json_format")
def _json(response: str) -> bool:
    text = response.strip()
    for opening in ("```json", "```Json", "```JSON", "```"):
        text = text.removeprefix(opening)
    try:
        json.loads(text.removesuffix("```").strip())
    except (ValueError, RecursionError):
        return False
    return True


@_check("detectable_format:title")
def _title(response: str) -> bool:
    return any(part.strip("<>").strip() for part in re.findall(r"<<[^\n]+>>", response))


# --- combination, ends, punctuation ---------------------------------------------------------


@_check("combination:two_responses")
def _two(response: str) -> bool:
    parts = [part.strip() for part in response.split("******")]
    given = [part for part in parts if part]
    return all(parts[1:-1]) and len(given) == 2 and given[0] != given[1]


@_check("combination:repeat_prompt")
def _repeat(response: str, *, prompt_to_repeat: str) -> bool:
    return response.strip().lower().startswith(prompt_to_repeat.strip().lower())


@_check("startend:end_checker")
def _end(response: str, *, end_phrase: str) -> bool:
    return response.strip().strip('"').lower().endswith(end_phrase.strip().lower())


@_check("startend:quotation")
def _quotation(response: str) -> bool:
    text = response.strip()
    return len(text) > 1 and text[0] == text[-1] == '"'


@_check("punctuation:no_comma")
def _no_comma(response: str) -> bool:
    return "," not in response


# --- what the libraries know ----------------------------------------------------------------


def language_of(text: str) -> str | None:
    """Its ISO code, the same on every call: langdetect draws, so it is seeded. None: no clue."""
    import langdetect  # noqa: PLC0415 - an extra: only IFEval pays for it

    langdetect.DetectorFactory.seed = 0
    try:
        return str(langdetect.detect(text))
    except langdetect.LangDetectException:
        return None


def sentences(text: str) -> list[str]:
    """Split by Punkt (Kiss and Strunk 2006) and the English model that the published checkers
    load: another model counts otherwise in every fifth text."""
    return list(_sentence_splitter()(text))


def words(text: str) -> list[str]:
    """NLTK's word tokens of each sentence."""
    tokenizer = _word_tokenizer()
    return [word for sentence in sentences(text) for word in tokenizer(sentence)]


@cache
def _sentence_splitter() -> Callable[[str], list[str]]:
    # A package carries the model that NLTK would download.
    from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer  # noqa: PLC0415
    from punkt.data import english  # noqa: PLC0415

    parameters = PunktParameters()
    parameters.abbrev_types = set(english.ABBREV_TYPES)
    parameters.collocations = set(english.COLLOCATIONS)
    parameters.sent_starters = set(english.SENT_STARTERS)
    parameters.ortho_context.update(english.ORTHO_CONTEXT)
    split: Callable[[str], list[str]] = PunktSentenceTokenizer(parameters).tokenize
    return split


@cache
def _word_tokenizer() -> Callable[[str], list[str]]:
    from nltk.tokenize.destructive import NLTKWordTokenizer  # noqa: PLC0415

    tokenize: Callable[[str], list[str]] = NLTKWordTokenizer().tokenize
    return tokenize
