"""This module holds what the parts of the scheduler on Kubernetes that bind and move pods need to see."""

from collections.abc import Sequence
from typing import Protocol

from dl2_scheduler.backends.kube.apiserver.objects import JobInfo, NodeInfo, PodInfo


class View(Protocol):
    """A `View` shows what is known of a cluster."""

    def nodes(self) -> Sequence[NodeInfo]:
        """Return all nodes."""

    def pods(self) -> Sequence[PodInfo]:
        """Return all pods that have not ended."""

    def jobs(self) -> Sequence[JobInfo]:
        """Return the jobs of the namespaces that are served."""
