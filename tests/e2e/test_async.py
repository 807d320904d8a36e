"""Jobs that are `async` or `ssp`, with real processes: every batch once, whatever joins, leaves or dies."""

import os
import signal
from collections import defaultdict
from itertools import combinations

import numpy as np
import pytest

from coordinator.archive import read_archive
from tests.e2e import jobs
from tests.e2e.proofs import SCRIPT, assert_undisturbed, finish, improvement

ASYNC = ("--consistency", "async", "--rate", "0.01")
SSP = ("--consistency", "ssp", "--staleness", "1", "--rate", "0.01")


def kill_worker(job, victim):
    job.kill(victim)
    job.until(
        lambda status: victim not in (workers := jobs.member_ids(status, 1)) and len(workers) == 3, f"{victim} replaced"
    )


def kill_coordinator(job):
    term = job.status().term
    os.kill(jobs.described(job)["coordinator_pid"], signal.SIGKILL)
    after = job.until(lambda status: status.term > term, "a coordinator of a higher term")
    job.until(lambda status: status.version > after.version + 5, "training under it")


def leads(rows):
    """How far two workers drew apart: by pair, the range of the difference of their completed steps, as recorded."""
    ends = defaultdict(set)
    for row in rows:
        ends[row.worker].add((row.step.end, row.step.version))
    found = {}
    for one, other in combinations(sorted(ends), 2):
        low, high = max(min(ends[one]), min(ends[other]))[0], min(max(ends[one]), max(ends[other]))[0]
        moves = sorted((end, 1 if name == one else -1) for name in (one, other) for end, _ in ends[name])
        ahead = np.cumsum([0] + [move for end, move in moves if low <= end <= high])
        found[one, other] = int(ahead.max() - ahead.min())
    return found


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize(("mode", "victim"), [(ASYNC, "w0"), (SSP, "w1")])
def test_a_job_grows_shrinks_and_loses_a_worker_and_its_coordinator(tmp_path, mode, victim):
    """w0 is the chief."""
    with jobs.run(tmp_path, SCRIPT, tmp_path, *mode, workers=2, servers=1) as job:
        job.running(2, 1)
        assert job.scale(3, 3).phase == "COMMITTED"
        kill_worker(job, victim)
        kill_coordinator(job)
        assert job.scale(1, 1).phase == "COMMITTED"
        weights = finish(job, tmp_path)
    assert improvement(weights) > 3
    if mode is SSP:
        apart = leads(read_archive(job.folder).steps)
        assert len(apart) >= 3
        assert max(apart.values()) <= 2, apart  # each is at most one step ahead of the other


@pytest.mark.slow
@pytest.mark.numeric
def test_ssp_holds_up_the_fast(tmp_path):
    """The second worker takes ten times as long for a step; `async` would let the first make ten in the time."""
    paces = ("--pace", "0.002", "--lag", "0.02")
    with jobs.run(tmp_path, SCRIPT, tmp_path, *SSP, *paces, "--epochs", 3, workers=2) as job:
        assert job.wait() == 0, job.tail()
    ((pair, apart),) = leads(read_archive(job.folder).steps).items()
    assert pair == ("w0", "w1")
    assert apart in (1, 2)


@pytest.mark.slow
def test_one_worker_alone_trains_as_in_sync_while_its_servers_come_and_go(tmp_path):
    with jobs.run(tmp_path, SCRIPT, tmp_path, "--consistency", "async", workers=1, servers=2) as job:
        job.running(1, 2)
        for servers in (3, 1):
            assert job.scale(1, servers).phase == "COMMITTED"
        weights = finish(job, tmp_path)
    assert_undisturbed(weights, exact=True)


@pytest.mark.slow
def test_a_killed_server_sends_the_job_back_to_its_checkpoint(tmp_path):
    with jobs.run(tmp_path, SCRIPT, tmp_path, *ASYNC, workers=2, servers=2) as job:
        job.running(2, 2)
        job.client.checkpoint()
        version = job.status().version
        job.until(lambda status: status.version > version + 10, "steps that will be lost")
        job.kill("s0")
        job.until(lambda status: "w0" not in jobs.member_ids(status, 1) and jobs.counts(status) == (2, 2), "restored")
        weights = finish(job, tmp_path)
    assert improvement(weights) > 3
    assert any(entry.voided for entry in read_archive(job.folder).ledger)
