"""This module binds pods as `binding.decide` says, whenever something has changed."""

import logging
import threading
import time
from collections.abc import Callable, Container, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Protocol

from dl2_scheduler.backends.kube.apiserver.objects import JobInfo, PodInfo
from dl2_scheduler.backends.kube.apiserver.paced_writes import NotLeading, PacedWriter
from dl2_scheduler.backends.kube.placement.binding import decide, to_bind
from dl2_scheduler.backends.kube.placement.expected_pods import ExpectedPods
from dl2_scheduler.backends.kube.placement.pod_decisions import NodeChoice, PodBinding, PodDecisions, PodReturn, PodWait
from dl2_scheduler.backends.kube.placement.view import View
from dl2_scheduler.backends.kube.placement.volumes import ClaimedVolume, ClaimKey
from dl2_scheduler.backends.kube.views import shape
from dl2_scheduler.cluster.durations import left
from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.placement.guarded_placement import GuardedPlacement
from k8s.foundation.api_server import ApiError, Conflict, NotFound

log = logging.getLogger(__name__)

_BATCH_SECONDS = 0.05  # events that come together are answered together
_REST = 2.0  # of the time that a step took: many who wait for room do not take a whole core
_AFTER_FAILURE = 1.0
_SETTLING_SECONDS = 10.0  # that the watch may take to show what was written
_PATIENCE_SECONDS = 3.0  # a wait as short is not told: a gang's pods come one after the other
_REPEAT_SECONDS = 60.0  # of one pod, between two reasons
_TOLD_AT_ONCE = 10
_THREADS = 8


class Volumes(Protocol):
    """A `Volumes` tells what is known of volumes."""

    def of(self, pods: Sequence[PodInfo]) -> tuple[Mapping[ClaimKey, ClaimedVolume], float | None]:
        """Return what the claims of pods mean, and in how many seconds that may be otherwise though nothing tells it.

        None: whatever changes is told.
        """


class NoVolumes:
    """A `NoVolumes` knows of no volume: who claims one waits."""

    def of(self, pods: Sequence[PodInfo]) -> tuple[Mapping[ClaimKey, ClaimedVolume], float | None]:
        """See `Volumes.of`."""
        return {}, None


@dataclass(frozen=True)
class _Told:
    """A `_Told` is the reason that a pod was given last."""

    form: str
    at: float


