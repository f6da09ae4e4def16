"""A box for a model's program: bubblewrap around `boxed.py`, and the clock outside.

No network, a read-only system without /proc and /etc, users of its own (a limit on processes
binds no root), limits on memory, CPU, files, processes and output, a system-call filter, and a
nonce that only the judge inside learns: a box that ends well without it has proven nothing.

A box is used again only while no process and no file of a run is left in it, so that what costs
time (namespaces, an interpreter) is paid once; each run gets new processes all the same. What
outlives a process without being a file (System V and POSIX queues, semaphores, shared memory,
keys) cannot be made in it. Its /tmp is mounted for it alone, as bubblewrap bounds no inodes: each
takes a kilobyte of the kernel's memory that no limit on processes counts.

Fails closed: without bubblewrap, or where a box cannot be built, nothing is run.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import itertools
import marshal
import os
import platform
import secrets
import select
import shutil
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from engine.contract.errors import NightlaneError
from engine.rewards.sandbox import boxed

WALL_S = 6.0
"""Longest run, where the caller does not say."""
CPU_S = 45
"""CPU time of one process inside: as long as the longest run, which a clock ends."""
MEMORY_MB = 512
"""Address space of a process inside."""
PROCESSES = 6
"""Processes and threads of the program."""
FILE_MB = 8
DISK_MB = 16
"""All of /tmp inside."""
FILES = 1000
"""Files, directories and links in it."""
MOST_RUNS = 500
"""Runs of one box; then a fresh one."""
MOST_OUTPUT = 2**20
"""Bytes read from a box; a report is a hundred."""


class BoxError(NightlaneError):
    """No box can be built here."""


class BoxTimeoutError(TimeoutError):
    """The box was killed by the clock."""


@dataclass(frozen=True)
class Report:
    """What the judge says of one program."""

    passed: int
    total: int
    timed_out: bool
    problem: str
    """The last test's error, for people; "" without one."""


def run(job: dict[str, Any], wall_s: float = WALL_S) -> Report:
    """Run one job of `boxed.py` (`mode`, `program`, tests) in a fresh box.

    Raises BoxTimeoutError at the wall, BoxError when no box can be built. A box that dies
    without a report proves nothing: 0 passed.
    """
    nonce = secrets.token_hex(16)
    message = boxed.encode({**job, "nonce": nonce})
    deadline = time.monotonic() + wall_s
    box = _take()
    heard = _Heard()
    try:
        heard = box.run(message, deadline)
    finally:
        if heard.reusable and box.runs < MOST_RUNS:
            _give_back(box)
        else:
            box.close()
    report = _report(heard.report)
    if report is not None and report.get("nonce") == nonce:
        return Report(
            int(report["passed"]),
            int(report["total"]),
            bool(report["timed_out"]),
            report["problem"],
        )
    if time.monotonic() >= deadline:
        raise BoxTimeoutError(f"the box ran longer than {wall_s:g} s")
    if heard.errors.startswith((b"bwrap:", b"prlimit:", b"unshare:", b"mount:")):
        raise BoxError(
            f"no box can be built here: {heard.errors.decode('utf-8', 'replace').strip()}; "
            "a model's code is only run inside one"
        )
    return Report(0, 1, timed_out=False, problem="the box ended without a report")


@cache
def require() -> None:
    """Build one box and have it say its nonce. Raises BoxError."""
    job = {
        "mode": "statements",
        "setup": "",
        "entry": "f",
        "program": "def f(x): return x + 1",
        "tests": ["assert f(1) == 2"],
    }
    try:
        report = run(job, wall_s=30)
    except BoxTimeoutError as error:
        raise BoxError(
            f"{error}, and it had one addition to do; is this machine overloaded?"
        ) from None
    if report.passed != 1:
        raise BoxError(f"a box was built but does not work: {report.problem}")


def _report(output: bytes) -> dict[str, Any] | None:
    """The judge's message; None for anything else."""
    with contextlib.suppress(ValueError, RecursionError, OverflowError):
        message = boxed.decode(output)
        if isinstance(message, dict):
            return message
    return None


