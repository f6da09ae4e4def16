"""Proof before step 1: what a run relies on is measured once its step 0 stands.

A fault in it is silent all night and in the morning a poor score, so it ends the run by name in its
first minute. A kind brings its checks; a check measures one figure and holds it against a limit.
Knows no model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from engine.contract.documents import read_json_object
from engine.contract.errors import NightlaneError
from engine.contract.run_dir import write_json
from engine.run.recorder import Recorder
from engine.run.stop import Declined, check_abort


@dataclass(frozen=True)
class Measured:
    """What a check came to. A figure that is no number never holds."""

    figure: float
    limit: float
    above: bool = False
    """The figure must be above the limit; else it must not be."""

    @property
    def holds(self) -> bool:
        return self.figure > self.limit if self.above else self.figure <= self.limit

    def __str__(self) -> str:
        if self.holds:
            return f"{self.figure:.3g}, {'above' if self.above else 'within'} {self.limit:.3g}"
        must = "must be more than" if self.above else "may be at most"
        return f"{self.figure:.3g}, which {must} {self.limit:.3g}"


@dataclass(frozen=True)
class Check:
    """One thing that must hold before step 1."""

    name: str
    """One word for the run card."""
    says: str
    """What the figure is: `sampler and plain forward differ, in nats a token`."""
    remedy: str
    measure: Callable[[], Measured | None]
    """None where this run has nothing of the kind; UnmeasuredError where there is no figure."""


class UnmeasuredError(NightlaneError):
    """Why a check has no figure: what it wanted to measure is not there, or is another thing."""


def require_none(unequal: Sequence[str]) -> None:
    """Raises UnmeasuredError with the first of the tensors that are not what they should be."""
    if unequal:
        more = "" if len(unequal) == 1 else f", and {len(unequal) - 1} more of its tensors are not"
        raise UnmeasuredError(f"{unequal[0]} is not equal{more}")


class Unproven(Declined):
    """A check did not hold. Whoever tries again begins again, and is checked again."""

    def __init__(self, message: str) -> None:
        super().__init__("PROOF_FAILED", message)


def prove(recorder: Recorder, checks: Sequence[Check], *, anew: bool = False) -> None:
    """Make each check once before step 1 of a run; its figures go onto the run card.

    Step 0 must stand. Nothing is measured again by a run that goes on, unless its step 0 was made
    `anew`. Raises Unproven, and Aborted between two checks.
    """
    attempt, resumed = recorder.attempt, recorder.resumed
    known = None if anew else _known(recorder)
    begins = resumed is None or resumed.step == 0
    if known is None and not (anew or begins):
        return  # its first steps were made before there was such a proof
    if known is None:
        try:
            found = {check.name: measured for check in checks if (measured := _made(check))}
        except Unproven as refusal:
            write_json(attempt.run.proof, {"failed": str(refusal)})
            raise
        known = {name: asdict(measured) for name, measured in found.items()}
        write_json(attempt.run.proof, {"checks": known})
        told = [f"{check.says}: {found[check.name]}" for check in checks if check.name in found]
        attempt.note("PROOF", f"before step 1: {'; '.join(told) or 'nothing to check'}")
    recorder.tell(proof=known)


def _made(check: Check) -> Measured | None:
    check_abort()
    try:
        measured = check.measure()
    except UnmeasuredError as error:
        raise Unproven(f"before step 1: {check.says}: {error}; {check.remedy}") from error
    if measured is not None and not measured.holds:
        raise Unproven(f"before step 1: {check.says}: {measured}; {check.remedy}")
    return measured


def _known(recorder: Recorder) -> dict[str, Any] | None:
    """What an earlier attempt measured; None where nothing was, or it cannot be read."""
    attempt = recorder.attempt
    try:
        return dict(read_json_object(attempt.run.proof)["checks"])
    except FileNotFoundError:
        return None
    except KeyError:
        return None  # it failed
    except (OSError, LookupError, TypeError, ValueError):
        text = "proof.json cannot be read; what was measured before step 1 is in the notes alone"
        attempt.warn("PROOF_LOST", text)
        return None
