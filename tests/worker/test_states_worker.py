"""Optimizer states between a worker's `Store` and real servers' `Exchange`, without sockets."""

import threading
from types import SimpleNamespace

import numpy as np
import pytest

from elastic_ps.core.configuration import ConfigId, Configuration, Member, Role
from elastic_ps.core.errors import ConfigurationError
from elastic_ps.core.model import Model, Tensor
from elastic_ps.core.optimizer import Hyper, OptimizerSpec
from elastic_ps.node.standing import Standing
from elastic_ps.server.exchange import Exchange
from elastic_ps.server.phases import Status
from elastic_ps.server.room import Room
from elastic_ps.transport.frames import Frame, Kind
from elastic_ps.worker import states as states_module
from elastic_ps.worker.inbox import Inbox
from elastic_ps.worker.snapshots import Snapshots
from elastic_ps.worker.store import Store

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
        self.snapshots = Snapshots()
        self.generation = self.version = 0
        self.peers = self
        self.session = SimpleNamespace(command=lambda head, body: self.commands.append((head, body)))
        self.commands, self.sent, self.lose = [], [], 0
        self.is_chief = self.is_member = self.is_sync = True
        self.inherited = False
        self.inbox = Inbox(Model(TENSORS, BLOCK_BYTES))
        self.inbox.begin(0)
        self.inbox.arrived(0, [(0, len(self.inbox.model.blocks))])
        members = tuple(Member(f"s{number}", Role.SERVER, "") for number in range(max(assignment) + 1))
        roster = tuple(Member(name, Role.WORKER, "") for name in workers)
        self.configuration = Configuration(ConfigId(1, 1), roster, members, tuple(assignment))
        self.rooms = {member.id: self._room(member.id) for member in members}
        self.exchanges = {name: Exchange(room, lambda: None) for name, room in self.rooms.items()}

    def _room(self, name):
        outbox = SimpleNamespace(send=self._answer, is_connected=lambda _node: True)
        room = Room.create(name, BLOCK_BYTES, (), SimpleNamespace(), outbox)
        room.standing = Standing(name, self.configuration)
        room.store.grow(self.inbox.model, [SPEC.to_json(), SPEC.to_json()])
        for block in self.configuration.blocks_of[name]:  # an arena each: no two lie side by side
            room.store.allocate([block], Status.EMPTY)
            room.store.init_states((block, 1))
            room.store.status[block] = Status.PRIMARY
        room.new_gathering()
        return room

    def update(self, blocks, seed=0):
        """One step of the servers' optimizer on these blocks."""
        random = np.random.default_rng(seed)
        for block in blocks:
            store = self.rooms[self.configuration.primary(block)].store
            value = store.value((block, 1))
            real = self.inbox.model.blocks[block].nbytes // value.itemsize
            gradient = np.zeros_like(value)
            gradient[:real] = random.normal(size=real)
            store.update((block, 1), gradient, HYPER)

    def step(self, seed=0):
        """An exchange over everything, installed here."""
        self.update(range(8), seed)
        self.version += 1

    # ---- of a WorkerNode

    def frame(self, kind, version=0, **meta):
        return Frame(kind, self.configuration.id, version, 0, meta)

    def send(self, server, frame, payload=()):
        self.sent.append(frame.kind)
        if self.lose:
            self.lose -= 1
            return
        data = np.frombuffer(b"".join(bytes(part) for part in payload), dtype=np.uint8)
        assert len(data) == self.exchanges[server].payload_bytes(frame)
        self.exchanges[server].arrived("w0", frame, data)

    def _answer(self, _node, frame, payload):
        assert frame.kind is Kind.SNAPSHOT, frame
        data = b"".join(part.tobytes() for part in payload)
        frame.payload_bytes = len(data)
        if data:
            self.snapshots.buffer("s0", frame)[:] = data
        self.snapshots.arrived("s0", frame)

    def wait(self, ready):
        if not ready():
            self.generation += 1  # what else a worker waits for: a connection is mended
        assert ready()

    def check(self):
        pass


ONE = [0] * 8
TWO = [0, 1, 1, 0, 1, 0, 1, 0]


class Job:
    """What a Store needs of its job."""

    def __init__(self, node):
        self.node = node
        self.staging = SimpleNamespace(rehearsing=False, learnt=[])
        self.begins = False
        self.closed = 0

    def close(self):
        self.closed += 1


def store_of(assignment=TWO, number=0):
    return Store(Job(Servers(assignment)), number)


def servers(store):
    return store._job.node


def trained(assignment=TWO, steps=3):
    store = store_of(assignment)
    for step in range(steps):
        servers(store).step(step)
    return store


def same(found, expected):
    assert found.keys() == expected.keys()
    for key, state in expected.items():
        assert found[key].keys() == state.keys(), key
        for name, value in state.items():
            np.testing.assert_array_equal(found[key][name], value, err_msg=f"{key} {name}")
            assert np.asarray(found[key][name]).shape == np.asarray(value).shape


