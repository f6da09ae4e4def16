"""`apps`: pays the fraction of tests that a program passes, run in a box.

`expected` is JSON with the names of the APPS rows: `{"inputs": [...], "outputs": [...]}` for
whole programs on standard input, and `"fn_name"` besides for a function or a method of
`Solution`. Modules that the solutions of APPS take for granted are at hand. A test has 4 s.

Source: Hendrycks et al. 2021 (arXiv 2105.09938) and its checker, hendrycks/apps,
`eval/testing_util.py`. Its last resort, which compares the words of a line and the lines of an
output as sets, is left out: it pays "YES NO" for any list of verdicts, and an unsorted list for a
sorted one.
"""

from __future__ import annotations

from engine.contract.golds.rows import ExpectedError, read_expected, wanted
from engine.rewards.judgement import Reason, Verdict
from engine.rewards.sandbox import box, code

BOXED = True
EACH_S = 4.0
ALL_S = 30.0
"""No test is begun after that long; those left out are not passed."""


def verify(completion: str, expected: str) -> Verdict:
    """Reward in [0, 1]; `correct` only when all tests pass.

    >>> verify("print(int(input()) * 2)", '{"inputs": ["2"], "outputs": ["4"]}').reward
    1.0
    """
    row = read_expected(expected, "inputs", "outputs")
    inputs = wanted(row, "inputs", list, "a list with one item a test")
    outputs = wanted(row, "outputs", list, "a list with one item a test")
    if len(inputs) != len(outputs) or not outputs:
        count = f"{len(inputs)} inputs and {len(outputs)} outputs"
        raise ExpectedError(f"expected has {count}; a test is one of each")
    program = code.program(completion)
    if isinstance(program, Verdict):
        return program
    entry = row.get("fn_name") and wanted(row, "fn_name", str, "the name of the function")
    job = {
        "mode": "function" if entry else "stdin",
        "program": program,
        "entry": entry or "",
        "inputs": [(_arguments if entry else _text)(part) for part in inputs],
        "outputs": [(_result if entry else _text)(part) for part in outputs],
        "each_s": EACH_S,
        "all_s": ALL_S,
    }
    report = box.run(job, wall_s=min(ALL_S, EACH_S * len(outputs)) + 3 * EACH_S)
    return Verdict(report.passed / len(outputs), program, _reason(report))


def _text(part: object) -> str:
    """Some rows hold lists of lines."""
    return "\n".join(map(str, part)) if isinstance(part, list) else str(part)


def _arguments(part: object) -> object:
    """A first argument with numbers for keys, which JSON has made texts, gets them back."""
    return [_numbered(part[0]), *part[1:]] if isinstance(part, list) and part else part


def _result(part: object) -> object:
    """The same for a result, bare or as the first element."""
    if isinstance(part, list) and part:
        return [_numbered(part[0]), *part[1:]]
    return _numbered(part)


def _numbered(value: object) -> object:
    if not isinstance(value, dict):
        return value
    try:
        return {int(key): item for key, item in value.items()}
    except ValueError:
        return value


def _reason(report: box.Report) -> Reason:
    """A test that hangs is a failed test; only where none passed was nothing judged."""
    if report.total and report.passed == report.total:
        return Reason.CORRECT
    return Reason.TIMEOUT if report.timed_out and not report.passed else Reason.WRONG
