"""Channel-A on a real tiny Qwen3-VL: soft contexts, gradients, and what reaches the model."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.contract.sources.records import Record
from engine.models.qwen3_vl import FORWARD_KEYS, ModelError, VisionModel, forward
from engine.stage2.channel_a import (
    SoftContext,
    expected_embeddings,
    run,
    slot_places,
    with_slots,
)
from engine.stage2.learn.layout import Layout, ModelInputs, padded
from engine.stage2.learn.losses import geometry_loss, slot_tensors
from engine.stage2.learn.objective import LossWeights, missing_coord_mass, objective
from engine.stage2.parse.pieces import TokenPieces
from engine.stage2.rollout.prompts import Pictures, PromptReader
from engine.stage2.target.segments import Segment
from tests.engine.stage2.conftest import taught

PLAIN = SoftContext(iterations=1, grad_mode="unroll", temperature=1.0)
TWICE = SoftContext(iterations=2, grad_mode="unroll", temperature=1.0)


class Spy(torch.nn.Module):
    """Stands in front of the model and keeps what it was called with."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.heard = model
        self.calls: list[dict[str, Any]] = []

    def forward(self, **given: Any) -> Any:
        self.calls.append(given)
        return self.heard(**given)

    def get_input_embeddings(self) -> Any:
        return self.heard.get_input_embeddings()  # type: ignore[operator]


def spied(vlm: VisionModel) -> tuple[VisionModel, Spy]:
    """The same model, listened to."""
    spy = Spy(vlm.model)
    return VisionModel(spy, vlm.tokenizer, vlm.image_processor), spy


def batch(
    records: list[Record], reader: PromptReader, vlm: VisionModel
) -> tuple[list[Segment], Layout]:
    made = taught(records, reader)
    return [s for s, _ in made], padded([x for _, x in made], vlm, pad_id=0)


def geometry(logits_BTV: Tensor, layout: Layout, segments: list[Segment], ids: Tensor) -> Tensor:
    """SmoothL1 of every box, summed; CIoU's gradient is the paper's and not the exact one."""
    total = logits_BTV.new_zeros(())
    for part, segment in zip(layout.split(logits_BTV), segments, strict=True):
        positions, boxes = slot_tensors([(s.positions, s.box) for s in segment.slots])
        loss = geometry_loss(part, positions, boxes, ids)
        total = total + loss.smoothl1
    return total


@pytest.mark.requirement("AB-09")
@pytest.mark.parametrize("iterations", [1, 2, 3])
def test_n_iterations_are_n_full_forwards(
    iterations: int,
    records: list[Record],
    reader: PromptReader,
    vlm: VisionModel,
    coord_ids: Tensor,
) -> None:
    """Each forward reads the whole sequence; one iteration is plain teacher forcing."""
    segments, layout = batch(records[:2], reader, vlm)
    heard, spy = spied(vlm)

    first, last = run(
        layout,
        slot_places(layout, segments),
        heard,
        coord_ids,
        SoftContext(iterations, "unroll", 1.0),
    )

    assert len(spy.calls) == iterations
    plain = forward(vlm.model, layout.inputs() | {"input_ids": layout.ids_BT})
    assert torch.equal(first, plain)
    assert torch.equal(last, plain) == (iterations == 1)


@pytest.mark.requirement("AB-09")
def test_a_slots_soft_context_comes_from_the_logits_before_it(
    records: list[Record], reader: PromptReader, vlm: VisionModel, coord_ids: Tensor
) -> None:
    """The expected embedding at p is the softmax over the coord bins at p - 1, times the table."""
    segments, layout = batch(records[:1], reader, vlm)
    slots = slot_places(layout, segments)
    logits = forward(vlm.model, layout.inputs() | {"input_ids": layout.ids_BT})

    found = expected_embeddings(logits, slots, vlm, coord_ids, temperature=0.5)

    table = vlm.embed(coord_ids)
    for row, position in enumerate(slots[:, 1].tolist()):
        p = (logits[0, position - 1, coord_ids] / 0.5).softmax(-1)
        assert torch.allclose(found[row], p @ table, atol=1e-6)


