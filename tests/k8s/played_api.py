"""An API server that a test plays, for keepers: what it is asked, and what it answers."""

import copy

from k8s.elastic_operator.handlers import Keepers
from k8s.elastic_operator.job.manifests import Defaults
from k8s.elastic_operator.job_loop import KeeperContext
from k8s.elastic_operator.metrics import OperatorMetrics
from k8s.foundation.api_server import error_of
from tests.k8s.operator_cases import SPEC


def refusal(status, message):
    """As the API server refuses."""
    return error_of(status, message)


def document(name="digits", **spec):
    """A job's object, as a watch brings it first."""
    meta = {"name": name, "namespace": "ns", "uid": f"uid-{name}-1234", "generation": 1, "resourceVersion": "1"}
    return {"metadata": meta, "spec": copy.deepcopy({**SPEC, **spec})}


class PlayedApi:
    """Args: refuse: given a pod and whether it is a dry run, what is raised; None: nothing."""

    def __init__(self, refuse=lambda pod, dry_run: None):
        self.refuse = refuse
        self.calls = 0
        self.judged, self.made, self.tried, self.deleted = [], [], [], []
        self.events, self.statuses, self.bodies = [], {}, {}
        self.there, self.applied = {}, []

    def check_leads(self):
        pass

    async def create_pod(self, pod, dry_run=False):
        name = pod["metadata"]["name"]
        (self.judged if dry_run else self.tried).append(name)
        if (error := self.refuse(pod, dry_run)) is not None:
            raise error
        if not dry_run:
            self.made.append(name)
        return pod

    async def write_status(self, body, status):
        self.statuses[body["metadata"]["name"]] = status.to_dict()
        meta = {**body["metadata"], "resourceVersion": str(int(body["metadata"]["resourceVersion"]) + 1)}
        return {**body, "metadata": meta, "status": status.to_dict()}

    async def set_finalizers(self, body, finalizers):
        return {**body, "metadata": {**body["metadata"], "finalizers": finalizers}}

    async def write_event(self, job, reason, message, warning):
        self.events.append((job.name, reason, message))

    async def find(self, manifest):
        return self.there.get(manifest["metadata"]["name"])

    async def apply(self, manifest):
        self.applied.append(manifest["metadata"]["name"])
        return {**manifest, "spec": {**manifest["spec"], "clusterIP": "10.96.0.9"}}

    async def create(self, manifest):
        pass

    async def label_pod(self, namespace, name, labels):
        pass

    async def pods(self, namespace, selector):
        return []

    async def job(self, job):
        return self.bodies[job.name]

    def condition(self, name, kind):
        """Of a job, as it was last written: status, reason and message."""
        found = [one for one in self.statuses.get(name, {}).get("conditions", ()) if one["type"] == kind]
        return tuple(found[0][key] for key in ("status", "reason", "message")) if found else ()


def keepers(api, stop):
    """That ask it."""
    shared = KeeperContext(
        api, b"0123456789abcdef", Defaults(image="dl2/runtime:0.1.0"), OperatorMetrics(), lambda: 0.0
    )
    return Keepers(shared, stop)