class _Box:
    """One bubblewrap with its process 1, good for runs until one of them leaves a trace."""

    def __init__(self) -> None:
        first_uid = FIRST_UID + 2 * ((os.getpid() * 64 + next(_slots) % 64) % 2048)
        with _memory_file(_filter()) as rules, _memory_file(_program()) as program:
            self._process = subprocess.Popen(
                [*_scratch(), *_command(first_uid, rules, program)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=[rules, program],
                env={},
                start_new_session=True,
            )
        self.runs = 0

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        """The outer bubblewrap takes the whole process namespace with it."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()

    def run(self, message: bytes, deadline: float) -> _Heard:
        """Give it a job and listen until report and `R`, the end, or the deadline."""
        self.runs += 1
        pipes = (self._process.stdin, self._process.stdout, self._process.stderr)
        given, out, err = (stream.fileno() for stream in pipes if stream is not None)
        os.set_blocking(given, False)
        poll = select.poll()
        poll.register(out, select.POLLIN)
        poll.register(err, select.POLLIN)
        poll.register(given, select.POLLOUT)
        left = memoryview(b"g" + len(message).to_bytes(4, "big") + message)
        heard = _Heard()
        while not heard.complete:
            events = poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
            if not events:
                return heard
            for descriptor, _event in events:
                if descriptor == given:
                    left = _write_some(given, left)
                    if not left:
                        poll.unregister(given)
                    continue
                part = os.read(descriptor, 65536)
                if descriptor == err:
                    heard.errors += part
                else:
                    heard.output += part
                if not part:
                    poll.unregister(descriptor)
                    heard.ended += 1
        return heard


@dataclass
class _Heard:
    output: bytes = b""
    errors: bytes = b""
    ended: int = 0
    """Streams that came to their end."""

    @property
    def complete(self) -> bool:
        """Everything is here, nothing more can come, or it is more than a report."""
        return self.ended == 2 or self.reusable or len(self.output + self.errors) > MOST_OUTPUT

    @property
    def reusable(self) -> bool:
        length = int.from_bytes(self.output[:4], "big")
        return len(self.output) == 4 + length + 1 and self.output.endswith(b"R")

    @property
    def report(self) -> bytes:
        length = int.from_bytes(self.output[:4], "big")
        return self.output[4 : 4 + length]


def _write_some(descriptor: int, data: memoryview) -> memoryview:
    try:
        return data[os.write(descriptor, data) :]
    except BlockingIOError:
        return data
    except BrokenPipeError:
        return data[len(data) :]


_idle: list[_Box] = []
_guard = threading.Lock()
_builder = ThreadPoolExecutor(1, "box-builder")
"""Boxes die with the thread that started them (the parent-death signal), so one thread that lives
as long as the process starts them all."""


def _take() -> _Box:
    with _guard:
        while _idle:
            box = _idle.pop()
            if box.alive:
                return box
            box.close()
    return _builder.submit(_Box).result()


def _give_back(box: _Box) -> None:
    with _guard:
        if not _idle:
            atexit.unregister(close)
            atexit.register(close)
        _idle.append(box)


def close() -> None:
    """End the idle boxes."""
    with _guard:
        while _idle:
            _idle.pop().close()


FIRST_UID = 61_000
"""Users of boxes: two each, up to 65,095; no account has these numbers on Debian."""

_slots = itertools.count()


@cache
def _tools() -> dict[str, str]:
    found = {name: shutil.which(name) for name in ("bwrap", "prlimit", "unshare", "mount", "sh")}
    missing = [name for name, path in found.items() if path is None]
    if missing:
        raise BoxError(
            f"{' and '.join(missing)} not found; a model's code is only run in a box: "
            "apt-get install bubblewrap util-linux mount"
        )
    return {name: str(path) for name, path in found.items()}


def _scratch() -> list[str]:
    """What comes before bubblewrap: a mount namespace with the box's /tmp, bounded in all ways."""
    tools = _tools()
    namespaces = ["--mount", "--propagation", "private"]
    if os.geteuid() != 0:
        namespaces += ["--user", "--map-root-user"]
    options = f"size={DISK_MB * 2**20},nr_inodes={FILES},mode=1777,nosuid,nodev"
    mounted = f'{tools["mount"]} -t tmpfs -o {options} tmpfs {_mount_point()} && exec "$@"'
    return [tools["unshare"], *namespaces, tools["sh"], "-c", mounted, "sh"]


@cache
def _mount_point() -> str:
    """An empty place of the system's, where the interpreter is not; only the box sees the mount."""
    for place in ("/mnt", "/media", "/srv", "/opt"):
        if Path(place).is_dir() and not Path(sys.base_prefix).is_relative_to(place):
            return place
    raise BoxError("no box can be built here: there is no /mnt to mount its /tmp at; make one")


def _command(first_uid: int, rules_fd: int, program_fd: int) -> list[str]:
    bwrap, prlimit = _tools()["bwrap"], _tools()["prlimit"]
    is_root = os.geteuid() == 0
    python = Path(sys.base_prefix)
    interpreter = f"python{sys.version_info.major}.{sys.version_info.minor}"
    command = [
        *(bwrap, "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"),
        *("--unshare-cgroup-try", "--die-with-parent", "--as-pid-1", "--new-session", "--clearenv"),
        *("--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin"),
        *("--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64"),
        # directories that a bind makes on its way are closed to other users
        *(part for path in _open_folders(python) for part in ("--perms", "0755", "--dir", path)),
        # at its own path: the interpreter finds its library and its modules by it
        *(("--ro-bind", str(python), str(python)) if python != Path("/usr") else ()),
        *("--perms", "0644", "--ro-bind-data", str(program_fd), "/box/boxed.pyc"),
        *("--dev-bind", "/dev/null", "/dev/null", "--dev-bind", "/dev/urandom", "/dev/urandom"),
        *("--bind", _mount_point(), "/tmp"),  # noqa: S108 - its own
        *("--remount-ro", "/", "--chdir", "/tmp", "--seccomp", str(rules_fd)),  # noqa: S108
    ]
    command += ["--cap-drop", "ALL"]
    if is_root:
        for capability in ("CAP_SETUID", "CAP_SETGID", "CAP_KILL"):
            command += ["--cap-add", capability]
    else:
        command += ["--unshare-user", "--uid", str(first_uid), "--gid", str(first_uid)]
    command += [
        *("--", prlimit, f"--as={MEMORY_MB * 2**20}", f"--nproc={PROCESSES}", "--core=0"),
        *(f"--fsize={FILE_MB * 2**20}", "--nofile=64", f"--cpu={CPU_S}", "--"),
        str(python / "bin" / interpreter),
        *("-I", "-S", "-B", "/box/boxed.pyc", str(first_uid if is_root else 0)),
    ]
    return command


def _open_folders(python: Path) -> list[str]:
    inside_usr = python.is_relative_to("/usr")
    parents = [] if inside_usr else [str(path) for path in reversed(python.parents)][1:]
    return ["/dev", "/box", *parents]


# --- the system-call filter -----------------------------------------------------------------

_DENIED = {
    "x86_64": (
        0xC000003E,
        56,
        # ptrace, process_vm_*, unshare, setns, mount, umount2, pivot_root, chroot, bpf,
        # perf_event_open, keys, userfaultfd, io_uring, kexec, modules, swapon, reboot,
        # pidfd_getfd, the new mount calls, memfd_create, shmget, semget, msgget, mq_open
        *(101, 310, 311, 272, 308, 165, 166, 155, 161, 321, 298, 248, 249, 250, 323, 425, 426),
        *(246, 320, 175, 313, 176, 167, 169, 438, 428, 429, 430, 431, 432, 442, 319, 29, 64, 68),
        240,
    ),
    "aarch64": (
        0xC00000B7,
        220,
        *(117, 270, 271, 97, 268, 40, 39, 41, 51, 280, 241, 217, 218, 219, 282, 425, 426),
        *(104, 294, 105, 273, 106, 224, 142, 438, 428, 429, 430, 431, 432, 442, 279, 194, 190),
        *(186, 180),
    ),
}
_CLONE3 = 435
_NEW_NAMESPACES = 0x7E02_0000
_ALLOW, _KILL, _ERRNO, _EPERM, _ENOSYS = 0x7FFF_0000, 0x8000_0000, 0x0005_0000, 1, 38


@cache
def _program() -> bytes:
    """`boxed.py` compiled, which saves a third of the interpreter's start."""
    source = Path(boxed.__file__).read_text("utf-8")
    no_source_stamp = bytes(12)
    code = compile(source, "boxed.py", "exec", dont_inherit=True)
    return importlib.util.MAGIC_NUMBER + no_source_stamp + marshal.dumps(code)


@contextlib.contextmanager
def _memory_file(content: bytes) -> Iterator[int]:
    """A descriptor that bubblewrap reads; no file that a killed engine would leave behind."""
    descriptor = os.memfd_create("nightlane-box")
    try:
        os.write(descriptor, content)
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)


