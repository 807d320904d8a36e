"""A run's faults are fixed by its seed, and meet every cell before any comes twice."""

import json

import pytest

from tests.chaos.cells import EITHER, PASSING, cells
from tests.chaos.draw import JobDraw, draw
from tests.world.faults.cells import FILLING, LAUNCHER, MEMBERS, SERVER


def faults_of(draws):
    return [fault for job in draws for fault in job.faults]


def test_a_seed_fixes_the_run():
    assert draw(3, 40, True) == draw(3, 40, True)
    assert draw(3, 40, True) != draw(4, 40, True)


@pytest.mark.parametrize("network", [True, False])
@pytest.mark.parametrize("serverless", [True, False])
def test_every_cell_is_met_before_any_comes_twice(network, serverless):
    every = cells(network, serverless)
    assert len(every) <= 247  # one run of `make chaos` meets all
    met = [fault.cell for fault in faults_of(draw(1, len(every), network, serverless))]
    assert sorted(met) == sorted(every)


def test_jobs_without_servers_meet_nothing_of_servers():
    jobs = draw(4, 100, True, serverless=True)
    assert all(job.serverless and not job.servers and not job.replicas for job in jobs)
    assert not any(SERVER in fault.cell.role for fault in faults_of(jobs))
    assert any(fault.cell.role == MEMBERS for fault in faults_of(jobs))
    assert all(job.checkpoints for job in jobs if any(fault.cell.needs_checkpoint for fault in job.faults))
    assert not any(job.serverless for job in draw(4, 100, True))


def test_each_fault_is_made_once():
    found = faults_of(draw(2, 120, True))
    assert sorted(fault.number for fault in found) == list(range(120))


def test_links_are_those_of_tcp():
    for job in draw(5, 100, True):
        assert job.transport == "tcp" or not any(fault.cell.of_network for fault in job.faults)


def test_what_passes_lasts_from_half_a_lease_to_four():
    for fault in faults_of(draw(6, 100, True)):
        assert fault.leases == 0.0 or 0.5 <= fault.leases <= 4.0
        assert fault.leases or fault.cell.kind not in PASSING
        assert not fault.leases or fault.cell.kind in (*PASSING, *EITHER)


def test_nobody_would_replace_a_launcher():
    some = [fault for fault in faults_of(draw(6, 400, True)) if LAUNCHER in fault.cell.role]
    assert some
    assert not any(fault.costs_a_process for fault in some)


def test_most_jobs_have_followers_and_half_of_these_no_checkpoint_where_no_fault_needs_one():
    jobs = draw(6, 1000, True)
    protected = [job for job in jobs if job.replicas]
    assert 0.5 < len(protected) / len(jobs) < 0.8
    bare = [job for job in protected if not job.checkpoints]
    assert 0.2 < len(bare) / len(protected) < 0.6
    assert not any(fault.cell.needs_checkpoint for fault in faults_of(bare))
    others = faults_of([job for job in jobs if not job.replicas])
    assert not any(fault.cell.needs_replicas for fault in others)
    assert all(job.servers == 3 for job in jobs if any(fault.cell.phase == FILLING for fault in job.faults))


def test_without_a_network_of_its_own_no_link_is_met():
    assert not any(fault.cell.of_network for fault in faults_of(draw(1, 100, False)))


def test_a_job_is_told_to_its_room():
    for job in draw(1, 20, True):
        assert JobDraw.from_json(json.loads(json.dumps(job.to_json()))) == job
