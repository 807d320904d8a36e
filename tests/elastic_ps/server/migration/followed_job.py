"""A job whose blocks have followers: two servers that follow each other, a third perhaps, their plans and deaths."""

import threading
from dataclasses import replace
from typing import Any

import pytest

from elastic_ps.control.codec import config_id_to_pb, configuration_to_pb
from elastic_ps.core.configuration import Configuration
from elastic_ps.core.model import runs
from elastic_ps.core.optimizer import OptimizerSpec
from elastic_ps.server.connections import Peer
from elastic_ps.server.service import ServerNode
from elastic_ps.transport.base import Transport
from elastic_ps.transport.frame_kinds import Kind
from elastic_ps.transport.frames import Frame
from elastic_ps.transport.tcp import TcpTransport
from protos import elastic_pb2 as pb
from tests.elastic_ps.server.server_harness import TOKEN, Job, Jobs
from tests.elastic_ps.server.server_peers import TIMEOUT
from tests.elastic_ps.server.server_reference import ADAM, SGD, TENSORS
from tests.elastic_ps.waiting import until

BLOCKS = len(Job(TENSORS).model.blocks)
OWNERS = [block * 2 // BLOCKS for block in range(BLOCKS)]
OTHERS = [1 - owner for owner in OWNERS]
ALL = ("s0", "s1", "s2")

PLANS = {
    "move": ([2 if owner == 0 else owner for owner in OWNERS], OTHERS),
    "move-back": ([2 if owner == 0 else owner for owner in OWNERS], [0 if owner == 0 else 2 for owner in OWNERS]),
    "promote": (OTHERS, [2] * BLOCKS),
    "swap": (OTHERS, OWNERS),
    "refollow": (OWNERS, [2] * BLOCKS),
    "unfollow": (OWNERS, [-1] * BLOCKS),
}
"""Owners and followers of each block, by what a plan does with them; -1: nobody follows the block."""


class FollowedJob(Job):
    """See the module."""

    def check_copies(self, configuration: Configuration | None = None) -> None:
        """Each follower that the configuration in force names comes to hold the bytes that the owner has."""
        configuration = configuration or self.configuration
        for block in range(BLOCKS):
            owner, follower = configuration.primary(block), configuration.follower(block)
            if follower is not None:
                until(lambda o=owner, f=follower, b=block: self.image(o, [b]) == self.image(f, [b]))

    def prepare_plan(self, owners: list[int], followers: list[int], servers: tuple[str, ...] = ALL) -> Configuration:
        """Prepare a plan; whoever gets copies by it has caught up."""
        self.followers = followers
        new = self.next(["w0", "w1"], servers, owners)
        old = self.configuration
        self.prepare(new, servers)
        for server in servers:
            gets = any(
                server in (new.primary(b), new.follower(b)) and old.primary(b) != server
                for b in range(BLOCKS)
                if (new.primary(b), new.follower(b)) != (old.primary(b), old.follower(b))
            )
            if gets:
                self.controls[server].await_answer(pb.SYNCED, number=new.id)
        return new

    def kill(self, server: str) -> None:
        self.servers.pop(server).close()
        for worker in self.workers.values():
            worker._connections.pop(server).close()

    def bury(self, dead: str, owners: list[int], followers: list[int], servers: list[str]) -> dict[str, Any]:
        """Prepare a death's configuration; what survivors hold."""
        self.followers = followers
        new = self.next(["w0", "w1"], servers, owners)
        new = replace(new, id=new.id._replace(number=self.prepared.id.number + 1))
        alive = list(self.servers)
        self.prepare(new, alive, dead=[dead], undecided=True)
        return {name: self.controls[name].await_answer(pb.PREPARED, number=new.id).holdings for name in alive}

    def decide(self, promoted: list[int]) -> None:
        new = self.prepared
        flat = [number for run in runs(promoted) for number in run]
        adopt = pb.Adopt(configuration=config_id_to_pb(new.id), decided=configuration_to_pb(new), promoted=flat)
        for name in self.servers:
            self.direct(name, adopt=adopt)
        for name in self.servers:
            self.controls[name].await_answer(pb.SWITCHED, number=new.id)
        self.configuration = new


def pair(jobs: Jobs, spec: OptimizerSpec | None = SGD, transport: Transport | None = None, **more: Any) -> FollowedJob:
    """Two servers that follow each other."""
    job = FollowedJob(TENSORS, spec, followers=OTHERS, transport=transport or TcpTransport(TOKEN), **more)
    return jobs.begin(job, servers=2, assignment=OWNERS)


def three(jobs: Jobs, transport: Transport | None = None) -> FollowedJob:
    """A pair, and a third server without blocks."""
    job = pair(jobs, ADAM, transport)
    job.join_server("s2")
    return job


class Hold:
    """Keeps FOLLOWED frames from an owner until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: str = "", follower: str = ""):
        self.gate, self.held = threading.Event(), threading.Event()
        arrived = ServerNode.arrived

        def late(node: ServerNode, peer: Peer, frame: Frame, data: Any) -> None:
            concerned = owner in ("", node.state.node) and follower in ("", peer.node)
            if frame.kind is Kind.FOLLOWED and concerned and not self.gate.is_set():
                self.held.set()
                assert self.gate.wait(TIMEOUT)
            arrived(node, peer, frame, data)

        monkeypatch.setattr(ServerNode, "arrived", late)


def held_update(job: FollowedJob, monkeypatch: pytest.MonkeyPatch) -> tuple[Hold, Any, int]:
    """Let the first server take its blocks to version 2, of which it hears no FOLLOWED.

    Returns what keeps it from hearing, the gradients, and how many entries its ledger had told before.
    """
    job.controls["s0"].report_soon()
    told = len(job.controls["s0"].ledger)
    hold = Hold(monkeypatch, owner="s0")
    slabs = job.push_all(1)
    mine, theirs = job.configuration.blocks_of["s0"], job.configuration.blocks_of["s1"]
    job.workers["w0"].await_version(2, theirs)
    assert hold.held.wait(TIMEOUT)
    until(lambda: (job.servers["s0"].state.store.versions[list(mine)] == 2).all())
    return hold, slabs, told
