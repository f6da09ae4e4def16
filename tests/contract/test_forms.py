"""Forms that do not fit together, and test rows that train: said before a run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from engine.contract import registry
from engine.contract.kinds.rl_run import RLRunConfig
from engine.contract.sources.benchmark_rows import says_test
from engine.contract.sources.first_rows import FirstRow

HASHES = 'Let\'s think step by step and output the final answer after "####".'
BOX = "Let's think step by step and output the final answer within \\boxed{}."


def source(path: Path, instruction: str = "", **columns: Any) -> str:
    """120 questions, each with an instruction behind it as verl's rows have it."""
    rows = (
        {"prompt": f"Janet has {i} eggs and eats one. How many are left? {instruction}".strip(),
         "answer": str(i - 1), **columns}
        for i in range(1, 121)
    )  # fmt: skip
    path.write_text("\n".join(map(json.dumps, rows)), "utf-8")
    return str(path)


def said(**config: Any) -> list[str]:
    """The cautions that speak of forms."""
    whole = {"base": "Qwen/Qwen2.5-0.5B", "max_new_tokens": 256, **config}
    words = ("form", "asks for", "ask for", "test split", "reads")
    found = (one.line() for one in registry.cautions("rl_run", whole))
    return [line for line in found if any(word in line for word in words)]


@pytest.mark.parametrize(
    ("instruction", "settings", "field", "problem", "remedy"),
    [
        (
            HASHES,
            {"verifier": "gsm8k"},
            "verifier",
            "reads The answer is 18. alone, and the prompts of training ask for #### 18: right "
            "answers earn nothing",
            "set verifier to gsm8k_hashes or math, or set prompting.template to answer_is",
        ),
        (
            "",
            {"verifier": "gsm8k", "prompting": {"template": "boxed"}},
            "verifier",
            "reads The answer is 18. alone, and the prompts of training ask for \\boxed{18}",
            "set verifier to minerva_math or allenai_math, or set prompting.template to answer_is",
        ),
        (
            HASHES,
            {"verifier": "math", "prompting": {"template": "boxed"}},
            "prompting.template",
            "asks for \\boxed{18}, and the rows of training already ask for #### 18",
            "leave the template out",
        ),
    ],
)
def test_what_the_prompt_asks_for_is_held_against_what_pays(
    tmp_path: Path,
    instruction: str,
    settings: Mapping[str, Any],
    field: str,
    problem: str,
    remedy: str,
) -> None:
    [line] = said(data={"source": source(tmp_path / "t.jsonl", instruction)}, **settings)

    assert line.startswith(f"{field}: {problem}")
    assert remedy in line


@pytest.mark.parametrize(
    ("instruction", "settings"),
    [
        (BOX, {"verifier": "minerva_math"}),
        (HASHES, {"verifier": "math"}),
        ("", {"verifier": "gsm8k"}),
        ("", {"verifier": "gsm8k", "prompting": {"template": "answer_is"}}),
    ],
)
def test_forms_that_fit_are_no_caution(
    tmp_path: Path, instruction: str, settings: Mapping[str, Any]
) -> None:
    assert said(data={"source": source(tmp_path / "t.jsonl", instruction)}, **settings) == []


@pytest.mark.requirement("EX-11")
@pytest.mark.parametrize(
    ("verifier", "bench", "problem"),
    [
        (
            "minerva_math",
            {"verifier": "gsm8k"},
            "heldout.0.verifier: reads The answer is 18. alone, and training pays \\boxed{18} "
            "alone: what is learnt does not show on bench",
        ),
        (
            "math",
            {"verifier": "minerva_math"},
            "verifier: pays any form, of which bench reads \\boxed{18} alone: the form may drift "
            "away from it while the answers stay right (got 'math'); set verifier to "
            "minerva_math, format.shape to boxed, or a template that asks for it",
        ),
        (
            "math",
            {"verifier": "math", "template": "minerva_math"},
            "heldout.0.template: bench asks 'Problem:\\n{prompt}\\n\\nSolution:', and training "
            "'{prompt}'",
        ),
    ],
)
def test_each_bench_is_held_against_what_trains(
    tmp_path: Path, verifier: str, bench: Mapping[str, Any], problem: str
) -> None:
    """Seed 004's two findings: a lenient reward let the box go, and a form was learnt under the
    training prompt only.
    """
    rows = source(tmp_path / "t.jsonl")
    heldout = [{"name": "bench", "source": rows, **bench}]

    [line] = said(data={"source": rows}, verifier=verifier, heldout=heldout)

    assert line.startswith(problem)


def test_paying_one_shape_alone_is_what_a_lenient_verifier_needs(tmp_path: Path) -> None:
    rows = source(tmp_path / "t.jsonl")
    heldout = [{"name": "bench", "source": rows, "verifier": "minerva_math"}]

    found = said(data={"source": rows}, verifier="math", format={"shape": "boxed"}, heldout=heldout)

    assert found == []