class Binder:
    """A `Binder` binds pods, in a thread of its own.

    Args:
        view: of the cluster.
        writer: acts.
        rule: by which pods find their node.
        namespaces: whose pods are bound; None: all.
        woken: set by whoever sees a change.
        now: unix seconds.
        volumes: that pods claim.
        policy: says where workers and servers go, instead of the rule; None: the rule does.

    Attributes:
        expected: pods that are to go to a node, as tasks are moved there.
    """

    def __init__(
        self,
        view: View,
        writer: PacedWriter,
        rule: NodeRule,
        namespaces: Container[str] | None = None,
        woken: threading.Event | None = None,
        now: Callable[[], float] = time.time,
        volumes: Volumes | None = None,
        policy: GuardedPlacement | None = None,
    ):
        self._view = view
        self._writer = writer
        self._rule = rule
        self._namespaces = namespaces
        self._now = now
        self._woken = woken or threading.Event()
        self._stopped = threading.Event()
        self._bound: dict[str, tuple[str, float]] = {}  # by uid, what the watch does not show yet: node, since when
        self._settling: dict[str, float] = {}  # by uid, since when: left alone until the watch has shown more
        self._told: dict[str, _Told] = {}
        self._volumes = volumes or NoVolumes()
        self._policy = policy
        self.expected = ExpectedPods(now)
        self._why: dict[tuple[str, str], str] = {}  # jobs' places, for people, since anybody asked
        self._chosen: dict[ClaimKey, float] = {}  # claims whose node the watch does not show yet: since when
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="bind")
        self._thread = threading.Thread(target=self._run, name="binder", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; return when nothing more is written."""
        self._stopped.set()
        self._woken.set()
        if self._thread.is_alive():
            self._thread.join()
        self._pool.shutdown()

    def why_placed(self, job: tuple[str, str]) -> str:
        """Return why tasks of a job, bound since this was asked last, are where they are; "": none were, by a policy.

        Args:
            job: namespace and name.
        """
        return self._why.pop(job, "")

    def step(self) -> float | None:
        """Decide and act once; return the seconds until it has to be done again by time alone; None: it need not."""
        now = self._now()
        kept_until = self._give_up()
        pods = self._known(now)
        volumes, again = self._volumes.of(to_bind(pods, self._namespaces))
        decided = self._decide(pods, now, volumes)
        failed = self._choose(decided.choices, volumes, now)
        failed |= self._bind(decided)
        failed |= self._give_back(decided.returns)
        later = self._tell(decided.waits, now)
        times = [_AFTER_FAILURE] * failed + [each for each in (later, again) if each is not None]
        ends = decided.again_at, kept_until, self._left_alone_until()
        return min([*times, *(max(0.0, at - now) for at in ends if at is not None)], default=None)

    def _left_alone_until(self) -> float | None:
        """Return when the first of what waits for the watch is looked at again, whatever that has shown by then."""
        return min(
            (since + _SETTLING_SECONDS for since in (*self._settling.values(), *self._chosen.values())), default=None
        )

    def _give_up(self) -> float | None:
        """Keep no room any more for moved tasks that have not come; return until when it is kept for the next."""
        jobs = {job.uid: job for job in self._view.jobs()} if (late := self.expected.given_up()) else {}
        for each in late:
            if (job := jobs.get(each.uid)) is not None and job.wants_pods:
                self._why[each.job] = "; ".join(filter(None, (self._why.get(each.job), each.why_not)))
                self._tell_job(job, "MoveGivenUp", each.why_not)
        return min((each.until for each in self.expected.all()), default=None)

    def _decide(self, pods: Sequence[PodInfo], now: float, volumes: Mapping[ClaimKey, ClaimedVolume]) -> PodDecisions:
        """Decide about pods. Gangs that the decision breaks on wait and say so; others are decided without them."""

        how = self._rule, self._namespaces, volumes, self._policy, self.expected.all()

        def about(some: Sequence[PodInfo]) -> PodDecisions:
            return decide(self._view.nodes(), some, self._view.jobs(), now, *how)

        try:
            return about(pods)
        except Exception:
            log.exception("deciding about all pods failed: each gang is decided about alone")
        waiting = to_bind(pods, self._namespaces)
        rest = [pod for pod in pods if pod not in waiting]
        broken: dict[str, str] = {}
        for key in dict.fromkeys(_gang(pod) for pod in waiting):
            try:
                about([*rest, *(pod for pod in waiting if _gang(pod) == key)])
            except Exception as error:  # noqa: BLE001
                broken |= {
                    pod.uid: f"the scheduler fails on this pod: {error!r}" for pod in waiting if _gang(pod) == key
                }
        decided = about([pod for pod in pods if pod.uid not in broken])
        decided.waits += [PodWait(pod, broken[pod.uid]) for pod in waiting if pod.uid in broken]
        return decided

    def _run(self) -> None:
        wait: float | None = None
        spent = 0.0
        while True:
            self._woken.wait(wait)
            if self._stopped.wait(max(_BATCH_SECONDS, _REST * spent)):
                return
            self._woken.clear()
            began = time.monotonic()
            try:
                wait = self.step()
                spent = time.monotonic() - began
            except NotLeading as error:
                log.warning("nothing is bound: %s", error)
                return
            except Exception:
                log.exception("binding failed; trying again in %.0f s", _AFTER_FAILURE)
                wait = _AFTER_FAILURE

    def _known(self, now: float) -> list[PodInfo]:
        """Return the pods as the watch shows them, with what was done since."""
        pods = self._view.pods()
        there = {pod.uid for pod in pods}
        for memory in (self._bound, self._settling, self._told):
            for uid in [uid for uid in memory if uid not in there]:
                del memory[uid]
        for pod in pods:
            if pod.node:
                self._bound.pop(pod.uid, None)
        self._settling = {uid: since for uid, since in self._settling.items() if left(since, _SETTLING_SECONDS, now)}
        return [self._as_done(pod) for pod in pods]

    def _as_done(self, pod: PodInfo) -> PodInfo:
        if pod.uid in self._bound:
            node, since = self._bound[pod.uid]
            return replace(pod, node=node, bound=since)
        return replace(pod, gated=True) if pod.uid in self._settling else pod

    def _bind(self, decided: PodDecisions) -> bool:
        """Bind all, each job's pods in their order, jobs beside one another; return whether one failed."""
        groups: dict[tuple[str, str], list[PodBinding]] = {}
        for bind in decided.bindings:
            groups.setdefault(_gang(bind.pod), []).append(bind)
        done = list(self._pool.map(self._bind_group, groups.values()))
        self._tell_places([key for key, bound in zip(groups, done, strict=True) if bound], decided.placed)
        return not all(done)

    def _tell_places(self, bound: Sequence[tuple[str, str]], why: Mapping[tuple[str, str], str]) -> None:
        """Tell jobs whose pods were bound why they are where they are.

        Args:
            bound: jobs.
            why: for people, by job.
        """
        jobs = {job.key: job for job in self._view.jobs()} if why else {}
        if why:  # nobody asks about jobs that are gone, or held
            self._why = {key: words for key, words in self._why.items() if key in jobs}
        for key in bound:
            if key not in why or key not in jobs:
                continue
            self._why[key] = why[key]
            self._tell_job(jobs[key], "Placed", why[key])

    def _tell_job(self, job: JobInfo, event: str, why: str) -> None:
        """Tell a job something about its places."""
        log.info("%s: %s", job.id, why)
        try:
            self._writer.tell_job(job, event, why, warning=False)
        except NotLeading:
            raise
        except ApiError as error:
            log.warning("%s: the event %s could not be written: %s", job.id, event, error)

    def _choose(self, choices: Sequence[NodeChoice], volumes: Mapping[ClaimKey, ClaimedVolume], now: float) -> bool:
        """Choose the node of each claim once, the first pod's; return whether one failed."""
        self._chosen = {key: since for key, since in self._chosen.items() if left(since, _SETTLING_SECONDS, now)}
        failed = False
        for choice in choices:
            key = choice.pod.namespace, choice.claim
            if volumes[key].chosen or key in self._chosen:
                continue
            try:
                self._writer.choose(*key, choice.node)
                self._chosen[key] = now
                log.info("%s/%s: its volume is to be made near %s", *key, choice.node)
            except NotLeading:
                raise
            except ApiError as error:
                log.warning("no node could be chosen for %s/%s: %s", *key, error)
                failed = True
        return failed

    def _bind_group(self, group: Sequence[PodBinding]) -> bool:
        for bind in group:
            pod = bind.pod
            try:
                self._writer.bind(pod, bind.node)
            except (Conflict, NotFound) as error:
                log.info("%s/%s was not bound to %s: %s", pod.namespace, pod.name, bind.node, error)
                self._settling[pod.uid] = self._now()
                return False
            except NotLeading:
                raise
            except ApiError as error:
                log.warning("%s/%s could not be bound: %s", pod.namespace, pod.name, error)
                return False
            self._bound[pod.uid] = (bind.node, self._now())
            self.expected.bound(pod, bind.node)
            log.info("%s/%s: bound to %s", pod.namespace, pod.name, bind.node)
        return True

    def _give_back(self, returns: Sequence[PodReturn]) -> bool:
        jobs = {job.key: job for job in self._view.jobs()}
        failed = False
        for gone in returns:
            try:
                self._writer.delete(gone.pod)
                self._settling[gone.pod.uid] = self._now()
                log.warning("%s/%s: deleted: %s", gone.pod.namespace, gone.pod.name, gone.reason)
                if (job := jobs.pop(gone.pod.key, None)) is not None:
                    self._writer.tell_job(job, "GangTimeout", gone.reason)
            except NotLeading:
                raise
            except ApiError as error:
                log.warning("%s/%s could not be deleted: %s", gone.pod.namespace, gone.pod.name, error)
                failed |= not isinstance(error, Conflict | NotFound)
        return failed

    def _tell(self, waits: Sequence[PodWait], now: float) -> float | None:
        """Tell pods the reasons that are new; return the seconds until the next may be told."""
        times = []
        told = 0
        for wait in waits:
            pod, form = wait.pod, shape(wait.reason)
            last = self._told.get(pod.uid)
            if form == (last.form if last else shape(pod.waits)):
                continue
            rest = left(pod.created, _PATIENCE_SECONDS, now)
            rest = max(rest, left(last.at, _REPEAT_SECONDS, now)) if last else rest
            if rest or told == _TOLD_AT_ONCE:
                times.append(max(rest, _AFTER_FAILURE))
                continue
            told += 1
            self._told[pod.uid] = _Told(form, now)
            try:
                self._writer.tell_pod(pod, wait.reason)
            except NotLeading:
                raise
            except ApiError as error:
                log.warning("the reason why %s/%s waits could not be written: %s", pod.namespace, pod.name, error)
        return min(times, default=None)


def _gang(pod: PodInfo) -> tuple[str, str]:
    """Return with whom a pod is bound: its job, or nobody."""
    return pod.key if pod.job else (pod.uid, "")
