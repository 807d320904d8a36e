"""This module prints how elasticctl answers: results for people or programs, progress beside them, refusals."""

import json
from enum import IntEnum
from typing import Any, NoReturn

import typer
from rich.console import RenderableType

from elastic_ps.system.terminal import Terminal, say


class Exit(IntEnum):
    """Every command ends with one of these exit statuses."""

    OK = 0
    FAILED = 1
    USAGE = 2
    UNKNOWN_JOB = 3
    UNREACHABLE = 4
    REFUSED = 5
    INTERRUPTED = 130


def result(as_json: bool, value: Any, view: RenderableType) -> None:
    """Print a command's result, for programs or for people.

    Args:
        as_json: print `value` as JSON.
        value: for programs.
        view: for people.
    """
    if as_json:
        print_json(value)
    else:
        show(view)


def print_json(value: Any) -> None:
    """Print a value for programs."""
    say(json.dumps(value, indent=2))


def show(view: RenderableType) -> None:
    """Print a table or a line for people."""
    Terminal().print(view)


def note(view: RenderableType) -> None:
    """Print progress, beside the result."""
    Terminal(stderr=True).print(view, soft_wrap=True)


def fail(message: str, status: Exit) -> NoReturn:
    """End the command with a sentence on stderr."""
    say(f"elasticctl: {message}", err=True)
    raise typer.Exit(status)
