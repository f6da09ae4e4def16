"""Warm-up: supervised training before step 0, for a model that cannot write a box yet.

Cross-entropy on the ground truth with the targets of coord tokens softened to a Gaussian over
neighbouring bins (one bin off is nearly right), and SmoothL1 on the expected coordinate. Stops at
a rollout F1 on the validation records, not at a step count: structure is learnt abruptly. Knows
no channel.

Shapes: B rows, T positions, V vocabulary, S coord slots, K = 1000 bins.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from safetensors.torch import load_model, save_model
from torch import Tensor

from engine.contract.sources.records import Record
from engine.contract.stage2 import coords
from engine.contract.stage2.config import Stage2Config, WarmupConfig
from engine.contract.stage2.envelope import SEQUENCE_TOKENS, tokens_at_once
from engine.models.chat import ChatTemplate
from engine.models.precision import Precision, computing
from engine.models.qwen3_vl import VisionModel, forward
from engine.run.ranks import Ranks
from engine.run.session import Attempt
from engine.run.warmup import SFTSchedule, WarmupCache, WarmupError, teach
from engine.stage2.channel_a import build_segment, slot_places
from engine.stage2.corpus import Corpus
from engine.stage2.learn.layout import Layout, ModelInputs, padded
from engine.stage2.parts import build_evaluation
from engine.stage2.rollout.prompts import PromptReader
from engine.stage2.rollout.reading import begin
from engine.stage2.rollout_step import TrainingSequence
from engine.stage2.target.segments import Segment

_WEIGHTS = "weights.safetensors"
_RECIPE_VERSION = 3
"""Raised when this file changes what it produces, so that old cache entries no longer match."""
_LOADED = {"dtype", "attn_implementation", "max_pixels", "min_pixels"}
"""Settings of the model that change what it answers."""
_SCORED = {
    *("max_new_tokens", "repetition_penalty", "repeat_terminate", "candidate_top_k"),
    *("iou_gate", "fp_cost", "fn_cost"),
}
"""Settings of rollouts and matching that the F1 depends on at which it stops."""
_RAMP = 20
"""Steps over which the learning rate rises."""


@dataclass(frozen=True, slots=True)
class WarmupReport:
    """What the warm-up came to."""

    steps: int
    f1: float
    """On the validation records, at the end."""
    seconds: float
    cached: bool = False


class Warmup:
    """`(step) → loss`: one supervised update on a batch of records.

    Raises WarmupError for a loss or a gradient that is no number.
    """

    def __init__(
        self,
        reader: PromptReader,
        config: WarmupConfig,
        records: Sequence[Record],
        seed: int,
        *,
        most_tokens: int = SEQUENCE_TOKENS,
        precision: Precision = "fp32",
    ) -> None:
        """`most_tokens`: of one forward pass, unless a record alone has more."""
        self._most_tokens, self._precision = most_tokens, precision
        self._vlm = reader.vlm
        self._reader = reader
        self._config = config
        self._records = records
        self._order = random.Random(f"warmup:{seed}")
        self._optimizer = torch.optim.AdamW(reader.vlm.model.parameters(), lr=config.lr)

    def __call__(self, step: int) -> float:
        """The loss before the update."""
        for group in self._optimizer.param_groups:
            group["lr"] = self._config.lr * min(1.0, step / _RAMP)
        return self._update(self._order.choices(self._records, k=self._config.batch_size))

    def _update(self, records: Sequence[Record]) -> float:
        sequences = self._sequences(records)
        taught = Taught.of([one.segment for one in sequences])
        self._vlm.model.train()
        self._optimizer.zero_grad(set_to_none=True)
        found = sum(self._learn(part, taught) for part in self._parts(sequences))
        norm = torch.nn.utils.clip_grad_norm_(self._vlm.model.parameters(), 1.0)
        for what, value in (("loss", found), ("gradient's norm", float(norm))):
            if not math.isfinite(value):
                raise WarmupError(f"the warm-up's {what} is {value}; lower warmup.lr")
        self._optimizer.step()
        return found

    def _sequences(self, records: Sequence[Record]) -> list[TrainingSequence]:
        found = []
        prompts = [self._reader(record) for record in records]
        begin(prompts)
        for record, prompt in zip(records, prompts, strict=True):
            segment = build_segment(prompt.ids, record.objects, 1.0, self._reader.pieces)
            found.append(TrainingSequence(segment, ModelInputs(segment.ids, prompt.pictures)))
        return found

    def _parts(self, sequences: Sequence[TrainingSequence]) -> Iterator[list[TrainingSequence]]:
        """In their order, each as long as its padded rows stay within `most_tokens`."""
        part: list[TrainingSequence] = []
        for one in sequences:
            longest = max(len(other.segment) for other in (*part, one))
            if part and longest * (len(part) + 1) > self._most_tokens:
                yield part
                part = []
            part.append(one)
        yield part

    def _learn(self, part: Sequence[TrainingSequence], taught: Taught) -> float:
        """Add a part's gradients; its share of the batch's loss."""
        layout = padded([one.shown for one in part], self._vlm, self._reader.pad_id)
        with computing(self._precision, self._vlm.device):
            logits_BTV = forward(self._vlm.model, layout.inputs() | {"input_ids": layout.ids_BT})
        loss = self._loss(logits_BTV, [one.segment for one in part], layout, taught)
        loss.backward()  # type: ignore[no-untyped-call]
        return float(loss.detach())

    def _loss(
        self, logits_BTV: Tensor, segments: Sequence[Segment], layout: Layout, taught: Taught
    ) -> Tensor:
        text = _text_ce(logits_BTV, segments, layout)
        slots_S2 = slot_places(layout, segments)
        bins_S = torch.tensor(
            [k for segment in segments for slot in segment.slots for k in slot.box],
            device=logits_BTV.device,
        )
        logits_SV = logits_BTV[slots_S2[:, 0], slots_S2[:, 1] - 1].float()
        log_p_SK = logits_SV.log_softmax(-1)[:, self._reader.coord_ids_K]
        soft_SK = softened(bins_S, self._config.coord_sigma)
        coord_ce = -(soft_SK * log_p_SK).sum(-1)
        expected_S = log_p_SK.softmax(-1) @ _bins(log_p_SK)
        target_S = coords.decode_tensor(bins_S).to(expected_S)
        distance = F.smooth_l1_loss(expected_S, target_S, reduction="sum") / max(taught.slots, 1)
        token_ce = torch.cat([text, coord_ce]).sum() / taught.tokens
        return token_ce + self._config.bbox_smoothl1_weight * distance


class Taught(NamedTuple):
    """What a batch's two means are over."""

    tokens: int
    slots: int
    """Coord tokens among them."""

    @classmethod
    def of(cls, segments: Sequence[Segment]) -> Taught:
        """Of all sequences of a batch. What stands first in one is predicted by nothing."""
        text = sum(weight != 0 for one in segments for weight in one.ce_weights[1:])
        slots = sum(len(slot.box) for one in segments for slot in one.slots)
        return cls(text + slots, slots)


