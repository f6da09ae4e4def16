"""What the cockpit must know about a kind of job. Knows no kind and no engine: an entry is a dotted
name that only the engine process imports.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from engine.contract.envelope import Checkpoints, Envelope
from engine.contract.errors import ConfigProblem
from engine.contract.example import Example
from engine.contract.look import Look

if TYPE_CHECKING:
    from engine.contract.evaluate.watching import EvaluateConfig


@dataclass(frozen=True)
class FollowUp:
    """A job that is to come after another one."""

    kind: str
    config: Mapping[str, Any]
    """As a person would write it."""
    why: str
    """In a few words, for the audit of both."""


def _no_inputs(_: Any) -> Sequence[Path]:
    return ()


def _no_entry(_: Any) -> str | None:
    return None


def _no_problems(_: Any) -> Sequence[ConfigProblem]:
    return ()


def _no_axes(_: Any, __: Collection[str]) -> Sequence[ConfigProblem]:
    return ()


def _no_envelope(_: Any) -> Envelope | None:
    return None


def _no_checkpoints(_: Any) -> Checkpoints | None:
    return None


def _serves_nothing(_: Any) -> bool:
    return False


def _nothing_follows(_: Any, __: Mapping[str, Any], ___: Path) -> FollowUp | None:
    return None


def _no_examples(_: Any) -> Sequence[Example]:
    return ()


@dataclass(frozen=True)
class Kind:
    """What the cockpit must know about a kind of job."""

    name: str
    summary: str
    """One sentence for menus and help."""
    config: type[BaseModel]
    entry: str
    """`package.module:function`, called in the engine process as `function(attempt)`."""
    inputs: Callable[[Any], Sequence[Path]] = _no_inputs
    """Files the job reads; each goes into job.json with size and hash."""
    indifferent: frozenset[str] = frozenset()
    """Settings, by dotted name, that cannot change the result: two jobs that differ in nothing
    else are the same experiment."""
    seed: str | None = None
    """The setting, by dotted name, that makes a run another one of the same config: runs that
    differ in it alone are a seed group. None where runs have none."""
    split_seed: str | None = None
    """The setting, by dotted name, that says which rows are held out; where it is null, `seed`
    does. None where the seed has no part in that."""
    model: str | None = None
    """The setting, by dotted name, that says which model is run: how long a run took says nothing
    about one of another model. None where any two runs of the kind compare."""
    steps: str | None = None
    """The setting, by dotted name, that says how many steps it makes: twice as many are expected
    to take twice as long. None where only a run that began can tell."""
    saves: str | None = None
    """The setting, by dotted name, that says after how many steps a checkpoint is written; None
    where none says so."""
    check: Callable[[Any], Sequence[ConfigProblem]] = _no_problems
    """What only a look at the file system can tell; run at enqueue, must be quick."""
    look: Look | None = None
    """What only torch or the user's own module can tell; asked of a child process at enqueue, by
    every door that takes a job in. None where there is nothing of the kind."""
    cautions: Callable[[Any], Sequence[ConfigProblem]] = _no_problems
    """What a valid config had better not say; every door that takes a job in shows it."""
    sweep_cautions: Callable[[Any, Collection[str]], Sequence[ConfigProblem]] = _no_axes
    """What a sweep over some settings, by dotted name, had better not be; shown beside those."""
    examples: Callable[[Any], Sequence[Example]] = _no_examples
    """One prompt of each source, as far as that is known without a model; shown beside them."""
    envelope: Callable[[Any], Envelope | None] = _no_envelope
    """The memory it will need at most; None when that cannot be told beforehand."""
    rows: str | None = None
    """The setting, by dotted name, that names the rows that it trains on or asks."""
    asks_first: Sequence[str] = ()
    """Settings, by dotted name, that nearly every job of the kind sets: fields of their own beside
    the document that holds all of them."""
    smaller: Sequence[str] = ()
    """Settings, by dotted name, of which a smaller value needs less memory, the most helpful
    first: what a remedy names to a run that did not fit."""
    lowers: Mapping[str, str] = field(default_factory=dict)
    """By part of its envelope, the setting, by dotted name, that makes it smaller."""
    checkpoints: Callable[[Any], Checkpoints | None] = _no_checkpoints
    """The disk that it will take; None when that cannot be told beforehand."""
    evaluate: Callable[[Any], EvaluateConfig | None] | None = None
    """What its config says is asked of each checkpoint as it appears; None for a kind whose
    checkpoints answer no bench."""
    serves: Callable[[Any], bool] = _serves_nothing
    """Whether servers sample for it: its engine is told the operator's serving settings."""
    needs_server_program: Callable[[Any], bool] = _serves_nothing
    """Whether it may start the program that serves models (`NIGHTLANE_VLLM_BIN`); not where it
    only connects to servers that others run."""
    follows: Callable[[Any, Mapping[str, Any], Path], FollowUp | None] = _nothing_follows
    """The job that comes after the success of one, by its config, its result and its run directory;
    None where none does."""
    entry_of: Callable[[Any], str | None] = _no_entry
    """What runs a config instead of `entry`, written like it; None: `entry` does."""
