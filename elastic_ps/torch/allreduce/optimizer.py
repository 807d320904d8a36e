"""An `AllReduceOptimizer` is an `elastic.Optimizer` whose own optimizer makes the updates, at every worker alike."""

from collections.abc import Mapping
from contextlib import suppress
from inspect import Parameter, signature
from typing import Any

import torch

from elastic_ps.core.errors import ConfigurationError
from elastic_ps.core.optimizer import Hyper, OptimizerSpec
from elastic_ps.torch import rules
from elastic_ps.torch.allreduce.job import AllReduceJob
from elastic_ps.torch.allreduce.replica.replica import Replica
from elastic_ps.torch.allreduce.store import ReplicaStore
from elastic_ps.torch.optimizer import Optimizer
from elastic_ps.torch.optimizer_arguments import check_states
from elastic_ps.worker.script.script_job import ScriptJob


def spec_of(optimizer: torch.optim.Optimizer, keys: Mapping[torch.Tensor, str]) -> OptimizerSpec:
    """Return the servers' name for an optimizer, or where they have no rule for it, the script's own.

    Args:
        optimizer: of PyTorch.
        keys: of its parameters.
    """
    kind = type(optimizer)
    if "elastic_rule" not in vars(kind):
        with suppress(ConfigurationError):
            return rules.translate(optimizer, keys)
    return OptimizerSpec.scripts_own(kind.__name__)


def check_kind(optimizer: torch.optim.Optimizer) -> None:
    """Refuse an optimizer that does not update by dense gradients alone: it would fail in the first step.

    Args:
        optimizer: of PyTorch.

    Raises:
        ConfigurationError: it is one.
    """
    kind = type(optimizer).__name__
    closure = signature(optimizer.step).parameters.get("closure")
    if closure is not None and closure.default is Parameter.empty:
        raise ConfigurationError(
            f"{kind}.step(closure) calls the loss, perhaps several times, which all workers would have to do at once: "
            "take an optimizer that updates by the gradients of one backward pass"
        )
    if isinstance(optimizer, torch.optim.SparseAdam):
        raise ConfigurationError(
            f"{kind} takes sparse gradients alone, and --mode all-reduce sums dense ones: take Adam, with embeddings "
            "without sparse=True"
        )


class AllReduceOptimizer(Optimizer):
    """An `AllReduceOptimizer` takes any optimizer of PyTorch that updates by gradients alone; see `Optimizer`."""

    def state_dict(self) -> dict[str, Any]:
        """Return the wrapped optimizer's own, which all workers hold alike."""
        return self.wrapped.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load into the wrapped optimizer; call it in all workers, before the loop or in one and the same batch."""
        check_states(state_dict)
        self.wrapped.load_state_dict(state_dict)

    def _hyper(self, _num_update: int) -> Hyper:
        """Return what the norm of all gradients is for: the optimizer's own numbers are told by parameter group."""
        return Hyper(max_norm=self.max_norm, skip_overflow=self._scales)

    def _translate(self) -> OptimizerSpec:
        """Return the servers' name for it, where they know it: they restore what is saved here then."""
        check_kind(self.wrapped)
        return spec_of(self.wrapped, self._keys)

    def _check_rule(self) -> None:
        """Refuse nothing: the script's own optimizer makes the updates, and calls its hooks."""

    def _check_load(self) -> None:
        """Refuse nothing: the script's own optimizer has the states."""

    def _open_store(self, job: ScriptJob) -> ReplicaStore:
        assert isinstance(job, AllReduceJob)
        self._shared.undoes = True
        return job.open_store(self._replica, self._shared.undo_rehearsal)

    def _replica(self, store: ReplicaStore) -> Replica:
        wire = getattr(torch, self._compression) if self._compression is not None else None
        arrays, statistics, first = store.arrays, store.statistics, self._shared.first
        return Replica(self.wrapped, list(self._keys), arrays, statistics, wire, lambda: store.kept, first)
