"""Errors as HTTP answers: RFC 9457 problem documents for programs, a plain page for people.

Knows which error means which status; the sentence itself comes from where the error arose.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.routing import Match, Mount

from app.web.templating import page
from engine.contract.errors import ConfigError, ConfigProblem, NightlaneError
from worker.queue.lookup import JobNotFoundError, SweepNotFoundError
from worker.queue.refusals import KeyReusedError, QueueRefusedError
from worker.queue.run_views import NoSuchViewError
from worker.read.comparison.compare import CompareError

MEDIA_TYPE = "application/problem+json"

CODES = {
    HTTPStatus.BAD_REQUEST: "bad_request",
    HTTPStatus.UNAUTHORIZED: "unauthorized",
    HTTPStatus.NOT_FOUND: "not_found",
    HTTPStatus.METHOD_NOT_ALLOWED: "method_not_allowed",
    HTTPStatus.CONFLICT: "conflict",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "too_large",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "unsupported_media_type",
    HTTPStatus.UNPROCESSABLE_ENTITY: "invalid",
    HTTPStatus.FORBIDDEN: "forbidden",
    HTTPStatus.MISDIRECTED_REQUEST: "wrong_host",
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE: "too_large",
    HTTPStatus.TOO_MANY_REQUESTS: "try_again",
    HTTPStatus.SERVICE_UNAVAILABLE: "try_again",
}
"""The word for programs where the error brings none of its own."""


def problem_response(
    status: HTTPStatus | int,
    detail: str,
    problems: Sequence[ConfigProblem] = (),
    headers: dict[str, str] | None = None,
    facts: Mapping[str, Any] | None = None,
) -> JSONResponse:
    """One problem document: `code` never changes its meaning, `problems` names each wrong field."""
    status = HTTPStatus(status)
    document: dict[str, Any] = {
        "type": "about:blank",
        "title": status.phrase,
        "status": status.value,
        "code": CODES.get(status, "failed"),
        **(facts or {}),
        "detail": detail,
        "problems": [problem.as_dict() for problem in problems],
    }
    return JSONResponse(document, status, headers=headers, media_type=MEDIA_TYPE)


def install(app: FastAPI) -> None:
    """Register one handler for each family of errors."""
    app.add_exception_handler(NightlaneError, _explained)
    app.add_exception_handler(RequestValidationError, _bad_request)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(ClientDisconnect, _gone)
    app.add_exception_handler(Exception, _unexpected)


def status_of(error: NightlaneError) -> HTTPStatus:
    """The status of an error this project can explain."""
    if isinstance(error, ConfigError | CompareError):
        return HTTPStatus.UNPROCESSABLE_ENTITY
    if isinstance(error, JobNotFoundError | NoSuchViewError | SweepNotFoundError):
        return HTTPStatus.NOT_FOUND
    if isinstance(error, QueueRefusedError):
        # A key with another body is the caller's mistake, whatever stands in the queue.
        reused = isinstance(error, KeyReusedError)
        return HTTPStatus.UNPROCESSABLE_ENTITY if reused else HTTPStatus.CONFLICT
    return HTTPStatus.SERVICE_UNAVAILABLE if error.retryable else HTTPStatus.INTERNAL_SERVER_ERROR


def wants_page(request: Request) -> bool:
    """Whether a person asks, in a browser; a program gets the document."""
    if request.url.path.startswith("/api/"):
        return False
    return "text/html" in request.headers.get("accept", "")


def _answer(
    request: Request,
    status: HTTPStatus,
    detail: str,
    problems: Sequence[ConfigProblem] = (),
    *,
    headers: dict[str, str] | None = None,
    facts: Mapping[str, Any] | None = None,
) -> Response:
    if not wants_page(request):
        return problem_response(status, detail, problems, headers, facts)
    context = {
        "status": status,
        "detail": detail,
        "title": status.phrase,
        "near": _near(status, request.url.path, (facts or {}).get("job_id")),
    }
    return page(request, "error.html", context, status=status, headers=headers)


def _near(status: HTTPStatus, path: str, job_id: Any) -> tuple[str, str] | None:
    """(words, address) of the page that a person came from or is told about."""
    if status is HTTPStatus.NOT_FOUND:
        return None
    if job_id is None and (found := re.match(r"/jobs/(\d+)/", path)):
        job_id = found[1]
    if job_id is not None:
        return f"job {job_id}", f"/jobs/{job_id}"
    for first, words in (("/queue/", "the queue"), ("/report/", "the report")):
        if path.startswith(first):
            return words, first.rstrip("/")
    return None


def _explained(request: Request, error: Exception) -> Response:
    assert isinstance(error, NightlaneError)
    problems = error.problems if isinstance(error, ConfigError) else ()
    return _answer(request, status_of(error), str(error), problems, facts=_facts(error))


def _facts(error: NightlaneError) -> Mapping[str, Any]:
    """The error's own code, and where to look at the job that stands in the way."""
    if not isinstance(error, QueueRefusedError):
        return {}
    facts = {"code": error.code, **error.facts}
    if "job_id" in facts:
        facts["href"] = f"/api/v1/jobs/{facts['job_id']}"
    return facts


