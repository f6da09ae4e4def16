"""`samples_TASK_DATE.jsonl`, as lm-evaluation-harness 0.4.13 writes it with `--log_samples`.

A line for each document and filter, with the document, the prompt, the raw responses and what each
metric came to. The harness does not write why a response ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.contract.known import real, whole
from engine.contract.sources.bad_rows import BadRowError
from engine.contract.sources.layouts.recognised import recognised
from engine.contract.sources.rows import row_of
from engine.evaluate.completions import Completion, refuse, rows_of, split_columns
from engine.rewards.judgement import Reason, Verdict

_UNREAD = "[invalid]"
"""What a filter of the harness says where it found nothing."""
_RIGHT = 0.5


def read(path: Path) -> list[Completion]:
    """Every response, in the order of the documents. Raises RLLoopError."""
    found: dict[tuple[str, int], Completion] = {}
    for number, row in rows_of(path):
        for one in _responses(path, number, row):
            before = found.get((one.id, one.sample))
            if before is not None and (
                before.text != one.text or set(before.judged) & set(one.judged)
            ):
                problem = f"line {number}: document {one.id} stands there twice with one filter"
                refuse(path, problem, "name the file of one evaluation, written once")
            judged = one.judged if before is None else {**before.judged, **one.judged}
            found[one.id, one.sample] = one.but(judged=judged)
    return list(found.values())


def _responses(path: Path, number: int, row: Mapping[str, Any]) -> list[Completion]:
    document, asked = row.get("doc"), _request(row)
    texts = _first_list(row.get("resps"))
    if whole(row.get("doc_id")) is None or not isinstance(document, Mapping) or not texts:
        problem = f"line {number} is no line of a sample log: it lacks doc_id, doc or resps"
        refuse(path, problem, "name samples_*.jsonl as lm_eval --log_samples wrote it")
    if not isinstance(asked.get("arg_1"), Mapping) or not all(isinstance(t, str) for t in texts):
        problem = f"line {number} holds log-likelihoods of choices, and no text to be judged"
        refuse(path, problem, "name the log of a task that generates")
    prompt, gold = asked.get("arg_0"), _gold(row, document)
    # Of several responses a filter makes one answer, which is none of them.
    judged = _judged(row) if len(texts) == 1 else {}
    return [
        Completion(
            str(row["doc_id"]),
            place,
            prompt if isinstance(prompt, str) else "",
            text,
            gold,
            None,
            split_columns(document),
            judged=judged,
        )
        for place, text in enumerate(texts)
    ]


def _request(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Prompt and limits of the one request that a generating task makes."""
    arguments = row.get("arguments")
    found = arguments.get("gen_args_0") if isinstance(arguments, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _first_list(value: Any) -> list[Any]:
    first = value[0] if isinstance(value, list) and value else None
    return first if isinstance(first, list) else []


def _gold(row: Mapping[str, Any], document: Mapping[str, Any]) -> str:
    """As our verifiers get it where the document's columns are known, else the harness's target."""
    columns = dict(document)
    reading = recognised(columns)
    if reading is not None and reading.answer is not None:
        try:
            return row_of(columns, reading, None, 1).answer
        except BadRowError:
            pass  # the harness's own target will do
    return str(row.get("target", ""))


def _judged(row: Mapping[str, Any]) -> dict[str, tuple[Verdict, bool | None]]:
    """By the filter's name; by the metric's where a task has no filter, by both where several
    metrics follow one.
    """
    metrics = row.get("metrics")
    named = [name for name in metrics if isinstance(name, str)] if isinstance(metrics, list) else []
    values = {name: _number(row.get(name)) for name in named}
    known = {name: value for name, value in values.items() if value is not None}
    read = row.get("filtered_resps")
    answer = read[0] if isinstance(read, list) and read and isinstance(read[0], str) else None
    filter_ = str(row.get("filter", "none"))
    return {
        _name(filter_, metric, len(known)): (_verdict(value, answer), value >= _RIGHT)
        for metric, value in known.items()
    }


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, bool) else real(value)


def _name(filter_: str, metric: str, metrics: int) -> str:
    if filter_ == "none":
        return metric
    return filter_ if metrics == 1 else f"{filter_}, {metric}"


def _verdict(value: float, answer: str | None) -> Verdict:
    if answer == _UNREAD:
        return Verdict.unparsed()
    return Verdict(value, answer, Reason.CORRECT if value >= _RIGHT else Reason.WRONG)
