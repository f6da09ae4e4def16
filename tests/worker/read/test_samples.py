"""The shelf and its questions: rows found by offset, in bounded looks, whatever the file does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.contract.run_dir import RunDir
from tests.app.rollouts import picture_row, row, write
from worker.read.samples import query
from worker.read.samples.files import Split, nearest, picture_file, rollout_files
from worker.read.samples.index import FileIndex, Shelf
from worker.read.samples.query import Wanted, find_history, find_samples


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    """A run directory without a rollout."""
    return RunDir(tmp_path / "run")


def found(run: RunDir, **wanted: Any) -> query.SamplePage:
    """A page by a shelf of its own."""
    return find_samples(run.root, Wanted(**wanted), Shelf())


@pytest.mark.requirement("UI-08")
def test_files_are_found_by_split_and_step_in_the_order_of_numbers(run: RunDir) -> None:
    """Step 1000000 comes after step 999999; files of other names are no rollouts."""
    for name in ("train-1000000", "train-999999", "heldout-select-000000", "heldout-report-000007"):
        write(run, name, [row("a")])
    (run.rollouts / ".train-000001.jsonl.tmp").write_text("{}")
    (run.rollouts / "notes.jsonl").write_text("{}")

    files = rollout_files(run.root)

    assert {split: list(steps) for split, steps in files.items()} == {
        Split.POOL: [999999, 1000000],
        Split.SELECT: [0],
        Split.REPORT: [7],
    }


@pytest.mark.parametrize(("wish", "step"), [(None, 20), (20, 20), (15, 10), (99, 20), (1, 10)])
def test_a_step_without_a_file_is_answered_by_the_one_before_it(
    wish: int | None, step: int
) -> None:
    """The slider may stand anywhere; before the first step there is only the first."""
    files = {10: Path("a"), 20: Path("b")}

    assert nearest(files, wish) == step
    assert nearest({}, wish) is None


ROWS = [
    row("tied", 0, "1", 0.0, advantage=0.0),
    row("tied", 1, "2", 0.0, advantage=0.0),
    row("mixed", 0, "three", 1.0, advantage=1.0),
    row("mixed", 1, "4", 0.5, advantage=-1.0, reason="lenient"),
    row("long", 0, "5" * 50, 0.0, advantage=0.0, truncated=True, reason="truncated"),
    row("none", 0, "?", 0.0, advantage=0.0, reason="unparsed", answer=None),
]


@pytest.mark.requirement("UI-08")
@pytest.mark.parametrize(
    ("wanted", "rows"),
    [
        ({}, [0, 1, 2, 3, 4, 5]),
        ({"low": 0.5}, [2, 3]),
        ({"high": 0}, [0, 1, 4, 5]),
        ({"low": 0.1, "high": 0.9}, [3]),
        ({"reason": "wrong"}, [0, 1]),
        ({"truncated": True}, [4]),
        ({"unparsed": True}, [5]),
        ({"tied": True}, [0, 1]),
        ({"id": "mixed"}, [2, 3]),
        ({"q": "THREE"}, [2]),
        ({"q": "long="}, [4]),
        ({"after": 3}, [4, 5]),
        ({"tied": True, "low": 0.5}, []),
    ],
)
def test_every_condition_keeps_its_rows_and_no_other(
    run: RunDir, wanted: dict[str, Any], rows: list[int]
) -> None:
    """Conditions hold all at once; a truncated completion is shown like any other."""
    write(run, "train-000001", ROWS)

    assert [one.row for one in found(run, **wanted).samples] == rows


@pytest.mark.requirement("UI-08")
def test_a_group_of_one_is_not_tied(run: RunDir) -> None:
    """Zero variance needs several completions; a held-out row is alone by design."""
    write(run, "train-000001", ROWS)

    page = found(run)

    assert (page.tied, page.groups) == (1, 4)
    assert [(one.tied, one.group) for one in page.samples[1:5]] == [
        (True, 2),
        (False, 2),
        (False, 2),
        (False, 1),
    ]


@pytest.mark.requirement("UI-08")
def test_pages_walk_through_every_row_once(run: RunDir) -> None:
    """Keyset by the row's place; the last page says that it is the last."""
    write(run, "train-000001", [row(f"p{i}") for i in range(7)])
    seen, after = [], -1
    while True:
        page = found(run, limit=3, after=after)
        seen += [one.row for one in page.samples]
        if page.next_after is None:
            break
        after = page.next_after

    assert seen == list(range(7))
    assert page.matched == page.total == 7


