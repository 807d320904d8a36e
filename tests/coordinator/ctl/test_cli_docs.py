"""docs/reference/cli.md is the reference: it names every command, option and exit status."""

import pytest
from typer.main import get_command

from coordinator.ctl.answering import Exit
from coordinator.ctl.cli import app
from tests.paths import ROOT

TEXT = (ROOT / "docs" / "reference" / "cli.md").read_text()
COMMANDS = get_command(app).commands  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_commands_and_options(name: str) -> None:
    assert f"\n## {name}\n" in TEXT
    options = {option for parameter in COMMANDS[name].params for option in parameter.opts if option.startswith("--")}
    assert [option for option in sorted(options) if option not in TEXT] == []


@pytest.mark.parametrize("status", list(Exit))
def test_exit_statuses(status: Exit) -> None:
    assert f"\n| {int(status)} | " in TEXT
