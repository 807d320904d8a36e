"""The room: never over capacity, all of a grant or nothing of it, and each rule's node."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dl2_scheduler.cluster.free_resources import NOWHERE, FreeResources, NodeRule, pick_node
from dl2_scheduler.cluster.jobs import Node
from dl2_scheduler.cluster.snapshot import JobState, Snapshot
from tests.dl2_scheduler.clusters import counts, job, nodes, snapshot, snapshots

RULES = st.sampled_from(NodeRule)


def slow_pick(free: list[list[float]], used: list[float], demand: list[float], rule: NodeRule, last: int) -> int:
    """`pick_node`, in words."""
    numbers = list(range(len(free)))
    if rule == NodeRule.LEAST_USED_ONLY:
        numbers = [min(numbers, key=lambda node: used[node])]
    fitting = [node for node in numbers if all(d <= f + 1e-9 for d, f in zip(demand, free[node], strict=True))]
    if not fitting:
        return NOWHERE
    if rule == NodeRule.PACK:
        return max(fitting, key=lambda node: (used[node], -node))
    if rule == NodeRule.ROUND_ROBIN:
        return min(fitting, key=lambda node: (node - last - 1) % len(free))
    return min(fitting, key=lambda node: used[node])


@settings(deadline=None)
@given(st.data(), RULES, st.integers(1, 6), st.integers(1, 3))
def test_nodes_are_picked_as_the_rules_say(data: st.DataObject, rule: NodeRule, count: int, resources: int) -> None:
    amount = st.sampled_from([0.0, 1.0, 2.0, 3.0])
    free = data.draw(st.lists(st.lists(amount, min_size=resources, max_size=resources), min_size=count, max_size=count))
    used = data.draw(st.lists(amount, min_size=count, max_size=count))
    demand = data.draw(st.lists(amount, min_size=resources, max_size=resources))
    last = data.draw(st.integers(NOWHERE, count - 1))
    ours = pick_node(np.array(free), np.array(used), np.array(demand), int(rule), last)
    assert ours == slow_pick(free, used, demand, rule, last)


@pytest.mark.slow
@settings(deadline=None)
@given(snapshots(), RULES, st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4), st.integers(0, 4)), max_size=30))
def test_a_grant_is_given_whole_or_not_at_all(now: Snapshot, rule: NodeRule, asks: list[tuple[int, int, int]]) -> None:
    room = FreeResources(now, rule)
    for ask, workers, servers in asks:
        if ask >= len(now.jobs):
            continue
        before = room.free.copy(), room.used.copy(), room.workers(ask), room.servers(ask)
        if workers + servers:
            granted, gave = room.give(ask, workers, servers), (workers, servers)
        else:
            granted, gave = room.give_together(ask), (1, 1)
        got = gave if granted else (0, 0)
        assert (room.workers(ask), room.servers(ask)) == (before[2] + got[0], before[3] + got[1])
        if not granted:
            assert room.free == pytest.approx(before[0], abs=1e-9)
            assert room.used == pytest.approx(before[1], abs=1e-9)
    check_books(room)


def check_books(room: FreeResources) -> None:
    """Nothing is over capacity, and what is in use is what jobs were given."""
    assert (room.free >= -1e-6).all()
    jobs = range(len(room.snapshot.jobs))
    taken = sum(
        (
            room.workers(number) * room.demands[0][number] + room.servers(number) * room.demands[1][number]
            for number in jobs
        ),
        np.zeros(room.capacity.shape[1]),
    )
    assert (room.capacity - room.free).sum(axis=0) == pytest.approx(taken, abs=1e-6)
    for number in jobs:
        state = room.snapshot.jobs[number].job
        assert room.workers(number) <= state.max_workers
        assert room.servers(number) <= state.max_servers


def test_over_a_maximum_is_refused() -> None:
    room = FreeResources(snapshot([job(max_workers=2, max_servers=1)], nodes({"cpu": 8})))
    assert not room.give(0, 3, 1)
    assert not room.give(0, 1, 2)
    assert room.give(0, 2, 1)
    assert not room.give(0, 1, 0)
    assert not room.give_together(0)


def test_a_bundle_goes_to_one_node() -> None:
    room = FreeResources(snapshot([job(worker={"cpu": 2}, server={"cpu": 2})], nodes({"cpu": 3}, {"cpu": 3})))
    assert not room.give_together(0)
    assert room.give(0, 1, 1)


def test_one_role_alone_is_nothing() -> None:
    room = FreeResources(snapshot([job(1), job(2)], nodes({"cpu": 8})))
    room.give(0, 2, 0)
    room.give(1, 1, 1)
    assert counts(room.allocation()) == {1: (0, 0), 2: (1, 1)}


def test_reasons_are_kept() -> None:
    room = FreeResources(snapshot([job(1), job(2)], nodes({"cpu": 2})))
    room.give(0, 1, 1)
    grants = room.allocation(["first", "no room"]).grants
    assert (grants[1].reason, grants[2].reason) == ("first", "no room")


def test_what_no_node_has_fits_nowhere() -> None:
    room = FreeResources(snapshot([job(worker={"tpu": 1})], nodes({"cpu": 8})))
    assert not room.give(0, 1, 1)


def test_ten_tenths_fit_a_whole() -> None:
    """0.1 ten times is more than 1 where binary fractions are added."""
    room = FreeResources(
        snapshot([job(worker={"cpu": 0.1}, server={"cpu": 0.1}, max_workers=5, max_servers=5)], nodes({"cpu": 1}))
    )
    assert room.give(0, 5, 5)


@pytest.mark.parametrize(
    ("rule", "free"),
    [
        (NodeRule.SPREAD, [2, 2, 2]),
        (NodeRule.PACK, [0, 2, 4]),
        (NodeRule.ROUND_ROBIN, [2, 2, 2]),
        (NodeRule.LEAST_USED_ONLY, [2, 2, 2]),
    ],
)
def test_rules_by_hand(rule: NodeRule, free: list[float]) -> None:
    room = FreeResources(snapshot([job()], nodes(*[{"cpu": 4}] * 3)), rule)
    assert room.give(0, 3, 3)
    assert room.free[:, 0].tolist() == free


@pytest.mark.parametrize(
    ("capacities", "worker", "server", "least", "grown"),
    [
        ((4, 5), 2, 3, (2, 1), (3, 1)),
        ((6, 6), 3, 2, (1, 2), (2, 3)),
        ((6, 7), 3, 4, (2, 1), (3, 1)),
        ((7, 6), 2, 3, (1, 3), (2, 3)),
    ],
)
def test_a_job_that_was_packed_and_has_grown_fits_as_a_whole(
    capacities: tuple[int, int], worker: int, server: int, least: tuple[int, int], grown: tuple[int, int]
) -> None:
    """Limits, exploring and what keeps jobs count a running job as a whole: they have to find it a place again."""
    asked = replace(
        job(0), worker={"gpu": worker}, server={"gpu": server}, min_workers=least[0], min_servers=least[1]
    )  # fmt: skip
    rooms = [FreeResources(Snapshot(0, 1.0, tuple(Node(f"n{c}", {"gpu": c}) for c in capacities), (JobState(asked),)))
             for _ in range(3)]  # fmt: skip
    stepwise, whole, too_much = rooms
    assert stepwise.give_least(0)
    assert stepwise.give(0, grown[0] - least[0], grown[1] - least[1])
    assert whole.give(0, *grown)
    assert whole.free.tolist() == stepwise.free.tolist()
    before = too_much.free.copy()
    assert not too_much.give(0, grown[0] + 1, grown[1] + 1)
    assert too_much.free.tolist() == before.tolist()
    assert (too_much.workers(0), too_much.servers(0)) == (0, 0)
    assert too_much.give_least(0)
