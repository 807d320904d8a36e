"""A local cluster whose jobs and time are played."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from dl2_scheduler.backends.kube.apiserver.paced_writes import PacedWriter
from dl2_scheduler.backends.kube.cluster import KubernetesCluster
from dl2_scheduler.backends.kube.scheduler_memory import SchedulerMemory
from dl2_scheduler.backends.local.cluster import LocalCluster
from dl2_scheduler.backends.local.job_records import JobRecords
from dl2_scheduler.backends.local.places.nodes import virtual_nodes
from dl2_scheduler.backends.local.places.settling import LocalPlacement
from dl2_scheduler.live.history import HISTORY_FILE, History
from tests.dl2_scheduler.kube_objects import NOW, PART, job, node, template
from tests.dl2_scheduler.played_cluster import PlayedClock, PlayedRuntime
from tests.dl2_scheduler.played_kube import JOBS, PlayedApi, PlayedOperator, PlayedView


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    """A cluster's history, in which nothing has happened."""
    with closing(History(tmp_path / HISTORY_FILE)) as found:
        yield found


@pytest.fixture
def clock() -> PlayedClock:
    return PlayedClock()


@pytest.fixture
def runtime(clock: PlayedClock) -> PlayedRuntime:
    return PlayedRuntime(clock)


@pytest.fixture
def serve(tmp_path: Path, clock: PlayedClock, runtime: PlayedRuntime) -> Iterator[Callable[..., LocalCluster]]:
    """Makes a cluster in the same folder each time: the second finds what the first has left."""
    with ExitStack() as stack:

        def make(slots: str = "2x8", slot: float = 20.0, placing: LocalPlacement | None = None) -> LocalCluster:
            records = stack.enter_context(closing(JobRecords(tmp_path / "jobs.sqlite", clock.now())))
            return LocalCluster(virtual_nodes(slots), slot, records, runtime, clock, placing=placing)

        yield make


@pytest.fixture
def api() -> PlayedApi:
    return PlayedApi()


@pytest.fixture
def operator(api: PlayedApi, clock: PlayedClock) -> PlayedOperator:
    return PlayedOperator(api, clock)


@pytest.fixture
def serve_kube(
    tmp_path: Path, clock: PlayedClock, api: PlayedApi, operator: PlayedOperator
) -> Iterator[Callable[..., KubernetesCluster]]:
    """Makes a cluster of the played API server, with the same memory each time; its first argument names its jobs."""
    api.after_patch = operator.tend
    with ExitStack() as stack:

        def make(names: Sequence[str] = (), slot: float = 20.0, epochs: float = 40) -> KubernetesCluster:
            one = {"resources": {"requests": {PART: "1"}}, "image": "i", "command": ["python"]}
            role = {"max": 4, "template": template(containers=[one])}
            for name in names:
                made = job(name, created=clock.now() - NOW, allocation=None, epochs=epochs, workers=role, servers=role)
                api.add(JOBS.format("default"), made)
            if not api.objects.keys() & {"/api/v1/nodes/node-1"}:
                api.add("/api/v1/nodes", *(node(f"node-{number}", **{PART: "8"}) for number in (1, 2)))
            memory = stack.enter_context(closing(SchedulerMemory(tmp_path / "kube.sqlite", clock.now())))
            writer = PacedWriter(api, lambda: True)
            return KubernetesCluster(PlayedView(api, operator.tend), api, writer, memory, slot, clock)

        yield make
