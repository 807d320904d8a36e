"""What a watch brings while the operator asks or writes is not lost on what that answers."""

import asyncio
from types import SimpleNamespace

import kopf
import pytest

from elastic_ps.core.configuration import Role
from k8s.elastic_operator import handlers, job_loop
from k8s.elastic_operator.job import manifests
from k8s.elastic_operator.job.actions import StartNode
from k8s.elastic_operator.job.model import FINALIZER, Desired
from k8s.elastic_operator.job.pods import READY
from k8s.elastic_operator.job_loop import Keeper
from k8s.foundation.api_server import ApiUnavailable
from k8s.foundation.names import GROUP, JOB_LABEL, PLURAL, ROLE_LABEL, VERSION
from tests.k8s.played_api import PlayedApi, document, keepers, refusal
from tests.k8s.test_operator_faults import kept, run, until


def coordinator(version, **status):
    owner = {"uid": document()["metadata"]["uid"]}
    meta = {"name": "digits-coordinator", "namespace": "ns", "uid": "c", "labels": {ROLE_LABEL: "coordinator"}}
    return {
        "metadata": {**meta, "resourceVersion": version, "ownerReferences": [owner]},
        "spec": {},
        "status": status,
    }


def test_what_a_watch_tells_of_a_pod_while_all_are_listed_is_newer_than_the_list():
    """Nothing more may come of that pod: the coordinator that runs by now would be asked for nothing."""
    told = []

    class Api(PlayedApi):
        async def pods(self, namespace, selector):
            listed = [coordinator("7", phase="Pending")]
            for body, gone in told:
                keeper.pod_changed(body, gone)
            return listed

    async def scene():
        nonlocal keeper
        for news, left in (
            ((coordinator("8", phase="Running"), False), [coordinator("8", phase="Running")]),
            ((coordinator("8", phase="Running"), True), []),
            ((coordinator("6", phase="Pending"), False), [coordinator("7", phase="Pending")]),
        ):
            told[:] = [news]
            keeper = Keeper(keepers(Api(), asyncio.Event())._shared, document())
            await keeper._once()
            assert [body for body in keeper.pods.bodies.values() if body["metadata"]["uid"] == "c"] == left

    keeper = None
    run(scene)


def test_a_change_that_comes_while_the_status_is_written_is_newer_than_the_answer():
    """Else a job whose status says all there is to say would go on as it was written before."""
    suspended, resumed = document(suspend=True), document()
    suspended["metadata"] |= {"finalizers": [FINALIZER]}
    resumed["metadata"] |= {"finalizers": [FINALIZER], "generation": 2, "resourceVersion": "5"}

    class Api(PlayedApi):
        async def write_status(self, body, status):
            written = await super().write_status(body, status)
            if body["metadata"]["resourceVersion"] == "1":
                found.job({"type": "MODIFIED", "object": resumed})
            return written

    api = Api()

    async def scene():
        nonlocal found
        async with kept(api, suspended) as (found, _):
            await until(lambda: api.made)

    found = None
    run(scene)


def test_a_pod_that_was_made_though_the_answer_was_lost_is_known_before_its_watch_tells():
    """Its node may register by then, and would be told to the coordinator as one whose pod is gone."""

    class Api(PlayedApi):
        async def create_pod(self, pod, dry_run=False):
            found = await super().create_pod(pod, dry_run)
            if found["metadata"]["name"] == "digits-worker-1" and not dry_run:
                raise ApiUnavailable("timed out")
            return found

        async def pods(self, namespace, selector):
            owner = [{"uid": document()["metadata"]["uid"]}]
            made = [{"name": name, "namespace": "ns", "uid": name, "ownerReferences": owner} for name in self.made]
            return [
                {"metadata": {**meta, "labels": {ROLE_LABEL: meta["name"].split("-")[1]}}, "spec": {}} for meta in made
            ]

    api = Api()

    async def scene():
        keeper = Keeper(keepers(api, asyncio.Event())._shared, document())
        while "digits-worker-1" not in api.made:
            await keeper._attempt()
        await keeper._attempt()
        assert "digits-worker-1" in keeper.pods.bodies

    run(scene)


def test_a_pod_that_is_gone_before_its_making_is_answered_is_not_counted_among_those_there():
    """Nothing more comes of it: it would be waited for until all pods are listed again, minutes later."""

    class Api(PlayedApi):
        async def create_pod(self, pod, dry_run=False):
            found = await super().create_pod(pod, dry_run)
            if found["metadata"]["name"] != "digits-worker-1" or dry_run:
                return found
            owned = {**found["metadata"], "ownerReferences": [{"uid": document()["metadata"]["uid"]}]}
            made, gone = ({**found, "metadata": {**owned, "resourceVersion": version}} for version in ("7", "9"))
            keeper.pod_changed(made, gone=False)
            keeper.pod_changed(gone, gone=True)
            return made

    async def scene():
        nonlocal keeper
        api = Api()
        keeper = Keeper(keepers(api, asyncio.Event())._shared, document())
        while "digits-worker-1" not in api.made:
            await keeper._attempt()
        assert "digits-worker-1" not in keeper.pods.bodies
        again = coordinator("8", phase="Running")
        again["metadata"]["name"] = "digits-worker-1"
        keeper.pod_changed(again, gone=False)  # a watch that begins anew may tell of it once more
        assert "digits-worker-1" not in keeper.pods.bodies

    keeper = None
    run(scene)


