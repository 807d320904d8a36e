"""The processes of a played job: they start, register and die; a launcher sees it and starts others."""

from collections import deque

from coordinator.core import effects as ef
from coordinator.core import events as ev
from coordinator.core.job import DurableJob, JobPhase
from coordinator.core.state import CoordinatorSettings
from elastic_ps.core.configuration import NodeId, Role
from elastic_ps.core.module_file import ModuleFile
from tests.coordinator.played_coordinator import PlayedCoordinator
from tests.coordinator.played_node import PlayedNode


class PlayedProcesses(PlayedCoordinator):
    """The coordinator, the launcher and the nodes as far as they are processes with streams: nobody trains."""

    def __init__(self, settings: CoordinatorSettings, job: DurableJob):
        super().__init__(settings, job)
        self.nodes: list[PlayedNode] = []
        self.exits: deque[PlayedNode] = deque()
        self.ids: set[NodeId] = set()
        self.spawned = 0
        self.modules: tuple[ModuleFile, ...] = ()  # on the disk
        self.replace_dead = True
        self.names_exits = True  # else its nodes are those of `elasticrun --role`, each with a launcher of its own

    @property
    def alive(self) -> list[PlayedNode]:
        """Processes that do something."""
        return [node for node in self.nodes if node.exited is None and not node.frozen]

    @property
    def frozen(self) -> list[PlayedNode]:
        return [node for node in self.nodes if node.exited is None and node.frozen]

    def node(self, name: NodeId) -> PlayedNode | None:
        return next((node for node in self.alive if node.id == name), None)

    def spawn(self, role: Role) -> PlayedNode:
        """A process starts, and registers at once."""
        self.spawned += 1
        node = PlayedNode(self, role, f"nonce-{self.spawned}")
        node.modules = self.modules if role is Role.SERVER else ()
        self.nodes.append(node)
        self.register(node)
        return node

    def register(self, node: PlayedNode) -> None:
        port = 1 if node.role is Role.SERVER or self.first.all_reduces else 0  # peers connect to it
        reply = self.ask(ev.Joined, node.role, "127.0.0.1", port, 1, node.nonce, modules=node.modules)
        if isinstance(reply, ef.Refuse):
            node.exited = None if reply.why is ef.Why.AGAIN else 1
        elif reply is not None:  # else the coordinator died before it answered: the node asks again
            if not node.id:
                assert reply.node not in self.ids, "an id is used twice"
                self.ids.add(reply.node)
            assert node.id in ("", reply.node)
            node.id = reply.node

    def listen(self, node: PlayedNode) -> None:
        if not node.id:
            self.register(node)
        if not node.id or node.exited is not None:
            return
        if self.state.rebuilding is None and node.id not in self.state.job.nodes:  # NOT_FOUND
            self.kill(node, 1)
            return
        node.inbox.clear()
        node.connected = True
        term = self.state.job.term
        if self.state.rebuilding is not None:
            self.post(ev.Introduced(self.now, node.id, node.introduction()))
        else:
            self.post(ev.Listening(self.now, node.id, node.number, node.version))
        if node.connected:  # else the coordinator died over it
            node.term = term

    def kill(self, node: PlayedNode, status: int = 137) -> None:
        node.exited = status
        node.connected = False
        self.exits.append(node)

    def launcher(self) -> None:
        """Kill whom the coordinator has expelled, tell of exits, start what is wanted."""
        for node in self.frozen:
            if self.state.rebuilding is None and node.id not in self.state.job.nodes:
                self.kill(node)
        while self.exits:
            node = self.exits[0]
            term = self.state.job.term
            self.post(ev.Exited(self.now, node.nonce, node.id if self.names_exits else "", node.exited))
            if term == self.state.job.term or self.state.job.phase is JobPhase.RESTORING:
                self.exits.popleft()  # else the coordinator died over it: it is told again
        if self.state.rebuilding is not None and not self.alive and self.replace_dead:  # as the operator does
            for role in (Role.SERVER, Role.WORKER):
                for _ in range(self.state.job.goal.count(role)):
                    self.spawn(role)
        elif self.wanted is not None and self.replace_dead:
            for role, count in (
                (Role.SERVER, self.wanted.starting_servers),
                (Role.WORKER, self.wanted.starting_workers),
            ):
                for _ in range(count):
                    self.spawn(role)

    # ---- streams -----------------------------------------------------------------------------------------------------

    def deliver(self, node: NodeId, directive) -> None:
        for played in (*self.alive, *self.frozen):
            if played.id == node and played.connected:
                played.inbox.append(directive)

    def kill_coordinator(self) -> None:
        self.break_streams()
        super().kill_coordinator()

    def lose_journal(self) -> None:
        """Orders that nobody has heard are as if never given."""
        self.break_streams()
        armed = {node.prepared.id for node in self.alive if node.prepared is not None and node.clock is not None}
        self.numbers.ordered = armed | {node.number for node in self.alive}
        forgotten = [node.cancelled for node in (*self.alive, *self.frozen)]
        self.numbers.cancelled = {
            number for number in self.numbers.cancelled if any(number <= one for one in forgotten)
        }
        super().lose_journal()

    def break_streams(self) -> None:
        for node in self.nodes:
            node.connected = False
            node.inbox.clear()
            if node.asked is not None and node.asked not in self.replies:
                node.asked = 0
