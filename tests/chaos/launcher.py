"""`elasticrun`, which tells its coordinator how often it was started, as an operator does: its journal may be gone."""

from itertools import count
from pathlib import Path

from elastic_ps.launch import cli
from elastic_ps.launch.commands import JobCommands

_starts = count(1)
_command = JobCommands.coordinator


def _coordinator(commands: JobCommands, folder: Path, token_file: Path, port: int) -> list[str]:
    return [*_command(commands, folder, token_file, port), "--term", str(next(_starts))]


def main() -> None:
    """Run it."""
    JobCommands.coordinator = _coordinator  # type: ignore[method-assign]
    cli.main()
