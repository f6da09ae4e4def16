"""A stand-in for `vllm serve` and for ms-swift's rollout server, over Transformers and PEFT.

    python stand_in.py MODEL --port N --lora-modules NAME=FOLDER …

A real HTTP process with real weights, which starts in seconds; the same routes and options. It
draws with its own random numbers and one forward pass a token, without a cache. `/infer/` answers
by the adapter, with one seed for all requests of a call. VLLM_ALLOW_RUNTIME_LORA_UPDATING switches
its adapter route on, as with vLLM; unset or empty, it must be restarted for other weights.
"""

from __future__ import annotations

import argparse
import os
import threading
import warnings
from pathlib import Path
from typing import Any

import torch
import uvicorn
from fastapi import FastAPI
from fastapi.responses import JSONResponse
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

VERSION = "0.32.0+standin"
DIES_AFTER = int(os.environ.get("DIES_AFTER", "1000000"))
"""Adapters after which the process ends itself when completions are asked for; a proof of the
weights is still answered."""


class Served:
    """The base, and the adapters by name: each with its folder."""

    def __init__(self, base: str) -> None:
        self.base = base
        self.lock = threading.Lock()
        self.tokenizer: Any = AutoTokenizer.from_pretrained(base)
        self.plain = self._load()
        self.adapters: dict[str, tuple[str, Any]] = {}
        self.loads = 0

    def _load(self) -> Any:
        model: Any = AutoModelForCausalLM.from_pretrained(self.base, dtype=torch.float32)
        return model.eval()

    def load(self, name: str, folder: str) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.loads += 1
            self.adapters[name] = (folder, PeftModel.from_pretrained(self._load(), folder).eval())

    @torch.inference_mode()
    def draw(self, model: Any, body: dict[str, Any]) -> list[dict[str, Any]]:
        """n completions with their log-probabilities, each with a generator of its own."""
        n, temp, ends = body["n"], body["temperature"], body["stop_token_ids"]
        generators = [torch.Generator().manual_seed(body["seed"] + i) for i in range(n)]
        rows = torch.tensor([body["prompt"]] * n)
        told = []
        while rows.shape[1] < len(body["prompt"]) + body["max_tokens"]:
            logits = model(input_ids=rows, use_cache=False, logits_to_keep=1).logits[:, -1]
            log_p = torch.log_softmax(logits / (temp or 1.0), -1)
            told.append(log_p)
            drawn = [
                row.argmax()[None]
                if temp == 0
                else torch.multinomial(row.exp(), 1, generator=generator)
                for row, generator in zip(log_p, generators, strict=True)
            ]
            rows = torch.cat([rows, torch.stack(drawn)], dim=1)
            if all(set(row) & set(ends) for row in rows[:, len(body["prompt"]) :].tolist()):
                break
        return [
            self._told(body, rows[i, len(body["prompt"]) :].tolist(), [row[i] for row in told])
            for i in range(n)
        ]

    def _told(
        self, body: dict[str, Any], ids: list[int], log_p: list[torch.Tensor]
    ) -> dict[str, Any]:
        """With its text, without the end token's as vLLM has it."""
        answer = _answer(body, ids, log_p)
        words = [token for token in answer["token_ids"] if token not in body["stop_token_ids"]]
        return answer | {"text": self.tokenizer.decode(words)}

    def infer(self, model: Any, request: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
        """One answer of ms-swift's routes: a conversation in, ids out, no log-probabilities."""
        prompt = self.tokenizer.apply_chat_template(
            request["messages"], add_generation_prompt=True, return_dict=False
        )
        body = {
            "prompt": prompt, "n": 1, **config, "logprobs": 0,
            "stop_token_ids": self.tokenizer.convert_tokens_to_ids(config["stop"]),
        }  # fmt: skip
        [drawn] = self.draw(model, body)
        choice = {"message": {"content": drawn["text"]}, "token_ids": drawn["token_ids"]}
        return {"response": {"prompt_token_ids": prompt, "choices": [choice]}}


def _answer(body: dict[str, Any], ids: list[int], log_p: list[torch.Tensor]) -> dict[str, Any]:
    """A choice, cut behind its end token."""
    ended = [place for place, token in enumerate(ids) if token in body["stop_token_ids"]]
    ids = ids[: ended[0] + 1] if ended else ids
    likely = [row.topk(body["logprobs"] or 1) for row in log_p[: len(ids)]]
    logprobs = {
        "token_logprobs": [row[token].item() for row, token in zip(log_p, ids, strict=False)],
        "top_logprobs": [
            {f"token_id:{t}": v for t, v in zip(i.tolist(), p.tolist(), strict=True)}
            for p, i in likely
        ],
    }
    return {"prompt_token_ids": body["prompt"], "token_ids": ids, "logprobs": logprobs}


def app_of(served: Served, window: int) -> FastAPI:
    """The routes."""
    app = FastAPI()

    @app.get("/health")
    def health() -> JSONResponse:
        return JSONResponse({}, status_code=200)

    @app.get("/version")
    def version() -> dict[str, str]:
        return {"version": VERSION}

    @app.get("/v1/models")
    def models() -> dict[str, Any]:
        base = {"id": served.base, "root": served.base, "parent": None, "max_model_len": window}
        cards = [base]
        for name, (folder, _) in served.adapters.items():
            cards.append({"id": name, "root": folder, "parent": served.base})
        return {"object": "list", "data": cards}

    if os.environ.get("VLLM_ALLOW_RUNTIME_LORA_UPDATING"):

        @app.post("/v1/load_lora_adapter")
        def load(body: dict[str, Any]) -> JSONResponse:
            with served.lock:
                served.load(body["lora_name"], body["lora_path"])
            return JSONResponse("Success")

    @app.post("/v1/completions")
    def complete(body: dict[str, Any]) -> JSONResponse:
        if len(body["prompt"]) + body["max_tokens"] > window:
            error = {"message": f"This model's maximum context length is {window} tokens."}
            return JSONResponse({"error": error}, status_code=400)
        if served.loads >= DIES_AFTER and not body["logprobs"]:
            os._exit(1)
        with served.lock:
            _, model = served.adapters[body["model"]]
            choices = served.draw(model, body)
        told = [{"index": i, **c} for i, c in enumerate(choices)]
        return JSONResponse({"model": body["model"], "choices": told})

    infer_routes(app, served)
    return app


def sleep_routes(app: FastAPI, served: Served) -> None:
    """Asleep it answers nobody; what level 2 forgot answers nonsense until it is sent again."""
    asleep = threading.Event()

    @app.middleware("http")
    async def wait(request: Any, call_next: Any) -> Any:
        if asleep.is_set() and request.url.path == "/v1/completions":
            return JSONResponse({"error": {"message": "asleep"}}, status_code=500)
        return await call_next(request)

    @app.post("/sleep")
    def sleep(level: int) -> dict[str, Any]:
        assert not asleep.is_set()
        asleep.set()
        served.adapters.clear()
        return {"status": "sleeping", "level": level}

    @app.post("/wake_up")
    def wake_up() -> dict[str, str]:
        assert asleep.is_set()
        asleep.clear()
        return {"status": "awake"}


def infer_routes(app: FastAPI, served: Served) -> None:
    """ms-swift's, as far as a rollout needs them."""

    @app.get("/health/")
    def alive() -> JSONResponse:
        return JSONResponse({"status": "ok"})

    @app.post("/infer/")
    def infer(body: dict[str, Any]) -> JSONResponse:
        with served.lock:
            [(_, model)] = served.adapters.values()
            config = body["request_config"]
            return JSONResponse(
                [served.infer(model, request, config) for request in body["infer_requests"]]
            )


def main() -> None:
    """Serve until told to stop."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int)
    parser.add_argument("--uds")
    parser.add_argument("--max-model-len", type=int, required=True)
    parser.add_argument("--lora-modules")
    parser.add_argument("--enable-sleep-mode", action="store_true")
    told, _ = parser.parse_known_args()
    torch.set_num_threads(1)
    assert Path(told.model).is_dir(), told.model
    served = Served(told.model)
    if told.lora_modules:
        served.load(*told.lora_modules.split("=", 1))
    app = app_of(served, told.max_model_len)
    if told.enable_sleep_mode:
        sleep_routes(app, served)
    where = {"uds": told.uds} if told.uds else {"host": told.host, "port": told.port}
    uvicorn.run(app, **where, log_level="warning")


if __name__ == "__main__":
    main()
