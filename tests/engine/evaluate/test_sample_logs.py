"""Sample logs of other harnesses, read in as completions: files that those harnesses wrote."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.contract.errors import RLLoopError
from engine.evaluate.logs.files import read
from tests.engine.evaluate.stored import judged_again, write

LOGS = Path(__file__).with_name("logs")
LM_EVAL = LOGS / "samples_my_cot_2026-11-26T07-17-59.511292.jsonl"
"""Four rows of our own by lm_eval 0.4.13 with `--log_samples`, filters as gsm8k_cot has them."""
INSPECT = LOGS / "2026-11-26T07-13-06_task.json"
"""Two samples, two epochs, by inspect_ai 0.3.285; without its events."""


@pytest.mark.requirement("EX-23")
def test_a_sample_log_of_lm_eval_is_judged_as_its_own_filters_judged_it() -> None:
    """strict-match is our gsm8k, flexible-extract our gsm8k_flexible, row by row."""
    found = judged_again(LM_EVAL, "gsm8k", "gsm8k_flexible", rows=True)

    names = [one.verifier for one in found.judged]
    assert names == ["strict-match", "flexible-extract", "gsm8k", "gsm8k_flexible"]
    assert [one.score for one in found.judged] == [0.25, 0.75, 0.25, 0.75]
    assert all(row.success[:2] == row.success[2:] for row in found.rows)
    assert found.judged[0].unparsed == found.judged[2].unparsed == 0.5
    assert found.judged[0].truncated is None
    assert "does not say which completions were cut off" in found.said[0]


def test_a_line_of_lm_eval_is_one_completion_with_prompt_and_gold() -> None:
    first, *rest = read(LM_EVAL).completions

    assert len(rest) == 3
    assert (first.id, first.gold) == ("0", "18")
    assert first.prompt == "Q: Tom has 9 boxes of 2. How many?\nA:"
    assert first.text == " 9 * 2 = 18. The answer is 18."


@pytest.mark.requirement("EX-23")
def test_a_log_of_inspect_is_judged_as_its_own_scorers_judged_it() -> None:
    """Epochs are samples of one row; a stop by length is a completion that was cut off."""
    found = judged_again(INSPECT, "gsm8k_last_number", rows=True)

    assert [one.verifier for one in found.judged] == ["match", "includes", "gsm8k_last_number"]
    assert [one.score for one in found.judged] == [0.5, 0.5, 0.5]
    assert (found.judged[2].n, found.judged[2].rows, found.judged[2].truncated) == (4, 2, 0.25)
    assert [(row.id, row.sample) for row in found.rows] == [("2", 0), ("a", 0), ("2", 1), ("a", 1)]
    assert found.columns == ["level"]


def test_a_sample_of_inspect_without_a_completion_is_left_out_and_said(tmp_path: Path) -> None:
    log = json.loads(INSPECT.read_text())
    log["samples"][0]["output"] = {"model": "m", "choices": [], "completion": ""}
    log["samples"][1]["target"] = ["18", "eighteen"]
    path = tmp_path / "log.json"
    path.write_text(json.dumps(log))

    found = read(path)

    assert len(found.completions) == 3
    assert [one.split()[0] for one in found.said] == ["1", "1"]
    assert found.completions[0].gold == "18"


def test_a_long_text_of_inspect_is_found_beside_its_sample(tmp_path: Path) -> None:
    log = json.loads(INSPECT.read_text())
    log["samples"][0]["input"] = "attachment://abc"
    log["samples"][0]["attachments"] = {"abc": "a long question"}
    path = tmp_path / "log.json"
    path.write_text(json.dumps(log))

    assert read(path).completions[0].prompt == "a long question"


def test_an_eval_log_without_its_library_says_how_to_convert_it(tmp_path: Path) -> None:
    """Its entries are compressed in a way that Python 3.11 does not read."""
    path = tmp_path / "log.eval"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("header.json", "{}")

    with pytest.raises(RLLoopError, match=r"inspect log convert|cannot be read by inspect_ai"):
        read(path)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda row: row.pop("doc"), "line 2 is no line of a sample log"),
        (lambda row: row.update(resps=[]), "line 2 is no line of a sample log"),
        (lambda row: row["arguments"]["gen_args_0"].update(arg_1="yes"), "holds log-likelihoods"),
        (lambda row: row.update(doc_id=0), "document 0 stands there twice"),
    ],
)
def test_a_line_that_lm_eval_does_not_write_is_named(
    tmp_path: Path, change: Callable[[dict[str, Any]], Any], problem: str
) -> None:
    rows = [json.loads(text) for text in LM_EVAL.read_text().splitlines()]
    change(rows[1])
    path = write(tmp_path / "samples_x.jsonl", rows)

    with pytest.raises(RLLoopError, match=problem):
        read(path)
