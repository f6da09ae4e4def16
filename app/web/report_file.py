"""The morning report as a view: the same body in the page and in one file that needs nothing else.

The file carries its sheets inside, draws its sparklines as SVG, runs no script and asks nobody.
Knows no route.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from app.charts.sparkline import sparkline
from app.text import benches, evaluated, seeds, wording
from app.text.autonomy_words import numbers_in_words
from app.web.assets import STATIC_FOLDER
from app.web.templating import environment
from worker.db.connection import Database
from worker.report import choices, gains
from worker.report.choices import Choice
from worker.report.proposals import Proposal
from worker.report.runs import VERDICTS, RunLine
from worker.report.snapshot import seal_of
from worker.report.standup import Report

SHEETS = ("cockpit.css", "report.css")


@dataclass(frozen=True)
class Offer:
    """A proposal and what became of it."""

    proposal: Proposal
    choice: Choice | None


def context_of(db: Database, report: Report) -> dict[str, Any]:
    """What both templates show."""
    chosen = choices.choices_of(db, report)
    judged = [run for run in report.runs if run.verdict is not None]
    return {
        "report": report,
        "bench_words": benches,
        "seed_words": seeds,
        "evaluated_words": evaluated,
        "sha256": seal_of(db, report),
        "sparks": {run.job_id: sparkline(run.heldout, run.heldout_gaps) for run in report.runs},
        "failures": [run for run in report.runs if run.failed],
        "warned": [run for run in report.runs if run.alerts],
        "trust": trust_in_words(judged),
        "doubtful": {run.job_id for run in gains.doubtful(judged)},
        "asked": len(gains.asked(judged)),
        "decided": [(entry, numbers_in_words(entry.numbers)) for entry in report.decisions],
        "offers": [Offer(found, chosen.get(found.key)) for found in report.proposals],
        "choices": choices,
    }


def render_file(db: Database, report: Report, now: float) -> str:
    """The whole report as one HTML document."""
    css = style()
    template = environment().get_template("report_file.html")
    return template.render(
        {**context_of(db, report), "css": css, "now": now, "path": "", "part": None, "live": False}
    )


def style() -> Markup:
    """The sheets as they stand in the file; none holds a `</`, which would end the element."""
    sheets = (STATIC_FOLDER / name for name in SHEETS)
    return Markup("\n".join(sheet.read_text("utf-8") for sheet in sheets))  # noqa: S704 - our own


def file_name(report: Report) -> str:
    """What a browser calls the file."""
    return f"nightlane-{report.day}.html"


def trust_in_words(judged: Sequence[RunLine]) -> str | None:
    """How much the night's verdicts carry; None when there is none."""
    if not judged:
        return None
    counts = Counter(run.verdict for run in judged)
    # In the order of the words; then what nights kept long ago called theirs.
    words = [word for word in dict.fromkeys((*VERDICTS, *counts)) if counts[word]]
    said = ", ".join(f"{counts[word]} {word}" for word in words)
    smallest = min((run for run in judged if run.n), key=_observations, default=None)
    stands = wording.rows(smallest.n, smallest.different) if smallest else None
    rows = f" The smallest verdict stands on {stands}." if stands else ""
    return f"{said}.{rows}{_many_in_words(judged)}{_zeros_in_words(judged)}"


def _observations(run: RunLine) -> int:
    return run.n or 0 if run.different is None else run.different


def _many_in_words(judged: Sequence[RunLine]) -> str:
    """What is left of the gains when every run of the night was a chance for one."""
    many, doubtful = len(gains.asked(judged)), len(gains.doubtful(judged))
    found = len(gains.standing(judged)) + doubtful
    if many < 2 or not found:
        return ""
    said = f"{found - doubtful} of {found} gains stand"
    if found == 1:
        said = f"The gain {'does not stand' if doubtful else 'stands'}"
    return f" {said} when corrected for the {many} runs that were judged (Holm, 5 %)."


def _zeros_in_words(judged: Sequence[RunLine]) -> str:
    """A gain whose interval includes 0 is no mistake of either."""
    numbers = [f"#{run.job_id}" for run in judged if gains.holds_zero(run)]
    if not numbers:
        return ""
    return (
        f" The interval of {', '.join(numbers)} includes 0: a gain is tested on all held-out rows, "
        "its size is that on the report rows alone."
    )
