"""What the editor of the New job page asks for beside its page: the words of a kind's settings, and
a place for a file of rows.
"""

from __future__ import annotations

from typing import Annotated, Any

import anyio.to_thread
from fastapi import APIRouter, Query, Request
from starlette.responses import JSONResponse

from app.forms.schema import Setting, flattened, schema_of
from app.web.dependencies import SettingsDep
from app.web.uploads import receive
from engine.contract.kind import Kind
from engine.contract.problems import every_setting
from engine.contract.registry import get_kind

router = APIRouter(prefix="/new", include_in_schema=False)


@router.get("/words")
def words(kind: Annotated[str, Query(max_length=100)]) -> JSONResponse:
    """Every setting of a kind: for the completion of its YAML, and to explain a line of it."""
    return JSONResponse([_word(setting) for setting in settings_of(get_kind(kind))])


@router.post("/rows")
async def send_rows(
    request: Request,
    settings: SettingsDep,
    name: Annotated[str, Query(min_length=1, max_length=255)],
) -> JSONResponse:
    """Keep a file of rows, which is the body; answers its path, for a job to name."""
    length = int(request.headers.get("content-length") or 0)
    path = await receive(settings.data_dir / "uploads", name, request.stream(), length)
    size = await anyio.to_thread.run_sync(path.stat)
    return JSONResponse({"path": str(path), "bytes": size.st_size})


def settings_of(kind: Kind) -> list[Setting]:
    """All of its schema, and those that it takes beside and passes on."""
    found = flattened(schema_of(kind.config))
    named = {setting.name for setting in found}
    passed_on = [name for name in every_setting(kind.config) if name not in named]
    return found + [
        Setting(name=name, type="any", help=_PASSED_ON, required=False, default=None)
        for name in passed_on
    ]


_PASSED_ON = "An argument of Transformers' Trainer, passed on as it is."


def _word(setting: Setting) -> dict[str, Any]:
    return {
        "name": setting.name,
        "type": setting.type,
        "help": setting.help,
        "required": setting.required,
        "default": setting.default,
        "choices": [*setting.choices, *setting.examples],
        "limits": setting.limits,
    }
