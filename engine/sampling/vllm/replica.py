"""One server of a lane: found running or started here, checked before it is asked, and ended.

A server of ours never outlives the run; one that was there before is never stopped. Knows no
question, no reward and no weights.
"""

from __future__ import annotations

import getpass
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from engine.contract.errors import RLLoopError
from engine.contract.serving import Serving
from engine.run.stop import check_abort, sign_of_life
from engine.sampling.vllm.checks import ReplyCheck
from engine.sampling.vllm.client import ServerApi
from engine.sampling.vllm.endpoint import Limits, ServerError, ServerLostError
from engine.sampling.vllm.fleet import Fleet
from engine.sampling.vllm.launch import Needs, same_version, same_weights, serve_command
from engine.sampling.vllm.places import VISIBLE
from engine.sampling.vllm.process import ServerProcess

_LOOK_S = 0.1
_OURS = {VISIBLE, "PYTHONPATH"}
"""Variables that were made from the operator's: a server's share of his devices, a folder more."""

Say = Callable[[str, str], None]
"""`(code, text)`: a note among the run's events."""


class Replica:
    """Raises RLLoopError when no server of the right kind can be had, ServerError when it fails
    later on, Aborted while waiting for it."""

    def __init__(
        self,
        serving: Serving,
        needs: Needs,
        *,
        check: ReplyCheck | None = None,
        limits: Limits | None = None,
        log: Path,
        say: Say,
        adapter: Callable[[], Path | None] | None,
        options: Sequence[str] = (),
        environment: Mapping[str, str] = MappingProxyType({}),
        temporary: Path | None = None,
        folders: Sequence[Path] = (),
        field: str = "NIGHTLANE_VLLM_URL",
        external: bool = False,
        served_before: bool = False,
    ) -> None:
        """`check`: what answers are held against; `limits`: other than those of the lane. Of a
        server that is started: `adapter` writes what it serves from the start, where it is
        sent adapters; `options` and `environment` are what the way of the weights needs;
        `temporary` is where its temporary files lie, and `folders` are taken away when this process
        was killed. `field`: the setting that names it, for errors;
        `external`: never started, whatever happens; `served_before`: an earlier attempt sampled
        from it, so its silence is a loss and no mistake in a setting.
        """
        self.serving = serving
        self.api = ServerApi(serving, limits=limits, check=check)
        self._needs = needs
        self._log = log
        self._say = say
        self._adapter = adapter
        self._options = options
        self._environment = environment
        self._temporary = temporary
        self._folders = folders
        self._field = field
        self._external = external
        self._served_before = served_before
        self._process: ServerProcess | None = None
        self._began = 0.0
        self.facts: dict[str, Any] = {}
        """For the run card: address, version, pin, whether it was started here."""

    @property
    def ours(self) -> bool:
        """Whether it was started here, and may be ended and started again."""
        return self._process is not None

    def begin(self) -> None:
        """Find what answers at the address, else start it there without waiting for it: several
        come up beside one another. `bring_up` ends it.
        """
        self._began = time.monotonic()
        try:
            if self._external:
                Fleet([self.api]).reach()
            there = self._external or self.api.answers()
        except ServerLostError as error:
            if self._served_before:
                raise
            raise self._unfit(str(error)) from error
        except ServerError as error:
            raise self._unfit(str(error)) from error
        if not there:
            self._spawn()

    def bring_up(self) -> None:
        """Wait for a server that was begun here; checked, whoever started it."""
        if self.ours:
            self._await_health()
        try:
            self._check()
        except ServerError as error:
            raise self._unfit(str(error)) from error
        self.facts |= {
            "url": self.serving.shown,
            "pin": self._needs.version,
            "dtype": self._needs.dtype,
            "started_here": self.ours,
        }
        took = time.monotonic() - self._began
        how = f"is up after {took:.0f} s" if self.ours else "was there and is used"
        self._say("SERVING", f"vLLM {self.facts['version']} at {self.serving.shown} {how}")

    def start(self) -> None:
        """Until it is healthy. Raises RLLoopError with its last words when it does not come up."""
        self._spawn()
        self._await_health()

    def stop(self) -> None:
        """End it, if it is ours; nothing of it is left afterwards."""
        if self._process is not None:
            self._process.stop()
            self._process = None

    def restart(self) -> None:
        """End it and start it again. Raises as `start`."""
        self.stop()
        self.start()
        self._check()

    def memory_gb(self) -> float:
        """What the processes of a server of ours hold; 0 of another."""
        return 0.0 if self._process is None else self._process.memory_gb()

    def alive(self) -> None:
        """Raises ServerLostError when the process of ours is dead."""
        status = None if self._process is None else self._process.poll()
        if status is not None:
            assert self._process is not None
            raise ServerLostError(
                f"the serving process ended with status {status}: {self._process.log_tail()}; "
                f"look at {self._log}"
            )

    # --- inside ---

    def _spawn(self) -> None:
        serving = self.serving
        if serving.serve_cmd is None and not serving.here:
            if self._served_before:
                raise ServerLostError(f"{serving.url} does not answer any more")
            problem = "does not answer, and it is another machine's"
            remedy = "start the server there, or set NIGHTLANE_SERVE_CMD to what starts it"
            raise RLLoopError.of(self._field, serving.url, problem, remedy)
        if serving.socket is not None:  # vLLM leaves it behind, and binds no path that is there
            serving.socket.unlink(missing_ok=True)
        adapter = None if self._adapter is None else self._adapter()
        command = serve_command(serving, self._needs, adapter, self._options)
        env = self._known_environment() | dict(self._environment)
        env |= {name: os.environ[name] for name in env.keys() & os.environ.keys() - _OURS}
        if self._temporary is not None:
            # vLLM leaves sockets and files there. What torch compiled is for the next start too.
            env["TMPDIR"] = str(self._temporary)
            env["TORCHINDUCTOR_CACHE_DIR"] = _compiled()
        self._process = ServerProcess.start(
            command,
            stop_cmd=serving.stop_cmd,
            log=self._log,
            env=env,
            folders=self._folders,
        )

    def _await_health(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + self.serving.timeout_s
        while not self.api.healthy():
            check_abort()
            sign_of_life()
            status = self._process.poll()
            if status is not None:
                raise self._no_start(f"ended with status {status} before it was healthy")
            if time.monotonic() > deadline:
                raise self._no_start(
                    f"was not healthy at {self.serving.shown} within {self.serving.timeout_s:g} s"
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
        command = self.serving.serve_cmd or f"{self.serving.program} serve …"
        return RLLoopError.of(
            "NIGHTLANE_SERVE_CMD",
            command[:80],
            shown,
            f"look at {self._log}; NIGHTLANE_SERVE_TIMEOUT_S is the time it has",
        )

    def _check(self) -> None:
        """Base, window and version, before the first rollout."""
        needs, url = self._needs, self.serving.shown
        bases = [model for model in self.api.models() if model.parent is None]
        fitting = [m for m in bases if needs.base == m.name or same_weights(needs.base, m.root)]
        if not fitting:
            names = ", ".join(model.root for model in bases) or "nothing"
            problem = f"serves {names}, not this run's base {needs.base}"
            remedy = f"stop it, or set {self._field} to a free port"
            raise RLLoopError.of(self._field, url, problem, remedy)
        window = fitting[0].window
        if window is not None and window < needs.window:
            problem = f"serves at most {window} tokens, and this run needs {needs.window}"
            remedy = "start it with a larger --max-model-len, or lower max_new_tokens"
            raise RLLoopError.of(self._field, url, problem, remedy)
        found = self.api.version()
        if needs.version is not None and not same_version(needs.version, found):
            problem = f"is pinned, and the server at {url} is vLLM {found}"
            remedy = f"serve with vLLM {needs.version}, or set vllm_pin: {found}"
            raise RLLoopError.of("vllm_pin", needs.version, problem, remedy)
        self.facts |= {"version": found, "model": fitting[0].name}

    def _unfit(self, line: str) -> RLLoopError:
        problem, _, remedy = line.partition("; ")
        return RLLoopError.of(self._field, None, problem, remedy or "look at it")

    def _known_environment(self) -> dict[str, str]:
        """What vLLM reads beside its options; the operator's own environment counts first."""
        return {
            "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True",
            "VLLM_NO_USAGE_STATS": "1",
            "DO_NOT_TRACK": "1",
            # Nothing that it listens on is reached from elsewhere.
            "VLLM_HOST_IP": "127.0.0.1",
            "VLLM_CPU_KVCACHE_SPACE": str(self._needs.kv_gib),
        }


def _compiled() -> str:
    """Where torch keeps it by default; the operator's own setting counts first."""
    default = Path(tempfile.gettempdir()) / f"torchinductor_{getpass.getuser()}"
    return os.environ.get("TORCHINDUCTOR_CACHE_DIR", str(default))
