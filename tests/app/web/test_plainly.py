"""Numbers and switches in an address are written as in a config, at every route."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any
from urllib.parse import quote

import pytest
from fastapi import Depends, FastAPI, Query
from pydantic import BaseModel, Field
from starlette.testclient import TestClient

from app.web.plainly import plainly_written
from tests.app.night import queue
from worker.db.connection import Database
from worker.read import jobs

_WRONG = {"integer": ("1_0", " 1", "1.0", "010", "٣", "true"), "boolean": ("yes", "on", "1", "T")}


def parameters(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any], str]]:
    """(method, path, parameter, type) of each number and switch in the document of the API."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            for one in operation.get("parameters", ()):
                found = one["schema"].get("type") or {
                    part.get("type") for part in one["schema"].get("anyOf", ())
                } - {"null"}
                for name in _WRONG:
                    if found in (name, {name}):
                        yield method, path, one, name


def test_every_number_and_switch_of_the_api_is_written_plainly(
    client: TestClient, db: Database
) -> None:
    """Field, value and remedy: in a query 422, in a path nothing stands there."""
    queue(db)
    asked = 0
    for method, path, one, name in parameters(client.get("/api/v1/openapi.json").json()):
        for wrong in _WRONG[name]:
            field, told = one["name"], quote(wrong)
            here = path.replace(f"{{{field}}}", told)
            here = here.replace("{job_id}", "1").replace("{sweep_id}", "1")
            query = f"?{field}={told}" if one["in"] == "query" else ""
            answer = client.request(method, f"{here}{query}", json={})
            [problem] = [p for p in answer.json()["problems"] if p["field"] == field]
            assert answer.status_code == (422 if query else 404), (method, here, query)
            assert (problem["value"], problem["remedy"][:6]) == (wrong, "write "), problem
            asked += 1
    assert asked > 100


@pytest.mark.parametrize(
    "address",
    ["/?before=1_0", "/queue?show=5.0", "/report?download=yes", "/new?clone=01", "/machine?job=1_0",
     "/jobs/1?from=1_0", "/jobs/1/series.json?name=a&points=1_00", "/compare?job=1&job=2_0",
     "/jobs/1/samples?step=1_0", "/jobs/1/samples?truncated=yes"],
)  # fmt: skip
def test_a_page_reads_its_address_as_strictly(
    client: TestClient, db: Database, address: str
) -> None:
    """A person reads which part of it is wrong."""
    queue(db)

    answer = client.get(address, headers={"accept": "text/html"})

    assert answer.status_code == 422
    assert address.rpartition("=")[2] in answer.text
    assert "; write " in answer.text


def test_a_job_that_was_not_meant_is_not_touched(client: TestClient, db: Database) -> None:
    """`1_0` is not job 10, and `?fresh=yes` queues nothing."""
    for _ in range(10):
        queue(db)

    refused = [
        client.post("/api/v1/jobs/1_0/cancel", json={}).status_code,
        client.post("/api/v1/jobs/10/retry?fresh=yes", json={}).status_code,
    ]

    assert refused == [404, 422]
    assert [job.state for job in jobs.list_jobs(db)] == ["queued"] * 10


class _Part(BaseModel):
    share: float | None = None
    whole: Annotated[list[int], Field(alias="n")] = []


def test_a_route_of_any_form_is_held_to_it() -> None:
    """A list, a model of a query, a number that may be a text too."""
    app = FastAPI(dependencies=[Depends(plainly_written)])

    @app.get("/model")
    def _model(part: Annotated[_Part, Query()]) -> Any:
        return part

    @app.get("/either")
    def _either(word: int | str = "") -> Any:
        return word

    asking = TestClient(app)

    assert asking.get("/model?share=0.5&n=1&n=20").json() == {"share": 0.5, "n": [1, 20]}
    assert asking.get("/model?n=1&n=2_0").status_code == 422
    assert asking.get("/model?share=.5_0").status_code == 422
    assert asking.get("/either?word=1_0").status_code == 200
