"""The parts of a run, built from its config: learner, channels, samplers, evaluation."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Protocol

from transformers import PrinterCallback

from engine.contract.sources.records import Record
from engine.contract.stage2.config import Stage2Config
from engine.contract.stage2.rollout_matching import DecodingConfig, RolloutMatchingConfig
from engine.run.ranks import Ranks
from engine.run.recorder import Recorder
from engine.stage2.alternating import Alternating
from engine.stage2.arguments import score_is_missing, training_arguments
from engine.stage2.channel_a import SoftContext
from engine.stage2.corpus import Corpus
from engine.stage2.evaluation import RolloutEval
from engine.stage2.learn.learner import Layouts, Learner, PackPlan
from engine.stage2.learn.matching import MatchingLearner
from engine.stage2.learn.objective import LossWeights
from engine.stage2.matching import Matching
from engine.stage2.rollout.hf import HFSampler
from engine.stage2.rollout.prompts import PromptReader
from engine.stage2.rollout.served import FollowSteps, Served
from engine.stage2.rollout.vllm import FEW, VLLMSampler
from engine.stage2.rollout_step import RolloutStep
from engine.stage2.target.desc_gate import DescGate, no_gate
from engine.stage2.target.segments import CEWeights
from engine.stage2.taught import ABTargets, OneTarget, Targets
from engine.stage2.trainer import Stage2Parts, Stage2Trainer
from engine.stage2.window import Drawn


class Says(Protocol):
    """Where a person hears of what the parts came to: an attempt's events, or another's log."""

    def note(self, code: str, text: str) -> None:
        """Worth knowing."""

    def warn(self, code: str, text: str) -> None:
        """A person should look at it."""


def build_trainer(
    config: Stage2Config,
    recorder: Recorder,
    reader: PromptReader,
    corpus: Corpus,
    ranks: Ranks,
    *,
    served: Served | None = None,
) -> Stage2Trainer:
    """Scores the step that it goes on from first, where that has no score and should."""
    attempt, scores = recorder.attempt, recorder.gates("select")
    arguments = training_arguments(
        config,
        output_dir=attempt.run.checkpoints,
        evaluates=bool(corpus.val),
        eval_at_start=score_is_missing(config, recorder.resumed, scores),
    )
    reader.vlm.model.to(arguments.device)
    trainer = Stage2Trainer(
        parts=build_parts(attempt, config, reader, corpus.train, ranks=ranks, served=served),
        model=reader.vlm.model,
        args=arguments,
        train_dataset=corpus.train,
        eval_dataset=corpus.val or None,
        processing_class=reader.vlm.tokenizer,
    )
    trainer.remove_callback(PrinterCallback)  # events are written instead
    if served is not None:
        trainer.add_callback(FollowSteps(served.policy))
    return trainer


def build_parts(
    says: Says,
    config: Stage2Config,
    reader: PromptReader,
    train: Sequence[Record],
    *,
    ranks: Ranks,
    served: Served | None = None,
) -> Stage2Parts:
    """What the trainer is wired from; how rollouts are decoded is said once."""
    drawn = Drawn(train, config.rollouts_per_step(ranks.size), config.training.seed, ranks)
    make_room = (lambda: None) if served is None else served.lane.rest
    sampler = _said_sampler(says, config, reader, served)
    matching = config.custom.trainer_variant == "rollout_matching_sft"
    rollouts = RolloutStep(
        sampler,
        reader,
        reader.pieces,
        config.custom.extra.rollout_matching,
        _targets(config),
        None if matching else _desc_gate(says, config),
    )
    build = _matching if matching else _alternating
    return Stage2Parts(
        vlm=reader.vlm,
        window=build(config, reader, rollouts, drawn, make_room),
        rollouts=rollouts,
        evaluation=build_evaluation(config, reader, ranks, served),
        ranks=ranks,
    )


def _alternating(
    config: Stage2Config,
    reader: PromptReader,
    rollouts: RolloutStep,
    drawn: Drawn,
    make_room: Callable[[], None],
) -> Alternating:
    ab = config.ab
    return Alternating(
        Learner(
            _layouts(config, reader),
            reader.coord_ids_K,
            SoftContext(ab.n_softctx_iter, ab.softctx_grad_mode, ab.softctx_temperature),
            LossWeights(ab.bbox_smoothl1_weight, ab.bbox_ciou_weight, ab.coord_mass_weight),
        ),
        rollouts,
        drawn,
        b_ratio=ab.schedule.b_ratio,
        desc_weight=ab.desc_ce_weight,
        max_length=config.global_max_length,
        make_room=make_room,
        pipelined=ab.channel_b.enable_pipeline,
    )


def _matching(
    config: Stage2Config,
    reader: PromptReader,
    rollouts: RolloutStep,
    drawn: Drawn,
    make_room: Callable[[], None],
) -> Matching:
    coord = config.custom.coord_soft_ce_w1
    learner = MatchingLearner(_layouts(config, reader), reader.coord_ids_K, coord)
    return Matching(learner, rollouts, drawn, make_room)


def _targets(config: Stage2Config) -> Targets:
    if config.custom.trainer_variant == "rollout_matching_sft":
        return OneTarget(config.custom.extra.rollout_matching.desc_ce_weight)
    ab = config.ab
    structure = ab.channel_b.drop_invalid_struct_ce_multiplier
    return ABTargets(CEWeights(ab.desc_ce_weight, ab.desc_ce_weight_matched, structure))


def _layouts(config: Stage2Config, reader: PromptReader) -> Layouts:
    training, rollouts = config.training, config.custom.extra.rollout_matching
    early = config.stage2_ab is not None and config.stage2_ab.channel_b.enable_pipeline
    scope = rollouts.post_rollout_pack_scope
    plan = PackPlan.of(training, config.global_max_length, scope, early=early)
    return Layouts(reader.vlm, reader.pad_id, plan, training.per_device_train_batch_size)


def build_evaluation(
    config: Stage2Config, reader: PromptReader, ranks: Ranks, served: Served | None = None
) -> RolloutEval:
    """Greedy, whatever training rollouts do; the desc gate has no part in a score."""
    rollouts = config.custom.extra.rollout_matching.evaluated
    greedy = rollouts.model_copy(
        update={
            "decoding": DecodingConfig(),
            "decode_batch_size": config.eval_decode_batch_size,
        }
    )
    sampler = _sampler(greedy, reader, served, reads=FEW)
    return RolloutEval(
        sampler,
        reader,
        reader.pieces,
        rollouts,
        no_gate(),
        ranks,
        score=config.detection.score,
        by=config.best_by,
    )


def _said_sampler(
    says: Says, config: Stage2Config, reader: PromptReader, served: Served | None
) -> HFSampler | VLLMSampler:
    """Said once: how training rollouts are decoded."""
    sampler = _sampler(config.custom.extra.rollout_matching, reader, served)
    told = json.dumps(sampler.decoding(), sort_keys=True)
    says.note("DECODING", f"rollouts are decoded with {told}")
    return sampler


def _sampler(
    rollouts: RolloutMatchingConfig,
    reader: PromptReader,
    served: Served | None,
    reads: int | None = None,
) -> HFSampler | VLLMSampler:
    """`reads`: of a server's answers, those that the model reads again; None is all."""
    if served is None:
        return HFSampler(reader.vlm, reader.pieces, rollouts)
    return VLLMSampler(
        served.lane,
        reader,
        rollouts,
        limit=served.limit,
        reads=reads,
        version=served.version,
        facts=lambda: {"mode": rollouts.vllm.mode, **served.said()},
    )


def _desc_gate(says: Says, config: Stage2Config) -> DescGate:
    """Said once: what it was resolved to, or that it cannot be loaded."""
    settings = config.ab.channel_b.semantic_desc_gate
    gate = DescGate(**settings.model_dump())
    if gate.is_active:
        text = f"the semantic desc gate uses {json.dumps(gate.identity, sort_keys=True)}"
        says.note("DESC_GATE", text)
    elif settings.enabled:
        says.warn(
            "DESC_GATE_INACTIVE",
            f"the semantic desc gate is disabled: {settings.model_name_or_path} cannot be "
            "loaded here; every matched description is trained at its own weight",
        )
    return gate
