"""A rollout server that lies when told to: OpenAI-style routes and ms-swift's, in one process.

    python liar.py PORT TOKENIZER.json

It draws by a rule instead of a model: each token uniform over `WORDS` ids, or the end, from a
generator seeded by prompt and seed. So its log-probabilities are true, its draws depend on nothing
but the request, and it is up at once. `POST /lie {"lie": …, "times": n}` switches a lie on for the
next n calls; `GET /asked` tells every call with its path, its key and its body.
"""

from __future__ import annotations

import json
import math
import random
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tokenizers import Tokenizer

WORDS = 40
END_SHARE = 0.08
LATE_S = 1.5
DRIP_S = 0.2
BATCH = 2
"""Most requests that it takes in a call while it is `overfull`."""
MODEL = "policy"


class State:
    """What all its threads share."""

    lock = threading.Lock()
    lie = ""
    times = 0
    asked: list[dict[str, Any]] = []  # noqa: RUF012 - one process, one state
    tokenizer: Tokenizer
    chaos = random.Random(0)

    @classmethod
    def take(cls) -> str:
        """The lie of this call."""
        with cls.lock:
            if not cls.times:
                return ""
            cls.times -= 1
            return cls.lie


def draw(prompt: list[int], seed: int, body: dict[str, Any], lie: str) -> dict[str, Any]:
    """One choice of the OpenAI-style routes."""
    if lie == "other prompt":
        prompt = [*prompt, 5]
    ids, logprobs = drawn(source_of(prompt, seed if body["temperature"] else 0, lie), body)
    words = [i for i in ids if i not in body["stop_token_ids"]]
    told = {
        "prompt_token_ids": prompt,
        "token_ids": ids,
        "text": State.tokenizer.decode(words, skip_special_tokens=False),
        "logprobs": {"token_logprobs": logprobs, "top_logprobs": []},
        "finish_reason": "length" if len(words) == len(ids) else "stop",
    }
    return told | falsified(lie, ids, logprobs)


def source_of(prompt: list[int], seed: int, lie: str) -> random.Random:
    if lie == "seeds ignored":
        return State.chaos
    return random.Random(f"{prompt}" if lie == "one seed" else f"{prompt} {seed}")


def drawn(source: random.Random, body: dict[str, Any]) -> tuple[list[int], list[float]]:
    """Ids with their log-probabilities."""
    ids: list[int] = []
    logprobs: list[float] = []
    ends = body["stop_token_ids"]
    while len(ids) < body["max_tokens"] and not (ids and ids[-1] in ends):
        ended = source.random() < END_SHARE
        # Words of the tokenizer that are no control tokens.
        ids.append(ends[0] if ended else 10 + source.randrange(WORDS))
        logprobs.append(math.log(END_SHARE if ended else (1 - END_SHARE) / WORDS))
    return ids, logprobs


def falsified(lie: str, ids: list[int], logprobs: list[float]) -> dict[str, Any]:
    """What the lie puts in place of the truth."""
    numbers = {"no log-probs": math.nan, "floor log-probs": -9999.0, "sure log-probs": 3.0}
    if lie in numbers:
        told = [*logprobs[:-1], numbers[lie]]
        return {"logprobs": {"token_logprobs": told, "top_logprobs": []}}
    other = State.tokenizer.decode([i + 60 for i in ids], skip_special_tokens=False)
    table: dict[str, dict[str, Any]] = {
        "no prompt ids": {"prompt_token_ids": None},
        "no ids": {"token_ids": None},
        "other tokenizer": {"text": other},
        "ids out of vocabulary": {"token_ids": [ids[0] + 100_000, *ids[1:]]},
        "runs on": {
            "token_ids": [*ids, 11],
            "logprobs": {"token_logprobs": [*logprobs, -1.0], "top_logprobs": []},
        },
    }
    return table.get(lie, {})


def completions(body: dict[str, Any], lie: str) -> Any:
    n = body["n"]
    seeds = [body["seed"] if lie == "samples alike" else body["seed"] + i for i in range(n)]
    choices = [
        {"index": i, **draw(body["prompt"], seed, body, lie)} for i, seed in enumerate(seeds)
    ]
    model = "another" if lie == "another model" else body["model"]
    return {"model": model, "choices": choices[:-1] if lie == "wrong length" else choices}


