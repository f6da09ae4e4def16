"""`eval_rerun`: each row answered n times, and the files of pass@k."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from engine.__main__ import main
from engine.contract.errors import ConfigError
from engine.contract.events import Event
from engine.contract.kinds.eval_rerun import EvalRerunConfig
from engine.contract.registry import validate
from engine.contract.run_dir import Abort, AbortReason, ExitCode, RunDir
from engine.data.rows import Question
from engine.eval_rerun.rows import CURRICULUM, RESULTS, Sampled, alerts, in_bands, kept
from engine.eval_rerun.rows import tables as tables_of
from engine.evaluate.bench import EvalUnit

NewAttempt = Callable[..., RunDir]
Events = Callable[..., list[Event]]


def start(run: RunDir) -> int:
    return main(["run", str(run.root)])


def results(run: RunDir) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run.root / RESULTS).read_text("utf-8").splitlines()]


def ended(run: RunDir, events: Events) -> dict[str, Any]:
    return dict(events(run)[-1]["result"])


def sampled(name: str, n: int, solved: int, **reasons: int) -> Sampled:
    counts = reasons or {"correct": solved, "wrong": n - solved}
    return Sampled(Question(name, f"{name}?", "7"), n, solved, counts, truncated=0.0)


def test_the_files_count_what_the_rollouts_say(
    eval_recipe: dict[str, Any], new_attempt: NewAttempt, events: Events
) -> None:
    """One line a row, in the order of the source; the result's pass@1 is their mean."""
    run = new_attempt(eval_recipe, kind="eval_rerun")

    assert start(run) == ExitCode.DONE

    found = results(run)
    assert [row["id"] for row in found] == [f"q{i}" for i in range(120)]
    assert {row["n"] for row in found} == {4}
    lines = [
        json.loads(line)
        for path in sorted(run.rollouts.glob("heldout-passk-*.jsonl"))
        for line in path.read_text("utf-8").splitlines()
    ]
    for row in found:
        mine = [line for line in lines if line["id"] == row["id"]]
        assert row["solved"] == sum(line["success"] for line in mine)
        assert row["pass_rate"] == row["solved"] / 4
    passk = ended(run, events)["passk"]
    assert [one["k"] for one in passk["pass_at"]] == [1, 2, 3, 4]
    assert passk["pass_at"][0]["value"] == pytest.approx(sum(r["pass_rate"] for r in found) / 120)
    assert passk["pass_at"][0]["low"] < passk["pass_at"][0]["value"] < passk["pass_at"][0]["high"]
    assert sum(band["rows"] for band in passk["bands"]) == 120


def test_the_curriculum_file_holds_the_kept_band_from_easy_to_hard(
    eval_recipe: dict[str, Any], new_attempt: NewAttempt
) -> None:
    """Rows always solved or never are not in it; `data.curriculum: file` reads it."""
    run = new_attempt(eval_recipe, kind="eval_rerun")
    start(run)

    ids = (run.root / CURRICULUM).read_text("utf-8").splitlines()

    rates = {row["id"]: row["pass_rate"] for row in results(run)}
    assert ids
    assert [rates[id_] for id_ in ids] == sorted((rates[id_] for id_ in ids), reverse=True)
    assert set(ids) == {id_ for id_, rate in rates.items() if 0.1 <= rate <= 0.9}


