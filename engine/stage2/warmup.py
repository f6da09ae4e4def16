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
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_model, save_model
from torch import Tensor

from engine.contract.sources.records import Record
from engine.contract.stage2 import coords
from engine.contract.stage2.config import Stage2Config, WarmupConfig
from engine.models.qwen3_vl import VisionModel, forward
from engine.run import checkpoint
from engine.run.checkpoint import Checkpoint, Warn
from engine.run.stop import Declined, check_abort
from engine.stage2.channel_a import build_segment, slot_places
from engine.stage2.learn.layout import Layout, Shown, padded
from engine.stage2.rollout.prompts import PromptReader
from engine.stage2.target.segments import Segment

_WEIGHTS = "weights.safetensors"
_RECIPE_VERSION = 2
"""Raised when this file changes what it produces, so that old cache entries no longer match."""
_SCORED = {
    *("max_new_tokens", "repetition_penalty", "repeat_terminate", "candidate_top_k"),
    *("iou_gate", "fp_cost", "fn_cost"),
}
"""Settings of rollouts and matching that the F1 depends on at which it stops."""
_RAMP = 20
"""Steps over which the learning rate rises."""


class WarmupError(Declined):
    """The warm-up did not get the model to where AB training can begin."""

    def __init__(self, message: str) -> None:
        super().__init__("WARMUP_SHORT", message)


@dataclass(frozen=True, slots=True)
class WarmupReport:
    """What the warm-up came to."""

    steps: int
    f1: float
    """On the validation records, at the end."""
    seconds: float
    cached: bool = False


@dataclass(frozen=True)
class Warmup:
    """The parts; `evaluate` gives the rollout F1 on the validation records."""

    vlm: VisionModel
    reader: PromptReader
    config: WarmupConfig
    coord_ids_K: Tensor  # noqa: N815 - shape suffix
    pad_id: int
    evaluate: Callable[[], float]
    on_step: Callable[[int, float], None]
    on_score: Callable[[int, float], None]

    def __call__(self, records: Sequence[Record], seed: int) -> WarmupReport:
        """Train until the target. Raises WarmupError when `max_steps` do not reach it, and for a
        loss or a gradient that is no number.
        """
        began = time.monotonic()
        optimizer = torch.optim.AdamW(self.vlm.model.parameters(), lr=self.config.lr)
        order = random.Random(f"warmup:{seed}")
        score = 0.0
        for step in range(1, self.config.max_steps + 1):
            check_abort()
            for group in optimizer.param_groups:
                group["lr"] = self.config.lr * min(1.0, step / _RAMP)
            batch = order.choices(records, k=self.config.batch_size)
            self.on_step(step, self._update(batch, optimizer))
            if step % self.config.eval_every == 0:
                score = self.evaluate()
                self.on_score(step, score)
                if score >= self.config.target_f1:
                    return WarmupReport(step, score, round(time.monotonic() - began, 3))
        raise WarmupError(
            f"the warm-up reached F1 {score:.2f} in {self.config.max_steps} steps, short of "
            f"warmup.target_f1 {self.config.target_f1}; raise max_steps, or lower the target"
        )

    def _update(self, records: Sequence[Record], optimizer: torch.optim.Optimizer) -> float:
        segments, layout = self._batch(records)
        self.vlm.model.train()
        logits_BTV = forward(self.vlm.model, layout.inputs() | {"input_ids": layout.ids_BT})
        loss = self._loss(logits_BTV, segments, layout)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(self.vlm.model.parameters(), 1.0)
        found = float(loss.detach())
        for what, value in (("loss", found), ("gradient's norm", float(norm))):
            if not math.isfinite(value):
                raise WarmupError(f"the warm-up's {what} is {value}; lower warmup.lr")
        optimizer.step()
        return found

    def _batch(self, records: Sequence[Record]) -> tuple[list[Segment], Layout]:
        segments, shown = [], []
        for record in records:
            prompt = self.reader(record)
            segment = build_segment(prompt.ids, record.objects, 1.0, self.reader.pieces)
            segments.append(segment)
            shown.append(Shown(segment.ids, prompt.pictures))
        return segments, padded(shown, self.vlm, self.pad_id)

    def _loss(self, logits_BTV: Tensor, segments: Sequence[Segment], layout: Layout) -> Tensor:
        text = _text_ce(logits_BTV, segments, layout)
        slots_S2 = slot_places(layout, segments)
        bins_S = torch.tensor(
            [k for segment in segments for slot in segment.slots for k in slot.box],
            device=logits_BTV.device,
        )
        logits_SV = logits_BTV[slots_S2[:, 0], slots_S2[:, 1] - 1].float()
        log_p_SK = logits_SV.log_softmax(-1)[:, self.coord_ids_K]
        soft_SK = softened(bins_S, self.config.coord_sigma)
        coord_ce = -(soft_SK * log_p_SK).sum(-1)
        expected_S = log_p_SK.softmax(-1) @ _bins(log_p_SK)
        distance = F.smooth_l1_loss(expected_S, coords.decode_tensor(bins_S).to(expected_S))
        token_ce = torch.cat([text, coord_ce]).mean()
        return token_ce + self.config.bbox_smoothl1_weight * distance


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

    `model` says what stands at its path, and the records are those in use: whatever was written
    over is another recipe.
    """
    rollouts = config.custom.extra.rollout_matching
    recipe = {
        "version": _RECIPE_VERSION,
        "model": model,
        "loaded": config.model.model_dump(include={"dtype", "attn_implementation"}),
        "warmup": config.warmup.model_dump() if config.warmup else None,
        "prompt": config.data.prompt,
        "seed": config.training.seed,
        "scored": rollouts.model_dump(include=_SCORED),
        "records": [_content(train), _content(val)],
    }
    return hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()[:20]


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


def load_kept(folder: Path, vlm: VisionModel, warn: Warn) -> Checkpoint | None:
    """Give the model what an equal recipe came to; None, and it stays as it is, without a whole
    entry.
    """
    found = checkpoint.verified(folder, warn) if folder.is_dir() else None
    if found is not None:
        load_model(vlm.model, str(folder / _WEIGHTS))
    return found


def cached(
    folder: Path, vlm: VisionModel, train: Callable[[], WarmupReport], warn: Warn
) -> WarmupReport:
    """Load what an equal recipe came to, else train and keep it."""
    found = load_kept(folder, vlm, warn)
    if found is not None:
        return WarmupReport(**{**found.state, "cached": True})
    report = train()
    temporary = folder.with_name(f".{folder.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    save_model(vlm.model, str(temporary / _WEIGHTS))
    checkpoint.seal(temporary, _plain(report))
    shutil.rmtree(folder, ignore_errors=True)
    temporary.rename(folder)
    return report


def _plain(report: WarmupReport) -> dict[str, Any]:
    return asdict(report)
