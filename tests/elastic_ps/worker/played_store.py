"""A worker's `WorkerKeyStore` and real servers' `WorkerFrames` in one thread, without sockets."""

import threading
from types import SimpleNamespace

import numpy as np

from elastic_ps.core.configuration import ConfigId, Configuration, Member, Role
from elastic_ps.core.model import Model, Tensor
from elastic_ps.core.optimizer import Hyper, OptimizerSpec
from elastic_ps.node.standing import Standing
from elastic_ps.optimizers.gradient_sum import GradientSum
from elastic_ps.server.phases import BlockStatus
from elastic_ps.server.state.server_state import ServerState
from elastic_ps.server.worker_frames import WorkerFrames
from elastic_ps.transport.frame_kinds import Kind
from elastic_ps.transport.frames import Frame
from elastic_ps.transport.shared_memory import Image
from elastic_ps.worker.script.key_store import WorkerKeyStore
from elastic_ps.worker.wire.parameter_inbox import ParameterInbox
from elastic_ps.worker.wire.state_snapshots import StateSnapshots

BLOCK_BYTES = 64
TENSORS = (
    Tensor(0, "i:0", (5, 7), "float32"),  # 140 bytes: three blocks, the last one padded
    Tensor(0, "i:1", (3,), "float32"),
    Tensor(0, "s:mean", (3,), "float32", auxiliary=True),
    Tensor(0, "i:2", (2, 20), "float16"),  # two blocks; float32 copies beside them
    Tensor(1, "i:0", (4,), "float32"),
)
SPEC = OptimizerSpec("adam", {"multi_precision": True})
HYPER = Hyper(lr=0.1)


class Servers:
    """A worker's node and the servers that it talks to, which answer at once."""

    def __init__(self, assignment, workers=("w0", "w1")):
        self.node = self
        self.changed = threading.Condition()
        self.snapshots = StateSnapshots()
        self.generation = self.version = 0
        self.peers = self
        self.session = SimpleNamespace(command=lambda head, body: self.commands.append((head, body)))
        self.commands, self.sent, self.lose = [], [], 0
        self.is_chief = self.is_member = self.is_sync = True
        self.inherited = False
        self.inbox = ParameterInbox(Model(TENSORS, BLOCK_BYTES))
        self.inbox.begin(0)
        whole = [(0, len(self.inbox.model.blocks))]
        self.inbox.buffers(0, whole)
        self.inbox.arrived(0, whole)
        members = tuple(Member(f"s{number}", Role.SERVER, "") for number in range(max(assignment) + 1))
        roster = tuple(Member(name, Role.WORKER, "") for name in workers)
        self.configuration = Configuration(ConfigId(1, 1), roster, members, tuple(assignment))
        self.states = {member.id: self._state(member.id) for member in members}
        self.worker_frames = {name: WorkerFrames(state, lambda: None) for name, state in self.states.items()}

    def _state(self, name):
        outbox = SimpleNamespace(send=self._answer, is_connected=lambda _node: True, backlog=lambda _node: 0)
        state = ServerState.create(name, BLOCK_BYTES, (), SimpleNamespace(), outbox)
        state.standing = Standing(name, self.configuration)
        state.store.grow(self.inbox.model, [SPEC.to_json(), SPEC.to_json()])
        for block in self.configuration.blocks_of[name]:  # an arena each: no two lie side by side
            state.store.allocate([block], BlockStatus.EMPTY)
            state.store.init_states((block, 1))
            state.store.status[block] = BlockStatus.PRIMARY
        state.new_gathering()
        return state

    def update(self, blocks, seed=0, hyper=HYPER):
        """One step of the servers' optimizer on these blocks."""
        random = np.random.default_rng(seed)
        for block in blocks:
            store = self.states[self.configuration.primary(block)].store
            value = store.value((block, 1))
            real = self.inbox.model.blocks[block].nbytes // value.itemsize
            gradient = np.zeros_like(value)
            gradient[:real] = random.normal(size=real)
            store.update_segment((block, 1), GradientSum([gradient]), hyper)

    def step(self, seed=0):
        """An exchange over everything, installed here."""
        self.update(range(8), seed)
        self.version += 1

    # ---- of a WorkerNode

    def frame(self, meta, version=0):
        return Frame(meta, self.configuration.id, version)

    def send(self, server, frame, payload=()):
        self.sent.append(frame.kind)
        if self.lose:
            self.lose -= 1
            return
        buffers = self.worker_frames[server].buffers("w0", frame, Image(self.inbox.model.slab_bytes), lambda: None)
        data = b"".join(bytes(part) for part in payload)
        for buffer in buffers:
            buffer[...] = np.frombuffer(data[: buffer.nbytes], dtype=np.uint8)
            data = data[buffer.nbytes :]
        assert not data
        self.worker_frames[server].arrived("w0", frame, buffers, lambda: None)

    def _answer(self, _node, frame, payload):
        assert frame.kind is Kind.SNAPSHOT, frame
        data = b"".join(part.tobytes() for part in payload)
        frame.payload_bytes = len(data)
        if data:
            self.snapshots.buffer("s0", frame)[:] = data
        self.snapshots.arrived("s0", frame)

    def wait(self, ready, _lacking):
        if not ready():
            self.generation += 1  # what else a worker waits for: a connection is mended
        assert ready()

    def ask_coordinator(self, request):
        return request()

    def check(self):
        pass


ONE = [0] * 8
TWO = [0, 1, 1, 0, 1, 0, 1, 0]


class Job:
    """What a `WorkerKeyStore` needs of its job."""

    def __init__(self, node):
        self.node = node
        self.staging = SimpleNamespace(rehearsing=False, learnt=[])
        self.begins = False
        self.buffer = self
        self.closed = 0

    def close_exchange(self):
        self.closed += 1


def store_of(assignment=TWO, number=0):
    return WorkerKeyStore(Job(Servers(assignment)), number)


def servers(store):
    return store._job.node


def trained(assignment=TWO, steps=3):
    store = store_of(assignment)
    for step in range(steps):
        servers(store).step(step)
    return store


def check_same(found, expected):
    assert found.keys() == expected.keys()
    for key, state in expected.items():
        assert found[key].keys() == state.keys(), key
        for name, value in state.items():
            np.testing.assert_array_equal(found[key][name], value, err_msg=f"{key} {name}")
            assert np.asarray(found[key][name]).shape == np.asarray(value).shape


class Numbers:
    """An optimizer's side that notes the numbers it is asked for."""

    def __init__(self, store):
        self.asked = []
        self.store = store
        store.set_optimizer(SPEC, self._hyper)

    def _hyper(self, number):
        self.asked.append(number)
        return HYPER

    def exchange(self, *keys, chief=True, skipped=False):
        pushed = frozenset((0, key) for key in keys)
        servers(self.store).is_chief = chief
        self.store.optimizer.hyper(pushed)
        if skipped:
            self.store.optimizer.skipped()
        else:
            self.store.optimizer.updated(pushed)
