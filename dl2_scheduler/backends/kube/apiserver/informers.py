"""This module knows a cluster: its nodes, pods and ElasticJobs, each kind kept by a watch."""

import logging
import threading
from collections.abc import Callable, Collection
from dataclasses import replace
from time import monotonic
from typing import Any

from dl2_scheduler.backends.kube.apiserver.object_reading import job_of, node_of, pod_of
from dl2_scheduler.backends.kube.apiserver.object_watch import Watcher
from dl2_scheduler.backends.kube.apiserver.objects import Allotment, JobInfo, NodeInfo, PodInfo
from dl2_scheduler.backends.kube.loads import ALIVE
from k8s.foundation.api_server import (
    GROUP_PATH,
    JOBS_PATH,
    NODES_PATH,
    PODS_PATH,
    ApiServer,
    ApiUnavailable,
)

log = logging.getLogger(__name__)


class Informers:
    """An `Informers` shows what the watches of a cluster have told; see `binder.View`.

    Args:
        api: of the cluster.
        namespaces: whose ElasticJobs are served; None: all.
        changed: called after each change that binding may hang on, from several threads.
        job_changed: called after each such change of an ElasticJob, too.
    """

    def __init__(
        self,
        api: ApiServer,
        namespaces: Collection[str] | None,
        changed: Callable[[], None],
        job_changed: Callable[[], None] = lambda: None,
    ):
        def both() -> None:
            changed()
            job_changed()

        stopped = threading.Event()
        paths = [f"{GROUP_PATH}/namespaces/{each}/elasticjobs" for each in namespaces or ()] or [JOBS_PATH]
        self._nodes = Watcher(api, NODES_PATH, node_of, changed, stopped=stopped)
        self._pods = Watcher(api, PODS_PATH, pod_of, changed, ALIVE, stopped)
        self._jobs = [Watcher(api, path, job_of, both, stopped=stopped, gist=gist) for path in paths]
        self._stopped = stopped

    def start(self, seconds: float) -> None:
        """Begin; return when everything has been listed, but for what the API server refuses of some namespaces.

        Args:
            seconds: that it may take.

        Raises:
            ApiUnavailable: it took longer.
        """
        watchers: list[Watcher[Any]] = [self._nodes, self._pods, *self._jobs]
        for watcher in watchers:
            watcher.start()
        end = monotonic() + seconds
        late = [watcher for watcher in watchers if not watcher.wait(max(0.0, end - monotonic()))]
        refused = [watcher for watcher in self._jobs if watcher in late and watcher.refused]
        if len(late) > len(refused) or len(refused) == len(self._jobs):
            raise ApiUnavailable(
                f"nodes, pods and ElasticJobs could not be listed within {seconds:g} s; the log says why"
            )
        for watcher in refused:
            log.warning("ElasticJobs of a namespace are not served: %s; it is tried again", watcher.refused)

    def stop(self) -> None:
        """End."""
        self._stopped.set()

    def nodes(self) -> list[NodeInfo]:
        """See `View.nodes`."""
        return self._nodes.all()

    def pods(self) -> list[PodInfo]:
        """See `View.pods`."""
        return self._pods.all()

    def jobs(self) -> list[JobInfo]:
        """See `View.jobs`."""
        return [job for watcher in self._jobs for job in watcher.all()]


def gist(job: JobInfo) -> JobInfo:
    """Return what of a job decides.

    That is without its progress, which it tells every few seconds, and of a decision without the counts.

    How many is seen by the pods that come and go.
    """
    return replace(
        job,
        version="",
        decisions="",
        status=replace(job.status, epoch=0.0, samples_per_second=0.0),
        allotment=job.allotment and Allotment(min(job.allotment.workers, 1), 0, "", 0),
    )
