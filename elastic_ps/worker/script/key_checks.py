"""This module refuses keys and arrays that do not fit what was initialized: values are copied byte by byte."""

from collections.abc import Mapping, Sequence

from elastic_ps.core.errors import ConfigurationError
from elastic_ps.worker.script.api import Array

Kind = tuple[tuple[int, ...], str]
"""Shape and dtype of what was given to init."""


def check_arrays(kinds: Mapping[str, Kind], keys: Sequence[str], arrays: Sequence[Sequence[Array]], verb: str) -> None:
    """Refuse arrays of another shape than their key's.

    Args:
        kinds: of all keys.
        keys: of the arrays.
        arrays: by key, one for each device.
        verb: what is done with them, for the message.

    Raises:
        ConfigurationError: an array does not fit, or a key is unknown; names it.
    """
    for key, listed in zip(keys, arrays, strict=True):
        if key not in kinds:
            raise ConfigurationError(f"key {key[2:]}: {verb} before it was initialized; call init or broadcast first")
        expected, _ = kinds[key]
        for array in listed:
            if tuple(array.shape) != expected:
                raise ConfigurationError(
                    f"key {key[2:]}: {verb} with shape {tuple(array.shape)}, but initialized with {expected}"
                )
