"""This module keeps one job: it gathers what is seen, asks `reconcile.plan`, and does what that says.

It remembers nothing that a restart would miss.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from elastic_ps.control.channels import address_of
from elastic_ps.core.errors import ElasticError
from k8s.elastic_operator.alarm import Alarm
from k8s.elastic_operator.api_writes import NotLeader, OperatorApi
from k8s.elastic_operator.coordinator_calls import CoordinatorRequests
from k8s.elastic_operator.coordinator_follow import CoordinatorFollower
from k8s.elastic_operator.health import Pulse, version
from k8s.elastic_operator.job import actions as act
from k8s.elastic_operator.job import manifests
from k8s.elastic_operator.job.model import FINALIZER, PORT, Body, Desired
from k8s.elastic_operator.job.pods import Pod, is_lost
from k8s.elastic_operator.job.reconcile import KEPT, plan
from k8s.elastic_operator.job.reconciliation import ObservedJob
from k8s.elastic_operator.job.status import RUNNING, STARTING, SUSPENDING, ElasticJobStatus, is_progress
from k8s.elastic_operator.job_events import JobEvents
from k8s.elastic_operator.known_pods import KnownPods
from k8s.elastic_operator.metrics import OperatorMetrics
from k8s.elastic_operator.pod_creation import PEOPLES, PodCreator
from k8s.foundation.api_server import ApiError, ApiUnavailable, Conflict, NotFound
from k8s.foundation.names import JOB_LABEL, JOINED_LABEL, NODE_LABEL

log = logging.getLogger(__name__)

_RESYNC_SECONDS = 300.0
_IDLE_SECONDS = 1800.0
"""From one look to the next at a job about which there is nothing to do: the watch may have missed its object's end."""
_CONFLICT_SECONDS = 0.2
_LONGEST_PAUSE = 60.0
_ENDING_SECONDS = 5.0
"""Between two looks at a job with pods that are ending: their node may have died."""
_WITH_PODS = (STARTING, RUNNING, SUSPENDING)


@dataclass
class KeeperContext:
    """A `KeeperContext` is what keepers have in common.

    Attributes:
        api: the API server.
        key: that job tokens come from.
        defaults: of pods.
        metrics: counted here.
        progress_seconds: between two tellings of how far training has come.
    """

    api: OperatorApi
    key: bytes
    defaults: manifests.Defaults
    metrics: OperatorMetrics
    progress_seconds: Callable[[], float]


