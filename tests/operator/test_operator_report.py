"""What the operator takes from the coordinator's messages, and shows of it."""

import pytest
from operator_cases import NOW, job, usual

from k8s.elastic_operator.model import Report
from k8s.elastic_operator.reconcile import plan
from protos import elastic_pb2 as pb

WHY = "cannot connect to 10.0.0.2:5 by shared memory: not on this host"
SHARED = {"hostPath": "/dev/shm/dl2"}


def report(*transports):
    """Of a job whose workers reach the server so."""
    nodes = [
        pb.NodeStatus(member=pb.Member(id=f"w{number}", role=pb.WORKER), transports={"s0": how})
        for number, how in enumerate(transports)
    ]
    return Report.of(pb.Wanted(), pb.StatusReply(phase="running", nodes=nodes), ())


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
