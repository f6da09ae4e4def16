"""From a completion to a verdict: what it earned and why.

One file a verifier in `engine/rewards/verifiers/`, each a pure `verify(completion, expected)`.
Those that may hang run in the worker pool, those that run a model's code in a box; both say so
in their file (`POOLED`, `BOXED`). The adapter around a verifier never raises: a verifier that
breaks costs its rollout the reward, not the run its night. Knows no model.
"""

from __future__ import annotations

import contextlib
import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, runtime_checkable

from engine.contract.errors import RLLoopError
from engine.contract.rl.format import FormatConfig
from engine.contract.verifiers import library_problem
from engine.rewards.case import Case
from engine.rewards.format import Ask, FormatSchedule, formed
from engine.rewards.functions import FunctionError, Functions
from engine.rewards.judgement import Reason, Verdict, verdict_of
from engine.rewards.sandbox import box
from engine.rewards.text.reading import LONGEST_ANSWER
from engine.rewards.weighted import Part, WeightedReward
from engine.rewards.workers.pool import Pool, PoolError, Question, shared_pool

__all__ = [
    "Reason",
    "RewardAdapter",
    "Verdict",
    "Verifier",
    "ask_all",
    "load_rewards",
    "load_verifier",
    "scheduled_reward",
]

Verifier = Callable[[str, str], Verdict | float | None]
"""`verify(completion, expected)`. A number is a reward, None is "not judged"."""

BOXES = 2
"""Programs of a model that run at once."""


Asked = Case | tuple[str, str]
"""A completion and what was expected, or all that is known of it."""


@runtime_checkable
class CaseVerifier(Protocol):
    """A verifier that asks for more than the pair, or wants all of a step at once."""

    takes_cases: bool

    def __call__(self, completion: str, expected: str) -> Any: ...

    def many(self, cases: Sequence[Case]) -> list[Verdict]:
        """One verdict a case, in their order. Never raises for what a reward does."""
        ...


@runtime_checkable
class BatchVerifier(Protocol):
    """A verifier that judges many at once faster than one by one."""

    def __call__(self, completion: str, expected: str) -> Any: ...

    def many(self, pairs: Sequence[tuple[str, str]]) -> Sequence[Any]:
        """One verdict, number or None a pair (completion, expected), in their order."""
        ...


def load_verifier(name: str, **of_functions: Any) -> Verifier:
    """The verifier in `engine/rewards/verifiers/NAME.py`, or the reward `module:function`.

    `of_functions` are arguments of `Functions`. Raises RLLoopError when it cannot run on this
    machine: no box, a missing library, a module that the operator does not allow.
    """
    if wrong := library_problem(name):
        raise RLLoopError.of("verifier", name, *wrong)
    try:
        return _load(name, of_functions)
    except (box.BoxError, PoolError, FunctionError, ImportError) as error:
        remedy = "install what is missing, or choose another verifier"
        raise RLLoopError.of("verifier", name, f"cannot run here: {error}", remedy) from error


def _load(name: str, of_functions: Mapping[str, Any]) -> Verifier:
    if ":" in name:
        functions = Functions([name], **of_functions)
        functions.start()
        return WeightedReward([Part(name)], functions)
    module = importlib.import_module(f"engine.rewards.verifiers.{name}")
    verify: Verifier = module.verify
    if getattr(module, "BOXED", False):
        box.require()
        return Boxed(verify)
    if getattr(module, "POOLED", False):
        pool = shared_pool()
        pool.load(name)
        return Pooled(name, getattr(module, "quick", _never_quick), pool)
    return verify


def _never_quick(_completion: str, _expected: str) -> Verdict | None:
    return None


@dataclass(frozen=True)
class Pooled:
    """Judges in the pool what its `quick` cannot decide at once."""

    name: str
    quick: Callable[[str, str], Verdict | None]
    pool: Pool

    def __call__(self, completion: str, expected: str) -> Verdict:
        return self.many([(completion, expected)])[0]

    def many(self, pairs: Sequence[tuple[str, str]]) -> list[Verdict]:
        verdicts = [self.quick(*pair) for pair in pairs]
        hard = [i for i, verdict in enumerate(verdicts) if verdict is None]
        answers = self.pool.ask([Question(self.name, *pairs[i]) for i in hard])
        for i, answer in zip(hard, answers, strict=True):
            verdicts[i] = answer
        return [verdict for verdict in verdicts if verdict is not None]


@dataclass(frozen=True)
class Boxed:
    """Runs programs side by side, each in a box of its own."""

    verify: Verifier

    def __call__(self, completion: str, expected: str) -> Any:
        return self.verify(completion, expected)

    def many(self, pairs: Sequence[tuple[str, str]]) -> list[Any]:
        with ThreadPoolExecutor(BOXES) as threads:
            return list(threads.map(lambda pair: _survived(self.verify, *pair), pairs))


