"""A verifier whose library is of another version, or not there, is refused as its job is queued."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from engine.contract import verifiers
from engine.contract.errors import ConfigError, RLLoopError
from engine.contract.registry import validate
from engine.contract.verifiers import NEEDS, Needed, library_problem, verifier_names
from engine.rewards.adapter import load_verifier

TINY: Mapping[str, Any] = {"base": "embedded:qwen3-tiny", "tuning": "full"}
Installed = Callable[[str, str], None]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installed:
    """A distribution of a version that is found before this environment's own."""

    def install(name: str, version: str) -> None:
        folder = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        told = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        (folder / "METADATA").write_text(told)
        monkeypatch.syspath_prepend(str(tmp_path))

    return install


@pytest.mark.parametrize("version", ["4.9.3", "4.13.2"])
@pytest.mark.parametrize(
    ("field", "config"),
    [
        ("verifier", {"verifier": "minerva_math"}),
        ("verifier", {"verifier": "allenai_math"}),
        ("format.lenient", {"format": {"lenient": "minerva_math"}}),
    ],
)
def test_sympys_parser_is_asked_for_where_a_verifier_uses_it(
    installed: Installed, version: str, field: str, config: dict[str, Any]
) -> None:
    """The version of omegaconf, and a newer one; with the command that mends it."""
    installed("antlr4-python3-runtime", version)

    with pytest.raises(ConfigError) as error:
        validate("rl_run", {**TINY, **config})

    found = {one.field: one for one in error.value.problems}[field]
    assert f"needs antlr4-python3-runtime 4.11, and version {version} is installed" in found.problem
    assert "pip install 'nightlane[minerva]'" in found.remedy


@pytest.mark.parametrize("verifier", ["math", "exact", "gsm8k", "hendrycks_math"])
def test_the_other_verifiers_go_with_any_version(installed: Installed, verifier: str) -> None:
    """Beside verl or hydra a job of theirs is queued."""
    installed("antlr4-python3-runtime", "4.9.3")

    assert library_problem(verifier) is None


@pytest.mark.parametrize("verifier", ["ifeval", "reasoning_gym", "minerva_math"])
def test_a_library_that_is_not_there_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, verifier: str
) -> None:
    """Before it is queued, and where an engine is run by hand."""
    absent = Needed("nightlane-has-no-such-library", "", NEEDS[verifier][0].extra)
    monkeypatch.setattr(verifiers, "NEEDS", {verifier: (absent,)})

    with pytest.raises(ConfigError) as queued:
        validate("rl_run", {**TINY, "verifier": verifier})
    with pytest.raises(RLLoopError) as loaded:
        load_verifier(verifier)

    line = f"nightlane[{absent.extra}]"
    assert line in str(queued.value)
    assert line in str(loaded.value)
    assert "it is not installed" in str(loaded.value)


def test_each_library_comes_with_the_extra_that_is_named() -> None:
    """And the training libraries bring no version of antlr4 that another package may not have."""
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]

    assert set(NEEDS) <= set(verifier_names())
    for needed in {one for several in NEEDS.values() for one in several}:
        named = {re.split("[=<>]", line)[0]: line for line in extras[needed.extra]}
        assert needed.release in named[needed.distribution]
    assert not [line for line in extras["engine"] if line.startswith("antlr4")]


def test_this_environment_runs_every_verifier() -> None:
    """As `make setup` makes it."""
    assert [name for name in verifier_names() if library_problem(name)] == []
