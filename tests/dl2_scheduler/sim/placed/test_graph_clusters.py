"""The graph scheduler's clusters have the servers that its paper states, and jobs come to each partition."""

from collections import Counter

import numpy as np
import pytest

from dl2_scheduler.policies.placement.balance import BestFit
from dl2_scheduler.policies.placement.greedy_fill import GreedyFill
from dl2_scheduler.policies.rules.fixed_demand import FixedDemand
from dl2_scheduler.sim.placed.formula.clusters import NetworkType, ServerType, graph_machines, graph_topology
from dl2_scheduler.sim.placed.scenario import Scenario
from dl2_scheduler.sim.placed.workloads import Workload


@pytest.mark.parametrize(
    ("network", "servers", "partitions", "small_servers", "small_partitions"),
    [(NetworkType.FAT_TREE, 2000, 20, 40, 2), (NetworkType.VL2, 2000, 20, 40, 4), (NetworkType.BCUBE, 1296, 18, 64, 2)],
)
def test_networks_have_the_papers_size_or_a_small_one(network, servers, partitions, small_servers, small_partitions):
    for small, size in ((False, (servers, partitions)), (True, (small_servers, small_partitions))):
        topology = graph_topology(network, small)
        each = np.bincount(topology.partition_of)
        assert (len(topology.partition_of), topology.partitions) == size
        assert (each == each[0]).all()


@pytest.mark.parametrize("network", NetworkType)
def test_links_above_the_servers_are_oversubscribed(network):
    plain, less = (graph_topology(network, oversubscription=factor) for factor in (1.0, 8.0))
    assert less.capacity == pytest.approx(np.where(plain.tier == 0, plain.capacity, plain.capacity / 8))


@pytest.mark.parametrize(
    ("servers", "gpus", "cores"),
    [(ServerType.DEFAULT, [2, 2], [8, 8]), (ServerType.WIDE, [4, 4], [16, 16]), (ServerType.UNEVEN, [4, 2], [16, 8])],
)
def test_servers_are_of_the_papers_types(servers, gpus, cores):
    machines = graph_machines(servers, graph_topology(NetworkType.VL2, small=True))
    for node in machines.nodes:
        assert [socket.gpus for socket in node.sockets] == gpus
        assert [socket.cores for socket in node.sockets] == cores
        assert node.nic_gbps == 1.0


def test_every_partition_of_a_mixed_cluster_has_the_same_mix():
    topology = graph_topology(NetworkType.FAT_TREE)
    machines, again, other = (graph_machines(ServerType.MIXED, topology, seed) for seed in (0, 0, 1))
    assert machines == again != other
    for partition in range(20):
        nodes = np.flatnonzero(topology.partition_of == partition)
        gpus = Counter(sum(socket.gpus for socket in machines.nodes[node].sockets) for node in nodes)
        assert gpus == {2: 20, 4: 40, 8: 40}


@pytest.mark.parametrize("pattern", ["uniform", "poisson", "google"])
def test_jobs_come_to_each_partition_at_the_papers_rate(pattern):
    workload = Scenario.graph(pattern=pattern).workload
    jobs = Workload(workload.profiles, 1800.0, 400, 15.0, pattern, 4, partitions=3).draw(1, lambda *_: 1.0)
    assert Counter(job.partition for job in jobs) == {0: 400, 1: 400, 2: 400}
    assert (workload.mean, workload.partitions, workload.most, workload.interval_seconds) == (15.0, 20, 4, 1800.0)
    assert [job.id for job in jobs] == list(range(1200))
    intervals = np.array([job.arrival for job in jobs]) / 1800
    assert (intervals == np.sort(intervals)).all()
    assert (intervals % 1 == 0).all()
    assert 400 / (intervals.max() + 1) == pytest.approx(15, rel=0.25)
    assert {job.max_workers for job in jobs} == {1, 2, 3, 4}
    assert {job.model for job in jobs} == set(workload.profiles)


@pytest.mark.parametrize("network", NetworkType)
def test_jobs_of_a_small_cluster_run_to_their_ends(network):
    scenario = Scenario.graph(network, ServerType.MIXED, small=True, oversubscription=4.0)
    jobs = scenario.jobs(seed=0)[:30]
    times = scenario.completion_times(FixedDemand(), GreedyFill(BestFit(), skipping=True), jobs)
    assert (times > 0).all()
    assert np.isfinite(times).all()
