"""Frozen records are changed by copies: an event changes the state some ten times, which has some forty fields."""

from dataclasses import fields
from functools import cache
from typing import Any, TypeVar

_Record = TypeVar("_Record")


@cache
def _names(kind: Any) -> frozenset[str]:
    return frozenset(field.name for field in fields(kind))


def changed(record: _Record, **changes: Any) -> _Record:
    """Return a frozen dataclass's record with some fields changed, as `dataclasses.replace` does, ten times as fast.

    It calls no `__post_init__`, and needs a class without slots; cached properties do not come along.

    Raises:
        TypeError: there is no such field.
    """
    kind: Any = type(record)
    names = _names(kind)
    if unknown := changes.keys() - names:
        raise TypeError(f"{kind.__name__} has no fields {', '.join(sorted(unknown))}")
    before = record.__dict__
    copy: _Record = object.__new__(kind)
    now = copy.__dict__
    now.update(before if len(before) == len(names) else {name: before[name] for name in names})
    now.update(changes)
    return copy
