"""A job without servers goes back to its checkpoint when all workers have died, and uses every sample once."""

import threading
import time

import pytest

torch = pytest.importorskip("torch")

from coordinator.core import events as ev  # noqa: E402
from tests.elastic_ps.torch.allreduce.group_job import Killed, Worker, finished  # noqa: E402
from tests.elastic_ps.torch.allreduce.played_coordinator import WAIT, Coordinator  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ASKED, DEATH = 2, 12
"""Versions at which a checkpoint is asked for, and at which all workers die."""


def lost(folder, count):
    """Return the coordinator of a job whose workers have died behind a checkpoint, and URL and version of that one."""
    coordinator, workers, saved = Coordinator(count, str(folder)), [], []

    def asked():
        saved.append(coordinator.checkpoint())

    def at(worker, where):
        if (where, worker.node.held, worker) == ("begun", ASKED, workers[0]):
            thread.start()
            coordinator.until(lambda _: all(each.node.saver._order for each in workers))
        if where == "begun" and worker.node.held == DEATH:
            coordinator.until(lambda state: state.job.checkpoints)
            raise Killed

    thread = threading.Thread(target=asked)
    workers += [Worker(coordinator, 3, at=at, seed=3 + rank) for rank in range(count)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.wait()
    thread.join()
    coordinator.until(lambda state: state.job.term == 2 and not state.job.loading)
    return coordinator, *saved[0]


def test_all_die_and_others_go_on_from_the_checkpoint(tmp_path):
    coordinator, url, version = lost(tmp_path, 2)
    assert ASKED < version < DEATH
    assert coordinator.state.job.restore == url
    others = [Worker(coordinator, 3, seed=8 + rank).start() for rank in range(2)]
    for worker in others:
        worker.wait()
    assert [worker.parts[0][0] for worker in others] == [version, version]
    for worker in others:  # else the coordinator takes one that reads for long for one that is stuck
        assert worker.node.report().copied >= 3 * sum(each.nbytes for each in worker.model.parameters())
    finished(coordinator, others, 3)


def test_a_checkpoint_that_cannot_be_written_is_refused_and_the_job_goes_on(tmp_path):
    (tmp_path / "file").touch()
    coordinator, refused = Coordinator(1, str(tmp_path / "file")), []

    def asked():
        try:
            coordinator.checkpoint()
        except Exception as error:  # noqa: BLE001  # whatever it was answered
            refused.append(str(error))

    def at(worker, where):
        if where == "begun" and worker.node.held == ASKED:
            thread.start()
            coordinator.until(lambda _: worker.node.saver._order)
        if where == "begun" and worker.node.held == DEATH:
            coordinator.until(lambda state: state.unsaved)

    thread = threading.Thread(target=asked)
    worker = Worker(coordinator, 2, at=at, seed=3).start()
    worker.wait()
    thread.join()
    assert refused[0].startswith("w0 cannot write to ")
    finished(coordinator, [worker], 2)


def test_workers_that_rehearse_before_and_behind_a_death_and_a_restart_have_one_ledger(tmp_path):
    """Each begins it for itself when it has rehearsed; the coordinator has another term then, and so has its plan."""
    coordinator, _, _ = lost(tmp_path, 3)
    first, late, dies = [Worker(coordinator, 3, seed=8 + rank) for rank in range(3)]
    rehearse = late.job.rehearse

    def behind(spec):
        coordinator.until(lambda _: first.node.ledger.name)
        coordinator.post(ev.Started(time.time()))
        died.set()
        coordinator.until(lambda _: len(coordinator.workers()) == 2)
        rehearse(spec)

    def dead(_spec):
        died.wait(WAIT)
        raise Killed

    died, late.job.rehearse, dies.job.rehearse = threading.Event(), behind, dead
    for worker in (first, late, dies):
        worker.start()
    for worker in (first, late, dies):
        worker.wait()
    assert first.node.ledger.name == late.node.ledger.name == "workers.2"
    finished(coordinator, [first, late], 3)
