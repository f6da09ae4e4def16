"""The door: nobody reads or queues without a credential whose scope says so.

A browser brings a cookie, which it got by opening a one-time address; a program brings a bearer
token. What is in the query of an address is never looked at: addresses end up in logs.
`Door` finds out who asks, before any route; `within_scope` is asked by every route.
The guard before it stays what it was: it knows sites, the door knows people.
"""

from __future__ import annotations

import time
from http import HTTPStatus

import anyio
import anyio.to_thread
from fastapi import Request
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from app.web import problems
from app.web.peer import user_of
from app.web.scopes import is_open, scope_of
from app.web.templating import door_page
from engine.contract.errors import NightlaneError
from worker import access
from worker.access import Credential, Sort
from worker.db.connection import Database

ENTRANCE = "/enter/"
"""Before the secret of a one-time address."""
STREAM = "/api/v1/stream"
RECHECK_S = 5.0
"""An open stream outlives the end of its credential by so much at most."""
GUESSES = 50
GUESSES_PER_S = 2.0
"""So many wrong secrets at once, and so many a second, are looked up. Nobody guesses one of 256
bits: this keeps whoever tries from the database."""
_POLICY_VIOLATION = 1008


class Guesses:
    """Counts wrong secrets of all callers: on loopback they have one address."""

    def __init__(self) -> None:
        self._left = float(GUESSES)
        self._at = time.monotonic()
        self._proven: set[str] = set()
        """Digests of what opened the door: whoever floods it with guesses shuts nobody out."""

    def may_try(self, secret: str) -> bool:
        """Whether it is looked up."""
        return self._now() >= 1 or access.digest_of(secret) in self._proven

    def tried(self, secret: str, *, right: bool) -> None:
        """What came of it."""
        if right:
            self._proven.add(access.digest_of(secret))
        else:
            self._left = self._now() - 1

    def _now(self) -> float:
        now = time.monotonic()
        self._left = min(float(GUESSES), self._left + (now - self._at) * GUESSES_PER_S)
        self._at = now
        return self._left


