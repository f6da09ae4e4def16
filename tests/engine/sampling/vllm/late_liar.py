"""The stand-in, which begins to lie once it was sent so many adapters.

LIES_AFTER: adapters, the one that it starts with included. LIES_AT: the temperature of the requests
that it lies to; its answers to the proof of a sync are true. What it says of every token is as far
off as if another model had drawn it.
"""

from __future__ import annotations

import os
from typing import Any

from tests.engine.sampling.vllm import stand_in

NATS = 3.5


class Liar(stand_in.Served):
    """Answers with the right tokens and wrong numbers."""

    loads = 0

    def load(self, name: str, folder: str) -> None:
        super().load(name, folder)
        self.loads += 1

    def draw(self, model: Any, body: dict[str, Any]) -> list[dict[str, Any]]:
        choices = super().draw(model, body)
        is_probe = body["logprobs"] > 0
        if is_probe or self.loads < int(os.environ["LIES_AFTER"]):
            return choices
        if body["temperature"] == float(os.environ["LIES_AT"]):
            for choice in choices:
                said = choice["logprobs"]
                said["token_logprobs"] = [value - NATS for value in said["token_logprobs"]]
        return choices


if __name__ == "__main__":
    stand_in.Served = Liar  # type: ignore[misc]
    stand_in.main()
