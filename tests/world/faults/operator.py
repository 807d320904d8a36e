"""The job's operator asks for things, and hears what the coordinator says to it."""

from typing import Any

import grpc

from elastic_ps.control.channels import coordinator_channel
from protos import elastic_pb2 as pb
from protos import elastic_pb2_grpc as rpc
from tests.world.faults.job_draw import Fault
from tests.world.kernel.scheduler import Process
from tests.world.kernel.threads import Thread


class Operator:
    """See the module.

    Args:
        world: whose job it is.
    """

    def __init__(self, world: Any):
        self._world = world
        self._process = Process("operator", "operator", 0)

    def scale(self, fault: Fault) -> str:
        """Ask for as many nodes as a fault says."""
        mode = (pb.LIVE, pb.PAUSE)[fault.choice & 1]
        request = pb.ScaleRequest(workers=fault.workers, servers=fault.servers, wait_in_queue=True, mode=mode)
        return self._ask("Scale", request)

    def save(self, fault: Fault) -> str:
        """Ask for a checkpoint."""
        return self._ask("Checkpoint", pb.CheckpointRequest())

    def _ask(self, name: str, request: Any) -> str:
        def work() -> None:
            stub = rpc.CoordinatorStub(coordinator_channel(self._world.address, self._world.token))
            try:
                answer = getattr(stub, name)(request, timeout=30.0)
                said = str(answer).replace("\n", " ")
            except grpc.RpcError as error:
                said = f"refused: {error.details()}"  # type: ignore[attr-defined]
            self._world.story.tell("operator", f"{name}: {said}")

        Thread(target=work, name=name).begin(self._process)
        return name
