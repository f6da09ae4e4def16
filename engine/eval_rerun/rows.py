"""What sampling found of each row, and the files and tables that are made of it.

Knows no model and no sampler.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from engine.contract.asked import asked
from engine.contract.errors import RLLoopError
from engine.contract.jsonl import write_rows
from engine.contract.kinds.eval_rerun import EvalRerunConfig
from engine.contract.outputs import write_output
from engine.contract.run_dir import write_atomic
from engine.data.rows import Question
from engine.evaluate.passk import counted_ks, pass_at_over
from engine.rewards.judgement import Reason
from engine.rewards.soundness import Soundness

RESULTS, CURRICULUM = "passk.jsonl", "curriculum.txt"
"""What a run leaves in its directory: every row, and the ids of those worth training on."""
_READ = frozenset({Reason.CORRECT, Reason.LENIENT, Reason.WRONG})
"""Reasons of completions in which an answer was found."""


@dataclass(frozen=True)
class Sampled:
    """The completions of one row, counted."""

    question: Question
    n: int
    """Those that were judged, or that the verifier broke on."""
    solved: int
    reasons: Mapping[str, int]
    truncated: float
    """Share of all completions."""

    @property
    def pass_rate(self) -> float | None:
        """None where nothing was judged."""
        return self.solved / self.n if self.n else None

    @property
    def parsed(self) -> float:
        """Share of all completions in which an answer was found."""
        return sum(self.reasons.get(one, 0) for one in _READ) / sum(self.reasons.values())

    @classmethod
    def of(cls, question: Question, completions: Sequence[Mapping[str, Any]]) -> Sampled:
        """From the lines of the rollout file."""
        reasons = Counter(str(one["reason"]) for one in completions)
        return cls(
            question,
            n=len(completions) - reasons[Reason.UNJUDGED],
            solved=sum(one["success"] is True for one in completions),
            reasons=reasons,
            truncated=statistics.fmean(one["truncated"] is True for one in completions),
        )

    def as_dict(self) -> dict[str, Any]:
        """A line of the results file."""
        source = {"source": self.question.source} if self.question.source else {}
        return {
            "id": self.question.id,
            **source,
            "n": self.n,
            "solved": self.solved,
            "pass_rate": _rounded(self.pass_rate),
            "parsed": _rounded(self.parsed),
            "truncated": _rounded(self.truncated),
        }


def series(rows: Sequence[Sampled]) -> dict[str, float]:
    """What is worth a curve of some rows."""
    rates = [row.pass_rate for row in rows if row.pass_rate is not None]
    solved = {"pass_at_1": statistics.fmean(rates)} if rates else {}
    return {
        **solved,
        "parsed": statistics.fmean(row.parsed for row in rows),
        "truncated": statistics.fmean(row.truncated for row in rows),
    }


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, 6)


def kept(rows: Sequence[Sampled], keep: Sequence[float]) -> list[Sampled]:
    """Rows whose pass rate is in the range, ends included, from easy to hard."""
    low, high = keep
    found = [row for row in rows if row.pass_rate is not None and low <= row.pass_rate <= high]
    return sorted(found, key=lambda row: -(row.pass_rate or 0.0))


def in_bands(rows: Sequence[Sampled], bands: Sequence[float]) -> Iterator[dict[str, Any]]:
    """Rows by pass rate: each band with its lower end, the last one with both."""
    rates = [row.pass_rate for row in rows if row.pass_rate is not None]
    for low, high in pairwise(bands):
        last = high == bands[-1]
        count = sum(low <= rate < high or (last and rate == high) for rate in rates)
        yield {"from": low, "to": high, "rows": count}


def soundness(rows: Sequence[Sampled]) -> Soundness:
    """How often the verifier said nothing."""
    total: Counter[str] = Counter()
    for row in rows:
        total.update(row.reasons)
    crashes, timeouts = total[Reason.CRASH], total[Reason.TIMEOUT]
    return Soundness(sum(total.values()), crashes, timeouts, total[Reason.UNJUDGED])


def alerts(rows: Sequence[Sampled], config: EvalRerunConfig) -> Iterator[tuple[str, str]]:
    """(code, sentence) of what a person should know before using the files."""
    yield from soundness(rows).alerts("completions")
    if rows and not kept(rows, config.keep):
        low, high = config.keep
        never = sum(row.pass_rate == 0 for row in rows)
        yield (
            "CURRICULUM_EMPTY",
            f"no row has a pass rate of {low:g} to {high:g}, and {CURRICULUM} is empty: {never} of "
            f"{len(rows)} rows were never solved; more samples, a longer max_new_tokens or easier "
            "rows may help",
        )


def write_files(folder: Path, rows: Sequence[Sampled], config: EvalRerunConfig) -> None:
    """Each whole; an older file at `curriculum_out` is replaced. Raises RLLoopError."""
    write_rows(folder / RESULTS, [row.as_dict() for row in rows])
    ids = "".join(row.question.id + "\n" for row in kept(rows, config.keep))
    write_atomic(folder / CURRICULUM, ids.encode())
    if config.curriculum_out is None:
        return
    try:
        write_output(Path(config.curriculum_out), [ids])
    except OSError as error:
        problem = f"cannot be written: {error.strerror}"
        remedy = f"copy {folder / CURRICULUM}, or name another file"
        raise RLLoopError.of("curriculum_out", config.curriculum_out, problem, remedy) from None


def tables(rows: Sequence[Sampled], config: EvalRerunConfig) -> dict[str, Any]:
    """What goes into the job's result."""
    counts, questions = [(r.n, r.solved) for r in rows], [asked(r.question.prompt) for r in rows]
    found = (pass_at_over(k, counts, questions) for k in counted_ks(config.samples))
    return {
        "rows": len(rows),
        "samples": config.samples,
        "pass_at": [one.as_dict() for one in found if one is not None],
        "bands": list(in_bands(rows, config.bands)),
        "keep": list(config.keep),
        "kept": len(kept(rows, config.keep)),
        "parsed": statistics.fmean(row.parsed for row in rows) if rows else None,
        "truncated": statistics.fmean(row.truncated for row in rows) if rows else None,
        "soundness": soundness(rows).shares(),
        "files": {"results": RESULTS, "curriculum": CURRICULUM},
    }
