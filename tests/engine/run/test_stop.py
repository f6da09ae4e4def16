"""Progress out, abort in."""

from __future__ import annotations

import threading

import pytest

from engine.run.stop import (
    Aborted,
    check_abort,
    current_rl_hooks,
    rl_hooks,
    sign_of_life,
    telling_of_life,
)


@pytest.mark.requirement("RL-11")
def test_without_hooks_nobody_listens_and_nothing_stops() -> None:
    """Unset hooks cost a lookup and do nothing."""
    assert current_rl_hooks() == (None, None)

    check_abort()


@pytest.mark.requirement("RL-11")
def test_hooks_hold_inside_their_block_and_nest() -> None:
    """The inner block wins, and leaving it, even by an error, restores the outer one."""

    def outer() -> bool:
        return False

    def inner() -> bool:
        return True

    with rl_hooks(should_abort=outer):
        with rl_hooks(should_abort=inner):
            assert current_rl_hooks().should_abort is inner
        with pytest.raises(Aborted), rl_hooks(should_abort=inner):
            check_abort()
        assert current_rl_hooks().should_abort is outer
        check_abort()
    assert current_rl_hooks() == (None, None)


@pytest.mark.requirement("RL-11")
def test_hooks_belong_to_their_context_alone() -> None:
    """Another thread's loop is not stopped by this one's hooks."""
    seen: list[object] = []

    with rl_hooks(should_abort=lambda: True):
        thread = threading.Thread(target=lambda: seen.append(current_rl_hooks()))
        thread.start()
        thread.join()

    assert seen == [(None, None)]


@pytest.mark.requirement("LN-15")
def test_whoever_asks_whether_to_stop_shows_that_it_works() -> None:
    """Whatever hooks a loop binds for itself; a mere wait for others shows nothing."""
    told: list[str] = []

    with telling_of_life(lambda: told.append("it works")), rl_hooks():
        check_abort()
        sign_of_life()
        check_abort(working=False)
    check_abort()

    assert told == ["it works", "it works"]
