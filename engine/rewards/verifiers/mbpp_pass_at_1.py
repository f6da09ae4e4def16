"""`mbpp_pass_at_1`: pays a completion that is a program and passes every test of its row.

For evaluation: equals pass_at_1 of mbpp in lm-evaluation-harness 0.4.13, which runs the completion
as it stands: a fence around a program is a syntax error there, and `mbpp` is the one to train on.
Runs in our box, not in the harness's process; where the two differ on purpose `mbpp` says.
`expected` as for `mbpp`.
"""

from __future__ import annotations

from engine.rewards.judgement import Verdict
from engine.rewards.sandbox import code
from engine.rewards.verifiers import mbpp

BOXED = True


def verify(completion: str, expected: str) -> Verdict:
    """Runs the program: at most 6 s, then `timeout`.

    >>> verify("def inc(x): return x + 1", '{"test_list": ["assert inc(1) == 2"]}').reward
    1.0
    """
    tests, setup = mbpp.read(expected)
    program = code.usable(completion)
    return program if isinstance(program, Verdict) else mbpp.run(program, tests, setup)
