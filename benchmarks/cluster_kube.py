"""What a slot costs on a real API server, with 500 jobs on 1,000 fake nodes.

    KUBECONFIG=... python -m benchmarks.cluster_kube [--nodes N] [--jobs N] [--slots N]

The cluster needs kwok (../shared/tools/kube/kube up --fake-nodes 1) and the ElasticJob definition (k8s/chart/crds). The
scheduler runs in this process as in `dl2 serve --kube`: watches, binder, lease, loop, history; the operator's part is
played: three pods of each job, and its status. A slot is from the snapshot to the last write, with the policy compiled
before. The first one writes every job; in the steady state nothing changes but the jobs' epochs, which the played
operator tells. Requests are those of the scheduler, watches and lease included. Nodes and namespace are removed at the
end.
"""

import argparse
import signal
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.report import Goal, at_most, finish, under
from dl2_scheduler.backends.clock import SystemClock
from dl2_scheduler.backends.kube.api import ApiError, KubeApi
from dl2_scheduler.backends.kube.binder import Binder
from dl2_scheduler.backends.kube.cluster import KubernetesCluster
from dl2_scheduler.backends.kube.informers import Informers
from dl2_scheduler.backends.kube.lease import Election
from dl2_scheduler.backends.kube.memory import Memory
from dl2_scheduler.backends.kube.writes import Writer, job_path
from dl2_scheduler.cluster.jobs import Job, Node
from dl2_scheduler.cluster.room import NodeRule, Room
from dl2_scheduler.cluster.snapshot import Allocation, JobState, Snapshot
from dl2_scheduler.commands.driving import BASELINE
from dl2_scheduler.live.history import History
from dl2_scheduler.live.loop import Loop
from dl2_scheduler.live.policies import Policies
from dl2_scheduler.policies.registry import make_live_policy

PACKAGES = ("kubernetes", "numpy")

_THREADS = 12
_MOST = 2  # workers, and servers, of a job
_STEADY_SECONDS = 30.0
_WAIT_SECONDS = 300.0
_MIB = 2**20