def test_blocks_of_many_servers_are_put_together():
    found = trained(TWO).optimizer_states()
    same(found, trained(ONE).optimizer_states())
    assert list(found) == ["i:0", "i:1", "i:2"]
    assert {name: (array.dtype.name, array.shape) for name, array in found["i:2"].items() if name != "count"} == {
        "master": ("float32", (2, 20)),
        "mean": ("float32", (2, 20)),
        "variance": ("float32", (2, 20)),
    }
    assert found["i:0"]["count"] == 3
    assert len(np.unique(found["i:0"]["mean"])) == 35


def test_a_load_is_the_inverse_of_collecting_onto_any_servers():
    states = trained(TWO).optimizer_states()
    other = store_of([1, 0, 0, 1, 0, 1, 2, 2])
    other.load_optimizer_states(states)
    same(other.optimizer_states(), states)
    room = servers(other).rooms["s2"]
    assert room.store.counts[7] == 0  # the other kvstore's


def test_without_a_count_the_servers_count_stays():
    states = trained(steps=3).optimizer_states()
    for state in states.values():
        del state["count"]
    other = trained(steps=5)
    other.load_optimizer_states(states)
    found = other.optimizer_states()
    assert [state.pop("count") for state in found.values()] == [5, 5, 5]
    same(found, states)


def test_keys_that_are_not_loaded_keep_theirs():
    other = trained(steps=2)
    before = other.optimizer_states()
    other.load_optimizer_states({"i:1": trained(steps=3).optimizer_states()["i:1"]})
    found = other.optimizer_states()
    assert found.pop("i:1")["count"] == 3
    before.pop("i:1")
    same(found, before)


def changed(**change):
    def act(states):
        states["i:1"] = {**states["i:1"], **change}

    return act


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda states: states.update({"s:new": states["i:1"]}), "key new: .* no parameter of this kvstore"),
        (lambda states: states.update({"s:mean": states["i:1"]}), "key mean: .* no parameter of this kvstore"),
        (lambda states: states["i:1"].pop("mean"), r"key 1: .*variance .*, but its optimizer keeps mean"),
        (changed(mean=np.zeros(3)), r"key 1: .*mean \(float64 of shape \(3,\)\)"),
        (changed(mean=np.zeros(4, dtype=np.float32)), r"key 1: .*mean \(float32 of shape \(4,\)\)"),
        (changed(count=-1), "key 1: .*update count -1"),
        (changed(count=1.5), "key 1: .*update count 1.5"),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_is_changed(spoil, message):
    states = trained(steps=3).optimizer_states()
    spoil(states)
    other = trained(steps=2)
    before = other.optimizer_states()
    with pytest.raises(ConfigurationError, match=message):
        other.load_optimizer_states(states)
    assert Kind.SNAPSHOT not in servers(other).sent
    same(other.optimizer_states(), before)


def test_only_the_chief_sends():
    states = trained(steps=3).optimizer_states()
    other = trained(steps=2)
    servers(other).is_chief = False
    other.load_optimizer_states(states)
    assert Kind.SNAPSHOT not in servers(other).sent
    with pytest.raises(ConfigurationError, match="key x"):
        other.load_optimizer_states({"s:x": states["i:0"]})


@pytest.mark.parametrize("lost", range(1, 12))
def test_frames_that_are_lost_with_a_connection_are_sent_again(lost):
    states = trained(steps=3).optimizer_states()
    other = store_of()
    servers(other).lose = lost
    other.load_optimizer_states(states)
    same(other.optimizer_states(), states)


def test_answers_to_an_earlier_request_do_not_count():
    snapshots = Snapshots()
    earlier, latest = snapshots.begin(), snapshots.begin()
    frame = Frame(Kind.SNAPSHOT, meta={"runs": [[0, 2]], "request": earlier})
    snapshots.arrived("s0", frame)
    assert not snapshots.complete({0, 1})
    snapshots.arrived("s0", Frame(Kind.SNAPSHOT, meta={"runs": [[0, 2]], "request": latest}))
    assert snapshots.complete({0, 1})
    assert [taken.meta["request"] for taken, _ in snapshots.taken()] == [latest]


def test_a_checkpoint_that_is_being_written_keeps_the_states_before_the_load():
    store = trained(ONE)
    saved = []
    servers(store).rooms["s0"].snapshot = SimpleNamespace(before_update=lambda run: saved.extend(range(*_ends(run))))
    store.load_optimizer_states(store.optimizer_states())
    assert saved == [0, 1, 2, 3, 5, 6]  # without the auxiliary block, and the other kvstore's


def _ends(run):
    return run[0], sum(run)


# ---- the number of an update


class Numbers:
    """An optimizer's side that notes the numbers it is asked for."""

    def __init__(self, store):
        self.asked = []
        self.store = store
        store.set_optimizer(SPEC, self._hyper)

    def _hyper(self, number):
        self.asked.append(number)
        return HYPER

    def exchange(self, *keys, chief=True):
        pushed = frozenset((0, key) for key in keys)
        servers(self.store).is_chief = chief
        self.store.hyper(pushed)
        self.store.updated(pushed)


