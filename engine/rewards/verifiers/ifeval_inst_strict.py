"""`ifeval_inst_strict`: pays the share of the instructions that a response follows.

For evaluation: equals inst_level_strict_acc of ifeval in lm-evaluation-harness 0.4.13, where each
row counts as often as it has instructions. As there a thinking block is part of the response.
`expected` as for `ifeval`.
"""

from __future__ import annotations

from engine.rewards.judgement import Verdict
from engine.rewards.verifiers import ifeval

POOLED = True
WARM_UP = ifeval.WARM_UP


def verify(completion: str, expected: str) -> Verdict:
    """`answer` lists what was not followed.

    >>> row = '{"instruction_id_list": ["punctuation:no_comma", "startend:quotation"],'
    >>> verify("no commas", row + ' "kwargs": [{}, {}]}').reward
    0.5
    """
    names, arguments, _ = ifeval.read(expected)
    return ifeval.judged(completion, names, arguments, partial=True)
