"""The run card."""

from __future__ import annotations

from engine.run.lineage import snapshot


def test_trials_chain_from_the_baseline_through_updates_to_gates() -> None:
    """A gate hangs on the update it measured; updates hang on each other."""
    card = snapshot({0: 0.5, 2: 0.7}, {1: 0.4, 2: 0.6})

    assert [(t.name, t.parent, t.score) for t in card.trials] == [
        ("baseline", None, 0.5),
        ("rl-001", "baseline", 0.4),
        ("rl-002", "rl-001", 0.6),
        ("heldout-002", "rl-002", 0.7),
    ]
    assert card.chain_to_best == ["baseline", "rl-001", "rl-002", "heldout-002"]


def test_the_best_is_the_earliest_highest_heldout_score() -> None:
    """Pool scores never make a best, however high."""
    card = snapshot({0: 0.5, 1: 0.6, 2: 0.6, 3: 0.1}, {1: 0.9, 2: 1.0, 3: 1.0})

    assert card.current_best == "heldout-001"
    assert card.top == ["heldout-001", "heldout-002", "baseline", "heldout-003"]


def test_stops_are_trials_of_their_own() -> None:
    """One after a step, one before any."""
    card = snapshot({0: 0.5}, {1: 0.4, 2: 0.4}, aborted_after={0, 1})

    assert [t.name for t in card.trials] == [
        "baseline",
        "aborted-000",
        "rl-001",
        "aborted-001",
        "rl-002",
    ]
    assert card.trials[4].parent == "rl-001"


def test_top_and_recent_are_short_and_an_empty_run_has_a_card() -> None:
    """The card of a long run stays readable."""
    steps = range(1, 40)
    card = snapshot(dict.fromkeys(steps, 0.1), dict.fromkeys(steps, 0.2), top_k=3, recent_n=4)

    assert len(card.top) == 3
    assert card.recent == ["rl-038", "heldout-038", "rl-039", "heldout-039"]
    empty = snapshot({}, {})
    assert (empty.current_best, list(empty.chain_to_best)) == (None, [])
