"""`stage2_ab`: soft context and the model's own rollouts (`engine.stage2.alternating`)."""

from engine.stage2.run import run

__all__ = ["run"]
