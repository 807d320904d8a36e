"""This module says what an adapter gives to the worker side and gets from it: no framework's type crosses this line."""

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from elastic_ps.core.compression import Compression
from elastic_ps.core.data_order import DataSpec
from elastic_ps.core.optimizer import Hyper, OptimizerSpec
from elastic_ps.core.sparse_rows import Rows


class Dense:
    """`Dense` is the base of an `Array` that has all its rows."""

    rows: NDArray[np.int64] | None = None

    def stored_rows(self) -> Rows | None:
        """See `Array.stored_rows`."""
        return None


class Array(Protocol):
    """An `Array` is one framework tensor on one device."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape in elements."""

    @property
    def dtype(self) -> str:
        """The element type by numpy's name."""

    @property
    def rows(self) -> NDArray[np.int64] | None:
        """The ascending numbers (int64) of the only rows that `write` takes; None: it takes all."""

    def stored_rows(self) -> Rows | None:
        """Return the rows that a row-sparse array stores, after the framework's pending writes; None: it is dense."""

    def read(self) -> NDArray[Any]:
        """Return all values, after the framework's pending writes: its own memory where possible, else a copy."""

    @staticmethod
    def settle(arrays: Sequence["Array"], to_write: bool) -> None:
        """Wait for the framework's pending writes of arrays of this class, and to write to them for its reads, too."""

    @staticmethod
    def addresses(arrays: Sequence["Array"]) -> NDArray[np.int64] | int:
        """Return the addresses of the memory of `arrays`, which are of this class and settled; 0: see `memory`."""

    def memory(self) -> NDArray[Any] | None:
        """Return its own memory, once the array is settled; None: there is none, use `read` and `write`."""

    def write(self, values: NDArray[Any]) -> None:
        """Replace the values, of `rows` where there are some, after the framework's pending reads and writes.

        `values` may be reused afterwards.
        """


class KeyStore(Protocol):
    """A `KeyStore` is one key store of the script, with its own key space.

    Keys are texts as in `Tensor.key`: "i:3" or "s:weight". All calls come from the script's thread and return when
    their effect is complete for the caller. `gradients[k]` and `outs[k]` list one array per device for `keys[k]`;
    gradients of one key are summed.

    Errors are `ConfigurationError`s that name the key and the reason.
    """

    def init(self, keys: Sequence[str], arrays: Sequence[Array]) -> None:
        """Define keys; the chief's values count. A known key is an error that names it."""

    def broadcast(self, keys: Sequence[str], arrays: Sequence[Array], outs: Sequence[Sequence[Array]]) -> None:
        """Call `init`, then write the job's values to `outs`; arrays that are never pushed become auxiliary state.

        Args:
            keys: new ones.
            arrays: one for each key, its first value.
            outs: by key, one array for each device.
        """

    def set_auxiliary(self, keys: Collection[str]) -> None:
        """Say, in the rehearsal, which of the broadcast keys are auxiliary state; else it is those never pushed."""

    def keep(self, keys: Collection[str]) -> None:
        """Leave the script's arrays of these keys, which no step changes, as they are from now on."""

    def push(self, keys: Sequence[str], gradients: Sequence[Sequence[Array]]) -> None:
        """Stage gradients for the open exchange."""

    def pull(self, keys: Sequence[str], outs: Sequence[Sequence[Array]]) -> None:
        """Close the open exchange if it concerns these keys, then write their values."""

    def pushpull(
        self, keys: Sequence[str], gradients: Sequence[Sequence[Array]], outs: Sequence[Sequence[Array]]
    ) -> None:
        """Stage gradients, close the exchange, and write the new values to `outs`; `combined` may delay the latter.

        Args:
            keys: the keys, which are known.
            gradients: by key, one array for each device.
            outs: by key, one array for each device.
        """

    def push_early(self, keys: Sequence[str], ready: Sequence[str], gradients: Sequence[Sequence[Array]]) -> bool:
        """Send some gradients of the coming pushpull, which are final, while others are not; call it for the others,
        too, or leave them to the pushpull. Nothing else may be pushed in between.

        Args:
            keys: of the pushpull, as far as is known.
            ready: those that are sent.
            gradients: of `ready`, one array for each device.

        Returns:
            Whether they were sent; else the pushpull sends all: in the rehearsal, or in a step that is made again.
        """

    def drop_early(self) -> None:
        """Drop what `push_early` has sent: the pushpull does not come, and its step is made anew."""

    def combined(self, overlap: bool = False) -> AbstractContextManager[None]:
        """Combine the pushpulls that are made while it is open: at its end the exchange is closed, and every `outs`
        written.

        For a caller that reads nothing in between. After an exception nothing that is staged will be sent.

        Args:
            overlap: gradients stay as they are until the end, so that they are sent as they become ready, the last keys
                first: in that order a backward pass makes them.
        """

    def set_optimizer(self, spec: OptimizerSpec, hyper: Callable[[int], Hyper]) -> list[str]:
        """Let servers update. `hyper(num_update)` gives the values of an update; it is called once a step, by the chief
        and under "async" and "ssp" by every worker.

        Returns warnings: settings that differ from the job's own, which stays. Nothing of an optimizer with another
        rule than this store has declared is taken.
        """

    @property
    def rule(self) -> str:
        """Name of the rule of the optimizer that was taken last, "" before."""

    def set_compression(self, compression: Compression) -> None:
        """Quantize the gradients of float32 keys from now on, and let fewer bytes of them travel.

        Raises:
            ConfigurationError: exchanges are to be skipped, and this compression hides by what.
        """

    def set_skip_overflow(self, skip: bool) -> None:
        """Say whether exchanges are skipped from now on in which a gradient of this worker is not finite.

        Those of the chief are by its `Hyper`, which alone travels.

        Raises:
            ConfigurationError: the store's compression hides such gradients.
        """

    def set_local_update(self) -> None:
        """Say that optimizers live in the workers: the store only sums, worker joins are refused.

        Under "async" and "ssp" it is refused itself: each push is an update.
        """

    def barrier(self) -> None:
        """Close the open exchange, then wait for all workers; a worker that joins takes part once it is a member."""

    def optimizer_states(self) -> dict[str, dict[str, Any]] | None:
        """Collect from the servers: key -> {"count": updates, state name: array of the tensor's shape}.

        None in the rehearsal of a worker that joins a running job: there is nothing to be saved then.
        """

    def load_optimizer_states(self, states: dict[str, dict[str, Any]]) -> None:
        """Load what `optimizer_states` returned; the chief's copy counts. Call it in all workers.

        Keys that are not in `states` keep theirs, and their count where "count" is absent. Called in the rehearsal,
        or before the first exchange, it does nothing in a job that has gone on (a joiner, a restored checkpoint).
        Under "async" and "ssp" each block's state is replaced between two of the pushes of others.
        """

    def command(self, head: int, body: str) -> None:
        """Run a registered handler on every server and wait for it."""

    @property
    def factor(self) -> float:
        """The factor on the gradients of the last exchange (`Hyper.factor`); 0: it was skipped."""

    @property
    def rank(self) -> int:
        """This worker's rank, now."""

    @property
    def num_workers(self) -> int:
        """In the configuration in force."""

    @property
    def mode(self) -> str:
        """ "sync", "async" or "ssp"."""

    @property
    def data(self) -> DataSpec | None:
        """Return how the job divides the data; None: the script draws its own batches."""
