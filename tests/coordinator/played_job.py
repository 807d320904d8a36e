"""A job whose nodes are played: honest ones, over streams that break and processes that die, without a socket.

Directives travel in order and are lost with their stream; answers are sent until they have arrived, in order, and may
arrive twice. Training is a version per worker. In a sync job a worker goes on only together with its roster; else
it draws batches, and the servers, played as one, take each batch once.
"""

from dataclasses import replace

from coordinator.core import effects as ef
from coordinator.core import events as ev
from coordinator.core.directives import unextended
from coordinator.core.job import DurableJob
from coordinator.core.plans.plan import Phase, Plan
from coordinator.core.plans.scale_goal import ScaleGoal
from coordinator.core.state import CoordinatorSettings
from elastic_ps.core.configuration import NO_CONFIGURATION, NodeId, Role
from elastic_ps.core.data_order import DataSpec
from elastic_ps.core.model import Model, Tensor
from elastic_ps.core.optimizer import OptimizerSpec
from tests.coordinator.played_node import PlayedNode
from tests.coordinator.played_processes import PlayedProcesses
from tests.coordinator.taken_batches import TakenBatches

OPTIMIZER = OptimizerSpec("sgd").to_json()
IDENTITY = "played"
TENSORS = tuple(Tensor(0, f"i:{number}", (16 * (number + 1),), "float32") for number in range(8))
DATA = DataSpec(True, 1000, 10, order="shuffled")
STATIC = DataSpec()
ASYNC = DataSpec(True, 70, 10, consistency="async")
SSP = DataSpec(True, 70, 10, consistency="ssp", staleness=2)


def text(reply) -> str:
    """Why an operator's call was refused."""
    assert isinstance(reply, ef.Refuse), f"not refused: {reply}"
    return reply.text


