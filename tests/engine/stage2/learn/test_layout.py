"""Packed forwards of a real tiny Qwen3-VL: equal to unpacked ones, and closed to each other."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.contract.sources.records import Record
from engine.models.qwen3_vl import ModelError, VisionModel, forward, load
from engine.stage2.channel_a import SoftContext, run, slot_places
from engine.stage2.learn.layout import Layout, ModelInputs, packed, padded, require_packing
from engine.stage2.rollout.prompts import PromptReader
from tests.engine.stage2.conftest import taught


def logits_of(layout: Layout, vlm: VisionModel) -> list[Tensor]:
    with torch.inference_mode():
        return layout.split(forward(vlm.model, layout.inputs() | {"input_ids": layout.ids_BT}))


def shown(records: list[Record], reader: PromptReader) -> list[ModelInputs]:
    return [x for _, x in taught(records, reader)]


@pytest.mark.requirement("AB-05")
def test_a_packed_forward_equals_the_unpacked_one(
    records: list[Record], reader: PromptReader, vlm: VisionModel
) -> None:
    """Four rows of positions, no mask, no cache: each segment's logits are its own, ≤ 1e-5."""
    segments = shown(records[:4], reader)
    layout = packed(segments, vlm)

    together = logits_of(layout, vlm)

    assert layout.position_ids.shape == (4, 1, sum(len(s.ids) for s in segments))
    assert layout.attention_mask is None
    for segment, part in zip(segments, together, strict=True):
        (alone,) = logits_of(padded([segment], vlm, 0), vlm)
        assert float((part - alone).abs().max()) <= 1e-5


@pytest.mark.requirement("AB-05")
@pytest.mark.parametrize("changed", [0, 1, 2])
def test_changing_one_segment_changes_no_logit_of_another(
    changed: int, records: list[Record], reader: PromptReader, vlm: VisionModel
) -> None:
    """Neither its tokens nor its picture can be seen from outside, bit for bit."""
    segments = shown(records[:3], reader)
    one = segments[changed]
    other_ids = (*one.ids[:-4], *reversed(one.ids[-4:]))
    other_pictures = dataclasses.replace(
        one.pictures, pixel_values=one.pictures.pixel_values.flip(0)
    )
    mutated = [*segments]
    mutated[changed] = ModelInputs(other_ids, other_pictures)

    before, after = (logits_of(packed(pack, vlm), vlm) for pack in (segments, mutated))

    for index, (x, y) in enumerate(zip(before, after, strict=True)):
        assert torch.equal(x, y) == (index != changed)


@pytest.mark.requirement("AB-05")
def test_both_forwards_of_channel_a_carry_four_rows_in_a_pack(
    records: list[Record], reader: PromptReader, vlm: VisionModel, coord_ids: Tensor
) -> None:
    """The soft context of a packed batch is that of each segment alone."""
    made = taught(records[:3], reader)
    seen: list[Any] = []

    def listen(_module: Any, _args: Any, given: dict[str, Any]) -> None:
        seen.append(given["position_ids"].shape[0])

    vlm.model.register_forward_pre_hook(listen, with_kwargs=True)
    how = SoftContext(2, "unroll", 1.0)
    layout = packed([x for _, x in made], vlm)
    slots = slot_places(layout, [s for s, _ in made])
    with torch.inference_mode():
        _, last = run(layout, slots, vlm, coord_ids, how)

    assert seen[:2] == [4, 4]
    for (segment, one), part in zip(made, layout.split(last), strict=True):
        alone = padded([one], vlm, 0)
        with torch.inference_mode():
            _, expected = run(alone, slot_places(alone, [segment]), vlm, coord_ids, how)
        assert float((part - expected[0]).abs().max()) <= 1e-5


@pytest.mark.requirement("AB-05")
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_packing_is_accepted_where_attention_keeps_segments_apart(
    attention: str, vl_folder: Any, records: list[Record], reader: PromptReader
) -> None:
    """The probe runs the loaded model, not a list of names."""
    vlm = load(str(vl_folder), dtype="float32", attn_implementation=attention)

    require_packing(vlm, shown(records[:1], reader)[0])


@pytest.mark.requirement("AB-05")
def test_packing_is_refused_where_segments_see_each_other(
    records: list[Record], reader: PromptReader, vlm: VisionModel
) -> None:
    """A model that loses the text row of the positions joins neighbours: refused by name."""
    trunk: Any = vlm.core.language_model
    trunk.register_forward_pre_hook(_three_rows, with_kwargs=True)

    with pytest.raises(ModelError, match=r"training\.packing: .* see each other"):
        require_packing(vlm, shown(records[:1], reader)[0])


def _three_rows(_module: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    return args, kwargs | {"position_ids": kwargs["position_ids"][-3:]}
