"""The same completions by many judges: nothing is sampled, and what one cannot read is shown."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from engine.contract.errors import RLLoopError
from engine.contract.kinds.rl_run import RLRunConfig
from engine.contract.rescored import AS_JUDGED, BenchAsk, Completions, JudgedBy, RescoreAsk
from engine.contract.run_dir import RunDir
from engine.data.heldout import load_rows
from engine.data.split import carved, freeze
from engine.evaluate.rescore import rescore
from tests.deadline import eventually
from tests.engine.evaluate.stored import (
    BOXED,
    HASHES,
    NOTHING,
    NUMBER,
    SENTENCE,
    judged_again,
    line,
    write,
)
from tools.run_outcome import add_attempt


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Eight rows: two in each of three forms, one a bare number, one nothing; one of them cut."""
    texts = [SENTENCE, SENTENCE, BOXED, BOXED, HASHES, HASHES, NUMBER, NOTHING]
    rows = [line(f"q{i}", text.format(7), truncated=i == 7) for i, text in enumerate(texts)]
    return write(tmp_path / "heldout-select-000020.jsonl", rows)


def by(judged: list[JudgedBy], name: str) -> JudgedBy:
    return next(one for one in judged if one.verifier == name)


@pytest.mark.requirement("EX-23")
def test_the_same_completions_are_scored_by_each_verifier(file: Path) -> None:
    """With interval, unparsed, truncated, the score among those that ended, and reasons."""
    found = judged_again(file, "gsm8k", "gsm8k_any", "gsm8k_last_number")

    names = ("gsm8k", "gsm8k_any", "gsm8k_last_number")
    strict, general, last = (by(found.judged, name) for name in names)
    assert (strict.score, general.score, last.score) == (0.25, 7 / 8, 7 / 8)
    assert strict.low is not None
    assert strict.low == pytest.approx(0.0715, abs=1e-3)  # Wilson 1927: 2 of 8
    assert (strict.unparsed, strict.truncated) == (5 / 8, 1 / 8)
    assert (strict.ended_n, strict.ended) == (7, 2 / 7)
    assert strict.reasons == {"unparsed": 5, "correct": 2, "truncated": 1}
    stored = by(found.judged, AS_JUDGED)
    assert (stored.stored, stored.score) == (True, 0.25)


@pytest.mark.requirement("EX-23")
def test_what_it_knows_in_another_format_is_counted_and_shown(file: Path) -> None:
    found = judged_again(file, "gsm8k", "gsm8k_any")

    general = by(found.judged, "gsm8k_any")
    assert (general.only_here, general.only_first) == (5, 0)
    assert general.known[0].text == "so \\boxed{7}"
    assert (general.known[0].read, general.known[0].meant) == (None, "7")
    forms = [one.forms for one in general.known]
    assert forms == [["boxed"], ["boxed"], ["hashes"], ["hashes"], ["number"]]


@pytest.mark.requirement("EX-23")
def test_failures_are_told_by_answer_format(file: Path) -> None:
    """The strict reader pays one form alone; of each form it is said how many are right."""
    strict = by(judged_again(file, "gsm8k").judged, "gsm8k")

    assert {form: (one.n, one.right) for form, one in strict.forms.items()} == {
        "answer_is": (2, 2),
        "boxed": (2, 0),
        "hashes": (2, 0),
        "number": (1, 0),
        "none": (1, 0),
    }


@pytest.mark.requirement("EX-23")
def test_a_second_verifier_samples_nothing(tmp_path: Path, file: Path) -> None:
    """No model is there, torch cannot be imported, and no file of the run changes."""
    (tmp_path / "no-torch").mkdir()
    (tmp_path / "no-torch/torch.py").write_text("raise ImportError('sampling needs torch')\n")
    before = hashlib.sha256(file.read_bytes()).hexdigest()
    names = sorted(one.name for one in tmp_path.iterdir())
    bench = BenchAsk(name="select", after=Completions(file=str(file), name="step 20"))
    ask = RescoreAsk(benches=[bench], verifiers=["gsm8k", "math"], rows=True)

    done = subprocess.run(
        [sys.executable, "-P", "-m", "engine", "rescore", "60", "8"],
        input=ask.model_dump_json().encode(),
        capture_output=True,
        check=True,
        timeout=60,
        env=os.environ | {"PYTHONPATH": f"{tmp_path}/no-torch:{Path.cwd()}"},
    )

    [found] = json.loads(done.stdout)["found"]["benches"]
    assert [one["score"] for one in found["judged"]] == [0.25, 0.25, 7 / 8]
    assert [row["id"] for row in found["rows"]] == [f"q{i}" for i in range(8)]
    assert found["rows"][2]["success"] == [False, False, True]
    assert hashlib.sha256(file.read_bytes()).hexdigest() == before
    assert sorted(one.name for one in tmp_path.iterdir()) == names


