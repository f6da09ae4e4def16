"""The serving lane: a vLLM server beside the trainer, up for as long as a run needs it.

    with ServingLane(…) as lane:      a server that is there already is used, else one is started
        lane.bring()                  it answers with the policy's weights, proven
        lane.complete(requests)       completions by these weights

A server of ours never outlives the run; one that was there before is never stopped. Adapters are
swapped while it runs; a server of ours that cannot is restarted with the new one instead. Knows
no question and no reward.
"""

from __future__ import annotations

import os
import shlex
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from engine.contract.errors import RLLoopError
from engine.contract.serving import Serving
from engine.models.policy import Policy
from engine.run.stop import check_abort
from engine.sampling.vllm.client import Drawn, Request, RouteMissingError, ServerApi, ServerError
from engine.sampling.vllm.parity import ParityCheck
from engine.sampling.vllm.process import ServerProcess
from engine.sampling.vllm.sync import AdapterSync, Synced

_LOOK_S = 0.1
_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""What vLLM takes as --max-lora-rank."""
OPTIONS = "{options}"
"""In a serve command, the place of all options that the run needs."""

Say = Callable[[str, str], None]
"""`(code, text)`: a note among the run's events."""


@dataclass(frozen=True)
class Needs:
    """What a run asks of the server that it starts."""

    base: str
    """Model folder or hub id."""
    dtype: str
    window: int
    """Tokens of its longest prompt with its longest completion."""
    at_once: int
    """Sequences decoded at once."""
    rank: int
    kv_gib: int
    """For a server on the CPU, where no share of a GPU says it."""
    version: str | None
    """The pinned one; None takes any."""


