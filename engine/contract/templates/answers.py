r"""The forms that answers are written in: which one a prompt asks for, which ones a verifier reads.

By name, those of `format.shape` and three more: `dollars`, a `number` at the end, and the `bare`
answer. Knows no config.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

FORMS: Mapping[str, str] = {
    "answer_is": "The answer is 18.",
    "boxed": "\\boxed{18}",
    "hashes": "#### 18",
    "minerva": "Final Answer: The final answer is $18$. I hope it is correct.",
    "answer_tag": "<answer>18</answer>",
    "dollars": "So it is $18$",
    "number": "That makes 18",
    "bare": "18",
}
"""What 18 looks like in each."""

_ANY = frozenset(FORMS)
READS: Mapping[str, frozenset[str]] = {
    "exact": frozenset({"bare"}),
    "gsm8k": frozenset({"answer_is"}),
    "gsm8k_hashes": frozenset({"hashes"}),
    "minerva_math": frozenset({"boxed"}),
    "minerva_final_answer": frozenset({"minerva"}),
    "hendrycks_math": frozenset({"minerva", "dollars", "bare"}),
    "allenai_math": frozenset({"boxed", "minerva", "dollars", "bare"}),
    "math": _ANY,
    "math_verify": _ANY - {"answer_tag"},
    "gsm8k_flexible": _ANY,
    "gsm8k_last_number": _ANY,
    "gsm8k_any": _ANY,
    "allenai_gsm8k": _ANY,
}
"""By verifier the forms whose right answers it pays. Of others (code, instructions, a function of
the user's) nothing is known. The strictest first, of equals the one to be recommended."""

_ASKED: Mapping[str, re.Pattern[str]] = {
    "answer_is": re.compile(r"\bthe answer is\b", re.IGNORECASE),
    "boxed": re.compile(r"\\boxed\b"),
    "hashes": re.compile(r"####"),
    "minerva": re.compile(r"the final answer is .{1,200}I hope it is correct", re.DOTALL),
    "answer_tag": re.compile(r"<answer>"),
}


def asked_in(text: str) -> frozenset[str]:
    r"""The forms that a prompt names or shows.

    >>> sorted(asked_in("Put your final answer within \\boxed{}."))
    ['boxed']
    """
    return frozenset(form for form, said in _ASKED.items() if said.search(text))


def mostly_asked(texts: Sequence[str]) -> frozenset[str]:
    """The forms that more than half of the texts ask for: one question may speak of a box."""
    found = [asked_in(text) for text in texts]
    return frozenset(form for form in FORMS if 2 * sum(form in each for each in found) > len(texts))


def read_by(verifiers: Iterable[str]) -> frozenset[str] | None:
    """The forms that any of them pays; None where one pays what nobody knows."""
    known = [READS.get(name) for name in verifiers]
    if not known or None in known:
        return None
    return frozenset().union(*filter(None, known))


def readers_of(forms: Collection[str]) -> list[str]:
    """Verifiers that pay every one of the forms, the strictest first."""
    return [name for name, reads in READS.items() if reads.issuperset(forms)]


def spelled(forms: Collection[str]) -> str:
    r"""As a sentence shows them.

    >>> spelled({"boxed", "hashes"})
    '\\boxed{18} or #### 18'
    """
    if _ANY.issubset(forms):
        return "any form"
    return " or ".join(FORMS[form] for form in FORMS if form in forms)
