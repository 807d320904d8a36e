"""This module says what an `elastic.Optimizer` needs of the job: a key store on servers, or a replica without them."""

from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

from elastic_ps.core.compression import Compression
from elastic_ps.core.optimizer import Hyper, OptimizerSpec
from elastic_ps.worker.script.api import Array


class OptimizerStore(Protocol):
    """An `OptimizerStore` is what an `Optimizer` needs of a `KeyStore`, which has the docstrings."""

    def broadcast(self, keys: Sequence[str], arrays: Sequence[Array], outs: Sequence[Sequence[Array]]) -> None:
        """See `KeyStore.broadcast`."""

    def set_auxiliary(self, keys: Collection[str]) -> None:
        """See `KeyStore.set_auxiliary`."""

    def keep(self, keys: Collection[str]) -> None:
        """See `KeyStore.keep`."""

    def set_compression(self, compression: Compression) -> None:
        """See `KeyStore.set_compression`."""

    def set_skip_overflow(self, skip: bool) -> None:
        """See `KeyStore.set_skip_overflow`."""

    def set_optimizer(self, spec: OptimizerSpec, hyper: Callable[[int], Hyper]) -> list[str]:
        """See `KeyStore.set_optimizer`."""

    def pushpull(
        self, keys: Sequence[str], gradients: Sequence[Sequence[Array]], outs: Sequence[Sequence[Array]]
    ) -> None:
        """See `KeyStore.pushpull`."""

    def push_early(self, keys: Sequence[str], ready: Sequence[str], gradients: Sequence[Sequence[Array]]) -> bool:
        """See `KeyStore.push_early`."""

    def drop_early(self) -> None:
        """See `KeyStore.drop_early`."""

    @property
    def factor(self) -> float:
        """See `KeyStore.factor`."""

    def optimizer_states(self) -> dict[str, dict[str, Any]] | None:
        """See `KeyStore.optimizer_states`."""

    def load_optimizer_states(self, states: dict[str, dict[str, Any]]) -> None:
        """See `KeyStore.load_optimizer_states`."""
