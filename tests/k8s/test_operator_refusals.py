"""Pods that the API server will not make are tried again later and later, under their names, and people are told."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace

import pytest

from k8s.elastic_operator import job_loop
from k8s.elastic_operator.job.model import FINALIZER, Counts
from k8s.elastic_operator.job.report import CoordinatorReport
from k8s.elastic_operator.job_loop import Keeper
from k8s.foundation.names import ROLE_LABEL
from tests.k8s.played_api import PlayedApi, document, keepers, refusal
from tests.k8s.test_operator_faults import kept, run, template, until

QUOTA = 'pods "digits-worker-1" is forbidden: exceeded quota: few, requested: pods=1, used: pods=2, limited: pods=2'


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


WEBHOOK = 'Internal error occurred: failed calling webhook "x": connection refused'


@pytest.mark.parametrize("judged", [True, False])
def test_a_webhook_that_is_down_is_the_reason_and_pods_keep_their_names(judged):
    """Nobody was told: the job was Waiting, or Starting, without a word."""
    down = True

    def refuse(pod, dry_run):
        return refusal(500, WEBHOOK) if down and dry_run is judged else None

    api, listed = PlayedApi(refuse), []

    async def pods(namespace, selector):
        listed.append(selector)
        return []

    api.pods = pods

    async def scene():
        nonlocal down
        async with kept(api, document()):
            reason = f"Unavailable: {WEBHOOK}" if judged else f"the API server refuses: {WEBHOOK}"
            await until(lambda: api.statuses.get("digits", {}).get("reason") == reason)
            if not judged:
                await until(lambda: len(listed) == 2)  # one of them may have been made all the same
            down = False
            await until(lambda: len(api.made) == 4)

    run(scene)
    assert sorted(api.made) == ["digits-coordinator", "digits-server-1", "digits-worker-1", "digits-worker-2"]
    assert [event[2] for event in api.events if event[1] in ("Refused", "Unavailable")] == [WEBHOOK]
    assert api.statuses["digits"]["term"] == 1


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
