"""What every kind writes down while it runs: held-out gates, checkpoints, the run card.

A gate is one event, however often a killed run comes by it again; its rows are written before it.
A checkpoint is complete only when every event before it is durable. Decides nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from engine.contract.evaluate.watching import awaited
from engine.contract.events import Event, EventType, usable
from engine.contract.jsonl import write_rows
from engine.contract.run_dir import write_json
from engine.run.checkpoint import Checkpoint, CheckpointStore
from engine.run.lineage import snapshot
from engine.run.retention import gap, gated_fit, unscored_gap
from engine.run.session import Attempt


class GateKey(NamedTuple):
    """One point of a held-out curve."""

    split: str
    step: int


class Gated(NamedTuple):
    """What a held-out gate came to."""

    score: float
    n: int
    ci95: tuple[float, float]
    temp: float
    values: Mapping[str, float] = MappingProxyType({})
    """What else is worth a curve: `heldout/SPLIT/NAME`."""
    label: str = ""
    """What people call the split, where that is not its name."""


def recorded_gates(path: Path, last_step: int | None) -> dict[GateKey, float]:
    """Gates of earlier attempts that still count for a run resumed after `last_step`."""
    found = _counting(path, last_step, "gate")
    return {GateKey(event["split"], event["step"]): event["score"] for event in found}


def recorded_series(path: Path, last_step: int | None, name: str) -> dict[int, float]:
    """A series by step, of earlier attempts as far as they still count."""
    found = _counting(path, last_step, "metric")
    return {e["step"]: e["values"][name] for e in found if name in e["values"]}


def _counting(path: Path, last_step: int | None, type_: EventType) -> list[Event]:
    """Events of a type that no resume has made void; none for a run that begins anew."""
    if last_step is None:
        return []
    found: list[Event] = []
    for event in usable(path):
        if event["type"] == "started":
            kept = event["resumed_from"]
            found = [one for one in found if kept is not None and one["step"] <= kept]
        elif event["type"] == type_:
            found.append(event)
    return [one for one in found if one["step"] <= last_step]


class Recorder:
    """`facts` go into every checkpoint's complete.json, `card` onto the run card.

    Of several ranks only the first one `writes`; the others know the same gates.
    """

    def __init__(
        self,
        attempt: Attempt,
        store: CheckpointStore,
        *,
        resumed: Checkpoint | None,
        keep: int,
        facts: Mapping[str, Any] | None = None,
        card: Mapping[str, Any] | None = None,
        writes: bool = True,
    ) -> None:
        self.attempt = attempt
        self.store = store
        self.writes = writes
        self._events = attempt.events
        self._keep = keep
        self._facts = dict(facts or {})
        self._card = dict(card or {})
        self.resumed = resumed
        """What the run goes on from; None for one that begins anew."""
        self._last_step = None if resumed is None else resumed.step
        self._gates = recorded_gates(attempt.run.events, self._last_step)

    def gates(self, split: str) -> dict[int, float]:
        """Score by step of what counts of one split."""
        return {gate.step: score for gate, score in self._gates.items() if gate.split == split}

    def series(self, name: str) -> dict[int, float]:
        """A series that earlier attempts wrote down, by step, as far as it still counts."""
        return recorded_series(self.attempt.run.events, self._last_step, name)

    def gate(
        self,
        split: str,
        step: int,
        found: Gated,
        rows: Callable[[], Sequence[Mapping[str, Any]]] | None,
        *,
        selected: bool,
    ) -> None:
        """One point of a held-out curve, with its scored rows; `selected`: the best so far."""
        key = GateKey(split, step)
        known = key in self._gates
        self._gates.setdefault(key, found.score)
        if not self.writes:
            return
        if rows is not None:
            write_rows(self.attempt.run.rollouts / f"heldout-{split}-{step:06d}.jsonl", rows())
        if known:
            return
        self._events.write(
            "gate",
            step=step,
            split=split,
            score=found.score,
            n=found.n,
            ci95=list(found.ci95),
            temp=found.temp,
            selected=selected,
            values=dict(found.values),
            **({"label": found.label} if found.label else {}),
        )

    def forget_after(self, step: int) -> None:
        """The run goes back to a step: gates and checkpoints of later ones are void."""
        self._gates = {key: score for key, score in self._gates.items() if key.step <= step}
        self.store.discard_after(step)

    def checkpoint(
        self, step: int, state: Mapping[str, Any], write: Callable[[Path], None] | None = None
    ) -> Checkpoint:
        """Complete the step's checkpoint, durable with all events before it.

        `write(folder)` fills it; without it a trainer of its own has filled the store's folder.
        """
        began = time.monotonic()
        self._events.sync()
        known = {**state, **self._facts}
        if write is None:
            made = self.store.seal(step, known)
        else:
            made = self.store.publish(step, write, known)
        path = str(made.path.relative_to(self.attempt.run.root))
        seconds = time.monotonic() - began
        self._events.write("checkpoint", step=step, path=path, seconds=seconds)
        self._events.sync()
        return made

    def tell(self, **fields: Any) -> None:
        """What the run card says from here on, beside what it was begun with."""
        self._card |= fields

    def keep_selected(self, best: int | None, coming: int) -> None:
        """Point `selected` at the best step where its checkpoint stands; let older ones go.

        Those of gates stay while the disk would hold them all, with the `coming` ones; those that
        wait to be scored while it would hold one more.
        """
        self.link(best)
        whole = self.store.complete()
        gated = {gate.step for gate in self._gates} & whole.keys()
        waiting = awaited(self.attempt.run, whole)
        always = {0, best or 0}
        if whole and gated and gated_fit(whole[max(whole)], coming):
            always |= gated
        if waiting and gated_fit(whole[max(whole)], 0):
            always |= waiting
        removed = self.store.retain(keep=self._keep, always=always)
        if lost := gated.intersection(removed):
            self.attempt.warn("CHECKPOINT_GAP", gap(lost))
        if unscored := waiting.intersection(removed):
            self.attempt.warn("CHECKPOINT_GAP", unscored_gap(unscored))

    def let_go(self, best: int | None) -> None:
        """Once the report stands: step 0, the best, the last few and what waits to be scored."""
        waiting = awaited(self.attempt.run, self.store.complete())
        self.store.retain(keep=self._keep, always={0, best or 0} | waiting)

    def link(self, best: int | None) -> None:
        """Point `selected` at the best step where its checkpoint stands."""
        if best is not None and self.writes and best in self.store.complete():
            self.store.select(best)

    def card(
        self,
        heldout_scores: Mapping[int, float],
        pool_scores: Mapping[int, float | None],
        stopped_after: Collection[int],
    ) -> dict[str, Any]:
        """The run card, also written down."""
        found = snapshot(heldout_scores, pool_scores, stopped_after).as_dict() | self._card
        if self.writes:
            write_json(self.attempt.run.lineage, found)
        return found
