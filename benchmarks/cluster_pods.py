"""One live scaling on Kubernetes, from command to committed, split in its parts: real pods, in which MXNet trains.

    python -m benchmarks.cluster_pods [--rounds 10]

The chart with operator and scheduler, and the digits example, on the cluster of KUBECONFIG, else on one that
../shared/tools/kube starts and stops. Its nodes must be this machine: pods mount this checkout, and the births of their
processes are read here. All times are of this machine's clock; a part ends when

    command        a watch of the API server has the job with the counts that `elasticctl --kube scale` was started for
    operator       the coordinator has begun a plan, because the operator asked for it
    pod            a watch has the new pod
    binding        a watch has its node, which our scheduler chose
    container      its first process was born, the launcher
    launcher       the node's own process was born
    process start  a look at the coordinator, 20 ms after the last, finds it registered: a worker has imported MXNet
    registration, assignment, migration, worker update     as in the plan's own record

and after the commit: until the job's status has the plan, and until a pod that was let go is gone.
"""

import argparse
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from benchmarks.support.cluster_local import CHANGES, Split, program
from benchmarks.support.report import as_program, finish
from coordinator.client import CoordinatorClient
from dl2_scheduler.backends.kube.apiserver.objects import SCHEDULER
from dl2_scheduler.backends.trial import ScalingResult, age, scaled
from elastic_ps.system.process.proc_stat import stat_fields
from k8s.foundation.api_server import KubeApi, Query, job_path
from tests.kube import kube_cluster
from tests.kube.kube_jobs import START_SECONDS, KubeJob
from tests.kube.kube_release import Place, Release, definition, prepared

PACKAGES = ("mxnet", "grpcio", "kubernetes")
PARTS = (
    "command",
    "operator",
    "pod",
    "binding",
    "container",
    "launcher",
    "process start",
    "registration",
    "assignment",
    "migration",
    "worker update",
)
AFTER = ("status", "pod gone")
JOB = "digits"
_WATCH_SECONDS = 3600
_SETTLE_SECONDS = 120.0
_PROGRAM = Path(sys.executable).parent / "elasticctl"


