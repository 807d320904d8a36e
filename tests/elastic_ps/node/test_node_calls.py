"""How long a node asks a coordinator again that does not take what it asks."""

import grpc
import pytest

from elastic_ps.core.errors import ConfigurationError
from elastic_ps.node.node_calls import BROKEN_SECONDS, BrokenPatience


class CallError(grpc.RpcError):
    """How a call has ended."""

    def __init__(self, code: grpc.StatusCode):
        super().__init__()
        self._code = code

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return "a bug of the coordinator"


@pytest.mark.parametrize("code", [grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN])
def test_a_bug_of_the_coordinator_is_borne_for_a_while(code: grpc.StatusCode) -> None:
    now = 0.0
    patience = BrokenPatience(lambda: now)
    patience.bear(CallError(code))
    now = BROKEN_SECONDS
    patience.bear(CallError(code))
    now += 1
    with pytest.raises(ConfigurationError, match="a bug of the coordinator"):
        patience.bear(CallError(code))
    patience.answered()
    patience.bear(CallError(code))


def test_a_coordinator_that_is_away_is_borne_for_ever_and_a_refusal_at_no_time() -> None:
    now = 0.0
    patience = BrokenPatience(lambda: now)
    patience.bear(CallError(grpc.StatusCode.UNAVAILABLE))
    now = 10 * BROKEN_SECONDS
    patience.bear(CallError(grpc.StatusCode.UNAVAILABLE))
    with pytest.raises(ConfigurationError):
        patience.bear(CallError(grpc.StatusCode.INVALID_ARGUMENT))
