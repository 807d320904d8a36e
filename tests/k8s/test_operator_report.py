"""What the operator takes from the coordinator's messages, and shows of it."""

import json

import pytest

from elastic_ps.core.configuration import Role
from k8s.elastic_operator.job.actions import StartNode
from k8s.elastic_operator.job.model import Counts
from k8s.elastic_operator.job.reconcile import plan
from k8s.elastic_operator.job.reconciliation import ObservedJob
from k8s.elastic_operator.job.report import CoordinatorReport
from k8s.elastic_operator.job.status import SUSPENDED, ElasticJobStatus
from protos import elastic_pb2 as pb
from tests.k8s.operator_cases import NOW, job, kinds, running, server, usual, wanted, worker

WHY = "cannot connect to 10.0.0.2:5 by shared memory: not on this host"
SHARED = {"hostPath": "/dev/shm/dl2"}


def report(*transports):
    """Of a job whose workers reach the server so."""
    nodes = [
        pb.NodeStatus(member=pb.Member(id=f"w{number}", role=pb.WORKER), transports={"s0": how})
        for number, how in enumerate(transports)
    ]
    return CoordinatorReport.of(pb.Wanted(), pb.StatusReply(phase="running", nodes=nodes), ())


@pytest.mark.parametrize(
    ("transports", "document", "shown"),
    [
        (["shm", "shm"], {"sharedMemory": SHARED}, "shm"),
        (["tcp: " + WHY], {"sharedMemory": SHARED}, f"tcp (w0 to s0: {WHY})"),
        (
            ["shm", "tcp: " + WHY, "tcp: " + WHY],
            {"sharedMemory": SHARED},
            f"shm on 1 connection, tcp on 2 connections (w1 to s0: {WHY}; and 1 more)",
        ),
        (["tcp: " + WHY], {}, "tcp"),
        ([], {}, ""),
    ],
)
def test_the_status_says_how_tensors_travel_and_why_not_as_wanted(transports, document, shown):
    said = report(*transports)
    seen = usual(report={"transport": said.transport, "fallback": said.fallback})
    assert plan(seen, job(**document), NOW).status.transport == shown


def test_how_tensors_travelled_stays_when_workers_are_gone():
    seen = usual(status={"transport": "shm"})
    assert plan(seen, job(sharedMemory=SHARED), NOW).status.transport == "shm"


@pytest.mark.parametrize("loss", [float("nan"), float("inf"), float("-inf")])
def test_a_metric_that_json_has_no_number_for_is_left_out_and_the_status_can_be_written(loss):
    seen = usual(report={"metrics": {"loss": loss, "accuracy": 0.5}}, status={"metrics": {"loss": 0.3}})
    status = plan(seen, job(), NOW).status.to_dict()
    json.dumps(status, allow_nan=False)  # as the API server reads it
    assert status["metrics"] == {"accuracy": 0.5}


def test_a_script_that_names_its_metrics_anew_each_time_does_not_fill_the_status():
    """The API server takes 1.5 MB."""
    status = ElasticJobStatus()
    for epoch in range(500):
        said = {f"loss-{epoch}": 0.5, "accuracy": 0.9, "x" * 10_000: 1.0}
        status = plan(usual(report={"metrics": said}, status={"metrics": status.metrics}), job(), NOW).status
    assert len(json.dumps(status.to_dict())) < 10_000
    assert (len(status.metrics), status.metrics["accuracy"]) == (100, 0.9)


def test_later_servers_are_known_to_hold_what_the_largest_holds_now():
    nodes = [
        pb.NodeStatus(member=pb.Member(id=f"n{number}", role=role), rank=rank, bytes=held)
        for number, (role, rank, held) in enumerate(
            [(pb.SERVER, 0, 300), (pb.SERVER, 1, 500), (pb.SERVER, -1, 900), (pb.WORKER, 0, 7000)]
        )
    ]
    assert CoordinatorReport.of(pb.Wanted(), pb.StatusReply(nodes=nodes), ()).server_bytes == 500
    asked = {"server_bytes": 500, "wanted": Counts(1, 2), "starting": Counts(0, 1)}
    done = plan(running(worker(1), server(1), report=asked), wanted(1, 2), NOW)
    assert kinds(done, StartNode) == [StartNode(Role.SERVER, 2, held=500)]
    assert done.status.server_bytes == 500


def test_who_comes_back_remembers_what_servers_held():
    known = ElasticJobStatus(phase=SUSPENDED, term=1, trained=True, server_bytes=500)
    starts = kinds(plan(ObservedJob(known), job(), NOW), StartNode)
    assert [(start.role, start.held) for start in starts] == [(Role.SERVER, 500), (Role.WORKER, 0), (Role.WORKER, 0)]


def test_what_is_protected_is_taken_in_words_that_stay_as_long_as_nothing_changes():
    status = pb.StatusReply(blocks=8, bytes=800)
    assert CoordinatorReport.of(pb.Wanted(), status, ()).protection is None
    why = "blocks of s1 have no follower; plan 5 was given up (w0 has been silent)"
    texts = set()
    for seconds in (12.4, 11.9):
        status.protection.CopyFrom(pb.Protection(blocks=6, bytes=500, cause="GivenUp", why=why, retry_seconds=seconds))
        found = CoordinatorReport.of(pb.Wanted(), status, ()).protection
        assert found.cause == "GivenUp"
        texts.add(found.text)
    assert texts == {f"62% (6 of 8 blocks): {why}"}


def test_how_far_a_long_epoch_is_shows_in_a_slot_of_seconds():
    """Of 5 hours: 30 s are 0.0017 of it."""
    data = pb.DataSpec(samples=180_000, global_batch=10)
    done = [
        CoordinatorReport.of(pb.Wanted(), pb.StatusReply(epoch=3, step=step, data=data), ()).epoch
        for step in (9_000, 9_030)
    ]
    assert done == [3.5, 3.501667]


@pytest.mark.parametrize(
    ("said", "epoch"),
    [
        ({"phase": "running"}, 5.5),
        ({"phase": "running", "samples_per_second": 9.0}, 2.0),
        ({"phase": "restoring"}, 2.0),
        ({"phase": "starting", "version": 0, "epoch": 0.0}, 5.5),
        ({"phase": "finished"}, 5.5),
    ],
)
def test_epochs_are_lost_where_the_job_went_back_and_not_where_a_new_coordinator_has_heard_no_worker(said, epoch):
    """It knows the checkpoint that the job once went on from, of its journal."""
    seen = usual(report={"epoch": 2.0, **said}, status={"epoch": 5.5})
    assert plan(seen, job(), NOW).status.epoch == epoch


def test_the_chiefs_metrics_count_and_not_those_of_a_worker_that_has_left():
    ranks = {-1: 0.9, 0: 0.1, 1: 0.5}
    nodes = [pb.NodeStatus(rank=rank, metrics={"loss": loss, f"of {rank}": 1}) for rank, loss in ranks.items()]
    found = CoordinatorReport.of(pb.Wanted(), pb.StatusReply(nodes=nodes), ()).metrics
    assert found == {"loss": 0.1, "of -1": 1, "of 0": 1, "of 1": 1}
