"""What the operator does about a running job's pods: they come, go and die. `reconcile.plan`, without a cluster."""

from dataclasses import replace

import pytest

from elastic_ps.core.configuration import Role
from elastic_ps.core.script_hints import HOW_TO_JOIN
from k8s.elastic_operator.job.actions import DeletePod, LabelPod, RequestScale, StartNode, StopJob, TellExit, WriteEvent
from k8s.elastic_operator.job.model import CAUSE, Counts, timestamp
from k8s.elastic_operator.job.pods import NOT_READY, READY, Pod, is_lost
from k8s.elastic_operator.job.reconciliation import CheckpointSaving, ObservedJob
from k8s.elastic_operator.job.status import COMPLETED, FAILED, RUNNING, STARTING, SUSPENDED, ElasticJobStatus
from tests.k8s.operator_cases import NOW, PODS, decide, job, kinds, members, running, server, usual, wanted, worker

# ---- scaling ---------------------------------------------------------------------------------------------------------


def test_a_job_as_it_is_wanted_is_left_alone():
    first = decide(usual(), wanted(2, 1))
    assert not first.actions
    again = decide(replace(usual(), status=first.status), wanted(2, 1))
    assert again.status == first.status
    assert first.status.condition("Scaled")


def test_other_numbers_are_asked_of_the_coordinator():
    done = decide(usual(), wanted(4, 2))
    assert kinds(done, RequestScale, StartNode) == [RequestScale(Counts(4, 2), f"{CAUSE}: replicas")]


def test_the_scheduler_is_the_cause_of_its_own():
    done = decide(usual(), job(scaling="Scheduler", allocation={"workers": 1, "servers": 1, "reason": "others wait"}))
    assert kinds(done, RequestScale) == [RequestScale(Counts(1, 1), f"{CAUSE}: scheduler: others wait")]


def test_pods_are_started_as_the_coordinator_wants_them_beyond_those_that_are_on_their_way():
    on_its_way = worker(3, member="")
    said = {"wanted": Counts(4, 1), "starting": Counts(2, 0), "members": members(worker(1), worker(2), server(1))}
    seen = running(worker(1), worker(2), server(1), on_its_way, report=said, status={"created": Counts(3, 1)})
    done = decide(seen, wanted(4, 1))
    assert kinds(done, *PODS) == [StartNode(Role.WORKER, 4)]
    assert done.status.created == Counts(4, 1)


def test_pods_on_their_way_that_are_not_wanted_any_more_go_the_newest_first():
    said = {"wanted": Counts(3, 1), "starting": Counts(1, 0), "members": members(worker(1), worker(2), server(1))}
    seen = running(worker(1), worker(2), server(1), worker(3, member=""), worker(10, member=""), report=said)
    assert kinds(decide(seen, wanted(3, 1)), *PODS) == [DeletePod("digits-worker-10")]


def test_what_the_coordinator_refuses_is_not_asked_again_at_once():
    done = decide(usual(refused=(Counts(4, 1), "its script draws its own batches")), wanted(4, 1))
    assert not kinds(done, RequestScale)
    assert done.status.conditions["Scaled"].reason == "Refused"
    assert done.status.conditions["Scaled"].message == "its script draws its own batches"


def test_a_node_that_has_drained_loses_its_pod_and_one_that_has_finished_keeps_it():
    drained, finished = worker(2, phase="Succeeded"), worker(3, phase="Succeeded")
    said = {"wanted": Counts(1, 1), "left": frozenset({"w1"}), "members": members(worker(1), server(1))}
    done = decide(running(worker(1), server(1), drained, finished, report=said), wanted(1, 1))
    assert kinds(done, *PODS) == [DeletePod("digits-worker-2")]


def test_a_pod_that_joins_is_labelled_with_its_node():
    seen = running(worker(1), server(1), replace(worker(2), member=""), report={"members": {"digits-worker-2.1": "w9"}})
    said = replace(seen.report, members={**members(worker(1), server(1)), "digits-worker-2.1": "w9"})
    assert kinds(decide(replace(seen, report=said), wanted(2, 1)), LabelPod) == [
        LabelPod("digits-worker-2", "w9", True)
    ]


def test_a_pod_is_labelled_anew_when_its_node_belongs_to_the_job():
    registered = replace(worker(2), joined=False)
    for joining, labels in ((frozenset({"w1"}), []), (frozenset(), [LabelPod("digits-worker-2", "w1", True)])):
        seen = running(worker(1), server(1), registered, report={"joining": joining})
        assert kinds(decide(seen, wanted(2, 1)), LabelPod) == labels


