"""This module is the last resort of a command: an error that nobody foresaw becomes one sentence, Ctrl-C silence."""

import errno
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from elastic_ps.system.extras import missing_package
from elastic_ps.system.printable import one_line

TRACEBACK = "ELASTIC_TRACEBACK"
"""Where this environment variable is set, such an error comes with its traceback."""

_FAILED = 1

_MACHINE_LACKS = {
    errno.ENOSPC: "no space is left where this is written: free some",
    errno.EDQUOT: "your quota is used up where this is written: free some space",
    errno.EMFILE: "this process may not open as many files as it needs: raise `ulimit -n`",
    errno.ENFILE: "this machine has no file descriptors left: end other processes",
}
"""What no program can foresee, and is none's fault, by the error's number."""


@contextmanager
def one_sentence(program: str, environment: Mapping[str, str] = os.environ) -> Iterator[None]:
    """End the process with status 1 and a sentence on stderr where something is raised that is not foreseen.

    Around a program's main alone: whoever calls its commands as functions, as tests do, sees what was raised.

    Args:
        program: its name.
        environment: of the process.
    """
    open_standard_streams()
    _write_anything()
    try:
        yield
    except Exception as error:
        if environment.get(TRACEBACK):
            raise
        sys.stderr.write(f"{program}: {_sentence(error)}\n")
        sys.exit(_FAILED)


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C end the process at once meanwhile, without a traceback, as it ends a program that handles no signals.

    Around a program's imports, which may take seconds.
    """
    handled = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else somebody ignores it
    if handled:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        if handled:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def open_standard_streams() -> None:
    """Put /dev/null where a standard stream is closed (`COMMAND >&-`).

    Otherwise the next file or socket that is opened would get its number, and whatever is printed.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is not None:
            continue
        nowhere = os.open(os.devnull, os.O_RDWR)
        if nowhere != number:  # it is not the lowest that is free
            os.dup2(nowhere, number)
            os.close(nowhere)
        os.set_inheritable(number, True)
        setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115  # as long as the process lives


def _sentence(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return "there is not enough memory for this: give smaller files or numbers"
    if isinstance(error, OSError) and error.errno in _MACHINE_LACKS:
        where = f"{one_line(str(error.filename))}: " if error.filename is not None else ""
        return f"{where}{_MACHINE_LACKS[error.errno]}"
    if missing := missing_package(error):
        return missing
    found = one_line(f"{type(error).__name__}: {error}")[:500]
    return f"this should not happen ({found}): please report it, with what {TRACEBACK}=1 prints in front of the command"


def _write_anything() -> None:
    """Print a character that the terminal's encoding has not as its escape instead of raising."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
