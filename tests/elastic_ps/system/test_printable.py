"""Texts of others, as terminals and logs show them."""

import io
import logging

import pytest
from rich.table import Table
from rich.text import Text

from elastic_ps.system.printable import LogLines, one_line, printable
from elastic_ps.system.terminal import Terminal, say

EVIL = "a\x1b]0;title\x07\x9b31m\u202egnp.exe\u2066\ud800\r\x7f\x00z"
HARMLESS = "a\\x1b]0;title\\x07\\x9b31m\\u202egnp.exe\\u2066\\ud800\\x0d\\x7f\\x00z"


def test_what_acts_is_shown_as_its_escape() -> None:
    assert printable(EVIL) == HARMLESS
    assert printable("größer → 模型 👩\u200d🔬\n\tb") == "größer → 模型 👩\u200d🔬\n\tb"


def test_one_line() -> None:
    assert one_line(" a \r\n  b\n\x1b") == "a b \\x1b"


def test_in_tables_and_lines(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("[bold]name", EVIL)
    table.add_row(EVIL, Text(EVIL, "red"))
    Terminal().print(table)
    Terminal().print(EVIL)
    say(EVIL)
    Terminal(stderr=True).print(EVIL)
    out, err = capsys.readouterr()
    assert out.count(HARMLESS) >= 4  # a styled text in a cell is cut where its escapes are wider than it was measured
    assert err.count(HARMLESS) == 1
    assert not {"\x1b", "\x9b", "\u202e", "\r"} & set(out + err)
    assert "[bold]name" in out


def test_nobody_writes_lines_of_a_log() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LogLines())
    log = logging.getLogger("tests.printable")
    log.propagate = False
    log.addHandler(handler)
    try:
        log.warning("job %s", f"a\n2026-01-01 INFO all is well {EVIL}")
    finally:
        log.removeHandler(handler)
    (line,) = stream.getvalue().splitlines()
    assert line.endswith("WARNING job a 2026-01-01 INFO all is well " + HARMLESS.replace("\\x0d", " "))