@pytest.mark.parametrize("edited", [False, True])
@pytest.mark.parametrize("phase", ["Running", "Completed"])
@pytest.mark.parametrize("address", ["10.96.0.7", "fd00::7"])
def test_a_running_jobs_service_that_somebody_has_deleted_is_made_again(phase, address, edited):
    """Its nodes, and all that were made later, went on with an address at which nobody answered any more."""
    body, made = document(), []
    body["metadata"] |= {"finalizers": [FINALIZER]}
    body["status"] = {"phase": phase, "term": 1, "completionTime": "2030-01-01T00:00:00Z"}
    body["status"] |= {"observedGeneration": 0 if edited else 1}  # then all of the job's is made as it says
    desired = Desired.of(body)
    node = manifests.node_pod(desired, StartNode(Role.WORKER, 1), manifests.Defaults("image"), address)
    node["metadata"] |= {"uid": "w", "resourceVersion": "7"}
    pods = [coordinator("7", phase="Running"), {**node, "status": {"phase": "Running"}}]

    class Api(PlayedApi):
        async def pods(self, namespace, selector):
            return pods

        async def delete_pod(self, pod, at_once):
            """They stay."""

        async def apply(self, manifest):
            if (
                manifest["kind"] == "Service"
                and self.there.setdefault(manifest["metadata"]["name"], manifest) is manifest
            ):
                made.append(manifest["spec"].get("clusterIP"))
            return await super().apply(manifest)

    async def scene():
        shared = keepers(Api(), asyncio.Event())._shared
        for _ in range(2):  # the second finds it
            await Keeper(shared, body)._once()

    run(scene)
    assert made == ([address] if phase == "Running" else [])


@pytest.mark.parametrize("refusal", [None, ApiUnavailable("failed calling webhook", 500)])
def test_a_running_jobs_secret_that_somebody_has_deleted_is_made_again(refusal):
    """Pods that were made later waited for it for ever. Where that is refused the job is looked after all the same."""
    body, made = document(), []
    body["metadata"] |= {"finalizers": [FINALIZER]}
    body["status"] = {"phase": "Running", "term": 1, "observedGeneration": 1}

    class Api(PlayedApi):
        async def pods(self, namespace, selector):
            return [coordinator("7", phase="Running")]

        async def create(self, manifest):
            made.append(manifest["metadata"]["name"])
            if refusal is not None:
                raise refusal

    async def scene():
        keeper = Keeper(keepers(Api(), asyncio.Event())._shared, body)
        keeper._starter.prepared = 1  # all was there once
        for _ in range(2):  # the next look is of minutes later
            await keeper._once()

    run(scene)
    assert made == [Desired.of(body).secret]


def test_only_pods_of_jobs_are_asked_for():
    """All pods of the cluster came, with each of their changes, and nearly all of them were dropped."""
    settings = kopf.OperatorSettings()
    handlers.settle(settings)
    selectors = settings.watching.label_selectors
    pods, jobs = kopf.Resource("", "v1", "pods"), kopf.Resource(GROUP, VERSION, PLURAL)
    assert (selectors.collect(pods), selectors.collect(jobs)) == ([JOB_LABEL], [])


def test_a_job_whose_end_the_watch_has_missed_is_kept_no_longer(monkeypatch):
    """After a watch that was too old to go on from, kopf tells of what is there, and of nothing that is not."""
    monkeypatch.setattr(job_loop, "_IDLE_SECONDS", 0.02)
    monkeypatch.setattr(job_loop, "_RESYNC_SECONDS", 0.01)
    ended, asked = document(), []
    ended["status"] = {"phase": "Completed", "term": 1, "completionTime": "2020-01-01T00:00:00Z"}

    class Api(PlayedApi):
        async def job(self, job):
            asked.append(job.name)
            if len(asked) > 2:
                raise refusal(404, "it is gone")
            return ended

    async def scene():
        async with kept(Api(), ended) as (found, _):
            await until(lambda: not len(found))

    run(scene)
    assert len(asked) == 3


def test_looks_that_are_due_do_not_become_more_with_each_change(monkeypatch):
    """Each look asks for another in a while: where changes add looks of their own, these would ask too, and so on."""
    monkeypatch.setattr(job_loop, "_ENDING_SECONDS", 0.05)
    looks = []
    ending = coordinator("7", phase="Running")
    ending["metadata"] |= {"deletionTimestamp": "2030-01-01T00:00:00Z"}
    ending["spec"] = {"nodeName": "node-1"}

    class Api(PlayedApi):
        async def pods(self, namespace, selector):
            return [ending]

        async def readiness(self, node):
            looks.append(node)
            return READY

    suspended = document(suspend=True)
    suspended["metadata"] |= {"finalizers": [FINALIZER]}
    suspended["status"] = {"phase": "Suspending", "term": 1}

    async def scene():
        async with kept(Api(), suspended) as (found, _):
            (keeper,) = found._keepers.values()
            for _ in range(40):
                keeper.wake()
                await asyncio.sleep(0.002)
            looks.clear()
            await asyncio.sleep(0.5)

    run(scene)
    assert 3 <= len(looks) <= 12


@pytest.mark.parametrize(("address", "asked"), [("10.0.0.9", "10.0.0.9:7000"), ("fd00::9", "[fd00::9]:7000")])
def test_a_coordinator_is_followed_at_its_pods_address_of_whichever_family(monkeypatch, address, asked):
    followed = []

    class Follower(SimpleNamespace):
        def __init__(self, address, *_):
            followed.append(address)
            super().__init__(address=address, report=None, heard=0.0, stranger="")

        async def close(self):
            pass

    monkeypatch.setattr(job_loop, "CoordinatorFollower", Follower)
    body = document()
    body["status"] = {"phase": "Running", "term": 1}

    class Api(PlayedApi):
        async def pods(self, namespace, selector):
            return [coordinator("7", phase="Running", podIP=address)]

    async def scene():
        keeper = Keeper(keepers(Api(), asyncio.Event())._shared, body)
        await keeper._once()
        await keeper._close()

    run(scene)
    assert followed == [asked]
