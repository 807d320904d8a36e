"""This benchmark tells what a slot costs on a real API server, with 500 jobs on 1,000 fake nodes.

    KUBECONFIG=... python -m benchmarks.cluster_kube [--nodes N] [--jobs N] [--slots N]

The cluster needs kwok (../shared/tools/kube/kube up --fake-nodes 1) and the ElasticJob definition, which
`python -m benchmarks.cluster` brings along:

    helm template dl2 k8s/chart --no-hooks --kube-version 1.34 -s templates/crd.yaml | kubectl apply -f -

The scheduler runs in this process as in `dl2 serve --kube`: watches, binder, lease, loop, history; the operator's part
is played: three pods of each job, and its status. A job tells of its last ten decisions, as one does that has been
scaled for long. A slot is from the snapshot to the last write, with the policy compiled before. The first slot writes
every job, and so do three later ones, in which DRF's counts and the jobs' minima take turns; in three more that is so
of a tenth of them. In the steady state nothing changes but the jobs' epochs, which the played operator tells. Requests
are those of the scheduler, watches and lease included; processor time is this process's in the slot, its watches' and
binder's too. Nodes and namespace are removed at the end.
"""

import argparse
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.support.cluster_world import MOST, CountedApi, World, until
from benchmarks.support.report import BenchmarkGoal, as_program, at_most, finish, under
from dl2_scheduler.backends.clock import SystemClock
from dl2_scheduler.backends.kube.apiserver.informers import Informers
from dl2_scheduler.backends.kube.apiserver.objects import NodeInfo
from dl2_scheduler.backends.kube.apiserver.paced_writes import PacedWriter
from dl2_scheduler.backends.kube.cluster import KubernetesCluster
from dl2_scheduler.backends.kube.placement.binder import Binder
from dl2_scheduler.backends.kube.scheduler_memory import SchedulerMemory
from dl2_scheduler.cluster.free_resources import FreeResources, NodeRule
from dl2_scheduler.cluster.interfaces import AllocationPolicy
from dl2_scheduler.cluster.jobs import Job, Node
from dl2_scheduler.cluster.snapshot import Allocation, Grant, JobId, JobState, Snapshot
from dl2_scheduler.commands.cluster.serving.driving import BASELINE
from dl2_scheduler.live.history import History
from dl2_scheduler.live.policies import Policies
from dl2_scheduler.live.slot_loop import SlotLoop
from dl2_scheduler.policies.registry import make_live_policy
from k8s.foundation.api_server import KubeApi
from k8s.foundation.lease import Lease

PACKAGES = ("kubernetes", "numpy")

_ROUNDS = 3
_STEADY_SECONDS = 30.0
_BETWEEN_SECONDS = 10.0  # slots are 30 s apart or more, in which writes are allowed anew (see `WritePace`)
_WAIT_SECONDS = 300.0
_MIB = 2**20


class _Timed(KubernetesCluster):
    """Tells what a slot took, from its snapshot to its last write.

    Attributes:
        seconds: of the last slot.
        cpu_seconds: of this process meanwhile.
    """

    seconds = cpu_seconds = 0.0
    _began = _cpu_began = 0.0

    def snapshot(self) -> Snapshot:
        """See `Cluster.snapshot`."""
        self._began, self._cpu_began = time.perf_counter(), time.process_time()
        return super().snapshot()

    def apply(self, allocation: Allocation) -> None:
        """See `Cluster.apply`."""
        super().apply(allocation)
        self.seconds = time.perf_counter() - self._began
        self.cpu_seconds = time.process_time() - self._cpu_began


class _Shifting:
    """DRF, but some jobs have their minimum.

    Attributes:
        least: those.
    """

    def __init__(self) -> None:
        self.least: frozenset[JobId] = frozenset()
        self._drf = make_live_policy(BASELINE)

    def allocate(self, snapshot: Snapshot, room: FreeResources) -> Allocation:
        """See `AllocationPolicy.allocate`."""
        grants = self._drf.allocate(snapshot, room).grants
        return Allocation({job: Grant(1, 1) if job in self.least else grant for job, grant in grants.items()})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--slots", type=int, default=1000, help="over which memory is watched")
    arguments = parser.parse_args()
    return finish("cluster_kube", *measured(arguments.nodes, arguments.jobs, arguments.slots), PACKAGES)


