"""Frozen dataclasses become JSON and come back, by their type hints, so that no field can be forgotten.

A record of an earlier program may lack fields that have been added since: those that have defaults get them.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

_T = TypeVar("_T")

_hints = cache(get_type_hints)  # a journal holds thousands of records of a few types


_COMPACT = json.JSONEncoder(separators=(",", ":"))
_PLAIN = frozenset((str, int, float, bool, NoneType))

_WRITTEN: dict[type, Callable[[Any], str]] = {
    int: repr,
    str: json.encoder.encode_basestring_ascii,
    bool: lambda value: "true" if value else "false",
    NoneType: lambda _value: "null",
}
"""What the encoder makes of most values, without a call of it for each."""


@cache
def _names(kind: Any) -> tuple[str, ...] | None:
    """Return the names of a dataclass's fields; None: it is none."""
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else None


def _names_of(value: Any) -> tuple[str, ...] | None:
    kind: Any = type(value)
    return _names(kind)


def encode(value: Any) -> Any:
    """Return a value in JSON's types: dataclasses become objects, tuples and sets lists (sets sorted)."""
    kind: Any = type(value)
    if kind in _PLAIN:
        return value
    if (names := _names(kind)) is not None:
        return {name: encode(getattr(value, name)) for name in names}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        return [encode(item) for item in value]
    if isinstance(value, frozenset):
        return sorted(encode(item) for item in value)
    if isinstance(value, Mapping):
        return {str(encode(key)): encode(item) for key, item in value.items()}
    return value


class Texts:
    """`Texts` makes `encode`'s JSON of one record after the other, and keeps the text of the parts that stay the same.

    A job's record changes in one place at a time, and may hold thousands of blocks. A part is known by its identity:
    frozen dataclasses, and what they hold, never change.
    """

    def __init__(self) -> None:
        self._kept: dict[int, tuple[Any, str]] = {}  # by id of the part, which is kept so that no other has its id
        self._used: dict[int, tuple[Any, str]] = {}

    def text(self, record: Any) -> str:
        """Return a record's JSON."""
        self._used = {}
        found = self._text(record)
        self._kept = self._used
        return found

    def _text(self, value: Any) -> str:
        kind = type(value)
        if (written := _WRITTEN.get(kind)) is not None:
            return written(value)
        if kind is tuple and value and _names_of(value[0]) is not None:
            return "[" + ",".join(map(self._text, value)) + "]"
        if kind is dict and any(_names_of(item) is not None for item in value.values()):
            return "{" + ",".join([f"{json.dumps(str(encode(key)))}:{self._text(value[key])}" for key in value]) + "}"
        known = self._used.get(id(value)) or self._kept.get(id(value)) or (value, self._made(value))
        self._used[id(value)] = known
        return known[1]

    def _made(self, value: Any) -> str:
        names = _names_of(value)
        if names is None:
            return _COMPACT.encode(encode(value))
        return "{" + ",".join([f'"{name}":{self._text(getattr(value, name))}' for name in names]) + "}"


def decode(kind: type[_T], value: Any) -> _T:
    """Return the value of a known type that `encode` made JSON of.

    Raises:
        KeyError, TypeError, ValueError: not a record of this type.
    """
    result: _T = _decode(kind, value)
    return result


def _decode(kind: Any, value: Any) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return None if value is None else _decode(next(a for a in arguments if a is not NoneType), value)
    if kind is Any or kind is None:
        return value
    if origin is tuple:
        inner = [arguments[0]] * len(value) if arguments[-1] is Ellipsis else arguments
        return tuple(_decode(each, item) for each, item in zip(inner, value, strict=True))
    if origin is frozenset:
        return frozenset(_decode(arguments[0], item) for item in value)
    if origin is not None and issubclass(origin, Mapping):
        return {_decode(arguments[0], key): _decode(arguments[1], item) for key, item in value.items()}
    if is_dataclass(kind) and callable(kind):
        hints = _hints(kind)
        present = [field for field in fields(kind) if field.name in value or not _has_default(field)]
        return kind(**{field.name: _decode(hints[field.name], value[field.name]) for field in present})
    if issubclass(kind, tuple):  # a NamedTuple
        hints = _hints(kind)
        return kind(*(_decode(hints[name], item) for name, item in zip(kind._fields, value, strict=True)))
    return kind(value)


def _has_default(field: Field[Any]) -> bool:
    return field.default is not MISSING or field.default_factory is not MISSING
