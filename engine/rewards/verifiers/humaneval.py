"""`humaneval`: pays a completion of a function that passes the row's `check`, run in a box.

`expected` is JSON with the names of the HumanEval rows: `{"prompt", "test", "entry_point"}`. A
fenced block that defines the function stands for itself; any other text continues the prompt
and ends where the harness stops: before the next top-level class, def, comment, if or print.

The tests see the function's answers, not the process it runs in (see `mbpp`).
"""

from __future__ import annotations

import re

from engine.contract.golds.rows import read_expected, wanted
from engine.rewards.judgement import Verdict
from engine.rewards.sandbox import code
from engine.rewards.text.reading import without_thinking

BOXED = True

_STOPS = re.compile(r"\n(?:class|def|#|if|print)")


def verify(completion: str, expected: str) -> Verdict:
    """Runs the program: at most 6 s, then `timeout`.

    >>> row = '{"prompt": "def inc(x):\\\\n", "entry_point": "inc",'
    >>> row += ' "test": "def check(f):\\\\n assert f(1) == 2"}'
    >>> verify("    return x + 1", row).reward
    1.0
    """
    prompt, test, entry = read(expected)
    program = _program(completion, prompt, entry)
    return program if isinstance(program, Verdict) else run(program, prompt, test, entry)


def read(expected: str) -> tuple[str, str, str]:
    """Prompt, test and entry point. Raises ExpectedError for other JSON."""
    row = read_expected(expected, "prompt", "test", "entry_point")
    prompt = wanted(row, "prompt", str, "the function's head as text")
    test = wanted(row, "test", str, "the code that defines check(candidate), as one text")
    return prompt, test, wanted(row, "entry_point", str, "the function's name")


def run(program: str, prompt: str, test: str, entry: str) -> Verdict:
    """Whether the function of that name in the program passes the row's `check`."""
    job = {
        "mode": "statements",
        # helpers that the prompt brings along are the tests' own, not the program's
        "setup": prompt.rstrip() + "\n    pass\n",
        "entry": entry,
        "program": program,
        "tests": [f"{test}\ncheck({entry})"],
    }
    return code.run_all(job, program)


def _program(completion: str, prompt: str, entry: str) -> str | Verdict:
    block = code.block(completion)
    own = code.usable(without_thinking(completion) if block is None else block)
    if isinstance(own, Verdict):
        return own
    if re.search(rf"^(?:async )?def {re.escape(entry)}\b", own, re.MULTILINE):
        return f"{prompt}\n    pass\n\n{own}"
    return prompt + _STOPS.split(own, maxsplit=1)[0]
