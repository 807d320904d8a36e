"""This module answers people who look at jobs by the scheduler's socket.

What they want done they ask of the API server.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from dl2_scheduler.backends.kube import loads, views
from dl2_scheduler.backends.kube.apiserver.objects import PodInfo, job_id
from dl2_scheduler.backends.kube.placement.view import View
from dl2_scheduler.cluster.desk import ClusterLoad, JobStatus
from dl2_scheduler.cluster.errors import ClusterRefused
from dl2_scheduler.cluster.snapshot import Grant


class Onlookers:
    """An `Onlookers` desk shows the jobs and refuses all else; see `JobDesk`.

    The scheduler itself has no right to make, end or hold anybody's job.

    Args:
        view: of the cluster.
        began: unix seconds: when the cluster began.
    """

    def __init__(self, view: View, began: float):
        self._view, self._began = view, began

    def submit(self, document: str, folder: Path) -> str:
        """Refuse; see `JobDesk.submit`."""
        _refuse("submit FILE")

    def check(self, document: str, folder: Path) -> str:
        """Refuse; see `JobDesk.check`."""
        _refuse("submit FILE")

    def stop(self, name: str) -> None:
        """Refuse; see `JobDesk.stop`."""
        _refuse(f"stop {name}")

    def hold(self, name: str) -> None:
        """Refuse; see `JobDesk.hold`."""
        _refuse(f"hold {name}")

    def release(self, name: str) -> None:
        """Refuse; see `JobDesk.release`."""
        _refuse(f"release {name}")

    def scale(self, name: str, workers: int, servers: int) -> Grant:
        """See `JobDesk.scale`; refused here."""
        _refuse(f"scale {name}")

    def jobs(self) -> Sequence[JobStatus]:
        """See `JobDesk.jobs`."""
        pods: dict[tuple[str, str], list[PodInfo]] = {}
        for pod in self._view.pods():
            pods.setdefault(pod.key, []).append(pod)
        jobs = sorted(self._view.jobs(), key=lambda job: (job.created, job.key))
        return [
            replace(views.status_of(job, job.id, pods.get(job.key, ())), arrival=views.arrival_of(job, self._began))
            for job in jobs
        ]

    def load(self) -> ClusterLoad:
        """See `JobDesk.load`; what tasks use is not measured here."""
        pods = self._view.pods()
        mine = [pod for pod in pods if pod.job and pod.node]
        elsewhere = "not measured here: dl2 top --kube"
        return loads.load(self._view.nodes(), pods, mine, None, elsewhere, lambda pod: job_id(*pod.key))


def _refuse(words: str) -> NoReturn:
    raise ClusterRefused(f"ask the API server, with your own rights: dl2 {words} --kube")