def softened(bins_S: Tensor, sigma: float) -> Tensor:
    """A Gaussian over the 1000 bins around each bin, [S, K]; rows add up to 1."""
    away_SK = torch.arange(coords.BIN_COUNT, device=bins_S.device)[None] - bins_S[:, None]
    return (-0.5 * (away_SK / sigma).square()).softmax(-1)


def _text_ce(logits_BTV: Tensor, segments: Sequence[Segment], layout: Layout) -> Tensor:
    """Cross-entropy of every token that is taught as text, one value a token."""
    found = []
    for part_TV, segment in zip(layout.split(logits_BTV), segments, strict=True):
        weights = torch.tensor(segment.ce_weights, device=part_TV.device)
        rows = weights[1:].nonzero().squeeze(-1)
        ids = torch.tensor(segment.ids, device=part_TV.device)[rows + 1]
        found.append(F.cross_entropy(part_TV[rows].float(), ids, reduction="none"))
    return torch.cat(found)


def _bins(like: Tensor) -> Tensor:
    return coords.decode_tensor(torch.arange(coords.BIN_COUNT, device=like.device)).to(like)


def recipe_hash(
    config: Stage2Config, model: str | None, train: Sequence[Record], val: Sequence[Record]
) -> str:
    """Names a warmed-up model: model, records, warm-up and seed; nothing that comes later.

    `model` says what stands at its path, with the date where its chat template writes one, and the
    records are those in use: whatever was written over is another recipe.
    """
    rollouts = config.custom.extra.rollout_matching
    recipe = {
        "version": _RECIPE_VERSION,
        "model": model,
        "loaded": config.model.model_dump(include=_LOADED, exclude_none=True),
        "warmup": config.warmup.model_dump() if config.warmup else None,
        "prompt": config.data.prompt,
        "seed": config.training.seed,
        "scored": rollouts.evaluated.model_dump(include=_SCORED),
        "records": [_content(train), _content(val)],
        **({"bf16": True} if _precision(config) == "bf16" else {}),
    }
    return hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()[:20]


