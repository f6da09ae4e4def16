r"""Programs and tests in the two forms of APPS, and what its published checker says of them.

`judged(file)` runs each program with the `run_test` of hendrycks/apps, `eval/testing_util.py`,
given by whoever has it, in a process of its own, and scores as `eval/test_one_solution.py` does:
the mean of the tests with a result above 0. Runs in the harnesses' environment. The checker
imports pyext, which no modern Python installs; `_runtime_module` stands in for its one class.

The cases are ours: outputs of every usual shape in every usual dress, returned values of every
type against every form of expected value, and programs that read, end and fail in many ways.
"""

# ruff: noqa: E501 - a program stands on one line
from __future__ import annotations

import copy
import importlib.util
import itertools
import json
import os
import re
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Case = tuple[str, str, dict[str, Any]]
"""Name, program, expected."""

# --- outputs: what is printed against what is expected ----------------------------------------

OUTPUTS: dict[str, str | list[str]] = {
    "integer": "42",
    "integer, newline": "-7\n",
    "six digits": "123456",
    "big integer": "123456789012345678901234567890",
    "float": "0.333333",
    "small float": "0.0004",
    "large float": "1234567.891",
    "float of value one": "1.0",
    "word": "YES",
    "text": "Hello World",
    "line of integers": "3 1 2",
    "equal integers": "5 5 5",
    "lines of integers": "3\n1\n2",
    "lines of floats": "0.5\n0.25",
    "table": "1 2\n3 4",
    "line of floats": "0.5 0.125",
    "labelled float": "Case 1: 0.3333",
    "verdicts": "YES\nNO\nYES",
    "blank line": "a\n\nb",
    "nothing": "",
    "list of lines": ["1 2", "3"],
}


def _numbers(change: Callable[[float], str]) -> Callable[[str], str]:
    return lambda text: re.sub(r"-?\d+(\.\d+)?", lambda m: change(float(m.group())), text)


def _last_integer(change: Callable[[int], int]) -> Callable[[str], str]:
    return lambda text: re.sub(r"\d+(?!.*\d)", lambda m: str(change(int(m.group()))), text, count=1)


DRESSES: dict[str, Callable[[str], str]] = {
    "same": lambda text: text,
    "newline": lambda text: text + "\n",
    "spaces behind": lambda text: "\n".join(line + "  " for line in text.split("\n")),
    "spaces before": lambda text: "\n".join("  " + line for line in text.split("\n")),
    "blank line before": lambda text: "\n" + text,
    "blank lines between": lambda text: text.replace("\n", "\n\n"),
    "double spaces": lambda text: text.replace(" ", "  "),
    "tabs": lambda text: text.replace(" ", "\t"),
    "line ends of Windows": lambda text: text.replace("\n", "\r\n") + "\r\n",
    "on one line": lambda text: text.replace("\n", " "),
    "a word a line": lambda text: text.replace(" ", "\n"),
    "words turned round": lambda text: "\n".join(
        " ".join(reversed(line.split(" "))) for line in text.split("\n")
    ),
    "lines turned round": lambda text: "\n".join(reversed(text.split("\n"))),
    "without repetitions": lambda text: "\n".join(
        " ".join(dict.fromkeys(line.split(" "))) for line in dict.fromkeys(text.split("\n"))
    ),
    "last line twice": lambda text: text + "\n" + text.split("\n")[-1],
    "one word more": lambda text: text + " 9",
    "one line more": lambda text: text + "\n9",
    "one word less": lambda text: text.rpartition(" ")[0],
    "one line less": lambda text: text.rpartition("\n")[0],
    "upper case": str.upper,
    "lower case": str.lower,
    "as floats": _numbers(lambda n: f"{n:.1f}"),
    "three decimals": _numbers(lambda n: f"{n:.3f}"),
    "twelve decimals": _numbers(lambda n: f"{n:.12f}"),
    "scientific": _numbers(lambda n: f"{n:.9e}"),
    "a millionth more": _numbers(lambda n: f"{n * (1 + 1e-6):.12g}"),
    "a thousandth more": _numbers(lambda n: f"{n * (1 + 1e-3):.12g}"),
    "0.0003 more": _numbers(lambda n: f"{n + 0.0003:.12g}"),
    "last integer one more": _last_integer(lambda n: n + 1),
    "plus sign": lambda text: re.sub(r"(?<![\d.+-])(\d)", r"+\1", text, count=1),
    "nothing": lambda _text: "",
    "in quotes": lambda text: f'"{text}"',
    "with words around": lambda text: f"The answer is {text}",
}