def measured(nodes: int, jobs: int, slots: int) -> tuple[list[dict[str, Any]], list[BenchmarkGoal]]:
    """Return what the benchmark writes; the cluster is as before in the end.

    Args:
        nodes: fake.
        jobs: of three pods each.
        slots: over which memory is watched.
    """
    world = World(nodes, jobs)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # nodes are removed then too
    _compile()
    try:
        world.make()
        with tempfile.TemporaryDirectory() as folder:
            rows, found = _measured(world, Path(folder), slots)
    finally:
        world.remove()
    goals = [
        under("the first slot: every job is decided about and written", 2.0, found["first"], "s"),
        under("a slot that writes every job", 2.0, found["all"], "s"),
        under("a slot that writes a tenth of the jobs", 2.0, found["tenth"], "s"),
        under("a slot in which nothing changes", 2.0, found["steady"], "s"),
        under("requests a second in the steady state", 20.0, found["requests"], "requests/s"),
        at_most("growth of memory over the slots watched", 2.0, found["growth"], "%"),
    ]
    return rows, goals


def _compile() -> None:
    job = Job("a", 0.0, "m", 1.0, 1.0, {"cpu": 1.0}, {"cpu": 1.0}, max_workers=2, max_servers=2)
    snapshot = Snapshot(0, 1.0, (Node("a", {"cpu": 8.0}),), (JobState(job),))
    make_live_policy(BASELINE).allocate(snapshot, FreeResources(snapshot))


@contextmanager
def _scheduler(
    world: World, folder: Path, api: KubeApi, policy: AllocationPolicy
) -> Iterator[tuple[_Timed, SlotLoop, Informers]]:
    clock, woken = SystemClock(), threading.Event()
    lease = Lease(api, world.name, "dl2-scheduler", "bench", lost=lambda: None)
    if not lease.acquire(threading.Event()):
        raise SystemExit("the lease could not be had")
    writer = PacedWriter(api, lambda: lease.held)
    informers = Informers(api, [world.name], woken.set, clock.wake)
    binder = Binder(informers, writer, NodeRule.SPREAD, [world.name], woken)
    with (
        closing(SchedulerMemory(folder / "kube.sqlite", clock.now())) as memory,
        closing(History(folder / "h.sqlite")) as history,
    ):
        cluster = _Timed(informers, api, writer, memory, 0.001, clock)
        loop = SlotLoop(cluster, Policies(lambda _: policy, BASELINE, folder, "drf"), NodeRule.SPREAD, history)
        informers.start(_WAIT_SECONDS)
        binder.start()
        try:
            yield cluster, loop, informers
        finally:
            binder.stop()
            informers.stop()
            lease.release()


def _measured(world: World, folder: Path, slots: int) -> tuple[list[dict[str, Any]], dict[str, float]]:
    api, policy = CountedApi(), _Shifting()
    everybody = frozenset(f"{world.name}/{name}" for name in world.jobs)
    policy.least = everybody  # a slot may start 1,000 tasks
    began = time.perf_counter()
    with _scheduler(world, folder, api, policy) as (cluster, loop, informers):
        rows = [_row("listing all", time.perf_counter() - began, requests=api.requests)]
        until(lambda: sum(map(_is_open, informers.nodes())) >= len(world.nodes), "all nodes are ready")
        loop.slot()
        found = {"first": cluster.seconds}
        rows.append(_row("first slot", cluster.seconds, cluster.cpu_seconds, len(world.jobs)))
        rows.append(_gangs(world, informers, api))
        world.follow(world.jobs, 1, informers)
        for what, stride in (("all", 1), ("tenth", 10)):
            found[what], row = _written(world, (cluster, loop, informers), policy, stride)
            rows.append(row)
        policy.least = frozenset()
        loop.slot()
        world.follow(world.jobs, MOST, informers)
        found["steady"], steady = _steady(world, cluster, loop, api)
        found["requests"] = steady[-1]["requests"] / _STEADY_SECONDS
        found["growth"], rss = _memory(loop, slots)
        rows += [*steady, {**_row(f"{slots} slots"), "MiB": rss}]
    return rows, found


