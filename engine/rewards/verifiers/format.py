r"""`format`: pays the shape of an answer, whatever it says; an auxiliary signal.

`expected` names the shape, alone or as JSON `{"format": "…"}`: `answer_is` ("The answer is 5."),
`boxed` (`\boxed{…}`), `hashes` (`#### 5`), `minerva` (Minerva's closing sentence), `think` (one
`<think>…</think>`, then an answer), `answer_tag` (one `<answer>…</answer>` at the end). The shape
must stand once, at the end where it has one, and hold something: a completion that repeats it to be
sure, or leaves it empty, earns nothing.
"""

from __future__ import annotations

import re

from engine.contract.golds.boxes import last_boxed
from engine.contract.golds.rows import ExpectedError, read_expected
from engine.rewards.judgement import Verdict
from engine.rewards.text import minerva
from engine.rewards.text.reading import LONGEST_ANSWER, without_thinking

_PATTERNS = {
    "answer_is": re.compile(r"The answer is (-?[\d.,]*\d)\."),
    "hashes": re.compile(r"^#### (-?[\d.,]*\d)\s*\Z", re.MULTILINE),
    "answer_tag": re.compile(r"<answer>((?:(?!</?answer>).)*)</answer>\s*\Z", re.DOTALL),
    "think": re.compile(
        r"\A\s*<think>(?:(?!</?think>).)*</think>((?:(?!</?think>).)*)\Z", re.DOTALL
    ),
}
_MARKS = {"answer_is": "The answer is", "hashes": "####", "answer_tag": "<answer>"}
SHAPES = (*_PATTERNS, "boxed", "minerva")


def verify(completion: str, expected: str) -> Verdict:
    """Reward 1 or 0; ExpectedError for a shape that is not known.

    >>> verify("So 2 + 3. The answer is 5.", "answer_is").reward
    1.0
    """
    shape = read_expected(expected, "format")["format"] if expected[:1] == "{" else expected
    if shape not in SHAPES:
        raise ExpectedError(f"format {shape!r} is none of {', '.join(SHAPES)}")
    answer = _found(completion, shape)
    if answer is None or not answer.strip() or (shape != "think" and len(answer) > LONGEST_ANSWER):
        return Verdict.unparsed()
    return Verdict.of(True, answer)


def _found(completion: str, shape: str) -> str | None:
    text = completion if shape == "think" else without_thinking(completion)
    if shape == "boxed":
        once = text.count("\\boxed") == 1 and "\\fbox" not in text
        return last_boxed(text) if once else None
    if shape == "minerva":
        return minerva.final_answer(text) if text.count("Final Answer:") == 1 else None
    if shape in _MARKS and text.count(_MARKS[shape]) != 1:
        return None
    found = _PATTERNS[shape].search(text)
    return None if found is None else found.group(1)
