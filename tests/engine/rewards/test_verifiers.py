"""Rules of the verifiers that no harness states, bad input, and rewards by import path."""

# ruff: noqa: E501 - a row is one line
from __future__ import annotations

import doctest
import importlib
import json
import re
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import nltk
import pytest

from engine.contract.errors import RLLoopError
from engine.contract.golds.rows import ExpectedError
from engine.contract.sources.mixture import DataConfig
from engine.contract.sources.questions import read_rows
from engine.contract.verifiers import verifier_names, verifier_problem
from engine.rewards.adapter import Pooled, Reason, RewardAdapter, Verdict, Verifier, load_verifier
from engine.rewards.sandbox import box
from engine.rewards.sandbox.code import program
from engine.rewards.text.fences import fenced
from engine.rewards.text.ifeval_checks import follows, language_of, sentences
from engine.rewards.verifiers import gsm8k_any, gsm8k_last_number, ifeval, json_schema, math, regex
from engine.rewards.verifiers.format import SHAPES
from engine.rewards.workers.pool import Pool, Question

ROOT = Path(__file__).resolve().parents[3]


def _judge(name: str, completion: str, expected: str) -> tuple[float, str]:
    verdict = RewardAdapter(load_verifier(name)).judge(completion, expected)
    return verdict.reward, verdict.reason.value


@pytest.mark.requirement("EX-05")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", verifier_names())
def test_every_verifier_shows_an_example_that_runs(name: str) -> None:
    """The example in its docstring is true."""
    module = importlib.import_module(f"engine.rewards.verifiers.{name}")

    result = doctest.testmod(module)

    assert result.failed == 0
    assert ">>>" in (module.verify.__doc__ or "")


@pytest.mark.parametrize(
    "name",
    [
        *(f"rewards.text.{n}" for n in ("reading", "minerva", "hendrycks", "fences")),
        *(f"rewards.text.{n}" for n in ("stated", "written")),
        "rewards.sandbox.code",
        "rewards.judgement",
        "contract.golds.quantity",
        "contract.golds.rows",
    ],
)
def test_every_example_of_a_reader_is_true(name: str) -> None:
    """What the docstrings show is what the functions do."""
    result = doctest.testmod(importlib.import_module(f"engine.{name}"))

    assert (result.failed, result.attempted > 0) == (0, True)


