"""`rollout_matching_sft`: the model's own rollouts, completed (`engine.stage2.matching`)."""

from engine.stage2.run import run

__all__ = ["run"]