@cache
def _filter() -> bytes:
    """Classic BPF: other architectures and x32 die, denied calls answer EPERM, clone3 ENOSYS."""
    machine = platform.machine()
    if machine not in _DENIED:
        raise BoxError(f"no system-call filter for {machine}; code is only run in a full box")
    arch, clone, *denied = _DENIED[machine]
    load, equal, at_least, any_bit, give = 0x20, 0x15, 0x35, 0x45, 0x06
    rules = [
        (load, 0, 0, 4),
        (equal, 1, 0, arch),
        (give, 0, 0, _KILL),
        (load, 0, 0, 0),
        (at_least, 0, 1, 0x4000_0000),
        (give, 0, 0, _KILL),
    ]
    for number in denied:
        rules += [(equal, 0, 1, number), (give, 0, 0, _ERRNO | _EPERM)]
    # glibc falls back to clone, whose flags a filter can read.
    rules += [(equal, 0, 1, _CLONE3), (give, 0, 0, _ERRNO | _ENOSYS)]
    rules += [(equal, 0, 3, clone), (load, 0, 0, 16), (any_bit, 0, 1, _NEW_NAMESPACES)]
    rules += [(give, 0, 0, _ERRNO | _EPERM), (give, 0, 0, _ALLOW)]
    return b"".join(struct.pack("HBBI", *rule) for rule in rules)
