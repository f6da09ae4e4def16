"""Before against after on the same completions, by each verifier."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.contract.intervals import compare
from engine.contract.rescored import BenchAsk, Change, Completions, RescoreAsk, VerifierChange
from engine.evaluate.rescore import rescore
from tests.engine.evaluate.stored import BOXED, NOTHING, SENTENCE, judged_again, line, write


def _side(path: Path, texts: list[str], prompts: list[str] | None = None) -> Path:
    rows = [
        line(f"q{i}", text.format(7), columns={"level": f"Level {i % 2 + 1}"})
        for i, text in enumerate(texts)
    ]
    for row, prompt in zip(rows, prompts or (), strict=False):
        row["prompt"] = prompt
    return write(path, rows)


def change(changes: list[VerifierChange], verifier: str) -> VerifierChange:
    return next(one for one in changes if one.verifier == verifier)


@pytest.fixture
def sides(tmp_path: Path) -> tuple[Path, Path]:
    """Twenty rows: before, half are boxed; after, sixteen are the sentence that is paid."""
    before = [SENTENCE] * 4 + [BOXED] * 10 + [NOTHING] * 6
    after = [SENTENCE] * 16 + [NOTHING] * 4
    return (
        _side(tmp_path / "heldout-select-000000.jsonl", before),
        _side(tmp_path / "heldout-select-000020.jsonl", after),
    )


@pytest.mark.requirement("EX-23")
def test_a_gain_that_only_the_strict_verifier_sees_is_a_form_that_was_learnt(
    sides: tuple[Path, Path],
) -> None:
    """Bench by verifier: before, after, paired difference with interval and p."""
    before, after = sides

    found = judged_again(after, "gsm8k", "gsm8k_any", before=before)

    strict, general = (change(found.changes, n).whole for n in ("gsm8k", "gsm8k_any"))
    by_hand = compare([i < 4 for i in range(20)], [i < 16 for i in range(20)])
    assert (strict.before, strict.after, strict.gained, strict.lost) == (0.2, 0.8, 12, 0)
    assert (strict.low, strict.high) == by_hand.ci95
    assert strict.p == by_hand.p_value
    assert (general.before, general.after, general.gained) == (0.7, 0.8, 2)
    assert general.p == 0.5


@pytest.mark.requirement("EX-18")
def test_a_level_is_tested_and_a_band_is_only_shown(sides: tuple[Path, Path]) -> None:
    """A band is made of the same completions as `before`: it moves by chance alone."""
    before, after = sides

    found = judged_again(after, "gsm8k", before=before)

    parts = {(one.by, one.name): one for one in change(found.changes, "gsm8k").parts}
    assert (parts["level", "Level 1"].before, parts["level", "Level 1"].after) == (0.2, 0.8)
    assert parts["level", "Level 1"].p == 0.03125
    low = parts["band", "0 to 0.1"]
    assert (low.n, low.before, low.after) == (16, 0.0, 0.75)
    assert (low.p, low.low, low.high) == (None, None, None)


@pytest.mark.requirement("EX-18")
def test_it_says_how_many_differences_were_tested(sides: tuple[Path, Path]) -> None:
    """Two verifiers and the stored judgement, each in all and on two levels: nine tests."""
    before, after = sides
    bench = BenchAsk(
        name="select",
        after=Completions(file=str(after), name="step 20"),
        before=Completions(file=str(before), name="step 0"),
    )

    found = rescore(RescoreAsk(benches=[bench], verifiers=["gsm8k", "gsm8k_any"]))

    assert found.comparisons == 9
    assert found.level == pytest.approx(0.05 / 9)


@pytest.mark.requirement("EX-18")
def test_copies_of_a_question_change_their_sign_together(tmp_path: Path) -> None:
    """Six rows that ask one question are one gained question, and prove nothing."""
    asks = ["What is 3+4?"] * 6
    before = _side(tmp_path / "heldout-x-000000.jsonl", [NOTHING] * 6, asks)
    after = _side(tmp_path / "heldout-x-000020.jsonl", [SENTENCE] * 6, asks)

    copies = change(judged_again(after, "gsm8k", before=before).changes, "gsm8k").whole

    assert (copies.n, copies.different, copies.gained, copies.p) == (6, 1, 6, 1.0)
    assert copies.can_show is None


@pytest.mark.requirement("EX-18")
def test_a_change_stands_with_what_its_rows_can_show(tmp_path: Path) -> None:
    """200 rows with no change seen yet: 8 points paired, 11 unpaired from a tenth."""
    texts = [SENTENCE if i % 10 == 0 else NOTHING for i in range(200)]
    before = _side(tmp_path / "heldout-x-000000.jsonl", texts)
    after = _side(tmp_path / "heldout-x-000020.jsonl", texts)

    whole = change(judged_again(after, "gsm8k", before=before).changes, "gsm8k").whole

    assert whole.can_show == pytest.approx(0.08, abs=0.005)
    assert whole.can_show_unpaired == pytest.approx(0.107, abs=0.005)


def test_rows_with_one_id_and_two_prompts_are_no_pair(tmp_path: Path) -> None:
    before = _side(tmp_path / "heldout-x-000000.jsonl", [SENTENCE] * 8)
    after = _side(tmp_path / "heldout-x-000020.jsonl", [SENTENCE] * 8, ["Another one?"])

    found = judged_again(after, "gsm8k", before=before)

    assert change(found.changes, "gsm8k").whole.n == 7
    assert any("1 rows have the same id and ask something else" in told for told in found.said)


def test_two_benches_without_a_common_row_are_not_paired_and_not_tested(tmp_path: Path) -> None:
    before = write(tmp_path / "heldout-a-000000.jsonl", [line(f"a{i}", NOTHING) for i in range(9)])
    after = _side(tmp_path / "heldout-b-000020.jsonl", [SENTENCE] * 9)

    found = judged_again(after, "gsm8k", before=before)

    whole: Change = change(found.changes, "gsm8k").whole
    assert (whole.paired, whole.p, whole.lift) == (False, None, 1.0)
    assert any("no row in common" in told for told in found.said)
