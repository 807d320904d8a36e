"""This module says what a key store needs of the job that it is part of."""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from numpy.typing import NDArray

from elastic_ps.core.data_order import DataSpec
from elastic_ps.core.model import Tensor
from elastic_ps.worker.script.staging import Staging
from elastic_ps.worker.script.step_buffer import StepBuffer
from elastic_ps.worker.wire.parameters import FirstValues
from elastic_ps.worker.wire.worker_node import WorkerNode


class StoreJob(Protocol):
    """A `StoreJob` is what a key store needs of the job that it is part of.

    Attributes:
        node: this worker.
        staging: knows the keys of the open exchange.
        buffer: collects the gradients of the open exchange.
        spec: of the elastic sampler; None: the script draws its own batches.
    """

    node: WorkerNode
    staging: Staging
    buffer: StepBuffer
    spec: DataSpec | None

    @property
    def consistency(self) -> str:
        """ "sync", "async" or "ssp"."""

    @property
    def is_sync(self) -> bool:
        """Return whether all workers share each step."""

    @property
    def begins(self) -> bool:
        """Return whether this process has made no exchange yet."""

    @property
    def rank(self) -> int:
        """This worker's rank."""

    @property
    def num_workers(self) -> int:
        """Among how many workers the data is divided."""

    def barrier(self) -> None:
        """Close the open exchange, then wait for all workers."""

    def declare(
        self, store: int, tensors: Sequence[Tensor], optimizer: str, local: bool, first: FirstValues
    ) -> list[str]:
        """Declare tensors of a key store; return warnings.

        Args:
            store: number of the key store.
            tensors: new ones.
            optimizer: JSON of its specification; "": there is none.
            local: optimizers live in the workers.
            first: what the script has initialized.
        """

    def parts(self, store: int, keys: Iterable[str]) -> dict[str, list[NDArray[Any]]]:
        """Return the installed values of keys, flat and in order; of a key that has none yet an empty list."""