class World(PlayedProcesses):
    """A whole job: its processes train, and run fairly until they are at rest."""

    def __init__(
        self,
        workers: int = 2,
        servers: int = 1,
        declare: bool = True,
        data: DataSpec = DATA,
        drawing: bool = True,  # workers draw by themselves
        **settings,
    ):
        chosen = CoordinatorSettings(**{"lease": 10.0, "join_timeout": 30.0, "settle": 0.0, **settings})
        super().__init__(chosen, DurableJob(ScaleGoal(workers, servers), IDENTITY, model=Model(block_bytes=64)))
        self.data = data
        self.drawing = drawing
        self.batches = TakenBatches()
        self.refused_optimizers: dict[NodeId, str] = {}  # what servers say of any that is tried; "": they take it
        self.post(ev.Started(self.now))
        if declare:
            self.settle()
            self.declare(self.node("w0"), TENSORS, data, optimizer=OPTIMIZER)
            self.settle()

    # ---- what nodes do -----------------------------------------------------------------------------------------------

    def hear(self, node: PlayedNode) -> None:
        """A node handles its next directive."""
        node.handle(node.inbox.popleft())

    def speak(self, node: PlayedNode, again: bool = False) -> None:
        """A node's next answer arrives; `again`: and is repeated, as after a lost reply."""
        if self.state.rebuilding is not None and node.outbox[0][0] != "exit":
            return  # UNAVAILABLE: it comes again
        kind, arguments = node.outbox[0] if again else node.outbox.popleft()
        if kind == "exit":
            node.outbox.clear()
            self.kill(node, *arguments)
        elif node.id in self.state.job.nodes:
            self.post(kind(self.now, node.id, *arguments))

    def report(self, node: PlayedNode, finished: bool = False) -> None:
        if node.id in self.state.job.nodes:
            waits = tuple(node.waits)
            self.post(ev.Reported(self.now, node.id, node.version, 0.1, 0.01, finished=finished, waits=waits))

    def notice(self, node: PlayedNode) -> None:
        """A node hears from a peer of a decided configuration."""
        latest = max((peer.number for peer in self.alive), default=NO_CONFIGURATION)
        if node.prepared is not None and node.prepared.id == latest and not node.undecided:
            node.switch()

    def train(self, node: PlayedNode) -> None:
        """A worker's step, if its whole roster is there and of one configuration; without a clock, a part of one."""
        if not node.is_member or node.role is not Role.WORKER:
            return
        if self.state.settings.replicas and any(self.node(server.id) is None for server in node.current.servers):
            return  # it waits for the dead, or for whom the dead would have to acknowledge
        servers = [self.node(server.id) for server in node.current.servers]
        if self.state.settings.replicas and not all(s.number >= node.number and s.holds_all for s in servers):
            return  # it waits for blocks that have not been handed over
        if not self.data.is_sync:
            if self.drawing:
                node.draw()
                self.levels(node.version)
            return
        latest = max(peer.number for peer in self.alive)
        peers = [self.node(worker) for worker in node.current.ranks]
        if any(peer is None or peer.number != latest or peer.version < node.version for peer in peers):
            return
        node.version += 1
        node.reach()
        self.levels(node.version)
        for server in self.alive:
            if server.role is Role.SERVER and server.is_member:
                server.version = max(server.version, min(peer.version for peer in peers))
                server.reach()

    def levels(self, version: int) -> None:
        """Whoever has a copy has all that a worker has seen."""
        for server in self.alive:
            if server.role is Role.SERVER and server.copies:
                server.level = max(server.level, version)

    def declare(self, node: PlayedNode, tensors=(), data=None, **named):
        return self.ask(ev.Declared, node.id, tuple(tensors), data=data, **named)

    def draw(self, worker: NodeId, number: int, epoch: int | None = None):
        """A draw that a test makes for a worker; returns what it was answered, None: it waits."""
        return self.ask(ev.DrawAsked, worker, number, epoch)

    # ---- fair running ------------------------------------------------------------------------------------------------

    def turn(self) -> None:
        """Everything that can happen happens once; no more faults."""
        self.launcher()
        for node in list(self.alive):
            if not node.connected:
                self.listen(node)
        for node in list(self.alive):
            while node.inbox:
                self.hear(node)
            while node.outbox and node.exited is None:
                left = len(node.outbox)
                self.speak(node)
                if len(node.outbox) == left:
                    break
        for node in list(self.alive):
            node.hand_over()
        for node in list(self.alive):
            self.notice(node)
            for _ in range(1 if self.data.is_sync else 3):
                self.train(node)
        for node in list(self.alive):
            self.report(node)
        self.launcher()
        self.tick()

    @property
    def at_rest(self) -> bool:
        job = self.state.job
        return (
            self.state.rebuilding is None
            and job.plan is None
            and not job.queued
            and not job.goal.wishes
            and self.counts == (job.goal.workers, job.goal.servers)
            and all(node.connected and not node.inbox and not node.outbox for node in self.alive)
            and not unextended(self.state)
            and not self.exits
            and not self.frozen
            and {node.id for node in self.alive} == set(job.members)
        )

    def comes_to_rest(self, turns: int) -> bool:
        """Run fairly until the job is at rest, or has ended; for so many turns at the most."""
        for _ in range(turns):
            if self.at_rest or self.state.job.ended:
                return True
            self.turn()
        return self.at_rest or self.state.job.ended

    def settle(self, turns: int = 150) -> None:
        """Run fairly until the job is at rest, and check what then holds."""
        assert self.comes_to_rest(turns), f"hangs: {self.describe()}"
        if not self.state.job.ended:
            wrong = [node.id for node in self.alive if node.current != self.state.job.configuration]
            assert not wrong, f"{wrong} are in another configuration: {self.describe()}"

    def describe(self) -> str:
        job = self.state.job
        plan = replace(job.plan, base=None, target=None) if job.plan else None
        nodes = [(n.id, n.number, n.prepared and n.prepared.id, n.clock, n.version, n.connected) for n in self.alive]
        facts = f"{job.phase} goal {job.goal} queued {job.queued} dead {job.dead} plan {plan} {self.state.answers}"
        return f"{facts} nodes {nodes} log {self.logs[-12:]}"

    def check_batches(self, epochs: int = 0) -> None:
        """Each batch of the epochs that are over was taken exactly once; run until `epochs` are."""
        for _ in range(60 * epochs):
            if self.state.book.epoch >= epochs or self.state.job.ended:
                break
            self.turn()
        over = self.state.book.epoch
        assert over >= epochs, f"no batch is given: {self.state.book} {self.describe()}"
        due = {(epoch, step): 1 for epoch in range(over) for step in range(self.data.steps_per_epoch)}
        assert {place: count for place, count in self.batches.times.items() if place[0] < over} == due

    def until(self, phase: Phase, turns: int = 50) -> Plan:
        """Run fairly, answer by answer, until the plan under way is in `phase`."""
        for _ in range(turns):
            if self.plan is not None and self.plan.phase is phase:
                return self.plan
            self.launcher()
            for node in list(self.alive):
                if not node.connected:
                    self.listen(node)
                for queue, act in ((node.inbox, self.hear), (node.outbox, self.speak)):
                    while queue and node.exited is None and self.state.rebuilding is None:
                        if self.plan is not None and self.plan.phase is phase:
                            return self.plan
                        act(node)
            if self.plan is not None and self.plan.phase is phase:
                return self.plan
            self.tick()
        raise AssertionError(f"never {phase}: {self.describe()}")

    def saved(self, turns: int = 20) -> ef.WriteManifest:
        """Run fairly until the checkpoint under way is whole; returns its manifest, which is written."""
        before = len(self.effects)
        for _ in range(turns):
            self.turn()
            for effect in self.effects[before:]:
                if isinstance(effect, ef.WriteManifest):
                    self.post(ev.ManifestWritten(self.now, effect.url, 10))
                    return effect
        raise AssertionError(f"no checkpoint: {self.describe()}")

    def silence(self, *names: NodeId, seconds: float = 12.0) -> None:
        """Time passes in which these nodes report nothing, and nobody does anything else."""
        for _ in range(int(seconds * 2)):
            for node in self.alive:
                if node.id not in names:
                    self.report(node)
            self.tick()
