"""What a request brings: its JSON body or form, its idempotency key, who asks. Knows no route."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from fastapi import Request
from pydantic import BaseModel
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException

from engine.contract.documents import UnreadableError, number_of, parse_json, parse_yaml
from engine.contract.errors import ConfigError, ConfigProblem
from engine.contract.problems import text_problems
from worker.queue.submission import Submission, submission

FORM_TYPES = frozenset({"application/x-www-form-urlencoded", "multipart/form-data"})
KEY_HEADER = "idempotency-key"
REST, BROWSER = "rest", "browser"
"""Who asked, as the audit names it: a program, or a person at a page."""


async def json_object(request: Request, example: str) -> dict[str, Any]:
    """The body, which must be one JSON object. Raises HTTPException, ConfigError."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise HTTPException(
            415, f"the body is {media_type or 'of no type'}; send JSON with application/json"
        )
    try:
        value = parse_json(await request.body(), pairs=_unique_keys)
    except UnreadableError as error:
        raise _body_error(str(error), "send one JSON object") from error
    if not isinstance(value, dict):
        raise _body_error("is not a JSON object", f"send {example}")
    if unwritable := text_problems(value):
        raise ConfigError(unwritable)
    return value


async def optional_body(request: Request, asked: Mapping[str, Any], example: str) -> dict[str, Any]:
    """The body, or {} without one, and what the address `asked` for beside it (None: nothing).

    Raises HTTPException, ConfigError, also for what stands in both.
    """
    body = await json_object(request, example) if await request.body() else {}
    for name, value in asked.items():
        if value is None:
            continue
        if name in body:
            remedy = f"give ?{name}= or the body, not both"
            raise ConfigError([ConfigProblem(name, value, "stands twice", remedy)])
        body[name] = value
    return body


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """As in YAML: of a key given twice nobody can tell which one counts."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key[:80]!r} stands twice")
        found[key] = value
    return found


async def form_fields(request: Request) -> dict[str, str]:
    """The fields of a posted form; of a name given twice the last one counts.

    Raises HTTPException for a body that is no form.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in FORM_TYPES:
        raise HTTPException(415, f"the body is {media_type or 'of no type'}; send a form")
    fields = await request.form(max_files=0)
    return {
        name: value.replace("\r\n", "\n")
        for name, value in fields.multi_items()
        if not isinstance(value, UploadFile)
    }


async def form_numbers(request: Request, name: str) -> list[int]:
    """The numbers that a posted form gives under one name, in order. Raises ConfigError."""
    texts = (await request.form(max_files=0)).getlist(name)
    for text in texts:
        if not (isinstance(text, str) and text.isdecimal() and len(text) < 19):
            shown = text if isinstance(text, str) else "a file"
            raise ConfigError([ConfigProblem(name, shown, "is no number", "tick runs")])
    return [int(str(text)) for text in texts]


def with_numbers(fields: Mapping[str, str], names: Collection[str]) -> dict[str, Any]:
    """The fields that were filled in; those of `names` as the numbers that they are, if they are.

    What is no number stays text, and is refused as one.
    """
    given = {name: text.strip() for name, text in fields.items() if text.strip()}
    found = {name: number_of(given[name]) for name in names if name in given}
    return given | {name: number for name, number in found.items() if number is not None}


def wanted_job(body: dict[str, Any]) -> Submission:
    """A submission, whose config may come as a YAML text. Raises ConfigError."""
    if "yaml" not in body:
        return submission(body)
    text = body["yaml"]
    if "config" in body:
        raise _body_error("holds both config and yaml", "give one of the two")
    if not isinstance(text, str):
        problem = ConfigProblem("yaml", None, "is not a text", "write the YAML as one string")
        raise ConfigError([problem])
    rest = {name: value for name, value in body.items() if name != "yaml"}
    config = parse_yaml(text)
    if "sweep" not in rest and "sweep" in config:
        rest["sweep"] = config.pop("sweep")
    return submission({**rest, "config": config})


def takes(model: type[BaseModel], *, required: bool = True, keyed: bool = False) -> dict[str, Any]:
    """The body, and the key, of a route that reads them itself, for the OpenAPI document."""
    content = {"application/json": {"schema": model.model_json_schema()}}
    found: dict[str, Any] = {"requestBody": {"required": required, "content": content}}
    if keyed:
        said = "The same request under the same key is done once, and answered alike."
        header = {"name": KEY_HEADER, "in": "header", "required": False, "description": said}
        found["parameters"] = [header | {"schema": {"type": "string"}}]
    return found


def key_of(request: Request) -> str | None:
    """The caller's idempotency key."""
    return request.headers.get(KEY_HEADER)


def _body_error(problem: str, remedy: str) -> ConfigError:
    return ConfigError([ConfigProblem("(body)", None, problem, remedy)])
