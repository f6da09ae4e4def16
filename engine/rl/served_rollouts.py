"""A server's completions, held against the trainer's own model before anybody uses them.

The trainer compares what it trains on by itself, in the passes that it makes anyway. What it never
reads, or reads with other weights than those that drew it, is compared here on a few: what a
held-out gate scores, and what was drawn while a step trained.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import cached_property

import torch

from engine.data.rows import Question
from engine.models.logprobs import BackboneAndHead, backbone_and_head
from engine.models.policy import Policy, Snapshot
from engine.rl.scoring import Batch, score
from engine.run.stop import check_abort
from engine.sampling.base import Groups, Rollout
from engine.sampling.contradiction import (
    Evidence,
    are_independent,
    copied,
    require_whole,
    stale_evidence,
)
from engine.sampling.rollouts import Rollouts

FEW = 16
"""Completions of a gate that are read again; one of each server at least."""


class ServedRollouts:
    """A sampler that raises SamplerContradicted and SamplerMalformed.

    `limit`: nats a token, as `objective.sampler_gap_limit`. `reads_all`: somebody else reads all
    that is trained on. `held`: how many states of the weights are kept, on the CPU, to read again
    what they drew.
    """

    def __init__(
        self,
        rollouts: Rollouts,
        policy: Policy,
        *,
        temp: float,
        max_new_tokens: int,
        limit: float,
        reads_all: bool = False,
        held: int = 0,
    ) -> None:
        self._rollouts = rollouts
        self._policy = policy
        self._temp = temp
        self._longest = max_new_tokens
        self._limit = limit
        self._reads_all = reads_all
        self._most_held = held
        self._held: dict[int, Snapshot] = {}
        """By version, the oldest first."""

    def __call__(self, tasks: Sequence[Question], k: int) -> Groups:
        """k completions of each task by the policy's weights of now."""
        self._rollouts.sync.bring()
        groups = self.draw(tasks, k)
        if not self._reads_all:
            everything = [one for group in groups for one in group]
            where = f"held-out rows at step {self._policy.version}"
            self._require(_few(everything), where, Evidence(self._limit))
        elif not are_independent(groups):
            where = f"drawn by the weights of step {self._policy.version}"
            self._require([group[0] for group in groups], where, Evidence(self._limit))
            raise copied(groups, where)
        return groups

    def bring(self) -> int:
        """What is drawn from here on is drawn by the policy's weights of now: their version."""
        self._rollouts.sync.bring()
        version = self._policy.version
        # A run that was rolled back has other weights under the same version.
        self._held.pop(version, None)
        self._held[version] = Snapshot(self._policy)
        for oldest in list(self._held)[: -self._most_held]:
            del self._held[oldest]
        return version

    def draw(self, tasks: Sequence[Question], k: int) -> Groups:
        """By the weights that were brought last. Reads nothing of the policy that training moves,
        but the version that it writes down.
        """
        groups = self._rollouts.draw(tasks, k)
        require_whole((one for group in groups for one in group), self._longest)
        return groups

    def verify(self, groups: Groups) -> float:
        """One completion a prompt, by the weights that drew it: the mean gap in nats a token.

        Where these are gone (an attempt before this one had them) those of now stand in, and what
        a step moves is allowed.
        """
        picked = [group[place % len(group)] for place, group in enumerate(groups)]
        version = picked[0].version
        where = f"drawn ahead by the weights of step {version}"
        snapshot = self._held.get(version)
        known = version == self._policy.version or snapshot is not None
        evidence = Evidence(self._limit) if known else stale_evidence(self._limit)
        with nullcontext() if snapshot is None else snapshot.in_place():
            gap = self._require(picked, where, evidence)
        if not are_independent(groups):
            raise copied(groups, where)
        return gap

    def _require(self, rollouts: Sequence[Rollout], where: str, evidence: Evidence) -> float:
        for rollout in rollouts:
            check_abort()
            pairs = zip(self._read(rollout), rollout.logprobs, strict=True)
            evidence.add(rollout, sum(abs(ours - theirs) for ours, theirs in pairs))
        evidence.require(where)
        return evidence.mean

    @torch.no_grad()
    def _read(self, rollout: Rollout) -> Sequence[float]:
        """By a plain forward pass, alone: the log-probability of each token."""
        policy, batch = self._policy, Batch.of([rollout], self._policy.device)
        with policy.computing():
            read = score(policy.model, batch, self._temp, backbone=self._backbone)
        found: list[float] = read.logprobs_BT[0].tolist()
        return found

    @cached_property
    def _backbone(self) -> BackboneAndHead | None:
        return backbone_and_head(self._policy.model)


def _few(rollouts: Sequence[Rollout]) -> Sequence[Rollout]:
    """Evenly spread, and the first of each server."""
    stride = max(1, -(-len(rollouts) // FEW))
    firsts = {one.server: one for one in reversed(rollouts)}
    return [*dict.fromkeys([*rollouts[::stride], *firsts.values()])]