@dataclass(frozen=True)
class RewardAdapter:
    """Asks the verifier, survives it, and says what counts as solved."""

    verifier: Verifier
    threshold: float = 0.5
    """A reward at or above this is a success."""
    schedule: Callable[[int], Verifier] | None = None
    """What training asks instead at a step; None is the verifier all along."""
    batched: bool = False
    """Whether all completions of a step are one call, as a reward function expects."""

    def at(self, step: int) -> RewardAdapter:
        """What a training step pays. Whoever does not ask for a step is judged strictly."""
        if self.schedule is None:
            return self
        return replace(self, verifier=self.schedule(step), schedule=None)

    def judge(self, completion: str, expected: str, *, truncated: bool = False) -> Verdict:
        """Exception, NaN → `crash` (TimeoutError → `timeout`) worth 0; None → `unjudged`.

        A truncated completion that was judged and did not succeed says so instead of `wrong`.
        """
        return self.judge_all([(completion, expected)], [truncated])[0]

    def judge_all(
        self, cases: Sequence[Asked], truncated: Sequence[bool] | None = None
    ) -> list[Verdict]:
        """`judge` for every case, in their order, side by side where it helps."""
        cut = truncated or [False] * len(cases)
        verdicts = ask_all(self.verifier, cases, self.threshold)
        return [self._settled(v, truncated=t) for v, t in zip(verdicts, cut, strict=True)]

    def well_formed(self, asked: Sequence[Asked]) -> list[bool]:
        """Whether each completion has the form asked for, whatever it answers."""
        form = self.schedule.form if isinstance(self.schedule, FormatSchedule) else None
        cases = [Case(*one) for one in asked]
        return formed(form, cases, ask_all(self.verifier, cases, self.threshold))

    def success(self, verdict: Verdict) -> bool:
        """Whether the verifier's own reward reaches the threshold, whatever training pays.

        What broke is no success, also where the threshold is 0 or less.
        """
        return verdict.judged and verdict.strict >= self.threshold

    def _settled(self, verdict: Verdict, *, truncated: bool) -> Verdict:
        if verdict.answer is not None:
            # Half a surrogate pair cannot be written to a file; a megabyte should not.
            answer = verdict.answer[:LONGEST_ANSWER].encode("utf-8", "replace").decode()
            verdict = replace(verdict, answer=answer)
        if truncated and verdict.judged and verdict.reward < self.threshold:
            verdict = replace(verdict, reason=Reason.TRUNCATED)
        return verdict


def ask_all(verifier: Verifier, asked: Sequence[Asked], threshold: float = 0.5) -> list[Verdict]:
    """What a verifier says to every case, in their order; what it raises is its crash.

    A bare number at or above `threshold` is a right answer.
    """
    cases = [Case(*one) for one in asked]
    if isinstance(verifier, CaseVerifier):
        return [verdict_of(one, threshold) for one in verifier.many(cases)]
    pairs = [(case.completion, case.expected) for case in cases]
    said: Sequence[Any] | None = None
    if isinstance(verifier, BatchVerifier):
        with contextlib.suppress(Exception):  # one by one finds the pair that breaks it
            said = verifier.many(pairs)
    if said is None or len(said) != len(pairs):
        said = [_survived(verifier, *pair) for pair in pairs]
    return [verdict_of(one, threshold) for one in said]


def load_rewards(
    rewards: Sequence[tuple[str, float]], threshold: float, **of_functions: Any
) -> Verifier:
    """Names of verifiers and functions with their weights, as one verifier. Raises RLLoopError."""
    names = [name for name, _ in rewards]
    if len(rewards) == 1 and ":" not in names[0] and rewards[0][1] == 1.0:
        return load_verifier(names[0])
    paths = [name for name in names if ":" in name]
    functions = Functions(paths, **of_functions)
    try:
        if paths:
            functions.start()
    except FunctionError as error:
        remedy = "correct the module, or choose another reward"
        raise RLLoopError.of("rewards", ", ".join(paths), str(error), remedy) from error
    parts = [
        Part(name, weight, None if ":" in name else partial(ask_all, load_verifier(name)))
        for name, weight in rewards
    ]
    return WeightedReward(parts, functions, threshold)


def scheduled_reward(
    strict: Verifier, threshold: float, config: FormatConfig, max_steps: int
) -> RewardAdapter:
    """A verifier, and in training what `config` makes of it. Raises RLLoopError."""
    batched = isinstance(strict, CaseVerifier)
    if not config.shapes_reward:
        return RewardAdapter(strict, threshold, batched=batched)
    schedule = FormatSchedule(
        config,
        max_steps,
        strict=partial(ask_all, strict, threshold=threshold),
        form=_form(config),
        lenient=partial(ask_all, load_verifier(config.lenient)) if config.lenient else None,
    )
    return RewardAdapter(strict, threshold, schedule, batched)


def _form(config: FormatConfig) -> Ask | None:
    """The verifiers of shapes and patterns, asked about one shape or pattern."""
    if config.shape is None and config.pattern is None:
        return None
    verifier = load_verifier("format" if config.shape else "regex")
    wanted = config.shape or json.dumps({"pattern": config.pattern})

    def ask(cases: Sequence[Case]) -> list[Verdict]:
        return ask_all(verifier, [(case.completion, wanted) for case in cases])

    return ask


def _survived(verifier: Verifier, completion: str, expected: str) -> Any:
    try:
        return verifier(completion, expected)
    except TimeoutError:
        return Verdict(0.0, None, Reason.TIMEOUT)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a plug-in: what it raises is its crash
        return Verdict.broke(error)