def printed() -> Iterator[Case]:
    """Two tests each: the first as expected, the second in its dress. Every other pair."""
    for (row, output), (column, (dress, wear)) in itertools.product(
        enumerate(OUTPUTS.values()), enumerate(DRESSES.items())
    ):
        text = "\n".join(output) if isinstance(output, list) else output
        worn = wear(text)
        if (row + column) % 2 or (worn == text and dress != "same"):
            continue
        program = f"print({{'1': {text!r}, '2': {worn!r}}}[input()], end='')"
        yield dress, program, {"inputs": ["1\n", "2\n"], "outputs": [output, output]}


# --- values: what is returned against what is expected -----------------------------------------

RETURNED = [
    *("3", "3.0", "4", "'3'", "True", "None", "0.1 + 0.2", "'abc'", "'ABC'", "'abc '", "10 ** 30"),
    *("[1, 2]", "(1, 2)", "[2, 1]", "[1, 2, 2]", "[1.0, 2.0]", "['a']", "[]", "()", "{1, 2}"),
    *("[[1, 2]]", "[(1, 2)]", "((1, 2),)", "[[(1, 2)]]", "[[1, (2,)]]", "range(1, 3)"),
    *(
        "fractions.Fraction(3)",
        "deque([1, 2])",
        "iter([1, 2])",
        "{1: 2}",
        "{'1': 2}",
        "{'a': 1}",
        "object()",
        "lambda: 3",
    ),
]
EXPECTED: list[Any] = [
    *(3, [3], True, "abc", ["abc"], None, [None], 0.3, [0.30000000000000004], 10**30),
    *([1, 2], [[1, 2]], [[[1, 2]]], [[[[1, 2]]]], [], [[]], ["a"], [["a"]]),
    *({"1": 2}, [{"1": 2}], {"a": 1}, [{"a": 1}]),
]


def returned() -> Iterator[Case]:
    """One test each; pairs with nothing in common are thinned out."""
    for (row, value), (column, expected) in itertools.product(
        enumerate(RETURNED), enumerate(EXPECTED)
    ):
        near = set(re.findall(r"\w", value)) & set(re.findall(r"\w", json.dumps(expected)))
        if (row + column) % (2 if near else 9) == 0:
            test = {"inputs": [[0]], "outputs": [expected], "fn_name": "f"}
            yield f"returns {value}", f"def f(x):\n    return {value}", test


# --- whole programs ----------------------------------------------------------------------------

