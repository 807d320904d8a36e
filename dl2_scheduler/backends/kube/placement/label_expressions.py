"""This module evaluates conditions on labels, as Kubernetes' selectors and affinities write them. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Expression:
    """An `Expression` is one condition on labels.

    Attributes:
        key: of the labels, or of a node's fields.
        operator: In, NotIn, Exists, DoesNotExist, Gt or Lt.
        values: to compare with.
        is_field: the key is a field's; Kubernetes knows metadata.name alone.
    """

    key: str
    operator: str
    values: tuple[str, ...]
    is_field: bool = False

    def holds(self, labels: Mapping[str, str], name: str = "") -> bool:
        """Return whether an object with these labels and this name meets the condition."""
        value = name if self.is_field else labels.get(self.key)
        return _OPERATORS[self.operator](value, self.values)


def expressions_of(found: Mapping[str, Any], kind: str = "matchExpressions") -> tuple[Expression, ...]:
    """Read a term's matchExpressions, or its matchFields."""
    return tuple(
        Expression(each["key"], each["operator"], tuple(each.get("values") or ()), kind == "matchFields")
        for each in found.get(kind) or ()
    )


def _greater(value: str | None, values: Sequence[str]) -> bool:
    return value is not None and _is_number(value) and int(value) > int(values[0])


def _less(value: str | None, values: Sequence[str]) -> bool:
    return value is not None and _is_number(value) and int(value) < int(values[0])


def _is_number(text: str) -> bool:
    return text.removeprefix("-").isdigit()


_OPERATORS: Mapping[str, Callable[[str | None, Sequence[str]], bool]] = {
    "In": lambda value, values: value in values,
    "NotIn": lambda value, values: value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
    "Gt": _greater,
    "Lt": _less,
}