def chat(body: dict[str, Any], lie: str) -> Any:
    """As vLLM has it; the text parts of a conversation are its prompt ids, written out."""
    parts = body["messages"][-1]["content"]
    words = " ".join(part["text"] for part in parts if part["type"] == "text")
    pictures = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
    prompt = [*map(int, words.split()), *map(len, pictures)]
    told = completions({**body, "prompt": prompt}, lie)
    choices = [
        {
            "index": choice["index"],
            "token_ids": choice["token_ids"],
            "message": {"content": choice["text"]},
            "logprobs": {
                "content": [
                    {"logprob": value, "top_logprobs": []}
                    for value in choice["logprobs"]["token_logprobs"]
                ]
            },
        }
        for choice in told["choices"]
    ]
    read = told["choices"][0]["prompt_token_ids"]
    return {"model": told["model"], "prompt_token_ids": read, "choices": choices}


def infer(body: dict[str, Any], lie: str) -> Any:
    """As ms-swift's async engine: one seed for all requests of a call; every other one wrapped.

    A conversation's content is its prompt ids, written out: a chat template for tests.
    """
    config = body["request_config"]
    known = {**config, "stop_token_ids": State.tokenizer.encode(config["stop"][0]).ids}
    answers: list[Any] = []
    for place, request in enumerate(body["infer_requests"]):
        prompt = [int(word) for word in request["messages"][-1]["content"].split()]
        choice = draw(prompt, config["seed"], known, lie)
        end = config["stop"][0] if choice["finish_reason"] == "stop" else ""
        message = {"role": "assistant", "content": choice["text"] + end}
        told = {"index": 0, "message": message, "token_ids": choice["token_ids"]}
        one = {"prompt_token_ids": choice["prompt_token_ids"], "choices": [told]}
        answers.append({"response": one} if place % 2 else one)
    return answers[:-1] if lie == "wrong length" else answers


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        route = self.path.rstrip("/").rpartition("/")[2]
        if route == "asked":
            self._say(200, State.asked)
        elif route == "get_world_size":
            self._say(200, {"world_size": 0 if State.take() == "no world" else 2})
        elif State.lie == "sick":
            self._say(503, {})
        else:
            self._say(200, {})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        route = self.path.rstrip("/").rpartition("/")[2]
        if route == "lie":
            with State.lock:
                State.lie, State.times = body["lie"], body["times"]
                State.asked.clear()
            self._say(200, {})
            return
        key = self.headers.get("authorization")
        State.asked.append({"path": self.path, "key": key, "body": body})
        self._answer(route, body, State.take())

    def _answer(self, route: str, body: dict[str, Any], lie: str) -> None:
        if lie in {"hang", "sick"}:
            time.sleep(3600)
        if lie == "late":
            time.sleep(LATE_S)
        if lie == "engine dead" or (lie == "overfull" and len(body["infer_requests"]) > BATCH):
            self._say(500, {"object": "error", "message": "EngineCore died"})
        elif lie == "locked":
            self._say(401, {"detail": "Unauthorized"})
        elif lie == "refusal":
            self._say(400, {"error": {"message": "maximum context length"}})
        elif lie == "error object":
            self._say(200, {"object": "error", "message": "no slot is free"})
        else:
            by = infer if route == "infer" else chat if "chat" in self.path else completions
            self._say(200, by(body, lie), lie)

    def _say(self, status: int, found: Any, lie: str = "") -> None:
        data = json.dumps(found).encode()
        if lie == "half a JSON":
            data = data[: len(data) // 2]
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        if lie == "half a reply":
            self.wfile.write(data[: len(data) // 2])
            self.close_connection = True
            return
        if lie == "drip":
            for byte in data:
                self.wfile.write(bytes([byte]))
                time.sleep(DRIP_S)
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Silent."""


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_: Any) -> None:
        """A client that left is none."""


def main() -> None:
    """Serve until it is ended."""
    State.tokenizer = Tokenizer.from_file(sys.argv[2])
    Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()


if __name__ == "__main__":
    main()
