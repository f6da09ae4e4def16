"""The stand-in, with a switch for what it does when it is sent weights: `POST /lie {"lie": …}`.

loads nothing       says the new folder from then on, and answers by the weights of before
version stands      answers 200 and does nothing at all
another model       loads the adapter onto other weights than those of the base
"""

from __future__ import annotations

from typing import Any

import torch
from fastapi import FastAPI

from tests.engine.sampling.vllm import stand_in


class Lying(stand_in.Served):
    """Honest until told otherwise."""

    lie = ""

    def load(self, name: str, folder: str) -> None:
        if self.lie == "version stands":
            return
        if self.lie == "loads nothing":
            self.adapters[name] = (folder, self.adapters[name][1])
            return
        super().load(name, folder)
        if self.lie == "another model":
            with torch.no_grad():
                for parameter in self.adapters[name][1].parameters():
                    parameter.add_(0.05 * torch.randn(parameter.shape))


honest_app = stand_in.app_of


def app_of(served: Any, window: int) -> FastAPI:
    """The honest routes and the switch."""
    app = honest_app(served, window)

    @app.post("/lie")
    def lie(body: dict[str, str]) -> None:
        served.lie = body["lie"]

    return app


if __name__ == "__main__":
    stand_in.Served = Lying  # type: ignore[misc]
    stand_in.app_of = app_of
    stand_in.main()
