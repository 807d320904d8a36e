"""Options of a command that belong together are one parameter of it."""

from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from elastic_ps.system.option_groups import grouped


@dataclass(frozen=True)
class Place:
    x: Annotated[int, typer.Option(help="Across.")] = 1
    y: Annotated[int, typer.Option(min=0, help="Along.")] = 2

    def __post_init__(self) -> None:
        if self.x == self.y:
            raise typer.BadParameter("x and y are the same")


def asked(*words: str) -> tuple[int, str]:
    app = typer.Typer(add_completion=False, rich_markup_mode=None)

    @app.command()
    @grouped
    def go(context: typer.Context, name: str, first: bool = False, *, place: Place, last: int = 3) -> None:
        """Go there."""
        given = context.get_parameter_source("y")
        typer.echo(f"{name} {first} {place} {last} {given.name if given else None}")

    result = CliRunner().invoke(app, words)
    return result.exit_code, result.output


def test_fields_are_options_with_their_defaults() -> None:
    assert asked("a") == (0, "a False Place(x=1, y=2) 3 DEFAULT\n")
    assert asked("a", "--first", "--y", "7", "--last", "4") == (0, "a True Place(x=1, y=7) 4 COMMANDLINE\n")


def test_they_stand_where_the_parameter_does() -> None:
    status, output = asked("--help")
    places = [output.index(text) for text in ("Go there.", "--first", "--x", "Across.", "--y", "Along.", "--last")]
    assert status == 0
    assert places == sorted(places)


def test_what_the_fields_and_the_group_refuse_is_wrong_usage() -> None:
    for words in (("a", "--y", "-1"), ("a", "--x", "2")):
        assert asked(*words)[0] == 2, words
