"""A cluster suspends a real job without servers: it is saved, ends, and goes on as if nothing had been."""

import json
import os
import signal

import pytest

from coordinator.archive import read_archive
from coordinator.ctl.exactly_once_audit import audit, first_whole_epoch
from dl2_scheduler.backends.clock import SystemClock
from dl2_scheduler.backends.local.cluster import LocalCluster
from dl2_scheduler.backends.local.job_records import JobRecords
from dl2_scheduler.backends.local.launchers.elasticrun import ElasticrunRuntime
from dl2_scheduler.backends.local.places.nodes import virtual_nodes
from dl2_scheduler.backends.local.tasks.isolation import NoIsolation
from dl2_scheduler.backends.local.tasks.task_files import TaskFiles
from dl2_scheduler.cluster.desk import LiveJobPhase
from dl2_scheduler.cluster.snapshot import Allocation, Grant
from tests.e2e.proofs import weights_in
from tests.e2e.test_cluster import no_job_left, until
from tests.paths import ROOT

pytest.importorskip("torch")

from tests.e2e.test_torch import STARTS
from tests.e2e.torch_proofs import SCRIPT, assert_trained_by_one, script

DOCUMENT = """
apiVersion: dl2.scheduler/v1alpha1
kind: ElasticJob
metadata: {{name: ring}}
spec:
  modelType: ring
  mode: all-reduce
  epochs: 1000000
  checkpoint: {{url: {folder}/saved, interval: 0.5s}}
  workers:
    max: 2
    template: {{spec: {{containers: [{{command: [python, {script}], args: [{folder}]}}]}}}}
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_it_is_saved_suspended_and_lost_and_trained_as_by_one_process(tmp_path):
    """Its scheduler takes all from it, its workers are killed, its launcher is: it goes on from a checkpoint."""
    clock, folder = SystemClock(), tmp_path / "job"
    folder.mkdir()
    tasks = TaskFiles(tmp_path / "tasks", NoIsolation(), 2.0, 2.0)
    runtime, records = ElasticrunRuntime(tmp_path, clock.wake, tasks), JobRecords(tmp_path / "jobs.sqlite", clock.now())
    cluster = LocalCluster(virtual_nodes("1x2"), 0.5, records, runtime, clock)

    def slot(workers):
        cluster.snapshot()
        cluster.apply(Allocation({"ring": Grant(workers, 0)}))
        cluster.finish_slot()
        return cluster.desk.jobs()[0]

    def trains_on(workers, epochs, what):
        return until(
            lambda: (job := slot(workers)).workers == workers and job.epochs_done > epochs and job, what, STARTS
        )

    with no_job_left(tmp_path):
        cluster.desk.submit(DOCUMENT.format(folder=folder, script=SCRIPT), ROOT)
        ran = trains_on(2, 1, "training")
        suspended = until(lambda: (job := slot(0)).phase is LiveJobPhase.WAITING and job, "suspension")
        assert suspended.epochs_done >= ran.epochs_done
        again = trains_on(1, suspended.epochs_done + 1, "training from the checkpoint")
        assert again.log != ran.log
        launcher = records.last("ring").process
        for task in runtime.report("ring", launcher).tasks:
            os.kill(task.pid, signal.SIGKILL)
        until(lambda: runtime.why_back("ring").startswith("the last worker died"), "the way back", STARTS)
        trains_on(1, again.epochs_done + 1, "training after the workers' loss")
        os.kill(launcher.pid, signal.SIGKILL)
        until(lambda: slot(1).log != again.log, "another launcher")
        trains_on(1, again.epochs_done + 2, "training after the launcher's loss")
        (folder / "finish").touch()
        until(lambda: slot(1).phase is LiveJobPhase.FINISHED, "the end")
        records.close()
    weights = weights_in(folder)
    manifests = [json.loads(path.read_text()) for path in folder.glob("saved/ring-1/*/manifest.json")]
    (seed,) = {manifest["seed"] for manifest in manifests}  # it began once
    assert_trained_by_one(weights, seed=seed)
    ledger = read_archive(tmp_path / "elastic_ps/jobs/ring").ledger
    proof = audit(ledger, script.SAMPLES, script.BATCH, int(weights["epochs"]), begin=first_whole_epoch(ledger))
    assert proof.exactly_once, proof.problems