def _is_open(node: NodeInfo) -> bool:
    """Return whether a new node can be used: it keeps the taint not-ready for a while after it is ready."""
    return node.ready and not any(taint.key.startswith("node.kubernetes.io/") for taint in node.taints)


def _row(
    what: str, seconds: float | None = None, cpu_seconds: float | None = None, requests: int | None = None
) -> dict[str, Any]:
    row = {"what": what, "seconds": seconds, "cpu_seconds": cpu_seconds, "requests": requests, "MiB": _rss() / _MIB}
    print(", ".join(f"{key} {value}" for key, value in row.items() if value is not None), file=sys.stderr, flush=True)
    return row


def _gangs(world: World, informers: Informers, api: KubeApi) -> dict[str, Any]:
    before, began = api.requests, time.perf_counter()
    world.each(world.add_pods, world.jobs)
    made = time.perf_counter() - began
    until(lambda: _bound(informers, world) == 3 * len(world.jobs), "all pods are bound")
    what = f"gangs bound; their pods took {made:.1f} s to make"
    return _row(what, time.perf_counter() - began, requests=api.requests - before)


def _written(
    world: World, scheduler: tuple[_Timed, SlotLoop, Informers], policy: _Shifting, stride: int
) -> tuple[float, dict[str, Any]]:
    """Return the medians of slots in which every so manieth job is given other counts."""
    cluster, loop, informers = scheduler
    names = world.jobs[::stride]
    ids = frozenset(f"{world.name}/{name}" for name in names)
    times = []
    for _ in range(_ROUNDS):
        time.sleep(_BETWEEN_SECONDS)
        count = MOST if ids <= policy.least else 1
        policy.least = policy.least - ids if count == MOST else policy.least | ids
        loop.slot()
        times.append((cluster.seconds, cluster.cpu_seconds))
        world.follow(names, count, informers)
    seconds, cpu_seconds = (median(each) for each in zip(*times, strict=True))
    return seconds, _row(f"slot that writes {len(names)} jobs, of {_ROUNDS}", seconds, cpu_seconds, len(names))


def _steady(world: World, cluster: _Timed, loop: SlotLoop, api: CountedApi) -> tuple[float, list[dict[str, Any]]]:
    """Return the median seconds of a slot while the operator tells of progress, and rows of it and of all requests."""
    times, before, began = [], api.requests, time.perf_counter()
    told = 0
    while time.perf_counter() - began < _STEADY_SECONDS:
        told += 1
        world.each(partial(world.tell, epoch=0.2 + told / 1000), world.jobs[told % 5 :: 5])
        loop.slot()
        times.append((cluster.seconds, cluster.cpu_seconds))
        time.sleep(max(0.0, 2.0 * told - (time.perf_counter() - began)))  # a slot every two seconds
    seconds, cpu_seconds = (median(each) for each in zip(*times, strict=True))
    requests = api.requests - before
    what = f"steady state, {_STEADY_SECONDS:g} s: {api.kinds(before)}"
    return seconds, [_row("steady slot", seconds, cpu_seconds), _row(what, requests=requests)]


def _memory(loop: SlotLoop, slots: int) -> tuple[float, float]:
    """Return by how many percent memory grows from a third of the slots to the last, and how much is held then."""
    early = 0.0
    for number in range(slots):
        loop.slot()
        if number == slots // 3:
            early = _rss()
    return 100 * (_rss() - early) / early, _rss() / _MIB


def _bound(informers: Informers, world: World) -> int:
    return sum(bool(pod.node) for pod in informers.pods() if pod.namespace == world.name)


def _rss() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * float(next(line.split()[1] for line in lines if line.startswith("VmRSS")))


if __name__ == "__main__":
    as_program(main)