def test_an_ended_plan_is_an_event_with_its_cause_and_its_time_once():
    ended = {
        "id": 2, "phase": "COMMITTED", "cause": f"{CAUSE}: replicas", "reason": "", "joined": ["w1"], "left": [],
        "seconds": 1.5, "steps": {}, "suspension": 0.01, "bytesMoved": 7, "ended": timestamp(NOW),
    }  # fmt: skip
    first = decide(usual(report={"plans": (ended,)}), wanted(2, 1))
    said = "plan 2 (operator-controller: replicas) committed after 1.50 s: +w1; suspension 0.010 s"
    assert kinds(first, WriteEvent) == [WriteEvent("PlanCommitted", said)]
    again = decide(usual(report={"plans": (ended,)}, status={"plans": first.status.plans}), wanted(2, 1))
    assert not kinds(again, WriteEvent)


# ---- deaths ----------------------------------------------------------------------------------------------------------


def test_a_pod_that_failed_is_counted_and_the_coordinator_told_once():
    failed = worker(2, phase="Failed", exit_status=1)
    seen = running(worker(1), failed, server(1), report={"wanted": Counts(2, 1)})
    first = decide(seen, wanted(2, 1))
    assert kinds(first, TellExit) == [TellExit("digits-worker-2.1", "w1")]
    assert (first.status.restarts, first.status.failures, first.status.counted) == (1, 1, ("digits-worker-2",))
    assert kinds(first, WriteEvent) == [WriteEvent("NodeDied", "digits-worker-2: exit status 1", warning=True)]
    again = decide(replace(seen, status=first.status), wanted(2, 1))
    assert again.status.restarts == 1
    assert not kinds(again, WriteEvent)


def test_a_dead_worker_is_replaced_when_the_coordinator_wants_one():
    failed = worker(2, phase="Failed", exit_status=1)
    said = {"wanted": Counts(2, 1), "starting": Counts(1, 0), "members": members(worker(1), server(1))}
    done = decide(running(worker(1), failed, server(1), report=said), wanted(2, 1))
    assert kinds(done, *PODS) == [StartNode(Role.WORKER, 3)]


def test_pods_of_a_job_that_goes_back_to_its_checkpoint_stay_and_the_dead_is_replaced():
    dead = server(1, phase="Failed", exit_status=137)
    said = {"phase": "restoring", "wanted": Counts(2, 1), "starting": Counts(2, 1), "roster": Counts()}
    seen = running(worker(1), worker(2), dead, report={**said, "members": members(worker(1), worker(2), dead)})
    assert kinds(decide(seen, wanted(2, 1)), *PODS) == [StartNode(Role.SERVER, 2)]
    later = replace(seen, report=replace(seen.report, members={}))
    assert kinds(decide(later, wanted(2, 1)), *PODS) == [StartNode(Role.SERVER, 2)]


def test_a_coordinator_that_asks_its_nodes_who_they_are_is_not_disturbed():
    done = decide(usual(report={"phase": "rebuilding", "members": {}, "starting": Counts(2, 1)}), wanted(4, 1))
    assert not kinds(done, RequestScale, *PODS)


def test_where_all_pods_are_gone_new_ones_show_it_to_a_coordinator_that_asks():
    said = {"phase": "rebuilding", "members": {}, "wanted": Counts(2, 1), "starting": Counts()}
    done = decide(running(report=said), wanted(2, 1))
    assert kinds(done, *PODS) == [StartNode(Role.SERVER, 2), StartNode(Role.WORKER, 3), StartNode(Role.WORKER, 4)]


def test_a_pod_that_vanished_is_a_death():
    said = {"members": members(worker(1), worker(2), server(1)), "wanted": Counts(2, 1)}
    done = decide(running(worker(1), server(1), report=said), wanted(2, 1))
    assert kinds(done, TellExit) == [TellExit("digits-worker-2.1", "w1")]
    assert (done.status.restarts, done.status.failures) == (1, 0)


def test_a_pod_whose_process_was_expelled_is_killed_and_replaced():
    """Its process is frozen: it neither ends nor registers again."""
    said = {
        "wanted": Counts(2, 1), "starting": Counts(1, 0), "members": members(worker(1), server(1)),
        "expelled": frozenset({"digits-worker-2.1"}),
    }  # fmt: skip
    seen = running(worker(1), worker(2), server(1), report=said)
    done = decide(seen, wanted(2, 1))
    assert kinds(done, *PODS) == [DeletePod("digits-worker-2", at_once=True), StartNode(Role.WORKER, 3)]
    assert (done.status.failures, done.status.counted) == (1, ("digits-worker-2",))
    evicted = replace(seen.report, evicted=frozenset({"digits-worker-2.1"}))
    assert decide(replace(seen, report=evicted), wanted(2, 1)).status.failures == 0, "a person wanted it to go"
    back = replace(seen.report, members=members(worker(1), worker(2), server(1)), starting=Counts())
    assert not kinds(decide(replace(seen, report=back), wanted(2, 1)), *PODS), "its next process has registered"


