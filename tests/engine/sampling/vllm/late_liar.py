"""The stand-in, which begins to lie once it was asked so often.

LIES_AFTER: prompts that it answers truly. LIES_AT: the temperature of the requests that are counted
and lied to; its answers to the proof of a sync are true. What it says of every token is as far
off as if another model had drawn it.
"""

from __future__ import annotations

import os
from typing import Any

from tests.engine.sampling.vllm import stand_in

NATS = 3.5


class Liar(stand_in.Served):
    """Answers with the right tokens and wrong numbers."""

    asked = 0

    def draw(self, model: Any, body: dict[str, Any]) -> list[dict[str, Any]]:
        choices = super().draw(model, body)
        is_probe = body["logprobs"] > 0
        if is_probe or body["temperature"] != float(os.environ["LIES_AT"]):
            return choices
        self.asked += 1
        if self.asked > int(os.environ["LIES_AFTER"]):
            for choice in choices:
                said = choice["logprobs"]
                said["token_logprobs"] = [value - NATS for value in said["token_logprobs"]]
        return choices


if __name__ == "__main__":
    stand_in.Served = Liar  # type: ignore[misc]
    stand_in.main()
