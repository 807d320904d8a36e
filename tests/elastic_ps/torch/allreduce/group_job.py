"""Whole jobs without servers in this process: the coordinator's own core, workers as threads, gloo on the loopback.

What is left out is processes, gRPC and the launcher. A worker dies where its script's thread raises `Killed`: its
connections close, and the coordinator hears of it as from a launcher.
"""

import queue
import threading
import time
from contextlib import suppress

import torch

from coordinator.core import effects as ef
from coordinator.core import events as ev
from coordinator.core.job import DurableJob
from coordinator.core.plans.scale_goal import ScaleGoal
from coordinator.core.protocol import step
from coordinator.core.state import CoordinatorSettings, State
from coordinator.ctl.exactly_once_audit import audit
from coordinator.server import checkpoint_choice, checkpoint_storage
from coordinator.server.wire import answer_from_pb, directive_to_pb, reply_to_pb
from elastic_ps.control import codec
from elastic_ps.core.configuration import NO_CONFIGURATION, Role
from elastic_ps.core.data_order import DataSpec, indices, permutation
from elastic_ps.core.errors import ConfigurationError, Refused
from elastic_ps.core.optimizer import Hyper
from elastic_ps.torch.allreduce.group import Rendezvous
from elastic_ps.torch.allreduce.job import AllReduceJob
from elastic_ps.torch.allreduce.node import GroupNode
from elastic_ps.torch.allreduce.optimizer import spec_of
from elastic_ps.torch.allreduce.replica import Replica
from elastic_ps.torch.arrays import ModelArray
from protos import elastic_pb2 as pb

TOKEN = b"t" * 16
SEED, SAMPLES, BATCH, INPUTS = 7, 53, 8, 5
SPEC = DataSpec(True, SAMPLES, BATCH, "short", "mean")
WAIT = 280.0
EARLY = 2  # keys from here on have their gradients before others do
CHIEF = 3  # seed of the first worker's model: its first values are the job's


class Killed(BaseException):
    """The worker's process has been killed here."""


def data():
    random = torch.Generator().manual_seed(5)
    inputs = torch.randn(SAMPLES, INPUTS, generator=random, dtype=torch.float64)
    return inputs, torch.sin(inputs.sum(dim=1, keepdim=True))


def network(seed=CHIEF):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(INPUTS, 7), torch.nn.Tanh(), torch.nn.Linear(7, 1)).double()


def adam(model):
    return torch.optim.AdamW(model.parameters(), lr=0.01)


def loss_of(model, chosen):
    inputs, targets = data()
    return torch.nn.functional.mse_loss(model(inputs[chosen]), targets[chosen])


def trained_alone(epochs, make=adam):
    """Return the weights after training in plain PyTorch, in one process."""
    model = network()
    optimizer = make(model)
    for epoch in range(epochs):
        order = permutation(SEED, epoch, SAMPLES)
        for low in range(0, SAMPLES, BATCH):
            optimizer.zero_grad()
            loss_of(model, torch.from_numpy(indices(order, range(low, min(low + BATCH, SAMPLES))))).backward()
            optimizer.step()
    return model.state_dict()


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
                nbytes = checkpoint_storage.write(effect.url, effect.manifest)
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
        self.closed = threading.Event()

    def register(self):
        name = object()
        reply = self.coordinator.ask(
            lambda to: ev.Joined(time.time(), to, Role.WORKER, "127.0.0.1", self.port, 1, f"nonce-{id(name)}-{to}")
        )
        self.node = reply.node
        return pb.RegisterReply(node=reply.node, lease_seconds=10, block_bytes=4 << 20, seed=SEED)

    def run(self, handler):
        self.handler = handler
        self.coordinator.listen(self.node, handler.on_directive)
        threading.Thread(target=self._report, daemon=True).start()

    def _report(self):
        """Report from time to time, as a session does: where a directive was sent twice, a plan waits for it."""
        while not self.closed.wait(0.5):
            self.report_soon()

    def acknowledge(self, answer, number=NO_CONFIGURATION, version=0, suspension_ms=0.0, detail=""):
        request = pb.AcknowledgeRequest(
            caller=pb.Caller(node=self.node),
            answer=answer,
            configuration=codec.config_id_to_pb(number),
            version=version,
            suspension_ms=suspension_ms,
            detail=detail,
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
                )
            )
        self.handler.reported(pb.ReportReply(ledger_kept=kept), request)

    def abandon(self):
        pass

    def flush(self):
        return True

    def closes_within(self, seconds):
        return self.closed.wait(seconds)

    def close(self):
        self.closed.set()


