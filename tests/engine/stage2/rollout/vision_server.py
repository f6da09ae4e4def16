"""A server of a Qwen3-VL with pictures, on vLLM's routes and on ms-swift's.

Transformers answers, by one plain forward pass a token, from weights that are its own and are sent
to it as to vLLM.
"""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import torch
from fastapi import FastAPI
from fastapi.responses import JSONResponse
from PIL import Image

from engine.models.qwen3_vl import load
from tests.engine.sampling.vllm.weight_server import WeightServer


class VisionServer(WeightServer):
    """`asked` holds the bodies of its chat route; `stale_tower` leaves out what pictures pass;
    `tells`: whether ms-swift's route has log-probabilities.
    """

    window = 400

    def __init__(self, base: Path, port: int) -> None:
        self.asked: list[dict[str, Any]] = []
        self.stale_tower = False
        self.tells = True
        super().__init__(base, port)

    def load(self) -> None:
        """Take over what came."""
        if self.stale_tower:
            self._came = {n: w for n, w in self._came.items() if "visual" not in n}
        super().load()

    def _read(self, base: Path) -> Any:
        self.vlm = load(str(base), dtype="float32", attn_implementation="sdpa")
        return self.vlm.model.eval()

    def _app(self) -> FastAPI:
        app = super()._app()

        @app.get("/version")
        def version() -> dict[str, str]:
            return {"version": "0.32.0+standin"}

        @app.post("/v1/chat/completions")
        def chat(body: dict[str, Any]) -> JSONResponse:
            self.asked.append(body)
            ids, seen = self._prompt(body["messages"])
            choice = self._drawn(body, ids, seen)
            told = {"model": body["model"], "prompt_token_ids": ids, "choices": [choice]}
            return JSONResponse(told)

        @app.post("/infer/")
        def infer(body: dict[str, Any]) -> JSONResponse:
            return JSONResponse([self._inferred(one, body) for one in body["infer_requests"]])

        self._swift_routes(app)
        return app

    # --- as a weight group of ms-swift's ---

    def broadcast(self, flat: torch.Tensor) -> None:
        """What its workers hear of one bucket."""
        for one in self._told:
            part = flat[one["start_idx"] : one["end_idx"]]
            self._came[one["name"]] = part.view(one["shape"]).clone()

    def close(self) -> None:
        """Nothing to leave."""

    def _swift_routes(self, app: FastAPI) -> None:
        self._told: list[dict[str, Any]] = []

        @app.get("/health/")
        def healthy() -> dict[str, str]:
            return {"status": "ok"}

        @app.get("/get_world_size/")
        def world_size() -> dict[str, int]:
            return {"world_size": 1}

        @app.post("/update_flattened_params/")
        def update(body: dict[str, Any]) -> dict[str, str]:
            self._told = body["metadatas"]
            return {"message": "Request received"}

        @app.post("/process_weights_after_loading/")
        def process() -> dict[str, str]:
            self.load()
            return {"message": "done"}

        for verb in ("init_communicator", "reset_prefix_cache", "close_communicator"):
            app.post(f"/{verb}/")(lambda: {"message": "True"})

    def _inferred(self, asked: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
        """By ms-swift's route: pictures beside the conversation, nothing forbidden."""
        pictures = iter(asked["images"])
        turns = [
            turn | {"content": [_url(part, pictures) for part in turn["content"]]}
            for turn in asked["messages"]
        ]
        ids, seen = self._prompt(turns)
        config = body["request_config"]
        ends = self.vlm.tokenizer.convert_tokens_to_ids(config["stop"])
        drawn = self._drawn({**config, "stop_token_ids": ends}, ids, seen)
        if not self.tells:
            del drawn["logprobs"]
        return {"response": {"prompt_token_ids": ids, "choices": [drawn]}}

    def _prompt(self, messages: list[dict[str, Any]]) -> tuple[list[int], dict[str, Any]]:
        """As its own template and image processor have it."""
        urls = [part["image_url"]["url"] for turn in messages for part in _pictures(turn)]
        images = [Image.open(io.BytesIO(base64.b64decode(url.split(",")[1]))) for url in urls]
        seen = dict(self.vlm.image_processor(images=images, return_tensors="pt"))
        turns = [turn | {"content": [_part(one) for one in turn["content"]]} for turn in messages]
        plain = self.vlm.tokenizer.apply_chat_template(
            turns, add_generation_prompt=True, return_dict=False
        )
        sizes = iter((seen["image_grid_thw"].prod(-1) // self.vlm.merge_area).tolist())
        ids: list[int] = []
        for token in plain:
            ids += [token] * (next(sizes) if token == self.vlm.image_token_id else 1)
        return ids, seen

    @torch.inference_mode()
    def _drawn(
        self, body: dict[str, Any], prompt: list[int], seen: dict[str, Any]
    ) -> dict[str, Any]:
        generator = torch.Generator().manual_seed(body["seed"])
        ids = list(prompt)
        told: list[dict[str, Any]] = []
        while len(told) < body["max_tokens"] and not set(ids[len(prompt) :]) & set(
            body["stop_token_ids"]
        ):
            row = torch.tensor([ids])
            types = (row == self.vlm.image_token_id).int()
            logits = self.model(
                input_ids=row, mm_token_type_ids=types, use_cache=False, **seen
            ).logits[0, -1]
            self.vlm.core.rope_deltas = None
            for token, bias in (body.get("logit_bias") or {}).items():
                logits[int(token)] += bias
            log_p = (logits / (body["temperature"] or 1.0)).log_softmax(-1)
            greedy = body["temperature"] == 0
            drawn = log_p.argmax() if greedy else log_p.exp().multinomial(1, generator=generator)
            ids.append(int(drawn))
            told.append({"logprob": float(log_p[ids[-1]]), "top_logprobs": []})
        new = ids[len(prompt) :]
        words = [token for token in new if token not in body["stop_token_ids"]]
        return {
            "index": 0,
            "token_ids": new,
            "message": {"content": self.vlm.tokenizer.decode(words)},
            "logprobs": {"content": told},
        }


def _pictures(turn: dict[str, Any]) -> list[dict[str, Any]]:
    return [part for part in turn["content"] if part["type"] == "image_url"]


def _part(part: dict[str, Any]) -> dict[str, Any]:
    return {"type": "image"} if part["type"] == "image_url" else part


def _url(part: dict[str, Any], pictures: Any) -> dict[str, Any]:
    if part["type"] != "image":
        return part
    return {"type": "image_url", "image_url": {"url": next(pictures)}}
