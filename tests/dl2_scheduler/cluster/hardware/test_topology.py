"""Topologies have the counts of the papers, and routes that are shortest, without loops, and always the same."""

from collections import Counter, deque

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.hardware.machines import GRAPH, HARMONY, Machines
from dl2_scheduler.cluster.hardware.topologies.bcube import bcube
from dl2_scheduler.cluster.hardware.topologies.fat_tree import fat_tree
from dl2_scheduler.cluster.hardware.topologies.flat import flat, flat_of
from dl2_scheduler.cluster.hardware.topologies.vl2 import vl2

SMALL = {
    "flat": flat([10.0] * 5),
    "fat-tree 4": fat_tree(4),
    "fat-tree 6": fat_tree(6, seed=3),
    "fat-tree in part": fat_tree(6, pods=2, rack=5),
    "vl2 4": vl2(4, rack=3),
    "vl2 8": vl2(8, rack=2, seed=5),
    "bcube 2": bcube(2),
    "bcube 3": bcube(3, gbps=(10.0, 20.0, 40.0)),
}


def nodes_of(topology):
    return len(topology.partition_of)


def walked(topology, at, links):
    """Return the vertices along links, which have to hang together."""
    vertices = [at]
    for a, b in topology.ends[links].tolist():
        assert at in (a, b)
        at = b if at == a else a
        vertices.append(at)
    return vertices


def distances(topology, source):
    """Return the links from a vertex to every other one, by breadth-first search."""
    beside = {}
    for a, b in topology.ends.tolist():
        beside.setdefault(a, []).append(b)
        beside.setdefault(b, []).append(a)
    found, waiting = {source: 0}, deque([source])
    while waiting:
        at = waiting.popleft()
        for other in beside[at]:
            if other not in found:
                found[other] = found[at] + 1
                waiting.append(other)
    return found


