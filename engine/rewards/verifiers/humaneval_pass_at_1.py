"""`humaneval_pass_at_1`: pays a completion that continues its prompt to a function that passes.

For evaluation: equals pass@1 of humaneval in lm-evaluation-harness 0.4.13, which puts prompt and
completion together as they stand: a fence is a syntax error there, and `humaneval` is the one to
train on. Runs in our box, not in the harness's process; where the two differ on purpose `mbpp`
says. `expected` as for `humaneval`.
"""

from __future__ import annotations

from engine.rewards.judgement import Verdict
from engine.rewards.sandbox import code
from engine.rewards.verifiers import humaneval

BOXED = True


def verify(completion: str, expected: str) -> Verdict:
    """Runs the program: at most 6 s, then `timeout`.

    >>> row = '{"prompt": "def inc(x):\\\\n", "entry_point": "inc",'
    >>> row += ' "test": "def check(f):\\\\n assert f(1) == 2"}'
    >>> verify("    return x + 1", row).reward
    1.0
    """
    prompt, test, entry = humaneval.read(expected)
    program = code.usable(completion)
    if isinstance(program, Verdict):
        return program
    return humaneval.run(prompt + program, prompt, test, entry)
