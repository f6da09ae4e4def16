"""`mbpp`: pays a program that passes every test of its row, run in a box.

`expected` is JSON: `{"test_list": ["assert …", …], "test_setup_code": ""}`, the names of the MBPP
rows. The program is the first fenced block, or what stands before `[DONE]`.

Agrees with the harness's code_eval on what honest programs do. Ours differs on purpose: tests
run in another process and see plain data only, so an object whose `__eq__` says yes, a patched
builtin or `os._exit(0)` earn nothing, and changes a program makes to its arguments are not seen.
"""

from __future__ import annotations

from engine.contract.golds.rows import read_expected, texts, wanted
from engine.rewards.judgement import Verdict
from engine.rewards.sandbox import code

BOXED = True


def verify(completion: str, expected: str) -> Verdict:
    """Runs the program: at most 6 s, then `timeout`.

    >>> verify("def inc(x): return x + 1", '{"test_list": ["assert inc(1) == 2"]}').reward
    1.0
    """
    tests, setup = read(expected)
    program = code.program(completion)
    return program if isinstance(program, Verdict) else run(program, tests, setup)


def read(expected: str) -> tuple[list[str], str]:
    """Tests and what is run before them. Raises ExpectedError for other JSON."""
    row = {"test_setup_code": "", **read_expected(expected, "test_list")}
    tests = texts(row, "test_list", 'a list of statements, ["assert f(1) == 2"]')
    return tests, wanted(row, "test_setup_code", str, "statements as one text")


def run(program: str, tests: list[str], setup: str) -> Verdict:
    """Whether the program passes all of them."""
    job = {
        "mode": "statements",
        "setup": setup,
        "entry": "",
        "program": program,
        "tests": tests,
    }
    return code.run_all(job, program)
