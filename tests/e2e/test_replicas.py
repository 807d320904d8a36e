"""Servers die one after the other, without a checkpoint, and the job trains on with the copies of their followers."""

import os
import signal
import time
from contextlib import ExitStack

import pytest

from coordinator.ctl.exactly_once_audit import audit
from coordinator.server.ledger_files import Ledger
from tests.e2e import jobs
from tests.e2e.one_by_one import PATIENCE, Apart
from tests.e2e.proofs import BATCH, SAMPLES, SCRIPT, assert_undisturbed, finish, improvement, weights_in
from tests.e2e.test_async import ASYNC


def is_protected(status):
    """Whether a job of two servers trains, and nothing is under way."""
    return status.phase == "running" and jobs.counts(status) == (2, 2) and not status.plan.id and status.version > 5


def kill(job, number):
    """Kill a server, by the order of its start; returns the seconds until the next step."""
    before = job.client.status()
    job.nodes[number].send_signal(signal.SIGKILL)
    killed = time.monotonic()
    after = job.until(lambda status: jobs.counts(status) == (2, 1), "a configuration without it")
    version = after.version
    job.until(lambda status: status.version > version, "steps without it")
    assert after.term == before.term, "nothing was restored"
    return time.monotonic() - killed


def survive(folder, *arguments, transport="auto"):
    """Train while both servers are replaced, one after the other; returns the weights."""
    way = ("--transport", transport)
    with ExitStack() as stack:
        job = Apart(folder / "job", stack)
        job.start_coordinator("--servers", "2", "--lease", "3", "--replicas", "1")
        for number in range(2):
            job.start_node("server", number, *way)
        for number in range(2):
            job.start_node("worker", number, *way, SCRIPT, folder, *arguments)
        job.until(is_protected, "training")
        for victim in range(2):
            print(f"SIGKILL to the next step: {kill(job, victim):.2f} s")
            job.start_node("server", 2 + victim, *way)
            job.until(is_protected, "followers again")
        (folder / "finish").touch()
        job.until(lambda status: status.phase == "finished", "the end")
        living = [node for node in job.nodes if node.poll() != -signal.SIGKILL]
        assert [node.wait(PATIENCE) for node in living] == [0, 0, 0, 0], job.logs()
        job.coordinator.terminate()
        assert job.coordinator.wait(PATIENCE) == 0, job.logs()
    weights = weights_in(folder)
    ledger = Ledger(folder / "job" / "state" / "ledger.jsonl")
    ledger.load()
    proof = audit(list(ledger.entries(())), SAMPLES, BATCH, int(weights["epochs"]))
    ledger.close()
    assert proof.exactly_once, proof.problems
    return weights


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_elasticrun_gives_the_option_to_each_coordinator(tmp_path, monkeypatch):
    monkeypatch.setenv("ELASTIC_MACHINE", "node-1")
    options = ("--replicas", "1", "--lease", "3")
    with jobs.run(tmp_path, SCRIPT, tmp_path, workers=2, options=options) as job:
        job.running(2, 1)
        assert "the job has one server: no block is protected until a second one joins" in job.tail()
        os.kill(jobs.described(job)["coordinator_pid"], signal.SIGKILL)
        job.until(lambda status: status.term == 2, "another coordinator")
        job.scale(servers=2)
        job.kill("s0")
        job.until(lambda status: is_protected(status) and "s0" not in jobs.member_ids(status, 2), "another server")
        assert job.status().term == 2, "nothing was restored"
        assert {node.member.machine for node in job.status().nodes} == {"node-1"}
        weights = finish(job, tmp_path)
    assert_undisturbed(weights, exact=True, workers=2)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_no_server_joins_with_rules_that_were_edited_while_the_job_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    rules = tmp_path / "their_rules.py"
    rules.write_text("RATE = 1")
    options = ("--replicas", "1", "--lease", "3", "--optimizer-module", "their_rules")
    with jobs.run(tmp_path, SCRIPT, tmp_path, workers=2, servers=2, options=options) as job:
        job.until(is_protected, "training")
        rules.write_text("RATE = 2")
        job.kill("s0")
        refusal = f"cannot join: {rules} is not what this job's servers have loaded as module their_rules: put it back"
        job.until(lambda status: refusal in job.tail() and jobs.counts(status) == (2, 1), "a refusal")
        rules.write_text("RATE = 1")
        status = job.until(is_protected, "another server")
        assert status.term == 1
        weights = finish(job, tmp_path)
    assert_undisturbed(weights, exact=True, workers=2)


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_every_server_is_killed_and_nothing_is_lost(tmp_path, transport):
    weights = survive(tmp_path, transport=transport)
    assert_undisturbed(weights, exact=True, workers=2)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_every_server_of_an_async_job_is_killed_and_every_batch_counts_once(tmp_path):
    weights = survive(tmp_path, *ASYNC)
    assert improvement(weights) > 3
