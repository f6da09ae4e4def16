"""Channel-B on written rollouts: what they become, and what the learner then runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.contract.sources.ground_truth import GTObject
from engine.contract.sources.records import Record
from engine.contract.stage2.rollout_matching import RolloutMatchingConfig
from engine.models.qwen3_vl import VisionModel
from engine.stage2.channel_a import SoftContext
from engine.stage2.learn.learner import Layouts, Learner, PackPlan
from engine.stage2.learn.objective import LossWeights
from engine.stage2.learn.packing import PackingError
from engine.stage2.parse.pieces import TokenPieces
from engine.stage2.rollout.base import Response
from engine.stage2.rollout.prompts import Prompt, PromptReader
from engine.stage2.rollout_step import RolloutStep
from engine.stage2.target.desc_gate import DescGate
from engine.stage2.target.judge import judge_metrics
from engine.stage2.target.payload import render
from engine.stage2.target.segments import CEWeights
from engine.stage2.taught import AB_SERIES, ABTargets

WEIGHTS = CEWeights(desc=1.0, desc_matched=0.2, dropped_structure=1.5)


def no_gate() -> DescGate:
    return DescGate(enabled=False, threshold=0.5, model_name_or_path="", revision=None)


@dataclass
class Written:
    """Answers that were written beforehand; remembers what it was asked."""

    pieces: TokenPieces
    texts: Sequence[str]
    seeds: list[int] = field(default_factory=list)
    asked: int = 0

    def __call__(self, prompts: Sequence[Prompt], seed_base: int) -> list[Response]:
        self.seeds.append(seed_base)
        texts = [self.texts[(self.asked + i) % len(self.texts)] for i in range(len(prompts))]
        self.asked += len(prompts)
        return [Response(self.pieces.encode(text), ended=True) for text in texts]

    def decoding(self) -> dict[str, Any]:
        return {}


NewChannelB = Callable[..., RolloutStep]
NewLearner = Callable[..., Learner]


@pytest.fixture
def new_channel_b(reader: PromptReader, pieces: TokenPieces) -> NewChannelB:
    def make(*texts: str, gate: DescGate | None = None) -> RolloutStep:
        config = RolloutMatchingConfig(rollout_backend="hf")
        sampler = Written(pieces, texts)
        return RolloutStep(sampler, reader, pieces, config, ABTargets(WEIGHTS), gate or no_gate())

    return make


@pytest.fixture
def new_learner(vlm: VisionModel, coord_ids: torch.Tensor) -> NewLearner:
    def make(plan: PackPlan | None = None, micro_batch: int = 4) -> Learner:
        soft = SoftContext(2, "unroll", 1.0)
        layouts = Layouts(vlm, 0, plan, micro_batch)
        return Learner(layouts, coord_ids, soft, LossWeights(1.0, 1.0))

    return make


def said(record: Record) -> str:
    """A rollout that finds every object."""
    return render(record.objects).text


def gradients(vlm: VisionModel) -> torch.Tensor:
    return torch.cat(
        [p.grad.flatten() for p in vlm.model.parameters() if p.grad is not None]
    ).clone()


@pytest.mark.requirement("AB-12")
@pytest.mark.parametrize("text", ["", "no box here", "[1, 2]", "<|im_end|>"])
def test_an_invalid_rollout_still_trains_its_sample(
    text: str, records: list[Record], new_channel_b: NewChannelB, new_learner: NewLearner
) -> None:
    """It is counted, its prefix is `{`, and every object is taught as missed."""
    record = records[0]

    rolled = new_channel_b(text)([record], 0)
    learnt = new_learner()(rolled.sequences, "b")

    (one,) = rolled.judged
    metrics = judge_metrics(rolled.judged, AB_SERIES)
    assert one.parsed.prefix == b"{"
    assert metrics["stage2/invalid_rollout"] == 1.0
    assert metrics["stage2/raw_rollouts"] == 1.0
    assert [len(sequence.segment.slots) for sequence in rolled.sequences] == [0]
    assert learnt.terms.ce > 0
    assert learnt.forwards == 1


@pytest.mark.requirement("AB-11")
@pytest.mark.parametrize("plan", [None, PackPlan(2000, 10, 0.01, "micro")])
@pytest.mark.parametrize("token", ["<|image_pad|>", "<|video_pad|>"])
def test_a_rollout_with_a_pictures_placeholder_trains_what_stands_before_it(
    token: str,
    plan: PackPlan | None,
    records: list[Record],
    new_channel_b: NewChannelB,
    new_learner: NewLearner,
) -> None:
    """The model would look for a picture there, and no picture belongs to it."""
    record = next(r for r in records if len(r.objects) == 1)

    rolled = new_channel_b(said(record)[:-1] + f', "object_2": {{"desc": "{token}')([record], 0)
    learnt = new_learner(plan)(rolled.sequences, "b")

    assert [len(sequence.segment.slots) for sequence in rolled.sequences] == [1, 0]
    assert rolled.judged[0].parsed.truncated
    assert learnt.terms.smoothl1 > 0


@pytest.mark.requirement("AB-19")
def test_without_a_matched_pair_there_is_no_geometry_forward(
    records: list[Record], new_channel_b: NewChannelB, new_learner: NewLearner
) -> None:
    """One sequence for a rollout that found nothing, two for one that found something."""
    record = next(r for r in records if len(r.objects) == 1)
    far = render([GTObject("red box", (0, 0, 1, 1))]).text

    nothing = new_channel_b(far)([record], 0)
    found = new_channel_b(said(record))([record], 0)

    assert len(nothing.sequences) == 1
    assert len(found.sequences) == 2
    learner = new_learner(micro_batch=1)
    assert learner(nothing.sequences, "b").forwards == 1
    learnt = learner(found.sequences, "b")
    assert learnt.forwards == 2
    assert learnt.terms.smoothl1 > 0


@pytest.mark.requirement("AB-08")
def test_dropped_entries_are_counted_by_reason_and_never_repaired(
    records: list[Record], new_channel_b: NewChannelB
) -> None:
    """One entry of each kind: eight buckets, one prediction, and all buckets always there."""
    text = (
        '{"object_1": {"desc": "red box", "bbox_2d": ["<|coord_0|>", "<|coord_0|>", '
        '"<|coord_9|>", "<|coord_9|>"]}, "x": {"desc": "a", "bbox_2d": []}, '
        '"object_2": {"desc": ""}, "object_3": {"desc": "a"}, '
        '"object_4": {"desc": "a", "line": []}, "object_5": {"desc": "a", "poly": []}, '
        '"object_6": {"desc": "a", "bbox_2d": []}, "object_7": {"desc": "a", "bbox_2d": '
        '[1, 2, 3, 4]}, "object_8": {"desc": "a", "bbox_2d": ["<|coord_9|>", "<|coord_0|>", '
        '"<|coord_0|>", "<|coord_9|>"]}}'
    )

    rolled = new_channel_b(text)(records[:1], 0)

    root = "stage2_ab/channel_b/strict_drop"
    metrics = judge_metrics(rolled.judged, AB_SERIES)
    assert metrics[f"{root}/N_valid_pred"] == 1.0
    assert metrics[f"{root}/N_drop_invalid"] == 8.0
    buckets = {k.rsplit("/", 1)[1]: v for k, v in metrics.items() if f"{root}/reason/" in k}
    reasons = "missing_desc missing_geom wrong_arity non_coord_token poly_unsupported unknown_geom"
    assert buckets == dict.fromkeys((*reasons.split(), "bbox_invalid", "key_invalid"), 1.0)


@pytest.mark.requirement("AB-21")
def test_packs_of_any_size_give_the_gradients_of_single_forwards(
    records: list[Record], new_channel_b: NewChannelB, new_learner: NewLearner, vlm: VisionModel
) -> None:
    """The window's loss is a sum over its sequences, however they share forwards."""
    texts = [said(record) for record in records[:6]]
    sequences = new_channel_b(*texts)(records[:6], 0).sequences
    plans = [None, PackPlan(200, 256, 0.01, "micro"), PackPlan(5000, 256, 0.01, "window")]

    found = []
    forwards = []
    vlm.model.double()  # in single precision the CPU decides how far two orders of a sum are apart
    for plan in plans:
        vlm.model.zero_grad()
        learnt = new_learner(plan, micro_batch=1)(sequences, "b")
        forwards.append(learnt.forwards)
        found.append(gradients(vlm))

    assert forwards[0] == len(sequences)
    assert forwards[2] == 1 < forwards[1] < forwards[0]
    for other in found[1:]:
        assert float((other - found[0]).abs().max()) <= 1e-12 * float(found[0].abs().max())


