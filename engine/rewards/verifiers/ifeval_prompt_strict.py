"""`ifeval_prompt_strict`: pays a response that follows every instruction of its prompt.

For evaluation: equals prompt_level_strict_acc of ifeval in lm-evaluation-harness 0.4.13. As there
a thinking block is part of the response, which `ifeval` leaves out. `expected` as for `ifeval`.
"""

from __future__ import annotations

from engine.rewards.judgement import Verdict
from engine.rewards.verifiers import ifeval, ifeval_inst_strict

POOLED = True
WARM_UP = ifeval.WARM_UP


def verify(completion: str, expected: str) -> Verdict:
    """`answer` lists what was not followed.

    >>> row = '{"instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}'
    >>> verify("no commas", row).reward
    1.0
    """
    share = ifeval_inst_strict.verify(completion, expected)
    return share if share.reward == 1.0 else Verdict(0.0, share.answer, share.reason)
