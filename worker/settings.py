"""What the worker can be told, from the environment: `NIGHTLANE_DATA_DIR=/data cockpit drain`.

Knows no job: what a job can be told stands in its kind.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import AliasChoices, Field, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict


def _default_lane() -> str:
    """The first GPU where the driver lists one, else the CPU."""
    try:
        gpus = any(Path("/proc/driver/nvidia/gpus").iterdir())
    except OSError:
        gpus = False
    return "gpu0" if gpus else "cpu"


class WorkerSettings(BaseSettings):
    """The worker's settings; every variable is its name in capitals behind `NIGHTLANE_`."""

    model_config = SettingsConfigDict(
        env_prefix="NIGHTLANE_", extra="ignore", frozen=True, use_attribute_docstrings=True
    )

    data_dir: Path = Path("~/.nightlane")
    """Where the database, the run directories and the caches live."""
    database_url: str | None = None
    """A SQLAlchemy URL; without one, the SQLite file `nightlane.db` in the data directory."""
    lane: str = Field(default_factory=_default_lane, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    """Name of the accelerator that runs one job at a time: `gpu0` or `cpu`, as found."""
    lock_dir: Path = Path("/tmp/nightlane-locks")  # noqa: S108 - shared by all users on purpose, mode 1777
    """Where the machine-wide lane locks live, the same for every data directory."""
    lease_s: float = Field(15.0, gt=0)
    """Seconds without a heartbeat after which a drain may be replaced."""
    heartbeat_s: float = Field(3.0, gt=0)
    """Seconds between two heartbeats; keep it well under `lease_s`."""
    poll_s: float = Field(0.1, gt=0)
    """Seconds between two looks at the engine."""
    throttle_s: float = Field(0.5, ge=0)
    """Least seconds between two writes of a live result, unless the phase changed."""
    abort_grace_s: float = Field(120.0, gt=0)
    """Seconds an engine has for its checkpoint after a stop request, before it is killed."""
    max_attempts: int = Field(5, ge=1)
    """Attempts a job may lose to a dead supervisor or machine before it counts as failed."""
    tick_minutes: float = Field(0.0, ge=0)
    """Minutes between two ticks of `cockpit serve`; 0 = jobs are only started by a person."""
    oom_floor_gb: float = Field(
        4.0,
        ge=0,
        validation_alias=AliasChoices(
            "oom_floor_gb", "NIGHTLANE_OOM_FLOOR_GB", "FK_RL_OOM_FLOOR_GB"
        ),
    )
    """GB the machine must keep free, or the run stops; at most 8 % of a box under 64 GB."""
    oom_warn_gb: float = Field(
        8.0,
        ge=0,
        validation_alias=AliasChoices("oom_warn_gb", "NIGHTLANE_OOM_WARN_GB", "FK_RL_OOM_WARN_GB"),
    )
    """GB under which memory counts as scarce; at most 16 % of a box under 64 GB."""

    @field_validator("data_dir", "lock_dir")
    @classmethod
    def _absolute(cls, path: Path) -> Path:
        """A drain may run in another directory than the one that was configured from."""
        return path.expanduser().absolute()

    @property
    def runs_dir(self) -> Path:
        """One directory a job, named by its id."""
        return self.data_dir / "runs"

    @property
    def cache_dir(self) -> Path:
        """What only depends on a recipe and can be made again."""
        return self.data_dir / "cache"

    @property
    def url(self) -> str:
        """The database URL in force."""
        return self.database_url or f"sqlite:///{self.data_dir / 'nightlane.db'}"
