"""One job's fault is that job's: its condition, its event. Others, and the operator, go on."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest

from k8s.elastic_operator import handlers, job_loop
from k8s.elastic_operator.api_writes import NotLeader
from k8s.elastic_operator.job.model import FINALIZER, Counts
from k8s.elastic_operator.job.report import CoordinatorReport
from k8s.elastic_operator.job_loop import Keeper
from k8s.foundation.names import ROLE_LABEL
from tests.k8s.played_api import PlayedApi, document, keepers, refusal

UNKNOWN = 'strict decoding error: unknown field "spec.containers[0].imagePullPolcy"'
QUOTA = 'pods "digits-worker-1" is forbidden: exceeded quota: few, requested: pods=1, used: pods=2, limited: pods=2'


@asynccontextmanager
async def kept(api, *bodies):
    """Keepers that have been told of these jobs."""
    stop = asyncio.Event()
    found = keepers(api, stop)
    for body in bodies:
        found.job({"type": "ADDED", "object": body})
    try:
        yield found, stop
    finally:
        await found.close()


async def until(ready, seconds=30.0):
    async with asyncio.timeout(seconds):
        while not ready():
            await asyncio.sleep(0.01)


def run(scene):
    asyncio.run(scene())


# ---- whatever breaks -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ValueError("no such role"), TypeError("'NoneType'"), KeyError("spec")])
def test_what_breaks_on_one_job_is_its_condition_and_others_are_kept(monkeypatch, error):
    sound = Keeper._once

    async def once(self):
        if self.name == "ns/bad":
            raise error
        return await sound(self)

    monkeypatch.setattr(Keeper, "_once", once)
    api = PlayedApi()

    async def scene():
        async with kept(api, document("bad"), document("good")) as (found, stop):
            await until(lambda: api.condition("bad", "Kept"))
            await until(lambda: len([name for name in api.made if name.startswith("good-")]) == 4)
            assert not stop.is_set()
            assert len(found) == 2

    run(scene)
    status, reason, message = api.condition("bad", "Kept")
    assert (status, reason) == ("False", "Error")
    assert message == f"{type(error).__name__}: {error}"
    assert [event for event in api.events if event[0] == "bad"] == [("bad", "Error", message)]


def test_what_is_written_about_a_fault_does_not_bring_the_next_try_sooner(monkeypatch):
    tries = []

    async def once(self):
        tries.append(self.name)
        self.wake()
        raise ValueError("always")

    monkeypatch.setattr(Keeper, "_once", once)

    async def scene():
        async with kept(PlayedApi(), document("bad")) as (found, _):
            await until(lambda: tries)
            await asyncio.sleep(0.3)
            assert len(tries) == 1
            edited = document("bad")
            edited["metadata"] |= {"generation": 2, "resourceVersion": "9"}
            found.job({"type": "MODIFIED", "object": edited})
            await until(lambda: len(tries) == 2)

    run(scene)


def test_a_keeper_that_dies_all_the_same_is_followed_by_another(monkeypatch):
    monkeypatch.setattr(handlers, "_AGAIN_SECONDS", 0.01)
    lives = []

    async def die(self):
        lives.append(self.name)
        if len(lives) == 1:
            raise RuntimeError("outside of all care")
        await asyncio.Event().wait()

    monkeypatch.setattr(Keeper, "run", die)

    async def scene():
        async with kept(PlayedApi(), document("bad")) as (found, stop):
            await until(lambda: len(lives) == 2)
            assert not stop.is_set()
            assert len(found) == 1

    run(scene)


def test_who_does_not_lead_any_more_stops(monkeypatch):
    async def once(self):
        raise NotLeader("the lease is not ours")

    monkeypatch.setattr(Keeper, "_once", once)

    async def scene():
        async with kept(PlayedApi(), document()) as (_, stop):
            await asyncio.wait_for(stop.wait(), 5)

    run(scene)


# ---- pods are judged before any is made ------------------------------------------------------------------------------


def misspelt(pod, dry_run):
    wrong = "imagePullPolcy" in pod["spec"]["containers"][0]
    return refusal(400, UNKNOWN) if dry_run and wrong else None


def template(**container):
    return {"template": {"spec": {"containers": [{"command": ["python", "x.py"], **container}]}}}


def test_what_the_api_server_has_against_a_template_is_the_jobs_condition_and_nothing_is_made():
    api = PlayedApi(misspelt)
    bad = document("bad", workers=template(imagePullPolcy="Never"))

    async def scene():
        async with kept(api, bad, document("good")) as (found, stop):
            await until(lambda: api.condition("bad", "Accepted")[1:2] == ("InvalidTemplate",))
            await until(lambda: len(api.made) == 4)
            assert not stop.is_set()
            assert all(name.startswith("good-") for name in api.made)
            mended = document("bad", workers=template(imagePullPolicy="Never"))
            mended["metadata"] |= {"generation": 2, "resourceVersion": "99"}
            found.job({"type": "MODIFIED", "object": mended})
            await until(lambda: len([name for name in api.made if name.startswith("bad-")]) == 3)

    run(scene)
    told = [event for event in api.events if event[1] == "InvalidTemplate"]
    assert told == [("bad", "InvalidTemplate", UNKNOWN)]
    assert api.condition("bad", "Accepted")[0] == "True"


def test_a_template_is_judged_as_its_author_wrote_it():
    """A text where a list belongs: added to ours it would be a list of letters."""
    judged = []

    def look(pod, dry_run):
        judged.append(pod["spec"].get("volumes"))

    spec = {"containers": [{"command": ["python", "x.py"]}], "volumes": "notalist"}

    async def scene():
        async with kept(PlayedApi(look), document(workers={"template": {"spec": spec}})):
            await until(lambda: judged)

    run(scene)
    assert judged[0] == "notalist"


def test_a_template_that_no_pod_can_be_made_of_is_the_jobs_condition():
    api = PlayedApi()
    spec = {"containers": [{"command": ["python", "x.py"]}], "volumes": 5}

    async def scene():
        async with kept(api, document("bad", workers={"template": {"spec": spec}})) as (_, stop):
            await until(lambda: api.condition("bad", "Accepted")[1:2] == ("InvalidTemplate",))
            assert not stop.is_set()

    run(scene)
    assert not api.made


def test_a_storage_that_the_image_has_no_program_for_is_refused_before_anything_is_made():
    api = PlayedApi()

    async def scene():
        async with kept(api, document(checkpoint={"url": "s3://no-such"})):
            await until(lambda: api.condition("digits", "Accepted")[1:2] == ("InvalidCheckpoint",))

    run(scene)
    assert "s3fs" in api.condition("digits", "Accepted")[2]
    assert not api.made


def test_a_webhook_that_cannot_tell_does_not_refuse():
    api = PlayedApi(lambda pod, dry: refusal(400, "admission webhook x does not support dry run") if dry else None)

    async def scene():
        async with kept(api, document()):
            await until(lambda: len(api.made) == 4)

    run(scene)


def test_a_job_that_can_be_lost_is_told_so_once():
    api = PlayedApi()
    bare = document()
    del bare["spec"]["checkpoint"]

    async def scene():
        async with kept(api, bare, document("saved")):
            await until(lambda: len(api.made) == 8)

    run(scene)
    (told,) = [event for event in api.events if event[1] == "NoCheckpoint"]
    assert told[0] == "digits"
    assert "checkpoint.url" in told[2]


# ---- a quota ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_quota_is_the_reason_and_pods_are_tried_later_and_later_with_the_same_names(monkeypatch):
    monkeypatch.setattr(job_loop.time, "time", lambda: 1_700_000_000.0)
    room = 2

    def refuse(pod, dry_run):
        return None if dry_run or len(api.made) < room else refusal(403, QUOTA)

    api = PlayedApi(refuse)

    async def scene():
        nonlocal room
        async with kept(api, document()):
            await until(lambda: "quota" in api.statuses.get("digits", {}).get("reason", ""))
            assert api.tried == ["digits-coordinator", "digits-server-1", "digits-worker-1"]
            await asyncio.sleep(0.3)
            assert len(api.tried) == 3, "what is written about it is no reason to try again"
            await until(lambda: len(api.tried) == 4)
            assert api.tried[3] == "digits-worker-1"
            room = 9
            await until(lambda: len(api.made) == 4)

    run(scene)
    assert sorted(api.made) == ["digits-coordinator", "digits-server-1", "digits-worker-1", "digits-worker-2"]
    assert [event[2] for event in api.events if event[1] == "Refused"] == [QUOTA]


@pytest.mark.slow
def test_a_quota_without_room_for_the_coordinator_is_no_loss_of_one():
    room = 0

    def refuse(pod, dry_run):
        return None if dry_run or len(api.made) < room else refusal(403, QUOTA)

    api = PlayedApi(refuse)

    async def scene():
        nonlocal room
        async with kept(api, document()):
            await until(lambda: len(api.tried) == 2)
            room = 9
            await until(lambda: len(api.made) == 4)

    run(scene)
    assert api.statuses["digits"]["term"] == 1
    assert "CoordinatorLost" not in [event[1] for event in api.events]


def lonely(**spec):
    """A job that has trained, and its nodes, whose coordinator's pod is gone."""
    body = document(**spec)
    body["metadata"] |= {"finalizers": [FINALIZER]}
    body["status"] = {"phase": "Running", "term": 3, "trained": True, "created": {"workers": 1, "servers": 1}}
    owner = [{"uid": body["metadata"]["uid"]}]
    names = {"digits-worker-1": "worker", "digits-server-1": "server"}
    metas = [{"name": name, "namespace": "ns", "uid": name, "labels": {ROLE_LABEL: of}} for name, of in names.items()]
    nodes = [{"metadata": {**meta, "ownerReferences": owner}, "spec": {}, "status": RUNS} for meta in metas]
    return body, nodes


