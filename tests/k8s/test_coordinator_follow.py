"""What the operator hears of a coordinator, whatever that says."""

import asyncio
import math
from types import SimpleNamespace

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
