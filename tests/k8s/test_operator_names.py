"""Objects of one name: the end of an earlier one is none of a later one, and a stranger's pod is not the job's."""

import asyncio
from dataclasses import replace

import pytest

from elastic_ps.core.configuration import Role
from k8s.elastic_operator import job_loop
from k8s.elastic_operator.job import manifests
from k8s.elastic_operator.job.actions import StartNode
from k8s.elastic_operator.job.reconciliation import OperatorDecision
from k8s.elastic_operator.job.status import ElasticJobStatus
from k8s.elastic_operator.job_loop import Keeper
from k8s.elastic_operator.metrics import OperatorMetrics
from tests.k8s.operator_cases import job
from tests.k8s.played_api import PlayedApi, document, keepers, refusal
from tests.k8s.test_operator_faults import kept, run, until

# ---- one name after the other ----------------------------------------------------------------------------------------


def test_the_end_of_an_earlier_job_or_pod_of_the_name_is_none_of_the_present_one():
    """Events of one object come in their order, those of two may not."""
    before, now = document(), document()
    now["metadata"] |= {"uid": "uid-of-the-next", "resourceVersion": "9"}
    pods = [
        {"metadata": {"name": "digits-coordinator", "namespace": "ns", "uid": uid, "resourceVersion": uid}, "spec": {}}
        for uid in ("5", "8")
    ]

    async def scene():
        async with kept(PlayedApi(), now) as (found, _):
            found.job({"type": "DELETED", "object": before})
            (keeper,) = found._keepers.values()
            keeper.pod_changed(pods[1], gone=False)
            keeper.pod_changed(pods[0], gone=False)
            keeper.pod_changed(pods[0], gone=True)
            assert keeper.pods.bodies == {"digits-coordinator": pods[1]}
            found.job({"type": "DELETED", "object": now})
            assert len(found) == 0

    run(scene)


def test_the_last_change_of_an_earlier_job_of_the_name_does_not_take_the_place_of_the_present_one():
    """Its end, which follows, would leave nobody who keeps the job that is there."""
    before, now = document(), document()
    now["metadata"] |= {"uid": "uid-of-the-next", "resourceVersion": "9"}

    async def scene():
        async with kept(PlayedApi(), now) as (found, _):
            found.job({"type": "MODIFIED", "object": before})
            found.job({"type": "DELETED", "object": before})
            assert [keeper.body["metadata"]["uid"] for keeper in found._keepers.values()] == ["uid-of-the-next"]

    run(scene)


def test_a_keeper_does_not_go_on_with_a_later_job_of_the_name():
    """What it knows is of the earlier one, as that its template was judged and taken."""
    before, now = document(), document()
    now["metadata"] |= {"uid": "uid-of-the-next", "resourceVersion": "9"}
    api = PlayedApi()
    api.bodies["digits"] = now

    async def conflict(body, status):
        await asyncio.sleep(0)
        raise refusal(409, "the object has been modified")

    api.write_status = conflict

    async def scene():
        async with kept(api, before) as (found, _):
            (keeper,) = found._keepers.values()
            await until(lambda: len(found) == 0)  # and does not ask on and on for what is not there
            assert keeper.body["metadata"]["uid"] == before["metadata"]["uid"]

    run(scene)


def test_a_pod_that_was_just_made_takes_the_place_of_an_earlier_jobs_whose_end_is_not_told_yet():
    """Else the job's coordinator would be taken for lost, and followed by another in another term, as soon as made."""

    class Api(PlayedApi):
        async def create_pod(self, pod, dry_run=False):
            found = await super().create_pod(pod, dry_run)
            return {**found, "metadata": {**found["metadata"], "resourceVersion": "9"}}

    api = Api()
    meta = {"name": "digits-coordinator", "namespace": "ns", "uid": "c", "resourceVersion": "5"}

    async def scene():
        keeper = Keeper(keepers(api, asyncio.Event())._shared, document())
        for _ in range(6):
            await keeper._once()
            if not api.made:
                keeper.pod_changed({"metadata": meta, "spec": {}}, gone=False)

    run(scene)
    assert api.tried.count("digits-coordinator") == 1
    assert api.statuses["digits"]["term"] == 1