@pytest.mark.parametrize(
    ("topology", "nodes", "switches", "links", "partitions"),
    [
        (fat_tree(20), 2000, 200 + 200 + 100, {10.0: 2000, 20.0: 2000, 40.0: 2000}, 20),
        (fat_tree(10, pods=2, rack=4), 40, 10 + 10 + 25, {10.0: 40, 20.0: 50, 40.0: 50}, 2),
        (vl2(20), 2000, 100 + 20 + 10, {1.0: 2000, 10.0: 200 + 200}, 20),
        (bcube(6), 1296, 4 * 216, {10.0: 2 * 1296, 20.0: 1296, 40.0: 1296}, 18),
        (flat([50.0] * 6), 6, 1, {50.0: 6}, 1),
    ],
)
def test_counts_are_the_papers(topology, nodes, switches, links, partitions):
    assert nodes_of(topology) == nodes
    assert set(topology.ends.ravel().tolist()) == set(range(nodes + switches))
    assert Counter(topology.capacity.tolist()) == links
    sizes = Counter(topology.partition_of.tolist())
    assert topology.partitions == partitions == len(sizes)
    assert set(sizes.values()) == {nodes // partitions}


def test_ports_of_switches_are_used_up():
    """All 20 ports of a fat-tree's switches, and of VL2's aggregation and intermediate ones; 6 of BCube's."""
    for topology, ports in ((fat_tree(20), {20}), (vl2(20), {20, 22}), (bcube(6), {6})):
        counts = np.bincount(topology.ends.ravel())[nodes_of(topology) :]
        assert set(counts.tolist()) == ports  # a rack of VL2 has 20 nodes and 2 links up


@pytest.mark.parametrize("name", SMALL)
def test_routes_are_shortest_and_without_loops(name):
    topology = SMALL[name]
    nodes = nodes_of(topology)
    for a in range(nodes):
        away = distances(topology, a)
        for b in range(a, nodes):
            vertices = walked(topology, a, topology.route(a, b, flow=7))
            assert vertices[-1] == b
            assert len(vertices) == len(set(vertices)) == away[b] + 1
            assert len(vertices) <= topology.longest + 1


@settings(max_examples=200, deadline=None)
@given(st.sampled_from([fat_tree(20), vl2(20), bcube(6)]), st.data())
def test_routes_of_large_clusters_join_their_nodes(topology, data):
    node = st.integers(0, nodes_of(topology) - 1)
    a, b, flow = data.draw(node), data.draw(node), data.draw(st.integers(0, 2**40))
    links = topology.route(a, b, flow)
    assert walked(topology, min(a, b), links)[-1] == max(a, b)
    assert len(set(links.tolist())) == len(links) <= topology.longest


@pytest.mark.parametrize("name", SMALL)
def test_a_flow_always_routes_alike(name):
    topology = SMALL[name]
    a, b, flow = np.random.default_rng(0).integers(0, nodes_of(topology), (3, 200))
    start, links = topology.routes(a, b, flow)
    assert np.array_equal(topology.routes(b, a, flow).links, links)  # a link is full duplex: the way back is the way
    for pair in range(200):
        assert np.array_equal(links[start[pair] : start[pair + 1]], topology.route(a[pair], b[pair], flow[pair]))
        assert (start[pair] == start[pair + 1]) == (a[pair] == b[pair])


@pytest.mark.parametrize(
    ("build", "paths"), [(fat_tree, 100), (vl2, 2 * 10 * 2), (bcube, 4 * 3 * 2)], ids=["fat-tree", "vl2", "bcube"]
)
def test_flows_choose_evenly_among_equally_short_paths(build, paths):
    """Nodes of the first and the last partition differ in all digits, too."""
    topology, flows = build(seed=2), np.arange(20_000)
    last = np.full(len(flows), nodes_of(topology) - 1)
    rows = topology.routes(last * 0, last, flows).links.reshape(len(flows), topology.longest)
    counts = np.unique(rows, axis=0, return_counts=True)[1]
    expected = len(flows) / paths
    assert len(counts) == paths
    assert ((counts - expected) ** 2 / expected).sum() < paths + 4 * (2 * paths) ** 0.5  # chi squared
    other = build(seed=3).routes(last * 0, last, flows).links.reshape(rows.shape)
    assert (rows == other).all(axis=1).mean() < 2 / paths + 0.01


def test_racks_of_a_partition_are_joined_over_its_switch_alone():
    """So 20 Gb/s come down to a rack of VL2 and 10 go up to the others of its partition."""
    topology = vl2(20)
    over = {tuple(topology.route(0, 99, flow).tolist()) for flow in range(50)}
    assert len(over) == 1
    assert topology.capacity[list(over.pop())].tolist() == [1, 10, 10, 1]


@pytest.mark.parametrize("factor", [1, 4, 8])
def test_oversubscription_divides_what_lies_above_the_edge(factor):
    for build in (fat_tree, vl2, bcube):
        plain, thin = build(), build(oversubscription=factor)
        edge = plain.tier == 0
        assert np.array_equal(thin.capacity[edge], plain.capacity[edge])
        assert np.array_equal(thin.capacity[~edge] * factor, plain.capacity[~edge])
        assert np.array_equal(thin.route(0, 999, 1), plain.route(0, 999, 1))


def test_nodes_around_a_switch_have_their_own_links():
    topology = flat_of(Machines((HARMONY, GRAPH, HARMONY)))
    assert topology.capacity.tolist() == [50.0, 10.0, 50.0]
    assert [topology.route(a, b).tolist() for a, b in ((0, 1), (2, 0), (1, 1))] == [[0, 1], [0, 2], []]


@pytest.mark.parametrize(
    "build",
    [
        lambda: fat_tree(5),
        lambda: fat_tree(4, pods=5),
        lambda: fat_tree(4, rack=0),
        lambda: vl2(6),
        lambda: bcube(1),
        lambda: bcube(3, gbps=()),
    ],
)
def test_sizes_that_no_such_network_has_are_refused(build):
    with pytest.raises(BadInput, match="give"):
        build()
