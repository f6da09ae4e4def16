"""What an `rl_run` is asked before it is queued: can its reward functions be imported and called?

Runs in the child process of `python -m engine look`. Whatever else of a config needs torch or a
user's module is one more part here, and its settings one more line of the kind's `asks`.
"""

from __future__ import annotations

from engine.contract.errors import RLLoopError
from engine.contract.kinds.rl_run import RLRunConfig
from engine.contract.look import Looked
from engine.rewards.adapter import load_verifier
from engine.rewards.imported import files_of


def look(config: RLRunConfig) -> Looked:
    """Every part's findings."""
    return _rewards(config)


def _rewards(config: RLRunConfig) -> Looked:
    if ":" not in config.verifier:
        return Looked()
    module = config.verifier.partition(":")[0]
    try:
        load_verifier(config.verifier)
    except RLLoopError as error:
        return Looked(error.problems, files=files_of(module))
    return Looked(files=files_of(module))
