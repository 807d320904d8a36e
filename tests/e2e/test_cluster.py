"""A policy drives real jobs: `dl2 serve` with DRF over two of them, ended and served again in between."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from coordinator.archive import read_archive
from coordinator.ctl.exactly_once_audit import audit
from dl2_scheduler.backends.clock import SystemClock
from dl2_scheduler.backends.local.cluster import LocalCluster
from dl2_scheduler.backends.local.job_records import JobRecords
from dl2_scheduler.backends.local.launchers import processes
from dl2_scheduler.backends.local.launchers.elasticrun import ElasticrunRuntime
from dl2_scheduler.backends.local.places.nodes import virtual_nodes
from dl2_scheduler.backends.local.tasks.isolation import NoIsolation
from dl2_scheduler.backends.local.tasks.task_files import TaskFiles
from dl2_scheduler.cluster.desk import LiveJobPhase
from dl2_scheduler.cluster.errors import NotServed
from dl2_scheduler.cluster.snapshot import Allocation, Grant
from dl2_scheduler.live.client import ClusterClient
from tests.e2e.proofs import BATCH, SAMPLES, SCRIPT, improvement, weights_in
from tests.paths import ROOT

POLL_SECONDS = 0.1
_TOLD = 5000  # characters of the log's end
DOCUMENT = """
apiVersion: dl2.scheduler/v1alpha1
kind: ElasticJob
metadata: {{name: {name}}}
spec:
  modelType: digits
  epochs: {epochs}
  workers:
    max: 2
    template: {{spec: {{containers: [{{command: [python, {script}], args: {arguments}}}]}}}}
  servers:
    max: 2
