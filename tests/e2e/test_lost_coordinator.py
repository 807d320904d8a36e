"""A coordinator is killed with its journal and ledger: its job trains on, and a new one knows it from its nodes."""

import json
from contextlib import ExitStack

import pytest

from coordinator.ctl.exactly_once_audit import audit, first_whole_epoch
from coordinator.server.ledger_files import Ledger
from tests.e2e import jobs
from tests.e2e.one_by_one import PATIENCE, Apart
from tests.e2e.proofs import BATCH, SAMPLES, SCRIPT, assert_undisturbed, weights_in


def ledger_of(folder):
    """Entries by server and sequence: one that was stored when its answer was lost is sent again."""
    ledger = Ledger(folder / "ledger.jsonl")
    lines = [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]
    entries = list(ledger.entries(()))
    ledger.close()
    return {(line["server"], line["sequence"]): entry for line, entry in zip(lines, entries, strict=True)}


def train(folder, disturb):
    """Train until something has happened, and to the end; returns every ledger entry that there ever was."""
    with ExitStack() as stack:
        job = Apart(folder / "job", stack)
        job.start_coordinator()
        job.start_node("server", 0)
        for number in range(2):
            job.start_node("worker", number, SCRIPT, folder)
        before = disturb(job)
        (folder / "finish").touch()
        job.until(lambda status: status.phase == "finished", "the end")
        for node in job.nodes:
            assert node.wait(PATIENCE) == 0, job.logs()
        job.coordinator.terminate()
        assert job.coordinator.wait(PATIENCE) == 0, job.logs()
        return before | ledger_of(folder / "job" / "state")


def lose(job):
    """Kill the coordinator and remove its folder while the job trains; returns the ledger that went with it."""
    before = job.until(lambda status: status.phase == "running" and status.version > 40, "training")
    job.lose_coordinator()
    asking = job.client.status()
    assert (asking.phase, asking.term) == ("rebuilding", 2)
    after = job.until(lambda status: status.phase == "running", "a state from the nodes")
    assert (after.term, after.configuration) == (2, before.configuration)
    assert sorted(node.nonce for node in after.nodes) == ["server-0.1", "worker-0.1", "worker-1.1"]
    assert after.data == before.data
    assert (after.optimizers, after.blocks, after.bytes) == (before.optimizers, before.blocks, before.bytes)
    job.until(lambda status: status.version > after.version + 10, "steps under it")
    assert job.nodes[0].poll() is None
    return ledger_of(job.folder / "lost")


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_job_outlives_its_coordinators_folder(tmp_path):
    entries = train(tmp_path, lose)
    weights = weights_in(tmp_path)
    epochs = int(weights["epochs"])
    assert_undisturbed(weights, exact=True, workers=2)
    proof = audit(entries.values(), SAMPLES, BATCH, epochs)
    assert proof.exactly_once, proof.problems
    # what is left on disk proves the epochs that began under the new coordinator, and says so of no other
    kept = ledger_of(tmp_path / "job" / "state").values()
    first = first_whole_epoch(kept)
    assert not audit(kept, SAMPLES, BATCH, epochs).exactly_once
    assert audit(kept, SAMPLES, BATCH, epochs, begin=first).exactly_once


def plan_of(job, phase):
    return job.until(lambda status: status.plan.phase == phase, f"a plan in {phase}")


@pytest.mark.slow
def test_a_plan_that_was_not_armed_is_made_again(tmp_path):
    """A joiner is held in its rehearsal while the coordinator and all it knew go; the scaling comes all the same."""
    with ExitStack() as stack:
        job = Apart(tmp_path / "job", stack, workers=1)
        job.start_coordinator()
        job.start_node("server", 0)
        job.start_node("worker", 0, SCRIPT, tmp_path)
        job.until(lambda status: status.phase == "running" and status.version > 5, "training")
        (tmp_path / "hold").touch()
        job.client.scale(workers=2)
        job.start_node("worker", 1, SCRIPT, tmp_path)
        before = plan_of(job, "SYNCING")
        job.lose_coordinator()
        after = job.until(lambda status: status.phase == "running", "a state from the nodes")
        assert after.configuration == before.configuration
        assert {node.member.id for node in after.nodes} == {node.member.id for node in before.nodes}
        (tmp_path / "hold").unlink()
        job.until(lambda status: jobs.counts(status) == (2, 1) and not status.plan.id, "the scaling")
        assert job.client.plans()[0].id > 1000, "ids go on far above those that are forgotten"
        (tmp_path / "finish").touch()
        job.until(lambda status: status.phase == "finished", "the end")
        assert [node.wait(PATIENCE) for node in job.nodes] == [0, 0, 0], job.logs()
    weights = weights_in(tmp_path)
    entries = ledger_of(tmp_path / "job" / "lost") | ledger_of(tmp_path / "job" / "state")
    proof = audit(entries.values(), SAMPLES, BATCH, int(weights["epochs"]))
    assert proof.exactly_once, proof.problems
    assert_undisturbed(weights)
