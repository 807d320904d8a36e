"""What the operator asks of the API server, by the paths and words of its REST interface."""

import asyncio
from types import SimpleNamespace

import pytest

from k8s.elastic_operator.api_writes import NotLeader, OperatorApi
from k8s.elastic_operator.job.actions import RequestScale, SaveJob, StopJob
from k8s.elastic_operator.job.model import GOING, Counts, Desired
from k8s.elastic_operator.job.pods import NOT_READY, READY
from k8s.elastic_operator.job.status import ElasticJobStatus
from k8s.elastic_operator.job_loop import Keeper
from k8s.foundation.api_server import APPLY, AlreadyExists, Conflict, NotFound
from tests.k8s.played_api import PlayedApi, document, keepers

JOB = "/apis/dl2.scheduler/v1alpha1/namespaces/ns/elasticjobs/digits"
POD = {"metadata": {"name": "digits-worker-1", "namespace": "ns"}}
BODY = {"metadata": {"name": "digits", "namespace": "ns", "uid": "uid-1", "resourceVersion": "7"}, "spec": {}}


class Server:
    """Answers what it is told to, and keeps what it was asked."""

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), []

    def __getattr__(self, verb):
        def call(*arguments):
            self.asked.append((verb, *arguments))
            answer = self.answers.pop(0) if self.answers else {}
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call


def asked(server, call, leads=True):
    """What a call returns; what it asked is kept in the server."""

    async def run():
        api = OperatorApi(server, lambda: leads)
        try:
            return await call(api)
        finally:
            await api.close()

    return asyncio.run(run())


def test_objects_are_written_at_their_paths():
    server = Server()
    asked(server, lambda api: api.write_status(BODY, ElasticJobStatus(phase="Running")))
    asked(server, lambda api: api.set_finalizers(BODY, ["a"]))
    asked(server, lambda api: api.delete_pod({"metadata": {"name": "p", "namespace": "ns", "uid": "u"}}, at_once=True))
    asked(server, lambda api: api.label_pod("ns", "p", {"a": "b"}))
    assert server.asked[0][:2] == ("replace", f"{JOB}/status")
    assert server.asked[0][2]["status"]["phase"] == "Running"
    assert server.asked[1:] == [
        ("patch", JOB, {"metadata": {"finalizers": ["a"], "resourceVersion": "7"}}),
        ("delete", "/api/v1/namespaces/ns/pods/p", {"preconditions": {"uid": "u"}, "gracePeriodSeconds": 0}),
        ("patch", "/api/v1/namespaces/ns/pods/p", {"metadata": {"labels": {"a": "b"}}}),
    ]


def test_a_disruption_budget_is_applied_where_it_belongs():
    server = Server()
    manifest = {"kind": "PodDisruptionBudget", "metadata": {"name": "b", "namespace": "ns"}}
    asked(server, lambda api: api.apply(manifest))
    query = {"fieldManager": "dl2-operator", "force": "true"}
    assert server.asked == [("patch", "/apis/policy/v1/namespaces/ns/poddisruptionbudgets/b", manifest, query, APPLY)]


def test_what_has_a_name_already_is_read_before_it_is_written():
    service = {"kind": "Service", "metadata": {"name": "digits-coordinator", "namespace": "ns"}}
    server = Server(service, NotFound("none"))
    assert asked(server, lambda api: api.find(service)) == service
    assert asked(server, lambda api: api.find(service)) is None
    assert server.asked == [("get", "/api/v1/namespaces/ns/services/digits-coordinator", None)] * 2


def test_a_pod_that_is_there_is_returned_and_in_a_dry_run_is_a_conflict():
    assert asked(Server(AlreadyExists("there"), POD), lambda api: api.create_pod(POD)) == POD
    server = Server(AlreadyExists("there"))
    with pytest.raises(AlreadyExists):
        asked(server, lambda api: api.create_pod(POD, dry_run=True))
    assert server.asked[0][3] == {"dryRun": "All", "fieldValidation": "Strict"}


