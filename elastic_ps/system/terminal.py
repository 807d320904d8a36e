"""Commands print here: tables and lines, in which others' texts are harmless (see `printable`)."""

import sys
from collections.abc import Iterable
from typing import Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from elastic_ps.system.printable import printable

_PIPE_WIDTH = 200
_LEAST_WIDTH = 40


class Terminal(Console):
    """A `Terminal` is a console of rich in which texts are never markup, and none acts on the terminal.

    It is as wide as the terminal, or wide where the output is piped, so that no table is cut. In less than 40 columns
    (COLUMNS may be 0) no table is one: the terminal breaks the lines then.

    Args:
        stderr: print there.
    """

    def __init__(self, stderr: bool = False):
        stream = sys.stderr if stderr else sys.stdout
        width = None if stream.isatty() else _PIPE_WIDTH
        super().__init__(file=stream, width=width, markup=False, highlight=False, emoji=False)
        if self.width < _LEAST_WIDTH:
            self.width = _LEAST_WIDTH

    def render_str(self, text: str, **options: Any) -> Text:
        """See `Console`: a table's cell, before its width is measured."""
        return super().render_str(printable(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """See `Console`: whatever is shown comes by here; styles and the cursor's moves are not in the text."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def say(line: object, err: bool = False) -> None:
    """Print a sentence or a line of ours, with texts of others in it, on stdout or stderr."""
    typer.echo(printable(str(line)), err=err)
