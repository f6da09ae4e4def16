"""The file for `swift sft --external_plugins`: ms-swift then constructs a stage-2 trainer.

It enters one name in ms-swift's register of trainers; no function, class or module of ms-swift's
is replaced.
"""

from __future__ import annotations

from swift.trainers import TrainerFactory

from engine.stage2.swift.construct import stage2_trainer

TrainerFactory.TRAINER_MAPPING["causal_lm"] = f"{stage2_trainer.__module__}.stage2_trainer"
