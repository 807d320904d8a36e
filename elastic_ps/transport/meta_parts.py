"""This module has what metas of several kinds are made of, with the checks: runs of blocks, positions and more."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from elastic_ps.core.compression import Compression
from elastic_ps.core.configuration import ConfigId, NodeId
from elastic_ps.core.data_order import Slice
from elastic_ps.core.errors import ProtocolError
from elastic_ps.core.model import Run
from elastic_ps.core.optimizer import Hyper
from elastic_ps.transport.json_checks import Check, flag, integer, listed, mapping, number, record, short, text


class SharedRange(NamedTuple):
    """A `SharedRange` says where a payload, or a part of it, lies in shared memory.

    Attributes:
        image: number of the image, in the order in which they were shared.
        first: first byte.
        nbytes: how many there are.
    """

    image: int
    first: int
    nbytes: int


NAME = text(256, least=1)
WORDS = text(1 << 20)
_MOST_BLOCK = 2**31 - 1


_GROUPS = listed(mapping(NAME, number))


def run(value: Any) -> Run:
    """Check a run of blocks."""
    if isinstance(value, list) and len(value) == 2:  # a pair
        first, count = value
        if type(first) is int and type(count) is int and 0 <= first <= _MOST_BLOCK and 1 <= count <= _MOST_BLOCK:
            return first, count
    raise ValueError(f"[first block, number of blocks] is expected, not {short(value)}")


def hyper(value: Any) -> Hyper:
    """Check hyperparameters."""
    names, seldom = ("lr", "wd", "rescale_grad", "clip_gradient"), ("groups", "max_norm", "skip_overflow", "factor")
    if not isinstance(value, dict) or value.keys() - set(seldom) != set(names):
        raise ValueError(f"an object of {', '.join(names)} and perhaps {', '.join(seldom)} is expected")
    lr, wd, rescale = (number(value[name]) for name in names[:3])
    clip, norm, factor = (
        None if value.get(name) is None else number(value[name]) for name in ("clip_gradient", "max_norm", "factor")
    )
    groups = tuple(_GROUPS(value.get("groups", [])))
    return Hyper(lr, wd, rescale, clip, groups, norm, flag(value.get("skip_overflow", False)), factor)


@dataclass(frozen=True)
class Encoded:
    """An `Encoded` says how a push's gradients of float32 are compressed.

    Attributes:
        compression: of all runs.
        nbytes: of each run.
    """

    compression: Compression
    nbytes: tuple[int, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return what travels."""
        return {**self.compression.tell(), "nbytes": self.nbytes}


_BYTES = listed(integer())


def encoded(value: Any) -> Encoded:
    """Check how gradients are compressed."""
    if not isinstance(value, dict):
        raise ValueError("an object is expected")  # noqa: TRY004  # every check raises ValueError
    try:
        compression = Compression.told({name: part for name, part in value.items() if name != "nbytes"})
    except ProtocolError as error:
        raise ValueError(str(error)) from error
    return Encoded(compression, _BYTES(value.get("nbytes")))


class Written(NamedTuple):
    """`Written` is what an owner's ledger says of an update, but for the blocks.

    Attributes:
        sequence: number of the entry in that ledger.
        epoch: of the data; 0 where they are static.
        step: in the epoch.
        exchange: in the step.
        slices: worker, first position and the one behind the last, for each worker.
    """

    sequence: int
    epoch: int
    step: int
    exchange: int
    slices: tuple[tuple[NodeId, int, int], ...]


def _made(kind: Callable[..., Any], *each: Check) -> Check:
    """Return the check of a list of as many values as there are checks; it returns what `kind` makes of them."""
    check = record(*each)
    return lambda value: kind(*check(value))


RUNS = listed(run)
COUNTS = listed(integer())
NUMBERS = listed(number)
BATCH = record(NAME, integer())
SLICE = _made(Slice, integer(), integer(), integer(2**32 - 1), integer(), integer())
WRITTEN = _made(
    Written, integer(), integer(), integer(), integer(2**32 - 1), listed(record(NAME, integer(), integer()))
)
SHARED_RANGES = listed(_made(SharedRange, integer(), integer(), integer()))
_NUMBER = record(integer(2**64 - 1), integer(2**64 - 1))


def configuration(value: Any) -> ConfigId:
    """Check a configuration's number."""
    return ConfigId(*_NUMBER(value))