class Keeper:
    """A `Keeper` keeps one ElasticJob from its first event until its object is gone.

    Args:
        shared: with the other keepers.
        body: the object.
    """

    def __init__(self, shared: KeeperContext, body: Body):
        self._shared, self._api = shared, shared.api
        self.body = body
        self.pods = KnownPods()
        self.pulse = Pulse()
        self.pulse.hears(body)
        self._alarm = Alarm()
        self._alarm.ring()
        self._follower: CoordinatorFollower | None = None
        self._silent_since = time.monotonic()
        self._synced = self._written = 0.0
        self._pause, self._gone = 1.0, False
        self._starter = PodCreator(shared.api, shared.defaults, self.pods.made, lambda: self.pods.bodies.values())
        self._asking = CoordinatorRequests(self.name, self._alarm.set)
        self._edited = asyncio.Event()
        self._events = JobEvents(shared.api, lambda: self.body)
        self._trouble = ""

    # ---- what others tell -------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Look at the job again: something has changed."""
        self._alarm.ring()

    def changed(self, body: Body) -> None:
        """Take in the object, as a watch brings it."""
        self.pulse.hears(body)
        self._take(body)

    def _take(self, body: Body) -> None:
        """Take in the object as it is; what is older than what was written here is passed over."""
        if version(body) >= version(self.body):
            if body["metadata"].get("generation") != self.body["metadata"].get("generation"):
                self._edited.set()
            self.body = body
            self._alarm.ring()

    def _wrote(self, body: Body) -> None:
        """Take in the object as a write from here left it, unless the watch has brought a later change already."""
        if version(body) >= version(self.body):
            self.body = body

    def pod_changed(self, body: Body, gone: bool) -> None:
        """Take in a pod of the job, as a watch brings it."""
        self.pods.changed(body, gone)
        self._alarm.ring()

    # ---- the loop ---------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep the job until cancelled, or until its object is gone.

        Raises:
            NotLeader: the lease is lost. Whatever else is wrong is this job's own.
        """
        try:
            while not await self._is_over():
                await self._alarm.wait()
                self._edited.clear()
                again, rests = await self._attempt()
                self.pulse.rests()
                self._alarm.set(_IDLE_SECONDS if again is None else again)
                await self._rest(rests)
        finally:
            await self._close()

    async def _attempt(self) -> tuple[float | None, float]:
        """Do one reconciliation; return the seconds until another is due, and for how long nothing brings it sooner."""
        try:
            self.pulse.steps()
            with self._shared.metrics.reconciling():
                again = await self._once()
        except NotLeader:
            raise
        except (ElasticError, ApiUnavailable, OSError, TimeoutError) as error:
            again, rests = self._later(), 0.0
            self._synced = 0.0  # what was asked for may have been done, and only its answer be lost
            self._note(repr(error), again)
        except ApiError as error:
            if isinstance(error, Conflict):
                again, rests = _CONFLICT_SECONDS, 0.0
            else:
                self._gone = isinstance(error, NotFound)
                again = self._later()
                rests = again if error.status in PEOPLES else 0.0
            self._note(f"the API server refuses: {error.status} {error}"[:500], again)
            await self._events.complain(str(error) if error.status in PEOPLES else "")
            await self._refresh()
        except Exception as error:
            again = rests = self._later()
            log.exception("%s: the operator failed on this job; trying again in %.1f s", self.name, again)
            await self._confess(error)
        else:
            self._pause, rests = 1.0, 0.0
            if self._trouble:
                self._trouble = ""
                self._alarm.ring()
        return again, rests

    def _later(self) -> float:
        """Return the seconds until the next try, more each time."""
        pause, self._pause = self._pause, min(2 * self._pause, _LONGEST_PAUSE)
        return pause

    async def _is_over(self) -> bool:
        """Return whether the object is gone, where something of it was not found."""
        if not self._gone:
            return False
        self._gone = False
        try:
            found = await self._api.job(Desired.of(self.body))
        except ApiError as error:
            return isinstance(error, NotFound)
        return bool(found["metadata"]["uid"] != self.body["metadata"]["uid"])

    async def _rest(self, seconds: float) -> None:
        """Let what will not mend by itself rest, whatever happens: what is written about it wakes this keeper, too."""
        if seconds:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._edited.wait(), seconds)

    async def _confess(self, error: Exception) -> None:
        """Say on the job that this operator breaks on it: its author can mend it, or tell ours."""
        before, self._trouble = self._trouble, f"{type(error).__name__}: {error}"[:500]
        with contextlib.suppress(Exception):
            status = ElasticJobStatus.of(self.body)
            told = status.with_condition(KEPT, False, "Error", time.time(), self._trouble)
            reason = f"the operator failed on this job: {self._trouble}"
            self._wrote(await self._api.write_status(self.body, replace(told, reason=reason)))
        if self._trouble != before:
            await self._events.tell("Error", self._trouble)

    def _note(self, what: str, again: float) -> None:
        log.warning("%s: %s; trying again in %.1f s", self.name, what, again, extra={"job": self.name})

    @property
    def name(self) -> str:
        """The job's name, as NAMESPACE/NAME."""
        return f"{self.body['metadata']['namespace']}/{self.body['metadata']['name']}"

    async def _refresh(self) -> None:
        with contextlib.suppress(ApiError):
            found = await self._api.job(Desired.of(self.body))
            if found["metadata"]["uid"] == self.body["metadata"]["uid"]:
                self._take(found)
            else:  # another of its name has its own keeper
                self._gone = True

    async def _once(self) -> float | None:
        """Do one reconciliation; return in how many seconds another is due."""
        job = Desired.of(self.body)
        if time.monotonic() > self._synced:
            await self.pods.list(lambda: self._own_pods(job))
            first, self._synced = not self._synced, time.monotonic() + _RESYNC_SECONDS
            if ElasticJobStatus.of(self.body).phase not in _WITH_PODS:
                self._gone = not first
            else:
                await self._starter.keep(job, manifests.token(self._shared.key, job))
        seen = await self._observe(job)
        decision = plan(seen, job, time.time())
        status = decision.status
        if status.phase != SUSPENDING and not job.deleting:
            self._asking.forget_saving()
        again = decision.again
        if status != seen.status:
            due = self._written + self._shared.progress_seconds() - time.monotonic()
            if is_progress(seen.status, status) and due > 0 and not decision.actions:
                again = min(due, again if again is not None else due)
            else:
                self._wrote(await self._api.write_status(self.body, status))
                self.pulse.wrote(self.body)
                self._written = time.monotonic()
                if status.phase != seen.status.phase:
                    log.info("%s: %s: %s", self.name, status.phase, status.reason, extra={"job": self.name})
        self._shared.metrics.job(job, status)  # also what an operator before this one has written
        if status.phase not in _WITH_PODS:
            self._starter.forget()
        for action in decision.actions:
            self.pulse.steps()
            if not isinstance(action, act.Start | act.Ensure):
                await self._do(action, job)
        starts = tuple(action for action in decision.actions if isinstance(action, act.Start))
        ensures = act.Ensure() in decision.actions or (bool(starts) and self._starter.prepared != job.generation)
        token = manifests.token(self._shared.key, job) if ensures else ""
        await self._events.complain(await self._starter.start(starts, job, token))
        unwanted = not starts and seen.denied is not None and not seen.denied.again  # what was refused is due, and left
        if unwanted:
            self._starter.forget()
        if starts and self._starter.denied is not None and self._starter.denied.unsure:
            self._synced = 0.0
        if starts or unwanted:
            self._alarm.ring()
        return again

    # ---- gathering --------------------------------------------------------------------------------------------------

    async def _own_pods(self, job: Desired) -> list[Body]:
        return [body for body in await self._api.pods(job.namespace, f"{JOB_LABEL}={job.name}") if job.owns(body)]

    async def _observe(self, job: Desired) -> ObservedJob:
        bodies = [body for body in self.pods.bodies.values() if job.owns(body)]
        lost = await self._lost(bodies)
        pods = tuple(Pod.of(body, body["metadata"]["name"] in lost) for body in bodies)
        coordinator = next((pod for pod in pods if pod.role is None), None)
        await self._follow(job, coordinator)
        heard = self._follower.heard if self._follower is not None else self._silent_since
        return ObservedJob(
            status=ElasticJobStatus.of(self.body),
            pods=tuple(sorted(pods, key=lambda pod: pod.name)),
            report=self._follower.report if self._follower is not None else None,
            silent=time.monotonic() - heard,
            refused=self._asking.refused,
            saving=self._asking.saving,
            claim=await self._claim(job, coordinator),
            verdict=self._starter.verdict,
            prepared=self._starter.prepared,
            denied=self._starter.denied,
            stranger=self._follower.stranger if self._follower is not None else "",
            trouble=self._trouble,
        )

    async def _claim(self, job: Desired, pod: Pod | None) -> str:
        """Return the phase of the claim that a coordinator which is not placed may wait for; "": it waits for none."""
        waits = bool(job.claim) and pod is not None and pod.staying and not pod.node
        return await self._api.claim_phase(job.namespace, job.claim) if waits else ""

    async def _lost(self, bodies: list[Body]) -> set[str]:
        """Return the names of the deleted pods that nobody ends, by what their nodes say."""
        ending = [body for body in bodies if "deletionTimestamp" in body["metadata"] and body["spec"].get("nodeName")]
        if ending:
            self._alarm.set(_ENDING_SECONDS)
        said = {node: await self._api.readiness(node) for node in {body["spec"]["nodeName"] for body in ending}}
        now = time.time()
        return {body["metadata"]["name"] for body in ending if is_lost(body, said[body["spec"]["nodeName"]], now)}

    async def _follow(self, job: Desired, pod: Pod | None) -> None:
        """Follow the coordinator where it is now."""
        runs = pod is not None and pod.alive and pod.phase == "Running" and pod.address
        address = address_of(pod.address, PORT) if pod is not None and runs else ""
        if self._follower is not None and self._follower.address == address:
            return
        if self._follower is not None:
            self._silent_since = time.monotonic()
            await self._follower.close()
            self._follower = None
        if address:
            self._follower = CoordinatorFollower(
                address, bytes.fromhex(manifests.token(self._shared.key, job)), self.wake
            )

    async def _close(self) -> None:
        self._alarm.close()
        self._asking.close()
        if self._follower is not None:
            await self._follower.close()
        self._shared.metrics.forget(Desired.of(self.body))

    # ---- acting -----------------------------------------------------------------------------------------------------

    async def _do(self, action: act.Action, job: Desired) -> None:
        match action:
            case act.WriteEvent():
                await self._events.tell(action.reason, action.message, action.warning)
            case act.JudgePods():
                await self._starter.judge(job)
                self._alarm.ring()
            case act.DeletePod():
                if (pod := self.pods.bodies.get(action.name)) is not None:
                    await self._api.delete_pod(pod, action.at_once)
            case act.LabelPod():
                joined = {JOINED_LABEL: "true"} if action.joined else {}
                await self._api.label_pod(job.namespace, action.name, {NODE_LABEL: action.member, **joined})
            case act.SetFinalizer():
                kept = [one for one in self.body["metadata"].get("finalizers", ()) if one != FINALIZER]
                self._wrote(await self._api.set_finalizers(self.body, [*kept, FINALIZER] if action.on else kept))
            case act.DeleteJob():
                await self._api.delete_job(job)
            case _ if self._follower is not None:
                self._api.check_leads()  # a coordinator takes the word of whoever has the job's token
                if isinstance(action, act.SaveJob):
                    self._asking.save(self._follower.client, action.term)
                else:
                    await self._asking.ask(self._follower.client, action)
