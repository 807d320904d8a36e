"""A cluster of live jobs: one scaling from command to committed, split in its parts; memory over many slots.

    python -m benchmarks.cluster [--rounds 10] [--slots 1000]

Local part: `dl2 serve` on this machine with the digits example. Command is what `dl2 scale` takes to start and to
speak; request is from there to the coordinator's plan; then the plan's own steps, of which registration stands without
the start of new processes (importing MXNet, for a worker). Memory: a policy that changes the job's servers every 20
slots of 250 ms. Nothing is isolated in either, so what else runs on the machine is in the numbers.
"""

import argparse
import sys

from benchmarks.cluster_local import memory, memory_goals, scalings
from benchmarks.report import finish


def main() -> int:
    """Measure, print, write build/bench/cluster.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10, help="in which each change happens twice (default 10)")
    parser.add_argument("--slots", type=int, default=1000, help="in which memory is watched (default 1000)")
    options = parser.parse_args()
    rows = scalings(options.rounds)
    sizes = memory(options.slots)
    return finish("cluster", [*rows, *sizes], memory_goals(sizes), packages=("mxnet", "grpcio"))


if __name__ == "__main__":
    sys.exit(main())
