"""Coordinates: one scheme, k/999, for numbers and tensors."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import engine
from engine.contract.stage2 import coords

QUICK = settings(max_examples=200, deadline=None, derandomize=True, database=None)


@pytest.mark.requirement("AB-20")
def test_every_bin_decodes_and_encodes_to_itself() -> None:
    """All 1000 bins make the round trip, as numbers and as a tensor."""
    bins = list(range(1000))

    assert [coords.encode(coords.decode(k)) for k in bins] == bins
    assert coords.encode_tensor(coords.decode_tensor(torch.tensor(bins))).tolist() == bins


@pytest.mark.requirement("AB-20")
def test_both_corners_are_exact() -> None:
    """0 is the top-left corner, 999 the bottom-right one: 0.0 and exactly 1.0."""
    assert (coords.decode(0), coords.decode(999)) == (0.0, 1.0)
    assert (coords.encode(0.0), coords.encode(1.0)) == (0, 999)
    assert coords.decode_tensor(torch.tensor([[0, 999]])).tolist() == [[0.0, 1.0]]


@pytest.mark.requirement("AB-20")
@QUICK
@given(st.floats(-1e9, 1e9))
def test_encoding_is_the_clamped_rounded_999th(c: float) -> None:
    """k = clamp(round(999 c), 0, 999), and the tensor form agrees in double."""
    k = coords.encode(c)

    assert k == min(max(round(999 * c), 0), 999)
    assert coords.encode_tensor(torch.tensor([c], dtype=torch.float64)).tolist() == [k]


@QUICK
@given(st.floats(0, 1))
def test_encoding_errs_by_half_a_bin_at_most(c: float) -> None:
    """No bin is nearer than the one chosen."""
    assert abs(coords.decode(coords.encode(c)) - c) <= 0.5 / 999 + 1e-12


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_is_no_coordinate(value: float) -> None:
    """A NaN must not become some bin."""
    with pytest.raises(ValueError, match="finite"):
        coords.encode(value)
    with pytest.raises(ValueError, match="finite"):
        coords.encode_tensor(torch.tensor([value]))


@pytest.mark.parametrize("k", [-1, 1000])
def test_a_bin_outside_0_to_999_is_refused(k: int) -> None:
    """There is no bin 1000."""
    with pytest.raises(ValueError, match="999"):
        coords.decode(k)
    with pytest.raises(ValueError, match="999"):
        coords.decode_tensor(torch.tensor([k]))


def test_only_the_canonical_spelling_is_a_coord_token() -> None:
    """`<|coord_k|>` without leading zero, sign, space or foreign digit."""
    assert [coords.bin_of(coords.token(k)) for k in range(1000)] == list(range(1000))
    for spelling in (
        "<|coord_00|>",
        "<|coord_1000|>",
        "<|coord_-1|>",
        " <|coord_1|>",
        "<|coord_٣|>",
    ):
        assert coords.bin_of(spelling) is None


@pytest.mark.requirement("AB-20")
def test_no_coordinate_code_divides_or_multiplies_by_1000() -> None:
    """The scheme is k/999 everywhere in stage-2."""
    room = Path(engine.__path__[0])
    folders = [room / "stage2", room / "contract"]
    files = [path for folder in folders for path in folder.rglob("*.py")]
    trees = {str(path.relative_to(room)): ast.parse(path.read_text("utf-8")) for path in files}
    factors = {
        (path, side.value)
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div | ast.FloorDiv)
        for side in (node.left, node.right)
        if isinstance(side, ast.Constant)
    }

    assert len(trees) > 10
    assert {path for path, value in factors if value == 1000} == set()
