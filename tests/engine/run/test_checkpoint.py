"""Checkpoints: complete or non-existent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.contract.run_dir import COMPLETE, RunDir, complete_checkpoints
from engine.run.checkpoint import CheckpointStore


def fill(text: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / "model").mkdir()
        (folder / "model" / "weights").write_text(text)
        (folder / "loop.json").write_text("{}")

    return write


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    """An empty run directory."""
    return RunDir(tmp_path / "run")


class Warnings(list[tuple[str, str]]):
    """Collects what was warned of."""

    def __call__(self, code: str, text: str) -> None:
        self.append((code, text))


def store(run: RunDir, warn: Warnings | None = None) -> CheckpointStore:
    return CheckpointStore(run, Warnings() if warn is None else warn)


def test_a_published_checkpoint_is_found_with_its_state(run: RunDir) -> None:
    """Newest first, files hashed, marker last."""
    store(run).publish(1, fill("one"), {"at": 1})
    store(run).publish(2, fill("two"), {"at": 2})
    warnings = Warnings()

    found = store(run, warnings).newest()

    assert found is not None
    assert (found.step, found.state) == (2, {"at": 2})
    assert (found.path / "model" / "weights").read_text() == "two"
    assert warnings == []


def test_an_empty_run_has_no_checkpoint(run: RunDir) -> None:
    """Nothing found is no error."""
    assert store(run).newest() is None


def test_a_writer_that_dies_leaves_no_checkpoint(run: RunDir) -> None:
    """Neither its half-filled folder nor a later publish is disturbed by it."""

    def dies(folder: Path) -> None:
        (folder / "half").write_text("x")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store(run).publish(1, dies, {})
    assert complete_checkpoints(run) == []

    store(run).publish(1, fill("whole"), {})

    assert [entry.name for entry in run.checkpoints.iterdir()] == ["step-000001"]
    assert not (run.checkpoint(1) / "half").exists()


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (lambda p: (p / COMPLETE).unlink(), "CHECKPOINT_INCOMPLETE"),
        (lambda p: (p / COMPLETE).write_text("{"), "CHECKPOINT_CORRUPT"),
        (lambda p: (p / "model" / "weights").write_text("other"), "CHECKPOINT_CORRUPT"),
        (lambda p: (p / "loop.json").unlink(), "CHECKPOINT_CORRUPT"),
    ],
)
def test_an_incomplete_or_harmed_checkpoint_gives_way_to_the_one_before(
    damage: Callable[[Path], None], code: str, run: RunDir
) -> None:
    """It is ignored, and said."""
    store(run).publish(1, fill("one"), {})
    store(run).publish(2, fill("two"), {})
    damage(run.checkpoint(2))
    warnings = Warnings()

    found = store(run, warnings).newest()

    assert found is not None
    assert found.step == 1
    assert [c for c, _ in warnings] == [code]
    assert "step-000002" in warnings[0][1]


def test_publishing_a_step_again_replaces_it(run: RunDir) -> None:
    """A resumed run computes a lost step anew."""
    store(run).publish(1, fill("first"), {"at": 1})

    store(run).publish(1, fill("second"), {"at": 2})

    found = store(run).newest()
    assert found is not None
    assert (found.path / "model" / "weights").read_text() == "second"
    assert found.state == {"at": 2}


@pytest.mark.parametrize(
    ("keep", "always", "left"),
    [(1, {0, 2}, [0, 2, 5]), (3, {0}, [0, 3, 4, 5]), (9, set(), [0, 1, 2, 3, 4, 5])],
)
def test_retention_keeps_the_last_ones_and_those_it_must(
    keep: int, always: set[int], left: list[int], run: RunDir
) -> None:
    """Step 0 is the reference and the selected one is the product."""
    for step in range(6):
        store(run).publish(step, fill(str(step)), {})

    store(run).retain(keep=keep, always=always)

    assert [step for step, _ in complete_checkpoints(run)] == left


def test_the_selected_link_is_relative_and_moves(run: RunDir) -> None:
    """The run directory can be carried to another box."""
    for step in (1, 2):
        store(run).publish(step, fill(str(step)), {})
        store(run).select(step)

        assert run.selected.resolve() == run.checkpoint(step)
    assert str(run.selected.readlink()) == "checkpoints/step-000002"
