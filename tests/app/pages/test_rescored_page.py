"""The switch of verifier: a gate's completions judged again beside the page, and kept."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from app.pages import rescored
from engine.contract.run_dir import RunDir
from tests.app.night import night, queue
from tests.app.pages.test_pages import words
from tests.app.rollouts import row, write
from tests.deadline import eventually
from worker.db.connection import Database
from worker.read import rescoring

TEXTS = ["The answer is 7.", "so \\boxed{7}", "#### 7", "it is 8", "no idea"]
PAGE = "/jobs/1/rescored?split=select&step=20&verifier=gsm8k&verifier=gsm8k_any"
REST = "/api/v1/jobs/1/rescored"


@pytest.fixture
def run(db: Database) -> Iterator[RunDir]:
    """Job 1 with a gate of ten rows at step 20, two of each text, judged by strict gsm8k."""
    queue(db, name="tonight")
    with night(db) as lane:
        made = lane.start().run
        _gate(made)
        yield made


def _gate(run: RunDir, texts: list[str] = TEXTS) -> None:
    rows = [
        row(f"q{i}", text=texts[i // 2], reward=float(i < 2), success=i < 2, gold="7")
        | {"columns": {"level": f"Level {i % 2 + 1}"}}
        for i in range(2 * len(texts))
    ]
    write(run, "heldout-select-000020", rows)


@pytest.mark.requirement("EX-23")
def test_the_samples_page_has_a_switch_that_needs_no_script(
    client: TestClient, run: RunDir
) -> None:
    """A form of checkboxes that GETs the page of new judgements."""
    text = client.get("/jobs/1/samples?split=select").text

    form = re.search(r'<form method="get" action="(/jobs/1/rescored)">.*?</form>', text, re.DOTALL)
    assert form is not None
    assert 'name="step" value="20"' in form[0]
    assert 'name="verifier" value="gsm8k_any"' in form[0]
    write(run, "train-000020", [row("1+1")])
    assert "/jobs/1/rescored" not in client.get("/jobs/1/samples?split=pool").text


@pytest.mark.requirement("EX-23")
def test_scores_forms_and_each_completion_come_by_every_judge(
    client: TestClient, run: RunDir
) -> None:
    text = words(client.get(PAGE).text)

    assert "its run's judge (in the file) 10 20.0 %" in text
    assert "gsm8k 10 20.0 %" in text
    assert "gsm8k_any 10 60.0 %" in text
    assert "4 completions are wrong by gsm8k and right by gsm8k_any (40.0 %): it knows" in text
    assert "\\boxed{} 2 0 0 2" in text
    assert "level: Level 1 5" in text
    assert "4 completions on which the judges differ" in text
    assert re.search(r"q2= so \\boxed\{7\} .* wrong .* unparsed nothing correct 7", text)
    assert "10 completions" in words(client.get(f"{PAGE}&which=all").text)


@pytest.mark.requirement("EX-23")
@pytest.mark.requirement("JB-10")
def test_they_are_judged_once_and_kept_until_the_file_changes(
    client: TestClient, run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a process that judges, what was found before still stands, and nothing new."""
    assert client.get(PAGE).status_code == 200
    [kept] = run.rescored.glob("*.json")
    monkeypatch.setattr(rescoring, "COMMAND", ("false",))

    assert "gsm8k_any 10 60.0 %" in words(client.get(PAGE).text)

    _gate(run, ["The answer is 7."] * 5)
    failed = client.get(PAGE, headers={"accept": "text/html"})
    assert "the process that judges ended without an answer" in words(failed.text)
    assert [*run.rescored.glob("*.json")] == [kept]


@pytest.mark.requirement("JB-10")
def test_a_request_never_waits_for_a_long_judgement(
    client: TestClient, run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page says that they are being judged and asks again by itself, without a script."""
    monkeypatch.setattr(rescored, "_PATIENCE_S", 0.0)

    first = client.get(PAGE)

    assert "The completions are being judged since" in words(first.text)
    assert first.headers["refresh"] == "3"
    eventually(lambda: "gsm8k_any 10 60.0 %" in words(client.get(PAGE).text), "tables")
    assert "refresh" not in client.get(PAGE).headers


@pytest.mark.requirement("EX-23")
def test_rest_has_them_judged_and_reads_what_they_came_to(client: TestClient, run: RunDir) -> None:
    wish: dict[str, Any] = {"verifier": ["gsm8k", "gsm8k_any"], "split": "select", "step": 20}
    assert client.get(REST, params=wish).status_code == 404

    eventually(lambda: client.post(REST, json=wish).status_code == 200, "an answer")
    found = client.get(REST, params=wish).json()

    [bench] = found["benches"]
    scores = {one["verifier"]: one["score"] for one in bench["judged"]}
    assert scores == {"its run's judge": 0.2, "gsm8k": 0.2, "gsm8k_any": 0.6}
    assert bench["judged"][2]["only_here"] == 4
    assert client.post(REST, json=wish).json()["found"] == found


def test_a_file_that_cannot_be_judged_says_why(client: TestClient, run: RunDir) -> None:
    (run.rollouts / "heldout-select-000020.jsonl").write_text('{"id": "q", "te')

    answer = client.get(PAGE, headers={"accept": "text/html"})

    assert answer.status_code == 422
    assert "line 1 is not JSON" in words(answer.text) or "is not JSON" in words(answer.text)


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        ({"verifier": "gsm9k", "split": "select"}, "is not a verifier; did you mean gsm8k?"),
        ({"verifier": "exact", "split": "MATH"}, "is no split of job 1"),
        ({"verifier": "exact", "split": "select", "step": 7}, "has: select at 20"),
        ({"verifier": "os:system", "split": "select"}, "module os, which the operator does not"),
        ({"split": "select"}, "verifier"),
    ],
)
def test_what_cannot_be_asked_is_refused(
    client: TestClient, run: RunDir, asked: dict[str, Any], problem: str
) -> None:
    answer = client.get("/jobs/1/rescored", params=asked)

    assert answer.status_code == 422
    assert problem in html.unescape(answer.text)


def test_a_reward_function_is_not_kept_and_so_not_asked_here(
    client: TestClient, run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NIGHTLANE_REWARD_MODULES", "their_rewards")

    answer = client.get("/jobs/1/rescored?split=select&verifier=their_rewards:paid")

    assert answer.status_code == 422
    assert "whose answers are not kept" in answer.text


def test_what_was_kept_goes_with_the_completions(client: TestClient, run: RunDir) -> None:
    """It holds pieces of them: it lies in the folder that a prune throws away."""
    client.get(PAGE)

    assert run.rescored.parent == run.rollouts
    assert any(run.rescored.glob("*.json"))
