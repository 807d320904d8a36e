"""Frozen records are changed by copies: an event changes the state some ten times, which has some forty fields."""

from collections.abc import Callable
from dataclasses import fields
from functools import cache, wraps
from operator import is_
from typing import Any, ParamSpec, TypeVar, cast

_Record = TypeVar("_Record")
_Records = ParamSpec("_Records")
_Found = TypeVar("_Found")


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


def remembered(derive: Callable[_Records, _Found]) -> Callable[_Records, _Found]:
    """Remember what a pure function has made of the last records: most events change none of those that it takes."""
    last: tuple[tuple[Any, ...], Any] = ((), None)  # in one: another thread may ask too

    @wraps(derive)
    def ask(*records: Any) -> Any:
        nonlocal last
        known, found = last
        if not known or not all(map(is_, known, records)):
            found = derive(*records)  # type: ignore[call-arg]
            last = (records, found)
        return found

    return cast(Callable[_Records, _Found], ask)
