"""This program runs a command that dies with its launcher: `python guard.py LAUNCHER_PID COMMAND...`.

The kernel kills the process when the thread that started it ends, however the launcher dies (Linux; elsewhere the
command simply runs). It is set here, in the child, because code between fork and exec is unsafe in a process with
threads. The setting survives exec; it is not inherited by the command's own children, whose process group the
launcher ends with them.

This file is run by its path, isolated: it imports nothing but the standard library.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with_the_starter() -> None:
    """Let the kernel kill this process when the thread that started it ends; it may have ended before."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def main(arguments: list[str]) -> None:
    """Make this process die with the launcher, then become the command."""
    launcher, command = int(arguments[0]), arguments[1:]
    die_with_the_starter()
    if os.getppid() != launcher:  # it died before the kernel was told
        os._exit(128 + signal.SIGKILL)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f"cannot start {command[0]}: {error.strerror}\n")
        os._exit(127)


if __name__ == "__main__":
    main(sys.argv[1:])
