"""Where the batch of a step comes from: prompts → rollouts → verdicts → advantages → buffer.

Torch-free. Samples until the buffer holds a step's prompts, leaves out groups without signal where
the objective says so, and draws other prompts in their place where it says that. Trains nothing.
Where rollouts may be stale, the rows of coming steps are drawn while this one trains.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from engine.contract.kinds.rl_run import RLRunConfig
from engine.data.curriculum import Curriculum, Mixture, curriculum_of
from engine.data.refill import more_prompts
from engine.data.rows import Question
from engine.evaluate.gate import case_of
from engine.rewards.adapter import Reason, RewardAdapter, Verdict
from engine.rewards.judgement import told
from engine.rewards.soundness import Soundness
from engine.rewards.text.forms import form_shares, shares_of
from engine.rl.advantages import USED, has_signal, step_advantages, tied
from engine.rl.ahead import AheadSampler, Drawn, DrawsAhead, Given
from engine.rl.buffer import FATES, Entry, JudgedGroup, RolloutBuffer
from engine.rl.journal import Journal, Recalled
from engine.rl.observer import LoopObserver
from engine.rl.state import LoopState
from engine.run.stop import check_abort
from engine.sampling.base import Groups, Sampler
from engine.sampling.contradiction import SamplerContradicted
from engine.sampling.measures import measures
from engine.sampling.repetition import repeats_itself


@dataclass(frozen=True)
class Batch:
    """What one step trains on, and all that it sampled for it."""

    groups: Sequence[JudgedGroup]
    """Trained on."""
    sampled: Sequence[JudgedGroup]
    """Empty when every group came from the buffer."""
    fates: Mapping[str, int]
    """What became of groups in this step."""
    ahead: Mapping[str, float] = field(default_factory=dict)
    """Series of rollouts that were drawn while an earlier step trained."""

    @property
    def measured(self) -> Sequence[JudgedGroup]:
        """What the step's pool score is taken over."""
        return self.sampled or self.groups

    def used(self) -> list[float]:
        """The advantages that teach anything."""
        return [a for group in self.groups for a in group.advantages if abs(a) >= USED]


@dataclass(frozen=True)
class _Rows:
    """What a coming step asks first."""

    tasks: Sequence[Question]
    drawn: int
    """Rows that the curriculum has given with these."""


