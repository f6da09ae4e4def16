"""Section `vllm`: the engine that generates rollouts beside the learner, and how weights reach it.

One section for every kind: `vllm` of an `rl_run` and an `eval_rerun`,
`custom.extra.rollout_matching.vllm` of the stage-2 kinds. What the operator decides (program,
commands, address) stands in `engine.contract.serving`. Torch-free; starts nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, Field, PlainValidator, model_validator

from engine.contract.section import StrictSection, refusal

COLOCATED_SHARE = 0.45
"""Of a GPU's memory, for an engine that shares the learner's (seed 002)."""
SAMPLER_GAP_LIMIT: Mapping[str, float] = MappingProxyType({"fp32": 0.01, "bf16": 0.1})
"""Nats a token. Two exact programs lay 5e-6 apart in the mean in fp32 and 0.034 in bfloat16
(SmolLM2-135M at temperature 0.8, vLLM 0.32 on a CPU; TRL saw 0.015, and 0.201 where the weights
were those of the step before). TF32 on a GPU needs the room that fp32 has."""
SYNC_TOLERANCE: Mapping[str, float] = MappingProxyType({"fp32": 0.01, "bf16": 0.15})
"""Nats a token that a server's proof after a sync may lie from the trainer's model."""
MAX_LORA_RANK = 512
MAX_TEMP = 2.0
MAX_PENALTY = 2.0
"""The largest rank, temperature and repetition penalty that vLLM takes."""
MOST_PARALLEL = 4
"""GPUs that an engine is spread over unless a config says otherwise."""


class Server(BaseModel):
    """One rollout server, its form resolved."""

    base_url: str
    group_port: int


class ServerEntryConfig(StrictSection):
    """One server of the list form."""

    base_url: str
    """URL before `/health/`, `/infer/` and the other routes."""
    group_port: int = Field(ge=1, le=65535)
    """Port of the weight-sync group."""


def _urls(value: Any) -> str | list[str] | None:
    if (
        value is None
        or isinstance(value, str)
        or (_filled(value) and all(isinstance(v, str) for v in value))
    ):
        return value  # type: ignore[no-any-return]
    raise ValueError("must be a URL or a list of URLs; write http://127.0.0.1:8000")


def _ports(value: Any) -> int | list[int] | None:
    if value is None or _is_port(value) or (_filled(value) and all(_is_port(v) for v in value)):
        return value  # type: ignore[no-any-return]
    raise ValueError("must be a port or a list of ports in 1..65535; write 51216")


def _filled(value: Any) -> bool:
    return isinstance(value, list) and bool(value)


def _is_port(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 65535


def _require_address(url: str) -> None:
    """Raises ValueError for a URL without a host, and for one whose port is none."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise ValueError(f"{url!r} has no port in 1..65535; write http://HOST:PORT") from None
    if not parts.hostname:
        raise ValueError(f"{url!r} names no host; write http://HOST:PORT")


class LaunchConfig(StrictSection):
    """Servers that a run starts on its own lane and ends with itself; the lane picks the ports."""

    replicas: int = Field(1, ge=1, le=64)
    """How many servers; each gets a contiguous part of the requests."""
    tensor_parallel_size: int | None = Field(None, ge=1)
    """GPUs of one server; else as many of the lane's as there are for each, 4 at most."""


class ServerConfig(StrictSection):
    """Which servers: `servers`, or `base_url` with `group_port`, are running already and are never
    started or stopped; those of `launch` are the run's own."""

    servers: list[ServerEntryConfig] | None = Field(None, min_length=1)
    """The list form."""
    base_url: Annotated[
        str | list[str] | None, PlainValidator(_urls, json_schema_input_type=str | list[str])
    ] = None
    """The older form: one URL or several."""
    group_port: Annotated[
        int | list[int] | None, PlainValidator(_ports, json_schema_input_type=int | list[int])
    ] = None
    """One port, or one per URL; one port for several URLs counts up."""
    launch: LaunchConfig | None = None
    """Servers of the run's own."""
    routes: Literal["openai", "infer"] | None = None
    """What external servers speak: vLLM's OpenAI routes, or ms-swift's `/infer/`; by default each
    is asked."""
    timeout_s: float = Field(240.0, gt=0)
    """Seconds for reachability and for joining the weight-sync group."""
    infer_timeout_s: float | None = None
    """Seconds a rollout request may take; null, or 0 and less, waits without limit."""

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        older = self.base_url is not None or self.group_port is not None
        if self.launch is not None:
            if self.servers is not None or older:
                raise ValueError("names servers and launches its own; keep one of them")
            return self
        if self.servers is None and not older:
            raise ValueError("names no server; list servers with base_url and group_port")
        if self.servers is not None and older:
            raise ValueError("names servers in both forms; keep servers, remove the other keys")
        if older:
            self._check_pairing()
        found = self.resolved()
        for server in found:
            if not server.base_url.startswith(("http://", "https://")):
                raise ValueError(f"{server.base_url!r} is no http URL; write http://HOST:PORT")
            _require_address(server.base_url)
        if len({server.base_url.rstrip("/") for server in found}) < len(found):
            raise ValueError("lists a server twice; name each base_url once")
        last = found[-1]
        if last.group_port > 65535:
            raise ValueError(f"derives the port {last.group_port}; lower group_port")
        return self

    def _check_pairing(self) -> None:
        urls, ports = self.base_url, self.group_port
        if urls is None or ports is None:
            raise ValueError("names base_url or group_port alone; give both, or list servers")
        if isinstance(urls, str) and isinstance(ports, list):
            raise ValueError(  # noqa: TRY004 - pydantic collects value errors
                "has one base_url and a list of ports; give one group_port"
            )
        if isinstance(urls, list) and isinstance(ports, list) and len(urls) != len(ports):
            raise ValueError(
                f"has {len(urls)} base_url and {len(ports)} group_port; give one port per URL"
            )

    def resolved(self) -> Sequence[Server]:
        """The external servers in their order, whichever form named them."""
        if self.launch is not None:
            return []
        if self.servers is not None:
            return [Server(base_url=s.base_url, group_port=s.group_port) for s in self.servers]
        urls, ports = self.base_url or [], self.group_port or []
        urls = [urls] if isinstance(urls, str) else urls
        if isinstance(ports, int):
            ports = [ports + i for i in range(len(urls))]
        return [Server(base_url=u, group_port=p) for u, p in zip(urls, ports, strict=True)]

    @property
    def read_timeout_s(self) -> float | None:
        """Seconds, None for no limit."""
        wait = self.infer_timeout_s
        return wait if wait is not None and wait > 0 else None