def test_updates_are_numbered_by_key_however_they_are_pushed():
    numbers = Numbers(store_of())
    for _ in range(2):
        for key in ("i:0", "i:1", "i:2"):
            numbers.exchange(key)
    numbers.exchange("i:0", "i:1", "i:2")
    assert numbers.asked == [1, 1, 1, 2, 2, 2, 3]


def test_who_becomes_the_chief_goes_on_where_the_servers_are():
    numbers = Numbers(trained(steps=41))
    numbers.exchange("i:0", chief=False)
    node = servers(numbers.store)
    assert (numbers.asked, node.sent) == ([], [])
    for _ in range(2):
        numbers.exchange("i:0")
        node.step()
        assert len(node.sent) == 2  # one request to each server, once
    numbers.exchange("i:0", chief=False)
    node.step()
    numbers.exchange("i:0")
    assert numbers.asked == [42, 43, 45]


def test_loaded_states_bring_their_number():
    numbers = Numbers(store_of())
    numbers.exchange("i:0")
    numbers.store.load_optimizer_states(trained(steps=7).optimizer_states())
    numbers.exchange("i:0")
    assert numbers.asked == [1, 8]


def test_an_update_that_a_dead_chief_completed_in_part_keeps_its_number():
    numbers = Numbers(trained(steps=6))
    node = servers(numbers.store)
    node.update([0, 1, 2])  # this server had the dead worker's push, the others had not
    numbers.exchange("i:0", "i:1", "i:2")
    assert numbers.asked == [7]


def test_a_load_is_finished_by_the_next_chief():
    states = trained(steps=3).optimizer_states()
    numbers = Numbers(store_of())
    node = servers(numbers.store)
    node.is_chief = False
    numbers.store.load_optimizer_states(states)
    numbers.exchange("i:0", chief=False)  # begun, and done again because the chief has died
    node.is_chief = True
    numbers.exchange("i:0")
    same(numbers.store.optimizer_states(), states)
    assert numbers.asked == [4]
    node.sent.clear()
    numbers.exchange("i:0")
    assert node.sent == []


def test_a_load_that_was_finished_is_not_repeated_over_later_updates():
    states = trained(steps=3).optimizer_states()
    for version, half in ((0, range(4)), (1, range(0))):
        numbers = Numbers(store_of())
        node = servers(numbers.store)
        node.is_chief = False
        numbers.store.load_optimizer_states(states)
        node.update(half)
        node.version = version
        before = numbers.store.optimizer_states()
        node.is_chief = True
        numbers.exchange("i:0")
        same(numbers.store.optimizer_states(), before)


def test_large_models_are_asked_for_in_parts(monkeypatch):
    whole = trained(ONE).optimizer_states()
    monkeypatch.setattr(states_module, "BATCH_BYTES", 100)
    store = trained(ONE)
    same(store.optimizer_states(), whole)
    assert servers(store).sent == [Kind.PULL] * 2


# ---- rehearsal, joiners, restored jobs


def test_a_load_in_the_rehearsal_waits_for_its_end():
    states = trained(steps=3).optimizer_states()
    other = store_of()
    other._job.begins = other._job.staging.rehearsing = True
    other.load_optimizer_states(states)
    assert servers(other).sent == []
    other._job.staging.rehearsing = False
    other.load_rehearsed()
    same(other.optimizer_states(), states)
    servers(other).sent.clear()
    other.load_rehearsed()
    assert servers(other).sent == []


def test_what_is_saved_in_the_rehearsal_of_a_new_job_is_what_was_loaded():
    store = store_of()
    node = servers(store)
    node.inbox = Inbox(Model(TENSORS, BLOCK_BYTES))  # another worker has declared them: nothing has come
    node.inbox.begin(0)
    store._job.begins = store._job.staging.rehearsing = True
    assert store.optimizer_states() == {}
    states = trained(steps=3).optimizer_states()
    store.load_optimizer_states(states)
    same(store.optimizer_states(), states)
    assert node.sent == []


def test_a_joiner_and_a_restored_job_keep_the_jobs_states(caplog):
    states = trained(steps=3).optimizer_states()
    other = trained(steps=5)
    other._job.begins = True
    other.load_optimizer_states(states)
    assert "the job has gone on" in caplog.text
    assert other.optimizer_states()["i:0"]["count"] == 5


def test_a_joiner_saves_nothing_in_its_rehearsal():
    store = trained()
    servers(store).is_member = False
    assert store.optimizer_states() is None


def test_the_open_exchange_is_closed_first():
    store = trained()
    states = store.optimizer_states()
    store.load_optimizer_states(states)
    assert store._job.closed == 2


def test_a_command_goes_to_the_servers():
    store = store_of()
    store.command(3, "text")
    assert servers(store).commands == [(3, "text")]
