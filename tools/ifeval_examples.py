"""The examples that IFEval's authors publish, judged by the published checkers.

Takes their files from whoever has them (google-research, instruction_following_eval): the unit
tests, whose assertions state the wanted verdicts, and the data files with prompts, instructions
and a model's responses, joined by prompt. Runs in the harnesses' environment and keeps no text.

Knows nothing of our checks: `tools/harness_agreement.py` holds them against these rows.
"""

from __future__ import annotations

import importlib.util
import json
import random
import sys
import types
import unittest
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Example = dict[str, Any]
"""instruction, kwargs, response, `wanted` (null when the files do not say), and each published
copy's verdict under the copy's name."""

_COUNTS = {
    "count_words": ("length_constraints:number_words", "num_words"),
    "count_sentences": ("length_constraints:number_sentences", "num_sentences"),
}


def collect(files: list[Path], copies: dict[str, Any]) -> list[Example]:
    """Every example in the files. `copies`: name → package with `instructions_registry`,
    `instructions` and `instructions_util`, as lm-eval and if-verifiable have them."""
    rows = list(_data_rows([file for file in files if file.suffix == ".jsonl"], copies))
    for file in files:
        if file.suffix == ".py":
            rows += _test_rows(file, copies)
    return rows


# --- unit tests ------------------------------------------------------------------------------


def _test_rows(file: Path, copies: dict[str, Any]) -> list[Example]:
    """The same tests once for each copy; they make the same examples in the same order."""
    runs = {name: _run_tests(file, copy) for name, copy in copies.items()}
    merged: list[Example] = []
    for examples in zip(*runs.values(), strict=True):
        verdicts = {name: e["verdict"] for name, e in zip(runs, examples, strict=True)}
        first = {key: value for key, value in examples[0].items() if key != "verdict"}
        merged.append(first | verdicts)
    return merged


def _run_tests(file: Path, copy: Any) -> list[Example]:
    log: list[Example] = []
    package = types.ModuleType("instruction_following_eval")
    package.instructions = _recording_module(copy, log)  # type: ignore[attr-defined]
    package.instructions_util = _counting_module(copy, log)  # type: ignore[attr-defined]
    sys.modules[package.__name__] = package
    random.seed(0)
    tests = _load(file)
    for test_class in vars(tests).values():
        if isinstance(test_class, type) and issubclass(test_class, unittest.TestCase):
            for name, check in _assertions(log).items():
                setattr(test_class, name, check)
    unittest.defaultTestLoader.loadTestsFromModule(tests).run(unittest.TestResult())
    return [example for example in log if example["wanted"] is not None]


def _load(file: Path) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("ifeval_unit_tests", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _recording_module(copy: Any, log: list[Example]) -> types.ModuleType:
    """`instructions` of a copy, with its checkers of the 25 kinds recorded."""
    module = types.ModuleType("instructions")
    vars(module).update(vars(copy.instructions))
    for kind, checker in copy.instructions_registry.INSTRUCTION_DICT.items():
        setattr(module, checker.__name__, _recording(kind, checker, log))
    return module


def _recording(kind: str, checker: Any, log: list[Example]) -> type:
    def build_description(self: Any, **kwargs: Any) -> Any:
        self.given = kwargs
        return checker.build_description(self, **kwargs)

    def check_following(self: Any, value: str) -> bool:
        verdict = bool(checker.check_following(self, value))
        log.append(_example(kind, self.given, value, verdict, wanted=None))
        return verdict

    methods = {"build_description": build_description, "check_following": check_following}
    return type(checker.__name__, (checker,), methods)


def _counting_module(copy: Any, log: list[Example]) -> types.ModuleType:
    """`instructions_util` of a copy, with its two counters recorded."""
    module = types.ModuleType("instructions_util")
    vars(module).update(vars(copy.instructions_util))

    def counter(name: str) -> Callable[[str], int]:
        kind, field = _COUNTS[name]

        def count(text: str) -> int:
            number = int(getattr(copy.instructions_util, name)(text))
            log.append(_example(kind, {field: None}, text, number, wanted=None))
            return number

        return count

    for name in _COUNTS:
        setattr(module, name, counter(name))
    return module


def _assertions(log: list[Example]) -> dict[str, Callable[..., None]]:
    """What a test asserts after a check is what its authors want of it; nothing fails."""

    def state(wanted: object) -> None:
        if not log or log[-1]["wanted"] is not None:
            return
        last = log[-1]
        last["wanted"] = bool(wanted)
        if isinstance(last["verdict"], bool):
            return
        # A count of n: at least n and less than n + 1.
        [field], found = last["kwargs"], last["verdict"]
        last |= {"kwargs": {field: wanted, "relation": "at least"}, "verdict": found >= wanted}
        less = {field: int(str(wanted)) + 1, "relation": "less than"}
        log.append({**last, "kwargs": less, "verdict": found <= wanted})

    return {
        "assertTrue": lambda _self, _verdict: state(wanted=True),
        "assertFalse": lambda _self, _verdict: state(wanted=False),
        "assertEqual": lambda _self, one, other: state(_stated(log, one, other)),
        "assertIn": lambda _self, _part, _description: None,
    }


def _stated(log: list[Example], one: object, other: object) -> object:
    """The checkers' tests name the wanted value second, the counters' tests first."""
    return other if log and isinstance(log[-1]["verdict"], bool) else one


def _example(kind: str, kwargs: Any, response: str, verdict: Any, wanted: Any) -> Example:
    return {
        "instruction": kind,
        "kwargs": kwargs,
        "response": response,
        "verdict": verdict,
        "wanted": wanted,
    }


# --- data files ------------------------------------------------------------------------------


def _data_rows(files: list[Path], copies: dict[str, Any]) -> Iterator[Example]:
    prompts: dict[str, Example] = {}
    for file in files:
        for line in file.read_text("utf-8").splitlines():
            row = json.loads(line)
            prompts.setdefault(row["prompt"], {}).update(row)
    for row in prompts.values():
        if "response" in row and "kwargs" in row:
            for kind, kwargs in zip(row["instruction_id_list"], row["kwargs"], strict=True):
                given = {name: value for name, value in kwargs.items() if value is not None}
                verdicts = {
                    name: _follows(copy, kind, given, row["response"])
                    for name, copy in copies.items()
                }
                example = _example(kind, given, row["response"], None, wanted=None)
                del example["verdict"]
                yield example | verdicts


def _follows(copy: Any, kind: str, kwargs: Any, response: str) -> bool | None:
    """None where the copy counts another letter than it was given: it draws one for a sign."""
    checker = copy.instructions_registry.INSTRUCTION_DICT[kind](kind)
    checker.build_description(**kwargs)
    if "letter" in kwargs and checker.get_instruction_args()["letter"] != kwargs["letter"].lower():
        return None
    return bool(response.strip() and checker.check_following(response))
