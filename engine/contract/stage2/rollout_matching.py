"""`custom.extra.rollout_matching`: who generates the rollouts, how, and how they are matched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, Field, PlainValidator, model_validator
from pydantic.json_schema import SkipJsonSchema

from engine.contract.section import StrictSection, absent, legacy, refusal

_MOVED = (
    "has moved; set custom.extra.rollout_matching.decoding.{0} "
    "instead of custom.extra.rollout_matching.{0}"
)


class DecodingConfig(StrictSection):
    """How the next token is chosen."""

    temperature: float = Field(0.0, ge=0)
    """0 is greedy."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Smallest probability mass to sample from."""
    top_k: int = -1
    """Number of tokens to sample from; -1 is all."""

    @model_validator(mode="after")
    def _top_k(self) -> Self:
        if self.top_k != -1 and self.top_k < 1:
            raise refusal(["top_k"], self.top_k, "must be -1 or at least 1; -1 samples from all")
        return self


class RepeatGuardConfig(StrictSection):
    """Ends a rollout that repeats itself."""

    enabled: bool = True
    """Whether it watches."""
    min_new_tokens: int = Field(1024, ge=0)
    """It looks from this length on."""
    max_consecutive_token_repeats: int = Field(64, ge=2)
    """The same token so many times in a row."""
    ngram_size: int = Field(64, ge=1)
    """Length of a repeated stretch."""
    ngram_repeats: int = Field(2, ge=2)
    """How often the stretch may stand there."""
    max_object_keys: int = Field(256, ge=1)
    """Most objects in one rollout."""


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


class ServerConfig(StrictSection):
    """Where the rollout servers are: either `servers`, or `base_url` with `group_port`."""

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
    timeout_s: float = Field(240.0, gt=0)
    """Seconds for reachability and for joining the weight-sync group."""
    infer_timeout_s: float | None = None
    """Seconds a rollout request may take; null, or 0 and less, waits without limit."""

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        older = self.base_url is not None or self.group_port is not None
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
        """The servers in their order, whichever form named them."""
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

    mode: Literal["colocate", "server"] = "colocate"
    """On the learner's own GPUs, or on servers started beforehand."""
    gpu_memory_utilization: float = Field(0.45, gt=0, le=1)
    """Share of a GPU's memory for the colocated engine."""
    tensor_parallel_size: int = Field(4, ge=1)
    """GPUs the colocated engine is spread over."""
    max_model_len: int | None = Field(None, ge=1)
    """Longest prompt and answer together; by default the model's own."""
    enable_lora: bool = False
    """Whether the engine takes LoRA adapters."""
    server: ServerConfig | None = None
    """Where the servers are (mode `server`)."""
    sync: SyncConfig = SyncConfig()
    """How new weights reach the engine."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.mode == "server" and self.server is None:
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
    def sync_mode(self) -> Literal["full", "adapter"]:
        """`sync.mode` with `auto` resolved."""
        if self.sync.mode == "auto":
            return "adapter" if self.enable_lora else "full"
        return self.sync.mode


class RolloutMatchingConfig(StrictSection):
    """Everything about rollouts, whichever trainer asks for them."""

    rollout_backend: Literal["vllm", "hf"] = "vllm"
    """Who generates."""
    vllm: VLLMConfig = Field(default_factory=absent, validate_default=True)
    """The vLLM engine."""
    decoding: DecodingConfig = DecodingConfig()
    """How the next token is chosen."""
    decode_batch_size: int = Field(2, ge=1)
    """Samples generated in one call; the learner's micro-batch is its own."""
    max_new_tokens: int = Field(3084, ge=1)
    """Longest rollout, in tokens."""
    repetition_penalty: float = Field(1.0, gt=0)
    """1 is none."""
    repeat_terminate: RepeatGuardConfig = RepeatGuardConfig()
    """Ends a rollout that repeats itself."""
    candidate_top_k: int = Field(5, ge=1)
    """Objects a prediction may be matched to."""
    iou_gate: float = Field(0.3, ge=0, le=1)
    """Box IoU from which a match is feasible."""
    fp_cost: float = Field(0.5, ge=0, le=1000)
    """Cost of leaving a prediction unmatched."""
    fn_cost: float = Field(2.0, ge=0, le=1000)
    """Cost of leaving an object unmatched."""
    post_rollout_pack_scope: Literal["micro", "window"] = "micro"
    """Carry leftovers from pack to pack, or pack a whole accumulation window at once."""
    temperature: Annotated[SkipJsonSchema[None], legacy(_MOVED.format("temperature"))] = Field(
        None, exclude=True
    )
    top_p: Annotated[SkipJsonSchema[None], legacy(_MOVED.format("top_p"))] = Field(
        None, exclude=True
    )
    top_k: Annotated[SkipJsonSchema[None], legacy(_MOVED.format("top_k"))] = Field(
        None, exclude=True
    )
    rollout_buffer: Annotated[
        SkipJsonSchema[None],
        legacy("is no longer a setting; remove rollout_buffer, every step rolls out afresh"),
    ] = Field(None, exclude=True)