def test_jobs_of_one_name_have_a_secret_each():
    """That of an earlier one has another token, and is collected at any time after its job is gone."""
    before, now = job(), replace(job(), uid="87654321-5678")
    made = {each.uid: manifests.secret(each, "a token")["metadata"]["name"] for each in (before, now)}
    assert len(set(made.values())) == 2
    for each in (before, now):
        pod = manifests.node_pod(each, StartNode(Role.WORKER, 1), manifests.Defaults(image="i"), "10.96.0.9")
        named = [volume["secret"]["secretName"] for volume in pod["spec"]["volumes"] if "secret" in volume]
        assert named == [made[each.uid]]


def test_an_operator_makes_what_pods_need_before_it_makes_its_first_one_of_a_job(monkeypatch):
    """The operator that began the job may have been of a release that named it otherwise."""
    needs = []

    class Api(PlayedApi):
        async def create(self, manifest):
            needs.append((manifest["kind"], len(self.made)))

    start = OperatorDecision((StartNode(Role.WORKER, 1),), ElasticJobStatus())
    monkeypatch.setattr(job_loop, "plan", lambda *_: start)

    async def scene():
        keeper = Keeper(keepers(Api(), asyncio.Event())._shared, document())
        for _ in range(2):
            await keeper._once()

    run(scene)
    assert needs == [("Secret", 0)]


def test_the_metrics_of_a_job_do_not_go_with_an_earlier_one_of_its_name():
    """Whoever kept that may end later than the next begins."""
    metrics = OperatorMetrics()
    before, now = replace(job(), uid="uid-of-before"), job()
    metrics.job(before, ElasticJobStatus(phase="Running", workers=2))
    metrics.job(now, ElasticJobStatus(phase="Completed", workers=1))
    metrics.forget(before)
    assert b'dl2_job_workers{job="digits",namespace="ns"} 1.0' in metrics.text()
    assert b'phase="Completed"} 1.0' in metrics.text()
    assert b'phase="Running"' not in metrics.text()
    metrics.forget(now)
    assert b'job="digits"' not in metrics.text()


# ---- a stranger's pod ------------------------------------------------------------------------------------------------


def test_a_pod_of_somebody_else_with_the_coordinators_name_is_told_of_and_nothing_is_done_in_haste():
    class Api(PlayedApi):
        async def create_pod(self, pod, dry_run=False):
            await asyncio.sleep(0)
            found = await super().create_pod(pod, dry_run)
            stranger = {**pod, "metadata": {**pod["metadata"], "ownerReferences": []}}
            return stranger if pod["metadata"]["name"] == "digits-coordinator" else found

    api = Api()

    async def scene():
        async with kept(api, document()):
            await until(lambda: "is not this job's" in api.statuses.get("digits", {}).get("reason", ""))
            await asyncio.sleep(0.1)

    run(scene)
    assert api.tried == ["digits-coordinator"]
    assert api.statuses["digits"]["term"] == 1
    assert [event[1] for event in api.events if event[1] != "NoCheckpoint"] == ["Starting", "Refused"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["digits-coordinator", "digits-workers"])
@pytest.mark.parametrize("owners", [[], [{"kind": "ElasticJob", "name": "digits", "uid": "uid-of-before"}]])
def test_a_service_or_a_budget_of_somebody_else_is_left_as_it_is_until_it_is_gone(name, owners):
    """That of an earlier job is collected at some time: nodes of the next one would have its address for good."""
    api = PlayedApi()
    api.there = {name: {"metadata": {"name": name, "namespace": "ns", "ownerReferences": owners}}}

    async def scene():
        async with kept(api, document()):
            await until(lambda: "is not this job's" in api.statuses.get("digits", {}).get("reason", ""))
            assert (api.tried, name in api.applied, api.statuses["digits"]["term"]) == ([], False, 1)
            api.there.clear()
            await until(lambda: len(api.made) == 4)

    run(scene)
    assert name in api.applied
    assert [event[1] for event in api.events if event[1] != "NoCheckpoint"] == ["Starting", "Refused"]