DOUBLE = {"inputs": ["2", "10\n", "-3\n"], "outputs": ["4", "20\n", "-6"]}
LINES = {"inputs": ["2\n3 4\n5 6\n", "1\n7 8\n"], "outputs": ["7\n11\n", "15\n"]}
LISTED = {"inputs": [["2", "3 4", "5 6"], ["1", "7 8"]], "outputs": [["7", "11"], ["15"]]}
SCRIPTS: dict[str, tuple[str, dict[str, Any]]] = {
    "input": ("print(int(input()) * 2)", DOUBLE),
    "wrong": ("print(int(input()) * 3)", DOUBLE),
    "right for one": ("print(int(input()) + 2)", DOUBLE),
    "wrong for one": ("n = int(input())\nprint(abs(n) * 2)", DOUBLE),
    "readline": ("import sys\nprint(int(sys.stdin.readline()) * 2)", DOUBLE),
    "read": ("import sys\nprint(int(sys.stdin.read()) * 2)", DOUBLE),
    "readlines": ("import sys\nprint(int(sys.stdin.readlines()[0]) * 2)", DOUBLE),
    "for line in stdin": ("import sys\nfor line in sys.stdin:\n    print(int(line) * 2)", DOUBLE),
    "open 0": ("print(int(open(0).read()) * 2)", DOUBLE),
    "reads bytes": ("import sys\nprint(int(sys.stdin.buffer.read()) * 2)", DOUBLE),
    "writes": ("import sys\nsys.stdout.write(str(int(input()) * 2))", DOUBLE),
    "writes bytes": ("import sys\nsys.stdout.buffer.write(b'%d' % (int(input()) * 2))", DOUBLE),
    "names that are given": ("print(floor(int(input()) * 2))", DOUBLE),
    "modules that are given": ("print(math.floor(int(sys.stdin.readline()) * 2.0))", DOUBLE),
    "stars that are given": ("h = [int(input()) * 2]\nheapify(h)\nprint(heappop(h))", DOUBLE),
    "counts that are given": ("print(Counter([int(input()) * 2]).most_common()[0][0])", DOUBLE),
    "numpy": ("print(int(np.array([int(input())]).sum()) * 2)", DOUBLE),
    "numpy imported": ("import numpy\nprint(int(numpy.int64(int(input())) * 2))", DOUBLE),
    "a function": ("def main():\n    print(int(input()) * 2)\nmain()", DOUBLE),
    "main block": (
        "def main():\n    print(int(input()) * 2)\nif __name__ == '__main__':\n    main()",
        DOUBLE,
    ),
    "global": ("n = 2\ndef f():\n    global n\n    n = int(input()) * n\nf()\nprint(n)", DOUBLE),
    "closure": ("k = 2\ndef f(n):\n    return n * k\nprint(f(int(input())))", DOUBLE),
    "class": (
        "class A:\n    def __init__(self, n):\n        self.n = n * 2\nprint(A(int(input())).n)",
        DOUBLE,
    ),
    "import in the middle": ("n = int(input())\nimport math\nprint(math.trunc(n * 2))", DOUBLE),
    "from in the middle": ("n = int(input())\nfrom math import trunc\nprint(trunc(n * 2))", DOUBLE),
    "text of lines": ('s = """a\nb"""\nprint(len(s) - 3 + int(input()) * 2)', DOUBLE),
    "recursion": (
        "def f(n):\n    return 0 if n == 0 else 2 + f(n - 1)\nn = int(input())\nprint(f(n) if n > 0 else 2 * n)",
        DOUBLE,
    ),
    "raises": ("raise ValueError(input())", DOUBLE),
    "raises behind": ("print(int(input()) * 2)\nraise ValueError", DOUBLE),
    "raises for one": ("n = int(input())\nassert n > 0\nprint(n * 2)", DOUBLE),
    "sys.exit": ("import sys\nprint(int(input()) * 2)\nsys.exit()", DOUBLE),
    "sys.exit with 1": ("import sys\nprint(int(input()) * 2)\nsys.exit(1)", DOUBLE),
    "SystemExit": ("print(int(input()) * 2)\nraise SystemExit", DOUBLE),
    "exit": ("print(int(input()) * 2)\nexit()", DOUBLE),
    "silent exit": ("import sys\nsys.exit()", DOUBLE),
    "silent": ("int(input()) * 2", DOUBLE),
    "to standard error": ("import sys\nprint(int(input()) * 2, file=sys.stderr)", DOUBLE),
    "noise on standard error": (
        "import sys\nprint('x', file=sys.stderr)\nprint(int(input()) * 2)",
        DOUBLE,
    ),
    "syntax error": ("print(int(input()) * 2", DOUBLE),
    "name error": ("print(twice(int(input())))", DOUBLE),
    "no code": ("I do not know.", DOUBLE),
    "asks": ("print(int(input('number? ')) * 2)", DOUBLE),
    "until the end": (
        "try:\n    while True:\n        print(int(input()) * 2)\nexcept EOFError:\n    pass",
        DOUBLE,
    ),
    "until anything": (
        "try:\n    while True:\n        print(int(input()) * 2)\nexcept Exception:\n    pass",
        DOUBLE,
    ),
    "lines": ("for _ in range(int(input())):\n    print(sum(map(int, input().split())))", LINES),
    "lines joined": (
        "out = []\nfor _ in range(int(input())):\n    out.append(str(sum(map(int, input().split()))))\nprint(' '.join(out))",
        LINES,
    ),
    "lines of a list": (
        "for _ in range(int(input())):\n    print(sum(map(int, input().split())))",
        LISTED,
    ),
    "list of a list": (
        "print([sum(map(int, input().split())) for _ in range(int(input()))])",
        LISTED,
    ),
    "all lines at once": (
        "import sys\n_, *rows = sys.stdin.read().split('\\n')\nfor row in rows:\n    if row:\n        print(sum(map(int, row.split())))",
        LINES,
    ),
    "thread": (
        "import threading\ndef main():\n    print(int(input()) * 2)\nt = threading.Thread(target=main)\nt.start()\nt.join()",
        DOUBLE,
    ),
    "hangs for one": ("n = int(input())\nwhile n == 10:\n    pass\nprint(n * 2)", DOUBLE),
    "three seconds": (
        "import time\nn = int(input())\nif n == 10:\n    time.sleep(3)\nprint(n * 2)",
        DOUBLE,
    ),
}

