"""What no option can have is refused before a command runs."""

from pathlib import Path
from typing import Annotated, Literal

import pytest
import typer
from typer.testing import CliRunner

from elastic_ps.system.option_checks import LONGEST_TEXT, CommandLine

app = CommandLine()


@app.callback()
def all_of_them(folder: Annotated[Path, typer.Option()] = Path("here")) -> None:
    """Go with others."""


@app.command()
def go(
    number: Annotated[float, typer.Option()] = 1.0,
    count: Annotated[int, typer.Option()] = 1,
    least: Annotated[int | None, typer.Option(min=1, max=3)] = None,
    file: Annotated[list[Path] | None, typer.Option()] = None,
    text: Annotated[str, typer.Option()] = "",
    way: Annotated[Literal["left", "right"], typer.Option()] = "left",
) -> None:
    """Go."""
    typer.echo(f"{number} {count} {file} {text}")


def test_what_is_usual() -> None:
    result = CliRunner().invoke(app, ["go", "--number", "-2.5", "--count", "7", "--file", "a", "--text", ""])
    assert (result.exit_code, result.output) == (0, "-2.5 7 [PosixPath('a')] \n")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["go", "--number", "much"], "'--number': 'much' is no number"),
        (["go", "--count", "two"], "'--count': 'two' is no integer"),
        (["go", "--count", "1.5"], "'--count': '1.5' is no integer"),
        (["go", "--least", "0"], "'--least': must be at least 1, not 0"),
        (["go", "--least", "9"], "'--least': must be at most 3, not 9"),
        (["go", "--way", "lft"], "'--way': 'lft' is not one of 'left', 'right'"),
        (["go", "--number", "nan"], "'--number': nan: give a number of at most 1e+15"),
        (["go", "--number=-inf"], "'--number': -inf: give"),
        (["go", "--number", "1e300"], "'--number': 1e+300: give"),
        (["go", "--count", "9" * 400], "'--count': a number of 400 digits: give"),
        (["go", "--file", "a", "--file", ""], "'--file': an empty path: give one"),
        (["go", "--file", "a" * 5000], "'--file': 5,000 bytes long: give at most 4,095"),
        (["go", "--text", "a" * (LONGEST_TEXT + 1)], "'--text': 131,072 bytes long: give at most 131,071"),
        (["go", "--text", "\udcff"], "'--text': not UTF-8"),
        (["--folder", "", "go"], "'--folder': an empty path"),
    ],
)
def test_what_cannot_be(words: list[str], problem: str) -> None:
    result = CliRunner().invoke(app, words)
    assert (result.exit_code, problem in result.output) == (2, True), result.output
