"""Who goes on with a dead server's blocks tells the ledger what that one had written down of them."""

import numpy as np
import pytest

from coordinator.ctl.exactly_once_audit import audit
from elastic_ps.core.model import members
from elastic_ps.transport.tcp import TcpTransport
from protos import elastic_pb2 as pb
from tests.elastic_ps.server.migration.followed_job import BLOCKS, OTHERS, OWNERS, PLANS, FollowedJob, pair, three
from tests.elastic_ps.server.migration.test_broken_connections import reset
from tests.elastic_ps.server.server_harness import TOKEN, Jobs
from tests.elastic_ps.server.server_reference import ADAM, TENSORS
from tests.elastic_ps.waiting import until


def entries_of(job: FollowedJob) -> list[pb.LedgerEntry]:
    """What the coordinator has of all servers: of a dead one's entries each once."""
    known = [(name, entry) for name, control in job.controls.items() for entry in control.ledger]
    kept = {name: len(control.ledger) for name, control in job.controls.items()}
    return [entry for name, entry in known if entry.server == name or entry.sequence >= kept[entry.server]]


@pytest.mark.parametrize("told", [False, True], ids=["untold", "told"])
@pytest.mark.parametrize("how", ["steady", "reset", "refollowed"])
def test_who_goes_on_tells_what_the_dead_had_written_down(jobs: Jobs, how: str, told: bool) -> None:
    job = three(jobs)
    servers = ["s0", "s1", "s2"]
    for version in range(2):
        job.check_step(version)
    if told:
        job.controls["s0"].report_soon()
    job.check_step(2)
    if how == "reset":
        reset(job)
    if how == "refollowed":
        new = job.prepare_plan(OWNERS, [2 if owner == 0 else 0 for owner in OWNERS])
        job.adopt(new, servers)
        for name in servers:
            job.controls[name].await_answer(pb.FOLLOWED, number=new.id)
        job.commit(servers)
    job.check_step(3)
    heir = 2 if how == "refollowed" else 1
    job.controls["s0"].reports = False
    job.kill("s0")
    owners = [1 if owner == 1 or heir == 1 else 2 for owner in OWNERS]
    names = ["s1", "s2"]
    job.bury("s0", [owner - 1 for owner in owners], [-1] * BLOCKS, names)
    job.decide([block for block in range(BLOCKS) if OWNERS[block] == 0])
    for version in range(4, 8):
        job.check_step(version)
    for name in names:
        job.controls[name].report_soon()
    assert audit(entries_of(job), job.data.samples, job.data.global_batch, 1).exactly_once


def test_first_followers_hear_what_is_written_down_while_their_plan_is_under_way(jobs: Jobs) -> None:
    servers = ["s0", "s1", "s2"]
    job = jobs.begin(FollowedJob(TENSORS, ADAM, transport=TcpTransport(TOKEN)), servers=2, assignment=OWNERS)
    job.join_server("s2")
    job.check_step(0)
    new = job.prepare_plan(OWNERS, OTHERS)
    job.check_step(1)
    job.adopt(new, servers)
    for name in servers:
        job.controls[name].await_answer(pb.FOLLOWED, number=new.id)
    job.commit(servers)
    job.check_step(2)
    job.controls["s0"].reports = False
    job.kill("s0")
    job.bury("s0", [0] * BLOCKS, [-1] * BLOCKS, ["s1", "s2"])
    job.decide([block for block in range(BLOCKS) if OWNERS[block] == 0])
    job.controls["s1"].await_answer(pb.ARRIVED, number=job.configuration.id)  # said though nobody follows any more
    until(lambda: any(entry.server == "s0" for entry in job.controls["s1"].ledger))  # at once, for nobody else has them
    for version in range(3, 8):
        job.check_step(version)
    job.controls["s1"].report_soon()
    assert audit(entries_of(job), job.data.samples, job.data.global_batch, 1).exactly_once


def test_a_follower_forgets_what_the_coordinator_has(jobs: Jobs) -> None:
    job = pair(jobs)
    for version in range(3):
        job.check_step(version)
        for name in ("s0", "s1"):
            job.controls[name].report_soon()
    job.check_step(3)
    state = job.servers["s1"].state
    with state.changed:
        everything = np.ones(BLOCKS, dtype=bool)
        left = state.followed_ledger.take({"s0"}, everything, np.full(BLOCKS, 9))
    assert {entry.version for entry in left} == {3}


def test_who_goes_on_has_arrived_when_the_coordinator_has_what_the_dead_had_written_down(jobs: Jobs) -> None:
    """Till then nothing is protected again: should it die too, the job must not go on without these entries."""
    job = pair(jobs, ADAM)
    for version in range(3):
        job.check_step(version)
    control = job.controls["s1"]
    job.controls["s0"].reports = control.reports = False
    job.kill("s0")
    job.bury("s0", [0] * BLOCKS, [-1] * BLOCKS, ["s1"])
    job.decide([block for block in range(BLOCKS) if OWNERS[block] == 0])
    job.check_step(3)
    job.order_adopt(job.configuration)  # a coordinator that has been started again
    assert control.asked.is_set(), "at once"
    assert not control.said(pb.ARRIVED, job.configuration.id)
    control.reports = True
    control.report_soon()
    control.await_answer(pb.ARRIVED, number=job.configuration.id)
    for version in range(4, 8):
        job.check_step(version)
    control.report_soon()
    assert audit(entries_of(job), job.data.samples, job.data.global_batch, 1).exactly_once