class ServingLane:
    """Raises RLLoopError when no server of the right kind can be had, ServerError when it fails
    later on, Aborted while waiting for it."""

    def __init__(
        self,
        serving: Serving,
        needs: Needs,
        policy: Policy,
        *,
        contexts: Sequence[tuple[int, ...]],
        folder: Path,
        log: Path,
        tolerance: float,
        say: Say,
        listen: Callable[[Synced], None] = lambda _: None,
    ) -> None:
        """`contexts`: prompts at which the weights are proven; `folder`: for the adapters;
        `listen` is told about every sync.
        """
        self._serving = serving
        self._needs = needs
        self._folder = folder
        self._log = log
        self._say = say
        self._listen = listen
        self._api = ServerApi(serving)
        self._sync = AdapterSync(
            self._api,
            policy,
            ParityCheck(policy, contexts),
            name=serving.lora_name,
            folder=folder,
            tolerance=tolerance,
        )
        self._process: ServerProcess | None = None
        self.facts: dict[str, Any] = {}
        """For the run card: address, version, pin, whether it was started here."""

    def __enter__(self) -> Self:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        try:
            self._bring_up()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None
        shutil.rmtree(self._folder, ignore_errors=True)

    def bring(self) -> None:
        """The server answers with the policy's weights afterwards; nothing to do if it does."""
        synced = self._sync.bring(self._load)
        if synced is not None:
            self._listen(synced)

    def complete(self, requests: Sequence[Request]) -> list[list[Drawn]]:
        """k completions of each request, by the weights that were brought last."""
        at_once = max(1, self._needs.at_once // max(request.k for request in requests))
        name = self._serving.lora_name
        drawn = self._api.complete(name, requests, at_once=at_once, alive=self._alive)
        self._sync.still_ours()
        return drawn

    # --- bring-up ---

    def _bring_up(self) -> None:
        began = time.monotonic()
        try:
            there = self._api.answers()
        except ServerError as error:
            raise self._unfit(str(error)) from error
        if not there:
            self._start()
        try:
            self._check()
            self._facts(started=not there)
        except ServerError as error:
            raise self._unfit(str(error)) from error
        how = "was there and is used" if there else f"is up after {time.monotonic() - began:.0f} s"
        version = self.facts["version"]
        self._say("SERVING", f"vLLM {version} at {self._serving.url} {how}")

    def _start(self) -> None:
        serving = self._serving
        if serving.serve_cmd is None and not serving.here:
            problem = "does not answer, and it is another machine's"
            remedy = "start the server there, or set NIGHTLANE_SERVE_CMD to what starts it"
            raise RLLoopError.of("NIGHTLANE_VLLM_URL", serving.url, problem, remedy)
        adapter = self._sync.write()
        command = serve_command(serving, self._needs, adapter)
        env = {name: os.environ.get(name, value) for name, value in self._environment().items()}
        self._process = ServerProcess.start(
            command, stop_cmd=serving.stop_cmd, log=self._log, env=env
        )
        self._await_health()

    def _await_health(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + self._serving.timeout_s
        while not self._api.healthy():
            check_abort()
            status = self._process.poll()
            if status is not None:
                raise self._no_start(f"ended with status {status} before it was healthy")
            if time.monotonic() > deadline:
                raise self._no_start(
                    f"was not healthy at {self._serving.url} within {self._serving.timeout_s:g} s"
                )
            time.sleep(_LOOK_S)
        # Healthy, but is it ours? A port that was taken in between leaves our own one dead.
        status = self._process.poll()
        if status is not None:
            raise self._no_start(f"ended with status {status}, and another server has its port")

    def _no_start(self, problem: str) -> RLLoopError:
        assert self._process is not None
        said = self._process.log_tail()
        shown = f"{problem}: {said}" if said else f"{problem} and said nothing"
        command = self._serving.serve_cmd or f"{self._serving.program} serve …"
        return RLLoopError.of(
            "NIGHTLANE_SERVE_CMD",
            command[:80],
            shown,
            f"look at {self._log}; NIGHTLANE_SERVE_TIMEOUT_S is the time it has",
        )

    def _check(self) -> None:
        """Base, window and version, before the first rollout."""
        needs, url = self._needs, self._serving.url
        bases = [model for model in self._api.models() if model.parent is None]
        fitting = [m for m in bases if needs.base == m.name or same_weights(needs.base, m.root)]
        if not fitting:
            names = ", ".join(model.root for model in bases) or "nothing"
            problem = f"serves {names}, not this run's base {needs.base}"
            remedy = "stop it, or set NIGHTLANE_VLLM_URL to a free port"
            raise RLLoopError.of("NIGHTLANE_VLLM_URL", url, problem, remedy)
        window = fitting[0].window
        if window is not None and window < needs.window:
            problem = f"serves at most {window} tokens, and this run needs {needs.window}"
            remedy = "start it with a larger --max-model-len, or lower max_new_tokens"
            raise RLLoopError.of("NIGHTLANE_VLLM_URL", url, problem, remedy)
        found = self._api.version()
        if needs.version is not None and not same_version(needs.version, found):
            problem = f"is pinned, and the server at {url} is vLLM {found}"
            remedy = f"serve with vLLM {needs.version}, or set vllm_pin: {found}"
            raise RLLoopError.of("vllm_pin", needs.version, problem, remedy)
        self.facts["version"] = found

    def _facts(self, *, started: bool) -> None:
        self.facts |= {
            "url": self._serving.url,
            "pin": self._needs.version,
            "dtype": self._needs.dtype,
            "started_here": started,
        }

    def _unfit(self, line: str) -> RLLoopError:
        problem, _, remedy = line.partition("; ")
        return RLLoopError.of("NIGHTLANE_VLLM_URL", None, problem, remedy or "look at it")

    def _environment(self) -> Mapping[str, str]:
        """What vLLM reads beside its options; the operator's own environment counts first."""
        return {
            "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True",
            "VLLM_NO_USAGE_STATS": "1",
            "DO_NOT_TRACK": "1",
            "VLLM_CPU_KVCACHE_SPACE": str(self._needs.kv_gib),
        }

    # --- while it runs ---

    def _load(self, adapter: Path) -> None:
        try:
            self._api.load_adapter(self._serving.lora_name, str(adapter))
        except RouteMissingError as error:
            if self._process is None:
                raise ServerError(
                    f"{error}; start it with VLLM_ALLOW_RUNTIME_LORA_UPDATING=True, or let the run "
                    "start its own server"
                ) from error
            self._restart(adapter)
            return
        self._alive()

    def _restart(self, adapter: Path) -> None:
        """The way around a server that takes no adapter while it runs: minutes instead of a blink.

        A server that already serves this folder needs no other start.
        """
        assert self._process is not None
        served = {model.root for model in self._api.models()}
        if str(adapter) in served:
            return
        self._say("SERVING_RESTART", "the server takes no adapter while it runs; it is restarted")
        self._process.stop()
        self._start()
        self._check()

    def _alive(self) -> None:
        """Raises ServerError when the process of ours is dead."""
        status = None if self._process is None else self._process.poll()
        if status is not None:
            assert self._process is not None
            raise ServerError(
                f"the serving process ended with status {status}: {self._process.log_tail()}; "
                f"look at {self._log}"
            )


def serve_command(serving: Serving, needs: Needs, adapter: Path) -> list[str]:
    """The words of the command that starts the server, placeholders filled in.

    >>> serve_command(Serving(serve_cmd="run.sh {base} --port {port}"),
    ...               Needs("org/m", "float32", 64, 8, 16, 1, None), Path("/a"))
    ['run.sh', 'org/m', '--port', '8000']
    """
    options = _options(serving, needs, adapter)
    if serving.serve_cmd is None:
        return [serving.program, "serve", needs.base, *options]
    known = {
        "{base}": needs.base,
        "{host}": serving.host,
        "{port}": str(serving.port),
        "{lora_name}": serving.lora_name,
        "{adapter}": str(adapter),
        "{gpu_util}": f"{serving.gpu_util:g}",
    }
    words: list[str] = []
    for word in shlex.split(serving.serve_cmd):
        if word == OPTIONS:
            words += options
            continue
        for name, value in known.items():
            word = word.replace(name, value)  # noqa: PLW2901 - one place after the other
        words.append(word)
    return words


def _options(serving: Serving, needs: Needs, adapter: Path) -> list[str]:
    """What the run's numbers need of vLLM, however it is started."""
    rank = next((rank for rank in _RANKS if rank >= needs.rank), needs.rank)
    return [
        *("--host", serving.host, "--port", str(serving.port)),
        *("--dtype", needs.dtype, "--max-model-len", str(needs.window)),
        *("--max-num-seqs", str(needs.at_once)),
        *("--gpu-memory-utilization", f"{serving.gpu_util:g}"),
        *("--enable-lora", "--max-loras", "1", "--max-lora-rank", str(rank)),
        *("--lora-modules", f"{serving.lora_name}={adapter}"),
        # Log-probabilities of the distribution that was drawn from, as the trainer reads them; and
        # nothing of the model folder's generation config reaches a rollout.
        *("--logprobs-mode", "processed_logprobs", "--generation-config", "vllm"),
    ]


def same_weights(base: str, root: str) -> bool:
    """Whether two models are one: the same name, or folders whose weights are the same files.

    A shadow folder (the weights linked, the tokenizer's config mended) is the model it shadows.
    """
    files, theirs = (
        {path.resolve() for path in Path(name).glob("*.safetensors")} for name in (base, root)
    )
    return base == root or (bool(files) and files == theirs)


def same_version(pin: str, found: str) -> bool:
    """Whether a version is the pinned one; a build mark counts only where the pin has one.

    >>> same_version("0.32.0", "0.32.0+cpu"), same_version("0.32", "0.32.1")
    (True, False)
    """
    return pin == (found if "+" in pin else found.split("+", 1)[0])
