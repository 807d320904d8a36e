"""Recorded decisions in files, and a policy that learns from them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.free_resources import FreeResources, NodeRule
from dl2_scheduler.cluster.snapshot import Allocation, Grant, Snapshot
from dl2_scheduler.policies.rules.drf import Drf
from dl2_scheduler.sim.history import Recording, read_history, write_history
from dl2_scheduler.sim.simulator import SimulatedCluster, run
from tests.dl2_scheduler.clusters import SPEEDS, job, nodes, snapshots
from tests.sweeps import examples


def recorded() -> Recording:
    policy = Recording(Drf())
    jobs = [job(1, epochs_estimate=90.0), job(2, arrival=100.0), job(3, arrival=900.0, worker={"cpu": 2, "gpu": 1})]
    machines = nodes({"cpu": 4}, {"cpu": 4}, {"cpu": 3, "gpu": 2})
    run(SimulatedCluster(jobs, machines, SPEEDS, slot_seconds=30.0), policy, NodeRule.SPREAD)
    return policy


def test_written_and_read_again(tmp_path: Path) -> None:
    decisions = recorded().decisions
    write_history(tmp_path / "a.jsonl", decisions)
    found = read_history(tmp_path / "a.jsonl")
    assert [grants for _, grants in found] == [grants for _, grants in decisions]
    for (now, _), (was, _) in zip(found, decisions, strict=True):
        assert (now.slot, now.slot_seconds) == (was.slot, 30.0)
        assert [node.capacity for node in now.nodes] == [node.capacity for node in was.nodes]
        for state, before in zip(now.jobs, was.jobs, strict=True):
            assert state.job.id == before.job.id
            assert state.job.epochs == before.job.estimate, "no scheduler knows more"
            assert state.remaining_epochs == before.remaining_epochs
            assert (state.workers, state.servers, state.slots_run) == (before.workers, before.servers, before.slots_run)
    slots = [now.slot for now, _ in found]
    assert slots[0] == 0
    assert len(slots) < slots[-1], "slots without jobs are left out"
    assert json.loads((tmp_path / "a.jsonl").read_text().splitlines()[0])["nodes"] == [
        {"count": 2, "capacity": {"cpu": 4}},
        {"count": 1, "capacity": {"cpu": 3, "gpu": 2}},
    ]


class OldestAlone:
    """Whoever is not named waits; counts are numpy's."""

    def allocate(self, snapshot: Snapshot, room: FreeResources) -> Allocation:
        one = np.ones(2, dtype=np.int64)
        return Allocation({snapshot.jobs[0].job.id: Grant(*one)}) if snapshot.jobs else Allocation()


def test_a_policy_need_not_name_those_that_wait(tmp_path: Path) -> None:
    policy = Recording(OldestAlone())
    run(SimulatedCluster([job(1), job(2)], nodes({"cpu": 4}), SPEEDS), policy, NodeRule.SPREAD)
    assert policy.decisions[0][1] == (Grant(1, 1), Grant(0, 0))
    write_history(tmp_path / "a.jsonl", policy.decisions)
    assert [grants for _, grants in read_history(tmp_path / "a.jsonl")] == [grants for _, grants in policy.decisions]


@settings(deadline=None, max_examples=examples(20))
@given(st.lists(snapshots(), min_size=1, max_size=3))
def test_whatever_was_decided(tmp_path_factory: pytest.TempPathFactory, slots: list[Snapshot]) -> None:
    policy = Recording(Drf())
    for now in slots:
        if all(any(node.capacity.values()) for node in now.nodes):
            policy.allocate(now, FreeResources(now))
    if not policy.decisions:
        return
    path = tmp_path_factory.mktemp("history") / "a.jsonl"
    write_history(path, policy.decisions)
    first = path.read_bytes()
    write_history(path, read_history(path))
    assert path.read_bytes() == first


WHOLE = {
    "slot": 3, "slot_seconds": 1200.0, "nodes": [{"count": 2, "capacity": {"cpu": 4}}],
    "jobs": [{
        "id": 1, "arrival": 0.0, "model": "even", "epochs": 9.0, "samples_per_epoch": 1.0, "worker": {"cpu": 1},
        "server": {"cpu": 1}, "max_workers": 4, "max_servers": 4, "epochs_done": 1.0, "slots_run": 1,
        "workers_before": 1, "servers_before": 1, "workers": 2, "servers": 1,
    }],
}  # fmt: skip


def changed(**fields: Any) -> str:
    return json.dumps({**WHOLE, **fields})


def with_job(**fields: Any) -> str:
    return changed(jobs=[{**WHOLE["jobs"][0], **fields}])  # type: ignore[index]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "not JSON, perhaps torn"),
        (changed(slot="a"), 'slot is "a": give a whole number'),
        (changed(slot_seconds=0), "slot_seconds is 0: give a number above 0"),
        (changed(nodes=[]), "no nodes: give at least one"),
        (changed(nodes=[{"count": 0, "capacity": {"cpu": 1}}]), "nodes 1: count is 0: give 1 to"),
        (
            changed(nodes=[{"count": 1, "capacity": {"cpu": -1}}]),
            "nodes 1: the amount of cpu is -1: give",
        ),
        (changed(nodes=[{"count": 1}]), "nodes 1: no capacity"),
        (changed(jobs=[3]), r"jobs is \[3\]: give a list of JSON objects"),
        (changed(jobs=WHOLE["jobs"] * 2), "id 1 again"),
        (with_job(model=None), "job 1: model is null: give a text"),
        (with_job(epochs=0), "job 1: epochs is 0: give a number above 0"),
        (with_job(colour="red"), "job 1: unknown field colour"),
        (with_job(epochs_done=-1), "job 1: epochs_done, slots_run, workers_before, servers_before are -1.0"),
        (with_job(workers=5), "job 1: 5 workers and 1 servers: give 0 to the job's maxima"),
        (with_job(servers=0), "job 1: 2 workers and 0 servers: give both, or none"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, line: str, problem: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(f"{json.dumps(WHOLE)}\n{line}\n")
    with pytest.raises(BadInput, match=f"a.jsonl:2: {problem}"):
        read_history(path)


def test_a_slot_in_which_nobody_gets_anything(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(with_job(workers=0, servers=0) + "\n" + changed(jobs=[]) + "\n")
    (_, waits), (_, empty) = read_history(path)
    assert waits == (Grant(0, 0),)
    assert empty == ()
