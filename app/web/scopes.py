"""What each route asks of whoever calls it, in one place. `app/web/door.py` enforces it.

To look is `read`: every GET that is not named here. Whatever else is missing here is refused to all
but `admin`, and fails the test that walks the routes.
"""

from __future__ import annotations

from collections.abc import Mapping

from worker.access import Scope

OPEN = frozenset({"/healthz", "/readyz"})
"""Paths that answer anybody: whether the process is up, without a word about the work."""
OPEN_FOLDER = "/static/"
"""Styles and scripts of the package, which are the same everywhere."""

SCOPES: Mapping[tuple[str, str], Scope] = {
    # jobs and sweeps
    ("POST", "/api/v1/jobs"): Scope.OPERATE,
    ("POST", "/api/v1/jobs/check"): Scope.OPERATE,  # starts a process that looks at the model
    ("PATCH", "/api/v1/jobs/{job_id}"): Scope.OPERATE,
    ("POST", "/api/v1/jobs/{job_id}/cancel"): Scope.OPERATE,
    ("POST", "/api/v1/jobs/{job_id}/requeue"): Scope.OPERATE,
    ("POST", "/api/v1/jobs/{job_id}/retry"): Scope.OPERATE,
    ("POST", "/api/v1/jobs/{job_id}/move"): Scope.OPERATE,
    ("POST", "/api/v1/jobs/{job_id}/rescored"): Scope.OPERATE,
    ("GET", "/jobs/{job_id}/rescored"): Scope.OPERATE,  # starts a process that judges
    ("POST", "/api/v1/sweeps"): Scope.OPERATE,
    ("POST", "/api/v1/sweeps/{sweep_id}/cancel"): Scope.OPERATE,
    ("POST", "/jobs/{job_id}/cancel"): Scope.OPERATE,
    ("POST", "/jobs/{job_id}/requeue"): Scope.OPERATE,
    ("POST", "/jobs/{job_id}/retry"): Scope.OPERATE,
    ("POST", "/jobs/{job_id}/retry-fresh"): Scope.OPERATE,
    ("POST", "/jobs/{job_id}/move/{to}"): Scope.OPERATE,
    ("POST", "/new"): Scope.OPERATE,
    ("POST", "/new/check"): Scope.OPERATE,
    ("POST", "/new/rows"): Scope.OPERATE,
    ("POST", "/report/{date}/proposals/{key}/approve"): Scope.OPERATE,
    ("POST", "/report/{date}/proposals/{key}/edit"): Scope.OPERATE,
    ("POST", "/report/{date}/proposals/{key}/drop"): Scope.OPERATE,
    # the table of runs
    ("POST", "/runs/edit"): Scope.OPERATE,
    ("POST", "/runs/archive"): Scope.OPERATE,
    ("POST", "/runs/restore"): Scope.OPERATE,
    ("POST", "/runs/views"): Scope.OPERATE,
    ("POST", "/runs/views/drop"): Scope.OPERATE,
    ("POST", "/api/v1/runs/views"): Scope.OPERATE,
    ("DELETE", "/api/v1/runs/views/{name}"): Scope.OPERATE,
    ("POST", "/runs/delete"): Scope.ADMIN,
    ("DELETE", "/api/v1/jobs/{job_id}"): Scope.ADMIN,
    # the queue
    ("POST", "/api/v1/queue/pause"): Scope.OPERATE,
    ("POST", "/api/v1/queue/resume"): Scope.OPERATE,
    ("POST", "/queue/jobs/{job_id}/move"): Scope.OPERATE,
    ("POST", "/queue/jobs/{job_id}/cancel"): Scope.OPERATE,
    ("POST", "/queue/jobs/{job_id}/edit"): Scope.OPERATE,
    ("POST", "/queue/restore"): Scope.OPERATE,
    ("POST", "/queue/pause"): Scope.OPERATE,
    ("POST", "/queue/resume"): Scope.OPERATE,
    ("POST", "/drains"): Scope.OPERATE,
    # to stop is never kept from whoever may start
    ("POST", "/stop"): Scope.OPERATE,
    ("POST", "/queue/disarm"): Scope.OPERATE,
    ("DELETE", "/api/v1/autonomy"): Scope.OPERATE,
    # what the lane may do by itself, and what it costs
    ("PUT", "/api/v1/autonomy"): Scope.ADMIN,
    ("POST", "/queue/arm"): Scope.ADMIN,
    ("POST", "/queue/arm/tonight"): Scope.ADMIN,
    ("POST", "/api/v1/budget"): Scope.ADMIN,
    ("POST", "/budget/external"): Scope.ADMIN,
    ("POST", "/budget/price"): Scope.ADMIN,
}
"""(method, path of the route) → the least scope."""


def scope_of(method: str, path: str) -> Scope:
    """The least scope for a route; `path` as the route declares it.

    >>> scope_of("GET", "/queue"), scope_of("DELETE", "/a-route-nobody-declared")
    (<Scope.READ: 'read'>, <Scope.ADMIN: 'admin'>)
    """
    return SCOPES.get((method, path), Scope.READ if method == "GET" else Scope.ADMIN)


def is_open(path: str) -> bool:
    """Whether a path of a request answers anybody."""
    return path in OPEN or path.startswith(OPEN_FOLDER)
