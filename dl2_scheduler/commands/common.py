"""What commands of `dl2` share: options, groups of them, how things are printed. The light ones import nothing more."""

import inspect
import json
import os
import sys
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console, RenderableType
from rich.table import Table

Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Folder = Annotated[
    Path | None, typer.Option(metavar="FOLDER", help="Of the cluster's state; left out: ~/.local/state/dl2.")
]

_PIPE_WIDTH = 200


def group(text: str, **options: Any) -> typer.Typer:
    """A group of commands.

    Args:
        text: for its help.
        options: of `typer.Typer`.
    """
    plain: dict[str, Any] = {"add_completion": False, "rich_markup_mode": None, "pretty_exceptions_enable": False}
    return typer.Typer(help=text, **plain, **options)


def options_of(kind: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a command the fields of a dataclass as its last options, instead of its parameter of that type."""
    fields = inspect.signature(kind).parameters

    def given(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command, eval_str=True).parameters
        [place] = [name for name, each in own.items() if each.annotation is kind]

        @wraps(command)
        def asked(**values: Any) -> None:
            made = kind(**{name: values.pop(name) for name in fields})
            command(**values, **{place: made})

        whole = [*(each for name, each in own.items() if name != place), *fields.values()]
        parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in whole]
        asked.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typer reads it
        asked.__annotations__ = {each.name: each.annotation for each in parameters}
        return asked

    return given


def default_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Of the cluster's state: $XDG_STATE_HOME/dl2, by default under ~/.local/state."""
    return Path(environment.get("XDG_STATE_HOME") or "~/.local/state").expanduser() / "dl2"


def new_table(**columns: bool) -> Table:
    """A table with these heads; True: of numbers. An underscore stands for a space."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for head, is_number in columns.items():
        table.add_column(head.replace("_", " "), justify="right" if is_number else "left")
    return table


def show(view: RenderableType) -> None:
    """Print on stdout: as wide as the terminal, or wide where it is piped, so that no table is cut."""
    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    Console(file=sys.stdout, width=width, markup=False, highlight=False, emoji=False).print(view)


def show_json(value: Any) -> None:
    """Print JSON on stdout."""
    typer.echo(json.dumps(value, indent=2))
