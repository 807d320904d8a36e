"""The step under way: this worker's part of the data, and the exchanges that the step makes."""

from collections.abc import Iterable
from dataclasses import replace

from elastic_ps.core.errors import ConfigurationError
from elastic_ps.data.data_position import Course, Part
from elastic_ps.worker.script.key_store import Store
from elastic_ps.worker.script.process_ending import exits
from elastic_ps.worker.script.staging import Key
from elastic_ps.worker.wire.core_share import Pace
from elastic_ps.worker.wire.exchange import Exchange, Push
from elastic_ps.worker.wire.gradients import Gradients
from elastic_ps.worker.wire.worker_node import WorkerNode


class Step:
    """See the module. Used by the script's thread.

    Args:
        node: this worker.
        pace: told of every step.

    Attributes:
        part: of the data; None: no step of an elastic job is under way.
        again: it must be yielded again: other workers share it now.
        exchanged: this process has made an exchange.
        course: of an elastic job, from its rehearsal on; None: the script draws its own batches.
        gradients: of the open exchange.
    """

    def __init__(self, node: WorkerNode, pace: Pace):
        self.part: Part | None = None
        self.course: Course | None = None
        self.again = False
        self.exchanged = False
        self.gradients = Gradients(node)
        self._node = node
        self._pace = pace
        self._exchange = Exchange(node)
        self._position = 0  # of the next exchange
        self._ahead: Push | None = None  # of the next exchange, of which some has been sent

    def begin(self, part: Part | None) -> None:
        """The step of `part` is under way."""
        self.part = part
        self._position = 0

    def end(self) -> None:
        """No step is under way."""
        self.part = None
        self.again = False

    def abandon(self) -> None:
        """The next exchange has other gradients than what was sent ahead."""
        if self._ahead is not None:
            self._ahead = None
            self._exchange.forget_ahead()
            self.gradients.step_again()

    def send_ahead(self, keys: frozenset[Key], ready: Iterable[Key], store: Store) -> None:
        """Send some gradients of the next exchange, which is over `keys`; `run` sends the rest.

        Args:
            keys: all that it pushes.
            ready: those that are written.
            store: of the keys.
        """
        course = self.course
        if course is not None and not course.done <= self._position < course.spec.exchanges:
            return
        if self._ahead is None:
            self._ahead = self._push(keys, store, self._position, empty=False)
        self.gradients.copy()
        index = self._node.inbox.model.index
        with exits():
            self._exchange.send_ahead(replace(self._ahead, present=frozenset(index[key] for key in ready)))

    def lacks(self, exchanges: int) -> bool:
        """Whether not all of the step's exchanges have been made."""
        return not self.again and self._position < exchanges

    def run(self, keys: frozenset[Key], store: Store | None, empty: bool = False) -> None:
        """One exchange, the step's next.

        Args:
            keys: that are pushed, all of `store`; none: the exchange is only taken part in.
            store: of the keys.
            empty: this worker has no samples in the step.
        """
        position, course = self._position, self.course
        self._position += 1
        if course is not None and position >= course.spec.exchanges:
            raise ConfigurationError(
                f"this step makes more than the {course.spec.exchanges} kvstore exchanges of the rehearsal: push the "
                "same keys in the same order in every step"
            )
        if course is not None and position < course.done:  # made before the step was begun again
            if store:
                store.write_back(keys)
            return
        push, self._ahead = self._ahead or self._push(keys, store, position, empty), None
        boundary = course is None or position == course.spec.exchanges - 1
        with exits():
            if not self._exchange.run(push, boundary):
                self.again = True
                self.gradients.step_again()
                return
        self.gradients.step_done()
        self.exchanged = True
        if store:
            store.optimizer.updated(keys)
            store.write_back(keys)
        if boundary:
            self._node.progress.stepped(self._node.version, 0 if empty else push.samples)
            self._pace.stepped()

    def _push(self, keys: frozenset[Key], store: Store | None, position: int, empty: bool) -> Push:
        model = self._node.inbox.model
        present = {model.index[key] for key in keys}
        if store:
            for key, array in store.auxiliary():
                present.add(model.index[key])
                array.settle([array], to_write=False)
                self.gradients.write(model.index[key], [array])
            self.gradients.copy()
        own = None if self._node.is_sync else (self._node.session.node, 0)
        part = self.part or Part(batch=own)  # a static script's step
        return Push(
            parts=self.gradients.parts,
            rows=self.gradients.rows,
            present=frozenset(present),
            samples=len(part.positions),
            slice=part.slice(position),
            roster=part.roster,
            hyper=store.optimizer.hyper(keys) if store else None,
            empty=empty,
            batch=part.number(position),
            compression=store.compression if store else None,
        )
