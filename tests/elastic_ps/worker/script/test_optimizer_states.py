"""Optimizer states that a worker collects from servers and loads onto them, and the numbers of updates."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from elastic_ps.core.errors import ConfigurationError, JobEnded, Refused
from elastic_ps.core.gradient_norm import SKIPPED
from elastic_ps.core.model import Model
from elastic_ps.transport.frame_kinds import Kind
from elastic_ps.transport.frame_metas import SnapshotMeta
from elastic_ps.transport.frames import Frame
from elastic_ps.worker.script import optimizer_states as states_module
from elastic_ps.worker.wire.parameter_inbox import ParameterInbox
from elastic_ps.worker.wire.state_snapshots import StateSnapshots
from tests.elastic_ps.worker.played_store import (
    BLOCK_BYTES,
    HYPER,
    ONE,
    TENSORS,
    TWO,
    Numbers,
    check_same,
    servers,
    store_of,
    trained,
)
from tests.elastic_ps.worker.worker_harness import ONE as FIRST


def test_blocks_of_many_servers_are_put_together():
    found = trained(TWO).optimizer_states()
    check_same(found, trained(ONE).optimizer_states())
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
    check_same(other.optimizer_states(), states)
    state = servers(other).states["s2"]
    assert state.store.counts[7] == 0  # the other kvstore's


def test_without_a_count_the_servers_count_stays():
    states = trained(steps=3).optimizer_states()
    for state in states.values():
        del state["count"]
    other = trained(steps=5)
    other.load_optimizer_states(states)
    found = other.optimizer_states()
    assert [state.pop("count") for state in found.values()] == [5, 5, 5]
    check_same(found, states)


def test_keys_that_are_not_loaded_keep_theirs():
    other = trained(steps=2)
    before = other.optimizer_states()
    other.load_optimizer_states({"i:1": trained(steps=3).optimizer_states()["i:1"]})
    found = other.optimizer_states()
    assert found.pop("i:1")["count"] == 3
    before.pop("i:1")
    check_same(found, before)


def changed(**change):
    def act(states):
        states["i:1"] = {**states["i:1"], **change}

    return act


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda states: states.update({"s:new": states["i:1"]}), "key new: .* no parameter of this key store"),
        (lambda states: states.update({"s:mean": states["i:1"]}), "key mean: .* no parameter of this key store"),
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
    check_same(other.optimizer_states(), before)


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
    check_same(other.optimizer_states(), states)


def test_answers_to_an_earlier_request_do_not_count():
    snapshots = StateSnapshots()
    earlier, latest = snapshots.begin(), snapshots.begin()
    frame = Frame(SnapshotMeta(runs=[[0, 2]], request=earlier))
    snapshots.arrived("s0", frame)
    assert not snapshots.complete({0, 1})
    snapshots.arrived("s0", Frame(SnapshotMeta(runs=[[0, 2]], request=latest)))
    assert snapshots.complete({0, 1})
    assert [taken.meta.request for taken, _ in snapshots.taken()] == [latest]


def test_a_checkpoint_that_is_being_written_keeps_the_states_before_the_load():
    store = trained(ONE)
    saved = []
    servers(store).states["s0"].snapshot = SimpleNamespace(before_update=lambda run: saved.extend(range(*_ends(run))))
    store.load_optimizer_states(store.optimizer_states())
    assert saved == [0, 1, 2, 3, 5, 6]  # without the auxiliary block, and the other kvstore's


def _ends(run):
    return run[0], sum(run)


# ---- the number of an update


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


def test_a_step_that_a_dead_chief_had_skipped_takes_no_number():
    """Servers are a version further, and have counted no update for it."""
    numbers = Numbers(trained(steps=6))
    node = servers(numbers.store)
    node.update(range(8), hyper=replace(HYPER, factor=SKIPPED))
    numbers.exchange("i:0", "i:1", "i:2", skipped=True)
    node.version += 1
    numbers.exchange("i:0", "i:1", "i:2")
    assert numbers.asked[-1] == 7


def test_the_chief_asks_for_counts_again_when_a_step_was_skipped(scripted, monkeypatch):
    numbers = []
    monkeypatch.setattr(states_module.States, "counts", lambda _self, keys: dict.fromkeys(keys, 5))
    scripted.hyper = lambda number: numbers.append(number) or HYPER
    running = scripted.run()
    for version, factor in ((1, SKIPPED), (2, 1.0)):
        for server, blocks in scripted.owned():
            server.await_pushes(version - 1, len(blocks))
            server.answer(version, blocks, FIRST, factor=factor)
    running.result()
    assert numbers == [6, 6]


def test_a_load_is_finished_by_the_next_chief():
    states = trained(steps=3).optimizer_states()
    numbers = Numbers(store_of())
    node = servers(numbers.store)
    node.is_chief = False
    numbers.store.load_optimizer_states(states)
    numbers.exchange("i:0", chief=False)  # begun, and done again because the chief has died
    node.is_chief = True
    numbers.exchange("i:0")
    check_same(numbers.store.optimizer_states(), states)
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
        check_same(numbers.store.optimizer_states(), before)


def test_large_models_are_asked_for_in_parts(monkeypatch):
    whole = trained(ONE).optimizer_states()
    monkeypatch.setattr(states_module, "BATCH_BYTES", 100)
    store = trained(ONE)
    check_same(store.optimizer_states(), whole)
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
    check_same(other.optimizer_states(), states)
    servers(other).sent.clear()
    other.load_rehearsed()
    assert servers(other).sent == []


def test_what_is_saved_in_the_rehearsal_of_a_new_job_is_what_was_loaded():
    store = store_of()
    node = servers(store)
    node.inbox = ParameterInbox(Model(TENSORS, BLOCK_BYTES))  # another worker has declared them: nothing has come
    node.inbox.begin(0)
    store._job.begins = store._job.staging.rehearsing = True
    assert store.optimizer_states() == {}
    states = trained(steps=3).optimizer_states()
    store.load_optimizer_states(states)
    check_same(store.optimizer_states(), states)
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


def test_a_command_that_is_refused_as_the_job_ends_ends_the_script_as_its_job_does(scripted):
    def refused(_head, _body):
        raise Refused("stopped by the operator")

    scripted.session.command = refused
    scripted.begin()
    scripted.node.end(JobEnded("stopped by the operator", 0))
    with pytest.raises(SystemExit) as ended:
        scripted.job.open_store().command(3, "text")
    assert ended.value.code == 0
