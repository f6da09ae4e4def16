"""Prompts as ms-swift writes them: by the template that the run was started with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.contract.sources.records import Record
from engine.stage2.rollout.prompts import Conversation, Pictures, Prompt, PromptReader
from engine.stage2.rollout.reading import Reading


@dataclass(frozen=True)
class TemplateReader(PromptReader):
    """`template`, `system` and picture limits are ms-swift's; nothing of an answer is encoded."""

    template: Any = None
    """In a mode that ends where an answer begins."""

    def __call__(self, record: Record) -> Prompt:
        """Raises what the template raises, above all for a prompt longer than `max_length`."""
        turns = [dict(turn) for turn in record.messages]
        images = [str(path) for path in record.images]
        made = self.template.encode({"messages": turns, "images": images})
        pictures = Pictures(made["pixel_values"], made["image_grid_thw"])
        asked = Conversation(tuple(record.messages), record.images, record.where)
        # The template has read them already.
        reading = Reading(lambda: pictures, pictures.pixel_values.nbytes)
        return Prompt(tuple(made["input_ids"]), reading, asked)
