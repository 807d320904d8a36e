"""This module checks what every message must be: it says in a sentence what is wrong with one."""

import re
from collections.abc import Iterable, Mapping
from math import isfinite
from operator import add
from typing import Any

import numpy as np
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from coordinator.core.callers import Introduction
from elastic_ps.core.configuration import Configuration, Role
from elastic_ps.core.errors import ConfigurationError
from elastic_ps.core.model import ALIGNMENT, Tensor

_MOST = 2**62
"""The largest number: versions, counts and terms can still be counted on in the 64 bits of numpy and SQLite."""

_TEXT, _LONG_TEXT = 16 << 10, 16 << 20
_LONG = {"detail", "optimizer", "optimizers", "body"}
"""Fields whose texts are a program's: lists of blocks, an optimizer with all its keys, a command for servers."""

_ANY_BITS = {"seed", "id", "command"}
"""Fields whose numbers are names that callers have drawn: nobody counts with them."""

_ANY_FLOAT = {"metrics"}
"""Fields that a script fills: a loss may be nan."""

_OF_PAIRS = {"runs", "promoted"}
"""Fields that are lists of pairs, one number behind the other: first block and count."""

_MOST_BLOCK = 2**31 - 1
"""The last block that a run may come to: runs are cut and joined, and what comes of that has to be sent, too."""

_MOST_SHOWN = 100
_MOST_TENSOR_BYTES = 1 << 40
_MOST_AXES = 64  # numpy's


def fault(message: Message, path: str = "") -> str:
    """Return what is wrong with a message: an unknown enum value, a number or text out of range, half a pair.

    Empty: nothing is.

    Args:
        message: of any type.
        path: of the field that holds it, for the sentence.
    """
    for field, value in message.ListFields():
        kind = type(value)
        if kind is bool or (kind is int and field.enum_type is None and -_MOST <= value <= _MOST):
            continue
        name = field.name
        if name in _OF_PAIRS:
            if len(value) % 2:
                return f"{path}{name}: pairs are meant, not {len(value)} numbers"
            if value and max(map(add, value[::2], value[1::2])) > _MOST_BLOCK:
                return f"{path}{name}: the blocks of a run are at most {_MOST_BLOCK}"
        for each in _values(field, value):
            if field.message_type is None:
                if found := _wrong(field, each):
                    return f"{path}{name}: {found}"
            elif isinstance(each, Message):
                if found := fault(each, f"{path}{name}."):
                    return found
            elif found := _wrong(field, each):  # a map's key, or its value
                return f"{path}{name}: {found}"
    return ""


def _values(field: FieldDescriptor, value: Any) -> Iterable[Any]:
    """Return the values of a field that is set."""
    if not field.is_repeated:
        return (value,)
    if field.name in _ANY_FLOAT:
        return list(value)  # of a map: its keys
    return [*value, *value.values()] if isinstance(value, Mapping) else value


def _wrong(field: FieldDescriptor, value: Any) -> str:
    if isinstance(value, str):
        most = _LONG_TEXT if field.name in _LONG else _TEXT
        if len(value) > most:
            return f"a text of {len(value)} characters, which begins {value[:_MOST_SHOWN]!r}: at most {most} are taken"
        if "\0" in value:
            return f"a text with a zero in it: {value[:_MOST_SHOWN]!r}"
    elif isinstance(value, float):
        if not isfinite(value):
            return f"{value} is not finite"
    elif field.enum_type is not None:
        if value not in field.enum_type.values_by_number:
            return f"{value} is none of {', '.join(known.name for known in field.enum_type.values)}"
    elif isinstance(value, int) and abs(value) > _MOST and field.name not in _ANY_BITS:
        return f"{value} is more than {_MOST}"
    return ""


def checked_tensor(tensor: Tensor) -> Tensor:
    """Return a tensor that can be: its size is known before anything is allocated for it.

    Raises:
        ConfigurationError: it is not a type of numbers, or too large.
    """
    if len(tensor.shape) > _MOST_AXES:  # before they are multiplied: of a million that takes hours
        raise ConfigurationError(f"key {tensor.key!r} with {len(tensor.shape)} axes: at most {_MOST_AXES} are taken")
    if not tensor.key or min(tensor.shape, default=0) < 0:
        raise ConfigurationError(f"key {tensor.key!r} with shape {tensor.shape}: not a tensor")
    try:
        kind = np.dtype(tensor.dtype).kind
    except (TypeError, ValueError, SyntaxError) as error:
        raise ConfigurationError(f"key {tensor.name}: dtype {tensor.dtype!r} is not one of numpy's") from error
    if kind not in "biuf":
        raise ConfigurationError(f"key {tensor.name}: dtype {tensor.dtype!r} is not a type of numbers")
    if tensor.nbytes > _MOST_TENSOR_BYTES:
        raise ConfigurationError(
            f"key {tensor.name}: shape {tensor.shape}: too large, at most {_MOST_TENSOR_BYTES} bytes"
        )
    return tensor


def checked_introduction(told: Introduction) -> Introduction:
    """Return what a node knows of its job, where that can be: a coordinator without a journal builds its state on it.

    Raises:
        ConfigurationError: it cannot.
    """
    if told.block_bytes <= 0 or told.block_bytes % ALIGNMENT:
        raise ConfigurationError(f"blocks of {told.block_bytes} bytes: not a multiple of {ALIGNMENT}")
    for tensor in told.tensors:
        checked_tensor(tensor)
    for configuration in told.configurations:
        _check_configuration(configuration)
    for name in told.dead:
        if not any(_names(role, name) for role in Role):
            raise ConfigurationError(f"{name!r} is no name of a node")
    return told


def _check_configuration(configuration: Configuration) -> None:
    members = (*configuration.workers, *configuration.servers)
    if len({member.id for member in members}) < len(members):
        raise ConfigurationError(f"configuration {configuration.id} names a node twice")
    for role, roster in ((Role.WORKER, configuration.workers), (Role.SERVER, configuration.servers)):
        for member in roster:
            if member.role is not role or not _names(role, member.id):
                raise ConfigurationError(f"configuration {configuration.id}: {member.id!r} is no name of a {role}")
    servers, blocks, followers = len(configuration.servers), configuration.assignment, configuration.followers
    if max(blocks, default=-1) >= servers or max(followers, default=-1) >= servers or min(followers, default=0) < -1:
        raise ConfigurationError(f"configuration {configuration.id} gives blocks to servers that it does not have")
    if followers and len(followers) != len(blocks):
        raise ConfigurationError(
            f"configuration {configuration.id} has {len(followers)} followers of {len(blocks)} blocks"
        )


def _names(role: Role, name: str) -> bool:
    return re.fullmatch(rf"{role[0]}\d{{1,18}}", name) is not None
