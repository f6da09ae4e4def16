"""The RLVR mix of open-instruct: `messages`, `ground_truth`, `dataset`."""

from __future__ import annotations

import json
from typing import Any

from engine.contract.documents import UnreadableError, parse_json
from engine.contract.golds.rlvr_instructions import as_instruction
from engine.contract.golds.rows import ExpectedError
from engine.contract.sources.bad_rows import BadRowError
from engine.contract.sources.layouts.reading import Part, Reading, final, has
from engine.contract.sources.values import Columns

NAME = "rlvr"
WANTS = "messages, ground_truth, dataset"


def recognise(row: Columns) -> Reading | None:
    """Golds of its IFEval rows become instructions of IFEval, where one means the same."""
    if not has(row, "messages", "ground_truth"):
        return None
    return Reading(NAME, "RLVR rows", Part("messages"), Part("ground_truth", _gold))


def _gold(value: Any, row: Columns) -> Any:
    if isinstance(value, list) and len(value) == 1:  # later editions write lists of one
        value = value[0]
    constraint = _constraint(value)
    if constraint is None:
        return final(value, row)
    try:
        return json.dumps(as_instruction(constraint), ensure_ascii=False)
    except ExpectedError as error:
        raise BadRowError(
            f"its ground_truth: {error}",
            "leave such rows out with bad_rows: drop or where: dataset != ifeval, or set "
            "data.answer_field: ground_truth for a reward function that reads them",
        ) from None


def _constraint(value: Any) -> dict[str, Any] | None:
    """A check of RLVR-IFEval, written as an object or as its JSON."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = parse_json(value)
        except UnreadableError:
            return None
    return value if isinstance(value, dict) and "func_name" in value else None
