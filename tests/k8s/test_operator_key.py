"""The operator's key: made once, the same for whoever starts later, and what it says where it is another one."""

import asyncio
import base64

import grpc
import pytest

from elastic_ps.control.token import Door
from elastic_ps.core.errors import ConfigurationError
from k8s.elastic_operator.coordinator_follow import CoordinatorFollower
from k8s.elastic_operator.job.actions import RequestScale, WriteEvent
from k8s.elastic_operator.job.reconcile import STRANGER
from k8s.elastic_operator.job.status import RUNNING
from k8s.elastic_operator.operator_key import operator_key
from k8s.foundation.api_server import Conflict, NotFound
from protos import elastic_pb2_grpc as rpc
from tests.k8s.operator_cases import decide, kinds, usual, wanted


class Secrets:
    """Those of one namespace."""

    def __init__(self, hurry=None, **found):
        self.found = {name: base64.b64encode(value.encode()).decode() for name, value in found.items()}
        self.hurry = hurry  # a key that another replica makes in between
        self.reads = 0

    def get(self, path):
        self.reads += 1
        name = path.rpartition("/")[2]
        if name not in self.found:
            raise NotFound(name)
        return {"metadata": {"name": name, "namespace": "dl2-system"}, "data": {"key": self.found[name]}}

    def create(self, path, body):
        assert path == "/api/v1/namespaces/dl2-system/secrets"
        name = body["metadata"]["name"]
        if self.hurry is not None:
            self.found[name] = base64.b64encode(self.hurry.encode()).decode()
        if name in self.found:
            raise Conflict(name)
        assert body["immutable"]
        self.found[name] = base64.b64encode(body["stringData"]["key"].encode()).decode()


def key_of(secrets, name="key", create=True):
    return operator_key(secrets, "dl2-system", name, create=create)


def test_it_is_made_once():
    secrets = Secrets()
    first = key_of(secrets)
    assert len(first) >= 32
    assert key_of(secrets) == first
    assert key_of(Secrets()) != first


def test_two_that_begin_at_once_have_one():
    assert key_of(Secrets(hurry="of-another-replica")) == b"of-another-replica"


@pytest.mark.parametrize(
    ("secrets", "sentence"),
    [(Secrets(), "there is no secret mine in dl2-system"), (Secrets(mine="short"), "give at least 16")],
)
def test_one_of_the_users_own_is_never_made(secrets, sentence):
    with pytest.raises(ConfigurationError, match=sentence):
        key_of(secrets, "mine", create=False)


def test_a_coordinator_that_knows_another_key_is_said_to_and_a_scaling_is_not_taken_in_silence():
    seen = usual(stranger="this is not the job's token", status={"phase": RUNNING})
    seen = type(seen)(**{**seen.__dict__, "report": None})
    first = decide(seen, wanted(4, 1))
    assert first.status.reason == STRANGER
    assert first.status.conditions["Coordinated"].reason == "TokenRefused"
    assert first.status.conditions["Scaled"].status == "False"
    assert [one.reason for one in kinds(first, WriteEvent)] == ["TokenRefused"]
    assert not kinds(first, RequestScale)
    again = decide(type(seen)(**{**seen.__dict__, "status": first.status}), wanted(4, 1))
    assert not kinds(again, WriteEvent)


class Closed(rpc.CoordinatorServicer):
    """A coordinator with another token."""

    async def Greet(self, request, context):
        return Door(b"1" * 16).greet(context.invocation_metadata())


def test_a_follower_notices_a_refused_token():
    async def scene():
        server = grpc.aio.server()
        rpc.add_CoordinatorServicer_to_server(Closed(), server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        told = asyncio.Event()
        follower = CoordinatorFollower(f"127.0.0.1:{port}", b"0" * 16, told.set)
        try:
            await asyncio.wait_for(told.wait(), 10)
            assert "does not know this job's token" in follower.stranger
            assert follower.report is None
        finally:
            await follower.close()
            await server.stop(None)

    asyncio.run(scene())
