"""What an `eval_rerun` is asked before it is queued: is each checkpoint a model that answers, and
does its adapter fit its base?

Runs in the child process of `python -m engine look`.
"""

from __future__ import annotations

from dataclasses import replace

from engine.contract.kinds.eval_rerun import EvalRerunConfig, asked_of
from engine.contract.look import Looked


def look(config: EvalRerunConfig) -> Looked:
    """Of every checkpoint that asks for it."""
    from engine.models.fitting import tried  # noqa: PLC0415 - seconds, where nothing is asked

    found = Looked()
    for where, one in asked_of(config):
        problems = tried(one.base, one.adapter_init).problems
        found += Looked([replace(problem, field=f"{where}{problem.field}") for problem in problems])
    return found
