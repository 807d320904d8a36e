"""What a narrow terminal has no room for is not left out."""

import io

import pytest
from rich.console import Console

from coordinator.ctl.text_columns import columns
from elastic_ps.system.terminal import Terminal

CELLS = ("digits", "running", "2 -> 3", "2", "4", "5,267", "Nov 21 08:48", "127.0.0.1:37799")


@pytest.mark.parametrize("width", [40, 60, 79, 200])
def test_no_cell_of_a_table_is_cut_or_left_out(width: int) -> None:
    """At 60 columns there was no name of a job, and at 40 "5,267" was "5,26"."""
    table = columns("job", "state", "workers", "servers", "epoch", "samples/s", "started", "coordinator")
    table.add_row(*CELLS)
    console = Console(file=io.StringIO(), width=width)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert max(map(len, shown.splitlines())) <= width
    for letter in {*"".join(CELLS)} - {" "}:
        assert shown.count(letter) >= "".join(CELLS).count(letter)


def test_long_texts_fold_before_words_and_numbers_do() -> None:
    table = columns("plan", "phase", "nodes", "cause", "join", "assign", "migrate", "switch", "moved", "suspend")
    table.add_row("1", "COMMITTED", "+w0 +w1 +s0", "operator", "11,263", "24.4", "12.0", "42.4", "100 kB", "0.3")
    console = Console(file=io.StringIO(), width=80)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    row = console.file.getvalue().splitlines()[2]
    assert "COMMITTED" in row
    assert "11,263" in row
    assert "100 kB" in row


@pytest.mark.parametrize("said", ["0", "1", "20"])
def test_a_terminal_that_has_no_columns_shows_something(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    class Tty(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("COLUMNS", said)
    monkeypatch.setattr("sys.stdout", tty := Tty())
    Terminal().print("digits is running")
    assert "digits is running" in tty.getvalue()
