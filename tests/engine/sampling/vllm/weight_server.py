"""A server with vLLM's weight routes that really loads what it finds in the shared memory; and
those that only say so.

In a thread of the tests: Transformers answers, from weights that are its own.
"""

from __future__ import annotations

import hashlib
import re
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import torch
import uvicorn
from fastapi import FastAPI
from fastapi.responses import JSONResponse
from transformers import AutoModelForCausalLM

from engine.contract.serving import Serving
from tests.deadline import eventually

Lie = Literal["nothing loaded", "half loaded", "loaded the second time", "keeps its caches"]


class WeightServer:
    """`with WeightServer(base, port) as server:`; `lie` may be changed while it runs."""

    window = 120

    def __init__(self, base: Path, port: int) -> None:
        self.base = base
        self.serving = Serving(url=f"http://127.0.0.1:{port}/v1", timeout_s=20)
        self.lie: Lie | None = None
        self.calls: list[str] = []
        """Weight routes, in the order of their calls."""
        self.version = "default"
        self.active = False
        self.model: Any = self._read(base)
        self._memory = torch.empty(0)
        self._came: dict[str, torch.Tensor] = {}
        settings = uvicorn.Config(self._app(), host="127.0.0.1", port=port, log_level="warning")
        self._server = uvicorn.Server(settings)
        self._thread = threading.Thread(target=self._server.run)

    def __enter__(self) -> Self:
        self._thread.start()
        eventually(lambda: self._server.started, "it listens")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.should_exit = True
        self._thread.join()

    # --- what its routes do ---

    def _read(self, base: Path) -> Any:
        return AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)

    def load(self) -> None:
        """Take over what came, as a checkpoint: a tied head has no weights of its own."""
        came = list(self._came.items())
        if self.lie == "half loaded":
            came = came[: len(came) // 2]
        if self.lie == "nothing loaded":
            came = []
        if self.lie == "loaded the second time":
            self.lie, came = None, []
        self.model.load_state_dict(dict(came), strict=False)
        self._came = {}

    def take(self, info: dict[str, Any]) -> None:
        """One bucketful, copied out."""
        for name, dtype, shape, first in info["pieces"]:
            kind = getattr(torch, dtype)
            size = torch.Size(shape).numel() * kind.itemsize
            piece = self._memory[first : first + size].view(kind).view(shape)
            self._came[name] = piece.clone()

    @torch.inference_mode()
    def _choice(self, body: dict[str, Any]) -> dict[str, Any]:
        logits = self.model(input_ids=torch.tensor([body["prompt"]])).logits[0, -1]
        log_p = torch.log_softmax(logits / body["temperature"], -1)
        values, ids = log_p.topk(body["logprobs"] or 1)
        top = {f"token_id:{t}": v for t, v in zip(ids.tolist(), values.tolist(), strict=True)}
        logprobs = {"token_logprobs": [values[0].item()], "top_logprobs": [top]}
        drawn = {"prompt_token_ids": body["prompt"], "token_ids": [int(ids[0])]}
        return {"index": 0, "finish_reason": "length", **drawn, "logprobs": logprobs}

    def _app(self) -> FastAPI:  # noqa: C901 - a route each
        app = FastAPI()
        card = {"id": str(self.base), "root": str(self.base), "max_model_len": self.window}

        @app.middleware("http")
        async def note(request: Any, call_next: Any) -> Any:
            self.calls.append(request.url.path.removeprefix("/"))
            return await call_next(request)

        @app.get("/health")
        def health() -> dict[str, str]:
            return {}

        @app.get("/v1/models")
        def models() -> dict[str, Any]:
            return {"data": [card | {"parent": None}]}

        @app.post("/v1/completions")
        def complete(body: dict[str, Any]) -> dict[str, Any]:
            return {"model": body["model"], "choices": [self._choice(body)]}

        @app.post("/init_weight_transfer_engine")
        def init(body: dict[str, Any]) -> None:
            path = Path(body["init_info"]["path"])
            size = path.stat().st_size
            self._memory = torch.from_file(str(path), shared=True, size=size, dtype=torch.uint8)

        @app.post("/start_weight_update")
        def start() -> JSONResponse:
            if self.active:
                return _refused("start_weight_update called while … is already active")
            self.active = True
            return JSONResponse({})

        @app.post("/update_weights")
        def update(body: dict[str, Any]) -> JSONResponse:
            if "pieces" not in body["update_info"]:
                self.active = False
                return _refused("Invalid update_info")
            self.take(body["update_info"])
            return JSONResponse({})

        @app.post("/finish_weight_update")
        def finish(body: dict[str, Any]) -> None:
            self.active = False
            self.load()
            self.version = body["weight_version"]

        @app.get("/weight_info")
        def info() -> dict[str, str]:
            return {"weight_version": self.version}

        @app.post("/reset_prefix_cache")
        def reset() -> dict[str, bool]:
            return {"success": self.lie != "keeps its caches"}

        @app.post("/reset_encoder_cache")
        def reset_encoder() -> None: ...

        @app.post("/weight_checker")
        def checksums() -> dict[str, Any]:
            return {"checksums": {f"tp0:{n}": _digest(p) for n, p in self._fused().items()}}

        return app

    def _fused(self) -> dict[str, torch.Tensor]:
        """The parameters as vLLM keeps them."""
        parts: dict[str, list[torch.Tensor]] = {}
        for name, parameter in self.model.named_parameters():
            fused = re.sub(r"\b[qkv]_proj", "qkv_proj", name)
            fused = re.sub(r"\b(gate|up)_proj", "gate_up_proj", fused)
            parts.setdefault(fused, []).append(parameter)
        return {name: torch.cat(found) for name, found in parts.items()}


def _digest(weight: torch.Tensor) -> str:
    raw = weight.detach().contiguous().view(-1).view(torch.uint8).numpy()
    return hashlib.sha256(raw.data).hexdigest()


def _refused(words: str) -> JSONResponse:
    return JSONResponse({"error": {"message": words}}, status_code=500)
