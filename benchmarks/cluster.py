"""A cluster of live jobs: one scaling from command to committed, split in its parts; memory over many slots.

    python -m benchmarks.cluster [--rounds 10] [--slots 1000]

Local part: `dl2 serve` on this machine with the digits example. Command is what `dl2 scale` takes to start and to
speak; request is from there to the coordinator's plan; then the plan's own steps, of which registration stands without
the start of new processes (importing MXNet, for a worker). Memory: a policy that changes the job's servers every 20
slots of 250 ms. Nothing is isolated in either, so what else runs on the machine is in the numbers.

On Kubernetes: one scaling of pods (benchmarks/cluster_pods.py), and what a slot costs with many nodes and jobs
(benchmarks/cluster_kube.py). The cluster is that of KUBECONFIG; else ../shared/tools/kube starts one, and stops it. The
definition of ElasticJobs is brought along where there is none. What a cluster cannot do is left out, and said.
"""

import argparse
import signal
import sys
from typing import Any

from benchmarks import cluster_kube, cluster_pods
from benchmarks.support.cluster_local import memory, memory_goals, scalings
from benchmarks.support.report import BenchmarkGoal, as_program, finish
from tests.kube import kube_cluster
from tests.kube.kube_release import definition

KUBE_NODES, KUBE_JOBS, KUBE_SLOTS = 1000, 500, 1000


def main() -> int:
    """Measure, print, write build/bench/cluster.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10, help="in which each change happens twice (default 10)")
    parser.add_argument("--slots", type=int, default=1000, help="in which memory is watched (default 1000)")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # jobs are ended then too
    rows = scalings(options.rounds)
    sizes = memory(options.slots)
    on_kubernetes, goals = _on_kubernetes(options.rounds)
    return finish(
        "cluster",
        [*rows, *sizes, *on_kubernetes],
        [*memory_goals(sizes), *goals],
        packages=("mxnet", "grpcio", "kubernetes"),
    )


def _on_kubernetes(rounds: int) -> tuple[list[dict[str, Any]], list[BenchmarkGoal]]:
    """Measure on Kubernetes, where there is a cluster."""
    try:
        cluster = kube_cluster.find()
    except kube_cluster.NoCluster as error:
        _left_out("Kubernetes", str(error))
        return [], []
    try:
        if others := _acting(cluster):
            _left_out("Kubernetes", f"{others} would act on the benchmark's jobs: uninstall that release first")
            return [], []
        with definition(cluster):
            rows = _pods(cluster, rounds)
            slots, goals = _slots(cluster)
            return [*rows, *slots], goals
    finally:
        cluster.stop()


def _pods(cluster: kube_cluster.Cluster, rounds: int) -> list[dict[str, Any]]:
    if not cluster.ours:
        _left_out("a scaling of pods", f"they mount this checkout, so nodes must be those of {kube_cluster.TOOL}")
        return []
    return cluster_pods.measured(cluster, rounds)


def _slots(cluster: kube_cluster.Cluster) -> tuple[list[dict[str, Any]], list[BenchmarkGoal]]:
    nodes = cluster.get("nodes")["items"]
    if not any("kwok.x-k8s.io/node" in node["metadata"].get("annotations", {}) for node in nodes):
        _left_out("a slot with many nodes", "no node of the cluster is a fake one, of kwok")
        return [], []
    return cluster_kube.measured(KUBE_NODES, KUBE_JOBS, KUBE_SLOTS)


def _acting(cluster: kube_cluster.Cluster) -> str:
    """Return the pods of operators and schedulers of ours that are there already."""
    selector = "app.kubernetes.io/component in (dl2-operator, dl2-scheduler)"
    found = cluster.get("pods", "--all-namespaces", "-l", selector)["items"]
    return ", ".join(f"{pod['metadata']['namespace']}/{pod['metadata']['name']}" for pod in found)


def _left_out(what: str, why: str) -> None:
    print(f"left out: {what}: {why}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    as_program(main)
