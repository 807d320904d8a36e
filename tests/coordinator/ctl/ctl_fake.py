"""A coordinator that answers operators from a script."""

from collections.abc import Iterator
from typing import Any

import grpc

from elastic_ps.control.token import Door
from protos import elastic_pb2 as pb
from protos import elastic_pb2_grpc as rpc

TOKEN = bytes(range(16))


def node(name: str, rank: int, **fields: Any) -> pb.NodeStatus:
    role = pb.WORKER if name.startswith("w") else pb.SERVER
    member = pb.Member(id=name, role=role, host="127.0.0.1", port=0 if role == pb.WORKER else 9000 + rank)
    fields = {"state": "member" if rank >= 0 else "joining", "version": 120, "lease_left": 9.0, "pid": 4000, **fields}
    return pb.NodeStatus(member=member, rank=rank, **fields)


def running_status() -> pb.StatusReply:
    return pb.StatusReply(
        job="digits",
        phase="running",
        term=2,
        configuration=pb.ConfigId(term=1, number=4),
        nodes=[
            node("s1", 1, bytes=500_000),
            node(
                "w2", 1, step_seconds=0.0123, rate=2600, metrics={"loss": 0.25}, transports={"s0": "shm", "s1": "shm"}
            ),
            node(
                "w0",
                0,
                step_seconds=0.012,
                rate=2667,
                metrics={"loss": 0.24, "accuracy": 0.9},
                transports={"s0": "shm"},
            ),
            node("s0", 0, bytes=700_000),
            node("w3", -1),
        ],
        wanted_workers=3,
        wanted_servers=2,
        version=120,
        epoch=4,
        step=8,
        rate=5267,
        data=pb.DataSpec(elastic=True, samples=1500, global_batch=64, last="short", loss="sum", exchanges=1),
        blocks=8,
        bytes=1_200_000,
    )


def plan(number: int, phase: str, **fields: Any) -> pb.Plan:
    fields = {"cause": "operator", "joined": ["w3"], "left": ["s0"], "requests": [3], **fields}
    return pb.Plan(id=number, phase=phase, **fields)


def committed(number: int, **fields: Any) -> pb.Plan:
    return plan(
        number,
        "COMMITTED",
        clock=130,
        steps_ms=[812.4, 1.5, 95.25, 3.125],
        bytes_moved=400_000,
        suspension_ms={"w0": 0.8, "w2": 1.25},
        **fields,
    )


class FakeCoordinator(rpc.CoordinatorServicer):
    """Answers from attributes that a test sets.

    `requests` holds what came, by method; so many Status calls as `absences` says fail after a Scale.
    """

    def __init__(self) -> None:
        self.requests: dict[str, list[Any]] = {}
        self.refusals: dict[str, tuple[grpc.StatusCode, str]] = {}
        self.statuses = [running_status()]
        self.histories: list[list[pb.Plan]] = [[]]
        self.scale_reply = pb.ScaleReply(plan=7, request=3)
        self.cancel_reply = pb.CancelReply(plan=7, workers=2, servers=1)
        self.checkpoint_reply = pb.CheckpointReply(
            url="file:///jobs/digits/checkpoints/120", version=120, bytes=2_400_000
        )
        self.ledger_entries: list[pb.LedgerEntry] = []
        self.address = ""
        self.absences = 0
        self.gone = lambda: None  # called as a Status is asked for
        self._door = Door(TOKEN)

    def Greet(self, request: pb.GreetRequest, context: grpc.ServicerContext) -> pb.GreetReply:
        return self._door.greet(context.invocation_metadata())

    def _take(self, method: str, request: Any, context: grpc.ServicerContext) -> None:
        if not self._door.admits(context.invocation_metadata()):
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "not the token of this job")
        self.requests.setdefault(method, []).append(request)
        if method in self.refusals:
            context.abort(*self.refusals[method])

    def Status(self, request: pb.StatusRequest, context: grpc.ServicerContext) -> pb.StatusReply:
        self.gone()
        self._take("Status", request, context)
        if self.absences and "Scale" in self.requests:
            self.absences -= 1
            context.abort(grpc.StatusCode.UNAVAILABLE, "restarting")
        return self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]

    def Plans(self, request: pb.PlansRequest, context: grpc.ServicerContext) -> pb.PlansReply:
        self._take("Plans", request, context)
        return pb.PlansReply(plans=self.histories.pop(0) if len(self.histories) > 1 else self.histories[0])

    def Scale(self, request: pb.ScaleRequest, context: grpc.ServicerContext) -> pb.ScaleReply:
        self._take("Scale", request, context)
        return self.scale_reply

    def Drain(self, request: pb.DrainRequest, context: grpc.ServicerContext) -> pb.ScaleReply:
        self._take("Drain", request, context)
        return self.scale_reply

    def Evict(self, request: pb.EvictRequest, context: grpc.ServicerContext) -> pb.EvictReply:
        self._take("Evict", request, context)
        return pb.EvictReply(outcome=f"{request.node} is expelled; the others go on without it")

    def Cancel(self, request: pb.CancelRequest, context: grpc.ServicerContext) -> pb.CancelReply:
        self._take("Cancel", request, context)
        return self.cancel_reply

    def Checkpoint(self, request: pb.CheckpointRequest, context: grpc.ServicerContext) -> pb.CheckpointReply:
        self._take("Checkpoint", request, context)
        reply = self.checkpoint_reply
        return pb.CheckpointReply(url=request.url or reply.url, version=reply.version, bytes=reply.bytes)

    def Stop(self, request: pb.StopRequest, context: grpc.ServicerContext) -> pb.StopReply:
        self._take("Stop", request, context)
        return pb.StopReply()

    def Ledger(self, request: pb.LedgerRequest, context: grpc.ServicerContext) -> Iterator[pb.LedgerEntry]:
        self._take("Ledger", request, context)
        yield from self.ledger_entries

    def Steps(self, request: pb.StepsRequest, context: grpc.ServicerContext) -> Iterator[pb.StepRow]:
        self._take("Steps", request, context)
        yield pb.StepRow(worker="w0", step=pb.StepTime(version=1, end=2.0, seconds=0.5, samples=64))
