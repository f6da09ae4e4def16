"""`reasoning_gym`: a reasoning-gym task's own scorer, behind a threshold.

`expected` is the task's entry as JSON: `{"question", "answer", "metadata": {"source_dataset",
…}}`. The answer is what the last `<answer>…</answer>` holds, else the last line. Many scorers
pay a part for an answer with something around it; a policy learns to earn that part, so below
the threshold nothing is paid.
"""

from __future__ import annotations

import re

from engine.contract.golds.rows import read_expected, wanted
from engine.rewards.judgement import Verdict
from engine.rewards.text.reading import LONGEST_TAIL, without_thinking

POOLED = True
WARM_UP = (
    "<answer>4</answer>",
    '{"answer": "4", "metadata": {"source_dataset": "basic_arithmetic"}}',
)
THRESHOLD = 0.99

_TAGGED = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)


def verify(completion: str, expected: str) -> Verdict:
    """1 where the scorer gives the threshold or more, else 0.

    >>> entry = '{"answer": "4", "metadata": {"source_dataset": "basic_arithmetic"}}'
    >>> verify("<answer>4</answer>", entry).reward
    1.0
    """
    from reasoning_gym import get_score_answer_fn  # noqa: PLC0415 - seconds to import

    entry = read_expected(expected, "answer", "metadata")
    about = wanted(entry, "metadata", dict, "the entry's object of that name")
    task = wanted({"source_dataset": None, **about}, "source_dataset", str, "the task's name")
    answer = _answer(without_thinking(completion)[-LONGEST_TAIL:])
    if not answer:
        return Verdict.unparsed()
    score = get_score_answer_fn(task)(answer, entry)
    return Verdict.of(float(score) >= THRESHOLD, answer)


def _answer(text: str) -> str:
    tagged = _TAGGED.findall(text)
    return str(tagged[-1]).strip() if tagged else text.strip().rpartition("\n")[2].strip()
