"""How a vLLM server is started: the command with all that a run's numbers need of it.

Starts nothing; knows no route of the server.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.contract.serving import Serving

_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""What vLLM takes as --max-lora-rank."""
OPTIONS = "{options}"
"""In a serve command, the place of all options that the run needs."""


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
    parallel: int = 1
    """GPUs that one server is spread over."""
    learners: int = 1
    """Processes that train beside it, on the lane's first devices."""
    options: tuple[str, ...] = ()
    """What its kind needs beside, in vLLM's words."""


def serve_command(
    serving: Serving, needs: Needs, adapter: Path | None, options: Sequence[str] = ()
) -> list[str]:
    """The words of the command that starts the server, placeholders filled in.

    `adapter`: served from the start, where adapters are sent; `options`: what the way of the
    weights needs beside.

    >>> serve_command(Serving(serve_cmd="run.sh {base} --port {port}"),
    ...               Needs("org/m", "float32", 64, 8, 16, 1, None), Path("/a"))
    ['run.sh', 'org/m', '--port', '8000']
    """
    options = [*_options(serving, needs, adapter), *options]
    if serving.serve_cmd is None:
        return [serving.program, "serve", needs.base, *options]
    known = {
        "{base}": needs.base,
        "{host}": serving.host,
        "{port}": str(serving.port),
        "{lora_name}": serving.lora_name,
        "{adapter}": "" if adapter is None else str(adapter),
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


def _options(serving: Serving, needs: Needs, adapter: Path | None) -> list[str]:
    """What the run's numbers need of vLLM, however it is started."""
    where = ["--host", serving.host, "--port", str(serving.port)]
    if serving.socket is not None:
        where = ["--uds", str(serving.socket)]
    return [
        *where,
        *("--dtype", needs.dtype, "--max-model-len", str(needs.window)),
        *("--max-num-seqs", str(needs.at_once)),
        *("--gpu-memory-utilization", f"{serving.gpu_util:g}"),
        *("--tensor-parallel-size", str(needs.parallel)),
        *([] if adapter is None else _adapter_options(serving, needs, adapter)),
        # Log-probabilities of the distribution that was drawn from, as the trainer reads them; and
        # nothing of the model folder's generation config reaches a rollout.
        *("--logprobs-mode", "processed_logprobs", "--generation-config", "vllm"),
        *needs.options,
    ]


def _adapter_options(serving: Serving, needs: Needs, adapter: Path) -> list[str]:
    rank = next((rank for rank in _RANKS if rank >= needs.rank), needs.rank)
    return [
        *("--enable-lora", "--max-loras", "1", "--max-lora-rank", str(rank)),
        *("--lora-modules", f"{serving.lora_name}={adapter}"),
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
