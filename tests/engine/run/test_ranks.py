"""Which device a rank learns on. There is no GPU here: what the driver would say is told."""

from __future__ import annotations

import pytest
import torch

from engine.contract.errors import ConfigError
from engine.run.ranks import Ranks


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Devices that this rank, the second of two, takes."""
    for name, value in {"RANK": 1, "LOCAL_RANK": 1, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2}.items():
        monkeypatch.setenv(name, str(value))
    found: list[int] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_device", found.append)
    monkeypatch.setattr(torch.distributed, "init_process_group", lambda *_, **__: None)
    return found


@pytest.mark.requirement("LN-14")
def test_a_rank_takes_the_device_of_its_number(
    taken: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)

    Ranks.join(60.0, threads=1)

    assert taken == [1]


@pytest.mark.requirement("LN-14")
def test_more_ranks_than_devices_are_refused(
    taken: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a model loads, with what to set."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)

    with pytest.raises(ConfigError, match=r"ranks: wants a device for each, and the lane shows 1"):
        Ranks.join(60.0, threads=1)
    assert taken == []
