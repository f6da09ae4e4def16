"""A gate's completions by other verifiers: the switch on the samples page leads here.

They are judged in a child process and kept, so that the page waits a moment and then asks again by
itself, also without a script.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from starlette.responses import HTMLResponse

from app.pages.answers import Shown, shown_of
from app.text import rescored as text
from app.text.headline import label
from app.web.dependencies import DatabaseDep, JobId
from app.web.templating import page
from engine.contract.rescored import BenchRescored, RescoreAsk, RowJudged
from engine.contract.verifiers import verifier_names
from worker.read import jobs, rescoring
from worker.read.benches import check_split
from worker.read.jobs import JobView
from worker.read.samples.query import SplitName, samples_at

router = APIRouter(prefix="/jobs/{job_id}/rescored", include_in_schema=False)

_PATIENCE_S = 3.0
"""A gate's rows are judged in about a second."""
_AGAIN_S = 3
"""Between two looks of a page that waits."""
_A_PAGE = 24

Which = Literal["differ", "all"]


@dataclass(frozen=True)
class Rejudged:
    """One completion with its new judgements."""

    shown: Shown
    row: RowJudged

    def forms(self) -> str:
        return text.forms_told(self.row.forms)

    def by(self, place: int) -> tuple[str, str, str]:
        """(right, none or part; the reason; what was read), by the judge at this place."""
        solved = self.row.success[place]
        fate = "part" if solved is None else "right" if solved else "none"
        return fate, self.row.reason[place], self.row.answer[place] or "nothing"


@router.get("")
def rescored(
    request: Request,
    job_id: JobId,
    database: DatabaseDep,
    *,
    verifier: Annotated[list[Annotated[str, Query(max_length=200)]], Query(max_length=40)],
    split: SplitName,
    step: Annotated[int | None, Query(ge=0, le=10**12)] = None,
    which: Which = "differ",
    after: Annotated[int, Query(ge=-1, le=10**12)] = -1,
) -> HTMLResponse:
    """The tables and the completions; while they are being judged, that they are."""
    job = jobs.get_job(database, job_id)
    check_split(job, split)
    ask = ask_of_page(job, split, step, verifier)
    looked = rescoring.look(ask, job.run_dir, patience_s=_PATIENCE_S)
    context: dict[str, Any] = {
        "job": job,
        "title": f"judged again · {label(job)}",
        "ask": ask,
        "split": split,
        "step": step,
        "which": which,
        "since": looked.since,
        "here": _Address(job_id, {"verifier": ask.verifiers, "split": split, "step": step}),
        "known": verifier_names(),
        "words": text,
        "bench": None,
    }
    if looked.found is None:
        answer = page(request, "rescored.html", context)
        answer.headers["Refresh"] = str(_AGAIN_S)
        return answer
    bench = looked.found.benches[0]
    context |= {"bench": bench, **_completions(job, ask, bench, which, after)}
    return page(request, "rescored.html", context)


def ask_of_page(job: JobView, split: str, step: int | None, verifiers: Sequence[str]) -> RescoreAsk:
    """The run's own verifier first, for the others are held against it."""
    own = job.config.get("verifier")
    ordered = sorted(verifiers, key=lambda name: name != own)
    ask = rescoring.ask_of(rescoring.target_of(job, step), None, ordered, split=split)
    return ask.model_copy(update={"rows": True})


def _completions(
    job: JobView, ask: RescoreAsk, bench: BenchRescored, which: Which, after: int
) -> dict[str, Any]:
    """A page of them, in the order of their file."""
    every = [place for place, row in enumerate(bench.rows) if which == "all" or _differs(row)]
    places = [place for place in every if place > after][:_A_PAGE]
    one = ask.benches[0].after
    found = samples_at(Path(one.file), ask.benches[0].name, one.step or 0, places)
    return {
        "matched": len(every),
        "shown": [
            Rejudged(shown_of(job.id, sample), bench.rows[place])
            for place, sample in zip(places, found, strict=False)
        ],
        "next_after": places[-1] if places and places[-1] < every[-1] else None,
    }


def _differs(row: RowJudged) -> bool:
    return len(set(row.success)) > 1


class _Address:
    """Links to this page that keep what was chosen."""

    def __init__(self, job_id: int, chosen: dict[str, Any]) -> None:
        self._path, self._chosen = f"/jobs/{job_id}/rescored", chosen

    def __call__(self, **changes: Any) -> str:
        kept = {**self._chosen, **changes}
        asked = {name: value for name, value in kept.items() if value is not None}
        return f"{self._path}?{urlencode(asked, doseq=True)}"
