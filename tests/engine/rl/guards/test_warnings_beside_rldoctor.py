"""The warnings on the twelve synthetic runs of rldoctor, beside what it says itself."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from rl_doctor.live import LiveMonitor
from rl_doctor.simulate import EXPECTED_DETECTIONS, SCENARIOS, simulate

from engine.contract.kinds.rl_run import RLRunConfig
from engine.rl.guards.warnings.seen import WatchMemory
from engine.rl.guards.warnings.watch import Watch
from engine.rl.state import LoopState, marks
from engine.verdict.inversion import find_inversion

SEEDS = range(8)
ROWS = 500
CHANGED = 0.16
"""Share of the held-out rows that change from gate to gate, beside what the score does."""
GATES = 10
"""Steps between two gates of a run; the score is a new one where the simulation has one."""

OURS = {
    "entropy_collapse": "ENTROPY_LOW",
    "saturated_groups": "TIES_HIGH",
    "too_hard": "TIES_HIGH",
    "reward_hacking": "INVERSION",
    "length_hacking": "LENGTH_PAID",
    "truncation": "TRUNCATED",
    "kl_blowup": "KL_CREEP",
    "clip_saturation": "CLIPPED",
    "grad_spikes": "GRAD_SPIKES",
    "plateau": "PLATEAU",
    "format_domination": "FORM_PAID",
}
"""What names the fault of each run here."""

NAMES = {
    "reward": "pool/reward_mean",
    "rewards/correctness/mean": "pool/strict_mean",
    "reward_std": "pool/reward_std",
    "frac_reward_zero_std": "rollout/zero_variance",
    "entropy": "train/entropy",
    "kl": "train/kl",
    "clip_ratio/region_mean": "train/clip_fraction",
    "grad_norm": "train/grad_norm",
    "completions/mean_length": "rollout/length_mean",
    "completions/clipped_ratio": "rollout/truncated",
    "step_time": "time/step_s",
}


def solved_rows(score: float, draw: np.random.Generator) -> list[bool]:
    """Rows of about that score; those solved are mostly the same ones at every gate."""
    solved = np.arange(ROWS) < round(score * ROWS)
    some = draw.permutation(ROWS)[: int(CHANGED * ROWS)]
    solved[some] = solved[draw.permutation(some)]
    return [bool(one) for one in solved]


@cache
def said_here(scenario: str, seed: int) -> dict[str, int]:
    """The step at which each code is first said."""
    records, _ = simulate(scenario, seed=seed)
    config = RLRunConfig(base="embedded:qwen3-tiny", max_steps=len(records))
    watch, state, draw = Watch(config, WatchMemory()), LoopState(), np.random.default_rng(seed)
    first: dict[str, int] = {}
    for state.step, record in enumerate(records, 1):
        state.pool_scores[state.step] = record["rewards/correctness/mean"]
        state.history.append({"step": state.step, "seconds": record["step_time"]})
        values = {ours: record[theirs] for theirs, ours in NAMES.items()}
        said = watch.stepped(state, values, ranked=True)
        if "eval/accuracy" in record:
            solved = solved_rows(record["eval/accuracy"], draw)
            state.heldout_scores[state.step] = sum(solved) / ROWS
            state.heldout_solved[state.step] = marks(solved)
            said += inversion(state, config)
        if state.step % GATES == 0:
            said += watch.gated(state, None)
        state.alerts += said
        for alert in said:
            first.setdefault(alert["code"], state.step)
    return first


def inversion(state: LoopState, config: RLRunConfig) -> list[dict[str, Any]]:
    """As the loop asks for it."""
    found = find_inversion(state.outcomes(), state.pool_scores, config.guard)
    if found is None or state.inversion is not None:
        return []
    state.inversion = found.as_dict()
    return [{"code": "INVERSION", "text": found.text()}]


def said_there(scenario: str, seed: int, every: int) -> int | None:
    """The step at which rldoctor's monitor, which looks every so many, first warns of the fault."""
    records, of_run = simulate(scenario, seed=seed)
    wanted = EXPECTED_DETECTIONS[scenario]
    monitor = LiveMonitor(of_run, every, only=wanted, on_finding=lambda _: None)
    for step, record in enumerate(records, 1):
        if monitor.log(record, step=record["step"]):
            return step
    return None


@pytest.mark.requirement("EX-25")
@pytest.mark.parametrize("every", [25, GATES])
@pytest.mark.parametrize("scenario", OURS)
def test_each_fault_is_named_at_least_as_early(scenario: str, every: int) -> None:
    """In all eight runs of each fault, whether or not rldoctor's monitor names it: as it comes,
    every 25 steps, and in the rhythm of the gates.
    """
    for seed in SEEDS:
        here = said_here(scenario, seed).get(OURS[scenario])
        there = said_there(scenario, seed, every)

        assert here is not None, f"seed {seed}: not named"
        assert there is None or here <= there, f"seed {seed}: step {here}, there {there}"


@pytest.mark.requirement("EX-25")
def test_a_healthy_run_hears_nothing() -> None:
    """A warning that cries wolf is switched off."""
    assert [said_here("healthy", seed) for seed in SEEDS] == [{}] * len(SEEDS)


@pytest.mark.requirement("EX-25")
@pytest.mark.parametrize("scenario", sorted({*SCENARIOS} - {"plateau"}))
def test_no_other_fault_is_called_a_plateau(scenario: str) -> None:
    """Some of them are flat for two hundred steps: what holds them up is said instead."""
    assert not [seed for seed in SEEDS if "PLATEAU" in said_here(scenario, seed)]