class Door:
    """ASGI middleware behind the guard. `locked=False`: whoever reaches it may do everything."""

    def __init__(self, app: ASGIApp, *, locked: bool) -> None:
        self._app = app
        self._locked = locked
        self._guesses = Guesses()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":  # there is none, and one that comes must not come past us
            await WebSocketClose(_POLICY_VIOLATION)(scope, receive, send)
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        request.state.access = None if self._locked else access.Scope.ADMIN
        if scope["path"].startswith(ENTRANCE):
            await (await self._answered(request))(scope, receive, send)
        elif self._locked:
            await self._checked(request, send)
        else:
            await self._app(scope, receive, send)

    async def _checked(self, request: Request, send: Send) -> None:
        scope, receive = request.scope, request.receive
        try:
            held = await self._holder(request)
        except NightlaneError:
            await _refusal(request, _UNKNOWN)(scope, receive, send)
            return
        except HTTPException as error:
            await _refusal(request, error)(scope, receive, send)
            return
        if held is None and not is_open(scope["path"]):
            await _nobody(request)(scope, receive, send)
            return
        request.state.access = held.scope if held else None
        if held is not None and scope["path"] == STREAM:
            await self._streamed(request, send)
        else:
            await self._app(scope, receive, send)

    async def _holder(self, request: Request) -> Credential | None:
        """Who asks. Raises DatabaseError, and HTTPException where too many guess."""
        presented = _presented(request)
        if presented is None:
            return None
        sort, secret = presented
        self._require_patience(secret)
        held = await anyio.to_thread.run_sync(_look_up, request, sort, secret)
        self._guesses.tried(secret, right=held is not None)
        return held

    async def _answered(self, request: Request) -> Response:
        """A one-time address becomes the cookie of the browser that opens it."""
        home = RedirectResponse("/", HTTPStatus.SEE_OTHER)
        if not self._locked:
            return home
        if request.method != "GET":
            return _nobody(request)
        secret = request.scope["path"].removeprefix(ENTRANCE)
        try:
            self._require_patience(secret)
            entered = await anyio.to_thread.run_sync(_enter, request, secret)
        except NightlaneError:
            return _refusal(request, _UNKNOWN)
        except HTTPException as error:
            return _refusal(request, error)
        self._guesses.tried(secret, right=entered is not None)
        if entered is None:
            return _nobody(request)
        home.set_cookie(
            cookie_name(request),
            entered.secret,
            max_age=int(entered.credential.expires_at - time.time()),
            httponly=True,
            samesite="strict",
            secure="https" in {request.url.scheme, request.headers.get("x-forwarded-proto")},
        )
        return home

    def _require_patience(self, secret: str) -> None:
        if not self._guesses.may_try(secret):
            raise HTTPException(
                HTTPStatus.TOO_MANY_REQUESTS,
                "too many wrong tokens or addresses came in; try again in a moment",
                {"Retry-After": "5"},
            )

    async def _streamed(self, request: Request, send: Send) -> None:
        """A stream that is cut when its credential is over, as an answer that has ended."""
        begun = False

        async def noted(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        async def watch(stream: anyio.CancelScope) -> None:
            await anyio.sleep(RECHECK_S)
            while await self._still_holds(request):
                await anyio.sleep(RECHECK_S)
            stream.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(watch, group.cancel_scope)
            await self._app(request.scope, request.receive, noted)
            group.cancel_scope.cancel()
            return
        if begun:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _still_holds(self, request: Request) -> bool:
        try:
            return await self._holder(request) is not None
        except (NightlaneError, HTTPException):
            return True  # nobody can tell now; the next look does


async def within_scope(request: Request) -> None:
    """For every route. Raises HTTPException (403) where the credential's scope is too small."""
    path: str = request.scope["route"].path
    held: access.Scope | None = request.state.access
    if is_open(path):
        return
    wanted = scope_of(request.method, path)
    if held is None or not held.includes(wanted):
        raise HTTPException(
            HTTPStatus.FORBIDDEN,
            f"this needs the scope {wanted}, and yours is {held}; whoever runs the cockpit gives "
            f"one out with: cockpit token new --scope {wanted}",
        )


def cookie_name(request: Request) -> str:
    """Cookies know no port: of two cockpits on one host each has its own."""
    return f"nightlane-{request.url.port or 80}"


def _presented(request: Request) -> tuple[Sort, str] | None:
    """A header counts before a cookie; a scheme that is not ours is nothing."""
    header = request.headers.get("authorization")
    if header is not None:
        scheme, _, secret = header.partition(" ")
        return (Sort.TOKEN, secret.strip()) if scheme.lower() == "bearer" else None
    secret = request.cookies.get(cookie_name(request), "")
    return (Sort.BROWSER, secret) if secret else None


def _database(request: Request) -> Database:
    database: Database = request.app.state.database
    return database


def _user(request: Request) -> int | None:
    return user_of(request.scope.get("client"), request.scope.get("server"))


def _look_up(request: Request, sort: Sort, secret: str) -> Credential | None:
    database, now = _database(request), time.time()
    user = _user(request) if sort is Sort.BROWSER else None
    held = access.holder(database, sort, secret, now=now, user_id=user)
    if held is not None:
        access.note_use(database, held, now=now)
    return held


def _enter(request: Request, secret: str) -> access.Issued | None:
    return access.enter(_database(request), secret, now=time.time(), user_id=_user(request))


def _nobody(request: Request) -> Response:
    """401: how to get in, and nothing else."""
    headers = {"WWW-Authenticate": 'Bearer realm="nightlane"'}
    if not problems.wants_page(request):
        return problems.problem_response(HTTPStatus.UNAUTHORIZED, _HOW_A_PROGRAM, headers=headers)
    spent = request.scope["path"].startswith(ENTRANCE)
    # A link on another site: the browser keeps a strict cookie back, and sends it with the next
    # request, which this page makes by itself.
    again = not spent and request.headers.get("sec-fetch-site") in {"cross-site", "same-site"}
    return door_page(
        "This address was used, or is over" if spent else "Sign in first",
        _HOW_A_PERSON,
        status=HTTPStatus.UNAUTHORIZED,
        again=again,
        headers=headers,
    )


def _refusal(request: Request, error: HTTPException) -> Response:
    status, headers = HTTPStatus(error.status_code), dict(error.headers or {})
    if problems.wants_page(request):
        return door_page("Not now", [f"{error.detail}."], status=status, headers=headers)
    return problems.problem_response(status, error.detail, headers=headers)


_HOW_A_PROGRAM = (
    "this cockpit answers only with a token; send the header Authorization: Bearer TOKEN with one "
    "made by: cockpit token new"
)
_HOW_A_PERSON = (
    "On the machine of this cockpit, as the user that runs it: `cockpit open`. It prints an "
    "address that signs one browser in, once, within 15 minutes; open it here.",
    "A program sends a token, made by `cockpit token new`, in the header `Authorization`.",
)
_UNKNOWN = HTTPException(
    HTTPStatus.SERVICE_UNAVAILABLE,
    "who you are cannot be looked up: the database does not answer; see: cockpit doctor",
)
