"""The prompt of the run's sampler against lm-evaluation-harness's own, byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.contract.tasks import TASKS
from engine.models.policy import Policy
from tests.engine.evaluate.harness.both import harness_prompts, loaded, own_prompts
from tests.engine.evaluate.harness.written import numbers_of_shots, rows_of


@pytest.mark.requirement("EX-12")
@pytest.mark.parametrize("name", TASKS)
def test_the_prompt_is_the_harness_s_at_every_number_of_shots(
    name: str, chat_policy: Policy, tmp_path: Path
) -> None:
    """Without a chat template, with it, and each with a system prompt."""
    task = TASKS[name]
    rows, pool = rows_of(name)
    parts = loaded(task, rows, pool, tmp_path)

    for shots in numbers_of_shots(name):
        for chat in (False, True):
            for system in ("", "Be brief."):
                ours = own_prompts(task, rows, pool, shots, chat_policy, chat=chat, system=system)
                theirs = harness_prompts(parts, rows, shots, chat_policy, chat=chat, system=system)
                assert ours == theirs, (shots, chat, system)


@pytest.mark.requirement("EX-12")
@pytest.mark.parametrize("name", TASKS)
def test_stops_and_shots_are_those_that_the_harness_reads(
    name: str, chat_policy: Policy, tmp_path: Path
) -> None:
    """Of the installed task files, whatever our table says."""
    task = TASKS[name]
    for part in loaded(task, *rows_of(name), tmp_path):
        config = part.task.config

        assert tuple(config.generation_kwargs["until"]) == tuple(task.stops)
        assert config.generation_kwargs["do_sample"] is False
        assert (config.num_fewshot == 0) == task.ignores_shots
        if task.name != "hendrycks_math":  # 0 there, 4 here
            assert config.num_fewshot == task.usual_shots
        if task.most_shots is not None:
            assert len(part.task.sampler.df) == task.most_shots
