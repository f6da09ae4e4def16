"""What a person sees of a mixture and its benches: page, samples, charts, REST and commands."""

from __future__ import annotations

import html
import re
import time
from collections.abc import Callable

import pytest
from starlette.testclient import TestClient

from app.text import wording
from engine.contract.power import paired_lift
from tests.app.judged import Judged, judged
from tests.app.pages.test_pages import words
from worker.clock.night import night_at
from worker.clock.window import zone_named
from worker.db.connection import Database


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Judged:
    return judged(tmp_path_factory.mktemp("judged"))


@pytest.fixture
def job_id(mixed: Judged, db: Database) -> int:
    return mixed.taken_into(db)


def _line(text: str, name: str) -> str:
    """The words of a line of the table."""
    rows = re.findall(r"<tr data-kind=.*?</tr>", text, re.DOTALL)
    return next(words(row) for row in rows if f"<bdi>{name}</bdi>" in row)


def _change(mixed: Judged, name: str) -> str:
    line = next(one for one in mixed.result["benches"] if one["name"] == name)
    return f"{wording.points(line['lift'])} {wording.interval(*line['ci95'])}"


@pytest.mark.requirement("EX-07")
def test_an_average_over_sources_stands_with_each_of_them(
    client: TestClient, mixed: Judged, job_id: int
) -> None:
    text = client.get(f"/jobs/{job_id}").text

    lines = {line["name"]: line for line in mixed.result["benches"]}
    assert "mean of 2 sources by weight: sevens" in words(text)
    for name in ("own", "sevens", "threes"):
        said = _line(text, name)
        before, after = (f"{100 * lines[name][side]:.1f} %" for side in ("before", "after"))
        assert f"{before} → {after}" in said
        assert "gain" in said
    assert "own decides own rows" in _line(text, "own")
    assert "decides" not in _line(text, "sevens")
    for address in ("/", "/compare"):
        assert "mean of 2 sources by weight" in words(client.get(address).text)


@pytest.mark.requirement("EX-22")
def test_a_loss_on_a_bench_stands_in_the_sentence_of_the_gain(
    client: TestClient, mixed: Judged, job_id: int
) -> None:
    """And has its line with rows, interval, how answers were read and the rows to look at."""
    text = client.get(f"/jobs/{job_id}").text

    reason = mixed.result["verdict_reason"]
    assert reason.startswith("lost on nines")
    assert f"{reason[:1].upper()}{reason[1:]}; better than the base" in words(text)
    nines = _line(text, "nines")
    assert nines.startswith("nines bench 400")
    assert f"{_change(mixed, 'nines')} loss" in nines
    assert re.search(r"unparsed 5\.2 % → \d\.\d %", nines)
    assert re.search(r"truncated: right 100\.0 %.*, wrong 94\.3 % → \d+\.\d %", nines)
    assert "2 benches and 2 sources were looked at" in words(text)
    assert reason in words(client.get("/").text)


@pytest.mark.requirement("EX-18")
def test_each_verdict_stands_with_what_its_rows_can_show(
    client: TestClient, cockpit: Callable[..., tuple[int, str, str]], mixed: Judged, job_id: int
) -> None:
    """By the rows that changed, at the level of as many benches as were looked at."""
    text = client.get(f"/jobs/{job_id}").text
    _, shown, _ = cockpit("show", str(job_id))

    nines = next(one for one in mixed.result["benches"] if one["name"] == "nines")
    changed = (nines["gained"] + nines["lost"]) / nines["n"]
    said = f"400 rows can show {wording.points(paired_lift(400, changed, 0.05 / 2))}, paired"
    assert said in _line(text, "nines")
    assert said in shown


@pytest.mark.requirement("EX-22")
def test_the_rows_that_a_bench_lost_are_a_link_away(
    client: TestClient, mixed: Judged, job_id: int
) -> None:
    text = client.get(f"/jobs/{job_id}").text
    lost = re.search(r'href="([^"]*split=nines[^"]*changed=lost)"', text)
    assert lost is not None

    shown = client.get(html.unescape(lost[1]))

    nines = next(one for one in mixed.result["benches"] if one["name"] == "nines")
    assert f"{nines['lost']} of 400 meet the conditions" in words(shown.text)
    assert re.search(r'aria-current="[^"]+">nines<', shown.text)
    step = mixed.result["selected_step"]
    rows = client.get(
        f"/api/v1/jobs/{job_id}/samples?split=nines&step={step}&changed=lost&limit=100"
    ).json()["samples"]
    assert {row["id"] for row in rows} >= set(nines["look_at"]["lost"])
    history = client.get(
        f"/api/v1/jobs/{job_id}/samples/history", params={"split": "nines", "id": rows[0]["id"]}
    ).json()
    assert history["samples"][0]["success"] is True
    source = client.get(f"/api/v1/jobs/{job_id}/samples?split=report&source=threes").json()
    assert source["matched"] == 30
    assert source["total"] == 60


def test_a_split_that_no_run_has_is_refused_with_those_there_are(
    client: TestClient, job_id: int
) -> None:
    answer = client.get(f"/api/v1/jobs/{job_id}/samples?split=MATH")

    assert answer.status_code == 422
    assert "pool, select, report, nines, more-sevens" in answer.text


