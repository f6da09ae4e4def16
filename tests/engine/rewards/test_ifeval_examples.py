"""Examples that IFEval's authors publish, read as (instruction, arguments, response, verdict)."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tools.harness_agreement import COPIES, report_examples
from tools.ifeval_examples import collect

UNIT_TESTS = """
import unittest
from instruction_following_eval import instructions, instructions_util


class Tests(unittest.TestCase):
    def test_commas(self):
        checker = instructions.CommaChecker("punctuation:no_comma")
        checker.build_description()
        self.assertTrue(checker.check_following("none here"))
        self.assertFalse(checker.check_following("one, here"))

    def test_hashes(self):
        checker = instructions.LetterFrequencyChecker("keywords:letter_frequency")
        text = checker.build_description(letter="#", let_frequency=1, let_relation="at least")
        self.assertIn("letter #", text)
        self.assertEqual(checker.check_following("#here"), True)

    def test_words(self):
        self.assertEqual(3, instructions_util.count_words("one two three"))
"""


class CommaChecker:
    """A published checker in its shape."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def build_description(self) -> str:
        return "no commas"

    def check_following(self, value: str) -> bool:
        return "," not in value


class LetterFrequencyChecker:
    """One that counts another letter than the sign it was given, as older copies do."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def build_description(self, letter: str, **_kwargs: Any) -> str:
        self.letter = letter if letter.isalpha() else "q"
        return f"letter {self.letter}"

    def get_instruction_args(self) -> dict[str, str]:
        return {"letter": self.letter}

    def check_following(self, value: str) -> bool:
        return self.letter in value.lower()


CHECKERS = {
    "punctuation:no_comma": CommaChecker,
    "keywords:letter_frequency": LetterFrequencyChecker,
}
COPY = SimpleNamespace(
    instructions=SimpleNamespace(),
    instructions_registry=SimpleNamespace(INSTRUCTION_DICT=CHECKERS),
    instructions_util=SimpleNamespace(
        count_words=lambda text: len(text.split()), count_sentences=lambda _text: 1
    ),
)
NAME = f"{COPIES[0]} 1"


def test_a_unit_test_gives_its_examples_with_the_verdicts_it_asserts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A count of three words is two checks: at least three, and less than four."""
    file = tmp_path / "instructions_test.py"
    file.write_text(UNIT_TESTS, "utf-8")

    examples = collect([file], {NAME: COPY})

    assert [(e["instruction"], e["kwargs"], e["wanted"], e[NAME]) for e in examples] == [
        ("punctuation:no_comma", {}, True, True),
        ("punctuation:no_comma", {}, False, False),
        (
            "keywords:letter_frequency",
            {"letter": "#", "let_frequency": 1, "let_relation": "at least"},
            True,
            False,
        ),
        ("length_constraints:number_words", {"num_words": 3, "relation": "at least"}, True, True),
        ("length_constraints:number_words", {"num_words": 4, "relation": "less than"}, True, True),
    ]
    assert report_examples(examples) == 0
    printed = capsys.readouterr().out
    assert "5 examples of 3 of the 25 kinds: 5 equal, 0 different" in printed
    assert f"{NAME}: as the tests state in 4 of 5" in printed


def test_data_files_are_joined_by_their_prompt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A letter that the copy drew decides nothing; a prompt without a response is no example."""
    hashes = {"letter": "#", "let_frequency": 1, "let_relation": "at least", "keyword": None}
    prompts = [
        {
            "prompt": "a",
            "instruction_id_list": ["punctuation:no_comma", "keywords:letter_frequency"],
            "kwargs": [{}, hashes],
        },
        {"prompt": "b", "instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]},
    ]
    files = [tmp_path / "input_data.jsonl", tmp_path / "responses.jsonl"]
    files[0].write_text("\n".join(map(json.dumps, prompts)), "utf-8")
    files[1].write_text(json.dumps({"prompt": "a", "response": "no, #none"}), "utf-8")

    examples = collect(files, {NAME: COPY})

    assert [(e["response"], e["wanted"], e[NAME]) for e in examples] == [
        ("no, #none", None, False),
        ("no, #none", None, None),
    ]
    assert report_examples(examples) == 0
    assert "1 equal, 0 different, 1 that" in capsys.readouterr().out


def test_a_difference_is_shown_and_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the authors want and our check does not say is no agreement."""
    file = tmp_path / "instructions_test.py"
    file.write_text(UNIT_TESTS.replace("assertTrue", "assertFalse"), "utf-8")

    assert report_examples(collect([file], {NAME: COPY})) == 1
    assert "'response': 'none here'" in capsys.readouterr().out
