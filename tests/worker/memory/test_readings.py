"""Readings of free memory: the host's, a control group's, an accelerator's."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from tests.worker.memory.shortage import write_meminfo
from worker.memory.readings import DeviceMemory, HostMemory, Pressure, read_all

GB = 10**9


def nothing(tmp_path: Path) -> Path:
    """A file that says that a process is in no group."""
    path = tmp_path / "no-groups"
    path.write_text("")
    return path


def second(folder: Path, *, used: int, limit: str, cache: int = 1) -> None:
    """A control group of version 2."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.stat").write_text(
        f"anon 1\ninactive_file {cache - 1}\nactive_file 1\nfile 2\n"
    )


def first(folder: Path, *, used: int, limit: int, cache: int = 1) -> None:
    """A control group of version 1."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.usage_in_bytes").write_text(f"{used}\n")
    (folder / "memory.limit_in_bytes").write_text(f"{limit}\n")
    (folder / "memory.stat").write_text(
        f"inactive_file 7\ntotal_inactive_file {cache - 1}\ntotal_active_file 1\n"
    )


@pytest.mark.requirement("LN-07")
def test_the_host_tells_what_the_kernel_tells() -> None:
    """MemAvailable and MemTotal, in GB of 10⁹ bytes."""
    host = HostMemory()
    free, total = host.free_gb(), host.total_gb()

    assert free is not None
    assert total is not None
    assert 0 < free < total


def test_a_configured_total_leaves_the_rest_to_others(tmp_path: Path) -> None:
    """Of 100 GB with 60 free, a box told to have 50 has 10."""
    meminfo = tmp_path / "meminfo"
    write_meminfo(meminfo, total_gb=100, free_gb=60)

    host = HostMemory(meminfo, total_gb=50, own_groups=nothing(tmp_path))

    assert (host.total_gb(), host.free_gb()) == pytest.approx((50, 10))


@pytest.mark.parametrize("text", ["", "MemFree: 1 kB\n", "MemAvailable:\n", "MemAvailable: x kB\n"])
def test_a_reading_that_cannot_be_told_is_none(tmp_path: Path, text: str) -> None:
    """A missing line, a missing number, no number."""
    meminfo = tmp_path / "meminfo"
    meminfo.write_text(text)

    assert HostMemory(meminfo, own_groups=nothing(tmp_path)).free_gb() is None
    assert HostMemory(tmp_path / "absent", own_groups=nothing(tmp_path)).free_gb() is None


@pytest.mark.requirement("LN-07")
def test_the_tightest_group_of_version_2_counts(tmp_path: Path) -> None:
    """Its own limit or that of a group around it; page cache that can go counts as free."""
    meminfo = tmp_path / "meminfo"
    write_meminfo(meminfo, total_gb=100, free_gb=60)
    second(tmp_path / "groups", used=0, limit="max")
    second(tmp_path / "groups/night", used=9 * GB, limit=str(12 * GB), cache=2 * GB)
    second(tmp_path / "groups/night/job", used=5 * GB, limit=str(30 * GB))
    own = tmp_path / "own"
    own.write_text("0::/night/job\n")

    host = HostMemory(meminfo, groups=tmp_path / "groups", own_groups=own)

    assert host.group_gb() == pytest.approx(12 - (9 - 2))
    assert (host.total_gb(), host.free_gb()) == pytest.approx((12, 5))


@pytest.mark.requirement("LN-07")
def test_the_tightest_group_of_version_1_counts(tmp_path: Path) -> None:
    """The same with the other names; a limit of 2⁶³ is none."""
    meminfo = tmp_path / "meminfo"
    write_meminfo(meminfo, total_gb=100, free_gb=3)
    first(tmp_path / "groups/memory", used=0, limit=9223372036854771712)
    first(tmp_path / "groups/memory/box", used=6 * GB, limit=8 * GB, cache=3 * GB)
    own = tmp_path / "own"
    own.write_text("5:cpu:/else\n4:memory:/box\n0::/\n")

    host = HostMemory(meminfo, groups=tmp_path / "groups", own_groups=own)

    assert host.group_gb() == pytest.approx(5)
    assert host.free_gb() == pytest.approx(3), "the host itself has less"


def test_without_an_accelerator_its_memory_is_not_told() -> None:
    """No NVML, no device: nothing is read, nothing fails."""
    assert DeviceMemory(None).free_gb() is None
    assert DeviceMemory(0).free_gb() is None


def test_the_record_holds_every_reading(tmp_path: Path) -> None:
    """Pressure as a share; swap beside it."""
    meminfo = tmp_path / "meminfo"
    write_meminfo(meminfo, total_gb=100, free_gb=60)
    (tmp_path / "pressure").write_text("some avg10=12.50 avg60=0.00 avg300=0.00 total=1\n")
    host = HostMemory(meminfo, own_groups=nothing(tmp_path))

    reading = read_all(host, DeviceMemory(None), Pressure(tmp_path / "pressure"))

    assert reading._asdict() == {
        "free_gb": pytest.approx(60),
        "available_gb": pytest.approx(60),
        "group_gb": None,
        "device_gb": None,
        "swap_free_gb": 0,
        "pressure": 0.125,
    }
    assert Pressure(tmp_path / "absent").some() is None


def test_a_discrete_accelerator_is_read_through_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library's calls in its order; a driver that stops answering is no reading."""

    class NVML(ModuleType):
        """The three calls of nvidia-ml-py that are used, for a machine without a device."""

        answers = True

        def nvmlInit(self) -> None:  # noqa: N802 - the library's name
            self.started = True

        def nvmlDeviceGetHandleByIndex(self, index: int) -> str:  # noqa: N802 - as above
            assert self.started
            return f"device {index}"

        def nvmlDeviceGetMemoryInfo(self, handle: str) -> SimpleNamespace:  # noqa: N802 - as above
            if not self.answers:
                raise RuntimeError("the driver is gone")
            assert handle == "device 1"
            return SimpleNamespace(total=80 * GB, used=55 * GB, free=25 * GB)

    library = NVML("pynvml")
    monkeypatch.setitem(sys.modules, "pynvml", library)

    device = DeviceMemory(1)

    assert device.free_gb() == 25.0
    library.answers = False
    assert device.free_gb() is None
