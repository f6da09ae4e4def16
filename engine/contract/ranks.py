"""Learner processes of one run: the setting that kinds share, and what each process is told.

Rank r learns on device r of those that the lane shows, or on the processor with all others. Starts
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from engine.contract.errors import ConfigProblem
from engine.contract.served import VLLMConfig

MOST_RANKS = 64
RankCount = Annotated[int, Field(ge=1, le=MOST_RANKS)]
"""The type of the setting `ranks`."""

RENDEZVOUS = "NIGHTLANE_RENDEZVOUS"
"""Environment of a rank that an engine started: the file at which all ranks of the run meet."""


def ranks_of(config: Mapping[str, Any]) -> int:
    """Learner processes that a resolved config asks for; one of a kind that has no such setting."""
    asked = config.get("ranks", 1)
    return asked if isinstance(asked, int) else 1


def ranked_serving_problems(
    vllm: VLLMConfig, ranks: int, where: str, *, sends_adapters: bool
) -> Sequence[ConfigProblem]:
    """What several learner ranks cannot ask of servers; `where`: path of the section `vllm`."""
    if ranks < 2:
        return []
    if vllm.mode == "colocate":
        problem = f"shares one device with the learner, and there are {ranks} learner ranks"
        return [
            ConfigProblem(f"{where}.mode", "colocate", problem, "set mode: server, or ranks: 1")
        ]
    if sends_adapters:
        problem = f"syncs an adapter, which {ranks} learner ranks cannot do safely"
        remedy = "set sync.mode: full"
        return [ConfigProblem(f"{where}.sync.mode", vllm.sync.mode, problem, remedy)]
    return []
