"""Every proposal that a report can print: approved, edited, dropped; each with its consequence."""

from __future__ import annotations

import datetime
import html
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from starlette.testclient import TestClient

from tests.app.night import Attempt, night, queue
from tests.zones import zone_where_it_is
from worker.attempt.settlement import Verdict
from worker.db import decisions
from worker.db.connection import Database
from worker.queue.states import State
from worker.read import jobs
from worker.report import proposals
from worker.report.choices import choices_of
from worker.report.snapshot import report_of
from worker.schedule import policy
from worker.schedule.policy import Policy

HTML = {"accept": "text/html"}
MORNING = zone_where_it_is(6)  # a night ends at noon: the report of now is this day's
pytestmark = pytest.mark.requirement("UI-05")

QUEUING = {
    "FAILED-1": {},
    "OUT_OF_MEMORY-2": {"micro_batch": 32, "rollout_batch": 128},
    "POOL_ONLY-3": {"kl_coef": 0.2},
    "WORSE-4": {"lr": 1.5e-4},
    "FEW_ROWS-5": {"heldout_frac": 0.31},
}
"""Proposals that an approval queues a job for, with what the job has other than its original."""
BY_HAND = {
    "OUT_OF_MEMORY-6": "job 6 ran out of memory",
    "COLLAPSED-8": "job 8 collapsed: lower lr, or raise kl_coef",
    "REFUSED-7": "job 7 was refused (NO_SIGNAL), and the same settings would be again",
    "RESIDENT": "the resident model needs a look",
}
"""Nothing to halve any more; a diagnosis; a finding about the work; a process that does not end."""
CAP = "CAP_MET"


@pytest.fixture
def day(db: Database) -> datetime.date:
    """A night in which everything happened that a report proposes something about."""
    policy.arm(db, Policy(zone=MORNING, cap_usd=5), actor="cli:ada", now=time.time() - 7200)
    for seed, name in enumerate(("crash", "large", "by heart", "worse", "few")):
        queue(db, name=name, seed=seed)
    queue(db, name="smallest", micro_batch=1, rollout_batch=1)
    queue(db, name="hopeless", seed=7)
    queue(db, name="collapsed", seed=8)
    with night(db) as lane:
        lane.start().settle(Verdict(State.FAILED, "it crashed", "CRASH", "the engine crashed"))
        memory = Verdict(State.ABORTED, "memory ran short", "MEMORY", "memory ran short at 3.1 GB")
        lane.start().settle(memory)
        lane.start().finish(0.55, 0.55, "pool only")
        lane.start().finish(0.55, 0.47, "loss")
        judged_on_few_rows(lane.start())
        lane.start().settle(memory)
        declined = Verdict(State.FAILED, "the engine declined", "NO_SIGNAL", "nothing is solved")
        lane.start().settle(declined)
        given_up_on_few_rows(lane.start())
    decided(db, decisions.DEFER, 5, "OVER_DAILY_CAP", expected_usd=1.5, spent_usd=4.6, cap_usd=5.0)
    decided(db, decisions.DEFER, 4, "OVER_DAILY_CAP", expected_usd=2.1, spent_usd=4.6, cap_usd=5.0)
    decided(db, "resident-stuck", None, None)
    return report_of(db, None, time.time()).day


def judged_on_few_rows(attempt: Attempt) -> None:
    """No gain proven, on 200 rows."""
    result = {"verdict": "no gain proven", "lift": 0.0, "lift_ci95": [-0.1, 0.1], "report_n": 200}
    attempt.write("finished", status="done", result=result)
    attempt.settle(Verdict(State.SUCCEEDED, "the engine finished"))


def given_up_on_few_rows(attempt: Attempt) -> None:
    """A collapse, judged by what was picked before."""
    diagnosis = {"rule": "KL spike", "step": 12, "remedy": "lower lr, or raise kl_coef"}
    result = {"verdict": "no gain proven", "report_n": 40, "diagnosis": diagnosis}
    attempt.write("finished", status="declined", result=result)
    attempt.settle(Verdict(State.FAILED, "the engine declined", "COLLAPSED", "step 12: KL spike"))


