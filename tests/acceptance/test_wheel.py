"""The installed package without its engine extra: it starts, lists and shows jobs."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import httpx
import pytest

from tests.acceptance.conftest import Cockpit
from tests.deadline import eventually
from tests.door import bearer_here

ROOT = Path(__file__).resolve().parent.parent.parent

ABSENT = """\
import sys

for name in ("torch", "transformers", "peft", "accelerate", "safetensors", "tokenizers", "numpy"):
    sys.modules[name] = None  # importing it is an ImportError, as where it is not installed
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `pip install nightlane` puts on disk: the wheel, unpacked, and no training library."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=120,
    )
    [wheel] = folder.glob("*.whl")
    target = folder / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    (target / "sitecustomize.py").write_text(ABSENT)
    return target


@pytest.fixture
def installed(cockpit: Cockpit, site: Path, monkeypatch: pytest.MonkeyPatch) -> Cockpit:
    """The cockpit of the wheel, in this process's children and in theirs."""
    monkeypatch.setenv("PYTHONPATH", str(site))
    where = subprocess.run(
        [sys.executable, "-P", "-c", "import app; print(app.__file__)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert where.stdout.startswith(str(site))
    return cockpit


def test_a_cockpit_only_install_starts_lists_and_shows_jobs(
    installed: Cockpit, site: Path, port: int
) -> None:
    """Templates, migrations and recipes travel in the wheel; nothing asks for torch."""
    recipe = site / "app/examples/demo.yaml"
    assert installed("enqueue", "rl_run", str(recipe), "--name", "tonight").returncode == 0

    listed = json.loads(installed("jobs", "--json").stdout)
    shown = json.loads(installed("show", "1", "--json").stdout)
    serve = installed.start("serve", "--port", str(port))
    try:
        token = bearer_here()
        board = eventually(lambda: _page(f"http://127.0.0.1:{port}/", token), "the board answers")
        page = _page(f"http://127.0.0.1:{port}/jobs/1", token)
        style = _page(f"http://127.0.0.1:{port}/static/cockpit.css", {})
    finally:
        serve.terminate()
        serve.communicate(timeout=10)

    assert [job["name"] for job in listed] == ["tonight"]
    assert shown["state"] == "queued"
    assert "tonight" in board
    assert "tonight" in page
    assert style


def test_a_job_without_the_engine_extra_fails_with_what_to_install(
    installed: Cockpit, site: Path
) -> None:
    """One line with the remedy, not a traceback that nobody reads."""
    installed("enqueue", "rl_run", str(site / "app/examples/demo.yaml"))

    installed("drain")

    shown = json.loads(installed("show", "1", "--json").stdout)
    assert (shown["state"], shown["cause"]) == ("failed", "CONFIG")
    assert "pip install 'nightlane[engine]'" in shown["error"]


def _page(url: str, headers: dict[str, str]) -> str:
    try:
        return httpx.get(url, headers=headers, trust_env=False).raise_for_status().text
    except httpx.HTTPError:
        return ""