def main() -> int:
    """Measure, print, write build/bench/cluster_pods.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10, help="in which each change happens (default 10)")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # nothing is left in the cluster then too
    cluster = kube_cluster.find()
    try:
        with definition(cluster):
            return finish("cluster_pods", measured(cluster, options.rounds), [], PACKAGES)
    finally:
        cluster.stop()


def measured(cluster: kube_cluster.Cluster, rounds: int) -> list[dict[str, Any]]:
    """Return rows: medians of each change's parts. The cluster is as before in the end.

    Args:
        cluster: whose nodes are this machine; it knows ElasticJobs, and nobody acts on them.
        rounds: in which each change happens.
    """
    cluster.pack()
    splits: list[Split] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        place = stack.enter_context(prepared())
        release = stack.enter_context(Release(cluster, place, folder, scheduler=True))
        job = stack.enter_context(_training(cluster, release.namespace, place))
        client = stack.enter_context(job.client())
        told = stack.enter_context(_Told(release.namespace))
        for number in range(rounds):
            for what, (workers, servers) in CHANGES.items():
                splits.append(_scale(what, workers, servers, job, client, told))
            print(f"scaling of pods: round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    return [_row(what, [split for split in splits if split.what == what]) for what in CHANGES]


@contextmanager
def _training(cluster: kube_cluster.Cluster, namespace: str, place: Place) -> Iterator[KubeJob]:
    command = [str(place.sources / "examples" / "digits.py"), "--epochs", "1000000"]
    spec = {
        "modelType": JOB,
        "scaling": "Manual",
        "workers": {"max": 2, "template": place.template(command, SCHEDULER)},
        "servers": {"max": 2},
    }
    job = KubeJob(cluster, namespace, JOB, spec, place.shared)
    job.apply()
    try:
        job.until(lambda status: status.get("epoch", 0) > 1, "the job trains")
        yield job
    finally:
        job.delete()


def _scale(what: str, workers: int, servers: int, job: KubeJob, client: CoordinatorClient, told: "_Told") -> Split:
    counts = ("--workers", str(workers), "--servers", str(servers))
    command = [str(_PROGRAM), "--kube", "scale", JOB, *counts, "--namespace", job.namespace]
    told.events.clear()
    began = time.time()
    with ExitStack() as stack:  # looked at while the command still ends
        done = scaled(client, lambda: stack.enter_context(program(command)), START_SECONDS)

    def found() -> Mapping[str, float]:
        return marks(list(told.events), (workers, servers), done)

    expected = {"command", "status", *(["binding"] if done.plan.joined else ["pod gone"])}
    kube_cluster.until(lambda: expected <= found().keys(), f"{what}: all is told", _SETTLE_SECONDS, job.tell)
    born = births(pod) if (pod := new_pod(told.events)) else {}
    job.running(workers, servers)
    return split(what, began, {**found(), **born}, done.plan.ended)


def births(pod: str) -> dict[str, float]:
    """Return when a pod's launcher, and the node's process that it started, were born; unix seconds, within 10 ms."""
    processes = {int(path.name): path for path in Path("/proc").iterdir() if path.name.isdigit()}
    launcher = next(pid for pid, path in processes.items() if {"--nonce-prefix", pod} <= _words(path))
    started = [pid for pid, path in processes.items() if _parent(path) == launcher]
    now = time.time()
    return {"container": now - age(launcher), "launcher": now - max(map(age, started))}


def _words(process: Path) -> set[str]:
    try:
        return set((process / "cmdline").read_text(errors="replace").split("\0"))
    except OSError:  # it has ended
        return set()


def _parent(process: Path) -> int:
    try:
        return int(stat_fields(process.name)[1])
    except OSError:
        return 0


def _row(what: str, splits: Sequence[Split]) -> dict[str, Any]:
    row: dict[str, Any] = {"of pods, in ms": what, "scalings": len(splits)}
    for name in PARTS:
        row[name] = _median([split.parts[name] for split in splits if name in split.parts])
    row["command to committed"] = _median([split.whole for split in splits])
    for name in AFTER:
        row[f"then {name}"] = _median([split.parts[name] for split in splits if name in split.parts])
    return row


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


# ---- what the API server tells -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WatchEvent:
    """This is an event of a watch.

    Attributes:
        at: when it was here; unix seconds.
        type: ADDED, MODIFIED, DELETED.
        object: as it is then.
    """

    at: float
    type: str
    object: Mapping[str, Any]


class _Told:
    """A `_Told` is what the API server tells of a job and its pods. A context manager.

    Args:
        namespace: of the job.

    Attributes:
        events: since somebody cleared them.
    """

    def __init__(self, namespace: str):
        self.events: list[WatchEvent] = []
        self._api = KubeApi()
        self._namespace = namespace
        self._over = False

    def __enter__(self) -> "_Told":
        jobs = job_path(self._namespace, "").rstrip("/"), {"fieldSelector": f"metadata.name={JOB}"}
        pods = f"/api/v1/namespaces/{self._namespace}/pods", {"labelSelector": f"dl2.scheduler/job={JOB}"}
        for path, query in (jobs, pods):
            version = self._api.get(path, query)["metadata"]["resourceVersion"]
            whole = {**query, "resourceVersion": version, "allowWatchBookmarks": "true"}
            threading.Thread(target=self._listen, args=(path, whole), name=f"watch{path}", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True

    def _listen(self, path: str, query: Query) -> None:
        """Listen until the server ends the watch, which is late enough."""
        with closing(self._api.watch(path, {**query, "timeoutSeconds": _WATCH_SECONDS})) as events:
            for event in events:
                if self._over:
                    return
                if event["type"] in ("ADDED", "MODIFIED", "DELETED"):
                    self.events.append(WatchEvent(time.time(), event["type"], event["object"]))


def new_pod(events: Sequence[WatchEvent]) -> str | None:
    """Name of the pod that came; None: none did."""
    return next((event.object["metadata"]["name"] for event in _of("Pod", events) if event.type == "ADDED"), None)


def marks(events: Sequence[WatchEvent], wanted: tuple[int, int], done: ScalingResult) -> dict[str, float]:
    """Return when the parts of a scaling ended that one node came with, or went with.

    Args:
        events: since the command.
        wanted: workers and servers; not those before.
        done: what the coordinator knows of it.

    Returns:
        Unix seconds by the names of `PARTS`, but for births, and of `AFTER`; without those that were not, or not yet.
    """
    jobs, pods, new = _of("ElasticJob", events), _of("Pod", events), new_pod(events)
    steps = list(accumulate((step / 1000 for step in done.plan.steps_ms), initial=done.plan.started))
    found = {
        "command": _first(jobs, lambda event: _counts(event.object) == wanted),
        "pod": _first(pods, lambda event: event.type == "ADDED"),
        "binding": _first(pods, lambda event: event.object["metadata"]["name"] == new and _node(event.object)),
        "process start": min([steps[1], *done.seen.values()]) if done.seen else None,  # a look may come late
        **dict(zip(("operator", *PARTS[-4:]), steps, strict=True)),
        "status": _first(jobs, lambda event: done.plan.id in _plans(event.object)),
        "pod gone": _first(pods, lambda event: event.type == "DELETED"),
    }
    return {name: at for name, at in found.items() if at is not None}


def split(what: str, began: float, marks: Mapping[str, float], ended: float) -> Split:
    """Return the milliseconds of each part.

    Args:
        what: happened.
        began: the command did; unix seconds, as are all.
        marks: ends of parts.
        ended: the plan did.
    """
    reached = [name for name in PARTS if name in marks]
    spans = pairwise([began, *(marks[name] for name in reached)])
    parts = {name: (end - begin) * 1000 for name, (begin, end) in zip(reached, spans, strict=True)}
    after = {name: (marks[name] - ended) * 1000 for name in AFTER if name in marks}
    return Split(what, parts | after, (ended - began) * 1000)


def _of(kind: str, events: Sequence[WatchEvent]) -> list[WatchEvent]:
    return [event for event in events if event.object["kind"] == kind]


def _first(events: Sequence[WatchEvent], is_it: Callable[[WatchEvent], object]) -> float | None:
    return next((event.at for event in events if is_it(event)), None)


def _counts(job: Mapping[str, Any]) -> tuple[int, int]:
    workers, servers = (job["spec"].get(role, {}).get("replicas", 1) for role in ("workers", "servers"))
    return workers, servers


def _node(pod: Mapping[str, Any]) -> str:
    return str(pod["spec"].get("nodeName", ""))


def _plans(job: Mapping[str, Any]) -> list[int]:
    return [plan["id"] for plan in job.get("status", {}).get("plans", ())]


if __name__ == "__main__":
    as_program(main)
