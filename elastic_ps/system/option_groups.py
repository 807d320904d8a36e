"""This module lets options of a command that belong together be one parameter of it, a dataclass."""

import inspect
from collections.abc import Callable
from dataclasses import is_dataclass
from functools import wraps
from typing import Any


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Make options of the fields of a command's dataclass parameters, one option for each field."""
    own = inspect.signature(command, eval_str=True).parameters
    groups: dict[str, Any] = {name: each.annotation for name, each in own.items() if is_dataclass(each.annotation)}
    fields = {name: inspect.signature(kind, eval_str=True).parameters for name, kind in groups.items()}

    @wraps(command)
    def asked(**values: Any) -> None:
        made = {name: groups[name](**{of: values.pop(of) for of in own}) for name, own in fields.items()}
        command(**values, **made)

    whole = [each for name in own for each in (fields[name].values() if name in fields else [own[name]])]
    parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in whole]
    asked.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typer reads it
    asked.__annotations__ = {each.name: each.annotation for each in parameters}
    return asked
