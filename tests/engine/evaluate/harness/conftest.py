"""A policy whose tokenizer has a chat template; its weights are hardly ever asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.models.policy import Policy, build
from tests.engine.chat_model import save_chat_model


@pytest.fixture(scope="session")
def chat_policy(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    folder: Path = tmp_path_factory.mktemp("chat")
    return build(str(save_chat_model(folder, window=4096)), seed=0)
