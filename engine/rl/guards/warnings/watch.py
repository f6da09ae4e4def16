"""Asks the warnings: after every step those about one step, at every gate the others.

Each is said once, and again where it has become twice as bad. Stops nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from engine.contract.kinds.rl_run import RLRunConfig
from engine.evaluate.gate import GateResult
from engine.rl.buffer import JudgedGroup
from engine.rl.farthest import Farthest
from engine.rl.guards.examples import Judged, examples, judged_of
from engine.rl.guards.warnings import (
    clipping,
    entropy,
    form,
    gradient,
    kl,
    kl_token,
    length,
    peaked,
    plateau,
    slower,
    ties,
    truncation,
)
from engine.rl.guards.warnings.seen import (
    GRAD_NORM,
    Finding,
    Look,
    Seen,
    WatchMemory,
    earned_series,
)
from engine.rl.state import LoopState

AFTER_STEPS: Sequence[Look] = (kl_token.look, gradient.look)
AT_GATES: Sequence[Look] = (
    peaked.look,
    entropy.look,
    ties.look,
    truncation.look,
    kl.look,
    length.look,
    form.look,
    clipping.look,
    slower.look,
    plateau.look,
)
"""In this order: the last asks what the others said."""

_WORSE = 2.0
"""Times its level at which a warning is said again."""
_SAMPLES = 3
_SHOWN = 300
"""Characters of a text in a sample: alerts travel with the run's live result."""


class Watch:
    """`sampled`, `stepped` and `gated` follow the loop; the latter two say what is new."""

    def __init__(
        self,
        config: RLRunConfig,
        memory: WatchMemory,
        recall: Callable[[int], Sequence[Judged]] = lambda _: (),
    ) -> None:
        self.config = config
        self.memory = memory
        self._recall = recall
        """The completions of a step that an attempt before this one sampled."""
        self._groups: Sequence[JudgedGroup] = ()
        self._farthest: Farthest | None = None

    def sampled(self, groups: Sequence[JudgedGroup]) -> None:
        """Remember this step's completions, in case they must be shown."""
        self._groups, self._farthest = groups, None

    def trained(self, farthest: Farthest | None) -> None:
        """Where in them the step's largest KL was found."""
        self._farthest = farthest

    def stepped(
        self, state: LoopState, values: Mapping[str, float], *, ranked: bool
    ) -> list[dict[str, Any]]:
        """New alerts about the step. `ranked`: a step that ranks nothing has next to no gradient,
        which is no measure of a usual one.
        """
        if not self.config.warnings.enabled:
            return []
        measured = {n: v for n, v in values.items() if n != GRAD_NORM or ranked}
        earned, _ = earned_series(self.config)
        self.memory.take(measured, self.config.warnings.window, earned)
        if GRAD_NORM in measured and gradient.is_spike(
            self.memory, self.config.warnings.grad_spike
        ):
            self.memory.spikes += 1
        return self._asked(AFTER_STEPS, Seen(self.config, self.memory, state, (), self._farthest))

    def gated(self, state: LoopState, result: object) -> list[dict[str, Any]]:
        """New alerts about the run so far, in the order in which they were asked."""
        if not self.config.warnings.enabled:
            return []
        items = result.items if isinstance(result, GateResult) else ()
        seen = Seen(self.config, self.memory, state, items)
        kl.remember(seen)
        if self.memory.forms is None and items:
            self.memory.forms = seen.forms()
        return self._asked(AT_GATES, seen)

    def _asked(self, looks: Sequence[Look], seen: Seen) -> list[dict[str, Any]]:
        said: list[dict[str, Any]] = []
        for look in looks:
            found = look(seen)
            if found is None or found.code in self.config.warnings.off:
                continue
            before = self.memory.said.get(found.code)
            if before is not None and found.level < _WORSE * before:
                continue
            self.memory.said[found.code] = found.level
            said.append(self._alert(found, seen.state.step))
        return said

    def _alert(self, found: Finding, step: int) -> dict[str, Any]:
        """As `LoopState.alerts` has it."""
        return {
            "code": found.code,
            "step": step,
            "text": found.text,
            "numbers": dict(found.numbers),
            "samples": examples(self._shown(found, step), found.order, _SAMPLES, _SHOWN),
        }

    def _shown(self, found: Finding, step: int) -> Sequence[Judged]:
        if found.scored:
            return [Judged(one.question.prompt, one.rollout, one.verdict) for one in found.scored]
        return judged_of(self._groups) or self._recall(step)
