"""Losses against tables made by hand, against their papers in fp64, and against TRL."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from torch import Tensor

from engine.contract.rl.objective import LossName, ObjectiveConfig
from engine.models import tiny
from engine.rl.loss_terms import Tokens, combined_loss, k1, k2, k3, policy_loss
from engine.rl.minibatches import Denominators
from engine.rl.scoring import Batch, score
from engine.sampling.base import Rollout
from tests.engine.rl import paper_losses as papers
from tools import trl_agreement

HERE = Path(__file__).parent


def loss_of(
    objective: ObjectiveConfig, tokens: Tokens, reference: Tensor, **settings: Any
) -> tuple[Tensor, Any]:
    """The loss of a batch that is the whole update."""
    rows = len(tokens.mask_BT)
    counted = Denominators(rows, int(tokens.mask_BT.sum()), settings.pop("max_tokens", 16))
    return combined_loss(
        objective,
        tokens,
        reference_BT=reference,
        counts_B=torch.ones(rows, dtype=tokens.mask_BT.dtype),
        denominator=counted.of(objective.aggregation_used),
        **({"kl_coef": 0.0} | settings),
    )


def test_every_loss_of_the_config_is_the_function_of_its_file() -> None:
    """A new loss is one file and its name in the config."""
    losses = {name: policy_loss(name) for name in get_args(LossName)}

    assert [loss.__name__ for loss in losses.values()] == list(losses)


# --- by hand ---


@pytest.mark.parametrize(
    ("logp", "ref", "one", "two", "three"),
    [
        (-1.0, -1.0, 0.0, 0.0, 0.0),
        (-1.0, -2.0, 1.0, 0.5, math.exp(-1)),  # Δ = 1
        (-2.0, -1.0, -1.0, 0.5, math.exp(1) - 2),  # Δ = −1
    ],
)
def test_kl_estimators_follow_their_formulas(
    logp: float, ref: float, one: float, two: float, three: float
) -> None:
    """Δ, Δ²/2 and exp(−Δ) + Δ − 1 with Δ = log π − log π_ref."""
    a, b = torch.tensor(logp), torch.tensor(ref)

    found = [k1(a, b).item(), k2(a, b).item(), k3(a, b).item()]

    assert found == pytest.approx([one, two, three], abs=1e-6)


LN2 = math.log(2)
HAND = Tokens(
    # Two rollouts of two and one tokens. Ratios: 2 and 1/2 in the first, 2 in the second.
    logprobs_BT=torch.tensor([[-1.0, -2.0], [-1.0, 0.0]]),
    old_BT=torch.tensor([[-1.0 - LN2, -2.0 + LN2], [-1.0 - LN2, 0.0]]),
    advantages_B=torch.tensor([1.0, -1.0]),
    mask_BT=torch.tensor([[1.0, 1.0], [1.0, 0.0]]),
)


@pytest.mark.parametrize(
    ("loss", "expected", "clipped"),
    [
        # −A log π: row 0 is 1 and 2, row 1 is −1. Means 1.5 and −1, then their mean.
        ("reinforce_kl", (1.5 - 1) / 2, 0),
        # Sums 3 and −1, then their mean.
        ("rloo", (3 - 1) / 2, 0),
        # A = 1: r = 2 is cut to 1.2, r = 0.5 stays. A = −1: r = 2 stays, as the worse one.
        ("grpo", (-(1.2 + 0.5) / 2 + 2) / 2, 1),
        # The same terms summed, by 2 rollouts × 16 tokens.
        ("dr_grpo", (-1.2 - 0.5 + 2) / 32, 1),
        # Cut to 1.28, by 3 tokens.
        ("dapo", (-1.28 - 0.5 + 2) / 3, 1),
        # Ratios of the rollouts: exp((ln 2 − ln 2)/2) = 1 and 2; nothing helps by being cut.
        ("gspo", (-1 + 2) / 2, 0),
        # −r·A·log π with r at most 5: 2·1 + ½·2 − 2·1, by 3 tokens.
        ("cispo", (2 + 1 - 2) / 3, 0),
    ],
)
def test_each_loss_equals_its_table_made_by_hand(loss: Any, expected: float, clipped: int) -> None:
    """Ratios of 2 and ½, advantages of ±1, completions of one and two tokens."""
    found, term = loss_of(ObjectiveConfig(loss=loss), HAND, HAND.logprobs_BT)

    assert found.item() == pytest.approx(expected, abs=1e-6)
    cut = torch.zeros(1) if term.clipped_BT is None else term.clipped_BT * HAND.mask_BT
    assert int(cut.sum()) == clipped


def test_cispo_counts_the_weights_it_capped_whichever_way_the_advantage_points() -> None:
    """Ratios 6, 1, 8 under a cap of 5: two weights of three, unless there is no policy term."""
    ratios = torch.log(torch.tensor([[6.0, 1.0, 8.0]])).repeat(3, 1)
    tokens = Tokens(ratios, torch.zeros(3, 3), torch.tensor([1.0, -1.0, 0.0]), torch.ones(3, 3))

    _, term = loss_of(ObjectiveConfig(loss="cispo"), tokens, ratios)

    assert term.clipped_BT.sum(1).tolist() == [2, 2, 0]


def test_the_kl_term_adds_its_weight_to_each_token() -> None:
    """Δ = 1 at the first rollout's tokens: (½·(1/e + 1/e) + 0)/2 beside the policy term."""
    reference = HAND.logprobs_BT - torch.tensor([[1.0, 1.0], [0.0, 0.0]])
    objective = ObjectiveConfig()

    without, _ = loss_of(objective, HAND, reference)
    found, _ = loss_of(objective, HAND, reference, kl_coef=0.1)

    assert (found - without).item() == pytest.approx(0.1 * math.exp(-1) / 2, abs=1e-6)


