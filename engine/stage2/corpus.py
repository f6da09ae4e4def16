"""The records of a run, and whether they can be trained on: asked before the first step.

Knows no weights.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.contract.errors import ConfigError, ConfigProblem
from engine.contract.sources.heldout import VAL_TRAINED, val_alert
from engine.contract.sources.records import Record, read_records
from engine.contract.sources.survey import survey
from engine.contract.stage2.config import Stage2Config
from engine.contract.stage2.record_form import RecordForm
from engine.run.ranks import Ranks
from engine.run.session import Attempt
from engine.run.stop import sign_of_life, stop_asked
from engine.stage2.embedded import files
from engine.stage2.preflight import Finding, alerts, look, unfit
from engine.stage2.rollout.pictures import size_of
from engine.stage2.rollout.prompts import PromptReader

Alert = Callable[[str, str], None]
"""`(code, text)`: what a person should know of records that can be trained on all the same."""


@dataclass(frozen=True)
class Corpus:
    """`val` picks the checkpoint, `report` is scored once at the end; either may be empty."""

    train: Sequence[Record]
    val: Sequence[Record]
    report: Sequence[Record]


def read_corpus(attempt: Attempt, config: Stage2Config, ranks: Ranks, alert: Alert) -> Corpus:
    """Raises ConfigError for records that leave no whole batch.

    Validation records that are trained on are worth an alert.
    """
    data, cache = config.data, Path(attempt.job.cache_dir)
    found = ranks.first_alone(lambda: files.data_files(data, cache))
    corpus = Corpus(
        train=read_records(found.train, data.train_limit, data.form),
        val=_optional(found.val, data.val_limit, data.form),
        report=_optional(found.report, data.report_limit, data.form),
    )
    _require_a_pass(config, len(corpus.train), ranks)
    trained = val_alert(corpus.train, corpus.val)
    if trained is not None:
        alert(VAL_TRAINED, trained)
    return corpus


def _optional(path: Path | None, limit: int | None, form: RecordForm) -> Sequence[Record]:
    return [] if path is None else read_records(path, limit, form)


def _require_a_pass(config: Stage2Config, count: int, ranks: Ranks) -> None:
    """Raises ConfigError for a last batch that is dropped and was the only one."""
    training = config.training
    wanted = training.per_device_train_batch_size * ranks.size
    if training.passed_on.get("dataloader_drop_last") and count < wanted:
        problem = f"leaves nothing of {count} records in passes of {wanted}"
        remedy = "lower training.per_device_train_batch_size, or set it to false"
        raise ConfigError([ConfigProblem("training.dataloader_drop_last", True, problem, remedy)])


def check(
    attempt: Attempt,
    config: Stage2Config,
    corpus: Corpus,
    reader: PromptReader,
    *,
    ranks: Ranks,
    alert: Alert,
) -> None:
    """Look at each record as training will meet it, every rank at its share.

    Raises ConfigError for records that cannot be trained on; the log names each. Ends early when
    the run is asked to stop.
    """
    began = time.perf_counter()
    longest = config.global_max_length if _learns_whole_answers(config) else None
    problems: list[ConfigProblem] = []
    for name, records, most, taught in (
        ("data.train_jsonl", corpus.train, longest, True),
        ("data.val_jsonl", corpus.val, None, False),
        ("data.report_jsonl", corpus.report, None, False),
    ):
        rollout = _packed_rollout(config) if taught else 0
        mine = look(ranks.part(records), reader, most, taught=taught, rollout=rollout)
        found = ranks.gather(list(mine))
        if ranks.is_first:
            _log_unfit(name, found)
        problems += unfit(name, found, len(records))
        for code, text in alerts(name, found, len(records)):
            alert(code, text)
        for caution in survey(records).cautions:
            alert(caution.code, f"{name} {caution.problem}; {caution.remedy}")
    if config.serves:
        problems += _unlike_a_server(corpus, reader)
    if problems:
        raise ConfigError(problems)
    if ranks.is_first:
        for code, text in _what_is_read(corpus, reader):
            attempt.note(code, text)
    if not stop_asked():
        count = len(corpus.train) + len(corpus.val) + len(corpus.report)
        attempt.note("RECORDS", f"looked at {count} records in {time.perf_counter() - began:.0f} s")


def _what_is_read(corpus: Corpus, reader: PromptReader) -> Iterator[tuple[str, str]]:
    """(code, sentence) of what a person might not expect of the prompts."""
    if reader.chat.is_dated:
        today = f"{reader.clock():%Y-%m-%d %H:%M}"
        yield "PROMPT_DATE", f"the chat template writes the date: {today} in every attempt"
    records = [*corpus.train, *corpus.val, *corpus.report]
    held = [(one.where, tokens) for one in records for tokens in [reader.held(one)] if tokens]
    if held:
        where, tokens = held[0]
        yield (
            "PLAIN_TEXT",
            f"{len(held)} of {len(records)} records hold the characters of control tokens, the "
            f"first {tokens[0]!r} in {where}: they are read as plain text",
        )


def _unlike_a_server(corpus: Corpus, reader: PromptReader) -> Iterator[ConfigProblem]:
    """A server writes the prompt itself, and reads control tokens where the run reads text."""
    for name, records in (
        ("data.train_jsonl", corpus.train),
        ("data.val_jsonl", corpus.val),
        ("data.report_jsonl", corpus.report),
    ):
        held = [(one.where, tokens) for one in records for tokens in [reader.held(one)] if tokens]
        if held:
            where, tokens = held[0]
            yield ConfigProblem(
                name,
                None,
                f"has {len(held)} records with the characters of control tokens, the first "
                f"{tokens[0]!r} in {where}, which a server reads as such",
                "write them otherwise, or set rollout_backend: hf",
            )


def longest_prompt(config: Stage2Config, corpus: Corpus, reader: PromptReader) -> int:
    """In tokens. Raises ConfigError where it leaves no room for an answer."""
    rollouts, longest = config.custom.extra.rollout_matching, 0
    for record in (*corpus.train, *corpus.val, *corpus.report):
        sign_of_life()
        sizes = [size_of(path) for path in record.images]
        longest = max(longest, reader.length(record, sizes))
    window, needed = rollouts.vllm.max_model_len, longest + rollouts.max_new_tokens
    if window is not None and window < needed:
        field = "custom.extra.rollout_matching.vllm.max_model_len"
        problem = (
            f"is less than the longest prompt ({longest}) with max_new_tokens ({needed - longest})"
        )
        remedy = f"raise it to {needed}, leave it out, or lower max_new_tokens"
        raise ConfigError([ConfigProblem(field, window, problem, remedy)])
    return longest


def _log_unfit(name: str, found: Sequence[Finding]) -> None:
    for finding in found:
        if finding.stops:
            print(f"{name}: {finding.what}", file=sys.stderr)  # noqa: T201 - the log


def _learns_whole_answers(config: Stage2Config) -> bool:
    """Whether a record's own answer must fit: in Channel-A, and in packs."""
    return config.rollout_share < 1 or bool(config.training.packing)


def _packed_rollout(config: Stage2Config) -> int:
    """Tokens of a rollout that a pack must take; 0 where none is packed."""
    if not config.training.packing or not config.rollout_share:
        return 0
    return config.custom.extra.rollout_matching.max_new_tokens