def test_who_gives_followed_blocks_away_has_switched_when_the_coordinator_has_its_ledger(jobs: Jobs) -> None:
    """The next plan may move them on to a server that has heard nothing of what this one had written down."""
    job = three(jobs)
    for version in range(2):
        job.check_step(version)
    control, node = job.controls["s0"], job.servers["s0"]
    control.reports = False
    new = job.prepare_plan(*PLANS["move"])
    job.order_adopt(new)
    job.controls["s1"].await_answer(pb.SWITCHED, number=new.id)  # gives nothing away
    job.controls["s2"].await_answer(pb.ARRIVED, number=new.id)

    def handed_over() -> bool:
        with node.state.changed:
            return not node.plan_steps.sources.is_handing_over

    until(handed_over)
    assert control.asked.is_set()
    assert not control.said(pb.SWITCHED, new.id)
    control.reports = True
    control.report_soon()
    control.await_answer(pb.SWITCHED, number=new.id)
    assert {entry.version for entry in control.ledger} == {0, 1}


@pytest.mark.parametrize("restart", [False, True], ids=["ended", "restarted"])
def test_followers_tell_at_the_end_what_a_server_had_written_down_that_died_unnoticed(
    jobs: Jobs, restart: bool
) -> None:
    job = pair(jobs, ADAM)
    for version in range(8):
        job.check_step(version)
    job.controls["s0"].reports = False
    job.kill("s0")
    job.direct("s1", stop=pb.Stop(reason="finished", restart=restart))
    job.controls["s1"].report_soon()
    found = entries_of(job)
    of_s0 = [entry.version for entry in found if entry.server == "s0"]
    assert of_s0 == ([] if restart else list(range(8))), "who begins again goes back: what is not kept does not count"
    if not restart:
        assert audit(found, job.data.samples, job.data.global_batch, 1).exactly_once


def test_a_server_that_is_stopped_before_it_belongs_to_the_job_tells_nothing_of_others(jobs: Jobs) -> None:
    """They go on, and tell it themselves: it would be in the ledger twice."""
    job = pair(jobs, ADAM)
    job.join_server("s2")
    job.prepare_plan(*PLANS["move"])
    for version in range(8):
        job.check_step(version)
    state = job.servers["s2"].state
    until(lambda: state.followed_ledger.owners)
    job.direct("s2", stop=pb.Stop(reason="not wanted any more: the job needs no further node"))
    for server in ("s0", "s1", "s2"):
        job.controls[server].report_soon()
    assert not job.controls["s2"].ledger
    assert audit(entries_of(job), job.data.samples, job.data.global_batch, 1).exactly_once


def told_at_the_end(job: FollowedJob, servers: list[str], restart: bool = False) -> dict[int, set[int]]:
    """Which blocks were told of each version, once the job has ended; an audit would not miss a block that never is."""
    for server in servers:
        job.direct(server, stop=pb.Stop(reason="finished", restart=restart))
        job.controls[server].report_soon()
    told: dict[int, set[int]] = {}
    for entry in entries_of(job):
        told.setdefault(entry.version, set()).update(members(zip(entry.runs[::2], entry.runs[1::2], strict=True)))
    return told


@pytest.mark.parametrize("plan", ["swap", "promote", "move", "move-back"])
def test_new_owners_tell_at_the_end_what_the_one_before_had_written_down_that_died_unnoticed(
    jobs: Jobs, plan: str
) -> None:
    job = three(jobs)
    for version in range(2):
        job.check_step(version)
    new = job.prepare_plan(*PLANS[plan])
    job.check_step(2)
    job.controls["s0"].reports = False
    job.order_adopt(new)
    for name in {new.primary(block) for block in range(BLOCKS) if OWNERS[block] == 0}:
        job.controls[name].await_answer(pb.ARRIVED, number=new.id)
    job.kill("s0")
    assert told_at_the_end(job, ["s1", "s2"]) == {version: set(range(BLOCKS)) for version in range(3)}


@pytest.mark.parametrize("restart", [False, True], ids=["ended", "restarted"])
def test_what_the_dead_had_written_down_is_told_though_they_acknowledge_nothing_any_more(
    jobs: Jobs, restart: bool
) -> None:
    job = pair(jobs, ADAM)
    for version in range(2):
        job.check_step(version)
    job.controls["s0"].reports = False
    job.kill("s0")
    job.push_all(2, servers=["s1"])
    mine = list(job.configuration.blocks_of["s1"])
    until(lambda: (job.servers["s1"].state.store.versions[mine] == 3).all())
    told = told_at_the_end(job, ["s1"], restart)
    assert [told[version] for version in range(2)] == [set(mine if restart else range(BLOCKS))] * 2
    assert not job.servers["s1"].state.ledger.waiting, "it waits for that before it ends"