@pytest.mark.requirement("EX-07")
@pytest.mark.requirement("EX-22")
def test_each_source_and_bench_has_a_chart_with_its_interval(
    client: TestClient, mixed: Judged, job_id: int
) -> None:
    text = client.get(f"/jobs/{job_id}").text

    for name in ("sevens", "threes", "nines", "more-sevens"):
        assert f"<h3>Held-out: {name}</h3>" in text
        drawn = client.get(f"/jobs/{job_id}/series.json?name=heldout/{name}").json()
        gates = [g for g in mixed.events if g["type"] == "gate" and g["split"] == name]
        [line] = drawn["lines"]
        assert line["values"] == pytest.approx([gate["score"] for gate in gates])
        low, high = drawn["band"]
        ends = list(zip(low, high, strict=True))
        assert ends == [pytest.approx(tuple(gate["ci95"]), rel=1e-5) for gate in gates]


@pytest.mark.parametrize(
    "benches",
    [
        "none",
        [3, {"name": "../x", "kind": "bench"}, {"name": "x", "kind": "other"}],
        [{"name": "x", "kind": "bench"}],
        [
            {
                "name": "x",
                "kind": "source",
                "decides": "yes",
                "n": "many",
                "ci95": [1],
                "look_at": [],
                "shares_before": {"truncated": "half", "format/boxed": None},
                "shares_after": 3,
                "verdict": ["gain"],
            }
        ],
    ],
)
def test_lines_of_another_version_read_as_not_known(
    client: TestClient,
    cockpit: Callable[..., tuple[int, str, str]],
    mixed: Judged,
    db: Database,
    benches: object,
) -> None:
    """Every page stands whatever an engine wrote."""
    odd = mixed.taken_into(db, benches=benches, verdict_reason=7)
    day = night_at(time.time(), zone_named(None)).day

    for address in ("/", f"/jobs/{odd}", f"/jobs/{odd}/samples", f"/report?date={day}"):
        assert client.get(address).status_code == 200
    assert cockpit("show", str(odd))[0] == 0


def test_a_run_that_goes_on_shows_what_its_gates_have_found(
    client: TestClient, mixed: Judged, db: Database
) -> None:
    """A score with its interval; no change and no verdict before the report."""
    running = mixed.taken_into(db, upto=4)

    text = client.get(f"/jobs/{running}").text

    assert "to step 4; mean of 2 sources by weight: sevens" in words(client.get("/").text)
    assert "Verdicts come with the report" in words(text)
    assert re.search(r"sevens source .*% → .*% step 4, .* to .*%", _line(text, "sevens"))
    assert "gain" not in _line(text, "nines")


@pytest.mark.requirement("EX-07")
@pytest.mark.requirement("EX-22")
def test_commands_and_rest_say_the_same(
    client: TestClient, cockpit: Callable[..., tuple[int, str, str]], mixed: Judged, job_id: int
) -> None:
    _, shown, _ = cockpit("show", str(job_id))
    _, listed, _ = cockpit("jobs")
    rest = client.get(f"/api/v1/jobs/{job_id}").json()["result"]

    reason = mixed.result["verdict_reason"]
    assert f"gain; {reason}" in shown
    for line in mixed.result["benches"]:
        assert re.search(rf"{line['name']} .*{line['n']} .*{line['verdict']}", shown)
    assert "look at       nines: lost nines/-" in shown
    assert "lost on nines" in listed
    assert "mean of 2 sources by weight: sevens" in listed
    assert rest["benches"] == mixed.result["benches"]
    assert rest["verdict_reason"] == reason


@pytest.mark.requirement("EX-07")
@pytest.mark.requirement("EX-22")
def test_the_morning_report_has_each_line_too(
    client: TestClient, cockpit: Callable[..., tuple[int, str, str]], mixed: Judged, job_id: int
) -> None:
    """On the page, in the file, in the terminal and over REST."""
    reason = mixed.result["verdict_reason"]
    day = str(night_at(time.time(), zone_named(None)).day)
    page = client.get(f"/report?date={day}").text
    _, file, _ = cockpit("report", "--date", day, "--html", "-")
    _, text, _ = cockpit("report", "--date", day)
    [run] = client.get(f"/api/v1/report?date={day}").json()["runs"]

    for told in (page, file):
        assert reason in words(told)
        assert f"{_change(mixed, 'nines')} loss" in _line(told, "nines")
    assert 'href="/jobs' not in file
    assert reason in text
    assert re.search(r"nines +bench +400 .*loss", text)
    assert [line["name"] for line in run["benches"]] == [
        line["name"] for line in mixed.result["benches"]
    ]
    assert run["reason"] == reason
    assert "held-out, lost on nines" in text.splitlines()[0]


@pytest.mark.requirement("EX-07")
def test_two_runs_on_a_mixture_are_compared_by_source_too(
    client: TestClient,
    cockpit: Callable[..., tuple[int, str, str]],
    mixed: Judged,
    job_id: int,
    db: Database,
) -> None:
    """Rows of both count alike in their difference, so each source stands beside it."""
    base = mixed.taken_into(db, selected_step=0)

    found = client.get(f"/api/v1/compare?job={job_id}&job={base}").json()["against"][0]
    page = words(client.get(f"/compare?job={job_id}&job={base}").text)
    _, said, _ = cockpit("compare", str(job_id), str(base))

    lines = {line["name"]: line for line in mixed.result["benches"]}
    for name in ("sevens", "threes"):
        part = found["by_source"][name]
        assert part["lift"] == pytest.approx(-lines[name]["lift"])
        size = f"{wording.points(part['lift'])} ({wording.interval(part['low'], part['high'])})"
        assert f"{name} {size}, worse" in page
        assert f"{name}: {size}, worse" in said
    assert "lost on nines" in page
