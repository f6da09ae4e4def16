"""Going back to the best gate after a collapse."""

from __future__ import annotations

from dataclasses import replace

from engine.rl.loop import RLLoop
from engine.rl.recorder import LoopRecorder, state_in
from engine.rl.state import LoopState
from engine.rl.trainer import Trainer
from engine.run.checkpoint import CheckpointStore
from engine.run.stop import Collapsed, Declined, Diagnosis

_NOT_OF_TRAINING = frozenset({"stuck step", "all groups tie"})
"""Half the learning rate cures neither."""


def run_with_rollbacks(
    loop: RLLoop, store: CheckpointStore, trainer: Trainer, recorder: LoopRecorder
) -> Declined | None:
    """Run the loop to its end, or to where it gives up: what it says then.

    A collapse goes back to the best gate with half the learning rate, `guard.rollbacks` times.
    """
    while True:
        try:
            loop.run()
        except Collapsed as found:
            state = None
            if len(loop.state.rollbacks) < loop.rollbacks_allowed:
                state = roll_back(loop.state, found.diagnosis, store, trainer, recorder)
            if state is None:
                return found
            loop.go_back(state)
        except Declined as refusal:
            return refusal
        else:
            return None


def roll_back(
    state: LoopState,
    diagnosis: Diagnosis,
    store: CheckpointStore,
    trainer: Trainer,
    recorder: LoopRecorder,
) -> LoopState | None:
    """Weights, optimizer and record as at the best gate; the state to go on from.

    None, and nothing is changed, where going back is no cure. Depends on the collapsed state alone,
    so a run killed in between rolls back to the same state.
    """
    if diagnosis.rule in _NOT_OF_TRAINING:
        return None
    target = state.selected_step or 0
    found = store.verified(target)
    if found is None:
        return None
    text = f"{diagnosis.line()}; gone back to step {target} with half the learning rate"
    alert = {"code": "ROLLED_BACK", "step": state.step, "text": text}
    recorder.alerted("ROLLED_BACK", state.step, text)
    earlier = state_in(found.path)
    before = replace(
        earlier,
        alerts=[*state.alerts, alert],
        # What was said stays said, as its alerts do.
        watch=earlier.watch | {"said": state.watch.get("said", {})},
        rollbacks=[*state.rollbacks, {"to": target, **diagnosis.as_dict()}],
        seconds=state.seconds,
        diagnosis=None,
    )
    trainer.load(found.path)
    trainer.lr_scale = 0.5 ** len(before.rollbacks)
    recorder.rewind(before)
    return before