def test_a_tokens_sampler_weight_scales_its_policy_term_and_not_its_kl() -> None:
    """Weights 2, 1 and 3 on the terms 1, 2 and −1 of the default loss."""
    weights = torch.tensor([[2.0, 1.0], [3.0, 0.0]])

    found, _ = loss_of(ObjectiveConfig(), HAND, HAND.logprobs_BT, weights_BT=weights)

    assert found.item() == pytest.approx(((2 + 2) / 2 - 3) / 2, abs=1e-6)


def test_the_gradient_raises_what_was_better_and_pulls_back_to_the_reference() -> None:
    """d/dlogπ = −A + kl_coef·(1 − exp(−Δ)), per token of a one-token rollout, by two rollouts."""
    logprobs_BT = torch.tensor([[-1.0], [-1.0]], requires_grad=True)
    tokens = Tokens(logprobs_BT, logprobs_BT.detach(), torch.tensor([1.0, 0.0]), torch.ones(2, 1))

    loss, _ = loss_of(ObjectiveConfig(), tokens, torch.tensor([[-1.0], [-2.0]]), kl_coef=0.5)
    loss.backward()  # type: ignore[no-untyped-call]

    assert logprobs_BT.grad is not None
    expected = [-1.0 / 2, 0.5 * (1 - math.exp(-1)) / 2]
    assert logprobs_BT.grad.squeeze(1).tolist() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [
        ("sequence_mean", (1.5 - 1) / 2),
        ("sequence_sum", (3 - 1) / 2),
        ("token_mean", (3 - 1) / 3),
        ("constant", (3 - 1) / 32),
    ],
)
def test_any_aggregation_can_be_asked_for(aggregation: Any, expected: float) -> None:
    """Token losses 1, 2 and −1 of rollouts of two and one tokens."""
    objective = ObjectiveConfig(aggregation=aggregation)

    assert loss_of(objective, HAND, HAND.logprobs_BT)[0].item() == pytest.approx(expected, abs=1e-6)