class _Timed(KubernetesCluster):
    """Tells when a slot's decision has been written."""

    began = ended = 0.0

    def snapshot(self) -> Snapshot:
        """See `Cluster.snapshot`."""
        self.began = time.perf_counter()
        return super().snapshot()

    def apply(self, allocation: Allocation) -> None:
        """See `Cluster.apply`."""
        super().apply(allocation)
        self.ended = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Of the last slot, from its snapshot to its last write."""
        return self.ended - self.began


class World:
    """Nodes, jobs and what an operator does with them, by requests that are not the scheduler's."""

    def __init__(self, nodes: int, jobs: int):
        self.api = KubeApi()
        self.name = f"sched-bench-{uuid.uuid4().hex[:6]}"
        self.nodes = [f"{self.name}-{number}" for number in range(nodes)]
        self.jobs = [f"job-{number}" for number in range(jobs)]
        self._pool = ThreadPoolExecutor(_THREADS)

    def each(self, act: Callable[[str], object], names: Iterable[str]) -> None:
        """All at once, as far as threads go."""
        list(self._pool.map(act, names))

    def make(self) -> None:
        """Nodes and jobs."""
        self.api.create("/api/v1/namespaces", {"metadata": {"name": self.name}})
        self.each(self._node, self.nodes)
        self.each(self._job, self.jobs)

    def remove(self) -> None:
        """Everything again."""

        def drop(path: str) -> None:
            try:
                self.api.delete(path, {"gracePeriodSeconds": 0})
            except ApiError as error:
                print(f"{path}: {error}", file=sys.stderr)

        pods = self.api.get(f"/api/v1/namespaces/{self.name}/pods")["items"]
        self.each(drop, [f"/api/v1/namespaces/{self.name}/pods/{pod['metadata']['name']}" for pod in pods])
        self.each(drop, [job_path(self.name, name) for name in self.jobs])
        self.each(drop, [f"/api/v1/nodes/{name}" for name in self.nodes])
        drop(f"/api/v1/namespaces/{self.name}")

    def _node(self, name: str) -> None:
        amounts = {"cpu": "8", "memory": "64Gi", "pods": "110"}
        metadata = {"name": name, "labels": {"dl2-bench": self.name}, "annotations": {"kwok.x-k8s.io/node": "fake"}}
        taint = {"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}
        status = {"allocatable": amounts, "capacity": amounts}
        self.api.create("/api/v1/nodes", {"metadata": metadata, "spec": {"taints": [taint]}, "status": status})

    def _spec(self, cpu: str, **container: Any) -> dict[str, Any]:
        return {
            "nodeSelector": {"dl2-bench": self.name},
            "tolerations": [{"key": "kwok.x-k8s.io/node", "operator": "Exists"}],
            "containers": [{"name": "main", "image": "i", "resources": {"requests": {"cpu": cpu}}, **container}],
        }

    def _job(self, name: str) -> None:
        spec = {
            "modelType": f"type-{hash(name) % 8}",
            "epochs": 1000,
            "workers": {"max": _MOST, "template": {"spec": self._spec("2", command=["python"])}},
            "servers": {"max": _MOST, "template": {"spec": self._spec("1")}},
        }
        body = {"apiVersion": "dl2.scheduler/v1alpha1", "kind": "ElasticJob", "metadata": {"name": name}, "spec": spec}
        self.api.create(job_path(self.name, "")[:-1], body)

    def add_pods(self, job: str) -> None:
        """A job's gang, as the operator makes it."""
        for role, cpu in (("coordinator", "50m"), ("server", "1"), ("worker", "2")):
            labels = {"dl2.scheduler/job": job, "dl2.scheduler/role": role}
            metadata = {"name": f"{job}-{role}-0", "labels": labels, "annotations": {"dl2.scheduler/gang": "1,1"}}
            spec = {"schedulerName": "dl2", **self._spec(cpu)}
            self.api.create(f"/api/v1/namespaces/{self.name}/pods", {"metadata": metadata, "spec": spec})

    def tell(self, job: str, epoch: float) -> None:
        """How far a job has come."""
        status = {"phase": "Running", "workers": _MOST, "servers": _MOST, "epoch": epoch, "samplesPerEpoch": 100}
        body = {"status": {**status, "samplesPerSecond": 10, "trained": True}}
        self.api.patch(f"{job_path(self.name, job)}/status", body)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--slots", type=int, default=300, help="over which memory is watched")
    arguments = parser.parse_args()
    return finish("cluster_kube", *measured(arguments.nodes, arguments.jobs, arguments.slots), PACKAGES)


def measured(nodes: int, jobs: int, slots: int) -> tuple[list[dict[str, Any]], list[Goal]]:
    """What the benchmark writes; the cluster is as before in the end.

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
        under("a slot in which nothing changes", 2.0, found["steady"], "s"),
        under("requests a second in the steady state", 20.0, found["requests"], "requests/s"),
        at_most("growth of memory over the slots watched", 2.0, found["growth"], "%"),
    ]
    return rows, goals


def _compile() -> None:
    job = Job("a", 0.0, "m", 1.0, 1.0, {"cpu": 1.0}, {"cpu": 1.0}, max_workers=2, max_servers=2)
    snapshot = Snapshot(0, 1.0, (Node("a", {"cpu": 8.0}),), (JobState(job),))
    make_live_policy(BASELINE).allocate(snapshot, Room(snapshot))


@contextmanager
def _scheduler(world: World, folder: Path, api: KubeApi) -> Iterator[tuple[_Timed, Loop, Informers]]:
    clock, woken = SystemClock(), threading.Event()
    election = Election(api, world.name, "dl2-scheduler", "bench", lost=lambda: None)
    if not election.acquire(threading.Event()):
        raise SystemExit("the lease could not be had")
    writer = Writer(api, lambda: election.holds)
    informers = Informers(api, [world.name], woken.set, clock.wake)
    binder = Binder(informers, writer, NodeRule.SPREAD, [world.name], woken)
    with (
        closing(Memory(folder / "kube.sqlite", clock.now())) as memory,
        closing(History(folder / "h.sqlite")) as history,
    ):
        cluster = _Timed(informers, api, writer, memory, 0.001, clock)
        loop = Loop(cluster, Policies(make_live_policy, BASELINE, folder, "drf"), NodeRule.SPREAD, history)
        informers.start(_WAIT_SECONDS)
        binder.start()
        try:
            yield cluster, loop, informers
        finally:
            binder.stop()
            informers.stop()
            election.release()


def _measured(world: World, folder: Path, slots: int) -> tuple[list[dict[str, Any]], dict[str, float]]:
    api = KubeApi()
    began = time.perf_counter()
    with _scheduler(world, folder, api) as (cluster, loop, informers):
        rows = [_row("listing all", time.perf_counter() - began, api.requests)]
        before = api.requests
        loop.slot()
        first = cluster.seconds
        rows.append(_row("first slot", first, api.requests - before))
        before, began = api.requests, time.perf_counter()
        world.each(world.add_pods, world.jobs)
        made = time.perf_counter() - began
        _until(lambda: _bound(informers, world) == 3 * len(world.jobs), "all pods are bound")
        rows.append(
            _row(
                f"gangs bound; their pods took {made:.1f} s to make", time.perf_counter() - began, api.requests - before
            )
        )
        world.each(lambda job: world.tell(job, 0.1), world.jobs)
        steady, requests = _steady(world, cluster, loop, api)
        rows.append(_row("steady slot", steady, None))
        rows.append(_row(f"steady state, {_STEADY_SECONDS:g} s", None, requests))
        growth, rss = _memory(loop, slots)
        rows.append({**_row(f"{slots} slots", None, None), "MiB": rss})
    return rows, {"first": first, "steady": steady, "requests": requests / _STEADY_SECONDS, "growth": growth}


def _row(what: str, seconds: float | None, requests: int | None) -> dict[str, Any]:
    print(f"{what}: {'' if seconds is None else f'{seconds:.2f} s'} {requests or ''}", file=sys.stderr, flush=True)
    return {"what": what, "seconds": seconds, "requests": requests, "MiB": _rss() / _MIB}


def _steady(world: World, cluster: _Timed, loop: Loop, api: KubeApi) -> tuple[float, int]:
    """Median seconds of a slot while the operator tells of progress, and the requests of all."""
    loop.slot()
    times, before, began = [], api.requests, time.perf_counter()
    told = 0
    while time.perf_counter() - began < _STEADY_SECONDS:
        told += 1
        world.each(partial(world.tell, epoch=0.2 + told / 1000), world.jobs[told % 5 :: 5])
        loop.slot()
        times.append(cluster.seconds)
        time.sleep(max(0.0, 2.0 * told - (time.perf_counter() - began)))  # a slot every two seconds
    return median(times), api.requests - before


def _memory(loop: Loop, slots: int) -> tuple[float, float]:
    """Growth in percent from a third of the slots to the last; and what is held then."""
    early = 0.0
    for number in range(slots):
        loop.slot()
        if number == slots // 3:
            early = _rss()
    return 100 * (_rss() - early) / early, _rss() / _MIB


def _bound(informers: Informers, world: World) -> int:
    return sum(bool(pod.node) for pod in informers.pods() if pod.namespace == world.name)


def _until(holds: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + _WAIT_SECONDS
    while not holds():
        if time.monotonic() > end:
            raise SystemExit(f"after {_WAIT_SECONDS:g} s still not: {what}")
        time.sleep(0.05)


def _rss() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * float(next(line.split()[1] for line in lines if line.startswith("VmRSS")))


if __name__ == "__main__":
    sys.exit(main())
