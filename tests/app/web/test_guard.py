"""The guard: a page of another site cannot speak to the cockpit through this browser."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from app.web.guard import MAX_BODY_BYTES
from app.web.protocol import MAX_HEAD_BYTES
from tests.app.conftest import ORIGIN
from worker.db.connection import Database
from worker.read import feed
from worker.settings import WorkerSettings


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "10.0.0.7:8765"])
def test_a_request_to_another_host_name_is_refused(client: TestClient, host: str) -> None:
    """DNS rebinding points a foreign name at 127.0.0.1; the name gives it away."""
    answer = client.get("/", headers={"host": host})

    assert answer.status_code == 421
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("host", ["127.0.0.1:8765", "localhost", "LOCALHOST:1", "[::1]:8765"])
def test_every_loopback_name_is_served(client: TestClient, host: str) -> None:
    """People write the address as they like."""
    assert client.get("/", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "same-origin", "origin": "https://evil.example"},
    ],
)
def test_an_unsafe_request_from_another_site_is_refused(
    client: TestClient, headers: dict[str, str]
) -> None:
    """A form on another page must not enqueue a job."""
    answer = client.post("/api/v1/jobs", json={"kind": "rl_run"}, headers=headers)

    assert answer.status_code == 403
    assert client.get("/api/v1/jobs").json()["jobs"] == []


@pytest.mark.parametrize(
    ("header", "other"),
    [
        ("host", "evil.example"),
        ("host", "127.0.0.1:8765"),
        ("origin", "https://evil.example"),
        ("sec-fetch-site", "cross-site"),
        ("content-type", "text/plain"),
        ("idempotency-key", "b"),
    ],
)
def test_a_header_that_was_sent_twice_is_refused_by_name(
    client: TestClient, header: str, other: str
) -> None:
    """Two readers of one request could each believe another one of them."""
    ours = {
        "host": "127.0.0.1:8765",
        "origin": ORIGIN,
        "sec-fetch-site": "same-origin",
        "content-type": "application/json",
        "idempotency-key": "a",
    }

    for twice in ([ours[header], other], [other, ours[header]]):
        headers = [*((k, v) for k, v in ours.items() if k != header), *((header, v) for v in twice)]
        answer = client.post("/api/v1/jobs", content=b"{}", headers=headers)

        assert answer.status_code == 400
        assert answer.json()["code"] == "bad_request"
        assert f"the header {header} was sent twice" in answer.json()["detail"]


def test_headers_over_the_limit_are_refused(client: TestClient) -> None:
    """Sixty-four kilobytes in one header or in many."""
    one = {"x-a": "a" * MAX_HEAD_BYTES}
    many = {f"x-{n}": "a" * 1000 for n in range(70)}

    assert [client.get("/", headers=sent).status_code for sent in (one, many)] == [431, 431]


@pytest.mark.parametrize("begin", [b"GET / HTTP/1.1\r\nX-A: ", b"GET /?q=", b"GET / HTTP/1.1\r\n"])
def test_a_head_without_an_end_is_refused_before_it_is_read(
    settings: WorkerSettings, begin: bytes
) -> None:
    """The real server answers 431 and closes; a hundred megabytes are never in its memory."""
    serving = subprocess.Popen(
        [sys.executable, "-m", "app.cli", "serve", "--port", "0"],
        env=os.environ | {"NIGHTLANE_DATA_DIR": str(settings.data_dir)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert serving.stdout is not None
        port = urlsplit(serving.stdout.readline().strip()).port
        with socket.create_connection(("127.0.0.1", port or 0), timeout=20) as connection:
            sent = connection.send(begin)
            answer = b""
            with suppress(ConnectionError):
                while sent < 100_000_000:
                    sent += connection.send(b"a" * 65_000)
            with suppress(ConnectionError):
                answer = connection.recv(100)
        largest = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{serving.pid}/status").read_text())
        assert largest
        with socket.create_connection(("127.0.0.1", port or 0), timeout=20) as connection:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            after = connection.recv(100)
    finally:
        serving.terminate()
        serving.communicate(timeout=30)

    assert sent < 20_000_000
    assert answer.startswith(b"HTTP/1.1 431 ") or not answer  # the rest may have reset it
    assert int(largest[1]) < 300_000
    assert after.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/api/v1/jobs", "GET, HEAD, POST"),
        ("DELETE", "/new", "GET, HEAD, POST"),
        ("PUT", "/api/v1/jobs/1/cancel", "POST"),
        ("POST", "/", "GET, HEAD"),
        ("POST", "/static/cockpit.css", "GET, HEAD"),
        ("DELETE", "/api/v1/openapi.json", "GET, HEAD"),
    ],
)
def test_a_method_that_a_path_has_not_is_answered_with_those_it_has(
    client: TestClient, method: str, path: str, allowed: str
) -> None:
    """Whatever route of the path the router met first."""
    answer = client.request(method, path)

    assert (answer.status_code, answer.headers["allow"]) == (405, allowed)


def test_a_page_of_the_cockpit_and_a_plain_program_may_post(client: TestClient) -> None:
    """A browser on our page sends our origin; curl sends none."""
    ours = {"origin": ORIGIN, "sec-fetch-site": "same-origin"}

    assert client.post("/api/v1/jobs", json={"kind": "nope"}, headers=ours).status_code == 422
    assert client.post("/api/v1/jobs", json={"kind": "nope"}).status_code == 422


def test_every_answer_forbids_inline_script_framing_sniffing_and_keeping(
    client: TestClient,
) -> None:
    """Also an error and a refusal; one page without the headers would be enough for an attack."""
    for answer in (client.get("/"), client.get("/nope"), client.get("/", headers={"host": "x"})):
        policy = answer.headers["content-security-policy"]
        assert "unsafe" not in policy
        assert "sha256" not in policy, "nor one text by its hash: a page links what it needs"
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("site", ["cross-site", "same-site", "", None])
def test_a_page_that_another_site_may_have_opened_is_out_of_its_sight(
    client: TestClient, site: str | None
) -> None:
    """Also where a browser does not say who sent for it."""
    told = {} if site is None else {"sec-fetch-site": site}

    answer = client.get("/", headers=told)

    assert answer.headers["cross-origin-opener-policy"] == "same-origin"


@pytest.mark.parametrize("site", ["none", "same-origin"])
def test_a_page_that_its_reader_opened_keeps_the_renderer_that_stands_ready(
    client: TestClient, site: str
) -> None:
    """For the policy a new tab would start another one, when the answer has come."""
    answer = client.get("/", headers={"sec-fetch-site": site})

    assert "cross-origin-opener-policy" not in answer.headers


def test_a_body_over_the_limit_is_refused_with_and_without_a_length(client: TestClient) -> None:
    """A chunked body names no length, so what arrives is counted."""
    large = b'"' + b"a" * (MAX_BODY_BYTES + 1) + b'"'
    json_type = {"content-type": "application/json"}

    told = client.post("/api/v1/jobs", content=large, headers=json_type)
    chunked = client.post("/api/v1/jobs", content=iter([large]), headers=json_type)

    assert (told.status_code, chunked.status_code) == (413, 413)
    assert chunked.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("path", "media_type", "part"),
    [
        ("/new/check", "application/x-www-form-urlencoded", b"kind=rl_run&f:"),
        ("/new", "application/x-www-form-urlencoded", b"kind=rl_run"),
        ("/api/v1/jobs", "application/json", b'{"kind": "rl_'),
    ],
)
@pytest.mark.usefixtures("client")
def test_who_leaves_in_the_middle_of_a_question_is_no_defect_of_ours(
    application: FastAPI, db: Database, path: str, media_type: str, part: bytes
) -> None:
    """A form that is typed on takes its last check back; the log stays without a traceback."""
    messages = iter(
        [
            {"type": "http.request", "body": part, "more_body": True},
            {"type": "http.disconnect"},
        ]
    )
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST",
        "scheme": "http", "path": path, "raw_path": path.encode(), "query_string": b"",
        "headers": [(b"host", b"127.0.0.1:8765"), (b"content-type", media_type.encode())],
        "server": ("127.0.0.1", 8765), "client": ("127.0.0.1", 1), "root_path": "",
    }  # fmt: skip

    async def receive() -> Any:
        return next(messages)

    async def send(_message: Any) -> None:
        """Nobody is there to read it."""

    anyio.run(application, scope, receive, send)

    assert feed.last_change_id(db) == 0