@pytest.mark.requirement("AB-21")
def test_a_small_buffer_packs_everything_within_the_step(
    records: list[Record], new_channel_b: NewChannelB, new_learner: NewLearner
) -> None:
    """Nothing waits for another step, however few segments may wait at once."""
    sequences = new_channel_b(*map(said, records))(records, 0).sequences

    learnt = new_learner(PackPlan(300, 3, 0.01, "micro"))(sequences, "b")

    assert learnt.segments == len(sequences)
    assert len(learnt.fills) == learnt.forwards > 1


def test_a_segment_longer_than_a_pack_is_refused(
    records: list[Record], new_channel_b: NewChannelB, new_learner: NewLearner
) -> None:
    """Truncating it would teach half an answer."""
    sequences = new_channel_b(said(records[0]))(records[:1], 0).sequences

    with pytest.raises(PackingError, match="raise global_max_length"):
        new_learner(PackPlan(10, 3, 0.5, "micro"))(sequences, "b")


@pytest.mark.requirement("AB-24")
def test_an_absent_desc_model_leaves_the_gate_inactive_and_the_step_whole(
    records: list[Record],
    new_channel_b: NewChannelB,
    new_learner: NewLearner,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A warning once, is_active 0, and matched descriptions keep their own weight."""
    gate = DescGate(
        enabled=True, threshold=0.5, model_name_or_path=str(tmp_path / "none"), revision="pinned"
    )
    channel_b = new_channel_b(said(records[0]), gate=gate)

    for _ in range(2):
        rolled = channel_b(records[:1], 0)

    assert gate.metrics(AB_SERIES)["stage2_ab/channel_b/semantic_desc_gate/is_active"] == 0.0
    assert [r.message for r in caplog.records if "is disabled" in r.message] != []
    assert sum("is disabled" in r.message for r in caplog.records) == 1
    weights = rolled.sequences[-1].segment.ce_weights
    assert 0.2 in weights
    assert new_learner()(rolled.sequences, "b").terms.ce > 0


@pytest.mark.requirement("AB-24")
def test_an_accepted_description_weighs_nothing_and_a_missed_object_weighs_in_full(
    records: list[Record], new_channel_b: NewChannelB, pieces: TokenPieces
) -> None:
    """The gate speaks of matched objects only."""
    record = next(r for r in records if len(r.objects) == 2)

    class Accepting(DescGate):
        def accepts(self, pairs: Sequence[tuple[str, str]]) -> list[bool]:
            return [True] * len(pairs)

    gate: Any = Accepting(enabled=False, threshold=0.5, model_name_or_path="", revision=None)
    text = render(record.objects[:1]).text

    b3 = new_channel_b(text, gate=gate)([record], 0).sequences[-1].segment

    colours = [o.desc.split()[0] for o in record.objects]
    spelled = [pieces.of(i).decode() for i in b3.ids]
    weight = {c: w for c in colours for t, w in zip(spelled, b3.ce_weights, strict=True) if t == c}
    assert weight == {colours[0]: 0.0, colours[1]: 1.0}