def test_a_completion_that_was_not_judged_ranks_nothing(run: RunDir) -> None:
    """Of the other two one is left, and one alone ties."""
    rows = [
        row("a", 0, "1", 1.0),
        row("a", 1, "2", 0.0, reason="crash"),
        row("a", 2, "3", 0.0, reason="unjudged"),
    ]
    write(run, "train-000001", rows)

    assert found(run).samples[0].tied


@pytest.mark.requirement("RL-17")
def test_what_reward_functions_gave_and_logged_stands_beside_the_reward(run: RunDir) -> None:
    """A column that a function logs is one of the samples."""
    parts = {"accuracy": 1.0, "judge": None}
    write(run, "train-000001", [row("a") | {"parts": parts, "extra": {"gold": "7", "n": 2}}])

    [sample] = found(run).samples

    assert sample.extra == {"gold": "7", "n": 2}
    assert sample.detail == "accuracy 1, judge not judged; gold: 7; n: 2"


@pytest.mark.requirement("UI-08")
def test_a_torn_last_line_waits_until_it_is_whole(run: RunDir) -> None:
    """What was read stays read; the rest comes with the next look."""
    write(run, "train-000001", [row("a")])
    path = run.rollouts / "train-000001.jsonl"
    torn = json.dumps(row("b"))
    with path.open("a") as stream:
        stream.write(torn[:20])
    index = FileIndex(path, Split.POOL, 1)
    index.look(10**6)
    assert [fact.outcome.id for fact in index.facts] == ["a"]
    assert index.whole

    with path.open("a") as stream:
        stream.write(torn[20:] + "\n")
    read = index.look(10**6)

    assert [fact.outcome.id for fact in index.facts] == ["a", "b"]
    assert read == len(torn) + 1
    assert index.look(10**6) == 0


def test_a_file_that_was_replaced_is_read_anew(run: RunDir) -> None:
    """A step done again after a resume has other rows at other offsets."""
    write(run, "train-000001", [row("old"), row("older")])
    path = run.rollouts / "train-000001.jsonl"
    index = FileIndex(path, Split.POOL, 1)
    index.look(10**6)
    write(run, "aside", [row("new")])
    (run.rollouts / "aside.jsonl").replace(path)

    index.look(10**6)

    assert [fact.outcome.id for fact in index.facts] == ["new"]
    first = index.sample(0)
    assert first is not None
    assert first.id == "new"


