"""One job, kept: gathers what is seen, asks `reconcile.plan`, does what it says.

It remembers nothing that a restart would miss.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from kubernetes.aio.client import ApiException

from coordinator.client import ClientError, RequestRefused
from elastic_ps.core.errors import ElasticError
from k8s.elastic_operator import actions as act
from k8s.elastic_operator import manifests
from k8s.elastic_operator.api import CONFLICT, NOT_FOUND, UNANSWERED, Api
from k8s.elastic_operator.ending import RETRY_SECONDS
from k8s.elastic_operator.follow import Follower
from k8s.elastic_operator.health import Pulse, version
from k8s.elastic_operator.metrics import Metrics
from k8s.elastic_operator.model import FINALIZER, JOB_LABEL, NODE_LABEL, PORT, Body, Counts, Desired, Pod
from k8s.elastic_operator.reconcile import plan
from k8s.elastic_operator.status import SUSPENDING, Status, is_progress
from k8s.elastic_operator.turn import Observed, Saving

log = logging.getLogger(__name__)

_RESYNC_SECONDS = 300.0
_REFUSED_SECONDS = 30.0
_LONGEST_PAUSE = 60.0
_ENDING_SECONDS = 5.0
"""Between two looks at a job with pods that are ending: their node may have died."""


@dataclass
class Shared:
    """What keepers have in common.

    Attributes:
        api: the API server.
        key: that job tokens come from.
        defaults: of pods.
        metrics: counted here.
        progress_seconds: between two tellings of how far training has come.
    """

    api: Api
    key: bytes
    defaults: manifests.Defaults
    metrics: Metrics
    progress_seconds: Callable[[], float]


class Keeper:
    """Keeps one ElasticJob from its first event until its object is gone.

    Args:
        shared: with the other keepers.
        body: the object.
    """

    def __init__(self, shared: Shared, body: Body):
        self._shared, self._api = shared, shared.api
        self.body = body
        self.pods: dict[str, Body] = {}
        self.pulse = Pulse()
        self.pulse.hears(body)
        self._wake = asyncio.Event()
        self._wake.set()
        self._follower: Follower | None = None
        self._silent_since = time.monotonic()
        self._refused: tuple[Counts, str, float] | None = None
        self._saving: tuple[Saving, float] | None = None
        self._saver: asyncio.Task[None] | None = None
        self._synced = self._written = 0.0
        self._complained = self._address = ""

    # ---- what others tell -------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Something has changed."""
        self._wake.set()

    def changed(self, body: Body) -> None:
        """The object, as a watch brings it."""
        self.pulse.hears(body)
        self._take(body)

    def _take(self, body: Body) -> None:
        """The object as it is; what is older than what was written here is passed over."""
        if version(body) >= version(self.body):
            self.body = body
            self._wake.set()

    def pod_changed(self, body: Body, gone: bool) -> None:
        """A pod of the job, as a watch brings it."""
        name = body["metadata"]["name"]
        if gone:
            self.pods.pop(name, None)
        else:
            self.pods[name] = body
        self._wake.set()

    # ---- the loop ---------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled, or the object is gone. Raises `NotLeader`."""
        pause = 1.0
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                try:
                    self.pulse.steps()
                    with self._shared.metrics.reconciling():
                        again = await self._once()
                    pause = 1.0
                except ApiException as error:
                    if error.status == NOT_FOUND and await self._is_gone():
                        return
                    again, pause = (0.2, pause) if error.status == CONFLICT else (pause, min(2 * pause, _LONGEST_PAUSE))
                    self._note(f"the API server refuses: {error.status} {error.reason} {error.body or ''}"[:500], again)
                    await self._complain(error)
                    await self._refresh()
                except (ElasticError, *UNANSWERED) as error:
                    again, pause = pause, min(2 * pause, _LONGEST_PAUSE)
                    self._note(repr(error), again)
                self.pulse.rests()
                self._wake_in(again)
        finally:
            await self._close()

    def _wake_in(self, seconds: float | None) -> None:
        if seconds is not None:
            asyncio.get_running_loop().call_later(seconds, self._wake.set)

    def _note(self, what: str, again: float) -> None:
        log.warning("%s: %s; again in %.1f s", self.name, what, again, extra={"job": self.name})

    @property
    def name(self) -> str:
        """NAMESPACE/NAME."""
        return f"{self.body['metadata']['namespace']}/{self.body['metadata']['name']}"

    async def _complain(self, error: ApiException) -> None:
        """Tell people, once, what the API server will not have: a pod that a quota or a policy forbids."""
        if error.status in _PEOPLES and str(error.body) != self._complained:
            self._complained = str(error.body)
            with contextlib.suppress(ApiException, *UNANSWERED):
                await self._api.tell(Desired.of(self.body), "Refused", str(error.body), warning=True)

    async def _refresh(self) -> None:
        with contextlib.suppress(ApiException, *UNANSWERED):
            self._take(await self._api.job(Desired.of(self.body)))

    async def _is_gone(self) -> bool:
        try:
            found = await self._api.job(Desired.of(self.body))
        except ApiException as error:
            return bool(error.status == NOT_FOUND)
        return bool(found["metadata"]["uid"] != self.body["metadata"]["uid"])

    async def _once(self) -> float | None:
        """One reconciliation. Returns in how many seconds another is due."""
        job = Desired.of(self.body)
        if time.monotonic() > self._synced:
            listed = await self._api.pods(job.namespace, f"{JOB_LABEL}={job.name}")
            self.pods = {body["metadata"]["name"]: body for body in listed if _owned(body, job)}
            self._synced = time.monotonic() + _RESYNC_SECONDS
        seen = await self._observe(job)
        decision = plan(seen, job, time.time())
        status = decision.status
        if status.phase != SUSPENDING and not job.deleting:
            self._forget_saving()
        again = decision.again
        if status != seen.status:
            due = self._written + self._shared.progress_seconds() - time.monotonic()
            if is_progress(seen.status, status) and due > 0 and not decision.actions:
                again = min(due, again if again is not None else due)
            else:
                self.body = await self._api.write_status(self.body, status)
                self.pulse.wrote(self.body)
                self._written = time.monotonic()
                self._shared.metrics.job(job, status)
                if status.phase != seen.status.phase:
                    log.info("%s: %s: %s", self.name, status.phase, status.reason, extra={"job": self.name})
        for action in decision.actions:
            self.pulse.steps()
            await self._do(action, job)
        return again

    # ---- gathering --------------------------------------------------------------------------------------------------

    async def _observe(self, job: Desired) -> Observed:
        bodies = [body for body in self.pods.values() if _owned(body, job)]
        unreachable = await self._unreachable(bodies)
        pods = tuple(Pod.of(body, unreachable) for body in bodies)
        coordinator = next((pod for pod in pods if pod.role is None), None)
        await self._follow(job, coordinator)
        now = time.monotonic()
        if self._refused is not None and now > self._refused[2]:
            self._refused = None
        heard = self._follower.heard if self._follower is not None else self._silent_since
        return Observed(
            status=Status.of(self.body),
            pods=tuple(sorted(pods, key=lambda pod: pod.name)),
            report=self._follower.report if self._follower is not None else None,
            silent=now - heard,
            refused=self._refused[:2] if self._refused is not None else None,
            saving=self._saving[0] if self._saving is not None else None,
            claim=await self._claim(job, coordinator),
        )

    async def _claim(self, job: Desired, pod: Pod | None) -> str:
        """What a coordinator that is not placed may wait for."""
        waits = bool(job.claim) and pod is not None and pod.staying and not pod.node
        return await self._api.claim_phase(job.namespace, job.claim) if waits else ""

    async def _unreachable(self, bodies: list[Body]) -> set[str]:
        """Nodes that do not answer, of those that deleted pods are on: there, nobody ends them."""
        ending = [body for body in bodies if "deletionTimestamp" in body["metadata"]]
        nodes = {name for body in ending if (name := body["spec"].get("nodeName"))}
        if nodes:
            self._wake_in(_ENDING_SECONDS)
        return {name for name in nodes if not await self._api.answers(name)}

    async def _follow(self, job: Desired, pod: Pod | None) -> None:
        """Follow the coordinator where it is now."""
        runs = pod is not None and pod.alive and pod.phase == "Running" and pod.address
        address = f"{pod.address}:{PORT}" if pod is not None and runs else ""
        if self._follower is not None and self._follower.address == address:
            return
        if self._follower is not None:
            self._silent_since = time.monotonic()
            await self._follower.close()
            self._follower = None
        if address:
            self._follower = Follower(address, bytes.fromhex(manifests.token(self._shared.key, job)), self.wake)

    async def _close(self) -> None:
        if self._saver is not None:
            self._saver.cancel()
        if self._follower is not None:
            await self._follower.close()
        self._shared.metrics.forget(Desired.of(self.body))

    # ---- acting -----------------------------------------------------------------------------------------------------

    async def _do(self, action: act.Action, job: Desired) -> None:
        match action:
            case act.Tell():
                await self._api.tell(job, action.reason, action.message, action.warning)
            case act.Ensure():
                self._address = ""
                await self._api.create(manifests.secret(job, manifests.token(self._shared.key, job)))
                if job.claim:
                    await self._api.create(manifests.claim(job))
                for manifest in (manifests.service(job), *manifests.budgets(job)):
                    await self._api.apply(manifest)
            case act.StartCoordinator() | act.StartNode():
                await self._start(action, job)
            case act.DeletePod():
                await self._api.delete_pod(job.namespace, action.name, action.at_once)
            case act.LabelPod():
                await self._api.label_pod(job.namespace, action.name, {NODE_LABEL: action.member})
            case act.SetFinalizer():
                kept = [one for one in self.body["metadata"].get("finalizers", ()) if one != FINALIZER]
                self.body = await self._api.set_finalizers(self.body, [*kept, FINALIZER] if action.on else kept)
            case act.DeleteJob():
                await self._api.delete_job(job)
            case act.Save():
                self._save()
            case _:
                await self._ask(action)

    async def _start(self, action: act.StartCoordinator | act.StartNode, job: Desired) -> None:
        if isinstance(action, act.StartCoordinator):
            manifest = manifests.coordinator_pod(job, action, self._shared.defaults)
        else:
            if not self._address:
                self._address = (await self._api.apply(manifests.service(job)))["spec"]["clusterIP"]
            manifest = manifests.node_pod(job, action, self._shared.defaults, self._address)
        made = await self._api.create_pod(manifest)
        self.pods.setdefault(made["metadata"]["name"], made)

    async def _ask(self, action: act.Action) -> None:
        """Something of the coordinator."""
        follower = self._follower
        if follower is None:
            return
        client = follower.client
        try:
            match action:
                case act.Scale():
                    counts = action.counts
                    await asyncio.to_thread(partial(client.scale, counts.workers, counts.servers, cause=action.cause))
                case act.Stop():
                    await asyncio.to_thread(partial(client.stop, now=True, reason=action.reason))
                case act.TellExit():
                    await asyncio.to_thread(client.node_exited, action.nonce, action.node, _KILLED)
        except RequestRefused as error:
            if isinstance(action, act.Scale):
                self._refused = (action.counts, str(error), time.monotonic() + _REFUSED_SECONDS)
                self._wake.set()
            self._note(f"{action}: {error}", _REFUSED_SECONDS)
        except ClientError as error:
            self._note(f"{action}: {error}", 1.0)
            self._wake_in(1.0)

    def _save(self) -> None:
        if self._follower is not None and self._saving is None:
            self._saving = (Saving(), time.monotonic())
            self._saver = asyncio.create_task(self._write_checkpoint(self._follower), name=f"save-{self.name}")

    async def _write_checkpoint(self, follower: Follower) -> None:
        try:
            reply = await asyncio.to_thread(follower.client.checkpoint)
            saving = Saving(url=reply.url)
        except ClientError as error:
            saving = Saving(error=str(error))
        self._saving = (saving, time.monotonic())
        self._wake.set()

    def _forget_saving(self) -> None:
        if self._saving is not None and not self._saving[0].under_way:
            saving, ended = self._saving
            if saving.url or time.monotonic() - ended > RETRY_SECONDS:
                self._saving = None


_KILLED = 137
_PEOPLES = (400, 403, 422)
"""What the API server answers where somebody has to mend something."""


def _owned(body: Body, job: Desired) -> bool:
    """Not those of an earlier job of the same name."""
    return any(owner.get("uid") == job.uid for owner in body["metadata"].get("ownerReferences", ()))