def test_training_on_test_rows_is_said_and_a_bench_of_them_is_not(tmp_path: Path) -> None:
    rows = source(tmp_path / "t.jsonl", data_source="openai/gsm8k", extra_info={"split": "test"})
    heldout = [{"name": "bench", "source": rows}]

    [line] = said(data={"source": rows}, verifier="math", heldout=heldout)

    assert line.startswith(
        "data.source: is a test split, as it seems (its rows say split: test of openai/gsm8k): "
        "you are training on a benchmark's test rows"
    )


@pytest.mark.parametrize(
    ("path", "columns", "said_by"),
    [
        ("/data/gsm8k/test.parquet", {}, "its path says gsm8k and test"),
        ("/data/MATH-500/rows.jsonl", {}, "its path says math_500"),
        ("/data/gsm8k_test.jsonl", {}, "its path says gsm8k and test"),
        ("/data/rows.jsonl", {"split": "test"}, "its rows say split: test"),
        ("/data/gsm8k/train.parquet", {}, None),
        ("/data/gsm8k/test.parquet", {"extra_info": {"split": "train"}}, None),
        ("/data/test/mine.jsonl", {}, None),
        ("/data/latest_math.jsonl", {}, None),
    ],
)
def test_a_benchmarks_test_rows_are_known_by_what_they_say(
    path: str, columns: Mapping[str, Any], said_by: str | None
) -> None:
    rows = [FirstRow("1", [{"role": "user", "content": "Why?"}], columns)] * 3

    assert says_test(path, rows) == said_by


def examples(**config: Any) -> Sequence[tuple[str, str, str]]:
    found = registry.get_kind("rl_run").examples(RLRunConfig(**config))
    return [(one.name, one.text, one.note) for one in found]


def test_prompts_of_each_source_are_shown_as_they_will_be_asked(tmp_path: Path) -> None:
    """Of what trains the shortest and the longest, and one between where there is one."""
    path = tmp_path / "t.jsonl"
    rows = [{"prompt": asked, "answer": "1"} for asked in ("Why?", "And how?")]
    path.write_text("\n".join(map(json.dumps, rows)), "utf-8")
    heldout = [{"name": "cot", "source": str(path), "template": "gsm8k_cot"}]

    found = examples(
        data={"source": str(path)}, heldout=heldout, prompting={"system_prompt": "Be brief."}
    )

    assert found == [
        ("data", "Be brief.\n\nWhy?", ""),
        ("data", "Be brief.\n\nAnd how?", ""),
        ("cot", "Be brief.Q: Why?\nA:", ""),  # as lm-evaluation-harness joins them
    ]


def test_under_a_chat_template_the_turns_are_shown(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    turns = [{"role": "system", "content": "Hm."}, {"role": "user", "content": "Why?"}]
    path.write_text(json.dumps({"prompt": turns, "answer": "1"}), "utf-8")

    [(_, text, note)] = examples(
        data={"source": str(path)}, prompting={"skip_chat_template": False}
    )

    assert text == "system: Hm.\n\nuser: Why?\n\nassistant: "
    assert note == "the model's chat template writes these turns"


def test_rows_that_cannot_be_read_show_no_prompt(tmp_path: Path) -> None:
    """They are refused with their line, elsewhere."""
    path = tmp_path / "t.jsonl"
    path.write_text('{"prompt": [3], "answer": "5"}', "utf-8")

    assert examples(data={"source": str(path)}) == []
    assert examples(data={"source": str(tmp_path / "gone.jsonl")}) == []


@pytest.mark.requirement("EX-22")
@pytest.mark.parametrize(
    ("decide", "what"),
    [
        ("own", "you are training on a benchmark's test rows"),
        ("cot", "they will be taken out of the training rows"),
    ],
)
def test_rows_of_a_bench_that_train_are_said_before_the_run(
    tmp_path: Path, decide: str, what: str
) -> None:
    """Of the first hundred of each: what a page may read."""
    rows, other = source(tmp_path / "rows.jsonl"), tmp_path / "other.jsonl"
    other.write_text('{"prompt": "Who wrote Emma?", "answer": "Austen"}\n', "utf-8")
    bench = {"name": "cot", "source": rows}
    config = {
        "base": "Qwen/Qwen2.5-0.5B",
        "data": {"source": rows},
        "heldout": [bench, {"name": "other", "source": str(other)}],
        "decide": decide,
    }

    found = [one for one in registry.cautions("rl_run", config) if "training rows" in one.problem]

    assert [(one.field, one.value) for one in found] == [("heldout.0.source", rows)]
    assert found[0].problem == (
        f"has 100 of its first 100 rows among the first 100 training rows ('1' is row '1' there): "
        f"{what}"
    )
