"""`cockpit export-sft`: right, well-formed completions become training data, held-out never."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from engine.contract.run_dir import RunDir
from tests.app.conftest import Said
from tests.app.night import night, queue
from worker.db.connection import Database
from worker.db.tables import job as job_table

Cockpit = Callable[..., Said]


def rollout(id_: str, text: str, **changes: Any) -> dict[str, Any]:
    row = {"id": id_, "prompt": f"{id_}?", "text": text, "reason": "correct", "reward": 1.0}
    return {**row, "truncated": False, **changes}


@pytest.fixture
def run(db: Database) -> RunDir:
    """The directory of a queued job with two steps of rollouts, played by hand."""
    directory = RunDir(db.settings.runs_dir / str(queue(db)))
    write(directory, "train-000001", rollout("a", "old"), rollout("b", "b", reason="wrong"))
    write(
        directory,
        "train-000002",
        rollout("a", "new"),
        rollout("a", "new"),
        rollout("a", "third"),
        rollout("c", "form only", reason="lenient"),
        rollout("d", "cut off", truncated=True),
        rollout("e", "weak", reward=0.3),
    )
    write(directory, "heldout-select-000002", rollout("h", "held out"))
    return directory


def write(run: RunDir, name: str, *rows: dict[str, Any]) -> None:
    run.rollouts.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (run.rollouts / f"{name}.jsonl").write_text(lines + '{"torn', "utf-8")


@pytest.mark.requirement("EX-06")
@pytest.mark.parametrize(
    ("options", "completions"),
    [
        ((), ["new", "third", "old"]),
        (("--per-prompt", "2"), ["new", "third"]),
        (("--since-step", "2", "--per-prompt", "1"), ["new"]),
    ],
)
def test_only_right_whole_and_well_formed_completions_are_written(
    cockpit: Cockpit, run: RunDir, tmp_path: Path, options: tuple[str, ...], completions: list[str]
) -> None:
    """Each text once, newest weights first, so many a question; torn lines cost nothing."""
    target = tmp_path / "sft.jsonl"

    said = cockpit("export-sft", run.root.name, "--out", str(target), *options, "--json")

    rows = [json.loads(line) for line in target.read_text("utf-8").splitlines()]
    assert json.loads(said.out) == {"rows": len(completions), "file": str(target)}
    assert [row["completion"] for row in rows] == completions
    assert rows[0] == {"prompt": "a?", "completion": "new", "id": "a", "step": 2}


@pytest.mark.parametrize(
    ("played", "why"),
    [
        ("queued", "has not run yet (it is queued), so it has no completions"),
        ("ran", "has no completion that was right and well-formed"),
        ("pruned", "was pruned on "),
    ],
)
def test_nothing_to_export_writes_nothing_and_says_why(
    cockpit: Cockpit, db: Database, tmp_path: Path, played: str, why: str
) -> None:
    """Whoever pruned a run must not be told that it never answered right."""
    target = tmp_path / "sft.jsonl"
    job_id = queue(db)
    if played != "queued":
        with night(db) as lane:
            attempt = lane.start()
            write(attempt.run, "train-000001", rollout("a", "a", reason="wrong"))
            attempt.finish(verdict="no gain proven")
    if played == "pruned":
        assert cockpit("prune", "--job", str(job_id)).code == 0

    said = cockpit("export-sft", str(job_id), "--out", str(target))

    assert said.code == 0
    assert said.err.startswith(f"job {job_id} {why}")
    assert ("its rollouts were thrown away" in said.err) == (played == "pruned")
    assert said.err.endswith("; nothing written\n")
    assert list(tmp_path.glob("*.jsonl*")) == []


def test_a_kind_without_completions_says_so(
    cockpit: Cockpit, db: Database, run: RunDir, tmp_path: Path
) -> None:
    """Boxes match more or less; "none was right" would be no answer."""
    with db.write_tx() as conn:
        conn.execute(update(job_table).values(kind="stage2_ab"))
    for path in run.rollouts.iterdir():
        path.unlink()

    said = cockpit("export-sft", run.root.name, "--out", str(tmp_path / "sft.jsonl"))

    assert said.err == (
        f"job {run.root.name} is a stage2_ab: its rollouts are boxes that match more or less, and "
        "this kind has no completions to export; nothing written\n"
    )


@pytest.mark.parametrize(
    ("job", "out", "code", "line"),
    [
        ("99", "x.jsonl", 3, "99"),
        ("1", "no/such/folder/x.jsonl", 2, "--out: cannot be written: No such file"),
    ],
)
def test_a_mistake_is_one_line_with_the_exit_code_that_means_it(
    cockpit: Cockpit, run: RunDir, tmp_path: Path, job: str, out: str, code: int, line: str
) -> None:
    """No traceback, and no file left behind."""
    said = cockpit("export-sft", job, "--out", str(tmp_path / out))

    assert said.code == code
    assert line in said.err
    assert "Traceback" not in said.err
    assert list(tmp_path.rglob("*.tmp")) == []


def test_rows_may_go_to_standard_output_and_through_a_link(
    cockpit: Cockpit, run: RunDir, tmp_path: Path
) -> None:
    """A script pipes them; a link leads to another disk, and stays."""
    link = tmp_path / "link.jsonl"
    link.symlink_to(tmp_path / "rows.jsonl")

    printed = cockpit("export-sft", "1", "--out", "-")
    cockpit("export-sft", "1", "--out", str(link))
    both = cockpit("export-sft", "1", "--out", "-", "--json")

    assert [json.loads(line)["completion"] for line in printed.out.splitlines()] == [
        "new", "third", "old",
    ]  # fmt: skip
    assert (link.is_symlink(), link.read_text()) == (True, printed.out)
    assert (both.code, "leave one of the two out" in both.err) == (2, True)
