"""The self-test passes on a loop that works, and only there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from engine import selftest
from engine.__main__ import main
from engine.rl.trainer import Trainer
from engine.sampling.base import Groups


@pytest.mark.requirement("EX-19")
def test_ten_samples_are_overfitted_and_the_exit_code_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`python -m engine selftest`: the real parts, in seconds."""
    code = main(["selftest"])

    said = capsys.readouterr().out
    assert (code, "the reward on 10 samples rose" in said) == (0, True)


@pytest.mark.requirement("EX-19")
def test_a_flipped_sign_of_the_advantages_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that learns the opposite does not pass, with the exit code of a failure."""
    update = Trainer.__call__

    def flipped(
        self: Trainer, rollouts: Groups, advantages: Sequence[Sequence[float]], step: int
    ) -> Mapping[str, float]:
        return update(self, rollouts, [[-a for a in row] for row in advantages], step)

    monkeypatch.setattr(Trainer, "__call__", flipped)
    monkeypatch.setattr(selftest, "RECIPE", selftest.RECIPE.model_copy(update={"max_steps": 8}))

    assert main(["selftest"]) == 1
