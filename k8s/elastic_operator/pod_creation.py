"""This module makes a job's pods or has them judged; what the API server refuses is tried again later and later."""

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from elastic_ps.core.configuration import Role
from elastic_ps.system import storage
from k8s.elastic_operator.api_writes import OperatorApi
from k8s.elastic_operator.job import manifests, templates
from k8s.elastic_operator.job.actions import Start, StartCoordinator, StartNode
from k8s.elastic_operator.job.model import Body, Desired
from k8s.elastic_operator.job.reconciliation import ApiDenial, ApiVerdict
from k8s.foundation.api_server import AlreadyExists, ApiError, ApiUnavailable, Conflict, Rejected

log = logging.getLogger(__name__)

PEOPLES = (400, 403, 422)
"""What the API server answers where somebody has to mend something."""
_FORBIDDEN = 403
_BROKEN = 500
"""And more: something behind it does not work, as a webhook that is asked about each pod. It may pass, or not."""
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_LONGEST_MESSAGE = 1000
_CANNOT_JUDGE = "does not support dry run"
"""What the API server answers where a webhook of somebody's cannot tell without the real thing."""


class PodCreator:
    """A `PodCreator` makes one job's pods.

    Args:
        api: the API server.
        defaults: of pods.
        made: called with each pod that there is then.
        pods: returns the pods that there are.
        clock: monotonic seconds.

    Attributes:
        prepared: generation of the document for which what pods need was made here; 0: an operator before this one has
            made it, and may have named it otherwise.
    """

    def __init__(
        self,
        api: OperatorApi,
        defaults: manifests.Defaults,
        made: Callable[[Body], None],
        pods: Callable[[], Iterable[Body]],
        clock: Callable[[], float] = time.monotonic,
    ):
        self._api, self._defaults, self._made, self._pods, self._clock = api, defaults, made, pods, clock
        self._address, self.prepared = "", 0
        self._denial: tuple[ApiDenial, float] | None = None
        self._verdict: tuple[ApiVerdict, float] | None = None
        self._pause = _FIRST_PAUSE

    # ---- the real thing ---------------------------------------------------------------------------------------------

    @property
    def denied(self) -> ApiDenial | None:
        """Return what the API server would not make, and when it is to be tried again; None: nothing."""
        if self._denial is None:
            return None
        denial, until = self._denial
        return replace(denial, again=max(0.0, until - self._clock()))

    def forget(self) -> None:
        """Forget what was refused: the job is to have no pods now, or not those."""
        self._denial, self._pause = None, _FIRST_PAUSE

    async def start(self, starts: tuple[Start, ...], job: Desired, token: str = "") -> str:
        """Make pods, in order. The first that the API server refuses is the last to be tried.

        Args:
            starts: the pods.
            job: whose.
            token: the job's; with it all that its pods need is made before; "": that is there.

        Returns:
            The API server's sentence where it is news; "": all are made, or it says what it said before, or is busy.
        """
        before, made = self._denial[0].message if self._denial is not None else "", 0
        try:
            if token:
                await self._prepare(job, token)
            for action in starts:
                pod = await self._api.create_pod(await self._manifest(action, job))
                if isinstance(action, StartCoordinator):
                    _own(pod, "Pod", job)
                self._made(pod)
                made += 1
        except ApiError as error:
            # what may pass is remembered, too: without it a job that was just begun is one that has lost all its pods
            passes = isinstance(error, Conflict | ApiUnavailable)
            if not (passes or error.status in PEOPLES) or not starts:
                raise
            message, unsure = str(error), isinstance(error, ApiUnavailable)
            self._denial = ApiDenial(message, starts[made:], unsure=unsure), self._clock() + self._pause
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)
            return message if message != before and _is_news(error) else ""
        if starts:
            self.forget()
        return ""

    async def _prepare(self, job: Desired, token: str) -> None:
        """Make the token's secret, the coordinator's service and claim, and the disruption budgets."""
        self._address = ""  # of the service, which may have another one when it is written
        await self._create(manifests.secret(job, token), job)
        if job.claim:
            await self._create(manifests.claim(job), job)
        await self._make_service(job)
        for manifest in manifests.budgets(job):
            await self._apply(manifest, job)
        self.prepared = job.generation

    async def _create(self, manifest: templates.Manifest, job: Desired) -> None:
        """Make what is there already where the job has pods: a quota that is used up refuses it then all the same."""
        try:
            await self._api.create(manifest)
        except ApiError as error:
            if error.status not in PEOPLES or not any(job.owns(pod) for pod in self._pods()):
                raise

    async def keep(self, job: Desired, token: str) -> None:
        """Make the secret and the service of a job that runs again, if somebody has deleted them: no watch tells of it.

        Args:
            job: whose.
            token: the job's.
        """
        if self.prepared and any(job.owns(pod) for pod in self._pods()):  # else it is about to be made
            try:
                await self._create(manifests.secret(job, token), job)
            except ApiError as error:  # a webhook that is down refuses what is there, too; the job is looked after
                name = f"{job.namespace}/{job.name}"
                log.warning("%s: whether its secret is there cannot be told: %s", name, error, extra={"job": name})
        if self._known_address(job) and await self._api.find(manifests.service(job)) is None:
            self._address = await self._make_service(job)

    async def _make_service(self, job: Desired) -> str:
        """Make the coordinator's service; return its address: one that is made again has that which nodes know."""
        found = await self._api.find(manifests.service(job))
        address = "" if found is not None else self._known_address(job)
        return str((await self._apply(manifests.service(job, address), job))["spec"]["clusterIP"])

    def _known_address(self, job: Desired) -> str:
        """Return the address of the service that nodes which are there were made with; "": there are none."""
        known = (manifests.coordinator_address(pod) for pod in self._pods() if job.owns(pod))
        return next(filter(None, known), "")

    async def _manifest(self, action: Start, job: Desired) -> templates.Manifest:
        if isinstance(action, StartCoordinator):
            return manifests.coordinator_pod(job, action, self._defaults)
        if not self._address:
            self._address = await self._make_service(job)
        return manifests.node_pod(job, action, self._defaults, self._address)

    async def _apply(self, manifest: Body, job: Desired) -> Body:
        """Make an object as the manifest says, unless another's has its name: an earlier job's may go at any time."""
        if (found := await self._api.find(manifest)) is not None:
            _own(found, manifest["kind"], job)
        return await self._api.apply(manifest)

    # ---- judged before ----------------------------------------------------------------------------------------------

    @property
    def verdict(self) -> ApiVerdict | None:
        """The API server's verdict on the job's pods; None: it has to be asked, perhaps again."""
        if self._verdict is None:
            return None
        verdict, until = self._verdict
        left = until - self._clock()
        if verdict.reason and left <= 0:
            return None
        return replace(verdict, again=max(0.0, left))

    async def judge(self, job: Desired) -> None:
        """Ask whether the API server would take the job's pods; nothing is made."""
        reason, message = await self._judge(job)
        known = self._verdict[0] if self._verdict is not None else None
        if not reason or known is None or known.generation != job.generation:
            self._pause = _FIRST_PAUSE
        self._verdict = ApiVerdict(job.generation, reason, message[:_LONGEST_MESSAGE]), self._clock() + self._pause
        self._pause = min(2 * self._pause, _LONGEST_PAUSE) if reason else _FIRST_PAUSE

    async def _judge(self, job: Desired) -> tuple[str, str]:
        if why := self._storage(job):
            return "InvalidCheckpoint", why
        for manifest in templates.written(job, self._defaults.image):  # so that errors name its author's own fields
            reason, message = await self._try(manifest)
            if reason == "InvalidTemplate":
                return reason, message
        try:
            pods = [manifests.coordinator_pod(job, StartCoordinator(1, job.minimum), self._defaults)]
            pods += [manifests.node_pod(job, StartNode(role, 1), self._defaults, "127.0.0.1") for role in job.roles]
        except Exception as error:  # noqa: BLE001  (whatever it is: it is in this job's document)
            return "InvalidTemplate", f"the template cannot be made a pod of: {error!r}"
        for manifest in pods:
            reason, message = await self._try(manifest)
            if reason:
                return reason, message
        return "", ""

    async def _try(self, manifest: templates.Manifest) -> tuple[str, str]:
        """Return what the API server has against a pod, as a word and a sentence; "": nothing."""
        try:
            await self._api.create_pod(manifest, dry_run=True)
        except ApiError as error:
            message = str(error)
            if isinstance(error, AlreadyExists) or _CANNOT_JUDGE in message:
                return "", ""
            if error.status >= _BROKEN:
                return "Unavailable", message
            if error.status not in PEOPLES:
                raise
            if error.status == _FORBIDDEN:
                return ("Quota" if "exceeded quota" in message else "Forbidden"), message
            return "InvalidTemplate", message
        return "", ""

    def _storage(self, job: Desired) -> str:
        """Return why the job could not be saved, where that is known: pods of other images may have other programs."""
        if storage.from_anywhere(job.checkpoint) != job.checkpoint:
            return "checkpoint.url is relative, and pods have a working directory each: give a path from /, or a URL"
        if not job.checkpoint or templates.image(job, Role.SERVER, self._defaults.image) != self._defaults.image:
            return ""
        try:
            storage.check_protocol(job.checkpoint)
        except (ValueError, ImportError) as error:
            return f"checkpoint.url: the image {self._defaults.image} cannot write there: {error}"
        return ""


def _is_news(error: ApiError) -> bool:
    """Return whether people are told of a refusal by an event: somebody may have to mend what does not work."""
    return error.status in PEOPLES or error.status >= _BROKEN


def _own(found: Body, kind: str, job: Desired) -> None:
    """Raise Rejected: an object that is there has the name of one of the job's, and is another's."""
    if not job.owns(found):
        name, kind = found["metadata"]["name"], kind.lower()
        why = f'{kind}s "{name}" is there already, and is not this job\'s'
        mend = f"if the {kind} is to stay, give the job another name, else kubectl delete {kind} {name}"
        raise Rejected(f"{why}: it is tried again; {mend}", _FORBIDDEN)
