"""What the model that trains makes of an answer, on its pictures: one plain forward pass.

Shapes: T answer tokens, V vocabulary, L tokens of the whole sequence.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.models.qwen3_vl import forward
from engine.stage2.learn.layout import ModelInputs, padded
from engine.stage2.rollout.prompts import Prompt, PromptReader


@torch.inference_mode()
def answer_logits(reader: PromptReader, prompt: Prompt, ids: Sequence[int]) -> Tensor:
    """[T, V] in fp32: row t is what predicts `ids[t]`. The prompt's own positions are not kept."""
    vlm = reader.vlm
    shown = ModelInputs((*prompt.ids, *ids), prompt.pictures)
    layout = padded([shown], vlm, reader.pad_id)
    was_training = vlm.model.training
    vlm.model.eval()
    try:
        logits_LV = forward(vlm.model, layout.inputs() | {"input_ids": layout.ids_BT})[0]
        return logits_LV[len(prompt.ids) - 1 : -1].float()
    finally:
        vlm.model.train(was_training)
