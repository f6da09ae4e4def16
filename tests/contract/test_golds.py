"""Answers that a verifier cannot read or never pays are said when a job is sent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.contract.errors import ConfigError
from engine.contract.golds.checks import Level, gold_check
from engine.contract.registry import cautions, validate
from engine.contract.verifiers import verifier_names

MBPP = {"test_list": ["assert inc(1) == 2"], "test_setup_code": ""}
HUMAN_EVAL = {"prompt": "def f(x):\n", "test": "def check(c):\n    assert c(1)", "entry_point": "f"}
IFEVAL: dict[str, Any] = {
    "instruction_id_list": ["length_constraints:number_words"],
    "kwargs": [{"num_words": 9, "relation": "at least"}],
}
APPS = {"inputs": ["1"], "outputs": ["2"]}
GYM = {"answer": "4", "metadata": {"source_dataset": "gcd"}}


def _config(folder: Path, verifier: str, answers: list[Any], **more: Any) -> dict[str, Any]:
    path = folder / "rows.jsonl"
    rows = [
        {"id": f"q{n}", "prompt": f"a{n}", "answer": answer} for n, answer in enumerate(answers)
    ]
    path.write_text("\n".join(map(json.dumps, rows)), "utf-8")
    return {"base": "org/model", "data": {"source": str(path)}, "verifier": verifier, **more}


def _refusal(config: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        validate("rl_run", config)
    [problem] = [p for p in caught.value.problems if p.field == "verifier"]
    return problem.line()


READ = [
    *(("gsm8k_any", gold) for gold in ("18", "1,800", "$18", "1/2", "1e3", "-5", "9*2\n#### 18")),
    *(("gsm8k_last_number", gold) for gold in ("5 feet", "50%", "\\boxed{18}")),
    *(("gsm8k", gold) for gold in ("18", "-5", "1,800", "$18.50", "so 18\n#### 18")),
    *(("gsm8k_flexible", gold) for gold in ("18", "so 18\n#### 1,800")),
    *(("allenai_gsm8k", gold) for gold in ("18", "2.5", "-2.5")),
    *(("allenai_math", gold) for gold in ("18", "\\frac{1}{2}", "-5", "x<3")),
    *(("math", gold) for gold in ("18", "yes", "{1, 2}", "so 18\n#### 18", "so \\boxed{18}")),
    *((name, "so $\\boxed{18}$") for name in ("minerva_math", "hendrycks_math")),
    *(("exact", gold) for gold in ("18", '{"a": 1}', "#### 18")),
    ("regex", "a+"),
    ("regex", {"pattern": "is (\\d+)", "answer": 12}),
    ("format", "boxed"),
    ("format", {"format": "think"}),
    ("json_schema", {"schema": {"type": "object"}}),
    ("mbpp", MBPP),
    ("humaneval", HUMAN_EVAL),
    ("ifeval", IFEVAL),
    ("ifeval", {"instruction_id_list": ["punctuation:no_comma"], "kwargs": [None]}),
    ("apps", APPS),
    ("reasoning_gym", GYM),
]


@pytest.mark.requirement("EX-05")
@pytest.mark.parametrize(("verifier", "answer"), READ, ids=str)
def test_an_answer_that_a_verifier_reads_passes(verifier: str, answer: Any) -> None:
    """In every form that its page names."""
    check = gold_check(verifier)
    gold = answer if isinstance(answer, str) else json.dumps(answer)

    assert check is not None
    assert check(gold) is None


REFUSED = [
    # no number where one is read
    *((name, "see figure", "reads a number") for name in ("gsm8k", "gsm8k_any", "gsm8k_flexible")),
    ("gsm8k_last_number", "n/a", "reads a number"),
    ("allenai_gsm8k", "see figure", "reads a number"),
    ("gsm8k_any", "10:30", "reads a number"),
    ("gsm8k_any", "1e999", "reads a number"),
    ("gsm8k_any", "5 or 6", "reads a number"),
    # what the harness never pays
    ("allenai_gsm8k", "9 * 2 = 18\n#### 18", "open-instruct"),
    ("allenai_gsm8k", "\\boxed{18}", "open-instruct"),
    ("allenai_gsm8k", "1,800", "open-instruct"),
    ("allenai_gsm8k", "-5", "open-instruct"),
    ("allenai_math", "\\boxed{18}", "\\boxed included"),
    ("allenai_math", "Hence $\\boxed{18}$.", "\\boxed included"),
    ("allenai_math", "9 * 2 = 18\n#### 18", "#### included"),
    ("minerva_math", "9 * 2 = 18\n#### 18", "reads no ####"),
    ("minerva_final_answer", "9 * 2 = 18\n#### 18", "reads no ####"),
    ("hendrycks_math", "9 * 2 = 18\n#### 18", "reads no ####"),
    ("gsm8k", "1/2", "digits as text"),
    ("gsm8k_flexible", "50%", "digits as text"),
    ("math", "\\boxed{}", "reads a number, a formula or a word"),
    ("math", "It follows from the lemma. " * 30, "at most 500 characters"),
    # rows of another verifier
    *((name, MBPP, "not an object") for name in ("math", "gsm8k", "allenai_math")),
    ("humaneval", "18", "reads prompt, test and entry_point; 200 of 200 rows hold none"),
    ("humaneval", "see figure", "expected is not JSON"),
    ("humaneval", MBPP, "expected lacks prompt, test, entry_point"),
    ("humaneval", HUMAN_EVAL | {"entry_point": "f(x)"}, "entry_point is"),
    ("mbpp", HUMAN_EVAL, "expected lacks test_list"),
    ("mbpp", {"test_list": "assert f()"}, "test_list is"),
    ("apps", {"inputs": ["1"], "outputs": []}, "1 inputs and 0 outputs"),
    ("ifeval", "18", "expected is int, not an object"),
    ("ifeval", IFEVAL | {"kwargs": []}, "1 instructions with 0 sets"),
    ("ifeval", IFEVAL | {"kwargs": [{"num_words": 9}]}, "lacks relation"),
    (
        "ifeval",
        IFEVAL | {"kwargs": [{"num_words": 9, "relation": "around"}]},
        "relation is 'around', neither",
    ),
    (
        "ifeval",
        {"instruction_id_list": ["count:word_count_range"], "kwargs": [{}]},
        "none of IFEval's 25",
    ),
    (
        "ifeval",
        {"func_name": "validate_word_constraint", "N": 9, "quantifier": "around"},
        "a check of RLVR-IFEval (open-instruct), which is not IFEval's; its nearest there: "
        'length_constraints:number_words; "around" has no equal',
    ),
    (
        "ifeval",
        {"func_name": "verify_keyword_frequency", "word": "a", "N": 3},
        "its nearest there: none",
    ),
    ("ifeval", {"func_name": "no_such"}, "its nearest there: none that is known"),
    ("regex", "(", "pattern '('"),
    ("regex", {"pattern": "a", "answer": None}, "answer is null"),
    ("format", "haiku", "format 'haiku' is none of"),
    ("json_schema", {"type": "object"}, "expected lacks schema"),
    ("reasoning_gym", {"answer": "4", "metadata": {}}, "source_dataset is null"),
    ("exact", "  ", "reads a text"),
]


@pytest.mark.requirement("EX-05")
@pytest.mark.parametrize(("verifier", "answer", "told"), REFUSED, ids=str)
def test_a_file_that_would_score_nothing_is_refused_with_its_rows(
    tmp_path: Path, verifier: str, answer: Any, told: str
) -> None:
    """Which verifier, which rows, which field, and what fits."""
    line = _refusal(_config(tmp_path, verifier, [answer] * 200))

    assert told in line
    assert "row 1, id 'q0'" in line
    assert "; 200 of 200 rows " in line
    assert "would score 0" in line
    assert "by column 'answer'" in line
    assert line.startswith("verifier: ")


def test_one_broken_row_among_good_ones_is_named(tmp_path: Path) -> None:
    """It would score 0 whatever is answered."""
    answers = [str(n) for n in range(150)] + ["see figure"] + ["7"] * 49

    line = _refusal(_config(tmp_path, "gsm8k_any", answers))

    assert "; 1 of 200 rows hold none" in line
    assert "(row 151, id 'q150': 'see figure')" in line
    assert "math pays numbers, formulas and words" in line


def test_a_share_that_a_harness_never_pays_is_a_caution(tmp_path: Path) -> None:
    """A verifier that equals a harness keeps its quirk; how many rows it costs is said."""
    config = _config(tmp_path, "allenai_gsm8k", ["7"] * 190 + ["-5"] * 10)

    validate("rl_run", config)

    [said] = [c for c in cautions("rl_run", config) if "; 10 of 200 rows" in c.problem]
    assert said.field == "verifier"


def test_whole_worked_solutions_for_exact_are_a_caution(tmp_path: Path) -> None:
    """Nobody means a completion that repeats all of it to the letter."""
    gold = "Natalia sold 48/2 = 24 clips in May. Natalia sold 48+24 = 72 altogether.\n#### 72"
    config = _config(tmp_path, "exact", [gold] * 200)

    validate("rl_run", config)

    assert any("all of it" in c.problem for c in cautions("rl_run", config))


def test_the_lenient_verifiers_rows_are_looked_at_too(tmp_path: Path) -> None:
    """It only helps at first, so its rows are a caution."""
    more = {"format": {"lenient": "gsm8k_any"}}
    config = _config(tmp_path, "minerva_math", ["x+1"] * 200, **more)

    validate("rl_run", config)

    fields = [c.field for c in cautions("rl_run", config)]
    assert "format.lenient" in fields


@pytest.mark.parametrize("verifier", ["humaneval", "ifeval", "apps", "format"])
def test_an_embedded_task_with_a_verifier_of_objects_is_refused(verifier: str) -> None:
    """Its answers are numbers."""
    config = {"base": "org/model", "data": {"source": "embedded:word_problems"}}

    assert "1 of 1 rows" in _refusal(config | {"verifier": verifier})


def test_every_verifier_has_a_check() -> None:
    """A new one says what it reads; a reward function of the operator's reads what it likes."""
    assert all(gold_check(name) is not None for name in verifier_names())
    assert gold_check("my_rewards:brevity") is None


def test_a_level_is_worse_the_higher_it_is() -> None:
    """The worst is shown first."""
    assert Level.DOUBTFUL < Level.UNPAID < Level.BROKEN