def test_a_conflict_over_something_else_is_no_word_of_an_object_that_is_there():
    """As of a quota that others are counted in at once: the token's secret would be missing, and pods wait for it."""
    secret = {"kind": "Secret", "metadata": {"name": "digits-token", "namespace": "ns"}}
    asked(Server(AlreadyExists("there")), lambda api: api.create(secret))
    for call in (lambda api: api.create(secret), lambda api: api.create_pod(POD)):
        with pytest.raises(Conflict, match="please apply your changes"):
            asked(Server(Conflict("on resourcequotas: please apply your changes to the latest version")), call)


def test_what_is_gone_already_need_not_be_deleted_and_is_not_counted_on():
    asked(Server(NotFound("gone")), lambda api: api.delete_job(Desired("digits", "ns", "uid-1")))
    assert asked(Server(NotFound("gone")), lambda api: api.claim_phase("ns", "c")) == GOING
    assert asked(Server(NotFound("gone")), lambda api: api.readiness("node-1")) == ""


@pytest.mark.parametrize(("status", "said"), [("True", READY), ("False", NOT_READY), ("Unknown", "")])
def test_a_node_answers_whether_it_is_ready_or_not_and_kubernetes_says_where_it_does_not(status, said):
    node = {"status": {"conditions": [{"type": "Ready", "status": status}]}}
    assert asked(Server(node), lambda api: api.readiness("node-1")) == said


def test_only_the_very_job_or_pod_is_deleted_and_none_that_has_its_name_by_now():
    """A job whose time is over may have been deleted, and another of its name submitted."""
    server = Server(Conflict("the UID in the precondition differs"), Conflict("likewise"))
    asked(server, lambda api: api.delete_job(Desired("digits", "ns", "uid-1")))
    asked(server, lambda api: api.delete_pod({**POD, "metadata": {**POD["metadata"], "uid": "u"}}, at_once=False))
    assert [one[2] for one in server.asked] == [{"preconditions": {"uid": uid}} for uid in ("uid-1", "u")]


def test_who_does_not_lead_reads_and_writes_nothing():
    server = Server({"items": []})
    assert asked(server, lambda api: api.first_job(()), leads=False) is None
    with pytest.raises(NotLeader):
        asked(server, lambda api: api.create_pod(POD), leads=False)
    assert [one[0] for one in server.asked] == ["get"]


@pytest.mark.parametrize("action", [RequestScale(Counts(3, 1), "operator-controller"), StopJob("why"), SaveJob(1)])
def test_who_does_not_lead_any_more_asks_nothing_of_a_coordinator_either(action):
    """As one whose process was frozen: what it has seen of the job is of before."""
    told = []
    client = SimpleNamespace(scale=told.append, stop=told.append, checkpoint=lambda: told.append("checkpoint"))

    async def scene():
        api = OperatorApi(Server(), lambda: False)
        keeper = Keeper(keepers(api, asyncio.Event())._shared, document())
        keeper._follower = SimpleNamespace(client=client)
        with pytest.raises(NotLeader):
            await keeper._do(action, Desired.of(document()))
        await asyncio.sleep(0.01)
        await api.close()

    asyncio.run(scene())
    assert told == []


def test_metrics_tell_of_jobs_whose_status_an_operator_before_this_one_has_written():
    """Those that had failed, or had ended, were missing for good after a restart."""

    async def watch():
        api = PlayedApi()
        settled = document()
        ended = {"phase": "Failed", "reason": "its script raised", "term": 1, "observedGeneration": 1}
        settled["status"] = {**ended, "completionTime": "2026-01-01T00:00:00Z"}
        for _ in range(2):  # what the first has written, the second has nothing to add to
            shared = keepers(api, asyncio.Event())._shared
            api.statuses.clear()
            keeper = Keeper(shared, settled)
            await keeper._once()
            settled = keeper.body
        return api.statuses, shared.metrics.text().decode()

    statuses, shown = asyncio.run(watch())
    assert statuses == {}, "there was nothing to write"
    assert 'dl2_job_info{job="digits",namespace="ns",phase="Failed"} 1.0' in shown
