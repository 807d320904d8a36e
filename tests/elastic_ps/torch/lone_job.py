"""An elastic job of one worker whose servers are this process, with the servers' own rules."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch
from weakref import WeakSet

import numpy as np

from elastic_ps.core.errors import ConfigurationError
from elastic_ps.core.gradient_norm import NOT_FINITE, SKIPPED, factor_of
from elastic_ps.core.optimizer import OptimizerSpec
from elastic_ps.optimizers import make_rule
from elastic_ps.server.blocks.treatments import Treatment
from elastic_ps.worker.script.optimizer_states import States
from elastic_ps.worker.script.worker_job import WorkerJob
from elastic_ps.worker.wire.push_exchange import Push
from tests.elastic_ps.worker.instant_job import Servers, instant_job


class RuleServers(Servers):
    """Each exchange is a version, and every key is updated by its store's rule.

    Attributes:
        specs: of the optimizers, by store; set by the test's job.
        states: by tensor's index.
        counts: of updates, by tensor's index.
        rows: the last ones of each key that was pushed by rows.
        factors: that were decided, of the exchanges that needed one.
        early: the keys of each call that sends some of an exchange's.
    """

    def __init__(self, node: Any):
        super().__init__(node)
        self._norm = node.norm
        self.specs: dict[int, OptimizerSpec] = {}
        self.states: dict[int, dict[str, np.ndarray]] = {}
        self.counts: dict[int, int] = {}
        self.rows: dict[str, list[int]] = {}
        self.factors: list[float] = []
        self.early: list[list[str]] = []

    def send_tensors(self, push: Push) -> None:
        """Take note of the keys that are sent before the others, and of their gradients."""
        model = self._inbox.model
        self.early.append(sorted(model.tensors[index].key for index in push.present))

    def forget_sent(self) -> None:
        """See `Exchange.forget_sent`: nothing of it counts here before the rest is there."""

    def run(self, push: Push, boundary: bool) -> bool:
        model = self._inbox.model
        self.exchanges.append([model.tensors[index].key for index in sorted(push.present)])
        gradients = {index: self._gradient(index, push) for index in push.present}
        own = [gradient for index, gradient in gradients.items() if not model.tensors[index].auxiliary]
        factor = self._factor(own, push)
        for index, gradient in gradients.items():
            value = self._inbox.tensor(index).reshape(-1)
            if model.tensors[index].auxiliary:
                value[...] = gradient
            elif factor != SKIPPED:
                self._update(index, value, gradient * gradient.dtype.type(factor), push)
        assert self._inbox.version is not None
        self._inbox.version += 1
        return True

    def _factor(self, gradients: list[np.ndarray], push: Push) -> float:
        if push.hyper is None or not push.hyper.needs_norm:
            return 1.0
        with np.errstate(all="ignore"):
            found = [float(wide @ wide) for wide in (gradient.astype(np.float64) for gradient in gradients)]
        factor = factor_of([total if np.isfinite(total) else NOT_FINITE for total in found], push.hyper)
        self._norm.decided.note(self._inbox.version or 0, factor)
        self.factors.append(factor)
        return factor

    def _gradient(self, index: int, push: Push) -> np.ndarray:
        tensor, blocks = self._inbox.model.tensors[index], self._inbox.model.blocks_of[index]
        rows = push.rows(index)
        if rows is not None:
            self.rows[tensor.key] = rows.numbers.tolist()
            return rows.dense(range(tensor.shape[0]))
        raw = np.concatenate(push.parts((blocks.start, len(blocks))))[: tensor.nbytes]
        return raw.view(tensor.dtype)

    def _update(self, index: int, value: np.ndarray, gradient: np.ndarray, push: Push) -> None:
        tensor = self._inbox.model.tensors[index]
        spec = self.specs[tensor.store]
        rule = make_rule(spec)
        states = self.states.setdefault(
            index, {name: np.zeros(len(value), kind) for name, kind in rule.states(value.dtype)}
        )
        self.counts[index] = self.counts.get(index, 0) + 1
        assert push.hyper is not None
        group = int(spec.keys.get(tensor.key, {}).get("group", 0))
        hyper = Treatment(0, value.dtype, False, rule, group=group).hyper(push.hyper)
        rule.update(value, gradient, states, self.counts[index], hyper)

    def collect(self, store: int) -> dict[str, dict[str, Any]]:
        tensors = self._inbox.model.tensors
        return {
            tensors[index].key: {
                "count": count,
                **{name: array.reshape(tensors[index].shape) for name, array in self.states[index].items()},
            }
            for index, count in self.counts.items()
            if tensors[index].store == store
        }

    def load(self, store: int, states: dict[str, dict[str, Any]]) -> None:
        model = self._inbox.model
        for key, state in states.items():
            index = model.index[store, key]
            rule = make_rule(self.specs[store])
            kept = dict(rule.states(np.dtype(model.tensors[index].dtype)))
            given = {name: array for name, array in state.items() if name != "count"}
            if given.keys() != kept.keys():
                raise ConfigurationError(f"key {key}: {list(given)} instead of {list(kept)}")
            self.counts[index] = state["count"]
            self.states[index] = {name: array.reshape(-1).copy() for name, array in given.items()}


@contextmanager
def lone_job(seed: int = 0, version: int = 0) -> Iterator[tuple[WorkerJob, RuleServers]]:
    """The job of this process, and its servers.

    Args:
        seed: of the job.
        version: with which the job goes on, as after a restore.
    """
    with instant_job(kind=RuleServers) as (job, _):
        servers = job._step._exchange
        assert isinstance(servers, RuleServers)
        job.node.seed = seed
        opened = job.open_store

        def open_store(consistency: str | None = None) -> Any:
            store = opened(consistency)
            set_optimizer = store.set_optimizer

            def noted(spec: OptimizerSpec, hyper: Any) -> list[str]:
                servers.specs[store._number] = spec
                return set_optimizer(spec, hyper)

            store.set_optimizer = noted
            return store

        with (
            patch.object(job, "open_store", open_store),
            patch("elastic_ps.worker.script.worker_job.follow", lambda node: node.inbox.begin(version)),
            patch("elastic_ps.worker.script.worker_job._current", job),
            patch.object(States, "collect", lambda states: servers.collect(states._store)),
            patch.object(States, "load", lambda states, given: servers.load(states._store, given)),
            patch("elastic_ps.torch.optimizer._made", WeakSet()),
        ):
            yield job, servers