def decided(db: Database, what: str, job_id: int | None, rule: str | None, **numbers: Any) -> None:
    """One entry in the audit of the lane."""
    with db.write_tx() as conn:
        decisions.record(
            conn,
            db.settings.lane,
            what,
            "process 17 does not end",
            actor="drain:1",
            job_id=job_id,
            rule=rule,
            numbers=numbers,
            at=time.time(),
        )


def press(client: TestClient, day: datetime.date, key: str, verb: str, **given: str) -> Any:
    """One button of the page."""
    address = f"/report/{day}/proposals/{key}/{verb}"
    return client.post(address, data=given, headers=HTML, follow_redirects=False)


def offered(client: TestClient, day: datetime.date, key: str) -> str:
    """One proposal as the page shows it, markup and all."""
    page = client.get(f"/report?date={day}").text
    return page.partition(f'id="proposal-{key}"')[2].partition("</li>")[0]


def words(text: str) -> str:
    """As it reads."""
    return html.unescape(" ".join(re.sub(r"<[^>]+>", " ", text).split()))


def changed(made: Mapping[str, Any], original: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a job that its original had otherwise."""
    return {name: value for name, value in made.items() if original[name] != value}


def test_every_rule_that_there_is_stands_in_this_night(db: Database, day: datetime.date) -> None:
    """A new rule fails here until its three answers are tested below."""
    source = Path(proposals.__file__).read_text("utf-8")
    rules = set(re.findall(r'(?:propose\(|rule=)"([A-Z_]+)"', source))

    keys = [found.key for found in report_of(db, day, time.time()).proposals]

    assert sorted(keys) == sorted([*QUEUING, *BY_HAND, CAP])
    assert {re.sub(r"-\d+$", "", key) for key in keys} == rules


@pytest.mark.parametrize("key", QUEUING)
def test_a_proposed_job_is_queued_as_it_was_shown(
    client: TestClient, db: Database, day: datetime.date, key: str
) -> None:
    """Its settings differ from the original's as the page says, and it remembers the original."""
    assert press(client, day, key, "approve").status_code == 303

    [made] = jobs.next_jobs(db)
    original = jobs.get_job(db, int(key.rpartition("-")[2]))
    assert changed(made.config, original.config) == QUEUING[key]
    assert made.clone_of == original.id
    assert "✓ approved by browser" in words(offered(client, day, key))
    assert "Approve" not in words(offered(client, day, key))


@pytest.mark.parametrize("key", [*QUEUING, "OUT_OF_MEMORY-6", "REFUSED-7", "COLLAPSED-8"])
def test_a_proposal_about_a_run_is_edited_in_the_form(
    client: TestClient, db: Database, day: datetime.date, key: str
) -> None:
    """The link opens the form filled in; the job that is sent from it answers the proposal."""
    found = re.search(r'<a href="(/new\?[^"]+)"', offered(client, day, key))
    assert found is not None
    page = client.get(html.unescape(found[1])).text
    fields = dict(re.findall(r'name="((?:set:|with:)?[\w.:]+)" value="([^"]+)"', page))
    fields.pop("told", None)
    fields |= {"set:tuning": "full", "with:warmup": "on", "set:lr": "7e-5", "do": "queue"}

    assert client.post("/new", data=fields, follow_redirects=False).status_code == 303

    [made] = jobs.next_jobs(db)
    assert made.config["lr"] == 7e-5
    assert made.clone_of == int(key.rpartition("-")[2])
    text = words(offered(client, day, key))
    assert "✓ queued in another form by browser" in text
    assert f"job {made.id}" in text


def test_a_proposal_that_is_sent_as_a_sweep_is_answered_by_the_first_of_its_jobs(
    client: TestClient, db: Database, day: datetime.date
) -> None:
    """Two values of a setting instead of the proposed one."""
    key = next(iter(QUEUING))
    original = jobs.get_job(db, int(key.rpartition("-")[2]))
    text = yaml.safe_dump(original.config | {"sweep": {"lr": [7e-5, 8e-5]}})
    fields = {"kind": original.kind, "yaml": text, "proposal": key, "date": f"{day}", "do": "queue"}

    assert client.post("/new", data=fields, follow_redirects=False).status_code == 303

    first, second = jobs.next_jobs(db)
    assert [first.config["lr"], second.config["lr"]] == [7e-5, 8e-5]
    assert f"job {first.id}" in words(offered(client, day, key))


def test_a_second_job_from_one_proposal_is_asked_about(
    client: TestClient, db: Database, day: datetime.date
) -> None:
    """Two tabs with the form open: the later one is told which job came of it."""
    key = next(iter(QUEUING))
    original = jobs.get_job(db, int(key.rpartition("-")[2]))
    proposed = {"kind": original.kind, "proposal": key, "date": f"{day}"}
    first, second = (
        proposed | {"yaml": yaml.safe_dump(original.config | {"lr": lr})} for lr in (7e-5, 8e-5)
    )
    client.post("/new", data=first | {"do": "queue"}, follow_redirects=False)
    [made] = jobs.next_jobs(db)

    asked = client.post("/new", data=second | {"do": "queue"}, follow_redirects=False)
    assert asked.status_code == 409
    assert f"job {made.id} came of it. Queue it all the same" in words(asked.text)
    assert "lr: 8.0e-05" in asked.text, "what was typed is kept"
    assert len(jobs.next_jobs(db)) == 1

    sent = client.post("/new", data=second | {"do": "force"}, follow_redirects=False)
    assert sent.status_code == 303
    assert len(jobs.next_jobs(db)) == 2


@pytest.mark.parametrize("key", [*QUEUING, *BY_HAND, CAP])
def test_every_proposal_can_be_dropped(
    client: TestClient, db: Database, day: datetime.date, key: str
) -> None:
    """It is remembered, and nothing else happens."""
    assert press(client, day, key, "drop").status_code == 303

    assert "✕ dropped by browser" in words(offered(client, day, key))
    assert jobs.next_jobs(db) == []
    standing = policy.standing(db)
    assert standing is not None
    assert standing.cap_usd == 5


@pytest.mark.parametrize("key", ["FAILED-1", "RESIDENT", CAP])
def test_what_was_approved_is_not_dropped_from_a_page_that_is_behind(
    client: TestClient, db: Database, day: datetime.date, key: str
) -> None:
    """The job or the cap stands: the refusal names it, and the first word stays the last one."""
    press(client, day, key, "approve")
    made = [job.id for job in jobs.next_jobs(db)]

    refused = press(client, day, key, "drop")

    assert refused.status_code == 409
    came = f"job {made[0]} came of it" if made else "it is done"
    assert f"browser decided this proposal of {day} already, and {came}" in words(refused.text)
    assert choices_of(db, report_of(db, day, time.time()))[key].what == "proposal-approved"


def test_an_approved_cap_is_what_the_jobs_that_met_it_need(
    client: TestClient, db: Database, day: datetime.date
) -> None:
    """4.60 were spent and 3.60 wait: 9 whole dollars; the other terms stay as they were."""
    assert "cap_usd 5 → 9" in words(offered(client, day, CAP))

    assert press(client, day, CAP, "approve").status_code == 303

    standing = policy.standing(db)
    assert standing is not None
    assert (standing.cap_usd, standing.zone, standing.armed) == (9.0, MORNING, True)
    assert standing.changed_by == "browser"
    assert "✓ approved by browser" in words(offered(client, day, CAP))


def test_an_approved_cap_never_lowers_one_that_was_raised_meanwhile(
    client: TestClient, db: Database, day: datetime.date
) -> None:
    """Somebody was faster, and more generous."""
    policy.arm(db, Policy(zone=MORNING, cap_usd=50), actor="cli:tim", now=time.time())

    press(client, day, CAP, "approve")

    standing = policy.standing(db)
    assert standing is not None
    assert (standing.cap_usd, standing.changed_by) == (50, "cli:tim")


def test_another_cap_than_the_proposed_one_is_set_by_an_edit(
    client: TestClient, db: Database, day: datetime.date
) -> None:
    """The field holds the proposed value; a wrong one changes nothing and names the field."""
    assert 'name="cap_usd" inputmode="decimal" required autocomplete="off" value="9"' in offered(
        client, day, CAP
    )
    for wrong in ("", "plenty", "nan", "-1"):
        refused = press(client, day, CAP, "edit", cap_usd=wrong)
        assert refused.status_code == 422
        edit = refused.text.partition(f'id="edit-{CAP}" open')[2].partition("</details>")[0]
        assert "cap usd: " in words(edit.partition('class="problem"')[2].partition("</p>")[0])
        assert (
            f'name="cap_usd" inputmode="decimal" required autocomplete="off" value="{wrong}"'
            in edit
        )

    assert press(client, day, CAP, "edit", cap_usd="7.5").status_code == 303

    standing = policy.standing(db)
    assert standing is not None
    assert standing.cap_usd == 7.5
    assert "✓ done in another form by browser" in words(offered(client, day, CAP))
    assert words(offered(client, day, CAP)).endswith(": cap_usd 7.5")


def test_a_lane_that_is_not_armed_has_no_cap_to_raise(
    client: TestClient, db: Database, day: datetime.date
) -> None:
    """Said with the way out; neither the lane nor the proposal is touched."""
    policy.disarm(db, actor="cli:ada", now=time.time())

    refused = press(client, day, CAP, "approve")

    assert refused.status_code == 409
    assert "cockpit autonomy on --cap-usd NUMBER" in words(refused.text)
    assert choices_of(db, report_of(db, day, time.time())) == {}


def test_raising_a_cap_does_not_arm_a_lane_whose_terms_have_run_out(
    client: TestClient, db: Database, day: datetime.date
) -> None:
    """Its last moment was a person's word too."""
    over = Policy(zone=MORNING, cap_usd=5, expires_at=time.time() - 60)
    policy.arm(db, over, actor="cli:ada", now=time.time() - 7200)

    assert press(client, day, CAP, "approve").status_code == 409

    standing = policy.standing(db)
    assert standing is not None
    assert standing.cap_usd == 5


@pytest.mark.parametrize("key", BY_HAND)
def test_what_only_hands_can_do_is_marked_as_done(
    client: TestClient, db: Database, day: datetime.date, key: str
) -> None:
    """No job and no term; the audit says who did it."""
    assert BY_HAND[key] in words(offered(client, day, key))
    assert "Mark as done" in words(offered(client, day, key))

    assert press(client, day, key, "approve").status_code == 303

    assert "✓ done by browser" in words(offered(client, day, key))
    assert jobs.next_jobs(db) == []
    newest = decisions.newest(db, db.settings.lane, 1)[0]
    assert (newest.what, newest.rule, newest.actor) == ("proposal-approved", key, "browser")


def test_what_was_done_instead_is_written_down(
    client: TestClient, db: Database, day: datetime.date
) -> None:
    """In the person's own words, never as markup; an empty or endless note is refused."""
    for wrong in ("", "  ", "x" * 201):
        refused = press(client, day, "RESIDENT", "edit", note=wrong)
        assert refused.status_code == 422
        assert f'autocomplete="off" value="{wrong}"' in refused.text
        assert "note: must have 1 to 200 characters" in words(refused.text)

    press(client, day, "RESIDENT", "edit", note="killed <b>it</b> by hand")

    assert "killed &lt;b&gt;it&lt;/b&gt; by hand" in offered(client, day, "RESIDENT")
    choice = choices_of(db, report_of(db, day, time.time()))["RESIDENT"]
    assert choice.note == "killed <b>it</b> by hand"


def test_an_approval_of_what_was_tried_meanwhile_asks_in_the_form(
    client: TestClient, db: Database, day: datetime.date
) -> None:
    """The result stands there, with a button that queues it all the same."""
    with night(db) as lane:
        queue(db, lr=1.5e-4, seed=3)
        lane.start().finish()

    answer = press(client, day, "WORSE-4", "approve")

    assert answer.status_code == 303
    assert answer.headers["location"].startswith("/new?proposal=WORSE-4")
    assert "Queue it all the same" in client.get(answer.headers["location"]).text
    assert jobs.next_jobs(db) == []
