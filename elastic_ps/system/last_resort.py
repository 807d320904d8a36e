"""This module is the last resort of a command: an error that nobody foresaw becomes one sentence too."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from elastic_ps.system.printable import one_line

TRACEBACK = "ELASTIC_TRACEBACK"
"""Where this environment variable is set, such an error comes with its traceback."""

_FAILED = 1


@contextmanager
def one_sentence(program: str, environment: Mapping[str, str] = os.environ) -> Iterator[None]:
    """End the process with status 1 and a sentence on stderr where something is raised that is not foreseen.

    Around a program's main alone: whoever calls its commands as functions, as tests do, sees what was raised.

    Args:
        program: its name.
        environment: of the process.
    """
    _write_anything()
    try:
        yield
    except Exception as error:
        if environment.get(TRACEBACK):
            raise
        sys.stderr.write(f"{program}: {_sentence(error)}\n")
        sys.exit(_FAILED)


def _sentence(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return "there is not enough memory for this: give smaller files or numbers"
    found = one_line(f"{type(error).__name__}: {error}")[:500]
    return f"this should not happen ({found}): please report it, with what {TRACEBACK}=1 prints in front of the command"


def _write_anything() -> None:
    """Print a character that the terminal's encoding has not as its escape instead of raising."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
