"""A call that runs in a thread beside its caller, and ends with it. Torch-free."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextvars import copy_context
from typing import Generic, TypeVar

from engine.run.stop import Diagnosis, check_abort, current_rl_hooks, rl_hooks, stuck_after

Result = TypeVar("Result")
_POLL_S = 0.05
"""Between two looks at the abort while waiting."""


def begin(work: Callable[[], None], closed: Callable[[], bool], name: str) -> threading.Thread:
    """`work` in a thread with the hooks of its caller, but for a deadline of the step that trains.
    Its looks at the abort also hear that it is `closed`.
    """
    ambient = current_rl_hooks()

    def stop() -> bool:
        return closed() or (ambient.should_abort is not None and ambient.should_abort())

    def run() -> None:
        with rl_hooks(ambient.progress_cb, stop), stuck_after(None, _never):
            work()

    thread = threading.Thread(target=copy_context().run, args=(run,), name=name, daemon=True)
    thread.start()
    return thread


class Beside(Generic[Result]):
    """Begins at once, with the hooks of its caller but for a deadline. What it raises is raised by
    `result`. Call `close` where nobody may come to wait for it.
    """

    def __init__(self, call: Callable[[], Result], name: str) -> None:
        self.seconds = 0.0
        """How long it took, once it is done."""
        self._found: list[Result] = []
        self._error: BaseException | None = None
        self._closed = False

        def run() -> None:
            began = time.perf_counter()
            try:
                self._found.append(call())
            except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
                self._error = error
            self.seconds = time.perf_counter() - began

        self._thread = begin(run, lambda: self._closed, name)

    def result(self) -> Result:
        """Waits for it. Raises what it raised, and Aborted."""
        while self._thread.is_alive():
            check_abort(working=False)  # the thread says that it works; here is only waited
            self._thread.join(_POLL_S)
        if self._error is not None:
            raise self._error
        return self._found[0]

    def close(self) -> None:
        """End it at its next look at the abort; nothing is raised."""
        self._closed = True
        self._thread.join()


def _never() -> Diagnosis:
    raise AssertionError("no deadline was set")
