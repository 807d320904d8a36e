"""This module hands what kopf watches to the keepers: jobs and their pods. Nothing is decided here."""

import asyncio
import logging
from typing import Any

import kopf

from k8s.elastic_operator.api_writes import NotLeader
from k8s.elastic_operator.health import Pulse, version
from k8s.elastic_operator.job.model import Body
from k8s.elastic_operator.job_loop import Keeper, KeeperContext
from k8s.foundation.names import GROUP, JOB_LABEL, PLURAL, VERSION

log = logging.getLogger(__name__)

Key = tuple[str, str]
_AGAIN_SECONDS = 5.0


class Keepers:
    """A `Keepers` has the keepers of all jobs, by namespace and name.

    Args:
        shared: what they have in common.
        stop: set where the operator may not go on.
    """

    def __init__(self, shared: KeeperContext, stop: asyncio.Event):
        self._shared, self._stop = shared, stop
        self._keepers: dict[Key, Keeper] = {}
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._closed = False

    def __len__(self) -> int:
        return len(self._keepers)

    def job(self, event: Body) -> None:
        """Take in an event of an ElasticJob."""
        body: Body = event["object"]
        key = _key(body, body["metadata"]["name"])
        keeper = self._keepers.get(key)
        same = keeper is not None and keeper.body["metadata"]["uid"] == body["metadata"]["uid"]
        if event["type"] == "DELETED":
            if same:  # else another of its name is there already: kopf tells of each object by itself
                self._drop(key)
            return
        if keeper is not None and same:
            keeper.changed(body)
            return
        if keeper is not None and version(body) < version(keeper.body):
            return  # of an earlier one, which is gone
        self._drop(key)
        self._begin(key, body)

    def _begin(self, key: Key, body: Body) -> None:
        self._keepers[key] = keeper = Keeper(self._shared, body)
        self._tasks[key] = task = asyncio.create_task(keeper.run(), name=f"keeper-{keeper.name}")
        task.add_done_callback(lambda done: self._ended(key, done))

    def pod(self, event: Body) -> None:
        """Take in an event of a pod of a job."""
        body: Body = event["object"]
        keeper = self._keepers.get(_key(body, body["metadata"]["labels"][JOB_LABEL]))
        if keeper is not None:
            keeper.pod_changed(body, event["type"] == "DELETED")

    def pulses(self) -> dict[str, Pulse]:
        """Return how each keeper gets on, by the name of its job."""
        return {keeper.name: keeper.pulse for keeper in self._keepers.values()}

    async def close(self) -> None:
        """End all keepers; jobs go on."""
        self._closed = True
        tasks = list(self._tasks.values())
        for key in list(self._keepers):
            self._drop(key)
        await asyncio.gather(*tasks, return_exceptions=True)

    def _drop(self, key: Key) -> None:
        self._keepers.pop(key, None)
        if (task := self._tasks.pop(key, None)) is not None:
            task.cancel()

    def _ended(self, key: Key, task: "asyncio.Task[None]") -> None:
        keeper = self._keepers.get(key)
        mine = self._tasks.get(key) is task
        if mine:
            self._tasks.pop(key)
            self._keepers.pop(key, None)
        if task.cancelled() or (error := task.exception()) is None:
            return
        if isinstance(error, NotLeader):
            log.error("the lease is lost: this process stops acting")
            self._stop.set()
            return
        log.error("the task that keeps %s/%s died: another one starts in %.0f s", *key, _AGAIN_SECONDS, exc_info=error)
        if mine and keeper is not None:
            asyncio.get_running_loop().call_later(_AGAIN_SECONDS, self._again, key, keeper.body)

    def _again(self, key: Key, body: Body) -> None:
        """Begin a job's keeper again after a fault of ours, unless the watch was sooner."""
        if key not in self._keepers and not self._closed:
            self._begin(key, body)


def _key(body: Body, name: str) -> Key:
    return body["metadata"]["namespace"], name


def settle(settings: kopf.OperatorSettings, **_: Any) -> None:
    """Set kopf up before it watches."""
    settings.posting.enabled = False
    settings.scanning.disabled = True  # neither namespaces nor definitions come and go for us
    settings.watching.server_timeout = 300  # a watch whose connection died silently is noticed
    settings.watching.client_timeout = 330
    settings.watching.connect_timeout = 10
    settings.watching.label_selectors["", "v1", "pods"] = JOB_LABEL  # else all pods of the cluster come, to be dropped


def registry(keepers: Keepers) -> kopf.OperatorRegistry:
    """Return kopf's handlers. They take events only: kopf writes nothing to objects, and its finalizers go unused."""
    found = kopf.OperatorRegistry()

    @kopf.on.login(registry=found)
    def login(**context: Any) -> Any:
        return kopf.login_with_service_account(**context) or kopf.login_with_kubeconfig(**context)

    kopf.on.startup(registry=found)(settle)

    @kopf.on.event(GROUP, VERSION, PLURAL, registry=found)
    async def job(event: Body, **_: Any) -> None:
        keepers.job(event)

    @kopf.on.event("", "v1", "pods", labels={JOB_LABEL: kopf.PRESENT}, registry=found)
    async def pod(event: Body, **_: Any) -> None:
        keepers.pod(event)

    return found