TWICE = {"inputs": [[2], [10], [-3]], "outputs": [[4], [20], [-6]], "fn_name": "twice"}
PLAIN = {"inputs": [[2], [10], [-3]], "outputs": [4, 20, -6], "fn_name": "twice"}
SUMS = {"inputs": [[[1, 2]], [[]], [[5]]], "outputs": [3, 0, 5], "fn_name": "total"}
KEYS = {"inputs": [[{"1": 2, "3": 4}]], "outputs": [[{"1": 4, "3": 8}]], "fn_name": "doubled"}
CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "function": ("def twice(n):\n    return n * 2", TWICE),
    "function, plain": ("def twice(n):\n    return n * 2", PLAIN),
    "function for one": ("def twice(n):\n    return n + 2", PLAIN),
    "function, wrong": ("def twice(n):\n    return str(n * 2)", PLAIN),
    "lambda": ("twice = lambda n: n * 2", PLAIN),
    "method": ("class Solution:\n    def twice(self, n):\n        return n * 2", PLAIN),
    "annotated method": (
        "class Solution:\n    def total(self, xs: List[int]) -> int:\n        return sum(xs)",
        SUMS,
    ),
    "unknown annotation": (
        "class Solution:\n    def total(self, xs: Optional[int]) -> int:\n        return sum(xs)",
        SUMS,
    ),
    "method that counts": (
        "class Solution:\n    calls = 0\n    def twice(self, n):\n        self.calls += 1\n        return n * 2 if self.calls < 3 else 0",
        PLAIN,
    ),
    "both": (
        "def twice(n):\n    return 0\nclass Solution:\n    def twice(self, n):\n        return n * 2",
        PLAIN,
    ),
    "method missing": ("class Solution:\n    def double(self, n):\n        return n * 2", PLAIN),
    "solution that breaks": (
        "class Solution:\n    def __init__(self):\n        raise ValueError\n    def twice(self, n):\n        return n * 2",
        PLAIN,
    ),
    "function missing": ("def double(n):\n    return n * 2", PLAIN),
    "syntax error in a function": ("def twice(n) return n * 2", PLAIN),
    "breaks at import": ("def twice(n):\n    return n * 2\ntwice(None) + 1", PLAIN),
    "raises for one call": ("def twice(n):\n    assert n > 0\n    return n * 2", PLAIN),
    "finds no more input for one call": (
        "def twice(n):\n    if n == 2:\n        raise EOFError\n    return n * 2",
        PLAIN,
    ),
    "out of time by its own word": (
        "def twice(n):\n    if n == 2:\n        raise TimeoutError\n    return n * 2",
        PLAIN,
    ),
    "too many arguments": ("def twice(n, m):\n    return n * 2", PLAIN),
    "default argument": ("def twice(n, m=2):\n    return n * m", PLAIN),
    "prints": ("def twice(n):\n    print(n * 2)", PLAIN),
    "prints and returns": ("def twice(n):\n    print('x')\n    return n * 2", PLAIN),
    "global state": (
        "seen = []\ndef twice(n):\n    seen.append(n)\n    return n * 2 * len(seen)",
        PLAIN,
    ),
    "module at hand": ("def total(xs):\n    return math.trunc(math.fsum(xs))", SUMS),
    "names at hand": ("def total(xs):\n    return sum(Counter(xs).elements())", SUMS),
    "heap at hand": (
        "def total(xs):\n    heapify(xs)\n    return sum(heappop(xs) for _ in range(len(xs)))",
        SUMS,
    ),
    "cache at hand": ("@lru_cache(None)\ndef twice(n):\n    return n * 2", PLAIN),
    "queue at hand": ("def total(xs):\n    return sum(deque(xs))", SUMS),
    "own name for one at hand": ("def gcd(n):\n    return n * 2\ndef twice(n):\n    return gcd(n)", PLAIN),
    "numpy at hand": ("def total(xs):\n    return int(np.sum(xs))", SUMS),
    "float for integer": ("def total(xs):\n    return float(sum(xs))", SUMS),
    "keys are numbers": ("def doubled(d):\n    return {k: v * 2 for k, v in d.items()}", KEYS),
    "keys are texts": ("def doubled(d):\n    return {str(k): v * 2 for k, v in d.items()}", KEYS),
    "keys are added": (
        "def doubled(d):\n    return {k: d[k] * 2 for k in d if k + 0 == k}",
        KEYS,
    ),
    "always equal": (
        "class E:\n    def __eq__(self, other):\n        return True\ndef twice(n):\n    return E()",
        PLAIN,
    ),
    "changes its argument": ("def total(xs):\n    xs.append(0)\n    return sum(xs)", SUMS),
    "deep": ("def twice(n):\n    return 0 if n == 0 else 2 + twice(n - 1)", PLAIN),
    "hangs for one call": ("def twice(n):\n    while n == 10:\n        pass\n    return n * 2", PLAIN),
    "hangs at import": ("while True:\n    pass", PLAIN),
}  # fmt: skip


