"""A `ReplicaStore` is what an `Optimizer` sees of a job without servers, in the place of a key store."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

from elastic_ps.core.compression import Compression
from elastic_ps.core.errors import ConfigurationError
from elastic_ps.core.model import Tensor
from elastic_ps.core.optimizer import Hyper, OptimizerSpec
from elastic_ps.torch.arrays import ModelArray
from elastic_ps.worker.script.api import Array
from elastic_ps.worker.script.staging import Staging


class ReplicaStore:
    """A `ReplicaStore` learns in the rehearsal what a step is made of, and has each step made.

    Args:
        staging: knows whether the script rehearses.
        make_step: called where a step's gradients are there.
        begin_step: called with keys whose gradients are there, while others are not; returns whether it is enough.

    Attributes:
        spec: the optimizer, for people.
        arrays: all parameters and buffers, by key.
        statistics: keys of the buffers that are averaged in each step.
        hyper: returns what the norm of all gradients is for.
        factor: see `KeyStore.factor`.
    """

    def __init__(self, staging: Staging, make_step: Callable[[], None], begin_step: Callable[[Sequence[str]], bool]):
        self.spec: OptimizerSpec | None = None
        self.arrays: dict[str, ModelArray] = {}
        self.statistics: frozenset[str] = frozenset()
        self.hyper: Callable[[int], Hyper] = lambda _: Hyper()
        self.factor = 1.0
        self._kept: frozenset[str] = frozenset()
        self._staging = staging
        self._make_step = make_step
        self._begin_step = begin_step

    def set_compression(self, compression: Compression) -> None:
        """See `KeyStore.set_compression`: the replica's layout says how gradients travel."""

    def set_skip_overflow(self, skip: bool) -> None:
        """See `KeyStore.set_skip_overflow`: each member tells the others what its `hyper` says."""

    def set_optimizer(self, spec: OptimizerSpec, hyper: Callable[[int], Hyper]) -> list[str]:
        """See `KeyStore.set_optimizer`: the script's own optimizer makes the updates."""
        self.spec, self.hyper = spec, hyper
        return []

    def broadcast(self, keys: Sequence[str], arrays: Sequence[Array], outs: Sequence[Sequence[Array]]) -> None:
        """See `KeyStore.broadcast`: the members agree on values before their first step."""
        self.arrays = {key: array for key, array in zip(keys, arrays, strict=True) if isinstance(array, ModelArray)}

    def set_auxiliary(self, keys: Collection[str]) -> None:
        """See `KeyStore.set_auxiliary`."""
        self.statistics = frozenset(keys)

    def keep(self, keys: Collection[str]) -> None:
        """See `KeyStore.keep`: what comes from another worker or a checkpoint leaves them out."""
        self._kept = frozenset(keys)

    @property
    def kept(self) -> frozenset[str]:
        """Keys of the buffers that are the script's own to set; what the job averages is not."""
        return self._kept - self.statistics

    def push_early(self, keys: Sequence[str], ready: Sequence[str], gradients: Sequence[Sequence[Array]]) -> bool:
        """See `KeyStore.push_early`: begin to sum gradients that are there."""
        _refuse_sparse(gradients)
        return self._begin_step(ready)

    def drop_early(self) -> None:
        """See `KeyStore.drop_early`: it comes to the same gradients again, and the sum goes on with the others."""

    def pushpull(
        self, keys: Sequence[str], gradients: Sequence[Sequence[Array]], outs: Sequence[Sequence[Array]]
    ) -> None:
        """See `KeyStore.pushpull`: sum the gradients, and let the script's own optimizer apply the sum."""
        _refuse_sparse(gradients)
        if not self._staging.rehearsing:
            self._make_step()
            return
        for key in keys:
            self._staging.stage((0, key))
        self._staging.closed()

    def optimizer_states(self) -> dict[str, dict[str, Any]] | None:
        """See `KeyStore.optimizer_states`: the script's own optimizer has them."""
        return None

    def load_optimizer_states(self, states: dict[str, dict[str, Any]]) -> None:
        """See `KeyStore.load_optimizer_states`: likewise."""

    def tensors(self) -> list[Tensor]:
        """Return what the job is told of the parameters and buffers."""
        return [
            Tensor(0, key, tuple(array.shape), str(array.dtype), auxiliary=key in self.statistics)
            for key, array in self.arrays.items()
        ]


def _refuse_sparse(gradients: Sequence[Sequence[Array]]) -> None:
    if any(array.stored_rows() is not None for listed in gradients for array in listed):
        raise ConfigurationError(
            "a gradient is sparse, and --mode all-reduce sums dense ones: make the embedding without sparse=True, "
            "or train with servers"
        )
