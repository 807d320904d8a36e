"""The runtime is the only loop, and the only owner of the state: events go in, effects come out, in order."""

import asyncio
import itertools
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from coordinator.core import effects as ef
from coordinator.core import events as ev
from coordinator.core.protocol import step
from coordinator.core.replies import CallerReply
from coordinator.core.state import State
from coordinator.server import checkpoint_choice, checkpoint_storage
from coordinator.server.bounded_streams import BoundedStream
from coordinator.server.journal import JobFolderUnwritable, Journal
from coordinator.server.wire import directive_to_pb, wanted_to_pb
from elastic_ps.core.configuration import NodeId
from elastic_ps.core.errors import CheckpointError, StorageError
from elastic_ps.system.steady_clock import steady
from protos import elastic_pb2 as pb

log = logging.getLogger(__name__)

TICK_SECONDS = 0.2

_LATE_SECONDS = 2 * TICK_SECONDS
"""If the last tick is older, one comes before the next event: asyncio's timers stand still while the machine sleeps."""


class RefusedError(Exception):
    """The core refuses a caller."""

    def __init__(self, why: ef.Why, text: str):
        super().__init__(text)
        self.why = why
        self.text = text


class Runtime:
    """A runtime runs `protocol.step`. All of it happens on one event loop; a step is never interrupted.

    Args:
        state: from the journal, or new.
        journal: of the job.
        clock: unix seconds that never go back, and go on while the machine sleeps.

    Attributes:
        state: as it is now.
        trouble: what the core could not take last, for people; "": it could take everything.
        failed: set when the process has to end.
    """

    def __init__(self, state: State, journal: Journal, clock: Callable[[], float] | None = None):
        self.state = state
        self.trouble = ""
        self._journal = journal
        began, zero = time.time(), steady()
        self.now = clock or (lambda: began + steady() - zero)
        self._callers: dict[int, asyncio.Future[CallerReply]] = {}
        self._numbers = itertools.count(1)
        self._streams: dict[NodeId, BoundedStream] = {}
        self._launchers: set[BoundedStream] = set()
        self._ticker: asyncio.Task[None] | None = None
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def start(self, term: int = 0) -> None:
        """Begin: a new term, at least `term`, is journalled before anything is answered."""
        self.post(ev.Started(self.now(), term))
        self._ticker = asyncio.create_task(self._tick(), name="coordinator-tick")

    async def close(self) -> None:
        """End the streams and the loop; the journal has everything already."""
        for stream in [*self._streams.values(), *self._launchers]:
            stream.end()
        for caller in self._callers.values():
            caller.cancel()
        if self._ticker is not None:
            self._ticker.cancel()
            await asyncio.gather(self._ticker, return_exceptions=True)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self.post(ev.Tick(self.now()))

    def post(self, event: ev.JobEvent, refusable: bool = False) -> None:
        """Take one event in. A failure of core or journal ends the process: a restart is safe, a guess is not.

        Args:
            event: that has happened.
            refusable: who tells it hears a no. Where the core cannot take such an event, which is a bug, it is refused
                and all stays as it was: one request ends neither the coordinator nor, again and again, the next one.

        Raises:
            RefusedError: the process ends, or the event is refused.
            JobFolderUnwritable: the process ends, as the journal cannot be written.
        """
        if event.now - self.state.ticked_at > _LATE_SECONDS and not isinstance(event, ev.Started | ev.Tick):
            self.post(ev.Tick(event.now))  # it did not run: first what ends by time is put off
        if self.failed.done():
            raise RefusedError(ef.Why.AGAIN, "the coordinator is failing")
        try:
            state, effects = step(self.state, event)
        except Exception as error:
            text = self._broken(event, error)
            if refusable:
                raise RefusedError(ef.Why.BROKEN, text) from error
            self.fail(error)
            raise RefusedError(ef.Why.AGAIN, text) from error
        self.state = state
        try:
            for effect in effects:
                _ACTS[type(effect)](self, effect)
        except JobFolderUnwritable as error:
            self.fail(error)
            raise
        except Exception as error:
            self.fail(error)
            raise RefusedError(ef.Why.AGAIN, self._broken(event, error)) from error

    def _broken(self, event: ev.JobEvent, error: Exception) -> str:
        """Tell people of a bug; return it in words."""
        log.exception("a bug of the coordinator: it failed on %s", type(event).__name__)
        self.trouble = f"a bug of the coordinator: it failed on {type(event).__name__} with {error!r}; see its log"
        return self.trouble

    def fail(self, error: Exception) -> None:
        """End the process."""
        if not self.failed.done():
            self.failed.set_exception(error)
            self.failed.exception()  # it has been told, also where nobody waits for it yet

    async def ask(self, make: Callable[[int], ev.JobEvent]) -> CallerReply:
        """Post an event whose answer somebody waits for; `make` gets the number that the answer comes under.

        Raises:
            RefusedError: the core's no.
        """
        number = next(self._numbers)
        answer: asyncio.Future[CallerReply] = asyncio.get_running_loop().create_future()
        self._callers[number] = answer
        try:
            self.post(make(number), refusable=True)
            return await answer
        finally:
            del self._callers[number]
            if answer.cancelled() and not self.failed.done():
                self.post(ev.Withdrawn(self.now(), number))

    def listen(self, node: NodeId) -> BoundedStream:
        """Open a node's control stream; an older one ends."""
        self.unlisten(node, self._streams.get(node))
        stream = BoundedStream()
        self._streams[node] = stream
        return stream

    def unlisten(self, node: NodeId, stream: BoundedStream | None) -> None:
        """End a node's control stream."""
        if stream is not None and self._streams.get(node) is stream:
            del self._streams[node]
            stream.end()

    def attach(self, current: "pb.Wanted") -> BoundedStream:
        """Open a launcher's stream, which begins with what is wanted now.

        Raises:
            RefusedError: the process ends.
            JobFolderUnwritable: likewise, as the journal cannot be written.
        """
        stream = BoundedStream(latest=True)
        stream.put(current)
        self._launchers.add(stream)
        self.post(ev.Attached(self.now(), 1))
        return stream

    def detach(self, stream: BoundedStream) -> None:
        """Forget a launcher that is gone; where the journal cannot be written the process ends, and needs no note."""
        self._launchers.discard(stream)
        if not self.failed.done():
            with suppress(RefusedError, JobFolderUnwritable):
                self.post(ev.Attached(self.now(), -1))

    # ---- effects -----------------------------------------------------------------------------------------------------

    def _write(self, effect: ef.WriteJournal) -> None:
        self._journal.write(effect.job, effect.plans, effect.book)

    def _send(self, effect: ef.Send) -> None:
        if (stream := self._streams.get(effect.node)) is not None:
            stream.put(directive_to_pb(effect.directive, self.state.job.term, effect.plan))

    def _reply(self, effect: ef.Reply) -> None:
        caller = self._callers.get(effect.to)
        if caller is not None and not caller.done():
            caller.set_result(effect.reply)

    def _refuse(self, effect: ef.Refuse) -> None:
        caller = self._callers.get(effect.to)
        if caller is not None and not caller.done():
            caller.set_exception(RefusedError(effect.why, effect.text))

    def _announce(self, effect: ef.Announce) -> None:
        message = wanted_to_pb(effect.wanted)
        for stream in self._launchers:
            stream.put(message)

    def _log(self, effect: ef.Log) -> None:
        log.log(logging.WARNING if effect.warning else logging.INFO, "%s", effect.text)

    def _write_manifest(self, effect: ef.WriteManifest) -> None:
        def work() -> ev.JobEvent:
            try:
                nbytes = checkpoint_storage.write(effect.url, effect.manifest, effect.damaged)
                return ev.ManifestWritten(self.now(), effect.url, nbytes)
            except CheckpointError as error:
                return ev.ManifestWritten(self.now(), effect.url, error=str(error))

        self._spawn(work, "write-manifest")

    def _discard_checkpoint(self, effect: ef.DiscardCheckpoint) -> None:
        def work() -> None:
            checkpoint_storage.discard(effect.url)

        self._spawn(work, "discard-checkpoint")

    def _find_checkpoint(self, effect: ef.FindCheckpoint) -> None:
        def work() -> ev.JobEvent:
            search = effect.search
            try:
                url, manifest = checkpoint_choice.find(search, effect.patient)
                return ev.CheckpointFound(self.now(), url, manifest, search=search)
            except CheckpointError as error:
                return ev.CheckpointFound(self.now(), error=str(error), search=search)
            except StorageError as error:
                return ev.CheckpointFound(self.now(), error=str(error), again=True, search=search)

        self._spawn(work, "find-checkpoint")

    def _spawn(self, work: Callable[[], ev.JobEvent | None], name: str) -> None:
        """Do slow I/O in a thread of its own, which comes back as an event; None: nobody waits for it.

        A storage may hang for ever: neither other work nor the end of the process waits for that thread.
        """
        loop = asyncio.get_running_loop()

        def run() -> None:
            event = work()
            if event is not None:
                with suppress(RuntimeError):  # the loop has ended, and nobody is left to hear it
                    loop.call_soon_threadsafe(self._come_back, event)

        threading.Thread(target=run, name=name, daemon=True).start()

    def _come_back(self, event: ev.JobEvent) -> None:
        ended = self.failed.done() or (self._ticker is not None and self._ticker.done())
        if not ended:
            self.post(event)


_ACTS: dict[type, Callable[[Runtime, Any], None]] = {
    ef.WriteJournal: Runtime._write,
    ef.Send: Runtime._send,
    ef.Reply: Runtime._reply,
    ef.Refuse: Runtime._refuse,
    ef.Announce: Runtime._announce,
    ef.Log: Runtime._log,
    ef.WriteManifest: Runtime._write_manifest,
    ef.DiscardCheckpoint: Runtime._discard_checkpoint,
    ef.FindCheckpoint: Runtime._find_checkpoint,
}
