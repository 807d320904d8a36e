"""A `Step` makes the exchanges of the script's step that is under way, for this worker's part of the data."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Protocol

from elastic_ps.core.compression import Compression
from elastic_ps.core.errors import ConfigurationError
from elastic_ps.core.gradient_norm import SKIPPED
from elastic_ps.core.optimizer import Hyper
from elastic_ps.core.script_hints import PUSH_AS_REHEARSED
from elastic_ps.worker.script.api import Array
from elastic_ps.worker.script.data_position import DataPosition, StepPart
from elastic_ps.worker.script.gradients import Gradients
from elastic_ps.worker.script.process_ending import exits
from elastic_ps.worker.script.staging import Key
from elastic_ps.worker.script.store_optimizer import StoreOptimizer
from elastic_ps.worker.wire.core_share import CoreShare
from elastic_ps.worker.wire.push_exchange import Exchange, Push
from elastic_ps.worker.wire.worker_node import WorkerNode


class PushedStore(Protocol):
    """A `PushedStore` is what a step needs of the key store whose keys it pushes.

    Attributes:
        compression: of its gradients; None: they travel as they are.
        skip_overflow: see `KeyStore.set_skip_overflow`.
        optimizer: on the servers.
    """

    compression: Compression | None
    skip_overflow: bool
    optimizer: StoreOptimizer

    def auxiliary(self) -> Iterator[tuple[Key, Array]]:
        """Yield the auxiliary keys with this worker's array of each."""

    def write_back(self, keys: Iterable[Key]) -> None:
        """Write the new values of `keys` to the arrays in which the script awaits them."""


class Step:
    """A `Step` counts the exchanges of the step under way and makes each. It is used by the script's thread.

    Args:
        node: this worker.
        core_share: is told of every step.

    Attributes:
        part: this worker's of the data; None: no step of an elastic job is under way.
        again: the step must be yielded again: other workers share it now.
        exchanged: this process has made an exchange.
        may_be_made: the others may have made the step before: it is made again, or a joiner's first.
        data_position: in an elastic job, from its rehearsal on; None: the script draws its own batches.
        gradients: the gradients of the open exchange.
    """

    def __init__(self, node: WorkerNode, core_share: CoreShare):
        self.part: StepPart | None = None
        self.data_position: DataPosition | None = None
        self.again = False
        self.exchanged = False
        self.may_be_made = False
        self.gradients = Gradients(node)
        self._node = node
        self._core_share = core_share
        self._exchange = Exchange(node)
        self._next = 0  # the exchange of the step that comes next
        self._early: Push | None = None  # of the next exchange, of which some tensors have been sent

    def begin(self, part: StepPart | None) -> None:
        """Begin the step of `part`."""
        self.part = part
        self._next = 0

    def end(self) -> None:
        """End the step: none is under way."""
        self.part = None
        self.may_be_made, self.again = self.again, False

    def forget_early(self) -> None:
        """Forget what was written and sent early: the next exchange has other gradients."""
        self.gradients.not_sent()
        if self._early is not None:
            self._early = None
            self._exchange.forget_sent()
            self.gradients.step_again()

    def send_early(self, keys: frozenset[Key], ready: Iterable[Key], store: PushedStore) -> None:
        """Send some gradients of the next exchange, which is about over `keys`; `make_exchange` sends the rest.

        Args:
            keys: that it will probably push; by them the optimizer's values are of the right update.
            ready: the keys whose gradients are written.
            store: the key store of the keys.
        """
        where = self.data_position
        if where is not None and not where.done <= self._next < where.spec.exchanges:
            return
        if self._early is None:
            self._early = self._push(store, self._next, empty=False, hyper=store.optimizer.hyper(keys))
        self.gradients.finish_writing()
        index = self._node.inbox.model.index
        with exits():
            self._exchange.send_tensors(replace(self._early, present=frozenset(index[key] for key in ready)))

    def lacks(self, exchanges: int) -> bool:
        """Return whether fewer than so many exchanges of the step have been made."""
        return not self.again and self._next < exchanges

    def make_exchange(self, keys: frozenset[Key], store: PushedStore | None, empty: bool = False) -> None:
        """Make the step's next exchange.

        Args:
            keys: that are pushed, all of `store`; none: the exchange is only taken part in.
            store: the key store of the keys.
            empty: this worker has no samples in the step.

        Raises:
            ConfigurationError: the step has had as many exchanges as the rehearsal.
        """
        number, where = self._next, self.data_position
        self._next += 1
        if where is not None and number >= where.spec.exchanges:
            raise ConfigurationError(
                f"this step makes more than the {where.spec.exchanges} exchanges of the rehearsal: {PUSH_AS_REHEARSED}"
            )
        if where is not None and number < where.done:  # made before the step was begun again
            self.gradients.not_sent()
            if store:
                store.write_back(keys)
            return
        early, self._early = self._early, None
        hyper = store.optimizer.hyper(keys) if store and early is None else None
        push = replace(
            early or self._push(store, number, empty, hyper),
            present=self._present(keys, store) if store else frozenset(),
            late_hyper=partial(store.optimizer.hyper, keys) if store and store.optimizer.spec is not None else None,
        )
        boundary = where is None or number == where.spec.exchanges - 1
        with exits():
            if not self._exchange.run(push, boundary):
                self.again = True
                self.gradients.step_again()
                return
        self.gradients.step_done()
        self.exchanged = True
        if store:
            if self._node.norm.decided.of(self._node.version - 1) == SKIPPED:
                store.optimizer.skipped()
            else:
                store.optimizer.updated(keys)
            store.write_back(keys)
        if boundary:
            self._node.progress.stepped(self._node.version, 0 if empty else push.samples)
            self._core_share.stepped()

    def _present(self, keys: frozenset[Key], store: PushedStore) -> frozenset[int]:
        """Return the tensors of `keys` and the auxiliary ones, whose values are pushed as they are now."""
        model = self._node.inbox.model
        present = {model.index[key] for key in keys}
        for key, array in store.auxiliary():
            present.add(model.index[key])
            array.settle([array], to_write=False)
            self.gradients.write_gradient(model.index[key], [array])
        self.gradients.finish_writing()
        return frozenset(present)

    def _push(self, store: PushedStore | None, number: int, empty: bool, hyper: Hyper | None) -> Push:
        """Return what the step's exchange `number` contributes, of no tensors yet.

        Args:
            store: whose keys are pushed.
            number: of the exchange.
            empty: this worker has no samples in the step.
            hyper: the optimizer's values.
        """
        own = None if self._node.is_sync else (self._node.session.node, 0)
        part = self.part or StepPart(batch=own)  # a static script's step
        return Push(
            parts=self.gradients.parts,
            rows=self.gradients.rows,
            present=frozenset(),
            samples=len(part.positions),
            slice=part.slice(number),
            roster=part.roster,
            hyper=hyper,
            empty=empty,
            batch=part.number(number),
            compression=store.compression if store else None,
            skip_overflow=store.skip_overflow if store else False,
            may_be_made=self.may_be_made,
        )
