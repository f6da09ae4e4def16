"""Batches that are drawn while the steps before them train.

One thread draws what it is given, one batch after the other. Who trains gives it a batch together
with the weights that draw it, and only brings other weights where nothing is drawn: what a server
answers is never of two versions. No more batches are given than may wait, so that a fast server
waits for the trainer. Torch-free; knows no policy and no verifier.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from engine.data.rows import Question
from engine.run.beside import begin
from engine.run.stop import check_abort
from engine.sampling.base import Groups, Sampler

_POLL_S = 0.05
"""Between two looks at the abort while waiting."""


@runtime_checkable
class AheadSampler(Sampler, Protocol):
    """A sampler that draws without reading the weights that training moves."""

    def bring(self) -> int:
        """The version of the weights that `draw` draws by from here on: those of now."""
        ...

    def draw(self, tasks: Sequence[Question], k: int) -> Groups:
        """k completions of each task by the weights that were brought last."""
        ...

    def verify(self, groups: Groups) -> float:
        """How far the trainer's own model, with the weights that drew them, lies from some of
        them: nats a token. Raises SamplerContradicted.
        """
        ...


@dataclass(frozen=True)
class Given:
    """What is drawn for one step."""

    step: int
    tasks: Sequence[Question]
    version: int
    """Of the weights that draw it."""


@dataclass(frozen=True)
class Drawn:
    """A batch that was drawn."""

    groups: Groups
    seconds: float
    """How long it was drawn, beside whatever trained meanwhile."""


class DrawsAhead:
    """`give` a batch, `take` it later. Ends with `close`.

    What the thread raised is raised by `take` and `settle`; nothing is drawn behind it. `keep` is
    called in the thread with each batch as it comes.
    """

    def __init__(
        self,
        sampler: AheadSampler,
        k: int,
        *,
        keep: Callable[[int, Groups], None] = lambda *_: None,
    ) -> None:
        self._sampler = sampler
        self._k = k
        self._keep = keep
        self._given: deque[Given] = deque()
        """What is not drawn yet, what is being drawn first."""
        self._drawn: dict[int, Drawn] = {}
        self._error: BaseException | None = None
        self._closed = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    @property
    def idle(self) -> bool:
        """Whether nothing is being drawn, or waits for it."""
        with self._changed:
            return not self._given

    def has(self, step: int) -> bool:
        """Whether the step's batch was given and not taken."""
        with self._changed:
            return step in self._drawn or any(one.step == step for one in self._given)

    def give(self, batch: Given) -> None:
        """To be drawn behind what was given before."""
        with self._changed:
            self._given.append(batch)
            self._changed.notify_all()
        if self._thread is None:
            self._thread = begin(self._draw_all, lambda: self._closed, "ahead")

    def take(self, step: int) -> Drawn | None:
        """The step's batch; waits for it. None where none was given. Raises Aborted."""
        if not self.has(step):
            return None
        self._wait(lambda: step in self._drawn)
        with self._changed:
            return self._drawn.pop(step)

    def settle(self) -> None:
        """Wait until nothing is drawn: now other weights may be brought. Raises Aborted."""
        self._wait(lambda: not self._given)

    def close(self) -> None:
        """End the thread, within one look at the abort of whoever draws; nothing is raised."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _wait(self, done: Callable[[], bool]) -> None:
        while True:
            # The thread says that it works; here is only waited.
            check_abort(working=False)
            with self._changed:
                if self._error is not None:
                    raise self._error
                if done():
                    return
                self._changed.wait(_POLL_S)

    # --- in the thread ---

    def _draw_all(self) -> None:
        try:
            while (batch := self._next()) is not None:
                self._draw(batch)
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _next(self) -> Given | None:
        """Waits for one; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._given or self._closed)
            return None if self._closed else self._given[0]

    def _draw(self, batch: Given) -> None:
        began = time.monotonic()
        groups = [
            # Whatever the trainer has come to meanwhile.
            [replace(one, version=batch.version) for one in group]
            for group in self._sampler.draw(batch.tasks, self._k)
        ]
        seconds = time.monotonic() - began
        self._keep(batch.step, groups)
        with self._changed:
            self._drawn[batch.step] = Drawn(groups, seconds)
            self._given.popleft()
            self._changed.notify_all()
