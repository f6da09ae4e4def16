r"""`math`: pays what equals the gold: any format, exact numbers, then math-verify's algebra.

What a completion states counts, not what it denies, asks or leaves open (`engine.rewards.text.
stated`), and numbers are compared as numbers, with their units (`engine.contract.golds.quantity`).
lm-evaluation-harness reports the rest the same as minerva_math's `math_verify`; docs/verifiers.md
lists where ours differs. A comparison that does not end is a timeout, not a wrong answer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from engine.contract.golds.boxes import last_boxed
from engine.contract.golds.quantity import (
    plain_digits,
    plain_fractions,
    read,
    same,
    unit_of,
    units_differ,
)
from engine.rewards.judgement import Verdict
from engine.rewards.text.reading import LONGEST_ANSWER, LONGEST_TAIL, without_thinking
from engine.rewards.text.stated import CHOICE, Gold, is_words, plain_words, stated
from engine.rewards.text.written import numbers_in_digits

POOLED = True
WARM_UP = (r"So it is $\boxed{\frac{1}{2}}$.", r"\frac{x}{2x}")

_MARK = re.compile(
    r"\b(?:answer|correct (?:option|choice))"
    r"(?:\s+to\s[^.:\n]{1,60}?)?\s*(?:\bis\b|\bare\b|:|=)[\s:*]*|^####[ \t]*|<answer>\s*",
    re.IGNORECASE | re.MULTILINE,
)
_SENTENCE_END = re.compile(r"\.(?=\s|$|\*)|\n|</answer>|\.?\s+I hope it is correct")
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{3,}")
_LONGEST_LINE = 100
"""Characters of a completion that is nothing but its answer."""


@dataclass(frozen=True)
class _Asked:
    text: str
    """What the completion states."""
    answer: str | None
    """What stands in its box, after its "answer is", or alone."""
    boxed: bool
    gold: Gold
    ruled_out: str | None
    leaves_open: bool


def quick(completion: str, expected: str) -> Verdict | None:
    """What needs no algebra: a number, a word, the gold itself, or an answer too long."""
    return _at_once(_asked(completion, expected))


def verify(completion: str, expected: str) -> Verdict:
    r"""`expected` is LaTeX, a whole solution with its `\boxed{}` or a GSM8K answer with its `####`.

    >>> verify(r"Hence $\boxed{\frac{x}{2x}}$.", "0.5").reward
    1.0
    """
    asked = _asked(completion, expected)
    at_once = _at_once(asked)
    if at_once is not None:
        return at_once
    if not asked.boxed and asked.answer is not None and _is_formula(asked.answer):
        return _by_algebra(f"\\boxed{{{asked.answer}}}", asked)
    return _by_algebra(asked.text, asked)


def _asked(completion: str, expected: str) -> _Asked:
    gold = Gold.of(expected)
    left = stated(plain_digits(plain_fractions(_end(without_thinking(completion)))), gold)
    text, answer = left.text, last_boxed(left.text)
    boxed = answer is not None
    if not boxed:
        text, answer = _marked(left.text)
    return _Asked(text, answer, boxed, gold, left.ruled_out, left.leaves_open)


def _at_once(asked: _Asked) -> Verdict | None:
    answer = asked.answer
    if asked.leaves_open and not asked.boxed:
        return Verdict.of(False, asked.ruled_out or CHOICE.strip())
    if answer is None or (asked.boxed and asked.gold.many and asked.text.count("\\boxed") > 1):
        return None  # several boxes may each hold one of several values
    if len(answer) > LONGEST_ANSWER:
        return Verdict.unparsed(answer[:LONGEST_ANSWER])
    if not answer.strip():
        return Verdict.unparsed()
    same_at_once = _same_at_once(answer, asked.gold)
    return None if same_at_once is None else Verdict.of(same_at_once, answer)


def _same_at_once(answer: str, gold: Gold) -> bool | None:
    """Whether an answer is the gold; None where only algebra can say."""
    if answer.strip() == gold.text:
        return True
    quantity = read(answer)
    if quantity is not None and gold.quantity is not None:
        return same(quantity, gold.quantity)
    if is_words(gold.text) and plain_words(answer) == plain_words(gold.text):
        return True
    return False if _in_other_units(answer, gold.text) else None


def _by_algebra(text: str, asked: _Asked) -> Verdict:
    """By math-verify; its own alarms are off."""
    from math_verify import parse  # noqa: PLC0415 - a second to import; only this verifier pays
    from math_verify import verify as equal  # noqa: PLC0415

    found = parse(numbers_in_digits(text), parsing_timeout=None)
    answer = next((str(part) for part in found if isinstance(part, str)), None)
    if not found or answer is None or len(answer) > LONGEST_ANSWER:
        if asked.ruled_out is not None:
            return Verdict.of(False, asked.ruled_out)
        return Verdict.unparsed(answer and answer[:LONGEST_ANSWER])
    gold = numbers_in_digits(asked.gold.text)
    golds = [f"\\boxed{{{gold}}}"]
    if gold.endswith("\\%"):
        golds.append(f"${gold}$")  # in a box 50\% is a text that 50 does not equal
    is_same = any(
        equal(parse(one, parsing_timeout=None), found, timeout_seconds=None) for one in golds
    )
    return Verdict.of(is_same and not _other_number(answer, asked.gold), answer)


def _other_number(answer: str, gold: Gold) -> bool:
    """Whether two numbers differ that the library takes for equal: it rounds to six decimals."""
    quantity = read(answer)
    if quantity is None or gold.quantity is None:
        return False
    near = (quantity.value, quantity.value / 100, quantity.value * 100)
    return not same(quantity, gold.quantity) and gold.quantity.value not in near


def _marked(text: str) -> tuple[str, str | None]:
    """The text and what follows its last "answer is" to the end of the sentence, or a lone line.

    Where that states nothing, what came before the mark does not count either.
    """
    mark = None
    for mark in _MARK.finditer(text):  # noqa: B007 - the last one is meant
        pass
    if mark is None:
        line = text.strip()
        return text, line if line and len(line) <= _LONGEST_LINE and "\n" not in line else None
    rest = text[mark.end() : mark.end() + LONGEST_ANSWER]
    answer = _SENTENCE_END.split(rest, maxsplit=1)[0].strip().strip("*").rstrip(".!").strip()
    if re.search(r"[^\W_]", answer) is None:
        return text[mark.end() :], None
    return text, answer


def _is_formula(answer: str) -> bool:
    """Signs and single letters: no sentence, and nothing that the library finds by its dollars."""
    bare = re.sub(r"\\(?:text|mathrm)\s*\{[^{}]*\}|\\[A-Za-z]+", " ", answer)
    return (
        "$" not in answer and "=" not in answer and _WORD.search(bare) is None and "…" not in bare
    )


_UNIT_AT_END = re.compile(r"\\(?:text|mathrm|mbox)\s*\{([^{}]*)\}(?:\^\{?([23])\}?)?\W*$")


def _in_other_units(answer: str, gold: str) -> bool:
    """Of formulas with a unit at their end: whether both have one, and not the same."""
    ends = [_UNIT_AT_END.search(text) for text in (answer, gold)]
    units = [unit_of(f" {end[1]}^{end[2]}" if end[2] else f" {end[1]}") for end in ends if end]
    return len(units) == 2 and units_differ(units[0] or ("", ""), units[1] or ("", ""))


def _end(text: str) -> str:
    """The end of the text, or a box that stands before it."""
    end = text[-LONGEST_TAIL:]
    if len(text) == len(end) or last_boxed(end) is not None:
        return end
    boxed = last_boxed(text)
    return end if boxed is None else f"$\\boxed{{{boxed}}}$"
