"""Flows get what is max-min fair, never more than links have, and a change is felt only where it is told to be."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dl2_scheduler.cluster.hardware.topologies.bcube import bcube
from dl2_scheduler.cluster.hardware.topologies.fat_tree import fat_tree
from dl2_scheduler.cluster.hardware.topologies.flat import flat
from dl2_scheduler.cluster.hardware.topologies.vl2 import vl2
from dl2_scheduler.cluster.hardware.topology import Routes
from dl2_scheduler.sim.placed.network import MB_A_SECOND, max_min, only, touched, with_senders

NETWORKS = [flat([10.0] * 4), fat_tree(4, oversubscription=4), vl2(4, rack=3), bcube(3, gbps=(10.0, 20.0))]
INFINITE = float("inf")
CLOSE = 1e-9


def routes(*paths):
    """Return the routes of flows, each given as a list of links."""
    links = np.array([link for path in paths for link in path], dtype=np.int64)
    return Routes(np.cumsum([0, *map(len, paths)]), links)


def shared(capacity, cap, *paths):
    return max_min(np.array(capacity, dtype=float), *routes(*paths), np.array(cap, dtype=float)).tolist()


@st.composite
def networks(draw):
    """Draw capacities, routes (some empty) and caps: of a topology, or of paths that no topology has."""
    flows = draw(st.integers(1, 40))
    caps = st.one_of(st.sampled_from([0.0, 1.0, 5.7, INFINITE]), st.floats(0.01, 20))
    cap = np.array(draw(st.lists(caps, min_size=flows, max_size=flows)))
    if draw(st.booleans()):
        topology = draw(st.sampled_from(NETWORKS))
        node = st.lists(st.integers(0, len(topology.partition_of) - 1), min_size=flows, max_size=flows)
        return topology.capacity, topology.routes(draw(node), draw(node), np.arange(flows)), cap
    capacity = draw(st.lists(st.one_of(st.just(0.0), st.floats(0.01, 50)), min_size=1, max_size=12))
    path = st.lists(st.integers(0, len(capacity) - 1), max_size=5, unique=True)
    return np.array(capacity), routes(*draw(st.lists(path, min_size=flows, max_size=flows))), cap


def taken_of(capacity, found, rates):
    """Return what flows take of each link."""
    taken = np.zeros(len(capacity))
    np.add.at(taken, found.links, np.repeat(rates, np.diff(found.start)))
    return taken


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(networks())
def test_rates_are_max_min_fair(network):
    """Every flow is at its cap, or has a full link on which none is faster: no other rates are so."""
    capacity, found, cap = network
    rates = max_min(capacity, *found, cap)
    finite = np.where(np.isinf(rates), 0, rates)  # of a flow without links
    taken = taken_of(capacity, found, finite)
    assert (taken <= capacity + CLOSE).all()
    assert ((rates >= 0) & (rates <= cap)).all()
    fastest = np.zeros(len(capacity))
    np.maximum.at(fastest, found.links, np.repeat(finite, np.diff(found.start)))
    for flow in np.flatnonzero(rates < cap):
        links = found.links[found.start[flow] : found.start[flow + 1]]
        assert ((taken[links] >= capacity[links] - CLOSE) & (rates[flow] >= fastest[links] - CLOSE)).any()


def filled_slowly(capacity, found, cap):
    """Return max-min rates as the text books do: all rise, and stop with the first link or cap that is reached."""
    paths = [found.links[a:b].tolist() for a, b in zip(found.start[:-1], found.start[1:], strict=True)]
    rates, rising = [0.0] * len(cap), set(range(len(cap)))
    while rising:
        over = [[flow for flow in rising if link in paths[flow]] for link in range(len(capacity))]
        left = [capacity[n] - sum(rates[f] for f, path in enumerate(paths) if n in path) for n in range(len(capacity))]
        grows = [max(left[n], 0) / len(flows) for n, flows in enumerate(over) if flows]
        step = min(grows + [cap[flow] - rates[flow] for flow in rising])
        full = {n for n, flows in enumerate(over) if flows and left[n] / len(flows) <= step + CLOSE}
        for flow in rising:
            rates[flow] += step
        rising = {flow for flow in rising if rates[flow] < cap[flow] - CLOSE and not full & set(paths[flow])}
    return rates


@settings(max_examples=50, deadline=None)
@given(networks())
def test_rates_are_those_of_progressive_filling(network):
    capacity, found, cap = network
    assert max_min(capacity, *found, cap) == pytest.approx(filled_slowly(capacity, found, cap), abs=1e-7)


def test_what_slow_flows_leave_goes_to_the_others():
    assert shared([10], [INFINITE] * 4, [0], [0], [0], [0]) == [2.5] * 4
    assert shared([10], [1, 4, INFINITE], [0], [0], [0]) == [1, 4, 5]
    assert shared([10, 4], [INFINITE] * 3, [0, 1], [1], [0]) == [2, 2, 8]  # the second link holds the first flow back
    assert shared([6, 10, 9], [INFINITE] * 4, [0, 1], [0], [1, 2], [2]) == [3, 3, 4.5, 4.5]


def test_flows_on_one_node_get_their_caps():
    assert shared([10], [34, INFINITE, 20], [], [], [0]) == [34, INFINITE, 10]


def test_links_without_limit_limit_nobody():
    assert shared([INFINITE, 8], [INFINITE, 5, INFINITE], [0], [0, 1], [1, 0]) == [INFINITE, 4, 4]


def test_a_broken_link_carries_nothing():
    assert shared([0, 10], [INFINITE, INFINITE], [0, 1], [1]) == [0, 10]


def test_what_is_no_number_is_refused():
    with pytest.raises(ValueError, match="not a number"):
        shared([float("nan")], [1], [0])


def test_no_flows_get_no_rates():
    assert shared([1, 2], []) == []


def test_flows_of_a_task_share_what_sends_for_it():
    """Two workers exchange with two servers over links that have room: 5.7 Gb/s a thread, two flows each."""
    topology = flat([50.0] * 4)
    found = topology.routes([0, 0, 1, 1], [2, 3, 2, 3], range(4))
    senders, gbps = np.array([[0, 2], [0, 3], [1, 2], [1, 3]]), np.array([5.7, 3.7, 20.0, 20.0])
    capacity, by_thread = with_senders(topology.capacity, found, senders, gbps)
    assert capacity.tolist() == [50.0] * 4 + gbps.tolist()
    assert by_thread.links[: by_thread.start[1]].tolist() == [0, 2, 4, 6]
    assert by_thread.links[by_thread.start[3] :].tolist() == [1, 3, 5, 7]
    rates = max_min(capacity, *by_thread, np.full(4, INFINITE))
    assert rates == pytest.approx([2.85, 2.85, 1.85, 1.85])
    assert rates * MB_A_SECOND == pytest.approx([356.25, 356.25, 231.25, 231.25])


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(networks(), st.randoms(use_true_random=False))
def test_a_change_alters_no_rates_but_of_those_it_touches(network, random):
    """Before it some flows are not there yet, after it others are gone."""
    capacity, found, cap = network
    flows = np.arange(len(cap))
    new, gone = ({flow for flow in flows if random.random() < 0.1} for _ in range(2))
    before, after = (np.array([f for f in flows if f not in without], dtype=np.int64) for without in (new, gone))
    was, now = (np.zeros(len(cap)), np.zeros(len(cap)))
    was[before] = max_min(capacity, *only(*found, before), cap[before])
    now[after] = max_min(capacity, *only(*found, after), cap[after])
    reached = touched(capacity, *found, cap, np.isin(flows, sorted(new | gone)))
    assert reached[sorted(new | gone)].all()
    stayed = ~reached
    assert np.array_equal(np.isinf(was[stayed]), np.isinf(now[stayed]))
    assert was[stayed] == pytest.approx(now[stayed])
    again = np.array([flow for flow in after if reached[flow]], dtype=np.int64)
    assert max_min(capacity, *only(*found, again), cap[again]) == pytest.approx(now[again])


def test_a_link_with_room_for_all_passes_no_change_on():
    capacity, found = np.array([10.0, 10.0]), routes([0], [0, 1], [1])
    changed = np.array([True, False, False])
    assert touched(capacity, *found, np.array([6.0, 6.0, 3.0]), changed).tolist() == [True, True, False]
    assert touched(capacity, *found, np.array([6.0, 6.0, 6.0]), changed).tolist() == [True, True, True]
    assert touched(capacity, *found, np.array([4.0, 6.0, 6.0]), changed).tolist() == [True, False, False]