@pytest.mark.requirement("AB-09")
def test_unrolled_gradients_are_those_of_finite_differences(
    records: list[Record], reader: PromptReader, vlm: VisionModel, coord_ids: Tensor
) -> None:
    """The loss of the last forward moves with a weight as autograd says, through both forwards.

    The part that runs through the expected embeddings is shown to matter: detached, the
    derivative is another one.
    """
    vlm.model.double()
    segments, layout = batch(records[:1], reader, vlm)
    layout = as_double(layout)
    slots = slot_places(layout, segments)
    weight = vlm.model.get_input_embeddings().weight  # type: ignore[operator]

    def loss(how: SoftContext) -> Tensor:
        _, last = run(layout, slots, vlm, coord_ids, how)
        return geometry(last, layout, segments, coord_ids)

    (unrolled,) = torch.autograd.grad(loss(TWICE), weight)
    (detached,) = torch.autograd.grad(loss(SoftContext(2, "em_detach", 1.0)), weight)

    # the direction in which both differ most; norms run in float32 inside, so steps are not tiny
    direction = (unrolled - detached) / (unrolled - detached).norm()
    numeric = central_difference(lambda: float(loss(TWICE).detach()), weight, direction)
    assert float((unrolled * direction).sum()) == pytest.approx(numeric, rel=1e-3)
    assert abs(float((detached * direction).sum()) - numeric) > 0.1 * abs(numeric)


def as_double(layout: Layout) -> Layout:
    pictures = Pictures(layout.pictures.pixel_values.double(), layout.pictures.image_grid_thw)
    return Layout(
        layout.ids_BT, layout.position_ids, layout.attention_mask, pictures, layout.places
    )


def central_difference(
    value: Callable[[], float], weight: Tensor, direction: Tensor, step: float = 2e-4
) -> float:
    with torch.no_grad():
        weight += step * direction
        above = value()
        weight -= 2 * step * direction
        below = value()
        weight += step * direction
    return (above - below) / (2 * step)


@pytest.mark.requirement("AB-10")
def test_only_coord_rows_of_the_embeddings_change(
    records: list[Record], reader: PromptReader, vlm: VisionModel, coord_ids: Tensor
) -> None:
    """Every other row, picture placeholders above all, is the same bit for bit each iteration."""
    segments, layout = batch(records[:3], reader, vlm)
    slots = slot_places(layout, segments)
    heard, spy = spied(vlm)

    run(layout, slots, heard, coord_ids, SoftContext(3, "unroll", 1.0))

    base = vlm.embed(layout.ids_BT)
    is_slot = torch.zeros_like(layout.ids_BT, dtype=torch.bool)
    is_slot[slots[:, 0], slots[:, 1]] = True
    assert int((layout.ids_BT == vlm.image_token_id).sum()) == 3 * 16
    for call in spy.calls:
        assert torch.equal(call["inputs_embeds"][~is_slot], base[~is_slot])
    assert not torch.equal(spy.calls[1]["inputs_embeds"][is_slot], base[is_slot])


@pytest.mark.requirement("AB-10")
def test_each_iteration_starts_from_a_fresh_base(
    records: list[Record], reader: PromptReader, vlm: VisionModel, coord_ids: Tensor
) -> None:
    """The embeddings of the ground truth are made anew by the module, hooks included."""
    segments, layout = batch(records[:1], reader, vlm)
    hooked: list[int] = []
    module: Any = vlm.model.get_input_embeddings()  # type: ignore[operator]
    handle = module.register_forward_hook(lambda *args: hooked.append(args[1][0].numel()))

    run(layout, slot_places(layout, segments), vlm, coord_ids, TWICE)

    handle.remove()
    # twice the sequence, once the table of coord tokens (a model's own look-ups are single ids)
    assert [n for n in hooked if n > 1] == [layout.ids_BT.numel(), 1000, layout.ids_BT.numel()]


@pytest.mark.requirement("AB-10")
@pytest.mark.requirement("AB-03")
def test_a_forward_passes_embeddings_alone_without_cache_and_with_positions(
    records: list[Record], reader: PromptReader, vlm: VisionModel, coord_ids: Tensor
) -> None:
    """Never ids beside embeddings, no past, and nothing the model does not know."""
    segments, layout = batch(records[:2], reader, vlm)
    heard, spy = spied(vlm)

    run(layout, slot_places(layout, segments), heard, coord_ids, TWICE)

    for call in spy.calls:
        assert set(call) <= FORWARD_KEYS | {"use_cache"}
        assert "input_ids" not in call
        assert call["use_cache"] is False
        assert call["position_ids"].shape[0] == 3


