"""Attacks on the door: each works where its guard is taken away, and on the running product not."""

from __future__ import annotations

import base64
import os
import re
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import iter_route_contexts
from starlette.routing import WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocket, WebSocketDisconnect

from app.cli.serve import SocketRefusedError, _listen_at
from app.web import door
from app.web.door import Door, Guesses
from app.web.peer import user_of
from app.web.scopes import SCOPES, is_open, scope_of
from tests.app.conftest import ORIGIN
from tests.app.night import queue
from tests.door import address, bearer
from worker import access
from worker.access import Credential, Scope, Sort
from worker.db.connection import Database, open_database
from worker.db.tables import door_token
from worker.read import jobs
from worker.settings import WorkerSettings

pytestmark = pytest.mark.requirement("AP-01")
JOBS = "/api/v1/jobs"
PAUSE = "/api/v1/queue/pause"
PAGE = {"accept": "text/html"}
Client = Any
"""httpx's, over a socket or over the application itself."""


# --- attacks: each says whether it got in ---


def nothing_at_all(client: Client, db: Database) -> bool:
    """Another user of the machine: curl, without anything."""
    read = client.get(JOBS).status_code == 200
    return bool(client.post(PAUSE).status_code == 200 and read)


def guessing(client: Client, db: Database) -> bool:
    """Every token of a length, the right one last; here of a length that can be gone through."""
    short = [f"{access.PREFIX}{n}" for n in range(300)]
    made = access.new_token(db, Scope.READ, actor="test", now=time.time()).credential
    with db.write_tx() as conn:
        weak = door_token.update().where(door_token.c.id == made.id)
        conn.execute(weak.values(digest=access.digest_of(short[-1])))
    answers = (client.get(JOBS, headers={"authorization": f"Bearer {one}"}) for one in short)
    return any(answer.status_code == 200 for answer in answers)


def replaying_the_address(client: Client, db: Database) -> bool:
    """From a log or a history, after its user has opened it."""
    path = address(db, "")
    client.get(path, follow_redirects=False)
    client.cookies.clear()
    client.get(path, follow_redirects=False)
    return bool(client.get(JOBS).status_code == 200)


def opening_an_old_address(client: Client, db: Database) -> bool:
    """From a terminal's scrollback, an hour later."""
    made = access.new_address(db, Scope.ADMIN, actor="test", now=time.time() - 3600)
    client.get(f"/enter/{made.secret}", follow_redirects=False)
    return bool(client.get(JOBS).status_code == 200)


def posting_from_another_site(client: Client, db: Database) -> bool:
    """A form of another site, in a browser that is signed in and sends its cookie along."""
    client.get(address(db, ""), follow_redirects=False)
    theirs = {"origin": "https://evil.example", "sec-fetch-site": "cross-site"}
    return bool(client.post(PAUSE, headers=theirs).status_code == 200)


def a_token_in_the_query(client: Client, db: Database) -> bool:
    """It would stand in logs, histories and Referer headers."""
    token = _token_of(bearer(db))
    names = ("token", "access_token", "api_key", "bearer")
    return any(client.get(JOBS, params={name: token}).status_code == 200 for name in names)


def an_expired_token(client: Client, db: Database) -> bool:
    """Of a colleague who left."""
    old = time.time() - 91 * access.DAY_S
    made = access.new_token(db, Scope.READ, actor="test", now=old)
    return _reads(client, made.secret)


def a_revoked_token(client: Client, db: Database) -> bool:
    """It was good a moment ago."""
    made = access.new_token(db, Scope.READ, actor="test", now=time.time())
    assert _reads(client, made.secret)
    access.revoke(db, made.credential.id, now=time.time())
    return _reads(client, made.secret)


def a_scope_that_is_too_small(client: Client, db: Database) -> bool:
    """A token for a dashboard stops the queue."""
    return bool(client.post(PAUSE, headers=bearer(db, Scope.READ)).status_code == 200)


def a_stolen_cookie(client: Client, db: Database) -> bool:
    """Another user's page on another port of 127.0.0.1 gets the browser's cookie, and uses it."""
    client.get(address(db, ""), follow_redirects=False)
    with db.write_tx() as conn:  # the browser was somebody else's, as the kernel said then
        conn.execute(door_token.update().values(user_id=54321))
    return bool(client.get(JOBS).status_code == 200)


def an_address_as_a_token(client: Client, db: Database) -> bool:
    """One sort of secret in the place of another: it would not be used up."""
    return _reads(client, address(db, "").removeprefix("/enter/"))


