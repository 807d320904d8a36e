"""This module holds what commands of `dl2` share: options, groups of them, how things are printed.

The light commands import nothing more.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import RenderableType
from rich.table import Table

from dl2_scheduler.cluster.errors import BadInput
from elastic_ps.core.errors import ConfigurationError
from elastic_ps.system.option_checks import CommandLine
from elastic_ps.system.state_folder import state_folder
from elastic_ps.system.terminal import Terminal, say

Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Folder = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER", help="Of the cluster's state; left out: $XDG_STATE_HOME/dl2, by default ~/.local/state/dl2."
    ),
]


def group(text: str, **options: Any) -> CommandLine:
    """Make a group of commands.

    Args:
        text: for its help.
        options: the options of `typer.Typer`.
    """
    return CommandLine(help=text, **options)


def default_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of the cluster's state: $XDG_STATE_HOME/dl2, by default under ~/.local/state.

    Raises:
        BadInput: see `state_folder`.
    """
    try:
        return state_folder(environment) / "dl2"
    except ConfigurationError as error:
        raise BadInput(f"{error}; or give --folder") from error


def new_table(**columns: bool) -> Table:
    """Make a table with these heads; True: of numbers. An underscore stands for a space.

    What is too wide goes on below.
    """
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for head, is_number in columns.items():
        table.add_column(head.replace("_", " "), justify="right" if is_number else "left", overflow="fold")
    return table


def show(view: RenderableType) -> None:
    """Print on stdout."""
    Terminal().print(view)


def show_json(value: Any) -> None:
    """Print JSON on stdout."""
    say(json.dumps(value, indent=2))
