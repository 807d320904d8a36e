"""Frozen dataclasses become JSON and come back, by their type hints, so that no field can be forgotten.

A record of an earlier program may lack fields that have been added since: those that have defaults get them.
"""

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

_T = TypeVar("_T")

_hints = cache(get_type_hints)  # a journal holds thousands of records of a few types


_PLAIN = frozenset((str, int, float, bool, NoneType))


@cache
def _names(kind: type) -> tuple[str, ...] | None:
    """Return the names of a dataclass's fields; None: it is none."""
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else None


def encode(value: Any) -> Any:
    """Return a value in JSON's types: dataclasses become objects, tuples and sets lists (sets sorted)."""
    kind: Any = type(value)
    if kind in _PLAIN:
        return value
    if (names := _names(kind)) is not None:
        return {name: encode(getattr(value, name)) for name in names}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(encode(key)): encode(item) for key, item in value.items()}
    if isinstance(value, frozenset):
        return sorted(encode(item) for item in value)
    if isinstance(value, tuple):
        return [encode(item) for item in value]
    return value


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
