"""Judge: the rollouts of a step through parse, match and desc gate, with the counters of all three.

Knows no target and no loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.contract.sources.ground_truth import GTObject
from engine.contract.stage2.rollout_matching import RolloutMatchingConfig
from engine.run.pace import counting
from engine.stage2.parse.parser import ParsedRollout, parse, rollout_metrics, strict_drop_metrics
from engine.stage2.parse.pieces import TokenPieces
from engine.stage2.target.desc_gate import DescGate
from engine.stage2.target.match import Match, match, match_metrics


@dataclass(frozen=True, slots=True)
class JudgedRollout:
    """A rollout against its ground truth."""

    parsed: ParsedRollout
    gt: Sequence[GTObject]
    found: Match
    accepted: Sequence[bool]
    """For each pair of `found.pairs`: did the desc gate accept the predicted description?"""


def judge(
    rollouts: Sequence[tuple[Sequence[int], Sequence[GTObject]]],
    pieces: TokenPieces,
    config: RolloutMatchingConfig,
    gate: DescGate,
) -> list[JudgedRollout]:
    """Each (response token ids, ground truth) of a step; the gate embeds all texts at once."""
    parsed = [parse(ids, pieces) for ids, _ in counting("parse", rollouts)]
    matches = [
        match(
            [p.box for p in one.predictions],
            [o.box for o in gt],
            top_k=config.candidate_top_k,
            gate=config.iou_gate,
            fp_cost=config.fp_cost,
            fn_cost=config.fn_cost,
        )
        for one, (_, gt) in counting("match", list(zip(parsed, rollouts, strict=True)))
    ]
    judged = []
    answers = iter(gate.accepts(_descriptions(parsed, matches, [gt for _, gt in rollouts])))
    for one, found, (_, gt) in zip(parsed, matches, rollouts, strict=True):
        accepted = [next(answers) for _ in found.pairs]
        judged.append(JudgedRollout(one, gt, found, accepted))
    return judged


def judge_metrics(judged: Sequence[JudgedRollout], of: str) -> dict[str, float]:
    """What a step logs of its rollouts. `of`: what series of one trainer begin with."""
    parsed = [one.parsed for one in judged]
    return {
        **rollout_metrics(parsed),
        **strict_drop_metrics(parsed, of),
        **match_metrics([one.found for one in judged]),
    }


def _descriptions(
    parsed: Sequence[ParsedRollout],
    matches: Sequence[Match],
    ground_truths: Sequence[Sequence[GTObject]],
) -> list[tuple[str, str]]:
    return [
        (predictions[i].desc, gt[j].desc)
        for predictions, found, gt in zip(
            (one.predictions for one in parsed), matches, ground_truths, strict=True
        )
        for i, j in found.pairs
    ]
