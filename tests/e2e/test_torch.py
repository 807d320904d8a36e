"""Scripts of PyTorch as real jobs: they grow, shrink and lose workers, and every sample counts once."""

import numpy as np
import pytest

from coordinator.archive import read_archive
from coordinator.ctl.exactly_once_audit import audit
from coordinator.ctl.weights_export import export_weights
from tests.devices import ON_EACH
from tests.e2e import jobs

torch = pytest.importorskip("torch")

import elastic_ps.torch as elastic  # noqa: E402
from examples.torch.digits import network  # noqa: E402
from tests.e2e.torch_proofs import assert_trained_by_one, script  # noqa: E402

STARTS = 240.0
"""Seconds in which a worker must have begun: it imports PyTorch first, with others at once on a busy machine."""

PATIENT = ("--join-timeout", str(STARTS))


def scale(job, workers, servers):
    job.client.scale(workers, servers or None)
    job.until(lambda status: jobs.counts(status) == (workers, servers), f"{workers} workers, {servers} servers", STARTS)
    train_on(job)


def train_on(job, steps=30):
    before = job.status().version
    job.until(lambda status: status.version > before + steps, "further steps", STARTS)


def finish(job, folder, samples, batch, epochs_in, begin=0):
    """End the job at an epoch's end; returns what it has written, proved to be made of every sample exactly once.

    Of a job that began from another's checkpoint the epochs from `begin` on are its own.
    """
    (folder / "finish").touch()
    assert job.wait(120) == 0, job.tail()
    epochs, found = epochs_in()
    proof = audit(read_archive(job.folder).ledger, samples, batch, epochs, begin=begin)
    assert proof.exactly_once, proof.problems
    return epochs, found