# --- against the papers ---


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("loss", sorted(papers.PAPERS))
def test_each_loss_and_gradient_equals_its_papers_equation(loss: Any, seed: int) -> None:
    """fp64, random lengths, ratios on both sides of the bounds; written as plain loops."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 9, (6,), generator=generator).tolist()
    width = max(lengths)
    spread = 2e-3 if loss == "gspo" else 0.6

    def draw(scale: float) -> Tensor:
        return scale * torch.randn(6, width, generator=generator, dtype=torch.float64)

    logprobs_BT = (draw(1.0) - 2).requires_grad_()
    mask_BT = (torch.arange(width)[None, :] < torch.tensor(lengths)[:, None]).double()
    advantages_B = draw(1.0)[:, 0]
    old_BT, reference_BT = logprobs_BT.detach() + draw(spread), logprobs_BT.detach() + draw(0.5)
    tokens = Tokens(logprobs_BT, old_BT, advantages_B, mask_BT)

    objective = ObjectiveConfig(loss=loss)
    ours, _ = loss_of(objective, tokens, reference_BT, kl_coef=0.05, max_tokens=papers.BUDGET)
    [gradient] = torch.autograd.grad(ours, logprobs_BT)
    rows = [
        papers.Sequence_(
            logprobs_BT[i, :n], old_BT[i, :n], reference_BT[i, :n], advantages_B[i].item()
        )
        for i, n in enumerate(lengths)
    ]
    paper = papers.PAPERS[loss](rows, 0.05)
    [expected] = torch.autograd.grad(paper, logprobs_BT)

    assert ours.item() == pytest.approx(paper.item(), rel=1e-12, abs=1e-12)
    assert torch.allclose(gradient, expected, rtol=1e-10, atol=1e-12)


# --- against TRL ---

TRL = json.loads((HERE / "agreement/trl.json").read_bytes())
AS_TRL: dict[str, ObjectiveConfig] = {
    "grpo": ObjectiveConfig(loss="grpo"),
    "dr_grpo": ObjectiveConfig(loss="dr_grpo"),
    "dapo": ObjectiveConfig(loss="dapo"),
    "token_mean": ObjectiveConfig(loss="grpo", aggregation="token_mean"),
    "cispo": ObjectiveConfig(loss="cispo", clip_high=0.3),
    "gspo": ObjectiveConfig(loss="gspo", clip_low=3e-2, clip_high=4e-2),
}


@pytest.mark.parametrize("case", sorted(TRL["cases"]))
def test_loss_and_gradients_of_a_model_equal_those_of_trls_trainer(case: str) -> None:
    """The recorded values of GRPOTrainer's own loss, for every parameter of a tiny model."""
    recorded = TRL["cases"][case]
    model = tiny.build_model(TRL["model_seed"])
    rollouts = [
        Rollout("q", i, tuple(p), tuple(c), (), "", False, 0)
        for i, (p, c) in enumerate(zip(TRL["prompts"], TRL["completions"], strict=True))
    ]
    batch = Batch.of(rollouts, torch.device("cpu"))
    scores = score(model, batch, TRL["temp"])

    def shifted(key: str) -> Tensor:
        flat = torch.tensor([value for row in TRL[key] for value in row])
        blank = torch.zeros_like(batch.mask_BT).masked_scatter(batch.mask_BT > 0, flat)
        return scores.logprobs_BT.detach() + blank

    tokens = Tokens(
        scores.logprobs_BT,
        shifted("old_minus_now"),
        torch.tensor(TRL["advantages"]),
        batch.mask_BT,
    )
    loss, _ = loss_of(
        AS_TRL[case],
        tokens,
        shifted("reference_minus_now"),
        kl_coef=recorded["trl"]["beta"],
        max_tokens=TRL["max_new_tokens"],
    )
    loss.backward()  # type: ignore[no-untyped-call]

    assert loss.item() == pytest.approx(recorded["loss"], abs=2e-6)
    found = {n: trl_agreement.fingerprint(p.grad) for n, p in model.named_parameters()}
    assert found.keys() == recorded["gradients"].keys()
    for name, (norm, product) in recorded["gradients"].items():
        assert found[name] == pytest.approx([norm, product], rel=1e-4, abs=1e-4), name