class Worker:
    """A worker whose script runs in a thread.

    Args:
        coordinator: of its job.
        epochs: that the script trains.
        make: makes its optimizer.
        at: called with this worker and a word where the script comes by; it may raise `Killed`.
        seed: of its model's first values.
    """

    def __init__(self, coordinator, epochs, make=adam, at=lambda worker, where: None, seed=CHIEF + 1):
        self.coordinator = coordinator
        self.epochs = epochs
        self.at = at
        self.model = network(seed)
        self.optimizer = make(self.model)
        rendezvous = Rendezvous("127.0.0.1", TOKEN)
        self.session = DirectSession(coordinator, rendezvous.port)
        self.node = GroupNode(self.session, rendezvous)
        self.job = AllReduceJob(self.node)
        self.error = None
        self.leaves_out = None  # the step of this version, without a push
        self.begun_early = 0  # steps, before all gradients were there
        self.parts = []  # (version, epoch, positions) of each step that was computed
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self):
        self.node.start()
        self._thread.start()
        return self

    @property
    def id(self):
        return self.session.node

    def wait(self):
        self._thread.join(WAIT)
        assert not self._thread.is_alive(), f"{self.id} does not end"
        if self.error is not None:
            raise self.error

    def _run(self):
        try:
            self._train()
        except Killed:
            self._die()
        except SystemExit as end:
            self.status = end.code
            self.node.close(False)
            self.coordinator.post(ev.Exited(time.time(), "", self.id, end.code))
        except BaseException as error:  # noqa: BLE001  # the test's own thread raises it
            self.error = error
            self._die()

    def _die(self):
        self.session.closed.set()
        self.coordinator.forget(self.id)
        self.node.end(Refused("killed"))
        self.node.feeds.close()
        self.node.close_groups()
        self.coordinator.post(ev.Exited(time.time(), "", self.id, -9))

    def _train(self):
        job, node, keys = self.job, self.node, [name for name, _ in self.model.named_parameters()]
        node.wait(lambda: node.is_member or node.is_shadow)
        arrays = [ModelArray(self.model[int(key[0])], key[2:]) for key in keys]
        store = job.open_store(
            lambda store: Replica(self.optimizer, list(self.model.parameters()), store.arrays, ()), lambda: None
        )
        names = {parameter: f"s:{name}" for name, parameter in self.model.named_parameters()}
        known = list(names.values())
        store.set_optimizer(spec_of(self.optimizer, names), lambda _: Hyper())
        store.broadcast(known, arrays, [])
        job.rehearse(SPEC)
        store.pushpull(keys, [], [])
        job.perform()
        self.at(self, "member")
        while (epoch := job.epoch) < self.epochs:
            order = permutation(node.seed, epoch, SAMPLES)
            while (part := job.begin_step(epoch)) is not None:
                self.at(self, "begun")
                if self.leaves_out == node.held:
                    job.end_step(part)
                    continue
                if not len(part.positions):
                    job.skip_step()
                    continue
                self.optimizer.zero_grad()
                loss_of(self.model, torch.from_numpy(indices(order, part.positions))).backward()
                self.parts.append((node.held, epoch, part.positions))
                self.begun_early += store.push_early(known, known[EARLY:], [])
                self.at(self, "computed")
                store.pushpull(keys, [], [])
                self.at(self, "stepped")
                job.end_step(part)
        job.leave(True)
        self.coordinator.post(ev.Exited(time.time(), "", self.id, 0))


def started(count, epochs, make=adam, at=lambda worker, where: None):
    """Start a job; return its coordinator and workers."""
    coordinator = Coordinator(count)
    return coordinator, [Worker(coordinator, epochs, make, at, CHIEF + rank).start() for rank in range(count)]


def entries_of(coordinator):
    """Return the ledger as an audit reads it."""
    found = []
    for (name, _), entry in coordinator.ledger.items():
        found.append(pb.LedgerEntry())
        found[-1].CopyFrom(entry)
        found[-1].server = name
        runs = tuple(zip(entry.runs[::2], entry.runs[1::2], strict=True))
        voids = coordinator.state.job.voids
        found[-1].voided = not all(void.kept(entry.term, entry.version, runs) for void in voids)
    return found


def finished(coordinator, workers, epochs):
    """Wait for the end; prove that all weights are one process's, and that every sample was used once."""
    for worker in workers:
        worker.wait()
    coordinator.close()
    expected = trained_alone(epochs)
    first = workers[0].model.state_dict()
    for worker in workers:
        for name, values in worker.model.state_dict().items():
            assert torch.equal(values, first[name]), (worker.id, name)
            torch.testing.assert_close(values, expected[name], rtol=1e-9, atol=1e-12)
    proof = audit(entries_of(coordinator), SAMPLES, BATCH, epochs)
    assert proof.exactly_once, proof.problems
