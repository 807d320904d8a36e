"""This module orders the data elastically: it says which positions of which epoch a worker uses at a step. Pure.

Version, step and epoch are one clock. A sampler step takes `exchanges` versions (one per step of a key
store); an epoch takes `steps_per_epoch` sampler steps.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from elastic_ps.core.errors import ConfigurationError
from elastic_ps.core.script_hints import KEEP_SHORT_STEP

MOST_SEED = 2**64 - 1
"""Seeds of the order are whole numbers from 0 to this."""

CONSISTENCIES = ("sync", "async", "ssp")
"""The modes of consistency."""


@dataclass(frozen=True, slots=True)
class DataSpec:
    """A `DataSpec` says what the job trains on.

    Args:
        elastic: False where the script draws its own batches.
        samples: N, of one epoch.
        global_batch: B, over all workers; under `async` and `ssp` the samples of each worker's own step.
        last: the last step of an epoch has N mod B samples ("short"), is left out ("drop") or is filled up from the
            epoch's start ("wrap").
        loss: "sum" over samples, or "mean".
        exchanges: data-plane exchanges per sampler step.
        consistency: "sync", "async" (a server updates on each push) or "ssp" (async, but see staleness).
        staleness: under ssp, steps that a worker may complete more than the slowest.
        order: of an epoch's samples: "shuffled", "given" (that of the data set), or "" where an earlier release, which
            did not tell, has written it.
    """

    elastic: bool = False
    samples: int = 0
    global_batch: int = 0
    last: str = "short"
    loss: str = "sum"
    exchanges: int = 1
    consistency: str = "sync"
    staleness: int = 0
    order: str = ""

    def __post_init__(self) -> None:
        self._check_consistency()
        if not self.elastic:
            return
        if self.samples < 1:
            raise ConfigurationError("the data set is empty: a Sampler needs at least one sample")
        size = "global_batch" if self.is_sync else "batch"
        if not self.global_batch >= 1:
            raise ConfigurationError(f"{size} must be at least 1, not {self.global_batch}")
        if self.last not in ("short", "drop", "wrap"):
            raise ConfigurationError(f'last must be "short", "drop" or "wrap", not {self.last!r}')
        if self.loss not in ("sum", "mean"):
            raise ConfigurationError(f'loss must be "sum" or "mean", not {self.loss!r}')
        if self.order not in ("", "shuffled", "given"):
            raise ConfigurationError(f'order must be "shuffled" or "given", not {self.order!r}')
        if self.last == "drop" and self.samples < self.global_batch:
            raise ConfigurationError(
                f"{self.samples} samples with a {size} of {self.global_batch} leave no whole step, and a shorter one "
                f"is to be dropped: lower {size}, or {KEEP_SHORT_STEP}"
            )

    def _check_consistency(self) -> None:
        if self.consistency not in CONSISTENCIES:
            raise ConfigurationError(f"consistency must be one of {', '.join(CONSISTENCIES)}, not {self.consistency!r}")
        if self.consistency == "ssp" and not (self.elastic and self.staleness >= 1):
            raise ConfigurationError(
                'consistency "ssp" needs an elastic_ps.Sampler with staleness=s, s at least 1: the steps that a worker '
                "may be ahead of the slowest"
            )
        if self.consistency != "ssp" and self.staleness:
            raise ConfigurationError(f'staleness belongs to consistency "ssp", not to {self.consistency!r}')

    @property
    def is_sync(self) -> bool:
        """Return whether all workers share each step; else every push is an update of its own."""
        return self.consistency == "sync"

    @property
    def steps_per_epoch(self) -> int:
        """The sampler steps of one epoch."""
        whole, rest = divmod(self.samples, self.global_batch)
        return whole + (1 if rest and self.last != "drop" else 0)


@dataclass(frozen=True, slots=True)
class Place:
    """A `Place` is a point in the data: step `step` of epoch `epoch`, before exchange `exchange` of the step."""

    epoch: int
    step: int
    exchange: int = 0


class Slice(NamedTuple):
    """A `Slice` is what one worker's push is about: positions [low, high) of an epoch, at one exchange of one step."""

    epoch: int
    step: int
    exchange: int
    low: int
    high: int


def place(spec: DataSpec, version: int) -> Place:
    """Return where version `version` stands in an elastic job's data."""
    step, exchange = divmod(version, spec.exchanges)
    epoch, step = divmod(step, spec.steps_per_epoch)
    return Place(epoch, step, exchange)


def share(spec: DataSpec, step: int, rank: int, workers: int) -> range:
    """Return the positions of the epoch's permutation that a worker uses at a step (protocol, invariants 3 and 4).

    Args:
        spec: of an elastic job.
        step: of the epoch.
        rank: of the worker.
        workers: how many share the step.

    Positions run past N where `last="wrap"` fills the last step up: they mean position - N.
    """
    low = step * spec.global_batch
    high = low + spec.global_batch
    if spec.last == "short":
        high = min(high, spec.samples)
    each, extra = divmod(high - low, workers)
    start = low + rank * each + min(rank, extra)
    return range(start, start + each + (1 if rank < extra else 0))


def permutation(seed: int, epoch: int, samples: int) -> NDArray[np.int64]:
    """Return the order of an epoch, a permutation of range(samples) that is the same on every machine.

    Args:
        seed: of the job.
        epoch: its number.
        samples: of the data set.

    Returns:
        int64, of shape (samples,).

    Built from raw Philox words and a stable sort, both of which numpy keeps the same between versions.
    """
    words = np.random.Philox(key=np.array([seed, epoch], dtype=np.uint64)).random_raw(samples)
    return np.argsort(words, kind="stable").astype(np.int64)


def indices(order: NDArray[np.int64], positions: range) -> NDArray[np.int64]:
    """Return the sample indices, int64 on one axis, at `positions` of an epoch's order."""
    chosen: NDArray[np.int64] = order[np.arange(positions.start, positions.stop) % len(order)]
    return chosen
