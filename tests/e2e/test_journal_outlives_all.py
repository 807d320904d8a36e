"""All processes of a job end and its coordinator's folder stays: a checkpoint gives it on, one ledger proves it all."""

from contextlib import ExitStack

import pytest

from coordinator.ctl.exactly_once_audit import audit
from tests.e2e.one_by_one import PATIENCE, Apart
from tests.e2e.proofs import BATCH, SAMPLES, SCRIPT, assert_undisturbed, weights_in


def stop(job):
    """As an operator suspends it: the journal says that the job is over."""
    job.client.checkpoint()
    job.client.stop(now=True, reason="suspended")


def kill(job):
    """As by a power cut: the journal says that it trains."""
    version = job.client.checkpoint().version
    job.until(lambda status: status.version > version + 10, "steps that nobody keeps")
    for process in (job.coordinator, *job.nodes):
        process.kill()


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("end", [stop, kill])
def test_one_ledger_proves_both_lives(tmp_path, end):
    with ExitStack() as stack:
        job = Apart(tmp_path / "job", stack, workers=1)
        where = ("--checkpoint", str(tmp_path / "checkpoints"))
        job.start_coordinator(*where)
        job.start_node("server", 0)
        job.start_node("worker", 0, SCRIPT, tmp_path)
        job.until(lambda status: status.phase == "running" and status.version > 20, "training")
        end(job)
        for node in job.nodes:
            node.wait(PATIENCE)
        job.coordinator.kill()
        job.coordinator.wait(PATIENCE)
        again = ("--term", "5", "--begin-again", "--restore", str(tmp_path / "checkpoints"))
        job.start_coordinator(*where, *again)
        job.start_node("server", 1)
        job.start_node("worker", 1, SCRIPT, tmp_path)
        status = job.until(lambda status: status.phase == "running", "its second life")
        assert (status.term, status.rebuilt) == (5, False)
        assert {node.member.id for node in status.nodes} == {"s1", "w1"}
        job.coordinator.kill()  # and started again as a container is, by the same words: it does not go back once more
        job.coordinator.wait(PATIENCE)
        job.start_coordinator(*where, *again)
        assert job.until(lambda status: status.phase == "running", "it goes on").term == 6
        (tmp_path / "finish").touch()
        job.until(lambda status: status.phase == "finished", "the end")
        assert [node.wait(PATIENCE) for node in job.nodes[2:]] == [0, 0], job.logs()
        weights = weights_in(tmp_path)
        proof = audit(job.client.ledger(), SAMPLES, BATCH, int(weights["epochs"]))
        assert proof.exactly_once, proof.problems
    assert_undisturbed(weights)
