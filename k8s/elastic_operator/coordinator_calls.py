"""This module asks one job's coordinator for other counts, an end, a checkpoint, and keeps what has become of each."""

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from coordinator.client import ClientError, CoordinatorClient, RequestRefused
from k8s.elastic_operator.job import actions as act
from k8s.elastic_operator.job.ending import RETRY_SECONDS
from k8s.elastic_operator.job.model import Counts
from k8s.elastic_operator.job.reconciliation import CheckpointSaving

log = logging.getLogger(__name__)

_REFUSED_SECONDS = 30.0
_AWAY_SECONDS = 1.0


class CoordinatorRequests:
    """A `CoordinatorRequests` asks one job's coordinator, and keeps what has become of it.

    Args:
        name: of the job.
        wake: called when there is something new, or will be, in so many seconds.
    """

    def __init__(self, name: str, wake: Callable[[float], None]):
        self._name, self._wake = name, wake
        self._refused: tuple[Counts, str, float] | None = None
        self._saving: tuple[CheckpointSaving, float] | None = None
        self._saver: asyncio.Task[None] | None = None

    @property
    def refused(self) -> tuple[Counts, str] | None:
        """Return the numbers that it would not take a moment ago, and why."""
        if self._refused is not None and time.monotonic() > self._refused[2]:
            self._refused = None
        return self._refused[:2] if self._refused is not None else None

    @property
    def saving(self) -> CheckpointSaving | None:
        """Return the checkpoint that was asked for, if any."""
        return self._saving[0] if self._saving is not None else None

    async def ask(self, client: CoordinatorClient, action: act.Action) -> None:
        """Pass an action on to the coordinator."""
        try:
            match action:
                case act.RequestScale():
                    workers, servers = action.counts.workers, action.counts.servers or None  # None: it never has any
                    await asyncio.to_thread(partial(client.scale, workers, servers, cause=action.cause))
                case act.StopJob():
                    await asyncio.to_thread(partial(client.stop, now=True, reason=action.reason))
                case act.TellExit():
                    await asyncio.to_thread(client.node_exited, action.nonce, action.node, action.status)
        except RequestRefused as error:
            if isinstance(action, act.RequestScale):
                self._refused = (action.counts, str(error), time.monotonic() + _REFUSED_SECONDS)
                self._wake(0.0)
            self._note(action, error)
        except ClientError as error:
            self._note(action, error)
            self._wake(_AWAY_SECONDS)

    def _note(self, action: act.Action, error: ClientError) -> None:
        log.warning("%s: %s: %s", self._name, action, error, extra={"job": self._name})

    def save(self, client: CoordinatorClient, term: int) -> None:
        """Ask for a checkpoint, unless a coordinator of this term was asked already."""
        if self._saving is None or self._saving[0].term < term:
            self.close()  # one that is gone is not waited for
            self._saving = (CheckpointSaving(term), time.monotonic())
            self._saver = asyncio.create_task(self._write_checkpoint(client, term), name=f"save-{self._name}")

    async def _write_checkpoint(self, client: CoordinatorClient, term: int) -> None:
        pool = ThreadPoolExecutor(1, f"save-{self._name}")  # it takes minutes: no other job waits for a thread
        try:
            reply = await asyncio.get_running_loop().run_in_executor(pool, client.checkpoint)
            saving = CheckpointSaving(term, url=reply.url)
        except ClientError as error:
            saving = CheckpointSaving(term, error=str(error))
        except Exception as error:  # no thread to be had, a channel that was just closed: nobody else would hear of it
            log.exception("%s: no checkpoint could be asked for", self._name, extra={"job": self._name})
            saving = CheckpointSaving(term, error=f"the operator failed: {error}")
        finally:
            pool.shutdown(wait=False)  # nor does a thread of each job that was ever saved stay
        self._saving = (saving, time.monotonic())
        self._wake(0.0)

    def forget_saving(self) -> None:
        """Forget a checkpoint that nobody waits for any more.

        One that could not be written is not tried again at once.
        """
        if self._saving is not None and not self._saving[0].under_way:
            saving, ended = self._saving
            if saving.url or time.monotonic() - ended > RETRY_SECONDS:
                self._saving = None

    def close(self) -> None:
        """Wait for nothing any more."""
        if self._saver is not None:
            self._saver.cancel()
