"""A frozen node is expelled, by its lease or by hand; when it thaws it ends with the reason, and nothing of it counts.

Its launcher freezes with it: it would kill a process that is stopped and that the job does not have.
"""

import os
import signal
from contextlib import ExitStack, suppress

import pytest

from coordinator.ctl.exactly_once_audit import audit
from elastic_ps.system.process.proc_stat import stat_fields
from tests.e2e.one_by_one import PATIENCE, Apart
from tests.e2e.proofs import BATCH, SAMPLES, SCRIPT, assert_undisturbed, weights_in

LEASE = 2


def by_lease(job, name):
    """It is silent for longer than it may be."""
    waiting = job.until(lambda status: status.waiting, f"{name} is waited for").waiting
    assert waiting[0].startswith(f"{name} has been silent"), waiting


def by_hand(job, name):
    """An operator does not wait for that."""
    assert f"{name} is expelled" in job.client.evict(name).outcome


def names(status):
    return {node.member.id for node in status.nodes}


def begin(job, folder, workers, servers=1, options=()):
    """Start all of its processes; returns once it trains."""
    job.start_coordinator("--lease", str(LEASE), "--servers", str(servers), *options)
    for number in range(servers):
        job.start_node("server", number)
    for number in range(workers):
        job.start_node("worker", number, SCRIPT, folder)
    job.until(lambda status: status.phase == "running" and status.version > 5, "training")


def freeze(job, stack, name):
    """Stop a node's process; returns its pid, and what it was started as."""
    node = next(node for node in job.client.status().nodes if node.member.id == name)
    for pid in (launcher_of(node.pid), node.pid):
        os.kill(pid, signal.SIGSTOP)
    stack.callback(thaw, node.pid)  # before its launcher is waited for
    return node.pid, node.nonce.partition(".")[0]


def thaw(pid):
    with suppress(ProcessLookupError, FileNotFoundError):
        for frozen in (launcher_of(pid), pid):
            os.kill(frozen, signal.SIGCONT)


def launcher_of(pid):
    return int(stat_fields(pid)[1])


def ends_expelled(job, process, started_as):
    """It has found that it was expelled, and has said so; it has not ended as if it had finished."""
    assert process.wait(PATIENCE) == 1, job.logs()
    said = (job.folder / f"{started_as}.log").read_text()
    assert "this node was expelled, and its job goes on without it" in said, said
    assert "nothing that it does counts" in said, said
    assert "Traceback" not in said, said


def ends_proved(job, folder, expelled):
    """The others train to the end, and every sample counted once; returns the weights."""
    (folder / "finish").touch()
    job.until(lambda status: status.phase == "finished", "the end")
    others = [node for node in job.nodes if node not in expelled]
    assert [node.wait(PATIENCE) for node in others] == [0] * len(others), job.logs()
    weights = weights_in(folder)
    proof = audit(job.client.ledger(), SAMPLES, BATCH, int(weights["epochs"]))
    assert proof.exactly_once, proof.problems
    return weights


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_workers_that_thaw_find_themselves_expelled(tmp_path):
    with ExitStack() as stack:
        job = Apart(tmp_path / "job", stack, workers=3)
        begin(job, tmp_path, workers=3)
        ended = []
        for name, expelled in (("w1", by_lease), ("w2", by_hand)):
            pid, started_as = freeze(job, stack, name)
            expelled(job, name)
            after = job.until(lambda status, name=name: name not in names(status), f"{name} is expelled")
            job.until(lambda status, after=after: status.version > after.version + 10, "the others train on")
            thaw(pid)
            ended.append(job.nodes[1 + int(started_as.rpartition("-")[2])])
            ends_expelled(job, ended[-1], started_as)
        weights = ends_proved(job, tmp_path, ended)
    assert_undisturbed(weights)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_server_that_thaws_finds_itself_expelled(tmp_path):
    """Its job has gone back to a checkpoint, and to another server in its place."""
    with ExitStack() as stack:
        job = Apart(tmp_path / "job", stack, workers=1)
        begin(job, tmp_path, workers=1, servers=2, options=("--checkpoint", str(tmp_path / "checkpoints")))
        job.client.checkpoint()
        term = job.client.status().term
        pid, started_as = freeze(job, stack, "s1")
        by_hand(job, "s1")
        job.start_node("server", 2)
        job.until(lambda status: status.phase == "running" and status.term > term, "restored")
        thaw(pid)
        ended = job.nodes[int(started_as.rpartition("-")[2])]
        ends_expelled(job, ended, started_as)
        ends_proved(job, tmp_path, [ended])