@pytest.mark.slow
@pytest.mark.timeout(900)
@ON_EACH
@pytest.mark.parametrize(("loaders", "transport"), [(0, "auto"), (2, "tcp")])
def test_the_example_grows_and_shrinks(tmp_path, loaders, transport, device):
    def written():
        found = torch.load(tmp_path / "weights.pt", weights_only=True)
        return found["epochs"], found

    script, options = jobs.SCRIPTS / "torch_digits.py", (*PATIENT, "--transport", transport)
    own = (tmp_path, "--loaders", loaders, "--device", device)
    with jobs.run(tmp_path, script, *own, workers=2, servers=1, options=options) as job:
        job.until(lambda status: status.version > 0, "training", STARTS)
        for workers, servers in [(1, 2), (3, 2), (2, 1)]:
            scale(job, workers, servers)
        exported = export_weights(job.client.checkpoint().url, tmp_path / "model.safetensors")
        epochs, found = finish(job, tmp_path, 1437, 64, written)
    assert found["accuracy"] >= 0.95
    steps = epochs * -(-1437 // 64)
    assert int(found["model"]["1.num_batches_tracked"]) == steps  # each worker counts each step
    model = network()
    elastic.load(model, exported.path)
    assert int(model[1].num_batches_tracked) == exported.version


@pytest.mark.slow
@pytest.mark.timeout(900)
@ON_EACH
@pytest.mark.parametrize("bound", [None, 0.02])
def test_a_script_is_trained_as_by_one_process(tmp_path, bound, device):
    """The chief dies, and a worker that has joined is the next. Then a server does, and all begin again.

    Every time the schedule goes on where the job's is. With a bound each gradient is clipped.
    """
    own = (tmp_path, "--device", device, *(() if bound is None else ("--max-norm", bound)))

    def written():
        with np.load(tmp_path / "weights.npz") as found:
            return int(found["epochs"]), dict(found)

    with jobs.run(tmp_path, jobs.SCRIPTS / "torch_regression.py", *own, workers=1, servers=2, options=PATIENT) as job:
        job.until(lambda status: status.version > 10, "training", STARTS)
        scale(job, 3, 1)
        job.kill("w0")
        job.until(lambda status: "w0" not in jobs.member_ids(status, 1), "the configuration without the chief", STARTS)
        train_on(job)
        saved = job.client.checkpoint().version
        term = job.status().term
        job.kill(jobs.member_ids(job.status(), 2)[0])
        job.until(lambda status: any("restore" in plan.cause for plan in job.client.plans()), "a restore", STARTS)
        job.until(lambda status: status.phase == "running" and status.version > saved, "training after it", STARTS)
        assert job.status().term > term
        _, weights = finish(job, tmp_path, script.SAMPLES, script.BATCH, written)
    assert_trained_by_one(weights, bound)


@pytest.mark.slow
@pytest.mark.timeout(900)
@ON_EACH
def test_a_script_without_servers_is_trained_as_by_one_process(tmp_path, device):
    """Workers join, the chief dies and another takes its place, and the job shrinks to one worker."""

    def written():
        with np.load(tmp_path / "weights.npz") as found:
            return int(found["epochs"]), dict(found)

    own, options = (tmp_path, "--device", device), ("--mode", "all-reduce", *PATIENT)
    with jobs.run(tmp_path, jobs.SCRIPTS / "torch_regression.py", *own, workers=1, servers=0, options=options) as job:
        job.until(lambda status: status.version > 10, "training", STARTS)
        scale(job, 2, 0)
        job.kill("w0")
        job.until(lambda status: "w0" not in jobs.member_ids(status, 1), "the configuration without the chief", STARTS)
        job.until(lambda status: jobs.counts(status) == (2, 0), "another worker in its place", STARTS)
        train_on(job)
        scale(job, 1, 0)
        _, weights = finish(job, tmp_path, script.SAMPLES, script.BATCH, written)
    assert_trained_by_one(weights)


@pytest.mark.slow
@pytest.mark.timeout(900)
@ON_EACH
def test_checkpoints_restore_with_servers_and_without(tmp_path, device):
    """All workers of a job without servers die. Then one with servers goes on from its weights, and one without again.

    Each is trained as by one process, states of the optimizer, schedule and all.
    """
    steps = -(-script.SAMPLES // script.BATCH)
    without = ("--mode", "all-reduce", *PATIENT)

    def trained(name, version, disturb, **asked):
        """Train on from a version; return the URL and the version of a checkpoint that was made meanwhile."""
        folder = tmp_path / name
        folder.mkdir()

        def written():
            with np.load(folder / "weights.npz") as found:
                return int(found["epochs"]), dict(found)

        own = (folder, "--device", device)
        with jobs.run(folder, jobs.SCRIPTS / "torch_regression.py", *own, name=name, **asked) as job:
            job.until(lambda status: status.version > version + 10, "training", STARTS)
            disturb(job)
            saved = job.client.checkpoint()
            _, weights = finish(job, folder, script.SAMPLES, script.BATCH, written, -(-version // steps))
        assert_trained_by_one(weights)
        return saved.url, saved.version

    def all_die(job):
        saved = job.client.checkpoint().version
        for worker in jobs.member_ids(job.status(), 1):
            job.kill(worker)
        job.until(lambda status: any("restore" in plan.cause for plan in job.client.plans()), "a restore", STARTS)
        job.until(lambda status: status.phase == "running" and status.version > saved, "training after it", STARTS)

    options = ("--checkpoint", str(tmp_path / "saved"), *without)
    url, version = trained("first", 0, all_die, workers=2, servers=0, options=options)
    exported = export_weights(url, tmp_path / "model.safetensors")
    elastic.load(script.network(), exported.path)
    assert exported.version == version
    options = ("--checkpoint", str(tmp_path / "served"), "--restore", url, *PATIENT)
    url, version = trained("second", version, lambda job: None, workers=1, servers=2, options=options)
    options = ("--checkpoint", str(tmp_path / "third-saved"), "--restore", url, *without)
    trained("third", version, lambda job: None, workers=2, servers=0, options=options)
