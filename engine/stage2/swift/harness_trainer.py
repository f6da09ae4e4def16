"""`Stage2Trainer` on ms-swift's own trainer: its data loader, optimizers, callbacks and
checkpoints, and our `training_step`, `evaluate` and `log`.
"""

from __future__ import annotations

from typing import Any

from swift.trainers import Seq2SeqTrainer

from engine.stage2.trainer import Stage2Parts, Stage2Trainer, identity


class SwiftStage2Trainer(Stage2Trainer, Seq2SeqTrainer):
    """What ms-swift's trainer prepares a batch for its model with is never called: `labels`,
    `channel`, `logits_to_keep` and the like have nowhere to come in.
    """

    def __init__(self, *, parts: Stage2Parts, **given: Any) -> None:
        Seq2SeqTrainer.__init__(self, **given)
        self.hold(parts)

    def _get_data_collator(self, args: Any, template: Any) -> Any:  # noqa: ARG002 - its contract
        """The raw samples as they are."""
        return identity
