"""The standard health service of gRPC (grpc.health.v1) answers Kubernetes' probes as long as the loop turns.

Its one message has one field, so it needs no generated code. Probes have no token: nothing of a request is read, and
an answer tells nothing of the job.
"""

from typing import Any

import grpc

CHECK = "/grpc.health.v1.Health/Check"

_SERVING = b"\x08\x01"
"""HealthCheckResponse(status=SERVING), encoded: field 1, a varint, 1."""


def handler() -> grpc.GenericRpcHandler:
    """Serve `Check`; the process ends where the coordinator fails, so it need not say anything else."""
    check: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_unary_rpc_method_handler(_check)  # a stream is not read
    return grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": check})


async def _check(_requests: Any, _context: Any) -> bytes:
    return _SERVING