def test_a_pod_on_a_node_that_does_not_answer_is_not_waited_for():
    lost = worker(2, deleting=True, lost=True)
    said = {"wanted": Counts(2, 1), "starting": Counts(1, 0), "members": members(worker(1), server(1))}
    done = decide(running(worker(1), lost, server(1), report=said), wanted(2, 1))
    assert kinds(done, DeletePod) == [DeletePod("digits-worker-2", at_once=True)]
    assert kinds(done, StartNode) == [StartNode(Role.WORKER, 3)]


def test_a_pod_that_somebody_deletes_drains_and_is_no_death():
    said = {"wanted": Counts(1, 1), "members": members(worker(1), worker(2), server(1))}
    done = decide(running(worker(1), worker(2, deleting=True), server(1), report=said), wanted(2, 1))
    assert done.status.restarts == 0
    assert kinds(done, RequestScale) == [RequestScale(Counts(2, 1), f"{CAUSE}: replicas")]


def test_more_deaths_than_may_be_mended_fail_the_job_with_the_last():
    failed = worker(2, phase="Failed", exit_status=1, trouble="ValueError: no data")
    seen = running(worker(1), failed, server(1), status={"failures": 3, "counted": ("digits-worker-9",)})
    done = decide(seen, wanted(2, 1))
    assert done.status.phase == FAILED
    assert done.status.reason == "digits-worker-2: exit status 1: ValueError: no data; retryLimit 3 has been used up"
    assert kinds(done, StopJob)


@pytest.mark.parametrize(
    ("minutes", "version", "failures"), [(11, 90, 1), (9, 90, 4), (11, 70, 4)], ids=["healthy", "soon", "no new step"]
)
def test_deaths_are_counted_anew_when_the_job_has_trained_since_the_last(minutes, version, failures):
    before = {"failures": 3, "failure_time": timestamp(NOW - 60 * minutes), "failure_version": 70}
    failed = worker(2, phase="Failed", exit_status=1)
    seen = running(worker(1), failed, server(1), report={"version": version, "wanted": Counts(2, 1)}, status=before)
    done = decide(seen, wanted(2, 1))
    assert (done.status.failures, done.status.phase) == (failures, RUNNING if failures == 1 else FAILED)
    assert (done.status.failure_time, done.status.failure_version) == (timestamp(NOW), version)


@pytest.mark.parametrize("how", [{"disrupted": True, "phase": "Failed"}, {"lost": True, "deleting": True}])
def test_what_the_cluster_takes_is_replaced_as_often_as_it_happens(how):
    said = {"wanted": Counts(2, 1), "starting": Counts(1, 0), "members": members(worker(1), server(1))}
    seen = running(worker(1), worker(2, **how), server(1), report=said, status={"failures": 3, "restarts": 9})
    done = decide(seen, wanted(2, 1))
    assert (done.status.phase, done.status.restarts, done.status.failures) == (RUNNING, 10, 3)
    assert kinds(done, StartNode) == [StartNode(Role.WORKER, 3)]


def test_a_script_that_never_joins_is_a_death():
    seen = running(worker(1, phase="Succeeded", member=""), server(1), report={"version": 0}, status={"trained": False})
    done = decide(replace(seen, report=replace(seen.report, members=members(server(1)))), wanted(1, 1))
    assert done.status.restarts == 1
    assert HOW_TO_JOIN in kinds(done, WriteEvent)[0].message


def test_a_job_that_begins_to_train_or_goes_back_says_so_once():
    begins = usual(status={"phase": STARTING})
    (told,) = kinds(decide(begins, job()), WriteEvent)
    assert (told.reason, told.message) == ("Running", "2 workers and 1 servers train")
    back = {"phase": "restoring", "reason": "s0 died"}
    done = decide(usual(report=back), job())
    assert [(one.reason, one.message) for one in kinds(done, WriteEvent)] == [("Restoring", "s0 died")]
    assert kinds(decide(usual(), job()), WriteEvent) == []
    assert kinds(decide(usual(report=back, status={"phase": done.status.phase}), job()), WriteEvent) == []


# ---- pods ------------------------------------------------------------------------------------------------------------


