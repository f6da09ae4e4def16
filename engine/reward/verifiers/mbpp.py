"""`mbpp`: pays a program that passes every test of its row, run in a box.

`expected` is JSON: `{"test_list": ["assert …", …], "test_setup_code": ""}`, the names of the MBPP
rows. The program is the first fenced block, or what stands before `[DONE]`.

Agrees with the harness's code_eval on what honest programs do. Ours differs on purpose: tests
run in another process and see plain data only, so an object whose `__eq__` says yes, a patched
builtin or `os._exit(0)` earn nothing, and changes a program makes to its arguments are not seen.
"""

from __future__ import annotations

from engine.reward import code
from engine.reward.rows import read_expected
from engine.reward.verdict import Verdict

BOXED = True


def verify(completion: str, expected: str) -> Verdict:
    """Runs the program: at most 6 s, then `timeout`.

    >>> verify("def inc(x): return x + 1", '{"test_list": ["assert inc(1) == 2"]}').reward
    1.0
    """
    row = read_expected(expected, "test_list")
    program = code.program(completion)
    if program is None:
        return Verdict.unparsed()
    job = {
        "mode": "statements",
        "setup": row.get("test_setup_code", ""),
        "entry": "",
        "program": program,
        "tests": row["test_list"],
    }
    return code.run_all(job, program)
