"""Held-out rows that an earlier run trained on, where the policy comes out of one."""

from __future__ import annotations

from collections.abc import Iterator

from engine.contract.kinds.rl_run import RLRunConfig
from engine.contract.provenance import BEGINS, earlier_runs
from engine.contract.sources.mixture import same_origin
from engine.data.split import Split

HELDOUT_SEEN = "HELDOUT_SEEN"


def seen_before(config: RLRunConfig, split: Split) -> Iterator[str]:
    """One sentence for each earlier run on the same source that did."""
    heldout = [question.id for question in (*split.select, *split.report)]
    for earlier in earlier_runs(config.model_dump(include=set(BEGINS))):
        if not same_origin(earlier.data, config.data):
            continue
        seen = len(earlier.trained.intersection(heldout))
        if seen:
            yield (
                f"{seen} of {len(heldout)} held-out rows were trained on by the run that "
                f"{earlier.field} comes from ({earlier.run.root}): what they show of this one is "
                f"too good; hold out the same with data.split_seed: {earlier.split_seed}"
            )
