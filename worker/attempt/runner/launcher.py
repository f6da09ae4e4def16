"""Becomes the engine, tied to its supervisor: `python launcher.py SUPERVISOR_PID COMMAND…`.

The kernel kills this process when the thread that started it ends; the setting survives the
exec. Done in a program of its own because no Python code is safe between fork and exec.
Standard library only, and no import of ours: it runs by its path.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Never returns."""
    supervisor, *command = sys.argv[1:]
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        sys.exit(f"launcher: prctl failed: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != int(supervisor):
        sys.exit("launcher: the supervisor died before the engine started")
    os.execvp(command[0], command)  # noqa: S606 - the very purpose; the command is the supervisor's


if __name__ == "__main__":
    main()