RUNS = {"phase": "Running"}


@pytest.mark.parametrize("phase", ["Running", "Suspending"])
def test_a_coordinator_that_a_quota_refuses_is_tried_later_and_later_where_the_job_is_to_be_suspended(phase):
    """Else it would be tried as fast as the API server answers, with an event and a higher term each time."""
    api = PlayedApi(lambda pod, dry_run: refusal(403, QUOTA))
    body, nodes = lonely(suspend=True)
    body["status"]["phase"] = phase

    async def pods(namespace, selector):
        return nodes

    api.pods = pods

    async def scene():
        async with kept(api, body):
            await until(lambda: "quota" in api.statuses.get("digits", {}).get("reason", ""))
            await asyncio.sleep(0.3)

    run(scene)
    assert api.tried == ["digits-coordinator"]
    assert api.statuses["digits"]["term"] == 4
    assert [event[1] for event in api.events] == ["CoordinatorLost", "Refused"]


def test_a_refusal_is_forgotten_when_nobody_wants_the_pod_any_more():
    """It stayed the job's REASON for ever."""
    api = PlayedApi(lambda pod, dry_run: None if dry_run else refusal(403, QUOTA))
    body, nodes = lonely(workers={**template(), "replicas": 2}, servers={"replicas": 1})
    meta = {**nodes[0]["metadata"], "name": "digits-coordinator", "uid": "c", "labels": {ROLE_LABEL: "coordinator"}}
    nodes.append({"metadata": meta, "spec": {"nodeName": "n"}, "status": {**RUNS, "podIP": "10.0.0.1"}})
    nodes[0]["spec"] = nodes[1]["spec"] = {"nodeName": "n"}
    members = {f"{node['metadata']['name']}.1": node["metadata"]["name"] for node in nodes[:2]}
    two, one = Counts(2, 1), Counts(1, 1)

    async def pods(namespace, selector):
        return nodes

    async def scene():
        api.pods, now = pods, 0.0
        keeper = Keeper(keepers(api, asyncio.Event())._shared, body)
        keeper._starter._clock = lambda: now
        said = CoordinatorReport("running", wanted=two, roster=one, members=members, version=9, starting=Counts(1, 0))
        keeper._follower = SimpleNamespace(address="10.0.0.1:7000", report=said, heard=0.0, stranger="", client=None)
        for _ in range(2):
            await keeper._once()
        assert api.statuses["digits"]["reason"] == f"quota: {QUOTA}"
        assert api.condition("digits", "Scheduled")[:2] == ("False", "Refused")
        keeper.body["spec"]["workers"]["replicas"] = 1
        keeper._follower.report = replace(said, wanted=one, starting=Counts())
        now = 60.0
        for _ in range(2):
            await keeper._once()

    run(scene)
    assert api.tried == ["digits-worker-2"]
    assert api.statuses["digits"].get("reason", "") == ""
    assert api.condition("digits", "Scheduled")[0] == "True"


