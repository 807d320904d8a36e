"""What the operator hears of a coordinator, whatever that says."""

import asyncio
import math
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import grpc
import pytest

from k8s.elastic_operator import coordinator_follow
from k8s.elastic_operator.coordinator_follow import CoordinatorFollower
from protos import elastic_pb2 as pb

SECONDS = 5.0


@pytest.mark.parametrize("odd", [pb.Plan(id=1, ended=math.inf), pb.Plan(id=1, ended=1e300)])
def test_words_that_are_not_understood_are_logged_once_and_it_is_asked_again(monkeypatch, caplog, odd):
    async def listen(self):
        self._wanted = pb.Wanted(workers=1)
        await asyncio.Event().wait()

    monkeypatch.setattr(CoordinatorFollower, "_listen", listen)
    monkeypatch.setattr(coordinator_follow, "_POLL_SECONDS", 0.01)
    said, told = [[odd], [odd], []], asyncio.Event()

    def status():
        return pb.StatusReply(phase="running", term=len(said))  # another each time, so that plans are asked for

    async def scene():
        follower = CoordinatorFollower("127.0.0.1:1", b"0" * 16, told.set)
        follower.client.close()
        follower.client = SimpleNamespace(status=status, plans=lambda: said.pop(0), close=lambda: None)
        await asyncio.wait_for(told.wait(), SECONDS)
        assert (follower.report.phase, said) == ("running", [])
        await follower.close()

    asyncio.run(scene())
    assert len([each for each in caplog.records if "is not understood" in each.message]) == 1


class Babbler(grpc.GenericRpcHandler):
    """Answers whatever it is asked with bytes that are no message."""

    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(lambda request, context: b"\xff\xff\xff\xff")


def test_who_answers_what_is_no_message_is_asked_again(monkeypatch, caplog):
    """Else the operator would hear nothing more of the job, and nobody of that."""
    monkeypatch.setattr(coordinator_follow, "_AWAY_SECONDS", 0.01)
    server = grpc.server(ThreadPoolExecutor(1), handlers=[Babbler()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()

    async def scene():
        woken = asyncio.Semaphore(0)
        follower = CoordinatorFollower(f"127.0.0.1:{port}", b"0" * 16, woken.release)
        async with asyncio.timeout(SECONDS):
            for _ in range(2):
                await woken.acquire()
        await follower.close()

    asyncio.run(scene())
    server.stop(None).wait()
    assert len([each for each in caplog.records if "is not understood" in each.message]) == 1


def test_what_is_wanted_and_what_is_there_are_of_one_moment(monkeypatch):
    """Its words of both come by two connections. One that rebuilds knows nobody yet, and wants nobody to be started.

    Said of a job that runs, this would end all its pods as superfluous.
    """
    rebuilding = pb.Wanted(workers=1, servers=1)
    running = pb.Wanted(workers=1, servers=1, nodes=["w0", "s0"], nonces=["digits-worker-1.1", "digits-server-1.1"])
    there = [pb.NodeStatus(member=pb.Member(id=node)) for node in running.nodes]
    heard = []

    async def scene():
        follower = CoordinatorFollower("127.0.0.1:1", b"0" * 16, lambda: heard.append(follower.report))
        follower.client.close()
        status = pb.StatusReply(phase="running", term=2, nodes=there)
        follower.client = SimpleNamespace(status=lambda: status, plans=list, close=lambda: None)
        for follower._wanted in (rebuilding, running):
            await follower._ask_once()
        await follower.close()

    async def idle(self):
        await asyncio.Event().wait()

    monkeypatch.setattr(CoordinatorFollower, "_listen", idle)
    asyncio.run(scene())
    assert [report.members for report in heard] == [dict(zip(running.nonces, running.nodes, strict=True))]