@pytest.mark.requirement("EX-05")
@pytest.mark.parametrize(
    ("name", "completion", "expected", "verdict"),
    [
        ("gsm8k", "The answer is 18.", "18", (1.0, "correct")),
        ("gsm8k", "It is 18.", "18", (0.0, "unparsed")),
        ("gsm8k_last_number", "so \\$18.00", "18", (1.0, "correct")),
        ("gsm8k_last_number", "that is 1,800 cents", "1800", (1.0, "correct")),
        ("gsm8k_last_number", "that is \u2212\uff11\uff18", "-18", (1.0, "correct")),
        ("gsm8k_last_number", "50%", "50", (1.0, "correct")),
        ("gsm8k_last_number", "5 apples and 3 pears", "5", (0.0, "wrong")),
        ("gsm8k_last_number", "none", "5", (0.0, "unparsed")),
        ("gsm8k_any", "\\boxed{18} is it, 3 steps", "18", (1.0, "correct")),
        ("gsm8k_any", "#### 18\nDone in 3 steps", "18", (1.0, "correct")),
        ("gsm8k_any", "The answer is **18**. Thanks, 5 stars", "18", (1.0, "correct")),
        ("gsm8k_any", "<think>18</think> no idea", "18", (0.0, "unparsed")),
        ("math", "$\\boxed{(-\\infty, 3)}$", "x<3", (1.0, "correct")),
        ("math", "$\\boxed{\\$18.00}$", "18", (1.0, "correct")),
        ("math", "$\\boxed{1.41421356}$", "\\sqrt2", (1.0, "correct")),
        ("math", "$\\boxed{2^{10^9}}$", "2^{10^9}", (1.0, "correct")),
        ("math", "$\\boxed{" + "+".join(["1"] * 20_000) + "}$", "20000", (0.0, "unparsed")),
        ("math", "$\\boxed{" + "1" * 501 + "}$", "1" * 501, (0.0, "unparsed")),
        ("math", "<think>\\boxed{5}</think>The answer is 6.", "6", (1.0, "correct")),
        ("math", "<think>\\boxed{6}", "6", (0.0, "unparsed")),
        ("minerva_math", "The answer is 18.", "18", (0.0, "unparsed")),
        ("minerva_math", "\\boxed{2^{10^9}}", "7", (0.0, "timeout")),
        ("minerva_final_answer", "\\boxed{18}", "18", (0.0, "unparsed")),
        ("hendrycks_math", "\\boxed{18}", "18", (0.0, "wrong")),
        ("regex", "total is 12.", '{"pattern": "is (\\\\d+)", "answer": "12"}', (1.0, "correct")),
        ("regex", "total is 12.", '{"pattern": "is (\\\\d+)", "answer": "13"}', (0.0, "wrong")),
        ("regex", "total", '{"pattern": "t", "full": true}', (0.0, "unparsed")),
        ("regex", "a" * 40 + "b", "(a+)+$", (0.0, "timeout")),
        ("regex", "a", "(", (0.0, "crash")),
        ("json_schema", '{"a": 1}', '{"schema": {"properties": {"a": {"type": "integer"}}}}', (1.0, "correct")),
        ("json_schema", '{"a": true}', '{"schema": {"properties": {"a": {"type": "integer"}}}}', (0.0, "wrong")),
        ("json_schema", '{"a": 1, "b": 2}', '{"schema": {"properties": {"a": {}}, "additionalProperties": false}}', (0.0, "wrong")),
        ("json_schema", "[1, 2]", '{"schema": {"items": {"minimum": 2}}}', (0.0, "wrong")),
        ("json_schema", "```json\n[3]\n```", '{"schema": {"type": "array"}, "answer": [3]}', (1.0, "correct")),
        ("json_schema", "not json", '{"schema": {}}', (0.0, "unparsed")),
        ("json_schema", "1", '{"schema": {"oneOf": []}}', (0.0, "crash")),
        ("json_schema", "1", '{"schema": {"oneOf": [{"type": "string"}, {"minimum": 1}]}}', (1.0, "correct")),
        ("json_schema", "[1]", '{"schema": {"items": {"$ref": "#/$defs/a"}, "$defs": {"a": {"maximum": 0}}}}', (0.0, "wrong")),
        ("format", "So. The answer is 5.", "answer_is", (1.0, "correct")),
        ("format", "The answer is 5. The answer is 6.", "answer_is", (0.0, "unparsed")),
        ("format", "$\\boxed{5}$", "boxed", (1.0, "correct")),
        ("format", "\\boxed{5} \\boxed{5}", "boxed", (0.0, "unparsed")),
        ("format", "<think>a</think>b", "think", (1.0, "correct")),
        ("format", "<think>a</think>", "think", (0.0, "unparsed")),
        ("format", "<think>a<think>b</think>c", "think", (0.0, "unparsed")),
        ("format", "x\n#### 5", "hashes", (1.0, "correct")),
        ("format", "<answer>5</answer> and more", "answer_tag", (0.0, "unparsed")),
        ("format", "Final Answer: The final answer is $5$. I hope it is correct.", "minerva", (1.0, "correct")),
        ("format", "5", "no such", (0.0, "crash")),
        ("format", "\\boxed{}", "boxed", (0.0, "unparsed")),
        ("format", "$\\boxed{ }$", "boxed", (0.0, "unparsed")),
        ("format", "\\boxed{5} \\fbox{6}", "boxed", (0.0, "unparsed")),
        ("format", "<answer></answer>", "answer_tag", (0.0, "unparsed")),
        ("format", "<answer> \n</answer>", "answer_tag", (0.0, "unparsed")),
        ("format", "<answer>x < 5</answer>", "answer_tag", (1.0, "correct")),
        ("format", "<answer>5</answer></answer>", "answer_tag", (0.0, "unparsed")),
        ("format", "Final Answer: The final answer is . I hope it is correct.", "minerva", (0.0, "unparsed")),
        ("format", "<think>a</think><think>b</think>c", "think", (0.0, "unparsed")),
        ("format", "<think>a</think>b</think>", "think", (0.0, "unparsed")),
        ("format", "<think>a</think>b</think>c", "think", (0.0, "unparsed")),
        ("format", "<think>a</think> \n", "think", (0.0, "unparsed")),
        ("math", "The answer is 3 or maybe 4.", "3", (0.0, "wrong")),
        ("math", "The answer is either 3 or 4.", "3", (0.0, "wrong")),
        ("math", "The answer is either $3$, or perhaps $4$.", "3", (0.0, "wrong")),
        ("math", "$\\boxed{50}$", "50\\%", (1.0, "correct")),
        ("math", "The answer is 50%.", "50\\%", (1.0, "correct")),
        ("math", "$\\boxed{5}$", "50\\%", (0.0, "wrong")),
        ("math", "$\\boxed{18.0}$\n" + "Let me check that. " * 1200, "18", (1.0, "correct")),
        ("math", "$\\boxed{18.0}$" + "Let me check that. " * 1200 + "$\\boxed{19}$", "18", (0.0, "wrong")),
    ],
)  # fmt: skip
def test_a_verifier_pays_what_its_rule_says(
    name: str,
    completion: str,
    expected: str,
    verdict: tuple[float, str],
    quick_pool: Pool,
) -> None:
    """Each row is one sentence of a verifier's docstring."""
    verifier = load_verifier(name)
    if isinstance(verifier, Pooled):
        quick_pool.load(name)
        verifier = Pooled(name, verifier.quick, quick_pool)
    found = RewardAdapter(verifier).judge(completion, expected)

    assert (found.reward, found.reason.value) == verdict


