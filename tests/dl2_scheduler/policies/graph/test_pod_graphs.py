"""Graphs of clusters: the counts that the paper's topologies give, and what edges tell."""

import numpy as np
import pytest

from dl2_scheduler.policies.learnt.graph.pod_graphs import GROUP, PROCESSOR, SWITCH, cluster_graphs
from dl2_scheduler.sim.placed.formula.clusters import NetworkType, ServerType, graph_machines, graph_topology


def graphs(network: NetworkType, servers: ServerType = ServerType.DEFAULT, small: bool = True, over: float = 1.0):
    topology = graph_topology(network, small, over)
    return cluster_graphs(graph_machines(servers, topology), topology), topology


def test_the_papers_pod_has_411_vertices():
    """100 servers of two processors and two groups, 10 edge switches, one fused aggregation switch."""
    found, _ = graphs(NetworkType.FAT_TREE, small=False)
    assert len(found.pods) == 20
    assert {len(pod.kinds) for pod in found.pods} == {411}
    assert len(found.between.edges.start) - 1 == 20 + 100
    assert len(found.between.edges.source) == 2 * 20 * 100


@pytest.mark.parametrize(
    ("network", "pods", "groups", "switches", "between"),
    [
        (NetworkType.FAT_TREE, 2, 40, 5 + 1, 2 + 25),
        (NetworkType.VL2, 4, 20, 1, 4 + 4),
        (NetworkType.BCUBE, 2, 64, 8 + 8, 2 + 16),
    ],
)
def test_counts_of_small_clusters(network, pods, groups, switches, between):
    found, topology = graphs(network)
    assert len(found.pods) == pods == topology.partitions
    for pod in found.pods:
        assert np.bincount(pod.kinds).tolist() == [groups, groups, switches]
        assert (pod.kinds[:groups] == GROUP).all()
        assert set(pod.kinds[groups : 2 * groups]) == {PROCESSOR}
        assert set(pod.kinds[2 * groups :]) == {SWITCH}
        assert (found.place[pod.groups] == np.arange(groups)).all()
    assert len(found.between.edges.start) - 1 == between
    assert found.first[-1] == sum(len(pod.kinds) for pod in found.pods)


@pytest.mark.parametrize("network", NetworkType)
def test_every_edge_goes_both_ways(network):
    found, _ = graphs(network)
    for graph in (*found.pods, found.between):
        pairs = list(zip(graph.edges.source.tolist(), graph.edges.target.tolist(), strict=True))
        assert len(set(pairs)) == len(pairs)
        assert {(b, a) for a, b in pairs} == set(pairs)


def test_parallel_links_are_one_with_their_sum():
    found, topology = graphs(NetworkType.FAT_TREE, over=4.0)
    pod = found.pods[0]
    edge_to_fused = (pod.edges.target == 85) & (pod.edges.source >= 80)
    assert edge_to_fused.sum() == 5
    assert pod.gbps[edge_to_fused] == pytest.approx(5 * 20.0 / 4)
    links = pod.links[edge_to_fused][0]
    assert (topology.tier[links[links >= 0]] == 1).all()


def test_numbers_tell_bandwidth_load_and_tier():
    found, topology = graphs(NetworkType.FAT_TREE)
    pod = found.pods[1]
    flows, used = np.zeros(len(topology.capacity)), np.zeros(80)
    nic = int(np.flatnonzero(topology.ends[:, 0] == 20)[0])  # of the first node of the second pod
    flows[nic], used[pod.groups[0]] = 4, 0.5
    before, after = pod.numbers(np.zeros_like(flows), np.zeros(80)), pod.numbers(flows, used)
    changed = np.flatnonzero((before != after).any(axis=1))
    assert (before[:, [0, 2]] == after[:, [0, 2]]).all()
    ends = {frozenset((int(pod.edges.source[e]), int(pod.edges.target[e]))): float(after[e, 1]) for e in changed}
    assert ends == {
        frozenset((0, 40)): 0.5,
        frozenset((40, 80)): pytest.approx(0.2),
        frozenset((41, 80)): pytest.approx(0.2),
    }


def test_mixed_servers_have_graphs_too():
    found, _ = graphs(NetworkType.FAT_TREE, ServerType.MIXED)
    assert [len(pod.groups) for pod in found.pods] == [36, 36]
