"""The open exchange: gradients that the script's calls have staged, until a call needs it closed (see `staging`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import compress
from typing import TYPE_CHECKING

import numpy as np

from elastic_ps.core.errors import ConfigurationError
from elastic_ps.core.model import Model
from elastic_ps.worker.script.api import Array
from elastic_ps.worker.script.staging import Key, Staging

if TYPE_CHECKING:
    from elastic_ps.worker.script.key_store import Store
    from elastic_ps.worker.script.step import Step
    from elastic_ps.worker.wire.worker_node import WorkerNode


class OpenExchange:
    """See the module.

    Args:
        node: this worker.
        staging: which keys are in it.
        step: that it is part of.
        stores: of the script, by their numbers.
    """

    def __init__(self, node: WorkerNode, staging: Staging, step: Step, stores: Sequence[Store]):
        self._node = node
        self._staging = staging
        self._step = step
        self._stores = stores

    def stage(self, key: Key, arrays: Sequence[Array]) -> None:
        """Add a key's gradient."""
        if self._outside and not self._staging.rehearsing:
            raise ConfigurationError("a push outside of the loop over the sampler: it would belong to no step")
        if self._staging.must_close_before(key):
            self.close()
        if self._step.again:
            return
        if not self._staging.rehearsing:
            index = self._model.index[key]
            fits = self._model.tensors[index].dtype == "float32"
            self._step.gradients.write(index, arrays, self._stores[key[0]].compression if fits else None)
        self._staging.stage(key)

    def stage_all(self, keys: Sequence[Key], gradients: Sequence[Sequence[Array]]) -> Sequence[bool]:
        """Add gradients of several keys, at once; which could be: the others are to be staged."""
        if self._outside or self._stores[keys[0][0]].compression is not None or not self.may_send_ahead(keys):
            return [False] * len(keys)
        tensors = [self._model.index[key] for key in keys]
        alike = [
            len(arrays) == 1 and arrays[0].dtype == self._model.tensors[tensor].dtype
            for arrays, tensor in zip(gradients, tensors, strict=True)
        ]
        if not all(alike):
            return [False] * len(keys)
        done: list[bool]
        done = self._step.gradients.write_all(np.array(tensors), [arrays[0] for arrays in gradients]).tolist()
        for key in compress(keys, done):
            self._staging.stage(key)
        return done

    def staged(self) -> None:
        """A call of the script's has staged all that it has: its arrays may change now."""
        self._step.gradients.copy()

    def may_send_ahead(self, keys: Sequence[Key]) -> bool:
        """Whether gradients of `keys`, which make the coming exchange, may be sent before all are staged."""
        fresh = len(set(keys)) == len(keys) and not self._staging.staged
        return fresh and not self._staging.rehearsing and not self._step.again

    def send_ahead(self, keys: frozenset[Key], ready: Sequence[Key]) -> None:
        """Send what is staged of the coming exchange over `keys`."""
        self._step.send_ahead(keys, ready, self._stores[ready[0][0]])

    def abandon(self) -> None:
        """Nothing that is staged counts."""
        self._staging.staged.clear()
        self._step.abandon()

    def settle(self, keys: Iterable[Key]) -> None:
        """Close it if it concerns one of `keys`."""
        if any(self._staging.needs(key) for key in keys):
            self.close()

    def close(self) -> None:
        """Close it, if anything is staged."""
        if not self._staging.staged:
            return
        self._step.gradients.copy()
        keys = self._staging.closed()
        if not self._staging.rehearsing:
            self._step.run(keys, self._stores[next(iter(keys))[0]])

    @property
    def _outside(self) -> bool:
        """Whether no step of an elastic job is under way."""
        return self._step.course is not None and self._step.part is None

    @property
    def _model(self) -> Model:
        return self._node.inbox.model