def test_pods_are_read_from_the_api_servers_objects():
    body = {
        "metadata": {"name": "digits-worker-1", "labels": {"dl2.scheduler/role": "worker", "dl2.scheduler/node": "w4"}},
        "spec": {"nodeName": "node-1"},
        "status": {
            "phase": "Failed",
            "podIP": "10.0.0.9",
            "containerStatuses": [
                {"name": "main", "state": {"terminated": {"exitCode": 3, "message": "one\nValueError: no data\n"}}}
            ],
        },
    }
    found = Pod.of(body)
    assert (found.role, found.member, found.exit_status, found.lost) == (Role.WORKER, "w4", 3, False)
    assert found.trouble == "ValueError: no data"
    assert not found.unstarted
    out = {"phase": "Failed", "reason": "OutOfcpu", "message": "Node didn't have enough resource: cpu"}
    assert Pod.of({**body, "status": out}).unstarted
    assert Pod.of({**body, "status": out}).trouble == "OutOfcpu: Node didn't have enough resource: cpu"
    body["metadata"] |= {"creationTimestamp": timestamp(NOW - 5), "deletionGracePeriodSeconds": 60}
    assert Pod.of(body).created == NOW - 5
    body["metadata"] |= {"deletionTimestamp": timestamp(NOW + 60)}
    assert Pod.of(body).deleted == NOW
    assert Pod.of(body, lost=True).lost
    assert not found.disrupted
    body["status"]["conditions"] = [{"type": "DisruptionTarget", "status": "True"}]
    assert Pod.of(body).disrupted


@pytest.mark.parametrize(
    ("said", "passed", "lost"),
    [(READY, 600, False), ("", -50, True), (NOT_READY, -50, False), (NOT_READY, 10, False), (NOT_READY, 30, True)],
)
def test_a_deleted_pod_is_given_up_where_its_node_is_silent_or_has_not_ended_it_in_time(said, passed, lost):
    """A node that is not ready still drains its pods in order, as when it is shut down: they were declared dead."""
    body = {"metadata": {"deletionTimestamp": timestamp(NOW - passed)}}  # the end of its grace
    assert is_lost(body, said, NOW) is lost
    assert not is_lost({"metadata": {}}, said, NOW)


def meshed(exit_status, role="worker", name="digits-worker-2"):
    """A pod of which a mesh's proxy runs on, as it was added to it."""
    state = {"terminated": {"exitCode": exit_status}} if exit_status is not None else {"running": {}}
    proxy = {"name": "istio-proxy", "restartCount": 4, "state": {"running": {}}}
    containers = [proxy, {"name": "main", "state": state}]
    meta = {"name": name, "labels": {"dl2.scheduler/role": role, "dl2.scheduler/node": "w1"}}
    return Pod.of({"metadata": meta, "status": {"phase": "Running", "containerStatuses": containers}})


@pytest.mark.parametrize(("exit_status", "phase"), [(1, "Failed"), (0, "Succeeded"), (None, "Running")])
def test_a_pod_that_others_have_added_a_container_to_is_as_its_own_one_is(exit_status, phase):
    found = meshed(exit_status)
    assert (found.phase, found.exit_status, found.container_restarts) == (phase, exit_status, 0)
    assert found.lingers is (found.phase != "Running")
    assert meshed(exit_status, role="coordinator").phase == "Running", "that one starts again in its pod"


def test_what_is_left_of_a_pod_whose_own_container_has_ended_takes_no_room():
    """Another container runs on: the pod would never end by itself."""
    failed, report = meshed(1), {"wanted": Counts(2, 1)}
    seen = running(worker(1), failed, server(1), report=report)
    first = decide(seen, wanted(2, 1))
    assert kinds(first, DeletePod) == [DeletePod("digits-worker-2")]
    assert (first.status.failures, first.status.counted) == (1, ("digits-worker-2",))
    going = replace(seen, status=first.status, pods=tuple(replace(pod, deleting=pod.lingers) for pod in seen.pods))
    again = decide(going, wanted(2, 1))
    assert (kinds(again, DeletePod), again.status.restarts) == ([], 1)


@pytest.mark.parametrize(("phase", "document"), [(COMPLETED, job()), (SUSPENDED, job(suspend=True))])
def test_nor_does_it_where_the_job_is_over_or_rests(phase, document):
    status = ElasticJobStatus(phase=phase, term=1, completion_time=timestamp(NOW - 90))
    done = decide(ObservedJob(status, (meshed(0),)), document)
    assert kinds(done, DeletePod) == [DeletePod("digits-worker-2")]


@pytest.mark.parametrize("phase", ["running", "starting"])
@pytest.mark.parametrize(
    "saving", [None, CheckpointSaving(1), CheckpointSaving(1, url="/ckpt/1"), CheckpointSaving(1, error="full")]
)
@pytest.mark.parametrize(
    "document",
    [wanted(1, 1), wanted(4, 2), job(suspend=True), job(suspend=True, without=["checkpoint"]), job(deleting=True)],
)
def test_a_server_that_has_something_to_hand_over_is_never_deleted(document, saving, phase):
    """So that no grace period of a deletion has to be as long as that takes."""
    seen = running(worker(1), server(1), server(2), report={"phase": phase}, saving=saving)
    assert not kinds(decide(seen, document), DeletePod)
