"""This module has commands refuse what no option can have before anything runs: endless numbers, empty paths."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException
from typer.models import CommandFunctionType

from elastic_ps.system.printable import printable

MOST_NUMBER = 1e15
"""The largest number of any option: what is meant, in seconds, bytes or things, is less."""

LONGEST_TEXT = (1 << 17) - 1
"""The most bytes of an option's text: Linux gives a program no longer argument."""

LONGEST_PATH = 4095
"""The most bytes of a path: Linux takes no longer one."""


_OF_NUMBERS = {
    "int_parsing": "{given!r} is no integer",
    "int_from_float": "{given!r} is no integer",
    "float_parsing": "{given!r} is no number",
    "greater_than_equal": "must be at least {ge}, not {given}",
    "less_than_equal": "must be at most {le}, not {given}",
    "value_error": "{error}",
}
"""Our words for what pydantic finds wrong with a value, by the type of its error."""


def unusable(value: object, is_path: bool = False) -> str | None:
    """Return why no option can have a value, and what to give; None: it may.

    Args:
        value: as it was read from the command line.
        is_path: of a file or a folder.
    """
    if isinstance(value, float | int) and not abs(value) <= MOST_NUMBER:  # written so that NaN is refused
        shown = f"{value:g}" if isinstance(value, float) else f"a number of {len(str(abs(value)))} digits"
        return f"{shown}: give a number of at most {MOST_NUMBER:.0e}"
    if not isinstance(value, str):
        return None
    if is_path and not value:
        return "an empty path: give one, or leave the option out"
    length, most = len(value.encode(errors="surrogateescape")), LONGEST_PATH if is_path else LONGEST_TEXT
    if length > most:
        return f"{length:,} bytes long: give at most {most:,}, and what is longer in a file"
    if not is_path and any("\ud800" <= character <= "\udfff" for character in value):
        return "not UTF-8: write it in UTF-8"
    return None


def named(name: str | None) -> str | None:
    """Return a name as it was given, as the callback of an argument that is one.

    Raises:
        typer.BadParameter: it is empty. An API takes an object without a name for all of them.
    """
    if name is not None and not name.strip():
        raise typer.BadParameter("an empty name: give one (a variable of the shell may not be set)")
    return name


def _refuse_unusable(command: Any, context: Any, words: list[str]) -> None:
    """Raise typer.BadParameter for the first word that no option can have, before it becomes a path."""
    given, _, _ = command.make_parser(context).parse_args(args=list(words))
    for parameter in command.params:
        if parameter.nargs == -1 and not context.allow_interspersed_args:
            continue  # arguments of another program, which takes what it takes
        kind = getattr(parameter, "type_descriptor", None)
        is_path = kind is not None and (kind.is_path or Path in get_args(kind.annotation))
        value = given.get(parameter.name)
        for each in value if isinstance(value, list | tuple) else [value]:
            _refuse_if(unusable(each, is_path), context, parameter)


def _refuse_numbers(command: Any, context: Any) -> None:
    """Raise typer.BadParameter for the first number that no option can have."""
    for parameter in command.params:
        value = context.params.get(parameter.name)
        if isinstance(value, float | int):
            _refuse_if(unusable(value), context, parameter)


def _refuse_if(problem: str | None, context: Any, parameter: Any) -> None:
    if problem is not None:
        raise typer.BadParameter(problem, ctx=context, param=parameter)


def _in_our_words(error: TyperException) -> str | None:
    """Return what is wrong with a value, without the words of the library that checks it; None: as they are."""
    found = getattr(error.__cause__, "errors", None)  # pydantic.ValidationError, not imported for its name alone
    first = found()[0] if callable(found) else {}
    words = _OF_NUMBERS.get(first.get("type", ""))
    return words.format(given=first["input"], **first.get("ctx", {})) if words else None


@contextmanager
def _plain() -> Iterator[None]:
    """Keep the message about a wrong command line in our words, and without what would act on the terminal."""
    try:
        yield
    except TyperException as error:
        if isinstance(message := getattr(error, "message", None), str):
            error.message = printable(_in_our_words(error) or message)
        raise


class _Refusing:
    """A `_Refusing` command or group refuses, in its own options, values that no option can have."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See `click.Command`."""
        with _plain():
            _refuse_unusable(self, ctx, args)
            rest: list[str] = super().parse_args(ctx, args)  # type: ignore[misc]
            _refuse_numbers(self, ctx)
        return rest

    def invoke(self, ctx: Any) -> Any:
        """See `click.Command`."""
        with _plain():
            return super().invoke(ctx)  # type: ignore[misc]


class Careful(_Refusing, TyperCommand):
    """A `Careful` command refuses values that no option can have."""


class CarefulGroup(_Refusing, TyperGroup):
    """A `CarefulGroup` of commands refuses them in its own options."""


class CommandLine(typer.Typer):
    """A `CommandLine` is a program's commands, or a group of them, all careful; without completion and markup.

    Args:
        cls: of the group.
        options: of `typer.Typer`.
    """

    def __init__(self, *, cls: type[TyperGroup] = CarefulGroup, **options: Any):
        plain: dict[str, Any] = {"add_completion": False, "rich_markup_mode": None, "pretty_exceptions_enable": False}
        super().__init__(cls=cls, **plain, **options)

    def command(
        self, name: str | None = None, *, cls: type[TyperCommand] | None = Careful, **options: Any
    ) -> Callable[[CommandFunctionType], CommandFunctionType]:
        """See `typer.Typer.command`."""
        return super().command(name, cls=cls, **options)
