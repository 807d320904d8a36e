"""JSON lines: one object a line, whose fields are known."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeGuard

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.ranges import LONGEST_NAME, MOST_WHOLE
from elastic_ps.system.bounded_files import MOST_BYTES, read_text

Reader = Callable[[Any], Any]
"""Makes a field's value of what JSON has; raises TypeError with what was wanted."""


def read_objects(
    path: Path, fields: Mapping[str, Reader], optional: frozenset[str], most: int = MOST_BYTES
) -> Iterator[tuple[str, Any]]:
    """Yield each object as ("path:line", its fields by name); blank lines are passed over.

    Args:
        path: of the file.
        fields: all that an object may have, with the readers of their values.
        optional: those that it may lack.
        most: bytes of the file.

    Raises:
        BadInput: with path, line and reason: the file cannot be read or is empty, a line is no object, a field is
            missing, unknown or of a wrong type.
    """
    try:
        text = read_text(path, most)
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: {error}") from error
    lines = [(f"{path}:{number}", line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        raise BadInput(f"{path}: empty: give one JSON object a line with {', '.join(fields)}")
    for where, line in lines:
        yield where, read_fields(where, _parse(where, line), fields, optional)


def _parse(where: str, line: str) -> dict[str, Any]:
    try:
        given = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{where}: not JSON, perhaps torn: {error}") from error
    if not isinstance(given, dict):
        raise BadInput(f"{where}: not a JSON object but {line.strip()[:40]}")
    return given


def read_fields(
    where: str, given: Mapping[str, Any], fields: Mapping[str, Reader], optional: frozenset[str]
) -> dict[str, Any]:
    """Return the values of an object's fields.

    Args:
        where: it stands, for errors.
        given: the object.
        fields: all that it may have, with the readers of their values.
        optional: those that it may lack.

    Raises:
        BadInput: a field is missing, unknown or of a wrong type.
    """
    if missing := [name for name in fields if name not in given and name not in optional]:
        raise BadInput(f"{where}: no {', '.join(missing)}")
    if unknown := [name for name in given if name not in fields]:
        raise BadInput(f"{where}: unknown field {', '.join(unknown)}: there are {', '.join(fields)}")
    values = {}
    for name, value in given.items():
        try:
            values[name] = fields[name](value)
        except TypeError as error:
            raise BadInput(f"{where}: {name} is {json.dumps(value)[:40]}: give {error}") from error
    return values


def number(value: Any) -> float:
    """See `Reader`: what is not finite is let through, whoever checks ranges refuses it."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError("a number")
    try:
        return float(value)
    except OverflowError:
        raise TypeError("a smaller number") from None


def whole_number(value: Any) -> int:
    """See `Reader`: one that arrays and databases can hold."""
    if not _is_whole(value):
        raise TypeError("a whole number")
    if abs(value) > MOST_WHOLE:
        raise TypeError(f"a whole number of at most {MOST_WHOLE:,}")
    return value


def _is_whole(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def text(value: Any) -> str:
    """See `Reader`."""
    if not isinstance(value, str) or not value:
        raise TypeError("a text")
    if len(value) > LONGEST_NAME or any("\ud800" <= character <= "\udfff" for character in value):
        raise TypeError(f"a text of at most {LONGEST_NAME} whole characters")
    return value


def name_or_number(value: Any) -> int | str:
    """See `Reader`."""
    if isinstance(value, str):
        return text(value)
    if not _is_whole(value):
        raise TypeError("a whole number or a text")
    return value


def amounts(value: Any) -> dict[str, float]:
    """See `Reader`: numbers by the name of their resource."""
    wanted = 'amounts by resource, as in {"cpu": 2, "gpu": 4}'
    if not isinstance(value, dict):
        raise TypeError(wanted)
    for name, amount in value.items():
        try:
            text(name), number(amount)
        except TypeError:
            raise TypeError(wanted) from None
    return value
