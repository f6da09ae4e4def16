"""What the worker can be told, from the environment: `NIGHTLANE_DATA_DIR=/data cockpit drain`.

Knows no job: what a job can be told stands in its kind.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any, get_args

from pydantic import AliasChoices, Field, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from engine.contract.documents import number_of
from engine.contract.errors import ConfigError, ConfigProblem
from engine.contract.paths import at_home
from engine.contract.serving import (
    DEFAULT_GPU_UTIL,
    DEFAULT_LORA_NAME,
    DEFAULT_TIMEOUT_S,
    DEFAULT_URL,
    LORA_NAME_PATTERN,
    Serving,
    readable_command,
    served_at,
)

SHORTEST_S, LONGEST_S = 0.001, 7 * 86_400.0
"""Of a duration in the settings: below it a loop would only turn, above it is a typing error."""

_DATA_DIR = Path("~/.nightlane")


def _default_lane() -> str:
    """The first GPU where the driver lists one, else the CPU."""
    try:
        gpus = any(Path("/proc/driver/nvidia/gpus").iterdir())
    except OSError:
        gpus = False
    return "gpu0" if gpus else "cpu"


def _names(field: str) -> AliasChoices:
    """A setting that also answers to its established name."""
    return AliasChoices(field, f"NIGHTLANE_{field.upper()}", f"FK_RL_{field.upper()}")


class EnvironmentSettings(BaseSettings):
    """Settings from the environment, which has text alone: a number is one as JSON writes it.

    Every variable is its name in capitals behind `NIGHTLANE_`, and an empty one counts as not set.
    """

    model_config = SettingsConfigDict(
        env_prefix="NIGHTLANE_",
        env_ignore_empty=True,
        extra="ignore",
        frozen=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )

    @field_validator("*", mode="before")
    @classmethod
    def _number(cls, given: Any, info: ValidationInfo) -> Any:
        annotation = cls.model_fields[str(info.field_name)].annotation
        taken = {annotation, *get_args(annotation)} & {int, float}
        if not taken or not isinstance(given, str):
            return given
        found = number_of(given.strip())
        if found is None or (taken == {int} and isinstance(found, float)):
            what = "a whole number" if taken == {int} else "a number"
            raise ValueError(f"{given[:80]!r} is not {what}; write {what} in plain digits")
        return found


class WorkerSettings(EnvironmentSettings):
    """The worker's settings."""

    data_dir: Path = _DATA_DIR
    """Where the database, the run directories and the caches live."""
    work_dir: Path | None = Field(None, validation_alias=_names("work_dir"))
    """Where the run directories live instead: rollouts and checkpoints take the most room."""
    database_url: str | None = None
    """A SQLAlchemy URL; without one, the SQLite file `nightlane.db` in the data directory."""
    lane: str = Field(default_factory=_default_lane, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    """Name of the accelerator that runs one job at a time: `gpu0` or `cpu`, as found."""
    devices: str | None = Field(None, pattern=r"^[A-Za-z0-9/-]+(,[A-Za-z0-9/-]+)*$")
    """Accelerators of the lane, as CUDA_VISIBLE_DEVICES names them: `0,1`. Its engines see those
    alone, and the ranks of a run take them in this order; by default all that the drain sees."""
    lock_dir: Path = Path("/tmp/nightlane-locks")  # noqa: S108 - shared by all users on purpose, mode 1777
    """Where the machine-wide lane locks live, the same for every data directory."""
    lease_s: float = Field(15.0, ge=SHORTEST_S, le=LONGEST_S)
    """Seconds without a heartbeat after which a drain may be replaced."""
    heartbeat_s: float = Field(3.0, ge=SHORTEST_S, le=LONGEST_S)
    """Seconds between two heartbeats; keep it well under `lease_s`."""
    poll_s: float = Field(0.1, ge=SHORTEST_S, le=LONGEST_S)
    """Seconds between two looks at the engine."""
    throttle_s: float = Field(0.5, ge=0, le=LONGEST_S)
    """Least seconds between two writes of a live result, unless the phase changed."""
    abort_grace_s: float = Field(120.0, ge=SHORTEST_S, le=LONGEST_S)
    """Seconds an engine has for its checkpoint after a stop request, before it is killed."""
    silence_s: float = Field(600.0, ge=0, le=LONGEST_S)
    """Seconds without an event after which a run counts as silent while nothing is learnt of its
    phase; then five times the phase's longest stretch. After three times the limit the attempt is
    ended, to resume. 0 = no run is ever silent."""
    silence_least_s: float = Field(60.0, ge=0, le=LONGEST_S)
    """Smallest limit that is learnt, in seconds: phases of quick events may pause for so long."""
    database_patience_s: float = Field(600.0, ge=0, le=LONGEST_S)
    """Seconds a running job goes on while the database is locked, full or away; then it is asked
    to stop at a checkpoint."""
    max_attempts: int = Field(5, ge=1)
    """Attempts a job may lose to a dead supervisor or machine before it counts as failed."""
    price_usd_h: float = Field(0.0, ge=0, le=10_000, allow_inf_nan=False)
    """US dollars that one hour of the lane costs; 0 on a machine that is paid for."""
    meter_s: float = Field(30.0, ge=SHORTEST_S, le=LONGEST_S)
    """Seconds between two entries of a running job in the ledger."""
    estimate_hours: float = Field(1.0, gt=0, le=10_000)
    """Hours that a job is expected to take before any of its kind has run here."""
    resident_stop_cmd: str | None = Field(None, validation_alias=_names("resident_stop_cmd"))
    """Command that stops the model living on the lane, before a job; none = nothing lives there."""
    resident_start_cmd: str | None = Field(None, validation_alias=_names("resident_start_cmd"))
    """Command that starts it again; it must return, and what it started must go on."""
    resident_check_cmd: str | None = None
    """Command that succeeds while it is up; without one, the start command's word counts."""
    resident_timeout_s: float = Field(120.0, ge=SHORTEST_S, le=LONGEST_S)
    """Seconds for stopping it, and for starting it until it is up."""
    memory_return_s: float = Field(60.0, ge=0, le=LONGEST_S)
    """Seconds to wait for memory to come back, after the resident stopped and after a run."""
    vllm_bin: str = Field("vllm", validation_alias=_names("vllm_bin"))
    """Program that serves models, by name or path, for kinds that need one."""
    vllm_url: str = Field(DEFAULT_URL, validation_alias=_names("vllm_url"))
    """Where it listens, with the prefix of its OpenAI routes; a server that answers there with the
    right model is used, and never stopped."""
    lora_name: str = Field(
        DEFAULT_LORA_NAME, pattern=LORA_NAME_PATTERN, validation_alias=_names("lora_name")
    )
    """Name under which the adapter in training is served: a chat program's model."""
    gpu_util: float = Field(DEFAULT_GPU_UTIL, gt=0, le=1, validation_alias=_names("gpu_util"))
    """Share of the accelerator's memory that the server takes (`--gpu-memory-utilization`)."""
    serve_cmd: str | None = Field(None, validation_alias=_names("serve_cmd"))
    """Command that serves instead of `vllm_bin serve …`, run without a shell. {base}, {host},
    {port}, {adapter}, {lora_name}, {gpu_util} are filled in, and {options}, a word of its own."""
    stop_cmd: str | None = Field(None, validation_alias=_names("stop_cmd"))
    """Command that ends what `serve_cmd` started out of reach (a container); the serving process
    and all below it are ended without one."""
    serve_timeout_s: float = Field(DEFAULT_TIMEOUT_S, ge=SHORTEST_S, le=LONGEST_S)
    """Seconds the server has until it is healthy, and for each answer."""
    notify_file: Path | None = None
    """Apprise configuration with the digest's addresses; else notify.yml in the data directory."""
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
    memory_total_gb: float | None = Field(None, gt=0)
    """Act as if the machine had only so many GB of memory; the rest is left to others."""
    device_floor_gb: float = Field(0.0, ge=0)
    """GB a discrete accelerator must keep free, or the run stops; 0 only records it, because a
    full accelerator ends its own process and never the machine."""
    meminfo: Path = Path("/proc/meminfo")
    """Where free memory is read; another file of that form rehearses a shortage."""

    @field_validator("vllm_url")
    @classmethod
    def _served_at(cls, url: str) -> str:
        return served_at(url)

    @field_validator("serve_cmd", "stop_cmd")
    @classmethod
    def _command(cls, command: str | None) -> str | None:
        return readable_command(command)

    @field_validator("data_dir", "work_dir", "lock_dir", "notify_file")
    @classmethod
    def _absolute(cls, path: Path | None) -> Path | None:
        """A drain may run in another directory than the one that was configured from."""
        try:
            return None if path is None else at_home(path).absolute()
        except ValueError:
            if path != _DATA_DIR:
                raise
            problem = "is not set, and this user has no home directory"
            remedy = "set it to a writable place"
            raise ConfigError(
                [ConfigProblem("NIGHTLANE_DATA_DIR", None, problem, remedy)]
            ) from None

    @property
    def serving(self) -> Serving:
        """The serving lane, as an engine is told it."""
        return Serving(
            url=self.vllm_url,
            lora_name=self.lora_name,
            gpu_util=self.gpu_util,
            program=self.vllm_bin,
            serve_cmd=self.serve_cmd,
            stop_cmd=self.stop_cmd,
            timeout_s=self.serve_timeout_s,
        )

    @property
    def serving_program(self) -> str:
        """What must be installed for it: the first word of the command in force."""
        return shlex.split(self.serve_cmd)[0] if self.serve_cmd else self.vllm_bin

    @property
    def runs_dir(self) -> Path:
        """One directory a job, named by its id."""
        return self.work_dir or self.data_dir / "runs"

    @property
    def cache_dir(self) -> Path:
        """What only depends on a recipe and can be made again."""
        return self.data_dir / "cache"