@pytest.mark.requirement("AB-03")
def test_helper_keys_of_a_harness_never_reach_the_model(
    records: list[Record], reader: PromptReader, vlm: VisionModel
) -> None:
    """labels, loss_scale and the like are dropped at the one door to the model."""
    _, layout = batch(records[:1], reader, vlm)
    heard, spy = spied(vlm)
    helpers = {
        "labels": layout.ids_BT,
        "compute_loss_func": len,
        "loss_scale": 1.0,
        "text_position_ids": layout.ids_BT,
        "channel": "A",
        "past_key_values": object(),
        "use_cache": True,
    }

    forward(heard.model, layout.inputs() | {"input_ids": layout.ids_BT} | helpers)

    (call,) = spy.calls
    assert set(call) <= FORWARD_KEYS | {"use_cache"}
    assert call["use_cache"] is False


@pytest.mark.requirement("AB-04")
def test_a_knob_that_slices_logits_is_refused(
    records: list[Record], reader: PromptReader, vlm: VisionModel
) -> None:
    """The loss reads every position."""
    _, layout = batch(records[:1], reader, vlm)
    given = layout.inputs() | {"input_ids": layout.ids_BT}

    logits = forward(vlm.model, given | {"logits_to_keep": 0})

    assert logits.shape[1] == layout.ids_BT.shape[1]
    with pytest.raises(ModelError, match="logits_to_keep 1 would drop positions"):
        forward(vlm.model, given | {"logits_to_keep": 1})


@pytest.mark.requirement("AB-04")
def test_a_model_that_returns_fewer_logits_than_it_read_is_refused(
    records: list[Record], reader: PromptReader, vlm: VisionModel
) -> None:
    """A harness may slice behind our back; the length of what comes back is looked at."""
    _, layout = batch(records[:1], reader, vlm)

    def slicing(**given: Any) -> Any:
        return vlm.model(**given, logits_to_keep=1)

    with pytest.raises(ModelError, match="logits of 1 of"):
        forward(slicing, layout.inputs() | {"input_ids": layout.ids_BT})  # type: ignore[arg-type]


@pytest.mark.requirement("AB-10")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"position_ids": None}, "needs position_ids"),
        ({"inputs_embeds": torch.zeros(1, 2, 3)}, "exactly one of"),
        ({"input_ids": None}, "exactly one of"),
    ],
)
def test_a_forward_without_positions_or_with_both_inputs_is_refused(
    change: dict[str, Any],
    message: str,
    records: list[Record],
    reader: PromptReader,
    vlm: VisionModel,
) -> None:
    """Embeddings without positions run, and are silently read as plain text."""
    _, layout = batch(records[:1], reader, vlm)

    with pytest.raises(ModelError, match=message):
        forward(vlm.model, layout.inputs() | {"input_ids": layout.ids_BT} | change)


@pytest.mark.requirement("AB-14")
def test_channel_a_weighs_text_by_ce_and_never_a_coord_token(
    records: list[Record], reader: PromptReader, pieces: TokenPieces
) -> None:
    """Structure weighs 1, descriptions desc_ce_weight, coord tokens and the prompt nothing."""
    ((segment, _),) = taught(records[:1], reader, desc_weight=0.25)
    prompt = reader(records[0])

    spelled = [pieces.of(i).decode() for i in segment.ids]
    assert set(segment.ce_weights[: len(prompt.ids)]) == {0.0}
    for text, weight, token in zip(spelled, segment.ce_weights, segment.ids, strict=True):
        if token in pieces.coord_bins:
            assert weight == 0.0
        if text in {"object", " box"}:
            assert weight == (1.0 if text == "object" else 0.25)
    assert segment.ce_weights[-1] == 1.0
    assert spelled[-1] == "<|im_end|>"


def test_every_box_of_the_ground_truth_has_its_four_slots(
    records: list[Record], reader: PromptReader, pieces: TokenPieces
) -> None:
    """The tokens at a slot's positions spell the object's own box."""
    for record, (segment, _) in zip(records, taught(records, reader), strict=True):
        assert len(segment.slots) == len(record.objects)
        for slot, gt in zip(segment.slots, record.objects, strict=True):
            assert tuple(pieces.coord_bins[segment.ids[p]] for p in slot.positions) == gt.box


