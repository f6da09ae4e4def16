"""F1 over pictures, its interval, and the verdict of a report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from engine.contract.sources.ground_truth import GTObject
from engine.contract.sources.records import Record
from engine.contract.stage2.rollout_matching import RolloutMatchingConfig
from engine.evaluate.pooled_f1 import by_picture, f1_interval, lift_interval
from engine.run.ranks import Ranks
from engine.stage2.evaluation import Evaluation, RolloutEval, summarise
from engine.stage2.report import report_fields
from engine.stage2.rollout.base import Response
from engine.stage2.rollout.hf import HFSampler
from engine.stage2.rollout.prompts import Prompt, PromptReader
from engine.stage2.target.desc_gate import DescGate
from engine.stage2.target.judge import judge
from engine.stage2.target.payload import encode
from tests.engine.stage2.families import byte_level

NEAR, FAR = GTObject("cat", (0, 0, 99, 99)), GTObject("cat", (500, 500, 599, 599))


def evaluated(*pictures: tuple[Sequence[GTObject], Sequence[GTObject]]) -> Evaluation:
    """(said, there) of each picture, through the real parser and matcher."""
    pieces = byte_level()
    gate = DescGate(enabled=False, threshold=0.0, model_name_or_path="", revision=None)
    answered = [(encode(pieces, said), there) for said, there in pictures]
    judged = judge(answered, pieces, RolloutMatchingConfig(rollout_backend="hf"), gate)
    return summarise(judged, [""] * len(judged))


def test_f1_pools_the_objects_of_all_pictures() -> None:
    """2 hits of 3 said and 4 there: precision 2/3, recall 1/2, F1 4/7."""
    found = evaluated(([NEAR], [NEAR, FAR]), ([NEAR, FAR], [NEAR]), ([], [FAR]))

    assert found.counts == [(1, 1, 2), (1, 2, 1), (0, 0, 1)]
    assert found.metrics["precision"] == pytest.approx(2 / 3)
    assert found.metrics["recall"] == pytest.approx(1 / 2)
    assert found.f1 == pytest.approx(4 / 7)
    assert found.metrics["matched_iou"] == 1.0
    assert found.solved == [False, False, False]


def test_a_picture_is_solved_when_all_is_found_and_nothing_else_said() -> None:
    """The exact test of a report counts these."""
    found = evaluated(([NEAR], [NEAR]), ([NEAR, FAR], [NEAR]))

    assert found.solved == [True, False]


def test_the_interval_of_f1_holds_the_score_and_knows_when_it_knows_nothing() -> None:
    """One outcome everywhere leaves no doubt; no picture leaves every doubt."""
    low, high = f1_interval([(1, 1, 1), (0, 1, 1)] * 20)

    assert low < 0.5 < high
    assert low > 0.3
    assert f1_interval([(1, 1, 1)] * 5) == (1.0, 1.0)
    assert f1_interval([]) == (0.0, 1.0)


def test_the_interval_of_a_lift_pairs_the_pictures() -> None:
    """Scores that differ between pictures and not between policies have lift 0 for sure."""
    mixed = [(1, 1, 1), (0, 1, 1)] * 10

    assert lift_interval(mixed, mixed) == (0.0, 0.0)
    assert lift_interval([(0, 1, 1)] * 9, [(1, 1, 1)] * 9) == (1.0, 1.0)
    assert lift_interval([], []) == (-1.0, 1.0)


def test_an_evaluation_reads_the_pictures_of_one_decode_call_and_of_the_next(
    records: list[Record], reader: PromptReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Patches of a whole validation file would fill the memory of a lane."""
    config = RolloutMatchingConfig(rollout_backend="hf", decode_batch_size=2, max_new_tokens=1)
    gate = DescGate(enabled=False, threshold=0.0, model_name_or_path="", revision=None)
    sampler = HFSampler(reader.vlm, reader.pieces, config)
    read, calls = [], []
    prompt, decode = PromptReader.__call__, HFSampler._decode

    def reading(self: PromptReader, record: Record) -> Prompt:
        read.append(record)
        return prompt(self, record)

    def decoding(self: HFSampler, prompts: Sequence[Prompt], seed: int) -> list[Response]:
        calls.append(len(read))
        return decode(self, prompts, seed)

    monkeypatch.setattr(PromptReader, "__call__", reading)
    monkeypatch.setattr(HFSampler, "_decode", decoding)

    RolloutEval(sampler, reader, reader.pieces, config, gate, Ranks())(records[:5])

    assert calls == [4, 5, 5]
    assert read == records[:5]


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        (0, 30, "gain"),
        (30, 0, "loss"),
        (15, 15, "no gain proven"),
        (15, 17, "no gain proven"),
    ],
)
def test_a_verdict_needs_interval_and_exact_test(before: int, after: int, verdict: str) -> None:
    """Of 40 pictures so many are solved; few more prove nothing."""

    def run(hits: int) -> Evaluation:
        return evaluated(*[([NEAR if i < hits else FAR], [NEAR]) for i in range(40)])

    fields = report_fields(run(before), run(after), report_min=30, picked=80)

    assert fields["verdict"] == verdict
    assert fields["published_step"] == (80 if verdict == "gain" else 0)
    assert math.isclose(fields["lift"], (after - before) / 40)
    small = report_fields(run(before), run(after), report_min=41, picked=80)
    assert (small["verdict"], small["published_step"]) == ("no verdict", 0)


def test_records_of_one_picture_are_one_observation() -> None:
    """Twenty pictures with two questions each: as wide an interval as twenty, and twenty of them
    are what a verdict counts.
    """
    names = [f"{i}.png" for i in range(20)]

    def run(hits: int, copies: int) -> Evaluation:
        once = [([NEAR if i < hits else FAR], [NEAR]) for i in range(20)]
        found = evaluated(*once * copies)
        counts = by_picture(found.counts, names * copies)
        return replace(found, pictures=(*names * copies,), f1_ci95=f1_interval(counts))

    once = report_fields(run(5, 1), run(12, 1), report_min=20, picked=80)
    twice = report_fields(run(5, 2), run(12, 2), report_min=20, picked=80)
    too_few = report_fields(run(5, 2), run(12, 2), report_min=21, picked=80)

    assert (twice["report_n"], twice["report_different"]) == (40, 20)
    assert twice["lift_ci95"] == pytest.approx(once["lift_ci95"])
    assert twice["p_value"] == once["p_value"]
    assert run(5, 2).ci95 == pytest.approx(run(5, 1).ci95)
    assert too_few["verdict"] == "no verdict"
