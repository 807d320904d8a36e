"""The operators' client: every call, every kind of error."""

from typing import Any

import grpc
import pytest

from coordinator.client import (
    CHECKPOINT_SECONDS,
    AccessDenied,
    CoordinatorClient,
    CoordinatorFailed,
    CoordinatorUnreachable,
    RequestRefused,
)
from coordinator.core.checkpoints.saving import SAVE_SECONDS
from coordinator.server.runtime import TICK_SECONDS
from protos import elastic_pb2 as pb

TOKEN = bytes(range(16))


def test_who_asks_for_a_checkpoint_waits_for_the_coordinators_word() -> None:
    """Else it would say that no coordinator answers, where one waits for a slow storage."""
    assert CHECKPOINT_SECONDS > SAVE_SECONDS + TICK_SECONDS


def test_calls_carry_the_token_and_their_arguments(fake: Any) -> None:
    with CoordinatorClient(fake.address, TOKEN) as client:
        assert client.status().job == "digits"
        assert client.plans() == []
        assert client.scale(4, None, queue=False, mode=pb.PAUSE, cause="scheduler: more").plan == 7
        assert client.drain("s1").plan == 7
        assert client.cancel().plan == 7
        assert client.checkpoint("memory://x").url == "memory://x"
        client.stop(now=True)
        assert [row.worker for row in client.steps()] == ["w0"]
    (scale,) = fake.requests["Scale"]
    assert (scale.workers, scale.servers, scale.wait_in_queue, scale.mode) == (4, 0, False, pb.PAUSE)
    assert scale.cause == "scheduler: more"
    (drain,) = fake.requests["Drain"]
    assert (drain.node, drain.wait_in_queue, drain.cause) == ("s1", True, "operator")
    assert fake.requests["Stop"][0].now


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.FAILED_PRECONDITION, RequestRefused),
        (grpc.StatusCode.INVALID_ARGUMENT, RequestRefused),
        (grpc.StatusCode.NOT_FOUND, RequestRefused),
        (grpc.StatusCode.PERMISSION_DENIED, AccessDenied),
        (grpc.StatusCode.INTERNAL, CoordinatorFailed),
        (grpc.StatusCode.UNAVAILABLE, CoordinatorUnreachable),
    ],
)
def test_errors_are_translated(fake: Any, code: grpc.StatusCode, kind: type[Exception]) -> None:
    fake.refusals["Cancel"] = (code, "no plan runs")
    with CoordinatorClient(fake.address, TOKEN) as client, pytest.raises(kind, match="no plan runs") as caught:
        client.cancel()
    assert isinstance(caught.value.__cause__, grpc.RpcError)


def test_wrong_token(fake: Any) -> None:
    with (
        CoordinatorClient(fake.address, bytes(16)) as client,
        pytest.raises(AccessDenied, match="this job's token"),
    ):
        client.status()


def test_nobody_there() -> None:
    with (
        CoordinatorClient("127.0.0.1:1", TOKEN) as client,
        pytest.raises(CoordinatorUnreachable, match=r"127\.0\.0\.1:1"),
    ):
        client.status()


def test_streams_translate_errors_too(fake: Any) -> None:
    fake.refusals["Ledger"] = (grpc.StatusCode.FAILED_PRECONDITION, "no ledger yet")
    with CoordinatorClient(fake.address, TOKEN) as client, pytest.raises(RequestRefused, match="no ledger yet"):
        list(client.ledger())


def test_a_stream_may_be_left_early(fake: Any) -> None:
    fake.ledger_entries = [pb.LedgerEntry(version=number) for number in range(1000)]
    with CoordinatorClient(fake.address, TOKEN) as client:
        entries = client.ledger()
        assert next(entries).version == 0
        entries.close()  # type: ignore[attr-defined]
        assert client.status().job == "digits"


@pytest.mark.parametrize("count", [0, 65_536, 10**14])
def test_counts_that_no_job_has_do_not_leave_the_client(fake: Any, count: int) -> None:
    with (
        CoordinatorClient(fake.address, TOKEN) as client,
        pytest.raises(RequestRefused, match=f"servers must be from 1 to 65535, not {count}"),
    ):
        client.scale(servers=count)
    assert "Scale" not in fake.requests