def test_expected_rows_keep_gradients_to_distribution_and_table(
    records: list[Record], reader: PromptReader, vlm: VisionModel, coord_ids: Tensor
) -> None:
    """The scatter is out of place: base, distribution and coord table all learn."""
    segments, layout = batch(records[:1], reader, vlm)
    slots = slot_places(layout, segments)
    logits = forward(vlm.model, layout.inputs() | {"input_ids": layout.ids_BT}).detach()
    logits.requires_grad_()

    soft = expected_embeddings(logits, slots, vlm, coord_ids, 1.0)
    with_slots(vlm.embed(layout.ids_BT), slots, soft).square().sum().backward()  # type: ignore[no-untyped-call]

    assert logits.grad is not None
    assert bool(logits.grad[0, slots[:, 1] - 1].any())
    table = vlm.model.get_input_embeddings().weight.grad  # type: ignore[operator]
    assert bool(table[coord_ids].any())


def test_shown_sequences_keep_their_own_pictures(
    records: list[Record], reader: PromptReader, vlm: VisionModel
) -> None:
    """A padded batch gives each sequence the logits that it has alone."""
    made = taught(records[:3], reader)
    shown = [x for _, x in made]
    together = padded(shown, vlm, pad_id=0)

    parts = together.split(forward(vlm.model, together.inputs() | {"input_ids": together.ids_BT}))

    for one, part in zip(shown, parts, strict=True):
        assert torch.allclose(part, _alone(one, vlm), atol=1e-5)


def _alone(shown: ModelInputs, vlm: VisionModel) -> Tensor:
    layout = padded([shown], vlm, pad_id=0)
    return forward(vlm.model, layout.inputs() | {"input_ids": layout.ids_BT})[0]


@pytest.mark.requirement("AB-14")
def test_text_is_learnt_from_the_first_forward_and_boxes_from_the_last(
    records: list[Record], reader: PromptReader, vlm: VisionModel, coord_ids: Tensor
) -> None:
    """Each term moves with its own logits and with no others; coord tokens have no CE at all."""
    segments, layout = batch(records[:1], reader, vlm)
    first = torch.randn(1, layout.ids_BT.shape[1], 1334, requires_grad=True)
    last = torch.randn(1, layout.ids_BT.shape[1], 1334, requires_grad=True)
    text_only, boxes_only = LossWeights(0.0, 0.0), LossWeights(1.0, 1.0)

    loss, terms = objective(layout, segments, (first, last), boxes_only, coord_ids)
    loss.backward()  # type: ignore[no-untyped-call]

    assert first.grad is not None
    assert last.grad is not None
    slots = slot_places(layout, segments)[:, 1]
    read = {int(row) for row in first.grad[0].abs().sum(-1).nonzero()}
    assert read.isdisjoint((slots - 1).tolist())
    assert {int(row) for row in last.grad[0].abs().sum(-1).nonzero()} == set((slots - 1).tolist())
    assert float(loss.detach()) == pytest.approx(terms.total(boxes_only), rel=1e-5)
    alone, _ = objective(layout, segments, (first, last), text_only, coord_ids)
    assert float(alone.detach()) == pytest.approx(terms.ce, rel=1e-5)


def test_the_coord_mass_term_asks_for_some_coord_token_and_for_no_particular_one() -> None:
    """-log of the probability on coord tokens: log 2 at one half, and no wish among them."""
    logits = torch.zeros(3, 4, requires_grad=True)
    positions, coords = torch.tensor([[1, 1, 2, 2]]), torch.tensor([2, 3])

    mass = missing_coord_mass(logits, positions, coords)
    mass.backward()  # type: ignore[no-untyped-call]

    assert float(mass.detach()) == pytest.approx(math.log(2))
    assert logits.grad is not None
    assert logits.grad[0].tolist() == pytest.approx([0.125, 0.125, -0.125, -0.125])
    assert logits.grad[2].tolist() == [0.0] * 4
    broken = torch.full((3, 4), float("nan"))
    assert float(missing_coord_mass(broken, positions, coords)) == 0.0
    none = missing_coord_mass(logits, torch.empty(0, 4, dtype=torch.long), coords)
    assert float(none.detach()) == 0.0
