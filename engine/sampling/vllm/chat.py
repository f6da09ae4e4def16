"""Pictures over `/v1/chat/completions`: the one OpenAI-style route that takes them.

The conversation goes in and the server writes the prompt by its chat template; the ids it read come
back, and must be those that the run made. Torch-free; knows no address.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from engine.sampling.vllm.endpoint import Request


def asked(request: Request) -> Mapping[str, Any]:
    """The part of a body that differs from the route for token ids."""
    pictures = iter(request.images)
    return {
        "messages": [_turn(message, pictures) for message in request.messages],
        "logprobs": True,
        "top_logprobs": request.top,
    }


def told(reply: Mapping[str, Any]) -> Mapping[str, Any]:
    """The answer in the form of `/v1/completions`."""
    return {
        **reply,
        "choices": [_choice(choice, reply["prompt_token_ids"]) for choice in reply["choices"]],
    }


def _turn(message: Mapping[str, Any], pictures: Iterator[str]) -> Mapping[str, Any]:
    """With each part `{"type": "image"}` as the next picture."""
    content = message["content"]
    if isinstance(content, str):
        return message
    return {**message, "content": [_part(part, pictures) for part in content]}


def _part(part: Mapping[str, Any], pictures: Iterator[str]) -> Mapping[str, Any]:
    if part["type"] != "image":
        return part
    return {"type": "image_url", "image_url": {"url": next(pictures)}}


def _choice(choice: Mapping[str, Any], prompt_ids: Sequence[int] | None) -> Mapping[str, Any]:
    places = choice["logprobs"]["content"]
    return {
        "index": choice["index"],
        "prompt_token_ids": prompt_ids,
        "token_ids": choice["token_ids"],
        "text": choice["message"]["content"],
        "logprobs": {
            "token_logprobs": [place["logprob"] for place in places],
            "top_logprobs": [
                {one["token"]: one["logprob"] for one in place["top_logprobs"]} for place in places
            ],
        },
    }
