"""The coordinator of whole jobs in this process: its own core, whose effects go to workers without gRPC."""

import queue
import threading
import time
from contextlib import suppress

from coordinator.core import effects as ef
from coordinator.core import events as ev
from coordinator.core.job import DurableJob
from coordinator.core.plans.scale_goal import ScaleGoal
from coordinator.core.protocol import step
from coordinator.core.state import CoordinatorSettings, State
from coordinator.server import checkpoint_choice, checkpoint_storage
from coordinator.server.wire import answer_from_pb, directive_to_pb, reply_to_pb
from elastic_ps.control import codec
from elastic_ps.core.configuration import NO_CONFIGURATION, Role
from elastic_ps.core.errors import ConfigurationError, Refused
from protos import elastic_pb2 as pb

SEED = 7
"""Of the job's data."""

WAIT = 280.0
"""Seconds after which whoever is waited for does not come."""


class Coordinator:
    """The core of a coordinator, whose effects go to the workers of this process."""

    def __init__(self, workers, checkpoint=""):
        settings = CoordinatorSettings(settle=0.0, join_timeout=WAIT, checkpoint=checkpoint)
        self.state = State(settings, DurableJob(ScaleGoal(workers, 0), "job", SEED))
        self.ledger = {}  # by name and number, as the coordinator's file keeps entries
        self.changed = threading.Condition(threading.RLock())
        self._inboxes = {}
        self._answers = {}
        self.post(ev.Started(time.time()))
        self._over = threading.Event()
        threading.Thread(target=self._tick, daemon=True).start()

    def _tick(self):
        while not self._over.wait(0.02):
            self.post(ev.Tick(time.time()))

    def close(self):
        self._over.set()

    def post(self, event):
        with self.changed:
            self.state, effects = step(self.state, event)
            for effect in effects:
                if isinstance(effect, ef.Send) and effect.node in self._inboxes:
                    self._inboxes[effect.node].put(directive_to_pb(effect.directive, self.state.job.term, effect.plan))
                elif isinstance(effect, ef.Reply | ef.Refuse) and effect.to in self._answers:
                    self._answers[effect.to].put(effect)
            self.changed.notify_all()
        for effect in effects:
            if isinstance(effect, ef.WriteManifest):
                nbytes = checkpoint_storage.write(effect.url, effect.manifest, effect.damaged)
                self.post(ev.ManifestWritten(time.time(), effect.url, nbytes))
            elif isinstance(effect, ef.FindCheckpoint):
                self.post(ev.CheckpointFound(time.time(), *checkpoint_choice.find(effect.search)))

    def ask(self, make):
        answers = queue.Queue()
        with self.changed:
            number = len(self._answers) + 1
            self._answers[number] = answers
            self.post(make(number))
        found = answers.get(timeout=WAIT)
        if isinstance(found, ef.Refuse):
            raise Refused(found.text) if found.why is ef.Why.ENDING else ConfigurationError(found.text)
        return reply_to_pb(found.reply)

    def listen(self, node, direct):
        inbox = self._inboxes[node] = queue.Queue()

        def run():
            while (directive := inbox.get()) is not None:
                direct(directive)

        threading.Thread(target=run, name=f"directives-{node}", daemon=True).start()
        self.post(ev.Listening(time.time(), node))

    def forget(self, node):
        with self.changed:
            inbox = self._inboxes.pop(node)
        with suppress(queue.Empty):
            while True:
                inbox.get_nowait()
        inbox.put(None)

    def store(self, request):
        for number, entry in enumerate(request.ledger, request.ledger_sequence):
            known = self.ledger.setdefault((request.ledger_of, number), entry)
            assert known == entry, "an entry that was settled is another one now"
        return max((number + 1 for name, number in self.ledger if name == request.ledger_of), default=0)

    def until(self, ready):
        with self.changed:
            assert self.changed.wait_for(lambda: ready(self.state), WAIT), self.state.job.plan

    def workers(self):
        configuration = self.state.job.configuration
        return [worker.id for worker in configuration.workers] if configuration else []

    def settled_on(self, count):
        """Wait until a plan is committed by which so many workers train."""
        self.until(lambda state: state.job.plan is None and len(self.workers()) == count)

    def checkpoint(self):
        """Have a checkpoint written; return its URL and version."""
        reply = self.ask(lambda to: ev.CheckpointAsked(time.time(), to, ""))
        return reply.url, reply.version

    def scale(self, workers):
        self.ask(lambda to: ev.ScaleAsked(time.time(), to, workers))


class DirectSession:
    """A session that needs no network: it calls the coordinator."""

    def __init__(self, coordinator, port):
        self.coordinator = coordinator
        self.port = port
        self.node = ""
        self.handler = None
        self.in_touch_seconds = float("inf")
        self.lease_seconds = 10.0
        self.closed = threading.Event()

    def register(self):
        name = object()
        reply = self.coordinator.ask(
            lambda to: ev.Joined(time.time(), to, Role.WORKER, "127.0.0.1", self.port, 1, f"nonce-{id(name)}-{to}")
        )
        self.node = reply.node
        return pb.RegisterReply(node=reply.node, lease_seconds=10, block_bytes=4 << 20, seed=SEED)

    def leave(self):
        self.coordinator.ask(lambda to: ev.LeaveAsked(time.time(), to, self.node, Role.WORKER))

    def run(self, handler):
        self.handler = handler
        self.coordinator.listen(self.node, handler.on_directive)
        threading.Thread(target=self._report, daemon=True).start()

    def _report(self):
        """Report from time to time, as a session does: where a directive was sent twice, a plan waits for it."""
        while not self.closed.wait(0.5):
            self.report_soon()

    def acknowledge(self, answer, number=NO_CONFIGURATION, version=0, suspension_ms=0.0, detail="", growth=0):
        request = pb.AcknowledgeRequest(
            caller=pb.Caller(node=self.node),
            answer=answer,
            configuration=codec.config_id_to_pb(number),
            version=version,
            suspension_ms=suspension_ms,
            detail=detail,
            growth=growth,
        )
        self._post(answer_from_pb(request, time.time()))

    def _post(self, event):
        with self.coordinator.changed:
            if not self.closed.is_set() and self.node in self.coordinator.state.job.nodes:
                self.coordinator.post(event)

    def declare(self, request):
        tensors = tuple(map(codec.tensor_from_pb, request.tensors))
        spec = codec.data_from_pb(request.data)
        return self.coordinator.ask(
            lambda to: ev.Declared(time.time(), to, self.node, tensors, optimizer=request.optimizer, data=spec)
        )

    def barrier(self, place, number, sharing, version):
        self.coordinator.ask(
            lambda to: ev.BarrierAsked(time.time(), to, self.node, (place, number), tuple(sharing), version)
        )

    def report_soon(self):
        request = self.handler.report()
        with self.coordinator.changed:
            if self.closed.is_set():
                return
            kept = self.coordinator.store(request)
            self._post(
                ev.Reported(
                    time.time(),
                    self.node,
                    request.version,
                    finished=request.finished,
                    exchanging=request.exchanging,
                    place=request.place,
                    group=(codec.config_id_from_pb(request.group), request.attempt),
                )
            )
            group, attempt = self.coordinator.state.failed_group
        reply = pb.ReportReply(ledger_kept=kept, group=codec.config_id_to_pb(group), attempt=attempt)
        self.handler.reported(reply, request)

    def abandon(self):
        pass

    def flush(self):
        return True

    def closes_within(self, seconds):
        return self.closed.wait(seconds)

    def close(self):
        self.closed.set()
