"""Which samples a step rolls out: the window's, and further ones where it has too few."""

from __future__ import annotations

import pytest

from engine.contract.sources.records import Record
from engine.run.ranks import Ranks
from engine.stage2.window import Drawn


@pytest.mark.requirement("AB-21")
def test_further_samples_of_a_step_are_the_same_ones_for_any_number_of_ranks(
    records: list[Record],
) -> None:
    """Eleven rollouts of a window of eight; another step draws others."""

    def of(ranks: int, step: int) -> list[str]:
        windows = [records[rank * 8 // ranks : (rank + 1) * 8 // ranks] for rank in range(ranks)]
        parts = [
            Drawn(records, 11, 5, Ranks(rank, ranks))(window, step)
            for rank, window in enumerate(windows)
        ]
        return sorted(record.where for part in parts for record in part)

    assert len(of(1, step=3)) == 11
    assert of(1, step=3) == of(2, step=3) == of(4, step=3)
    assert of(1, step=3) != of(1, step=4)