@pytest.mark.requirement("UI-08")
def test_a_look_is_bounded_and_the_next_one_goes_on(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No request reads a whole large file; each says how far it came."""
    write(run, "train-000001", [row(f"p{i}") for i in range(100)])
    monkeypatch.setattr(query, "BYTES_A_LOOK", 2000)
    shelf = Shelf()

    shares = [find_samples(run.root, Wanted(), shelf).read_share for _ in range(20)]

    assert 0 < shares[0] < 0.2
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


@pytest.mark.requirement("UI-08")
def test_a_search_is_bounded_and_can_be_gone_on_with(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The needle stands in the last row: a page without a hit still says where to go on."""
    rows = [row(f"p{i}") for i in range(30)] + [row("last", text="needle")]
    write(run, "train-000001", rows)
    monkeypatch.setattr(query, "SEARCHED_A_LOOK", 2000)
    shelf = Shelf()
    page, looks = find_samples(run.root, Wanted(q="needle"), shelf), 1
    while not page.samples:
        assert page.next_after is not None
        wanted = Wanted(q="needle", after=page.next_after)
        page, looks = find_samples(run.root, wanted, shelf), looks + 1

    assert page.samples[0].id == "last"
    assert looks > 2


def test_lines_that_hold_no_completion_are_counted_and_passed_over(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Damaged JSON, a list, and a line longer than any completion."""
    monkeypatch.setattr("worker.read.samples.index.MOST_LINE", 3000)
    write(run, "train-000001", [row("a"), row("huge", text="x" * 9000), row("b")])
    with (run.rollouts / "train-000001.jsonl").open("a") as stream:
        stream.write('{"id": \n[1]\n\n')

    page = found(run)

    assert [one.id for one in page.samples] == ["a", "b"]
    assert page.damaged == 3


def test_fields_of_other_types_read_as_not_known(run: RunDir) -> None:
    """The engine may be of another version; a page must not fail on its rows."""
    strange = {"id": 3, "text": None, "reward": "high", "logprobs": "none", "truncated": 1}
    write(run, "train-000001", [strange, row("a", text="\ud800!")])

    first, second = found(run).samples

    assert (first.id, first.text, first.reward, first.logprobs) == ("row 1", "", None, [])
    assert first.truncated is False
    assert second.text == "?!"


@pytest.mark.requirement("UI-08")
def test_one_held_out_prompt_is_followed_over_the_steps(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Oldest first; older steps are on a page of their own."""
    for step in range(5):
        rows = [row("other"), row("x=", text=f"at {step}")]
        write(run, f"heldout-select-{step * 10:06d}", rows)
    monkeypatch.setattr(query, "MOST_STEPS", 3)

    newest = find_history(run.root, Split.SELECT, "x=", shelf=Shelf())
    oldest = find_history(run.root, Split.SELECT, "x=", before=newest.next_before, shelf=Shelf())

    assert [one.text for one in newest.samples] == ["at 2", "at 3", "at 4"]
    assert [one.text for one in oldest.samples] == ["at 0", "at 1"]
    assert (newest.looked, newest.steps, oldest.next_before) == (3, 5, None)


def test_the_shelf_forgets_the_files_used_longest_ago(run: RunDir) -> None:
    """Memory is bounded by rows; the file in use stays whatever its size."""
    shelf = Shelf(most_rows=5)
    for step in (1, 2, 3):
        write(run, f"train-{step:06d}", [row("a"), row("b"), row("c")])
        find_samples(run.root, Wanted(step=step), shelf)
    kept = shelf.index(run.rollouts / "train-000003.jsonl", Split.POOL, 3)
    gone = shelf.index(run.rollouts / "train-000001.jsonl", Split.POOL, 1)

    assert len(kept.facts) == 3
    assert gone.facts == []


@pytest.mark.requirement("UI-08")
def test_a_stage_2_row_brings_its_boxes_and_its_fate(run: RunDir) -> None:
    """F1 stands for the reward, the record for the prompt."""
    write(run, "heldout-select-000000", [picture_row("val.jsonl line 1", 1, 2, 2)])

    (one,) = found(run).samples

    assert (one.id, one.reward, one.reason) == ("val.jsonl line 1", 0.5, "false and missed")
    assert one.detection is not None
    assert [box.fate for box in one.detection.objects] == ["found", "missed"]
    assert [(box.fate, box.partner) for box in one.detection.entries] == [
        ("matched", 1),
        ("false positive", None),
    ]


@pytest.mark.parametrize(
    "name", ["../events.jsonl", "a.jpg", "0" * 20 + ".png", "..", "", "0" * 21]
)
def test_a_picture_has_a_name_that_the_engine_gave_or_none(run: RunDir, name: str) -> None:
    """No other name reaches the disk."""
    write(run, "train-000001", [row("a")])
    run.events.write_text("{}")

    assert picture_file(run.root, name) is None


def test_a_link_out_of_the_run_directory_is_no_picture(run: RunDir, tmp_path: Path) -> None:
    """What a run's folder points to outside of it is not served."""
    folder = run.rollouts / "pictures"
    folder.mkdir(parents=True)
    (tmp_path / "secret").write_text("key")
    (folder / ("0" * 20 + ".jpg")).symlink_to(tmp_path / "secret")
    (folder / ("1" * 20 + ".jpg")).write_bytes(b"jpeg")

    assert picture_file(run.root, "0" * 20 + ".jpg") is None
    assert picture_file(run.root, "1" * 20 + ".jpg") == folder / ("1" * 20 + ".jpg")
