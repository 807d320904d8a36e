"""This module is `dl2 serve --kube`: while it holds the lease, it scales ElasticJobs and binds their pods."""

import logging
import socket
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from dl2_scheduler.backends.clock import SystemClock
from dl2_scheduler.backends.kube.apiserver.informers import Informers
from dl2_scheduler.backends.kube.apiserver.paced_writes import MANAGER, PacedWriter
from dl2_scheduler.backends.kube.cluster import KubernetesCluster
from dl2_scheduler.backends.kube.forecast_status import ForecastWriter
from dl2_scheduler.backends.kube.placement.binder import Binder
from dl2_scheduler.backends.kube.placement.moves import PodMover
from dl2_scheduler.backends.kube.placement.view import View
from dl2_scheduler.backends.kube.placement.volume_claims import VolumeClaimReader
from dl2_scheduler.backends.kube.scheduler_memory import SchedulerMemory
from dl2_scheduler.cluster.errors import ClusterRefused
from dl2_scheduler.cluster.placement.task_mover import TaskMover
from dl2_scheduler.cluster.snapshot import Allocation
from dl2_scheduler.commands.cluster.serving.driving import Driving, driven
from dl2_scheduler.commands.cluster.serving.foreground import held, signals_to
from dl2_scheduler.commands.cluster.serving.kube_health import Health, answering
from dl2_scheduler.live.history import HISTORY_FILE, History
from dl2_scheduler.replay.move_costs import MoveCosts
from k8s.foundation.api_server import KubeApi
from k8s.foundation.lease import LEASE_CALL_SECONDS, Lease

log = logging.getLogger(__name__)

_SYNC_SECONDS = 120.0


@dataclass(frozen=True)
class KubeOrder:
    """A `KubeOrder` says what to serve, and how.

    Attributes:
        slot_seconds: length of a slot.
        driving: how the cluster is driven.
        folder: the folder of the scheduler's state.
        namespaces: whose ElasticJobs are served; (): all.
        context: the context of the kubeconfig; None: the present one, or the service account of this pod.
        probes: where they are answered, as ADDRESS:PORT; None: nowhere.
    """

    slot_seconds: float
    driving: Driving
    folder: Path
    namespaces: Sequence[str]
    context: str | None
    probes: str | None


def serve_kube(order: KubeOrder) -> None:
    """Wait for the lease, then schedule until ended.

    Raises:
        BadInput: there is no cluster, or the folder or policy cannot be used.
        ClusterRefused: the lease was lost, or a part of this process has died: it has to be started again.
    """
    api = KubeApi(order.context, in_cluster=True)
    ended, trouble = threading.Event(), _Trouble()
    me = f"{socket.gethostname()}_{uuid.uuid4().hex[:8]}"
    own = KubeApi(order.context, in_cluster=True, call_seconds=LEASE_CALL_SECONDS)
    lease = Lease(own, api.namespace, MANAGER, me, lost=lambda: trouble.tell("the lease is lost"))
    health = Health(order.slot_seconds, lambda: lease.holder)
    with answering(health, order.probes):
        with signals_to(ended.set):
            log.info("waiting for the lease %s in %s, as %s", MANAGER, api.namespace, me)
            leads = lease.acquire(ended)
        if not leads:
            return
        try:
            with held(order.folder), trouble.guards_threads():
                _lead(order, api, lease, trouble, health)
        finally:
            lease.release()
    if trouble.text:
        raise ClusterRefused(f"{trouble.text}: start this again")


class _Trouble:
    """`_Trouble` says why this process has to end.

    Attributes:
        text: for people; "": it need not.
    """

    def __init__(self) -> None:
        self.text = ""
        self._close: Callable[[], None] = lambda: None

    def tell(self, text: str) -> None:
        """End the loop. Safe from every thread."""
        self.text = self.text or text
        self._close()

    def closes(self, cluster: KubernetesCluster) -> None:
        """Let trouble end this cluster's loop from now on."""
        self._close = cluster.close
        if self.text:
            cluster.close()

    @contextmanager
    def guards_threads(self) -> Iterator[None]:
        """Take the death of a thread for trouble."""

        def died(found: threading.ExceptHookArgs) -> None:
            name = found.thread.name if found.thread else "a thread"
            error = found.exc_value
            log.error("%s has died", name, exc_info=error)
            self.tell(f"its thread {name} has died: {error}")

        before, threading.excepthook = threading.excepthook, died
        try:
            yield
        finally:
            threading.excepthook = before


def _lead(order: KubeOrder, api: KubeApi, lease: Lease, trouble: _Trouble, health: Health) -> None:
    clock = SystemClock()
    writer = PacedWriter(api, lambda: lease.held)
    woken = threading.Event()
    informers = Informers(api, order.namespaces or None, woken.set, clock.wake)
    claims = VolumeClaimReader(api, woken.set)
    rule, policy = order.driving.rule, order.driving.placement
    binder = Binder(informers, writer, rule, order.namespaces or None, woken, volumes=claims, policy=policy)
    with (
        closing(SchedulerMemory(order.folder / "kube.sqlite", clock.now())) as memory,
        closing(History(order.folder / HISTORY_FILE)) as history,
        closing(ForecastWriter(informers, writer)) as told,
    ):
        memory.begin_from(history.next_slot)
        cluster = KubernetesCluster(informers, api, writer, memory, order.slot_seconds, clock)
        settle = _settling(order.driving, informers, writer, binder, MoveCosts(history, memory.slot))
        trouble.closes(cluster)
        health.leads(lambda: lease.held, lambda: memory.slot)
        driving, desk, folder = order.driving, cluster.desk, order.folder
        with signals_to(cluster.close), driven(cluster, desk, history, folder, driving, settle, told.tell) as loop:
            cluster.policy, cluster.why_placed = lambda: loop.policy, binder.why_placed
            informers.start(_SYNC_SECONDS)
            binder.start()
            try:
                where = ", ".join(order.namespaces) or "all namespaces"
                if policy is not None:
                    log.info("placement: %s says where workers and servers go", policy.name)
                log.info("leading: ElasticJobs of %s, %s, slots of %g s", where, loop.policy, order.slot_seconds)
                loop.run()
            finally:
                binder.stop()
                informers.stop()
                claims.stop()


def _settling(
    driving: Driving, view: View, writer: PacedWriter, binder: Binder, costs: MoveCosts
) -> Callable[[Allocation], Allocation]:
    """Return what moves tasks where that was asked for; see `SlotLoop`."""
    if driving.placement is None or not driving.most_moves:
        return lambda allocation: allocation
    mover = TaskMover(driving.placement, driving.most_moves, costs.cost)
    return PodMover(view, writer, mover, binder.expected, costs.scaled_jobs).settle
