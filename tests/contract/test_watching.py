"""`evaluate` of a run: what is refused, what is said, and which checkpoints are meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.contract.errors import ConfigError
from engine.contract.evaluate.watching import Awaited, awaited, tell_awaited
from engine.contract.registry import cautions, get_kind, validate
from engine.contract.run_dir import RunDir

BENCH = {"source": "embedded:addition", "verifier": "exact", "name": "sums"}


def asked(**evaluate: Any) -> dict[str, Any]:
    return {
        "base": "embedded:qwen3-tiny",
        "max_steps": 34,
        "save_every": 5,
        "heldout_every": 10,
        "evaluate": {"benches": [BENCH], **evaluate},
    }


@pytest.mark.parametrize(
    ("every", "save_every", "scored"), [(1, 1, 35), (1, 5, None), (10, 1, None)]
)
def test_many_evaluations_are_said_with_their_number(
    every: int, save_every: int, scored: int | None
) -> None:
    """Those of every checkpoint that is saved, in the rhythm of gates or its own."""
    found = cautions("rl_run", asked(every=every) | {"save_every": save_every})

    said = [one for one in found if one.field == "evaluate.every"]
    assert [f"scores {scored} checkpoints" in one.problem for one in said] == (
        [] if scored is None else [True]
    )


def test_two_benches_of_one_name_are_refused() -> None:
    """Their completions would be one file."""
    with pytest.raises(ConfigError, match="has 'sums' twice"):
        validate("rl_run", asked(benches=[BENCH, BENCH]))


def test_what_is_scored_afterwards_makes_no_other_experiment() -> None:
    """The training is the same."""
    assert "evaluate" in get_kind("rl_run").indifferent


def test_a_step_waits_while_any_list_of_benches_has_no_score_of_it(tmp_path: Path) -> None:
    """And nothing waits where nobody wrote what does."""
    run = RunDir(tmp_path)
    assert awaited(run, {0, 1, 2}) == set()

    tell_awaited(run, [Awaited(2, {0, 2}), Awaited(4, {0})])

    assert awaited(run, {0, 1, 2, 4, 6}) == {4, 6}