def _reads(client: Client, secret: str) -> bool:
    answer = client.get(JOBS, headers={"authorization": f"Bearer {secret}"})
    return bool(answer.status_code == 200)


def _token_of(headers: dict[str, str]) -> str:
    return headers["authorization"].removeprefix("Bearer ")


# --- their guards, taken away ---


def unlocked(patch: pytest.MonkeyPatch) -> None:
    checked = Door._checked

    async def let_in(self: Door, request: Any, send: Any) -> None:
        request.state.access = Scope.ADMIN
        await self._app(request.scope, request.receive, send)

    assert checked is not let_in
    patch.setattr(Door, "_checked", let_in)


def unlimited(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Guesses, "may_try", lambda *_: True)


def used_again(patch: pytest.MonkeyPatch) -> None:
    def enter(db: Database, secret: str, *, now: float, user_id: None) -> access.Issued | None:
        held = access.holder(db, Sort.ADDRESS, secret, now=now)
        if held is None:
            return None
        lasts_s = access.DAY_S
        return access._issue(
            db, Sort.BROWSER, held.scope, name="", actor="test", now=now, lasts_s=lasts_s
        )

    patch.setattr(access, "enter", enter)


def for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Credential, "over", lambda *_: None)


def for_a_week(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(access, "ADDRESS_S", 7 * access.DAY_S)


def any_site(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("app.web.guard._same_origin", lambda *_: True)


def reading_queries(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(door, "_presented", lambda asked: (Sort.TOKEN, asked.query_params["token"]))


def every_user(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(door, "user_of", lambda *_: 54321)


def every_scope(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Scope, "includes", lambda *_: True)


def one_sort(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        door, "_presented", lambda asked: (Sort.ADDRESS, asked.headers["authorization"][7:])
    )


class Attack(NamedTuple):
    """What is tried, and what keeps it from working."""

    tried: Callable[[Client, Database], bool]
    guard_off: Callable[[pytest.MonkeyPatch], None]


ATTACKS = [
    Attack(nothing_at_all, unlocked),
    Attack(replaying_the_address, used_again),
    Attack(opening_an_old_address, for_a_week),
    Attack(posting_from_another_site, any_site),
    Attack(a_token_in_the_query, reading_queries),
    Attack(an_expired_token, for_ever),
    Attack(a_revoked_token, for_ever),
    Attack(a_scope_that_is_too_small, every_scope),
    Attack(a_stolen_cookie, every_user),
    Attack(an_address_as_a_token, one_sort),
    Attack(guessing, unlimited),  # the last one: what comes after it has to wait
]
NAMES = [attack.tried.__name__ for attack in ATTACKS]


class Served:
    """`cockpit serve` as a process, and what it said; `changed` is run in it before."""

    def __init__(self, settings: WorkerSettings, *arguments: str, changed: str = "") -> None:
        program = f"{changed}\nfrom app.cli.app import main\nmain()"
        self.child = subprocess.Popen(
            [sys.executable, "-c", program, "serve", "--port", "0", *arguments],
            env=os.environ | {"NIGHTLANE_DATA_DIR": str(settings.data_dir)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.child.stdout is not None
        self.url = self.child.stdout.readline().strip().rstrip("/")

    def client(self, **options: Any) -> httpx.Client:
        return httpx.Client(base_url=self.url, trust_env=False, timeout=30, **options)

    def end(self) -> str:
        """All it said after its address."""
        self.child.terminate()
        return "".join(self.child.communicate(timeout=30))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Database, Served]]:
    """The running product, for tests that come with nothing of their own."""
    settings = WorkerSettings(data_dir=tmp_path_factory.mktemp("place") / "data")
    with open_database(settings) as db:
        served = Served(settings)
        yield db, served
        served.end()


@pytest.fixture
def stranger(application: FastAPI) -> Iterator[TestClient]:
    """Somebody who has nothing."""
    with TestClient(application, ORIGIN, raise_server_exceptions=False) as made:
        yield made


@pytest.mark.parametrize("attack", ATTACKS, ids=NAMES)
def test_an_attack_works_without_its_guard(
    attack: Attack, stranger: TestClient, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a real one: what stops it is the guard that was taken away."""
    attack.guard_off(monkeypatch)

    assert attack.tried(stranger, db)


@pytest.mark.parametrize("attack", ATTACKS, ids=NAMES)
def test_no_attack_works_on_the_running_product(
    attack: Attack, place: tuple[Database, Served]
) -> None:
    """Over a socket, in a process of its own, with nothing changed."""
    db, served = place
    with served.client() as client:
        assert not attack.tried(client, db)


def test_a_flood_of_guesses_shuts_nobody_out_who_is_known(
    stranger: TestClient, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is one for all on loopback; what opened the door before is looked up as ever."""
    monkeypatch.setattr(door, "GUESSES_PER_S", 0.0)
    known = bearer(db)
    assert stranger.get(JOBS, headers=known).status_code == 200

    assert not guessing(stranger, db)

    assert stranger.get(JOBS, headers={"authorization": "Bearer no"}).status_code == 429
    assert stranger.get(JOBS, headers=known).status_code == 200


def test_a_secret_has_256_random_bits_and_only_its_hash_is_stored(db: Database) -> None:
    """The reason why one round of SHA-256 is enough."""
    made = access.new_token(db, Scope.READ, actor="test", now=time.time())
    with db.read() as conn:
        [row] = conn.execute(door_token.select()).mappings()

    random = made.secret.removeprefix(access.PREFIX)
    assert len(base64.urlsafe_b64decode(f"{random}=")) == 32
    assert not any(random in str(value) for value in row.values())


# --- what the guard before the door keeps off ---


@pytest.mark.parametrize("guard", ["off", "on"])
def test_a_name_that_points_here_reads_nothing_of_a_cockpit_without_sign_in(
    guard: str, settings: WorkerSettings, db: Database
) -> None:
    """DNS rebinding: where nobody signs in, the name is all that gives a foreign page away."""
    off = "import app.web.guard as g\ng.Guard._refusal = lambda *_: None" if guard == "off" else ""
    served = Served(settings, "--no-auth", changed=off)
    with served.client() as client:
        answer = client.get(JOBS, headers={"host": "evil.example"})
    said = served.end()

    assert (answer.status_code == 200) == (guard == "off")
    assert "NO SIGN-IN (--no-auth): every user of this machine can read" in said


# --- streams ---


def test_without_a_credential_there_is_no_stream(place: tuple[Database, Served]) -> None:
    """The events name jobs."""
    db, served = place
    with served.client() as client, client.stream("GET", "/api/v1/stream") as refused:
        refused.read()
    known = served.client(headers=bearer(db, Scope.READ))
    with known, known.stream("GET", "/api/v1/stream") as stream:
        first = next(stream.iter_lines())

    assert (refused.status_code, refused.json()["code"]) == (401, "unauthorized")
    assert first.startswith("event:")


@pytest.mark.parametrize("guard", ["off", "on"])
def test_an_open_stream_ends_with_its_token(
    guard: str, settings: WorkerSettings, db: Database
) -> None:
    """Revoked means now, also for who is listening already."""
    quick = "import app.web.door as d, app.web.live as l\nd.RECHECK_S = l.BEAT_S = 0.1\n"
    off = "async def yes(*_): return True\nd.Door._still_holds = yes" if guard == "off" else ""
    made = access.new_token(db, Scope.READ, actor="test", now=time.time())
    served = Served(settings, changed=quick + off)
    headers = {"authorization": f"Bearer {made.secret}"}
    with (
        served.client() as client,
        client.stream("GET", "/api/v1/stream", headers=headers) as open_,
    ):
        beats = (line for line in open_.iter_lines() if line.startswith("event: beat"))
        next(beats)
        access.revoke(db, made.credential.id, now=time.time())
        heard = sum(1 for _ in zip(range(40), beats, strict=False))
    said = served.end()

    assert (heard == 40) == (guard == "off")
    assert "Traceback" not in said
    assert "without completing response" not in said


@pytest.mark.parametrize("guard", ["off", "on"])
def test_no_websocket_comes_past_the_door(
    guard: str, application: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is none; one that somebody adds is closed until the door knows it."""

    async def talk(socket: WebSocket) -> None:
        await socket.accept()
        await socket.send_text("hello")

    async def straight_on(self: Door, *asked: Any) -> None:
        await self._app(*asked)

    application.router.routes.append(WebSocketRoute("/talk", talk))
    if guard == "off":
        monkeypatch.setattr(Door, "__call__", straight_on)
    with TestClient(application, ORIGIN) as client:
        if guard == "off":
            with client.websocket_connect("/talk") as talking:
                assert talking.receive_text() == "hello"
        else:
            with pytest.raises(WebSocketDisconnect) as refused:
                client.websocket_connect("/talk").__enter__()
            assert refused.value.code == 1008


# --- other users of the machine ---


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_the_kernel_says_whose_connection_it_is(host: str) -> None:
    """Of one that stands; of another nothing."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as listener:
        server = listener.getsockname()[:2]
        with socket.create_connection(server) as caller:
            client = caller.getsockname()[:2]
            assert user_of(client, server) == os.geteuid()
    assert user_of(client, (host, 1)) is None
    assert user_of(("testclient", 50000), server) is None


NOBODY = 65534


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that every user may enter; pytest's own are closed to others."""
    folder = Path(f"/tmp/nightlane-door-{secrets.token_hex(8)}")  # noqa: S108 - shared on purpose
    folder.mkdir()
    folder.chmod(0o755)  # whatever umask a command left to this process
    yield folder
    subprocess.run(["rm", "-rf", str(folder)], check=True)


def _as_somebody_else(path: Path, *command: str) -> bool:
    """Whether another user's command works; where this one cannot become another, by the modes."""
    if os.geteuid() == 0:
        done = subprocess.run(command, user=NOBODY, group=NOBODY, capture_output=True, check=False)
        return done.returncode == 0
    wanted = 0o006 if path.is_socket() else 0o004
    return bool(path.parent.stat().st_mode & 0o001) and bool(path.stat().st_mode & wanted)


@pytest.mark.parametrize("guard", ["off", "on"])
def test_another_user_reads_nothing_of_the_data_directory(guard: str, shared: Path) -> None:
    """Under the umask of a careless shell: no hashes, no answers, and so no address to ask for."""
    subprocess.run(
        [sys.executable, "-m", "app.cli", "token", "new"],
        env=os.environ | {"NIGHTLANE_DATA_DIR": str(shared / "data")},
        umask=0o022,
        capture_output=True,
        check=True,
    )
    database = shared / "data" / "nightlane.db"
    if guard == "off":
        database.parent.chmod(0o755)
        database.chmod(0o644)

    assert _as_somebody_else(database, "cat", str(database)) == (guard == "off")


@pytest.mark.parametrize("guard", ["off", "on"])
def test_another_user_cannot_open_the_socket(
    guard: str, shared: Path, settings: WorkerSettings, db: Database
) -> None:
    """Its mode is the door: this user needs no token there."""
    path = shared / "cockpit.sock"
    served = Served(settings, "--socket", str(path))
    if guard == "off":
        path.chmod(0o666)
    asked = ("curl", "-sf", "--unix-socket", str(path), f"http://localhost{JOBS}")
    other = _as_somebody_else(path, *asked)
    mine = subprocess.run(asked, capture_output=True, check=False, text=True)
    said = served.end()

    assert served.url == f"unix:{path}"
    assert other == (guard == "off")
    assert mine.stdout.startswith('{"jobs":')
    assert "sign in" not in said


def test_a_socket_that_a_cockpit_left_is_put_away_and_a_living_one_is_not(shared: Path) -> None:
    """Whoever is killed leaves its file."""
    path = shared / "cockpit.sock"
    with _listen_at(path), pytest.raises(SocketRefusedError, match="address already in use"):
        _listen_at(path)
    with _listen_at(path) as listener:
        assert listener.getsockname() == str(path)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_cockpit_does_not_start_on_a_directory_that_others_may_read(
    cockpit: Callable[..., Any], settings: WorkerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It mends its own user's; another one's it names, with the way out."""
    settings.data_dir.mkdir(mode=0o755)
    settings.data_dir.chmod(0o755)
    monkeypatch.setattr("worker.private.os.geteuid", lambda: 54321)

    said = cockpit("serve", "--port", "0")

    assert said.code == 4
    assert f"is open to other users of this machine (0755); run: chmod 700 {settings.data_dir}" in (
        said.err
    )


# --- where secrets must not be ---


@pytest.mark.parametrize("guard", ["off", "on"])
def test_no_secret_is_in_a_log_a_page_an_error_or_an_export(
    guard: str, settings: WorkerSettings, db: Database, tmp_path: Path
) -> None:
    """Of a token, an address and a cookie that were used, guessed at and refused."""
    off = (
        "import uvicorn\nmade = uvicorn.Config.__init__\n"
        "def talkative(self, *a, **k):\n"
        "    made(self, *a, **(k | {'access_log': True, 'log_level': 'info'}))\n"
        "uvicorn.Config.__init__ = talkative\n"
    )
    queue(db)
    token, path = _token_of(bearer(db)), address(db, "")
    served = Served(settings, changed=off if guard == "off" else "")
    texts = []
    with served.client() as client:
        for _ in range(2):
            texts += [client.request(method, path, headers=PAGE) for method in ("GET", "POST")]
        cookie = next(iter(client.cookies.values()))
        client.cookies.clear()
        for headers in (
            {"authorization": f"Bearer {token}"},
            {"cookie": f"{_cookie_of(served)}={cookie}"},
        ):
            for where in ("/", "/nowhere", "/audit", "/report?download=true", f"{JOBS}/9", PAUSE):
                texts.append(client.get(where, headers=headers | PAGE))
        bodies = [f"{answer.text} {answer.headers.get('location')}" for answer in texts]
    said = served.end()
    copy = tmp_path / "copy.db"
    subprocess.run(
        [sys.executable, "-m", "app.cli", "db", "backup", str(copy)],
        check=True,
        capture_output=True,
    )
    files = [file for file in settings.data_dir.rglob("*") if file.is_file()]
    kept = b"".join(file.read_bytes() for file in [*files, copy]).decode("latin-1")

    told = {
        secret
        for secret in (token, path.removeprefix("/enter/"), cookie)
        for text in (said, kept, *bodies)
        if secret in text
    }
    assert told == ({path.removeprefix("/enter/")} if guard == "off" else set())


def _cookie_of(served: Served) -> str:
    return f"nightlane-{served.url.rpartition(':')[2]}"


# --- how one gets in ---


def test_the_printed_address_signs_a_browser_in_for_good(settings: WorkerSettings) -> None:
    """Through a pipe or on a terminal; the cookie is kept from scripts and sites, and survives a
    restart.
    """
    served = Served(settings)
    assert served.child.stderr is not None
    told = [served.child.stderr.readline(), served.child.stderr.readline()][1].split()[-1]
    with served.client() as client:
        refused = client.get("/", headers=PAGE)
        entered = client.get(told)
        board = client.get("/", headers=PAGE)
    cookie = entered.headers["set-cookie"]
    port = served.url.rpartition(":")[2]
    served.end()
    again = Served(settings, "--port", port)
    with again.client() as client:
        kept = client.get("/", headers=PAGE | {"cookie": cookie.partition(";")[0]})
    said = again.end()

    assert refused.status_code == 401
    assert "cockpit open" in refused.text
    assert (entered.status_code, entered.headers["location"]) == (303, "/")
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= {part.strip() for part in cookie.split(";")}
    assert (board.status_code, kept.status_code) == (200, 200)
    assert "to sign a browser in: cockpit open" in said  # one is signed in: no address in the log


def test_the_cookie_is_secure_where_the_address_is(stranger: TestClient, db: Database) -> None:
    """Behind a proxy with TLS."""
    made = address(db, "https://127.0.0.1:8765")

    entered = stranger.get(made, follow_redirects=False)

    assert "; Secure" in entered.headers["set-cookie"]


def test_two_cockpits_on_one_host_sign_nobody_out_of_each_other(
    stranger: TestClient, db: Database
) -> None:
    """A browser sends a cookie to every port."""
    names = {
        stranger.get(address(db, base), follow_redirects=False).headers["set-cookie"].split("=")[0]
        for base in ("http://127.0.0.1:8765", "http://127.0.0.1:8766")
    }

    assert names == {"nightlane-8765", "nightlane-8766"}


@pytest.mark.parametrize("accept", ["text/html", "*/*"])
def test_whoever_is_not_let_in_hears_how_to_get_in_and_nothing_else(
    stranger: TestClient, db: Database, accept: str
) -> None:
    """A page for a person, a problem document for a program; no job, no lane, no path."""
    queue(db, name="a secret plan")

    for path in ("/", "/jobs/1", "/nowhere", "/api/v1/openapi.json", JOBS, "/enter/x"):
        _check_refusal(stranger.get(path, headers={"accept": accept}), path, accept)


def _check_refusal(answer: Any, path: str, accept: str) -> None:
    page = accept == "text/html" and not path.startswith("/api/")
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == 'Bearer realm="nightlane"'
    assert answer.headers["content-type"].startswith("text/html" if page else "application/problem")
    assert ("cockpit open" if page else "cockpit token new") in answer.text
    assert "a secret plan" not in answer.text
    assert "waiting" not in answer.text


def test_what_is_open_says_nothing_private(stranger: TestClient, db: Database) -> None:
    """That the process is up, and the package's own styles."""
    assert stranger.get("/healthz").json() == {"status": "ok"}
    assert stranger.get("/readyz").json() == {"status": "ok"}
    assert stranger.get("/static/cockpit.css").status_code == 200
    assert stranger.get("/healthz", headers=bearer(db)).json() == {"status": "ok", "viewers": 0}


def test_a_cockpit_without_sign_in_says_so_on_every_page(
    settings: WorkerSettings, db: Database
) -> None:
    """Whoever set it may have forgotten it."""
    from app.main import create_app  # noqa: PLC0415
    from app.web.settings import AppSettings  # noqa: PLC0415

    for auth in (False, True):
        headers = bearer(db) if auth else {}
        with TestClient(create_app(AppSettings(auth=auth), settings), ORIGIN) as client:
            pages = [client.get(path, headers=headers).text for path in ("/", "/queue", "/help")]
        assert ["No sign-in" in page for page in pages] == [not auth] * 3


def test_the_list_shows_the_last_use_and_a_revoked_browser_is_out(
    stranger: TestClient, db: Database, cockpit: Callable[..., Any]
) -> None:
    """By the command line, from its making to its end."""
    made = cockpit("token", "new", "--scope", "operate", "--days", "7", "--name", "night script")
    headers = {"authorization": f"Bearer {made.out.strip()}"}
    assert "never" in cockpit("token", "list").out
    assert stranger.post(PAUSE, headers=headers).status_code == 200
    assert "never" not in cockpit("token", "list").out
    assert made.out.strip() not in cockpit("token", "list", "--json").out
    stranger.get(cockpit("open").out.strip().replace("http://127.0.0.1:8765", ""))
    assert stranger.get(JOBS).status_code == 200

    for number in ("1", "2"):
        assert cockpit("token", "revoke", number).code == 0

    assert stranger.get(JOBS).status_code == 401
    assert stranger.get(JOBS, headers=headers).status_code == 401
    assert cockpit("token", "revoke", "9").code == 3
    for wrong in (("--scope", "root"), ("--days", "0"), ("--days", "9999"), ("--name", "")):
        assert cockpit("token", "new", *wrong).code == 2
    assert jobs.list_jobs(db) == []


# --- every route ---


def _routes(application: FastAPI) -> set[tuple[str, str]]:
    found = {
        (method, str(route.path))
        for route in iter_route_contexts(application.routes)
        for method in getattr(route, "methods", None) or ()
    }
    return {(method, path) for method, path in found if method != "HEAD"}


def test_every_route_that_changes_something_has_a_declared_scope(application: FastAPI) -> None:
    """Whoever adds one says who may call it; what is declared is a route."""
    routes = _routes(application)

    assert {route for route in routes if route[0] != "GET"} - set(SCOPES) == set()
    assert set(SCOPES) - routes == set()
    assert len(routes) > 80


@pytest.mark.parametrize("held", [None, Scope.READ, Scope.OPERATE])
def test_no_route_answers_whose_scope_is_too_small(
    held: Scope | None, application: FastAPI, stranger: TestClient, db: Database
) -> None:
    """401 without a credential, 403 with one of too small a scope: each route, before it acts."""
    headers = bearer(db, held) if held else {}
    wanted = 403 if held else 401
    shut = [
        (method, path)
        for method, path in _routes(application)
        if not is_open(path) and not (held and held.includes(scope_of(method, path)))
    ]

    answers = {
        route: stranger.request(route[0], re.sub(r"{\w+}", "1", route[1]), headers=headers)
        for route in shut
    }

    assert answers
    assert {route: answer.status_code for route, answer in answers.items()} == dict.fromkeys(
        shut, wanted
    )


def test_the_openapi_document_tells_of_the_door(client: TestClient) -> None:
    """Each operation: how one signs in, the scope, and the answers of the door; health is open."""
    document = client.get("/api/v1/openapi.json").json()

    schemes = document["components"]["securitySchemes"]
    assert (schemes["token"]["scheme"], schemes["browser"]["in"]) == ("bearer", "cookie")
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if path in {"/healthz", "/readyz"}:
                assert operation["security"] == []
                continue
            assert operation["security"] == [{"token": []}, {"browser": []}], path
            assert operation["x-scope"] == scope_of(method.upper(), path)
            for status in ("401", "403", "429"):
                assert "application/problem+json" in operation["responses"][status]["content"], path
    problem = document["components"]["schemas"]["Problem"]
    refused = client.get(JOBS, headers={"authorization": "Bearer no"}).json()
    assert set(refused) == set(problem["properties"]) == set(problem["required"])