class SyncConfig(StrictSection):
    """How new weights reach the rollout engine."""

    mode: Literal["full", "adapter", "auto"] = "full"
    """Merged weights, the adapter alone, or the adapter where the engine takes one."""
    fallback_to_full: bool = True
    """After a failed adapter sync go on with full ones; else stop."""


class VLLMConfig(StrictSection):
    """The vLLM engine that generates rollouts."""

    names_servers: ClassVar[bool] = True
    """Whether mode `server` must say which; else the operator's address is used."""

    mode: Literal["colocate", "server"] = "colocate"
    """An engine on the learner's own devices, which gives its memory back while the learner
    learns; or servers that stay up beside it."""
    gpu_memory_utilization: float | None = Field(COLOCATED_SHARE, gt=0, le=1)
    """Share of a GPU's memory for the engine; null is the operator's NIGHTLANE_GPU_UTIL."""
    tensor_parallel_size: int | None = Field(None, ge=1)
    """GPUs that the engine is spread over; by default those of the lane, 4 at most."""
    max_model_len: int | None = Field(None, ge=1)
    """Longest prompt and answer together, in tokens; by default what the run's rows need."""
    enable_lora: bool = False
    """Whether the engine takes LoRA adapters."""
    server: ServerConfig | None = None
    """Which servers (mode `server`)."""
    sync: SyncConfig = SyncConfig()
    """How new weights reach the engine."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.names_servers and self.mode == "server" and self.server is None:
            raise refusal(
                ["server"],
                None,
                "is missing with vllm.mode server; list servers with base_url and group_port, "
                "or set vllm.mode: colocate or rollout_backend: hf",
            )
        if self.sync.mode == "adapter" and not self.enable_lora:
            raise refusal(
                ["sync", "mode"],
                "adapter",
                "needs an engine that takes adapters; set vllm.enable_lora: true, "
                "or sync.mode: full",
            )
        return self

    @property
    def external(self) -> Sequence[Server]:
        """Servers that were started beforehand; empty where the run has its own."""
        is_server = self.mode == "server" and self.server is not None
        return self.server.resolved() if is_server and self.server is not None else []

    @property
    def launch(self) -> LaunchConfig:
        """What the run starts, where it starts anything."""
        asked = self.server.launch if self.server is not None else None
        return asked or LaunchConfig(tensor_parallel_size=self.tensor_parallel_size)

    @property
    def sync_mode(self) -> Literal["full", "adapter"]:
        """`sync.mode` with `auto` resolved."""
        if self.sync.mode == "auto":
            return "adapter" if self.enable_lora else "full"
        return self.sync.mode


class RunSyncConfig(SyncConfig):
    """How new weights reach the engine of a run that may tune LoRA alone."""

    mode: Literal["full", "adapter", "auto"] = "auto"
    """Merged weights, the adapter alone, or the adapter with `tuning: lora` and merged weights with
    all else."""
    fallback_to_full: bool = False
    """After a failed adapter sync go on with merged weights, for good. A server of the run's own is
    then started with what vLLM 0.32 needs for both."""


class RunVLLMConfig(VLLMConfig):
    """As `rl_run` and `eval_rerun` have it: a server at the operator's address unless told, weights
    as the tuning needs them."""

    names_servers: ClassVar[bool] = False

    mode: Literal["colocate", "server"] = "server"
    """A server beside the trainer, by default the one at NIGHTLANE_VLLM_URL, which is started where
    none answers; or an engine that gives its memory back while the trainer learns."""
    gpu_memory_utilization: float | None = Field(None, gt=0, le=1)
    """Share of a GPU's memory for the engine; null is the operator's NIGHTLANE_GPU_UTIL, 0.55."""
    enable_lora: bool = True
    """Whether the engine takes LoRA adapters."""
    sync: RunSyncConfig = RunSyncConfig()
    """How new weights reach the engine."""


def parallel_problem(written: int | None, devices: int) -> str | None:
    """`problem; remedy` of a tensor_parallel_size that the lane has not the devices for."""
    if written is None or written <= max(1, devices):
        return None
    return (
        f"is spread over more GPUs than the lane has ({devices}); set it to {max(1, devices)}, or "
        "show the run more of them (CUDA_VISIBLE_DEVICES)"
    )


def parallel_used(written: int | None, devices: int, engines: int = 1) -> int:
    """GPUs of one of `engines` on a lane of so many devices.

    >>> parallel_used(None, 8), parallel_used(None, 3, engines=2), parallel_used(None, 0)
    (4, 1, 1)
    """
    return written or max(1, min(MOST_PARALLEL, devices // engines))