def test_a_run_that_was_stopped_in_the_middle_writes_the_same_files(
    eval_recipe: dict[str, Any],
    new_attempt: NewAttempt,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was finished is not sampled again; a torn file of it is, to the same completions."""
    whole = new_attempt(eval_recipe, kind="eval_rerun", name="whole")
    start(whole)
    broken = new_attempt(eval_recipe, kind="eval_rerun", name="broken")
    asked: list[str] = []
    stop_in_the_fourth_step(monkeypatch, broken, asked)
    assert start(broken) == ExitCode.ABORTED
    first = list(asked)
    torn = broken.rollouts / "parts" / "passk-000000.jsonl"
    torn.write_bytes(torn.read_bytes()[:-40])
    new_attempt(eval_recipe, kind="eval_rerun", name="broken")

    assert start(broken) == ExitCode.DONE

    for name in (RESULTS, CURRICULUM):
        assert (broken.root / name).read_bytes() == (whole.root / name).read_bytes()
    again = set(first) & set(asked[len(first) :])
    assert again == {"q59", *(f"q{i}" for i in range(60, 80))}


def stop_in_the_fourth_step(monkeypatch: pytest.MonkeyPatch, run: RunDir, asked: list[str]) -> None:
    build = EvalUnit.sampler

    def counting(unit: EvalUnit, *arguments: Any) -> Any:
        sampler = build(unit, *arguments)

        def sample(tasks: Any, k: int) -> Any:
            asked.extend(task.id for task in tasks)
            if "q60" in asked and not (run.root / "stopped").exists():
                (run.root / "stopped").touch()
                run.attempt(1).request_abort(Abort(reason=AbortReason.CANCEL))
            return sampler(tasks, k)

        return sample

    monkeypatch.setattr(EvalUnit, "sampler", counting)


def test_bands_have_their_lower_end_and_the_last_one_both() -> None:
    """0.5 of [0.1, 0.5, 0.9] is in the upper one; 1 in the last."""
    rows = [sampled(f"q{c}", 10, c) for c in range(11)]

    found = [band["rows"] for band in in_bands(rows, [0.0, 0.1, 0.5, 0.9, 1.0])]

    assert found == [1, 4, 4, 2]
    assert [row.solved for row in kept(rows, [0.1, 0.9])] == list(range(9, 0, -1))


def test_a_row_that_nothing_was_judged_of_is_in_no_rate() -> None:
    """Not solved, and not failed either; its line says null."""
    rows = [sampled("a", 4, 2), sampled("b", 0, 0, unjudged=4)]
    config = EvalRerunConfig(base="embedded:qwen3-tiny", samples=4)

    found = tables_of(rows, config)

    assert rows[1].as_dict()["pass_rate"] is None
    assert found["pass_at"][0]["rows"] == 1
    assert sum(band["rows"] for band in found["bands"]) == 1


def test_a_band_that_no_row_is_in_is_said() -> None:
    """An empty curriculum file would be refused by the run that reads it."""
    config = EvalRerunConfig(base="embedded:qwen3-tiny", samples=4)

    found = dict(alerts([sampled("a", 4, 0), sampled("b", 4, 4)], config))

    assert found["CURRICULUM_EMPTY"].startswith("no row has a pass rate of 0.1 to 0.9")
    assert "1 of 2 rows were never solved" in found["CURRICULUM_EMPTY"]
    assert not list(alerts([sampled("a", 4, 2)], config))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"temp": 0.0}, "all alike with temp: 0"),
        ({"keep": [0.9, 0.1]}, "two shares that rise"),
        ({"bands": [0.1, 1.0]}, "must rise from 0 to 1"),
        ({"base": "embedded:gpt"}, "is not an embedded model"),
        ({"data": {"source": "embedded:subtraction"}}, "is not an embedded data set"),
        ({"verifier": "maths"}, "verifier"),
    ],
)
def test_what_cannot_run_is_refused_before_it_is_queued(
    eval_recipe: dict[str, Any], changed: dict[str, Any], said: str
) -> None:
    """By the field that is wrong."""
    with pytest.raises(ConfigError, match=said):
        validate("eval_rerun", eval_recipe | changed)


@pytest.mark.parametrize("tuning", ["full", "lora"])
def test_a_checkpoint_of_a_run_is_named_by_its_folder(
    recipe: dict[str, Any], eval_recipe: dict[str, Any], new_attempt: NewAttempt, tuning: str
) -> None:
    """Or by the run's, which means what it published; an adapter finds its base."""
    run = new_attempt(recipe | {"tuning": tuning, "max_steps": 1, "lora_rank": 2})
    assert start(run) == ExitCode.DONE

    for place in (run.root, run.checkpoint(1), run.selected):
        config = EvalRerunConfig(**(eval_recipe | {"base": str(place)}))
        folder = place.resolve() if place != run.root else run.selected.resolve()
        if tuning == "lora":
            assert (config.base, config.adapter_init) == (recipe["base"], str(folder / "adapter"))
        else:
            assert (config.base, config.adapter_init) == (str(folder / "model"), None)

    passk = new_attempt(eval_recipe | {"base": str(run.root)}, kind="eval_rerun", name="passk")
    assert start(passk) == ExitCode.DONE
