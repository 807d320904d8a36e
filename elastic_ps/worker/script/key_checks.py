"""This module refuses keys and arrays that do not fit what was initialized: values are copied byte by byte."""

from collections.abc import Mapping, Sequence, Set

from elastic_ps.core.compression import Compression
from elastic_ps.core.errors import ConfigurationError
from elastic_ps.core.script_hints import PUSH_FROM_THE_START
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


def check_trained(averaged: Set[str], keys: Sequence[str]) -> None:
    """Refuse a gradient of a key whose value this worker pushes in each step: it would take the gradient's place.

    Args:
        averaged: the auxiliary keys.
        keys: of the gradients.

    Raises:
        ConfigurationError: names one.
    """
    if not averaged.isdisjoint(keys):
        key = next(key for key in keys if key in averaged)
        raise ConfigurationError(
            f"key {key[2:]}: it was not pushed in the first batch, so the workers average its value as they do running "
            f"statistics, and it cannot be trained any more: {PUSH_FROM_THE_START}"
        )


def check_skipping(compression: Compression | None, skip_overflow: bool) -> None:
    """Refuse to skip exchanges of gradients that are not finite where compression keeps what it leaves out.

    `2bit` lets none travel, so that the servers would apply the others as if nothing were wrong; and what is left out
    of an exchange that is skipped would count.

    Raises:
        ConfigurationError: names the compression.
    """
    if skip_overflow and compression is not None and compression.has_feedback:
        raise ConfigurationError(
            f"gradient compression {compression.kind}: it hides gradients that are not finite, by which steps are to "
            "be skipped; compress by float16 or bfloat16, or not at all"
        )