class BatchSource:
    """`gather(step, train)` → the batch of a step. Ends with `close`."""

    def __init__(
        self,
        config: RLRunConfig,
        sampler: Sampler,
        reward: RewardAdapter,
        *,
        state: LoopState,
        observer: LoopObserver,
        journal: Journal | None,
    ) -> None:
        self._config = config
        self._sampler = sampler
        self._reward = reward
        self._state = state
        self._observer = observer
        self._journal = journal
        self.drawn = state.drawn
        """Rows that the curriculum has given, those of the step that is gathered among them."""
        self._order: Curriculum | Mixture | None = None
        self._wanted: Counter[str] = Counter()
        """Rows of each source that the step drew at first."""
        self._kept: Counter[str] = Counter()
        """Of those, and of what was drawn in their place, how many teach something."""
        self._recalled = False
        """Whether rollouts of the step that is gathered came from the journal."""
        self._staleness = 0
        self._ahead: DrawsAhead | None = None
        if config.draws_ahead and isinstance(sampler, AheadSampler):
            self._staleness = config.buffer.max_staleness
            keep = (lambda *_: None) if journal is None else journal.write_ahead
            self._ahead = DrawsAhead(sampler, config.group_k, keep=keep)
        self._coming: dict[int, _Rows] = {}
        """By step, rows that were drawn ahead or are in the journal."""
        self._served = state.version
        """Version of the weights that draw ahead."""
        self._of_ahead: dict[str, float] = {}
        self.buffer = RolloutBuffer(
            capacity=config.tasks_per_step,
            max_staleness=config.buffer.max_staleness,
            max_reads=config.buffer.max_reads,
            version=state.version,
        )

    def gather(self, step: int, train: Sequence[Question]) -> Batch:
        """Raises Aborted while sampling or judging."""
        before = self.buffer.totals()
        self.buffer.advance(self._state.version)
        self._recalled, self._of_ahead = False, {}
        sampled = self._sample_missing(step, train)
        if sampled:
            if self._journal is not None and not self._recalled:
                self._journal.write(step, sampled)
            self._observer.sampled(step, sampled, recalled=self._recalled)
        waiting = min(self._config.tasks_per_step, len(self.buffer))
        popped = [self.buffer.pop(timeout_s=0) for _ in range(waiting)]
        after = self.buffer.totals()
        self._draw_ahead(step, train)
        return Batch(
            groups=[group for group in popped if group is not None],
            sampled=sampled,
            fates={fate: after[fate] - before[fate] for fate in FATES},
            ahead=self._of_ahead,
        )

    def settle(self) -> None:
        """Wait until nothing is drawn ahead: somebody else asks the sampler. Raises what drawing
        raised.
        """
        if self._ahead is not None:
            self._ahead.settle()

    def close(self) -> None:
        """Draw no further."""
        if self._ahead is not None:
            self._ahead.close()

    def waiting(self) -> list[dict[str, Any]]:
        """Groups with reads left, by where the journal holds them; `restore` takes them back."""
        return [
            {
                "step": entry.group.step,
                "id": entry.group.task.id,
                "draw": entry.group.task.draw,
                "again": entry.group.task.again,
                "version": entry.group.version,
                "reads_left": entry.reads_left,
            }
            for entry in self.buffer.entries
        ]

    def restore(self, waiting: Sequence[Mapping[str, Any]], train: Sequence[Question]) -> None:
        """Put groups of earlier attempts back; those the journal has lost are left out."""
        rows = {question.id: question for question in train}
        entries: list[Entry] = []
        for kept in waiting:
            again = kept.get("again", 0)  # states of older versions say nothing of it
            task = rows[kept["id"]].but(draw=kept["draw"], again=again)
            found = self._recall(kept["step"], [task], kept["version"])
            if found is not None:
                [group] = self._judged(kept["step"], [kept["version"]], [task], found)
                entries.append(Entry(group, kept["reads_left"], read=True))
        self.buffer.restore(entries)

    def _sample_missing(self, step: int, train: Sequence[Question]) -> list[JudgedGroup]:
        objective = self._config.objective
        zero_signal = objective.zero_signal_used
        rounds = 1 + (objective.refill_max if zero_signal == "refill" else 0)
        sampled: list[JudgedGroup] = []
        for round_ in range(rounds):
            missing = self._config.tasks_per_step - len(self.buffer)
            tasks = self._draw(step, train, round_, missing, sampled)
            if not tasks:
                break
            groups = self._sample(step, tasks)
            sampled += groups
            for group in groups:
                if self._sort_in(group, keep_all=zero_signal == "keep"):
                    self._kept[group.task.source] += 1
        return sampled

    def _draw(
        self,
        step: int,
        train: Sequence[Question],
        round_: int,
        missing: int,
        sampled: Sequence[JudgedGroup],
    ) -> Sequence[Question]:
        if missing <= 0:
            return []
        draw = self._state.samplings
        if round_ == 0:
            return self._first_rows(step, train, missing, draw)
        return more_prompts(
            self._curriculum(train).stand_ins(self.drawn or 0, missing),
            count=missing,
            without={group.task.id for group in sampled},
            draw=draw,
            round_=round_,
            seed=self._config.seed,
            sources=self._sources_missing(missing),
        )

    def _sources_missing(self, missing: int) -> Mapping[str, int]:
        """How many rows of each source the step still lacks, of those that it drew at first."""
        if len(self._wanted) == 1:
            return dict.fromkeys(self._wanted, missing)
        return self._wanted - self._kept

    def _curriculum(self, train: Sequence[Question]) -> Curriculum | Mixture:
        if self._order is None:
            data, seed = self._config.data, self._config.seed
            self._order = curriculum_of(train, data, seed, data.weights)
        return self._order

    def _first_rows(
        self, step: int, train: Sequence[Question], count: int, draw: int
    ) -> Sequence[Question]:
        """Of the curriculum. As many as are missing, so that no row of an epoch is passed over."""
        rows = self._coming.pop(step, None) or self._next_rows(train, self.drawn, count, draw)
        self.drawn = rows.drawn
        self._wanted, self._kept = Counter(row.source for row in rows.tasks), Counter()
        return rows.tasks

    def _next_rows(
        self, train: Sequence[Question], drawn: int | None, count: int, draw: int
    ) -> _Rows:
        """The curriculum's rows behind those that it has given."""
        curriculum = self._curriculum(train)
        if drawn is None:
            drawn = curriculum.drawn_by(draw, self._config.tasks_per_step)
        rows = curriculum.draw(drawn, count, draw=draw)
        return _Rows(rows, drawn + len(rows))

    def _draw_ahead(self, step: int, train: Sequence[Question]) -> None:
        """Give the rows of coming steps to who draws, as far as the weights that draw are not too
        old for them. No weight moves before this returns.
        """
        ahead, drawn = self._ahead, self.drawn
        if ahead is None:
            return
        last = min(step + self._staleness, self._config.max_steps)
        for coming in range(step + 1, last + 1):
            if coming not in self._coming:
                draw = self._state.samplings + coming - step
                count = self._config.tasks_per_step
                self._coming[coming] = self._next_rows(train, drawn, count, draw)
            rows = self._coming[coming]
            drawn = rows.drawn
            if not (ahead.has(coming) or self._is_known(coming, rows.tasks)):
                version = self._state.version if ahead.idle else self._served
                # Each step in between may move the weights.
                if version < coming - 1 - self._staleness:
                    return
                self._give(ahead, coming, rows.tasks)

    def _give(self, ahead: DrawsAhead, coming: int, tasks: Sequence[Question]) -> None:
        assert isinstance(self._sampler, AheadSampler)
        if ahead.idle:
            self._served = self._sampler.bring()
        ahead.give(Given(coming, tasks, self._served))

    def _is_known(self, coming: int, tasks: Sequence[Question]) -> bool:
        """Whether an attempt before this one has drawn it."""
        newest = coming - 1
        return (
            self._recall(coming, tasks, newest) is not None
            or self._recall_ahead(coming, tasks, newest) is not None
        )

    def _sample(self, step: int, tasks: Sequence[Question]) -> list[JudgedGroup]:
        """k judged rollouts of each task: from the journal, drawn before, or sampled now."""
        version = self._state.version
        self._observer.phase("sampling", step)
        drawn = None if self._ahead is None else self._ahead.take(step)
        found = self._recall(step, tasks, version) if drawn is None else None
        if found is None:
            groups = self._drawn_before(step, tasks, drawn)
            if groups is None:
                self.settle()
                groups = self._sampler(tasks, self._config.group_k)
            self._observer.judging()
            found = Recalled(groups, self._judge(step, tasks, groups))
        else:
            self._recalled = True
        versions = [version] * len(tasks)
        if self._ahead is not None:
            versions = [group[0].version for group in found.groups]
        return self._judged(step, versions, tasks, found)

    def _drawn_before(
        self, step: int, tasks: Sequence[Question], drawn: Drawn | None
    ) -> Groups | None:
        """Drawn ahead by this attempt or by one before it, and held against the trainer's model."""
        if drawn is not None:
            self._of_ahead["time/ahead_s"] = drawn.seconds
            return self._verified(drawn.groups)
        if self._ahead is None:
            return None
        groups = self._recall_ahead(step, tasks, self._state.version)
        try:
            return None if groups is None else self._verified(groups)
        except SamplerContradicted:
            # The weights that drew it may be gone, and those of now be far from them.
            return None

    def _verified(self, groups: Groups) -> Groups:
        assert isinstance(self._sampler, AheadSampler)
        self._of_ahead["rollout/sampler_gap"] = self._sampler.verify(groups)
        self._of_ahead["rollout/staleness"] = self._state.version - groups[0][0].version
        return groups

    def _recall(self, step: int, tasks: Sequence[Question], version: int) -> Recalled | None:
        if self._journal is None:
            return None
        k, oldest = self._config.group_k, version - self._staleness
        return self._journal.recall(step, tasks, k, version, oldest=oldest)

    def _recall_ahead(self, step: int, tasks: Sequence[Question], version: int) -> Groups | None:
        if self._journal is None:
            return None
        k, oldest = self._config.group_k, version - self._staleness
        return self._journal.recall_ahead(step, tasks, k, version, oldest)

    def _judge(self, step: int, tasks: Sequence[Question], groups: Groups) -> list[list[Verdict]]:
        """Group by group, or all completions in one call where the reward wants it so."""
        reward = self._reward.at(step)
        asked = [[(t, r) for r in group] for t, group in zip(tasks, groups, strict=True)]
        calls = [[pair for pairs in asked for pair in pairs]] if reward.batched else asked
        found: list[Verdict] = []
        for pairs in calls:
            check_abort()
            found += reward.judge_all(
                [case_of(task, rollout, step - 1) for task, rollout in pairs],
                [rollout.truncated for _, rollout in pairs],
            )
        verdicts = iter(found)
        return [list(islice(verdicts, len(group))) for group in groups]

    def _judged(
        self, step: int, versions: Sequence[int], tasks: Sequence[Question], found: Recalled
    ) -> list[JudgedGroup]:
        rewards_PG = [
            [v.reward if v.judged else None for v in verdicts_G] for verdicts_G in found.verdicts
        ]
        limit = self._config.max_new_tokens
        advantages_PG = step_advantages(rewards_PG, found.groups, self._config.objective, limit)
        rows = zip(tasks, found.groups, found.verdicts, advantages_PG, versions, strict=True)
        return [JudgedGroup(*row, step=step) for row in rows]

    def _sort_in(self, group: JudgedGroup, *, keep_all: bool) -> bool:
        """Into the buffer, unless none of it was judged or it teaches nothing."""
        if not any(v.judged for v in group.verdicts):
            self.buffer.discard(group, "failed")
        elif not keep_all and not has_signal(group.advantages):
            self.buffer.discard(group, "filtered")
        else:
            return self.buffer.put(group, timeout_s=0)
        return False


