"""How a run asks each of its benches: in the result beside its scores, and frozen with its rows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from engine.contract.kinds.rl_run import RLRunConfig
from engine.contract.sources.benches import BenchConfig
from engine.data.rows import Question
from engine.data.split import Split
from engine.sampling.prompts import PromptBuilder


def bench_facts(
    config: RLRunConfig, split: Split, builders: Mapping[str, PromptBuilder]
) -> dict[str, dict[str, Any]]:
    """By name; `hash` is over the rows, the examples in front of each, and all that stands beside
    it.
    """
    found = {}
    for bench in config.heldout:
        decides = bench.name == config.decide
        rows = [*split.select, *split.report] if decides else split.others[bench.name]
        found[bench.name] = _facts(config, bench, rows, builders[bench.name])
    return found


def _facts(
    config: RLRunConfig, bench: BenchConfig, rows: Sequence[Question], builder: PromptBuilder
) -> dict[str, Any]:
    said = {
        "label": bench.label,
        "shots": bench.shots,
        "template": bench.template or config.prompting.template,
        "temp": config.heldout_temp if bench.temp is None else bench.temp,
        "max_new_tokens": bench.max_new_tokens or config.max_new_tokens,
    }
    content = hashlib.sha256(
        json.dumps([said, config.prompting.under(bench.template).form]).encode()
    )
    for row in rows:
        shown = [(shot.prompt, answer) for shot, answer in builder.examples(row)]
        content.update(json.dumps([row.id, row.prompt, row.answer, shown]).encode())
    return {**said, "hash": content.hexdigest()}
