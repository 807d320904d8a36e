"""A story is one job of the demo: it is started by elasticrun, operated by elasticctl, and watched while it lives."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console

from coordinator.client import ClientError, CoordinatorClient
from coordinator.ctl.job_folders import JobNotFound, find_job
from elastic_ps.control.token import read_token
from elastic_ps.core.errors import ConfigurationError
from protos import elastic_pb2 as pb

BIN = Path(sys.executable).parent
WATCH_SECONDS = 1.0
PATIENCE_SECONDS = 60.0


class StoryError(Exception):
    """The demo could not be played."""


class Story:
    """See the module. Use as a context manager: the job is ended with the block.

    Args:
        name: of the job.
        folder: for its state and results.
        launch: arguments of elasticrun but for the job's name: options, the script and its own arguments.
        console: where it is told.
    """

    def __init__(self, name: str, folder: Path, launch: Sequence[str], console: Console):
        self.name = name
        self.status_code: int | None = None
        self._console = console
        self._state = (folder / "state").resolve()
        self._environment = {**os.environ, "XDG_STATE_HOME": str(self._state)}
        self._log = folder / f"{name}.log"
        self._command = [str(BIN / "elasticrun"), "--name", name, *launch]
        self._client: CoordinatorClient | None = None
        self._over = threading.Event()

    def __enter__(self) -> "Story":
        self._console.print(f"$ {' '.join(['elasticrun', *self._command[1:]])}")
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                self._command, stdout=output, stderr=subprocess.STDOUT, env=self._environment
            )
        self._watcher = threading.Thread(target=self._watch, name=f"watch-{self.name}", daemon=True)
        self._watcher.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait()
        self._over.set()
        self._watcher.join()
        if self._client is not None:
            self._client.close()

    @property
    def folder(self) -> Path:
        """The job's folder."""
        return self._state / "elastic_ps" / "jobs" / self.name

    def trains(self, workers: int, servers: int, steps: int) -> None:
        """Wait until the job has made some steps with these numbers of nodes.

        Args:
            workers: of the job.
            servers: of the job.
            steps: that it makes with them.
        """
        deadline, first = time.monotonic() + PATIENCE_SECONDS, None
        while time.monotonic() < deadline and self._process.poll() is None:
            status = self._status()
            if status is not None and self._members(status) == (workers, servers):
                first = status.version if first is None else first
                if status.version >= first + steps:
                    return
            time.sleep(WATCH_SECONDS / 4)
        raise StoryError(f"{self.name} did not train with {workers} workers; its output is in {self._log}")

    def command(self, *arguments: str) -> None:
        """Run elasticctl as an operator would, and show what it says."""
        self._console.print(f"[bold]$ elasticctl {' '.join(arguments)}[/bold]")
        done = subprocess.run(
            [str(BIN / "elasticctl"), *arguments], env=self._environment, text=True, capture_output=True, check=False
        )
        self._console.print((done.stdout + done.stderr).rstrip(), markup=False)
        if done.returncode:
            raise StoryError(f"elasticctl {arguments[0]} ended with status {done.returncode}")

    def youngest(self, role: "pb.Role") -> str:
        """Return the name of a node of a role that an operator may choose to drain."""
        status = self._status()
        assert status is not None, "the job runs"
        return [node.member.id for node in status.nodes if node.member.role == role and node.state == "member"][-1]

    def until_end(self) -> None:
        """Wait for the job's end."""
        self.status_code = self._process.wait()
        if self.status_code:
            raise StoryError(f"{self.name} ended with status {self.status_code}; its output is in {self._log}")

    def stop(self) -> None:
        """End the job as an operator would, and wait until it is gone."""
        self.command("stop", self.name)
        self._process.wait()

    def _watch(self) -> None:
        """Tell the progress."""
        while not self._over.wait(WATCH_SECONDS):
            status = self._status()
            if status is not None:
                self._console.print(self._line(status), markup=False)

    def _status(self) -> pb.StatusReply | None:
        try:
            if self._client is None:
                job = find_job(self.folder.parent, self.name)
                self._client = CoordinatorClient(job.coordinator, read_token(job.token_file))
            return self._client.status()
        except (JobNotFound, ConfigurationError, ClientError):
            return None  # not there yet, or no longer: the caller looks again

    @staticmethod
    def _members(status: pb.StatusReply) -> tuple[int, int]:
        roles = [node.member.role for node in status.nodes if node.state == "member"]
        return roles.count(pb.WORKER), roles.count(pb.SERVER)

    def _line(self, status: pb.StatusReply) -> str:
        workers, servers = self._members(status)
        losses: list[Any] = [node.metrics["loss"] for node in status.nodes if "loss" in node.metrics]
        loss = f"{sum(losses) / len(losses):.4f}" if losses else "-"
        plan = f"  plan {status.plan.id} {status.plan.phase}" if status.HasField("plan") else ""
        return (
            f"step {status.version:5} epoch {status.epoch:3} loss {loss:>7} {status.rate:7.0f} samples/s "
            f"{workers} workers {servers} servers{plan}"
        )
