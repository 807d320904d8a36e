"""A `MemberState` is what a worker of any kind of job knows of its membership, under one lock."""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from elastic_ps.core.configuration import Configuration, NodeId
from elastic_ps.core.data_order import DataSpec
from elastic_ps.core.errors import ElasticError, JobEnded, Refused
from elastic_ps.node.session import Session
from elastic_ps.node.standing import Standing
from elastic_ps.worker.wire.progress import WorkerProgress

Reply = TypeVar("Reply")

Lacking = Callable[[], dict[NodeId, str]]
"""Tells what the script's thread lacks, by peer, for people."""


class MemberState:
    """A `MemberState` has a worker's configurations, and lets its script's thread wait for them.

    Everything is guarded by `changed`, which is notified when anything changes.

    Args:
        session: with the coordinator.

    Attributes:
        progress: what is told of speed and metrics.
        seed: of the job's data order.
        generation: grows with every switch and every connection: what waits for an answer must ask again.
        data: what the job trains on; None until the coordinator has said it.
        founders: workers of the job when this one came.
        lacking: what the script's thread waits for now.
        inherited: the job had parameters when this worker came: it has gone on, or was restored.
    """

    def __init__(self, session: Session):
        self.session = session
        self.progress = WorkerProgress()
        self.seed = 0
        self.changed = threading.Condition()
        self.standing = Standing(session.node)
        self.generation = 0
        self.data: DataSpec | None = None
        self.founders = 0
        self.inherited = False
        self.lacking: Lacking = dict
        self._ended: ElasticError | None = None

    def wait(self, ready: Callable[[], Any], lacking: Lacking = dict) -> None:
        """Wait until `ready()`, which is called under the lock; so is `lacking`, which tells what is lacking from whom.

        Raises:
            JobEnded: the job stopped, failed or restarts, or this worker has left it.
        """
        with self.changed:
            self.lacking = lacking
            try:
                self.changed.wait_for(lambda: self._ended is not None or ready())
            finally:
                self.lacking = dict
            self.check()

    def ask_coordinator(self, request: Callable[[], Reply]) -> Reply:
        """Wait for what the coordinator answers to `request`; where that is no more than its end, see `wait`."""
        try:
            return request()
        except Refused:
            self.wait(lambda: False)  # until the Stop that ends this process has come
            raise
        except JobEnded:
            with self.changed:
                self.check()  # what ended it says more
            raise

    def give_up_place(self) -> None:
        """Ask the coordinator to want one worker fewer, before this one ends: another would end likewise."""
        with suppress(ElasticError):  # then it is a death as any other
            self.session.leave()

    def check(self) -> None:
        """Raise what ended this worker's part in the job. Call under the lock."""
        if self._ended is not None:
            raise self._ended

    @property
    def ended(self) -> ElasticError | None:
        """Return what ended this worker's part in the job."""
        return self._ended

    def end(self, reason: ElasticError) -> None:
        """End this worker's part in the job; the first reason counts."""
        with self.changed:
            if self._ended is None:
                self._ended = reason
            self.changed.notify_all()
        self.session.abandon()

    @property
    def is_member(self) -> bool:
        """Return whether this worker is in the roster in force."""
        return self.standing.is_member

    @property
    def is_shadow(self) -> bool:
        """Return whether this worker joins the running job by a plan that is under way."""
        return not self.is_member and self.standing.prepared is not None and self.standing.current is not None

    @property
    def is_chief(self) -> bool:
        """Return whether this worker evaluates schedules, saves and prints."""
        return self.is_member and self.configuration.chief == self.session.node

    @property
    def is_sync(self) -> bool:
        """Return whether all workers share each step, as far as is known."""
        return self.data is None or self.data.is_sync

    @property
    def configuration(self) -> Configuration:
        """The configuration in force."""
        assert self.standing.current is not None
        return self.standing.current

    @property
    def version(self) -> int:
        """The version of the parameters that this worker holds."""
        raise NotImplementedError

    def trained(self) -> int:
        """See `Handler`."""
        with self.changed:
            return self.version