def cases() -> Iterator[Case]:
    """All of them."""
    yield from printed()
    yield from returned()
    for name, (program, expected) in {**SCRIPTS, **CALLS}.items():
        yield name, program, expected


# --- the published checker ---------------------------------------------------------------------


def judged(file: Path) -> Iterator[tuple[str, str, dict[str, Any], float]]:
    """(case, program, expected, fraction of tests passed) with the `run_test` in the file."""
    stand_in = types.ModuleType("pyext")
    stand_in.RuntimeModule = types.SimpleNamespace(  # type: ignore[attr-defined]
        from_string=_runtime_module
    )
    sys.modules["pyext"] = stand_in
    spec = importlib.util.spec_from_file_location("testing_util", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, program, expected in cases():
        yield name, program, expected, _mean_above_zero(_run(module.run_test, program, expected))


def _runtime_module(name: str, text: str, source: str) -> types.ModuleType:
    """A module from source text: globals without a `__name__` of their own."""
    space: dict[str, Any] = {}
    exec(source, space)  # noqa: S102 - programs of this file
    module = types.ModuleType(name, text)
    vars(module).update(space)
    return module


def _run(run_test: Callable[..., list[Any]], program: str, expected: dict[str, Any]) -> list[int]:
    """Results of one program: true 1, false 0, -1 raised or late, -2 no program.

    In a child: the checker takes `os.kill` and more away from its process for good.
    """
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        try:
            results = run_test(problem={"input_output": copy.deepcopy(expected)}, test=program)
            os.write(writes, json.dumps([int(result) for result in results]).encode())
        finally:
            os._exit(0)
    os.close(writes)
    with open(reads, "rb") as stream:  # noqa: PTH123 - a descriptor
        said = stream.read()
    os.waitpid(child, 0)
    return json.loads(said) if said else [-2]


def _mean_above_zero(results: list[int]) -> float:
    return sum(result > 0 for result in results) / len(results)
