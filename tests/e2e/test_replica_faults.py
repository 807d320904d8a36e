"""Servers of a job without a checkpoint freeze for ever, or die while its coordinator does, or all at once."""

import os
import re
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from coordinator.ctl.exactly_once_audit import audit
from coordinator.server.ledger_files import Ledger
from tests.e2e import jobs
from tests.e2e.one_by_one import PATIENCE, Apart
from tests.e2e.proofs import BATCH, SAMPLES, SCRIPT, assert_undisturbed, weights_in
from tests.e2e.test_replicas import is_protected

HOW = ("--servers", "2", "--lease", "3", "--replicas", "1")


@pytest.fixture
def job(tmp_path):
    """Two workers, two servers that follow each other; it trains."""
    with ExitStack() as stack:
        job = Apart(tmp_path / "job", stack)
        job.start_coordinator(*HOW)
        for number in range(2):
            job.start_node("server", number)
        for number in range(2):
            job.start_node("worker", number, SCRIPT, tmp_path)
        job.until(is_protected, "training")
        yield job


def process_of(job, number):
    """What the status says of the process that a node's launcher has started."""
    children = Path(f"/proc/{job.nodes[number].pid}/task/{job.nodes[number].pid}/children").read_text().split()
    return next(node for node in job.client.status().nodes if str(node.pid) in children)


def steps_on(job, term):
    """It trains on with one server, and nothing was restored."""
    after = job.until(lambda status: jobs.counts(status) == (2, 1), "a configuration without it")
    job.until(lambda status: status.version > after.version, "steps without it")
    assert after.term == term


def replace_server(job, number):
    job.start_node("server", number)
    job.until(is_protected, "followers again")


def finish(job, folder):
    """End it; returns its weights, which are those of a job that nothing has happened to."""
    (folder / "finish").touch()
    job.until(lambda status: status.phase == "finished", "the end")
    for node in job.nodes:
        node.wait(PATIENCE)  # servers report the rest of their ledgers before they end
    weights = weights_in(folder)
    job.coordinator.terminate()
    assert job.coordinator.wait(PATIENCE) == 0, job.logs()
    assert_undisturbed(weights, exact=True, workers=2)
    return weights


def proof(job, weights):
    ledger = Ledger(job.folder / "state" / "ledger.jsonl")
    ledger.load()
    found = audit(list(ledger.entries(())), SAMPLES, BATCH, int(weights["epochs"]))
    ledger.close()
    return found


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_nothing_of_a_server_that_thaws_after_its_promotion_counts(job, tmp_path):
    launcher, server = job.nodes[0], process_of(job, 0).pid
    launcher.send_signal(signal.SIGSTOP)  # else it would kill the server when it hears of it
    os.kill(server, signal.SIGSTOP)
    steps_on(job, term=1)
    replace_server(job, 2)
    os.kill(server, signal.SIGCONT)
    before = job.client.status().version
    job.until(lambda status: status.version > before + 5, "steps")
    launcher.send_signal(signal.SIGCONT)
    assert launcher.wait(PATIENCE) == 1, "its server was told that it had been expelled"
    weights = finish(job, tmp_path)
    found = proof(job, weights)
    assert found.exactly_once, found.problems


def silent_seconds(status):
    """Of the node that the status names first of those that are silent; 0: it names none."""
    return next((int(said[1]) for line in status.waiting if (said := re.search(r"silent for (\d+) s", line))), 0)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_owner_and_follower_that_freeze_together_are_waited_for(job, tmp_path):
    servers = [process_of(job, number) for number in range(2)]
    for server in servers:
        os.kill(server.pid, signal.SIGSTOP)
    told = job.until(lambda status: any("the job fails without it" in line for line in status.waiting), "no copy left")
    job.until(lambda status: silent_seconds(status) >= 10, "more than three leases")
    for server in servers:
        os.kill(server.pid, signal.SIGCONT)
    job.until(lambda status: status.version > told.version + 5, "steps")
    after = job.until(is_protected, "followers")
    assert after.term == told.term, "nothing was restored"
    assert {server.pid for server in servers} < {node.pid for node in after.nodes}, "both are there"
    weights = finish(job, tmp_path)
    found = proof(job, weights)
    assert found.exactly_once, found.problems


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("journal", [True, False], ids=["journal", "lost"])
def test_the_coordinator_dies_in_a_servers_death(job, tmp_path, journal):
    """At once when it has heard of that, so at some point of the death's plan."""
    dead = process_of(job, 1)
    job.nodes[1].kill()
    job.client.evict(dead.member.id)
    if journal:
        job.coordinator.kill()
        job.coordinator.wait(PATIENCE)
        job.start_coordinator(*HOW)
    else:
        job.lose_coordinator(*HOW)
    steps_on(job, term=2)
    replace_server(job, 2)
    weights = finish(job, tmp_path)
    if journal:
        found = proof(job, weights)
        assert found.exactly_once, found.problems


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_job_whose_servers_die_together_ends_with_the_reason(job):
    for server in job.nodes[:2]:
        server.kill()
    for server in ("s0", "s1"):  # as who watches over their machines would: the last copy is waited for otherwise
        job.client.node_exited("", server, 137)
    ended = job.until(lambda status: status.phase == "failed", "the end")
    assert "died" in ended.reason
    assert "no checkpoint" in ended.reason
    assert [worker.wait(PATIENCE) for worker in job.nodes[2:]] == [1, 1]
