"""This module takes keys and values as MXNet's KVStore does: one or lists, nested or not."""

from collections.abc import Iterator
from typing import Any

import mxnet as mx

from elastic_ps.core.errors import ConfigurationError

Key = int | str
Grouped = dict[Key, list[Any]]


def key_text(key: Key) -> str:
    """Return a key as `Tensor.key` has it: "i:3" for an integer, "s:weight" for a string."""
    return f"s:{key}" if isinstance(key, str) else f"i:{key}"


def key_of_text(text: str) -> Key:
    """Return the key that `key_text` wrote."""
    return int(text[2:]) if text.startswith("i:") else text[2:]


def group(keys: Any, values: Any) -> Grouped:
    """Return arrays by key, in order of first mention.

    Args:
        keys: one key or a (nested) list of keys.
        values: for one key an array or a list of arrays, one per device; for a list of keys a list of those.

    Raises:
        ConfigurationError: a key is neither integer nor string, or the lists differ in length.
    """
    grouped: Grouped = {}
    for key, array in pairs(keys, values):
        grouped.setdefault(key, []).append(array)
    return grouped


def pairs(keys: Any, values: Any) -> Iterator[tuple[Key, Any]]:
    """Yield each key with one array, as `group` takes them."""
    if isinstance(keys, list | tuple):
        if not isinstance(values, list | tuple) or len(values) != len(keys):
            found = len(values) if isinstance(values, list | tuple) else type(values).__name__
            raise ConfigurationError(f"{len(keys)} keys need a list of {len(keys)} values, not {found}: keys {keys}")
        for key, value in zip(keys, values, strict=True):
            yield from pairs(key, value)
    elif not isinstance(keys, int | str) or isinstance(keys, bool):
        raise ConfigurationError(f"key {keys!r}: a key is an int or a str, not {type(keys).__name__}")
    elif isinstance(values, mx.nd.NDArray):
        yield keys, values
    elif isinstance(values, list | tuple) and values:
        yield from ((keys, value) for value in values)
    else:
        raise ConfigurationError(f"key {keys}: an NDArray or a list of them is needed, not {values!r}")


def flat(values: Any) -> Iterator[Any]:
    """Yield what nested lists hold."""
    if isinstance(values, list | tuple):
        for value in values:
            yield from flat(value)
    else:
        yield values