@pytest.fixture(scope="module")
def quick_pool() -> Iterator[Pool]:
    with Pool(workers=1) as pool:
        yield pool


@pytest.mark.requirement("EX-10")
def test_an_answer_that_is_the_gold_itself_asks_no_worker(
    quick_pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most right answers need no algebra; only the others cost a question."""
    quick_pool.load("math")
    asked: list[Question] = []
    ask = quick_pool.ask

    def listen(questions: list[Question]) -> list[Verdict]:
        asked.extend(questions)
        return ask(questions)

    monkeypatch.setattr(quick_pool, "ask", listen)
    answers = (r"\frac{1}{2}", "0.5", r"\frac{x}{2x}")
    pairs = [(rf"so $\boxed{{{answer}}}$", r"\frac{1}{2}") for answer in answers]

    verdicts = Pooled("math", math.quick, quick_pool).many(pairs)

    assert [verdict.reward for verdict in verdicts] == [1.0, 1.0, 1.0]
    assert [question.completion for question in asked] == [pairs[2][0]]


@pytest.mark.requirement("EX-05")
def test_ifeval_pays_all_or_the_share_when_asked() -> None:
    """Strict by default: one instruction missed is nothing earned; the verdict names it."""
    row = {
        "instruction_id_list": ["punctuation:no_comma", "startend:quotation"],
        "kwargs": [{}, None],
    }
    adapter = RewardAdapter(load_verifier("ifeval"))

    strict = adapter.judge("no comma", json.dumps(row))
    share = adapter.judge("no comma", json.dumps({**row, "partial": True}))

    assert (strict.reward, strict.answer) == (0.0, "not followed: startend:quotation")
    assert share.reward == 0.5
    assert adapter.judge('"both"', json.dumps(row)).reward == 1.0


def test_math_sets_no_alarm_of_its_own() -> None:
    """An alarm of the caller's keeps running, and any thread may compare."""
    signal.setitimer(signal.ITIMER_REAL, 60)
    try:
        here = math.verify(r"$\boxed{\frac{2}{4}}$", "0.5")
        left = signal.getitimer(signal.ITIMER_REAL)[0]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    with ThreadPoolExecutor(1) as thread:
        there = thread.submit(math.verify, r"$\boxed{\frac{2}{4}}$", "0.5").result()

    assert (here.reward, there.reward) == (1.0, 1.0)
    assert 0 < left <= 60


LETTERS = "keywords:letter_frequency"


@pytest.mark.requirement("EX-05")
def test_a_letter_to_count_may_be_any_sign() -> None:
    """IFEval's own rows count '#' and '!', which older copies of its checkers replace by chance."""
    hashes: dict[str, Any] = {"letter": "#", "let_frequency": 3, "let_relation": "at least"}

    assert follows("#sun #sea #sand", LETTERS, hashes)
    assert not follows("#sun #sea and sand", LETTERS, hashes)
    assert follows("Go! Now!", LETTERS, {**hashes, "letter": "!", "let_frequency": 2})


@pytest.mark.parametrize(
    "wrong", [{"letter": "ab"}, {"letter": " "}, {"letter": ""}, {"let_frequency": -1}]
)
def test_an_instruction_without_sense_is_a_broken_row(wrong: dict[str, Any]) -> None:
    """The published code would draw another letter or number at random."""
    given = {"letter": "a", "let_frequency": 1, "let_relation": "at least"}

    with pytest.raises(ExpectedError, match=next(iter(wrong))):
        follows("a", LETTERS, {**given, **wrong})


@pytest.mark.requirement("EX-05")
@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("He was late (e.g. on Monday). Dr. Who came at 5 p.m. and left.", 3),
        ("1. Wash the pan. 2. Dry it.", 4),
        ("Well... maybe. Is it? Yes!", 3),
        ("J. R. Smith lives in the U.S. He is old.", 2),
        ("ab,c. ab,c! ab|c. a&b c?", 4),
    ],
)
def test_sentences_are_counted_as_the_published_checkers_count_them(text: str, count: int) -> None:
    """By the same model, with its oddities: 'e.g.' ends a sentence, the number of a list too."""
    assert len(sentences(text)) == count