def _precision(config: Stage2Config) -> Precision:
    """As the run computes."""
    return "bf16" if config.training.passed_on.get("bf16") else "fp32"


def _content(records: Sequence[Record]) -> str:
    """Everything that is asked and taught; of a picture not its bytes: there are too many."""
    found = hashlib.sha256()
    for record in records:
        pictures = [(str(path), path.stat()) for path in record.images]
        shown = [[path, known.st_size, known.st_mtime_ns] for path, known in pictures]
        objects = [[one.desc, one.box] for one in record.objects]
        line = [shown, objects, record.size, list(record.messages)]
        found.update(json.dumps(line, sort_keys=True).encode() + b"\n")
    return found.hexdigest()


def warm_up(
    attempt: Attempt, config: Stage2Config, reader: PromptReader, corpus: Corpus, ranks: Ranks
) -> dict[str, Any]:
    """Teach the model that was loaded, or give it what an equal recipe came to.

    What it came to, as the result has it. Raises WarmupError and Aborted.
    """
    settings = config.warmup
    assert settings is not None
    evaluation = build_evaluation(config, reader, Ranks())

    def learn() -> dict[str, Any]:
        began = time.monotonic()
        steps, score = teach(
            SFTSchedule(
                name="warmup",
                setting="warmup.target_f1",
                series=("warmup/loss", "warmup/heldout"),
                target=settings.target_f1,
                max_steps=settings.max_steps,
                eval_every=settings.eval_every,
            ),
            Warmup(
                reader,
                settings,
                corpus.train,
                config.training.seed,
                most_tokens=tokens_at_once(config),
                precision=_precision(config),
            ),
            evaluate=lambda: evaluation(corpus.val).f1,
            listen=lambda step, series, value: attempt.metric(step, {series: value}),
        )
        return asdict(WarmupReport(steps, score, round(time.monotonic() - began, 3)))

    with attempt.warming_up():
        cache = warmup_cache(attempt, config, reader.vlm, corpus)
        report = ranks.first_alone(lambda: cache.kept_or(learn))
    how = "taken from the cache" if report["cached"] else f"done in {report['seconds']:.0f} s"
    text = f"warm-up {how}: {report['steps']} steps, held-out F1 {report['f1']:.3f}"
    attempt.note("WARMUP", text)
    return report


def warmup_cache(
    attempt: Attempt, config: Stage2Config, vlm: VisionModel, corpus: Corpus
) -> WarmupCache:
    """Where what this recipe's warm-up came to is kept."""
    model = attempt.content(config.model.path)
    probe = ChatTemplate(vlm.tokenizer, clock=attempt.now).dated_probe
    name = recipe_hash(config, f"{model}{probe}" if probe else model, corpus.train, corpus.val)
    return WarmupCache(
        Path(attempt.job.cache_dir) / f"stage2-warmup-{name}",
        save=lambda folder: save_model(vlm.model, str(folder / _WEIGHTS)),
        load=lambda folder: load_model(vlm.model, str(folder / _WEIGHTS)),
        warn=attempt.warn,
    )
