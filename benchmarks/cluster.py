"""A cluster of live jobs: one scaling from command to committed, split in its parts; memory over many slots.

    python -m benchmarks.cluster [--rounds 10] [--slots 1000]
    KUBECONFIG=... python -m benchmarks.cluster     # and a slot on that API server, see benchmarks/cluster_kube.py

Local part: `dl2 serve` on this machine with the digits example. Command is what `dl2 scale` takes to start and to
speak; request is from there to the coordinator's plan; then the plan's own steps, of which registration stands without
the start of new processes (importing MXNet, for a worker). Memory: a policy that changes the job's servers every 20
slots of 250 ms. Nothing is isolated in either, so what else runs on the machine is in the numbers.
"""

import argparse
import os
import signal
import sys
from typing import Any

from benchmarks import cluster_kube
from benchmarks.cluster_local import memory, memory_goals, scalings
from benchmarks.report import Goal, finish

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
    on_kubernetes, goals = _on_kubernetes()
    return finish(
        "cluster",
        [*rows, *sizes, *on_kubernetes],
        [*memory_goals(sizes), *goals],
        packages=("mxnet", "grpcio", "kubernetes"),
    )


def _on_kubernetes() -> tuple[list[dict[str, Any]], list[Goal]]:
    """Where there is a cluster."""
    if not os.environ.get("KUBECONFIG"):
        print("the Kubernetes part is left out: KUBECONFIG names no cluster", file=sys.stderr)
        return [], []
    return cluster_kube.measured(KUBE_NODES, KUBE_JOBS, KUBE_SLOTS)


if __name__ == "__main__":
    sys.exit(main())