def test_a_reward_function_that_breaks_is_counted_and_named(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows count as not solved, and what it said first stands there."""
    (tmp_path / "odd_rewards.py").write_text(
        "def picky(completions, **_):\n"
        "    if any('boxed' in one for one in completions):\n"
        "        raise ValueError('no boxes here')\n"
        "    return [0.25] * len(completions)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("NIGHTLANE_REWARD_MODULES", "odd_rewards")

    found = by(judged_again(file, "odd_rewards:picky").judged, "odd_rewards:picky")

    assert found.reasons == {"wrong": 5, "crash": 2, "truncated": 1}
    assert found.broke is not None
    assert "no boxes here" in found.broke
    low, mean, high = found.reward_low, found.mean_reward, found.reward_high
    assert mean == pytest.approx(0.25 * 6 / 8)
    assert (low or 0) < (mean or 0) < (high or 0)


def test_it_ends_with_whoever_asked(tmp_path: Path, file: Path) -> None:
    """A cockpit that is killed leaves no process behind that judges for an hour."""
    (tmp_path / "slow_rewards.py").write_text(
        "import time\ndef slow(completions, **_):\n    time.sleep(50)\n"
    )
    bench = BenchAsk(name="select", after=Completions(file=str(file), name="step 20"))
    ask = RescoreAsk.model_construct(benches=[bench], verifiers=["slow_rewards:slow"])
    (tmp_path / "ask.json").write_text(ask.model_dump_json())
    code = (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-P', '-m', 'engine', 'rescore', '60', '8'],\n"
        "    stdin=open(sys.argv[1]), start_new_session=True)\n"
        "print(child.pid, flush=True)\n"
        "child.wait()"
    )
    paths = {"PYTHONPATH": f"{tmp_path}:{Path.cwd()}", "NIGHTLANE_REWARD_MODULES": "slow_rewards"}
    parent = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "ask.json")],
        stdout=subprocess.PIPE,
        env=os.environ | paths,
    )
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    eventually(child.children, "the function's process runs")

    parent.kill()
    parent.communicate()

    eventually(lambda: not _alive(child), "the child ended", within_s=10)


def _alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


@pytest.mark.requirement("EX-18")
def test_scores_come_by_level_and_by_band_of_the_baseline(tmp_path: Path) -> None:
    """Bands are of what the baseline solved then; a row without a level is in none."""
    rows = [
        line(f"q{i}", SENTENCE.format(7 if i % 2 else 8), columns={"level": f"Level {i % 3}"})
        for i in range(12)
    ]
    rows.append(line("q12", NOTHING))
    after = write(tmp_path / "heldout-select-000020.jsonl", rows)
    solved = [line(f"q{i}", SENTENCE.format(7 if i < 3 else 8)) for i in range(13)]
    baseline = write(tmp_path / "heldout-select-000000.jsonl", solved)

    found = judged_again(after, "gsm8k", baseline=Completions(file=str(baseline), name="step 0"))

    parts = {(one.by, one.name): (one.n, one.score) for one in by(found.judged, "gsm8k").parts}
    assert parts == {
        ("level", "Level 0"): (4, 0.5),
        ("level", "Level 1"): (4, 0.5),
        ("level", "Level 2"): (4, 0.5),
        ("band", "0 to 0.1"): (10, 0.5),
        ("band", "0.9 to 1"): (3, 1 / 3),
    }
    assert found.columns == ["level"]


@pytest.mark.requirement("EX-18")
def test_several_samples_of_a_row_give_pass_at_k_and_one_observation(tmp_path: Path) -> None:
    """Chen et al. 2021: of four samples with one solved, pass@2 is 1 - C(3,2)/C(4,2) = 0.5."""
    rows = [
        line(f"q{i}", SENTENCE.format(7 if sample == 0 else 8), sample=sample)
        for i in range(5)
        for sample in range(4)
    ]
    found = judged_again(write(tmp_path / "heldout-x-000020.jsonl", rows), "gsm8k")

    one = by(found.judged, "gsm8k")
    assert (one.n, one.rows, one.score) == (20, 5, 0.25)
    assert one.pass_at == pytest.approx({1: 0.25, 2: 0.5, 3: 0.75, 4: 1.0})


def _older(folder: Path) -> tuple[RunDir, Path]:
    """A run of before: a frozen split, and a gate whose lines do not say what is right."""
    rows = [{"id": f"r{i}", "prompt": f"What is {i}+1?", "answer": str(i + 1)} for i in range(120)]
    source = write(folder / "rows.jsonl", rows)
    raw = {"base": "Qwen/Qwen2.5-0.5B", "data": {"source": str(source)}}
    run, config = add_attempt(folder, raw), RLRunConfig.model_validate(raw)
    corpus = load_rows(config)
    split = carved(corpus.corpus.questions, corpus.benches, config)
    freeze(split, run.split)
    lines = [line(q.id, f"The answer is {q.answer}.", prompt=q.prompt) for q in split.select]
    for one in lines:
        del one["gold"], one["columns"], one["finish_reason"]
    return run, write(run.rollouts / "heldout-select-000000.jsonl", lines)


@pytest.mark.requirement("EX-23")
def test_an_older_file_is_judged_by_the_rows_of_its_run(tmp_path: Path) -> None:
    run, file = _older(tmp_path)

    assert by(judged_again(file, "gsm8k", run=str(run.root)).judged, "gsm8k").score == 1.0
    with pytest.raises(RLLoopError, match=r"no field gold.*name the job instead"):
        judged_again(file, "gsm8k")


def test_an_older_file_is_refused_once_the_rows_of_its_run_are_others(tmp_path: Path) -> None:
    """A gold that was corrected since is not what the completions were scored by."""
    run, file = _older(tmp_path)
    source = tmp_path / "rows.jsonl"
    source.write_text(source.read_text().replace('"answer": "1"', '"answer": "99"'))

    with pytest.raises(RLLoopError, match="no longer those that it was split with"):
        judged_again(file, "gsm8k", run=str(run.root))


_HELDOUT = "heldout-a-000000.jsonl"


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        (_HELDOUT, '{"id": "a", "text"', "line 1 .*not JSON"),
        (_HELDOUT, '{"id": "a", "text": "7"}\n[]', "line 2 is no JSON object"),
        (_HELDOUT, '{"record": "a", "text": "{}"}', "stage-2 answer is judged by its boxes"),
        (_HELDOUT, "", "holds no completion"),
        (_HELDOUT, '{"id": "a", "text": "7"}\n' * 2, "sample 0 of row 'a' twice"),
        ("answers.txt", "7", "no file of completions by its name"),
        ("log.json", "[" * 500 + "]" * 500, "nested"),
        ("log.json", '{"version": 2}', "no log of Inspect with samples"),
        ("log.json", '{"samples": [3]}', "a sample that is no object"),
        ("log.json", '{"samples": [{"output": {"choices": [{"a": 1}]}}]}', "sample without an id"),
        ("log.eval", "no zip", "is no .eval log"),
    ],
)
def test_a_hostile_file_is_refused_by_name(
    tmp_path: Path, name: str, text: str, problem: str
) -> None:
    path = tmp_path / name
    path.write_text(text)

    with pytest.raises(RLLoopError, match=problem) as refused:
        judged_again(path, "gsm8k")

    assert refused.value.problems[0].value == str(path)


def test_a_pipe_is_no_file_of_completions(tmp_path: Path) -> None:
    """It is refused at once; nothing waits for whoever writes into it."""
    path = tmp_path / "heldout-a-000000.jsonl"
    os.mkfifo(path)

    with pytest.raises(RLLoopError, match="is a pipe"):
        judged_again(path, "gsm8k")


def test_a_column_that_no_row_has_is_refused_with_those_there_are(file: Path) -> None:
    with pytest.raises(RLLoopError, match=r"no column of these rows.*split by: nothing"):
        judged_again(file, "gsm8k", by="grade")


def test_a_verifier_that_cannot_run_here_is_refused_before_anything_is_judged(file: Path) -> None:
    with pytest.raises(ValueError, match="is not a verifier; did you mean gsm8k"):
        judged_again(file, "gsm9k")


def _ask(benches: dict[str, Path]) -> RescoreAsk:
    asked = [
        BenchAsk(name=name, after=Completions(file=str(path), name="step 20"))
        for name, path in benches.items()
    ]
    return RescoreAsk(benches=asked, verifiers=["gsm8k"])


def test_each_bench_is_a_table_of_its_own(tmp_path: Path, file: Path) -> None:
    """An average over benches is never shown."""
    other = write(tmp_path / "heldout-nines-000020.jsonl", [line("n0", NOTHING)])

    found = rescore(_ask({"select": file, "nines": other}))

    scores: list[Any] = [by(bench.judged, "gsm8k").score for bench in found.benches]
    assert scores == [0.25, 0.0]
    assert [bench.name for bench in found.benches] == ["select", "nines"]