def test_a_quota_on_what_pods_need_is_the_reason_too():
    message = 'services "digits-coordinator" is forbidden: exceeded quota: few, requested: count/services=1'

    class Api(PlayedApi):
        async def apply(self, manifest):
            raise refusal(403, message)

    api = Api()

    async def scene():
        async with kept(api, document()):
            await until(lambda: "quota" in api.statuses.get("digits", {}).get("reason", ""))
            await asyncio.sleep(0.1)

    run(scene)
    assert api.tried == []
    assert (api.statuses["digits"]["term"], api.statuses["digits"]["reason"]) == (1, f"quota: {message}")
    assert [event[1] for event in api.events] == ["Starting", "Refused"]


# ---- what is told ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [403, 429, 500])
def test_an_event_that_the_api_server_will_not_have_keeps_no_pod_from_being_made(status):
    class Api(PlayedApi):
        async def write_event(self, job, reason, message, warning):
            raise refusal(status, "no more events today")

    api = Api()

    async def scene():
        async with kept(api, document()):
            await until(lambda: len(api.made) == 4)

    run(scene)
    assert api.statuses["digits"]["term"] == 1


def test_a_coordinator_that_was_never_made_is_none_that_is_lost(monkeypatch):
    monkeypatch.setattr(job_loop, "_CONFLICT_SECONDS", 0.01)
    busy = [refusal(409, "on resourcequotas: please apply your changes to the latest version")] * 3
    api = PlayedApi(lambda pod, dry_run: busy.pop() if busy and not dry_run else None)
    api.bodies["digits"] = document()

    async def scene():
        async with kept(api, document()):
            await until(lambda: api.made)

    run(scene)
    assert api.made[0] == "digits-coordinator"
    assert [event[1] for event in api.events] == ["Starting"]
    assert api.condition("digits", "Coordinated")[:2] == ("False", "Starting")
