"""Becomes the engine, tied to its supervisor: `python launcher.py SUPERVISOR_PID PROCS COMMAND…`.

PROCS: the file of a control group to enter first; empty for none.

The kernel kills this process when the thread that started it ends; the setting survives the
exec. Done in a program of its own because no Python code is safe between fork and exec.
Standard library only, and no import of ours: it runs by its path.
"""

import contextlib
import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Never returns."""
    supervisor, procs, *command = sys.argv[1:]
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        sys.exit(f"launcher: prctl failed: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != int(supervisor):
        sys.exit("launcher: the supervisor died before the engine started")
    if procs:
        # Where the kernel does not let us in, the other nets remain.
        with contextlib.suppress(OSError):
            group = os.open(procs, os.O_WRONLY)
            os.write(group, b"0")
            os.close(group)
    os.execvp(command[0], command)  # noqa: S606 - the very purpose; the command is the supervisor's


if __name__ == "__main__":
    main()
