"""Going back to the best gate after a collapse. Decides and reads; writes nothing."""

from __future__ import annotations

from dataclasses import replace

from engine.contract.run_dir import RunDir
from engine.rl.guards.guard import Diagnosis
from engine.rl.recorder import Recorder, read_state
from engine.rl.state import LoopState
from engine.run import checkpoint

_NOT_OF_TRAINING = frozenset({"stuck step", "all groups tie"})
"""Half the learning rate cures neither."""


def roll_back(
    state: LoopState, diagnosis: Diagnosis, run: RunDir, recorder: Recorder
) -> LoopState | None:
    """The state to go on from, with the collapse in its record; None where going back is no cure.

    Depends on the collapsed state alone, so a run killed in between rolls back to the same state.
    """
    target = state.selected_step or 0
    found = checkpoint.verified(run.checkpoint(target), recorder.warn)
    if diagnosis.rule in _NOT_OF_TRAINING or found is None:
        return None
    text = f"{diagnosis.line()}; gone back to step {target} with half the learning rate"
    alert = {"code": "ROLLED_BACK", "step": state.step, "text": text}
    recorder.alerted("ROLLED_BACK", state.step, text)
    return replace(
        read_state(found.path),
        alerts=[*state.alerts, alert],
        rollbacks=[*state.rollbacks, {"to": target, **diagnosis.as_dict()}],
        seconds=state.seconds,
        diagnosis=None,
    )
