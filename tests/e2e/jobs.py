"""Real jobs for tests: elasticrun as a subprocess, watched and operated through its coordinator."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

from coordinator.client import CALL_SECONDS, ClientError, CoordinatorClient
from elastic_ps.control.token import read_token
from tests.paths import ROOT

SCRIPTS = Path(__file__).parent / "scripts"
POLL_SECONDS = 0.05
SEED = 7
"""Of the order of the data in each of these jobs."""


class Job:
    """One running job; `call_seconds`: deadline of what its coordinator is asked."""

    def __init__(self, process, folder, log, call_seconds=CALL_SECONDS):
        self.process = process
        self.folder = folder
        self.log = log
        self.call_seconds = call_seconds
        self.client = None

    def until(self, ready, what, timeout=60.0):
        """Look until `ready(status)`; a job that ends meanwhile or a timeout is a failure with the log's end."""
        deadline = time.monotonic() + timeout
        while True:
            status = self.status()
            if status is not None and ready(status):
                return status
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"{what}: did not happen\n{status}\n{self.tail()}")
            time.sleep(POLL_SECONDS)

    def status(self):
        try:
            if self.client is None:
                described = json.loads((self.folder / "job.json").read_text())
                self.client = CoordinatorClient(
                    described["coordinator"], read_token(self.folder / "token"), self.call_seconds
                )
            return self.client.status()
        except (OSError, ValueError, KeyError, ClientError):
            return None

    def running(self, workers, servers):
        """Wait until a configuration of these numbers trains."""
        return self.until(
            lambda status: (
                status.phase == "running"
                and not status.plan.id
                and (counts(status) == (workers, servers))
                and status.version > 0
            ),
            f"{workers} workers and {servers} servers",
        )

    def scale(self, workers=None, servers=None, **options):
        """Scale and wait until the plan is committed; returns its record."""
        before = self.client.status().version
        self.client.scale(workers, servers, **options)
        status = self.client.status()
        self.running(workers or status.wanted_workers, servers or status.wanted_servers)
        self.until(lambda status: status.version > before, "steps after the plan")
        return self.client.plans()[-1]

    def pid(self, node):
        return next(found.pid for found in self.client.status().nodes if found.member.id == node)

    def kill(self, node):
        os.kill(self.pid(node), signal.SIGKILL)

    def wait(self, timeout=60.0):
        """The exit status of the job."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the job does not end\n{self.tail()}") from None

    def tail(self):
        return self.log.read_text()[-6000:]


def member_ids(status, role):
    """Of the configuration in force; role: 1 workers, 2 servers."""
    return [node.member.id for node in status.nodes if node.state == "member" and node.member.role == role]


def counts(status):
    return len(member_ids(status, 1)), len(member_ids(status, 2))


@contextmanager
def run(
    tmp_path,
    script,
    *arguments,
    name="job",
    workers=1,
    servers=1,
    options=(),
    wrap=(),
    **watched,
):
    """A job under elasticrun; ended when the block ends.

    Args:
        tmp_path: folder of all that it leaves.
        script: that its workers run.
        arguments: of the script.
        name: of the job.
        workers: at the start.
        servers: at the start; 0: none, as an option says.
        options: further ones of elasticrun.
        wrap: command that elasticrun's own follows.
        watched: further arguments of `Job`.
    """
    elasticrun = [*wrap, sys.executable, "-c", "from elastic_ps.launch.cli import main; main()"]
    asked = [
        "--workers",
        str(workers),
        *(["--servers", str(servers)] if servers else []),
        "--name",
        name,
        "--seed",
        str(SEED),
        *options,
    ]
    command = [*elasticrun, *asked, str(script), *map(str, arguments)]
    log = tmp_path / f"{name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=_environment(tmp_path))
    job = Job(process, tmp_path / "state" / "elastic_ps" / "jobs" / name, log, **watched)
    try:
        yield job
    finally:
        _end(process)
        if job.client is not None:
            job.client.close()


def _environment(tmp_path):
    return {
        **os.environ,
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONFAULTHANDLER": "1",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }


def _end(process):
    """End a process, by force where it does not go by itself."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def described(job):
    """The job's own description of itself."""
    return json.loads((job.folder / "job.json").read_text())