def _gone(_request: Request, _error: Exception) -> Response:
    """Who asked left before the whole question was there, as a form does that is typed on."""
    return Response(status_code=HTTPStatus.BAD_REQUEST)  # nobody reads it


def _bad_request(request: Request, error: Exception) -> Response:
    """A wrong query or path value. A path that names nothing is simply not found."""
    assert isinstance(error, RequestValidationError)
    found = [
        ConfigProblem(
            field=".".join(str(part) for part in detail["loc"][1:]) or "(request)",
            value=_shortened(detail.get("input")),
            problem=_NOT_WRITTEN_SO
            if detail["type"] == "string_pattern_mismatch"
            else detail["msg"][:1].lower() + detail["msg"][1:],
            remedy=detail.get("ctx", {}).get("remedy", "correct it"),
        )
        for detail in error.errors()
    ]
    if any(detail["loc"][0] == "path" for detail in error.errors()):
        detail = f"nothing stands at {request.url.path[:200]}; the board lists every job"
        return _answer(request, HTTPStatus.NOT_FOUND, detail, found)
    lines = "\n".join(problem.line() for problem in found)
    return _answer(request, HTTPStatus.UNPROCESSABLE_ENTITY, lines, found)


_NOT_WRITTEN_SO = "is no value that this can have"
"""A regular expression is no word for a person."""


def _shortened(value: Any) -> Any:
    return value if not isinstance(value, str) or len(value) <= 80 else value[:77] + "…"


_ROUTING = {
    HTTPStatus.NOT_FOUND: "nothing stands at {path}; the board at / lists every job",
    HTTPStatus.METHOD_NOT_ALLOWED: "{path} does not take {method}",
}


def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    detail = str(error.detail)
    if detail == status.phrase and status in _ROUTING:
        path = request.url.path[:200]
        detail = _ROUTING[status].format(path=path, method=request.method)
    headers = dict(error.headers or {})
    if status is HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = ", ".join(_allowed(request))
    return _answer(request, status, detail, headers=headers)


def _allowed(request: Request) -> list[str]:
    """Every method of the path: of several routes that share one the router names the first's."""
    taken = {method for method in _METHODS if _takes(request, method)}
    return sorted(taken | {"HEAD"} if "GET" in taken else taken)


_METHODS = ("DELETE", "GET", "PATCH", "POST", "PUT")


def _takes(request: Request, method: str) -> bool:
    scope = {**request.scope, "method": method}
    scope["root_path"] = scope.get("app_root_path", scope["root_path"])  # a mount added its own
    return any(
        route.matches(scope)[0] is Match.FULL
        # A folder of files says that it takes everything.
        and (method == "GET" or not isinstance(route, Mount))
        for route in request.app.routes
    )


def _unexpected(request: Request, error: Exception) -> Response:
    """A defect of ours: the server's log holds the traceback, the caller gets no internals."""
    detail = f"the cockpit failed while answering ({type(error).__name__}); its log says where"
    return _answer(request, HTTPStatus.INTERNAL_SERVER_ERROR, detail)
