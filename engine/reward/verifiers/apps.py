"""`apps`: pays the fraction of tests that a program passes, run in a box.

`expected` is JSON with the names of the APPS rows: `{"inputs": [...], "outputs": [...]}` for
whole programs on standard input, and `"fn_name"` besides for a function or a method of
`Solution`. Words of the output are compared; numbers may differ by rounding. A test has 2 s.

The published checker is on the hub and could not be run here: the rules are its, the agreement
is not measured.
"""

from __future__ import annotations

from engine.reward import box, code
from engine.reward.rows import ExpectedError, read_expected
from engine.reward.verdict import Reason, Verdict

BOXED = True
EACH_S = 2.0
LONGEST_S = 30.0


def verify(completion: str, expected: str) -> Verdict:
    """Reward in [0, 1]; `correct` only when all tests pass.

    >>> verify("print(int(input()) * 2)", '{"inputs": ["2"], "outputs": ["4"]}').reward
    1.0
    """
    row = read_expected(expected, "inputs", "outputs")
    if len(row["inputs"]) != len(row["outputs"]) or not row["outputs"]:
        raise ExpectedError("expected has no tests, or as many inputs as no outputs")
    program = code.program(completion)
    if program is None:
        return Verdict.unparsed()
    entry = row.get("fn_name")
    job = {
        "mode": "function" if entry else "stdin",
        "program": program,
        "entry": entry or "",
        "inputs": row["inputs"] if entry else [_text(part) for part in row["inputs"]],
        "outputs": row["outputs"] if entry else [_text(part) for part in row["outputs"]],
        "each_s": EACH_S,
    }
    report = box.run(job, wall_s=min(LONGEST_S, EACH_S * (len(row["outputs"]) + 1)))
    return Verdict(report.passed / len(row["outputs"]), program, _reason(report))


def _text(part: object) -> str:
    """Some rows hold lists of lines."""
    return "\n".join(map(str, part)) if isinstance(part, list) else str(part)


def _reason(report: box.Report) -> Reason:
    if report.total and report.passed == report.total:
        return Reason.CORRECT
    return Reason.TIMEOUT if report.timed_out else Reason.WRONG