"""


def document(name, epochs, script, *arguments):
    words = json.dumps([*map(str, arguments), "--epochs", str(epochs)])
    return DOCUMENT.format(name=name, epochs=epochs, script=script, arguments=words)


def regression(folder, name, epochs, pace=0.05):
    """The document of a job without a framework, which leaves the cores to others while it trains."""
    own = folder / name
    own.mkdir()
    return document(name, epochs, SCRIPT, own, "--pace", pace)


def until(look, what, timeout=90.0):
    """Look until it is true; a timeout is a failure."""
    deadline = time.monotonic() + timeout
    while not (found := look()):
        assert time.monotonic() < deadline, f"{what}: did not happen"
        time.sleep(POLL_SECONDS)
    return found


@contextmanager
def no_job_left(folder):
    """Launchers that the test has started end with it, however it ends."""
    try:
        yield
    finally:
        clock = SystemClock()
        records = JobRecords(folder / "jobs.sqlite", clock.now())
        left = [record.process for record in records.all() if record.process is not None]
        records.close()
        for process in left:
            processes.terminate(process)
        for process in left:
            until(lambda process=process: not processes.is_alive(process), f"end of {process}")


@contextmanager
def serving(folder, log, *further):
    """`dl2 serve` as a process; the jobs stay when it ends."""
    command = [sys.executable, "-c", "from dl2_scheduler.cli import main; main()", "serve"]
    options = ["--slots", "1x4", "--policy", "drf", "--slot", "2s", "--folder", str(folder), *further]
    with log.open("ab") as output:
        process = subprocess.Popen([*command, *options], stdout=output, stderr=subprocess.STDOUT, cwd=ROOT)
    try:
        with ClusterClient(folder) as client:
            until(lambda: answers(client, process, log), "dl2 serve")
            client.process = process
            yield client
    except AssertionError:
        print(log.read_text()[-_TOLD:])  # pytest shows it beside what has failed
        raise
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0, log.read_text()


def answers(client, process, log):
    assert process.poll() is None, log.read_text()
    try:
        return client.jobs() is not None
    except NotServed:
        return False


def counts(client, name):
    job = client.status(name)
    assert job.phase != "failed", job
    return (job.workers, job.servers) if job.phase == "running" else job.phase


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_drf_drives_two_jobs_and_a_restart_finds_them(tmp_path):
    folder, log = tmp_path / "state", tmp_path / "serve.log"
    with no_job_left(folder):
        with serving(folder, log) as client:
            client.submit(regression(tmp_path, "a", 1000), ROOT)
            until(lambda: counts(client, "a") == (2, 2), "a has all that it can use")
            client.submit(regression(tmp_path, "b", 20), ROOT)
            until(lambda: counts(client, "a") == (1, 1), "a made room")
            until(lambda: counts(client, "b") == (1, 1), "b runs beside it")
        with serving(folder, log) as client:
            assert counts(client, "a") == (1, 1)
            assert [job.name for job in client.jobs()] == ["a", "b"]
            until(lambda: counts(client, "b") == "finished", "b's end")
            until(lambda: counts(client, "a") == (2, 2), "a takes the room that b has left")
            client.stop("a")
            until(lambda: counts(client, "a") == "stopped", "a's end")
            decisions, b = client.why("a", 1000), client.status("b")
        assert b.epochs_done == 20
        assert {(decision.workers, decision.servers) for decision in decisions} == {(2, 2), (1, 1)}
        assert sum(decision.happened.epochs for decision in decisions) > 1
        proof = audit(read_archive(folder / "elastic_ps/jobs/b").ledger, SAMPLES, BATCH, 20)
        assert proof.exactly_once, proof.problems
        assert improvement(weights_in(tmp_path / "b")) > 3
    launchers = [json.loads(path.read_text()) for path in folder.glob("elastic_ps/jobs/*/job.json")]
    assert sorted(launcher["name"] for launcher in launchers) == ["a", "b"]  # neither was started twice
    assert all(launcher["status"] == 0 for launcher in launchers)


@pytest.mark.mxnet
@pytest.mark.timeout(240)
def test_a_suspended_job_goes_on_from_its_checkpoint(tmp_path):
    clock = SystemClock()
    tasks = TaskFiles(tmp_path / "tasks", NoIsolation(), 2.0, 2.0)
    runtime, records = ElasticrunRuntime(tmp_path, clock.wake, tasks), JobRecords(tmp_path / "jobs.sqlite", clock.now())
    cluster = LocalCluster(virtual_nodes("1x2"), 0.5, records, runtime, clock)

    def slot(granted):
        cluster.snapshot()
        cluster.apply(Allocation({"a": Grant(granted, granted)}))
        cluster.finish_slot()
        return cluster.desk.jobs()[0]

    with no_job_left(tmp_path):
        cluster.desk.submit(document("a", 30, "examples/digits.py"), ROOT)
        ran = until(lambda: (job := slot(1)).epochs_done > 1 and job, "training")
        assert (ran.phase, ran.workers, ran.servers) == (LiveJobPhase.RUNNING, 1, 1)
        suspended = until(lambda: (job := slot(0)).phase is LiveJobPhase.WAITING and job, "suspension")
        assert (suspended.workers, suspended.log) == (0, ran.log)
        job = until(lambda: (job := slot(1)).phase is LiveJobPhase.FINISHED and job, "the end")
        records.close()
    epochs = [line for line in job.log.read_text().splitlines() if "] epoch " in line]
    assert job.log != ran.log
    assert int(epochs[0].split("epoch ")[1].split(":")[0]) >= int(ran.epochs_done)
    assert "] epoch 29" in epochs[-1]
    assert os.listdir(tmp_path / "checkpoints") == ["a-1"]


def groups(isolation):
    """Of tasks, where they have some: the folders that `dl2 top` names."""
    found = re.search(r"(/sys/fs/cgroup/\S+dl2-\w+)", isolation)
    return sorted(path.name for path in Path(found[1]).iterdir() if path.is_dir()) if found else []


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_held_job_is_scaled_by_hand_and_outlives_a_killed_dl2_serve(tmp_path):
    folder, log = tmp_path / "state", tmp_path / "serve.log"
    with no_job_left(folder):
        with serving(folder, log, "--isolation", "auto") as client:
            client.submit(regression(tmp_path, "a", 100_000, pace=0), ROOT)
            until(lambda: counts(client, "a") == (2, 2), "a has all that it can use", 200)
            client.hold("a")
            assert client.scale("a", 1, 1) == (1, 1)
            until(lambda: counts(client, "a") == (1, 1), "a is as its owner wants")
            held = until(lambda: len((top := client.top()).tasks) == 2 and top, "two tasks are left")
            client.process.kill()
            client.process.wait(60)
        with serving(folder, log, "--isolation", "auto") as client:
            now = client.status("a")
            assert (now.held, now.workers, now.servers, now.phase) == (True, 1, 1, "running")
            found = client.top()
            assert found.isolation == held.isolation
            assert [task.task for task in found.tasks] == [task.task for task in held.tasks]
            worker = next(task for task in found.tasks if task.task.startswith("w"))
            share = len(os.sched_getaffinity(0)) / 4
            assert worker.limit_cores == pytest.approx(share, rel=0.01)
            assert worker.cores < share * 1.2
            until(lambda: len(groups(found.isolation)) in (0, 2), "only tasks that run have groups")
            client.stop("a")
            until(lambda: counts(client, "a") == "stopped", "a's end")
            until(lambda: groups(client.top().isolation) == [], "no group is left")