def batch_metrics(
    batch: Batch, success: Callable[[Verdict], bool], *, formed: bool = False
) -> dict[str, float]:
    """What a step's rollouts look like, before anything is trained on them.

    What broke counts as 0; what was not judged is in no mean, and without any other there is none.
    `formed`: whether an answer of the run had one of the known forms before, so that its absence is
    measured too.
    """
    verdicts = [verdict for group in batch.measured for verdict in group.verdicts]
    counted = [verdict for verdict in verdicts if verdict.counted]
    rewards = [verdict.reward for verdict in counted]
    groups = [group.rollouts for group in batch.measured]
    means = (
        {
            "pool/reward_mean": statistics.fmean(rewards),
            "pool/strict_mean": statistics.fmean(verdict.strict for verdict in counted),
            "pool/reward_std": statistics.pstdev(rewards),
        }
        if counted
        else {}
    )
    return {
        **means,
        **{f"pool/{name}": share for name, share in Soundness.of(verdicts).shares().items()},
        **told(verdicts),
        **_by_source(batch.sampled, success),
        **_forms(batch.measured, success, formed=formed),
        "rollout/zero_variance": statistics.fmean(
            float(tied(group.rewards)) for group in batch.measured
        ),
        "rollout/repeated": statistics.fmean(
            float(repeats_itself(rollout.completion_ids)) for group in groups for rollout in group
        ),
        **measures(groups),
        **batch.ahead,
    }


