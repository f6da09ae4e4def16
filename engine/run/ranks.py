"""Ranks: how the learners of one run share its work, and agree.

Each rank learns its own segments and the gradients are added up once an update, so ranks may have
unequal numbers of packs, or none, without anybody waiting. One process is a run of one rank.
Knows no model.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist

from engine.contract.errors import ConfigError, ConfigProblem
from engine.contract.ranks import RENDEZVOUS
from engine.run.launch import RankLostError
from engine.run.stop import Aborted, Collapsed

Item = TypeVar("Item")

_BUCKET = 2**24
"""Numbers sent at once; bounds the memory that adding up needs beside the gradients."""


def share(total: int, rank: int, size: int) -> int:
    """Rollouts of one rank: total // size, and one more on the first total % size ranks.

    >>> [share(7, rank, 3) for rank in range(3)]
    [3, 2, 2]
    """
    return total // size + (rank < total % size)


@dataclass(frozen=True)
class Ranks:
    """This process among its equals."""

    rank: int = 0
    size: int = 1

    @classmethod
    def current(cls) -> Ranks:
        """As the process group says; alone without one."""
        if dist.is_available() and dist.is_initialized():
            return cls(dist.get_rank(), dist.get_world_size())
        return cls()

    @classmethod
    def join(cls, timeout_s: float, threads: int | None = None) -> Ranks:
        """Meet the others that the engine or `torchrun` started; alone without them.

        A rank that hears nothing of the others for so long gives up. `threads`: of torch on a CPU;
        by default each rank has its share of the cores. Raises ConfigError where there are fewer
        devices than ranks.
        """
        size = int(os.environ.get("WORLD_SIZE", "1"))
        torch.set_num_threads(threads or max(1, (os.cpu_count() or 1) // size))
        if size > 1 and not dist.is_initialized():
            if torch.cuda.is_available():
                _take_device()
            meeting = os.environ.get(RENDEZVOUS)
            dist.init_process_group(
                # what is told and agreed on goes by gloo: it waits without a device
                "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo",
                init_method=f"file://{meeting}" if meeting else "env://",
                rank=int(os.environ["RANK"]),
                world_size=size,
                timeout=datetime.timedelta(seconds=timeout_s),
            )
        return cls.current()

    @property
    def is_first(self) -> bool:
        """The rank that writes files and events."""
        return self.rank == 0

    def share(self, total: int) -> int:
        return share(total, self.rank, self.size)

    def any(self, flag: bool) -> bool:
        """Whether any rank says so; every rank gets the same answer."""
        return any(self.gather([flag]))

    def gather(self, mine: list[Item]) -> list[Item]:
        """Everybody's items in the order of the ranks."""
        if self.size == 1:
            return mine
        found: list[Any] = [None] * self.size
        with self.together():
            dist.all_gather_object(found, mine)
        return [item for items in found for item in items]

    def wait(self) -> None:
        """Until every rank is here."""
        self.gather([None])

    def first_alone(self, make: Callable[[], Item]) -> Item:
        """What is kept on disk is made by the first rank and found there by the others."""
        if not self.is_first:
            self.wait()
        made = make()
        if self.is_first:
            self.wait()
        return made

    def part(self, items: Sequence[Item]) -> Sequence[Item]:
        """This rank's stretch, in the order of the ranks."""
        return items[
            len(items) * self.rank // self.size : len(items) * (self.rank + 1) // self.size
        ]

    def from_first(self, make: Callable[[], Item]) -> Item:
        """What the first rank makes, on every rank."""
        if self.size == 1:
            return make()
        held: list[Any] = [make() if self.is_first else None]
        with self.together():
            dist.broadcast_object_list(held)
        return cast("Item", held[0])

    @contextmanager
    def stopping_together(self) -> Iterator[None]:
        """A stop that one of them heard inside, all raise at the end: nobody waits for who left."""
        heard: Aborted | Collapsed | None = None
        try:
            yield
        except (Aborted, Collapsed) as stop:
            heard = stop
        if self.any(heard is not None):
            raise heard or Aborted

    @contextmanager
    def together(self) -> Iterator[None]:
        """What a lost rank does to the others, in one line."""
        try:
            yield
        except RuntimeError as error:
            if not _is_of_the_others(error):
                raise
            reason = next(iter(str(error).splitlines()), type(error).__name__)
            raise RankLostError(
                f"rank {self.rank} of {self.size} lost the others: {reason}; "
                "see their logs, then start the run again: it resumes"
            ) from error

    def average_gradients(self, parameters: Iterable[torch.nn.Parameter], samples: int) -> int:
        """Add everybody's gradients up and divide by everybody's samples; how many those were."""
        trained = list(parameters)
        total = sum(self.gather([samples]))
        self.add_gradients(trained)
        for parameter in trained:
            if parameter.grad is not None:
                parameter.grad.div_(max(total, 1))
        return total

    def add_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Everybody's gradients in everybody's parameters.

        A parameter that got no gradient here counts 0, and gets none when nobody had one.
        """
        trained = [p for p in parameters if p.requires_grad]
        if self.size > 1:
            with self.together():
                had = self._who_had_one(trained)
                for bucket in _buckets([p for p, one in zip(trained, had, strict=True) if one]):
                    _add_up(bucket)

    def _who_had_one(self, parameters: list[torch.nn.Parameter]) -> list[bool]:
        mine = torch.tensor([p.grad is not None for p in parameters], dtype=torch.int32)
        dist.all_reduce(mine, op=dist.ReduceOp.MAX)
        return [bool(one) for one in mine.tolist()]

    def share_weights(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """The first rank's weights on every rank."""
        if self.size > 1:
            with self.together(), torch.no_grad():
                for parameter in parameters:
                    dist.broadcast(parameter.data, src=0)


def _take_device() -> None:
    """Rank r learns on device r of those that it is shown. Raises ConfigError for too few."""
    local, size = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
    there = torch.cuda.device_count()
    if size > there:
        problem = f"wants a device for each, and the lane shows {there}"
        remedy = "lower ranks, or show the run more of them (CUDA_VISIBLE_DEVICES)"
        raise ConfigError([ConfigProblem("ranks", size, problem, remedy)])
    torch.cuda.set_device(local)


def _is_of_the_others(error: RuntimeError) -> bool:
    """Whether it says that they are not heard any more, and is no failure of this rank's own."""
    return isinstance(error, dist.DistError) or "gloo" in str(error).lower()


def _buckets(parameters: list[torch.nn.Parameter]) -> Iterable[list[torch.nn.Parameter]]:
    """Neighbours of one type and device, up to the size of a bucket."""
    bucket: list[torch.nn.Parameter] = []
    room = 0
    for parameter in parameters:
        alike = bucket and bucket[0].dtype == parameter.dtype
        if bucket and (not alike or parameter.numel() > room):
            yield bucket
            bucket = []
        if not bucket:
            room = _BUCKET
        bucket.append(parameter)
        room -= parameter.numel()
    if bucket:
        yield bucket


def _add_up(parameters: list[torch.nn.Parameter]) -> None:
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    flat = torch.cat([p.grad.reshape(-1) for p in parameters if p.grad is not None])
    dist.all_reduce(flat)
    start = 0
    for parameter in parameters:
        assert parameter.grad is not None
        end = start + parameter.numel()
        parameter.grad.copy_(flat[start:end].view_as(parameter.grad))
        start = end