def test_ifeval_runs_without_any_download(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sentences, words and languages are told with NLTK's data nowhere and its downloader broken."""

    def refuse(*_args: object, **_kwargs: object) -> None:
        raise AssertionError("a download")

    monkeypatch.setattr(nltk, "download", refuse)
    monkeypatch.setattr(nltk.data, "path", [])

    assert ifeval.verify(*ifeval.WARM_UP).reward == 1.0


def test_the_language_of_a_text_is_the_same_on_every_call() -> None:
    """langdetect draws at random; seeded, short texts do not flicker."""
    for text in ("ok then", "la casa", "si no"):
        assert len({language_of(text) for _ in range(10)}) == 1


BAD = {
    "no number": "I would rather not.",
    "empty": "",
    "a megabyte": "x1, " * 262_144,
    "a megabyte of digits": "7" * 1_048_576,
    "invalid UTF-8": b"The answer is \xff\xfe 18.".decode("utf-8", "surrogateescape"),
    "nested braces": "\\boxed{" + "{" * 10_000 + "1" + "}" * 10_000 + "}",
    "nested brackets": "[" * 10_000 + "]" * 10_000,
    "open braces": "\\boxed{" + "{" * 10_000,
    "null bytes": "\x00\x00",
}
EXPECTED = {
    "apps": '{"inputs": ["1"], "outputs": ["2"]}',
    "format": "boxed",
    "humaneval": '{"prompt": "def f(x):\\n", "entry_point": "f", "test": "def check(c):\\n    assert c(1) == 2"}',
    "ifeval": '{"instruction_id_list": ["length_constraints:number_sentences"], "kwargs": [{"num_sentences": 900000, "relation": "at least"}]}',
    "json_schema": '{"schema": {"type": "object"}}',
    "mbpp": '{"test_list": ["assert f(1) == 2"]}',
    "reasoning_gym": '{"answer": "4", "metadata": {"source_dataset": "gcd"}}',
    "regex": r"the total is (\d+)",
}
EXPECTED |= {
    twin: EXPECTED[name]
    for name, twins in {
        "humaneval": ["humaneval_pass_at_1"],
        "ifeval": ["ifeval_inst_strict", "ifeval_prompt_strict"],
        "mbpp": ["mbpp_pass_at_1"],
    }.items()
    for twin in twins
}


@pytest.mark.requirement("EX-05")
@pytest.mark.parametrize("name", verifier_names())
def test_bad_completions_are_verdicts_worth_nothing(name: str) -> None:
    """Never an exception, always a reason, and an answer that can be written to a file."""
    adapter = RewardAdapter(load_verifier(name))
    expected = EXPECTED.get(name, "18")

    verdicts = adapter.judge_all([(text, expected) for text in BAD.values()])

    paid = {case: v for case, v in zip(BAD, verdicts, strict=True) if v.reward != 0}
    if name in {
        "allenai_gsm8k",
        "allenai_math",
        "gsm8k_flexible",
        "gsm8k_last_number",
        "gsm8k_any",
        "math",
        "math_verify",
    }:
        paid.pop("invalid UTF-8", None)  # the number is there, whatever the bytes around it
    assert paid == {}
    for verdict in verdicts:
        assert verdict.reason in set(Reason)
        json.dumps(verdict.answer).encode()
        assert verdict.answer is None or len(verdict.answer.encode()) <= 2000


BEGINNINGS = [
    *("Final Answer: The final answer is ", "Final Answer: The final answer is $", "answer is "),
    *("The answer is ", "The answer is 1 or ", "#### ", "####", "\\boxed{", "\\boxed ", "\\fbox{"),
    *("$", "\\text{", "\\frac", "\\sqrt", "<think>", "</think>", "<answer>", "1,", "1", "1 ", "-"),
    *(
        "x=",
        "{",
        "}",
        " ",
        "\n",
        ". I hope it is correct",
        "1 or ",
        "1/",
        "1^",
        "1e",
        "1 111",
        "_1",
    ),
    *("\\frac{1", "\\frac{1}{", "\\boxed\t", "Rs", "1 1/"),
]


def _read_in_the_engine(name: str) -> Verifier | None:
    """What of a verifier runs in the engine's process, where no watchdog is."""
    module = importlib.import_module(f"engine.rewards.verifiers.{name}")
    if getattr(module, "BOXED", False):
        return None
    read: Verifier | None = getattr(
        module, "quick" if hasattr(module, "POOLED") else "verify", None
    )
    return read


@pytest.mark.parametrize("name", [name for name in verifier_names() if _read_in_the_engine(name)])
def test_an_answer_begun_again_and_again_is_read_in_linear_time(name: str) -> None:
    """What is quadratic takes minutes for these."""
    read = _read_in_the_engine(name)
    assert read is not None
    start = time.perf_counter()

    for text in BEGINNINGS:
        for lead in ("", "Final Answer: The final answer is ", "The answer is "):
            for expected in SHAPES if name == "format" else ("18",):
                read(lead + text * (100_000 // len(text)), expected)

    assert time.perf_counter() - start < 25


@pytest.mark.parametrize("name", verifier_names())
@pytest.mark.parametrize("expected", ["", "{", "[1]", '{"x": 1}', "\x00"])
def test_a_broken_row_never_ends_the_step(name: str, expected: str) -> None:
    """Whatever the dataset's `expected` holds, the answer is a verdict."""
    verdict = RewardAdapter(load_verifier(name)).judge("The answer is 5.", expected)

    assert isinstance(verdict, Verdict)


@pytest.mark.parametrize(
    ("name", "expected", "told"),
    [
        ("regex", '{"pattern": 5}', "pattern is 5; write a regular expression as text"),
        ("regex", '{"pattern": "a", "full": "false"}', 'full is "false"; write true or false'),
        ("regex", '{"pattern": "a", "answer": ["a"]}', 'answer is ["a"]; write the text that'),
        ("regex", '{"pattern": "a", "answer": true}', "answer is true; write the text that"),
        ("regex", '{"pattern": "a", "answer": null}', "answer is null; write the text that"),
        (
            "mbpp",
            '{"test_list": "assert f() == 1"}',
            'test_list is "assert f() == 1"; write a list',
        ),
        ("mbpp", '{"test_list": []}', "test_list is []; write a list of statements"),
        ("mbpp", '{"test_list": [1]}', "test_list is [1]; write a list of statements"),
        ("mbpp", '{"test_list": ["a"], "test_setup_code": ["x"]}', "test_setup_code is"),
        (
            "humaneval",
            '{"prompt": "", "test": [], "entry_point": "f"}',
            "test is []; write the code",
        ),
        ("apps", '{"inputs": "1", "outputs": ["1"]}', 'inputs is "1"; write a list'),
        ("apps", '{"inputs": [1], "outputs": [1], "fn_name": 1}', "fn_name is 1; write the name"),
        ("ifeval", '{"instruction_id_list": "a", "kwargs": [{}]}', 'list is "a"; write a list'),
        ("ifeval", '{"instruction_id_list": ["a"], "kwargs": ["b"]}', 'kwargs is ["b"]; write'),
        ("ifeval", '{"instruction_id_list": ["a"], "kwargs": [{}], "partial": 1}', "partial is 1;"),
        ("reasoning_gym", '{"answer": "1", "metadata": {}}', "source_dataset is null; write"),
        ("reasoning_gym", '{"answer": "1", "metadata": "gcd"}', 'metadata is "gcd"; write'),
        ("json_schema", '{"schema": "object"}', 'a schema is "object"; write an object'),
        ("json_schema", '{"schema": {"required": "a"}}', "schema.required: 'a' is not of type"),
        ("json_schema", '{"schema": {"enum": "ab"}}', "schema.enum: 'ab' is not of type 'array'"),
        ("json_schema", '{"schema": {"minItems": "2"}}', "schema.minItems: '2' is not of type"),
        ("json_schema", '{"schema": {"minimum": true}}', "schema.minimum: True is not of type"),
        (
            "json_schema",
            '{"schema": {"properties": {"a": {"tpye": "integer"}}}}',
            "schema.properties.a: has a word that the draft does not know",
        ),
        ("json_schema", '{"schema": {"$ref": "http://a.example/b"}}', "leads to nothing in it"),
    ],
)
def test_a_row_of_another_type_is_broken_and_says_what_to_write(
    name: str, expected: str, told: str
) -> None:
    """Never a silent 0: the field, its value, and what belongs there."""
    module = importlib.import_module(f"engine.rewards.verifiers.{name}")

    with pytest.raises(ExpectedError, match=re.escape(told)):
        module.verify("5", expected)


@pytest.mark.parametrize("answer", ['"12"', "12"])
def test_a_pattern_reads_a_number_that_the_row_has_as_a_number(answer: str) -> None:
    """Rows are often written by programs that know it for one."""
    row = f'{{"pattern": "is (\\\\d+)", "answer": {answer}}}'

    assert regex.verify("It is 12.", row).reward == 1.0
    assert regex.verify("It is 13.", row).reward == 0.0


DRESSED = {
    "18": [
        *(
            "\\boxed{18 \\text{ dollars}}",
            "\\boxed{18 dollars}",
            "\\boxed{\\text{18}}",
            "\\boxed{x=18}",
        ),
        *(
            "\\boxed{\\mathbf{18}}",
            "\\boxed{18 \\, \\text{cm}^2}",
            "\\boxed {18}",
            "\\boxed{\\$18.00}",
        ),
        *("I write \\boxed first: \\boxed{18}", "It is _18_.", "It is __18__.", "USD18", "Rs.18"),
        *("The answer is 18 for 3 - 1 people", "The answer is 18.", "36/2 = 18", "2^3 + 10 = 18"),
    ],
    "1800": [
        "1,\\!800",
        "1{,}800",
        "1\\,800",
        "1 800",
        "1\u202f800",
        "1_800",
        "1'800",
        "\\boxed{1,\\!800}",
    ],
    "1000000": ["1 000 000", "1,000,000.00"],
    "1/2": ["1/2", "\\frac{1}{2}"],
}
NOT_DRESSED = {
    "0": ["18 000", "18\\,000", "18\u202f000", "18_000", "18'000"],
    "1": ["The answer is 1e3", "The answer is 1,80", "\\boxed{\\frac{1}{2}}", "\\boxed{1, 2}"],
    "2": ["The answer is 1/2", "\\frac{1}{2}", "3 1/2", "\\boxed{2^{10}}", "\\boxed{\\sqrt{2}}"],
    "3": ["The answer is 3 1/2", "The answer is 10^3", "The answer is 10^{3}", "\\boxed{3 \\pi}"],
    "5": [
        "The answer is 5/6",
        "The answer is 5 or 6",
        "The answer is 5 or maybe 6",
        "The answer is 5-6",
    ],
    "6": ["The answer is 5/6", "The answer is 5 or 6", "The answer is 5\u20136", "It is 5 or $6"],
    "10": ["The answer is 10^3", "The answer is 10:30", "The answer is 10.5.2"],
}


@pytest.mark.parametrize(("gold", "text"), [(gold, t) for gold, ts in DRESSED.items() for t in ts])
def test_a_number_is_read_in_any_usual_dress(gold: str, text: str) -> None:
    """Boxed with its unit, emphasised, with a currency, its thousands apart."""
    assert gsm8k_any.verify(text, gold).reward == 1.0
    if "boxed" not in text and "people" not in text:
        assert gsm8k_last_number.verify(text, gold).reward == 1.0


@pytest.mark.parametrize(
    ("gold", "text"), [(gold, t) for gold, ts in NOT_DRESSED.items() for t in ts]
)
def test_a_part_of_a_number_is_not_the_number(gold: str, text: str) -> None:
    """Nor one of two between which the answer leaves the choice."""
    assert gsm8k_any.verify(text, gold).reward == 0.0
    if "boxed" not in text:
        assert gsm8k_last_number.verify(text, gold).reward == 0.0


@pytest.mark.parametrize("name", ["minerva_math", "allenai_math", "gsm8k_any", "math"])
@pytest.mark.parametrize(
    ("text", "reward"),
    [
        ("The word \\boxed stands here. $\\boxed{18}$", 1.0),
        ("As \\boxed {} asks: \\boxed{18}", 1.0),
        ("$\\boxed {18}$", 1.0),
        ("$\\boxed{18}$, no, $\\boxed{19}$", 0.0),
    ],
)
def test_a_box_behind_the_word_is_the_box(name: str, text: str, reward: float) -> None:
    """The word in a sentence is none; of two the last counts."""
    assert _judge(name, text, "18")[0] == reward


EXAMPLES = {
    "regex": ("5 + 7: the total is 12.", "The total is 13."),
    "json_schema": ('```json\n{"country": "Italy"}\n```', '{"country": "France"}'),
    "format": ("It is $\\boxed{5}$.", "It is 5."),
    "mbpp": ("def inc(x):\n    return x + 1", "def inc(x):\n    return 2"),
    "humaneval": ("    return x + 1", "    return x"),
    "apps": ("print(2 * int(input()))", "print(4)"),
    "ifeval": ("It is old and large.", "It is old, and large."),
    "reasoning_gym": ("<answer>4</answer>", "<answer>5</answer>"),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_row_in_the_docs_pays_the_right_answer_alone(name: str, tmp_path: Path) -> None:
    """Read as a corpus is read; the verifiers whose rows hold more than one answer have one each."""
    docs = (ROOT / "docs/verifiers.md").read_text("utf-8")
    [row] = re.findall(rf"^`{name}`: .+?^```json\n(.+?)\n```$", docs, re.DOTALL | re.MULTILINE)
    (tmp_path / "rows.jsonl").write_text(row, "utf-8")
    [read] = read_rows(DataConfig(source=str(tmp_path / "rows.jsonl")))
    right, wrong = EXAMPLES[name]

    assert _judge(name, right, read.answer) == (1.0, "correct")
    assert _judge(name, wrong, read.answer)[0] < 1.0


REWARDS = """
def length(completions, **kwargs):
    return [min(1.0, len(text) / 10) for text in completions]

def matches(prompts, completions, answer, **kwargs):
    return [float(text == gold) for text, gold in zip(completions, answer)]

def column(completions, level, **kwargs):
    return [float(level[0])]

def skips(completions, **kwargs):
    return [None]

def exits(completions, **kwargs):
    raise SystemExit(3)

constant = 4
"""


@pytest.fixture
def rewards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "my_rewards.py").write_text(REWARDS, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("NIGHTLANE_REWARD_MODULES", "my_rewards, other.package")
    monkeypatch.delitem(sys.modules, "my_rewards", raising=False)
    return "my_rewards"


@pytest.mark.requirement("EX-05")
@pytest.mark.parametrize(
    ("function", "expected", "verdict"),
    [
        ("length", "", (0.5, "correct")),
        ("matches", "12345", (1.0, "correct")),
        ("matches", "1", (0.0, "wrong")),
        ("column", '{"level": 0.25}', (0.25, "wrong")),
        ("skips", "", (0.0, "unjudged")),
        ("exits", "", (0.0, "crash")),
        ("column", "", (0.0, "crash")),
    ],
)
def test_a_reward_of_trls_signature_is_a_verifier(
    rewards: str, function: str, expected: str, verdict: tuple[float, str]
) -> None:
    """Columns by name, lists in and out, None for `does not apply`."""
    assert _judge(f"{rewards}:{function}", "12345", expected) == verdict


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("os:system", "which the operator does not allow; add it to NIGHTLANE_REWARD_MODULES"),
        ("my_rewards_2:length", "does not allow"),
        ("my_rewards:no_such", "cannot be imported"),
        ("my_rewards:constant", "is no function"),
        ("my_rewards:", "is not module:function"),
        ("../x:y", "is not module:function"),
        ("other.package.sub:f", "cannot be imported"),
    ],
)
def test_a_reward_outside_the_operators_modules_is_refused(
    rewards: str, path: str, message: str
) -> None:
    """A job chooses among what the operator allows; it brings no code."""
    with pytest.raises(RLLoopError, match=message):
        load_verifier(path)


def test_a_verifier_whose_machinery_is_missing_stops_the_run_in_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Fails closed: no box, no code, and the line says what to install."""
    box.close()
    box.require.cache_clear()
    box._tools.cache_clear()
    with monkeypatch.context() as nowhere:
        nowhere.setenv("PATH", "/nowhere")
        with pytest.raises(RLLoopError, match=r"verifier: cannot run here: bwrap.*apt-get install"):
            load_verifier("mbpp")
    box._tools.cache_clear()


def test_a_verifiers_name_is_checked_without_importing_it(rewards: str) -> None:
    """The config says what is wrong before anything runs."""
    assert verifier_problem("math") is None
    assert verifier_problem(f"{rewards}:length") is None
    assert "did you mean math?" in str(verifier_problem("maths"))
    assert "known: allenai_gsm8k" in str(verifier_problem("bleurt-20"))
    assert "does not allow" in str(verifier_problem("subprocess:run"))


def test_judging_many_keeps_their_order_and_says_which_were_truncated() -> None:
    """`judge_all` is `judge`, side by side."""
    adapter = RewardAdapter(load_verifier("math"))
    pairs = [(f"$\\boxed{{\\frac{{{n}}}{{2}}}}$", "1.5") for n in range(1, 7)]

    verdicts = adapter.judge_all(pairs, [n == 4 for n in range(1, 7)])

    assert [v.reward for v in verdicts] == [0, 0, 1, 0, 0, 0]
    assert verdicts[3].reason is Reason.TRUNCATED
    assert verdicts[0] == adapter.judge(*pairs[0])


@pytest.mark.parametrize(
    ("completion", "code"),
    [
        ("```bash\npip install x\n```\nThen:\n```python\nx = 1\n```", "x = 1"),
        ("```\nout\n```\n```py\nx = 1\n```", "x = 1"),
        ("```json\n{}\n```\n```\nx = 1\n```", "x = 1"),
        ("```Python\nx = 1\n```\n```python\nx = 2\n```", "x = 1"),
        ("```c\nint x;\n```", "int x;"),
        ("x = 1\n[DONE] y", "x = 1\n"),
        ('```python title="x.py"\nx = 1\n```\nIt works.', "x = 1"),
        ("```sh\nls\n```\n```{python}\nx = 1\n```", "x = 1"),
        ("```sh\nls\n```\n```{.python .numbers}\nx = 1\n```", "x = 1"),
        ("```sh\nls\n```\n``` python3.11\nx = 1\n```", "x = 1"),
        ("```sh\nls\n```\n```py:x.py\nx = 1\n```", "x = 1"),
        ("~~~python\nx = 1\n~~~", "x = 1"),
        ("````python\nx = '''\n```\n'''\n````", "x = '''\n```\n'''"),
        ("~~~\n```\n~~~~\n", "```"),
        ("1. So:\n\n   ```python\n   if x:\n       y\n   ```\n2. z", "if x:\n    y"),
        ("- So:\n  - x\n\n    ```python\n    if x:\n        y\n    ```", "if x:\n    y"),
        ("-\tSo:\n\n\t```python\n\tif x:\n\t\ty\n\t```", "if x:\n    y"),
        ("1. ```python\n   if x:\n       y\n   ```", "if x:\n    y"),
        ("   ```python\nif x:\n    y\n   ```", "if x:\n    y"),
        ("1. So:\n   ```python\nif x:\n    y\n   ```", "if x:\n    y"),
        (
            "```python\nf = '''\n    ```\n    f\n    ```\n'''\n```",
            "f = '''\n    ```\n    f\n    ```\n'''",
        ),
        (
            "def f():\n    '''\n    ```\n    f\n    ```\n    '''",
            "def f():\n    '''\n    ```\n    f\n    ```\n    '''",
        ),
        ("```python\r\nif x:\r\n    y\r\n```\r\nz", "if x:\r\n    y\r"),
        ("```python\nx = 1", "x = 1"),
        ("```python\nx = 1\n``` It works.", "x = 1"),
        ("```python\nx = 1```", "x = 1"),
        ("Here: ```python\nx = 1\n```\nDone.", "x = 1"),
        ("Here: ```\nx = 1\n```\nDone.", "x = 1"),
        ("Put it in ```\n```python\nx = 1\n```\nDone.", "x = 1"),
        ("Run ```pip```\n```\nx = 1\n```\nDone.", "x = 1"),
        ("<think>```python\nx = 2\n```</think>```python\nx = 1\n```", "x = 1"),
        ("```python\n```", Verdict.unparsed()),
    ],
)
def test_the_program_is_the_block_that_says_it_is_python(
    completion: str, code: str | Verdict
) -> None:
    """What installs it, or what it prints, is often shown before it; fences are CommonMark's."""
    assert program(completion) == code


@pytest.mark.parametrize(
    "thought", ["<think>or x + 2</think>", "<think>\ndef inc(x): 1\n</think>\n\n", "x?</think>\n"]
)
@pytest.mark.parametrize("answer", ["    return x + 1\n", "def inc(x):\n    return x + 1\n"])
def test_a_thought_is_no_part_of_a_function(thought: str, answer: str) -> None:
    """Fenced or not, a body or the whole."""
    row = '{"prompt": "def inc(x):\\n", "entry_point": "inc", "test": "def check(f):\\n    assert f(1) == 2"}'

    assert _judge("humaneval", thought + answer, row) == (1.0, "correct")


OBJECT = '{"schema": {"type": "object"}, "answer": {"a": 1}}'


@pytest.mark.parametrize(
    "completion",
    [
        '```JSON\n{"a": 1}\n```',
        '```json5\n{"a": 1}\n```',
        '```json {"a": 1} ```',
        'So:\n```json\n{"a": 1}',
        'So:\n```json\n{"a": 1}```',
        '~~~json\n{"a": 1}\n~~~',
        'From\n```python\na = 1\n```\nfollows\n```json\n{"a": 1}\n```',
        'From\n```python\na = 1\n```\nfollows\n```\n{"a": 1}\n```',
        '1. So:\n   ```json\n   {"a":\n     1}\n   ```',
        '{"a": 1.0}',
        '{"a": 1e0}',
        '{"a": 10E-1}',
    ],
)
def test_json_is_found_in_its_fence_and_equal_by_value(completion: str) -> None:
    """Whatever the fence says and however a number is written."""
    assert json_schema.verify(completion, OBJECT).reward == 1.0


@pytest.mark.parametrize("value", ["true", '"1"', "[1]", "{}", "null", "1.5", '1, "b": 2'])
def test_json_of_another_value_is_another(value: str) -> None:
    """True is not 1, and an object has no names besides."""
    assert json_schema.verify(f'{{"a": {value}}}', OBJECT).reason is Reason.WRONG


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity"])
def test_what_json_does_not_know_is_no_json(value: str) -> None:
    """Python would read them."""
    row = '{"schema": {}}'

    assert json_schema.verify(value, row).reason is Reason.UNPARSED
    assert json_schema.verify(f'{{"a": [{value}]}}', row).reason is Reason.UNPARSED


def test_json_with_marks_in_a_text_is_read_whole() -> None:
    """A fence begins a line."""
    row = '{"schema": {}, "answer": "use ``` here"}'

    assert json_schema.verify('```json\n"use ``` here"\n```', row).reward == 1.0


@pytest.mark.parametrize(
    ("schema", "value", "reward"),
    [
        ('{"const": 1}', "1.0", 1.0),
        ('{"const": true}', "1", 0.0),
        ('{"enum": [1, 2]}', "2.0", 1.0),
        ('{"enum": [[1, {"a": 2, "b": 3}]]}', '[1e0, {"b": 3, "a": 2.0}]', 1.0),
        ('{"enum": [[1, 2]]}', "[2, 1]", 0.0),
    ],
)
def test_const_and_enum_compare_values(schema: str, value: str, reward: float) -> None:
    """Not how they are written."""
    assert json_schema.verify(value, f'{{"schema": {schema}}}').reward == reward


def test_deeply_nested_json_is_compared() -> None:
    """Deeper than Python calls itself."""
    deep = "[" * 900 + "]" * 900
    row = f'{{"schema": {{}}, "answer": {deep}}}'

    assert json_schema.verify(deep, row).reward == 1.0
    assert json_schema.verify(f"[{deep}]", row).reward == 0.0


@pytest.mark.parametrize(
    "text",
    [
        *("```", "```\n", "``` ", "~~~\n", "```python\n", "\n ", "    ```\n", "- ", "- ```\n"),
        *("1. \n", "\t", "a```\n", "a```b\n", "``` a ```\n", "```\n    ```\n", "```{", "`a"),
    ],
)
def test_a_hostile_text_is_searched_for_fences_in_linear_time(text: str) -> None:
    """A megabyte of anything; what is quadratic takes minutes."""
    start = time.perf_counter()

    for hostile in (text * (2**20 // len(text)), "```\n" + text * (2**20 // len(text))):
        fenced(hostile, {"python"})

    assert time.perf_counter() - start < 20