def _by_source(
    sampled: Sequence[JudgedGroup], success: Callable[[Verdict], bool]
) -> dict[str, float]:
    """`pool/score/NAME` of each source of a mixture that the step sampled."""
    solved: dict[str, list[bool]] = {}
    for group in sampled:
        if group.task.source:
            right = [success(verdict) for verdict in group.verdicts if verdict.counted]
            solved.setdefault(group.task.source, []).extend(right)
    return {f"pool/score/{name}": statistics.fmean(all_) for name, all_ in solved.items() if all_}


def _forms(
    groups: Sequence[JudgedGroup], success: Callable[[Verdict], bool], *, formed: bool
) -> dict[str, float]:
    """How completions end and in which forms answers are written: cut off, unread, `format/boxed`;
    each of all, and among right and wrong ones.
    """
    judged = [pair for g in groups for pair in zip(g.rollouts, g.verdicts, strict=True)]
    right = [success(verdict) if verdict.counted else None for _, verdict in judged]
    unread = [verdict.reason is Reason.UNPARSED for _, verdict in judged]
    return {
        **shares_of("rollout/truncated", [rollout.truncated for rollout, _ in judged], right),
        **shares_of("pool/unparsed", unread, right),
        **_lengths([len(rollout.completion_ids) for rollout, _ in judged], right),
        **form_shares([rollout.text for rollout, _ in judged], right, seen=formed),
    }


def _lengths(tokens: Sequence[int], right: Sequence[bool | None]) -> dict[str, float]:
    """Mean length, in tokens, of right and of wrong answers; none of nobody."""
    sides = {
        side: [n for n, one in zip(tokens, right, strict=True) if one is solved]
        for side, solved in (("right", True), ("wrong", False))
    }
    return {
        f"rollout/length_mean/{side}": statistics.fmean(ones)
        for side, ones in sides.items()
        if ones
    }
