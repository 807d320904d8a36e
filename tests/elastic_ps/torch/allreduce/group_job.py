"""Whole jobs without servers in this process: the coordinator's own core, workers as threads, gloo on the loopback.

What is left out is processes, gRPC and the launcher. A worker dies where its script's thread raises `Killed`: its
connections close, and the coordinator hears of it as from a launcher.
"""

import threading
import time

import torch

from coordinator.core import events as ev
from coordinator.ctl.exactly_once_audit import audit
from elastic_ps.core.data_order import DataSpec, indices, permutation
from elastic_ps.core.errors import Refused
from elastic_ps.core.optimizer import Hyper
from elastic_ps.torch.allreduce.group import Rendezvous
from elastic_ps.torch.allreduce.job import AllReduceJob
from elastic_ps.torch.allreduce.node import GroupNode
from elastic_ps.torch.allreduce.optimizer import spec_of
from elastic_ps.torch.allreduce.replica.replica import Replica
from elastic_ps.torch.arrays import ModelArray
from protos import elastic_pb2 as pb
from tests.elastic_ps.torch.allreduce.played_coordinator import SEED, WAIT, Coordinator, DirectSession

TOKEN = b"t" * 16
SAMPLES, BATCH, INPUTS = 53, 8, 5
SPEC = DataSpec(True, SAMPLES, BATCH, "short", "mean")
EARLY = 2  # keys from here on have their gradients before others do
CHIEF = 3  # seed of the first worker's model: its first values are the job's


class Killed(BaseException):
    """The worker's process has been killed here."""


def data():
    random = torch.Generator().manual_seed(5)
    inputs = torch.randn(SAMPLES, INPUTS, generator=random, dtype=torch.float64)
    return inputs, torch.sin(inputs.sum(dim=1, keepdim=True))


class Counted(torch.nn.Module):
    """Its one buffer, a statistic, counts the batches, as those of batch norms do."""

    def __init__(self):
        super().__init__()
        self.register_buffer("batches", torch.tensor(0))

    def forward(self, inputs):
        self.batches += 1
        return inputs


def network(seed=CHIEF):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(INPUTS, 7), torch.nn.Tanh(), torch.nn.Linear(7, 1), Counted()).double()


def adam(model):
    return torch.optim.AdamW(model.parameters(), lr=0.01)


def loss_of(model, chosen):
    inputs, targets = data()
    return torch.nn.functional.mse_loss(model(inputs[chosen]), targets[chosen])


def trained_alone(epochs, make=adam, bound=None):
    """Return the weights after training in plain PyTorch, in one process; `bound`: of the gradients' norm."""
    model = network()
    optimizer = make(model)
    for epoch in range(epochs):
        order = permutation(SEED, epoch, SAMPLES)
        for low in range(0, SAMPLES, BATCH):
            optimizer.zero_grad()
            loss_of(model, torch.from_numpy(indices(order, range(low, min(low + BATCH, SAMPLES))))).backward()
            if bound is not None:
                torch.nn.utils.clip_grad_norm_(model.parameters(), bound)
            optimizer.step()
    return model.state_dict()


class Worker:
    """A worker whose script runs in a thread.

    Args:
        coordinator: of its job.
        epochs: that the script trains.
        make: makes its optimizer.
        at: called with this worker and a word where the script comes by; it may raise `Killed`.
        seed: of its model's first values.
        counts: its rehearsal finds that batches change the model's buffer.
    """

    def __init__(self, coordinator, epochs, make=adam, at=lambda worker, where: None, seed=CHIEF + 1, counts=True):
        self.coordinator = coordinator
        self.epochs = epochs
        self.at = at
        self.counts = counts
        self.model = network(seed)
        self.optimizer = make(self.model)
        rendezvous = Rendezvous("127.0.0.1", TOKEN)
        self.session = DirectSession(coordinator, rendezvous.port)
        self.node = GroupNode(self.session, rendezvous)
        self.job = AllReduceJob(self.node)
        self.error = None
        self.hyper = Hyper()  # of all steps; a test may set another
        self.store = None
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
        arrays = [ModelArray(self.model[int(name[0])], name[2:]) for name in self.model.state_dict()]
        statistics = {f"s:{name}" for name, _ in self.model.named_buffers()} if self.counts else set()
        store = job.open_store(
            lambda store: Replica(self.optimizer, list(self.model.parameters()), store.arrays, store.statistics),
            lambda: None,
        )
        self.store = store
        names = {parameter: f"s:{name}" for name, parameter in self.model.named_parameters()}
        known = list(names.values())
        store.set_optimizer(spec_of(self.optimizer, names), lambda _: self.hyper)
        store.broadcast([f"s:{name}" for name in self.model.state_dict()], arrays, [])
        store.set_auxiliary(statistics)
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


def finished(coordinator, workers, epochs, bound=None):
    """Wait for the end; prove that all weights are one process's, and that every sample was used once."""
    for worker in workers:
        worker.wait()
    coordinator.close()
    expected = trained_alone(epochs, bound=bound)
    first = workers[0].model.state_dict()
    for worker in workers:
        for name, values in worker.model.state_dict().items():
            assert torch.equal(values, first[name]), (worker.id, name)
            torch.testing.assert_close(values, expected[name], rtol=1e-9, atol=1e-12)
    proof = audit(entries_of(coordinator), SAMPLES, BATCH, epochs)
    assert proof.exactly_once, proof.problems
