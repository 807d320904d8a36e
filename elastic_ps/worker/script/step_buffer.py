"""A `StepBuffer` collects the gradients of the open exchange, until one of the script's calls needs it closed.

Which call that is, `staging` decides.
"""

from collections.abc import Iterable, Sequence
from itertools import compress

import numpy as np

from elastic_ps.core.errors import ConfigurationError
from elastic_ps.core.model import Model
from elastic_ps.worker.script.api import Array
from elastic_ps.worker.script.staging import Key, Staging
from elastic_ps.worker.script.step import PushedStore, Step
from elastic_ps.worker.wire.worker_node import WorkerNode


class StepBuffer:
    """A `StepBuffer` adds gradients to the open exchange and has the step make it.

    Args:
        node: this worker.
        staging: knows the keys of the exchange.
        step: the step that the exchange is part of.
        stores: the script's key stores, by their numbers.
    """

    def __init__(self, node: WorkerNode, staging: Staging, step: Step, stores: Sequence[PushedStore]):
        self._node = node
        self._staging = staging
        self._step = step
        self._stores = stores

    def add(self, key: Key, arrays: Sequence[Array]) -> None:
        """Add a key's gradient, the sum of one array for each device.

        Raises:
            ConfigurationError: no step is under way.
        """
        if self._outside and not self._staging.rehearsing:
            raise ConfigurationError("a push outside of the loop over the sampler: it would belong to no step")
        if self._staging.must_close_before(key):
            self.close_exchange()
        if self._step.again:
            return
        if not self._staging.rehearsing:
            index = self._model.index[key]
            fits = self._model.tensors[index].dtype == "float32"
            self._step.gradients.write_gradient(index, arrays, self._stores[key[0]].compression if fits else None)
        self._staging.stage(key)

    def add_all(self, keys: Sequence[Key], gradients: Sequence[Sequence[Array]]) -> Sequence[bool]:
        """Add gradients of several keys at once; return by key whether it could be: `add` takes the others."""
        if self._outside or self._stores[keys[0][0]].compression is not None or not self.may_send_early(keys):
            return [False] * len(keys)
        tensors = [self._model.index[key] for key in keys]
        alike = [
            len(arrays) == 1 and arrays[0].dtype == self._model.tensors[tensor].dtype
            for arrays, tensor in zip(gradients, tensors, strict=True)
        ]
        if not all(alike):
            return [False] * len(keys)
        done: list[bool]
        done = self._step.gradients.write_gradients(np.array(tensors), [arrays[0] for arrays in gradients]).tolist()
        for key in compress(keys, done):
            self._staging.stage(key)
        return done

    def finish_adding(self) -> None:
        """Copy what has been added: the script's arrays may change from now on."""
        self._step.gradients.finish_writing()

    def may_send_early(self, keys: Sequence[Key]) -> bool:
        """Return whether gradients of `keys`, which make the coming exchange, may be sent before all are added."""
        fresh = len(set(keys)) == len(keys) and not self._staging.staged
        return fresh and not self._staging.rehearsing and not self._step.again

    def send_early(self, keys: frozenset[Key], ready: Sequence[Key]) -> None:
        """Send the gradients of `ready`, which have been added, of the coming exchange over `keys`."""
        self._step.send_early(keys, ready, self._stores[ready[0][0]])

    def drop_staged(self) -> None:
        """Drop what has been added: nothing of it counts."""
        self._staging.staged.clear()
        self._step.forget_early()

    def close_if_staged(self, keys: Iterable[Key]) -> None:
        """Close the exchange if it concerns one of `keys`."""
        if any(self._staging.needs(key) for key in keys):
            self.close_exchange()

    def close_exchange(self) -> None:
        """Close the exchange and make it, if anything has been added."""
        if not self._staging.staged:
            return
        self._step.gradients.finish_writing()
        keys = self._staging.closed()
        if not self._staging.rehearsing:
            self._step.make_exchange(keys, self._stores[next(iter(keys))[0]])

    @property
    def _outside(self) -> bool:
        """Return whether no step of an elastic job is under way."""
        return self._step.data_position is not None and self._step.part is None

    @property
    def _model(self) -> Model:
        return self._node.inbox.model
