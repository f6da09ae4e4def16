"""What an `eval_rerun` writes down while it runs: progress by row, series, scores, marks.

What an earlier attempt wrote down, as far as it counts, is not written again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from engine.contract.scores import BenchScore
from engine.run.checkpoint import Checkpoint
from engine.run.recorder import Recorder
from engine.run.session import Attempt


class EvalRecorder:
    """`done`: rows answered so far, over all benches and checkpoints."""

    def __init__(
        self, attempt: Attempt, recorder: Recorder, resumed: Checkpoint | None, rows: int
    ) -> None:
        """`rows`: how many will be answered."""
        self.done = 0
        self.seconds = 0.0 if resumed is None else float(resumed.state["seconds"])
        self.found: list[BenchScore] = []
        self._attempt, self._recorder, self._resumed, self._rows = attempt, recorder, resumed, rows

    def asking(self, domain: str) -> None:
        """Rows are being sampled now."""
        self._attempt.progress(
            phase="sampling", step=self.done, max_steps=self._rows, domain=domain
        )

    def answered(
        self, rows: int, values: Mapping[str, float], took: float, *, is_last: bool
    ) -> None:
        """One batch of so many rows is done, in `took` seconds. `values`: series of `passk/`.

        The last one of a bench is marked once its scores are told, or a kill between would lose
        them.
        """
        self.done += rows
        if self._is_told():
            return
        self.seconds += took
        told = {f"passk/{name}": value for name, value in values.items()}
        self._attempt.metric(self.done, {**told, "passk/rows": self.done, "time/step_s": took})
        if not is_last:
            self.mark()
        left = took * (self._rows - self.done) / rows
        where = {"step": self.done, "max_steps": self._rows, "eta_s": round(left, 1)}
        self._attempt.progress_with_memory(where)

    def scored(self, scores: Sequence[BenchScore]) -> None:
        """A bench is done by a checkpoint."""
        for score in scores:
            self.tell(score)
        self.mark()

    def tell(self, score: BenchScore) -> None:
        """One score."""
        self.found.append(score)
        if not self._is_told():
            self._attempt.events.write("score", step=self.done, score=score.model_dump())

    def mark(self) -> None:
        """A mark without weights: the journal holds what was found."""
        if self._is_told():
            return
        state = {"rows": self.done, "seconds": round(self.seconds, 3)}
        self._recorder.checkpoint(self.done, state, self._note)
        self._recorder.keep_selected(0, 0)

    def short(self) -> list[dict[str, Any]]:
        """The scores as the result of the job tells them; their events have the rest."""
        names = {"checkpoint", "step", "bench", "shots", "filter", "metric", "runner", "n", "score"}
        names |= {"low", "high", "truncated", "unparsed", "picked"}
        return [one.model_dump(include=names) for one in self.found if one.k == 1]

    def card(self, stops: Sequence[int]) -> Mapping[str, Any]:
        """The run card, also written down."""
        return self._recorder.card({0: self.found[0].score if self.found else 0.0}, {}, stops)

    def _is_told(self) -> bool:
        """Whether an earlier attempt wrote down what was found so far."""
        return self._resumed is not None and self.done <= self._resumed.step

    def _note(self, folder: Path) -> None:
        (folder / "rows.txt").write_text(f"{self.done}\n", "utf-8")
