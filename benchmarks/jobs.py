"""A real job for a benchmark: elasticrun as a subprocess, operated through its coordinator."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

from coordinator.archive import Archive, read_archive
from coordinator.client import ClientError, CoordinatorClient
from elastic_ps.core.token import read_token
from protos import elastic_pb2 as pb

_POLL_SECONDS = 0.05


class BenchmarkError(Exception):
    """The job did not do what the benchmark needs."""


class Job:
    """One job under elasticrun. A context manager: the job ends with the block.

    Args:
        folder: for its state and log.
        name: of the job.
        module: that workers run, with its arguments.
        workers: at the start.
        servers: at the start.
        options: further ones of elasticrun.
    """

    def __init__(
        self, folder: Path, name: str, module: list[str], workers: int, servers: int, options: tuple[str, ...] = ()
    ):
        self.folder = folder.resolve() / "elastic_ps" / "jobs" / name
        self._log = folder / f"{name}.log"
        folder.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "XDG_STATE_HOME": str(folder.resolve())}
        command = [sys.executable, "-m", "elastic_ps.launch", "--workers", str(workers), "--servers", str(servers)]
        with self._log.open("wb") as output:
            self.process = subprocess.Popen(
                [*command, "--name", name, *options, "-m", *module],
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
            )
        self._client: CoordinatorClient | None = None

    def __enter__(self) -> "Job":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> Archive | None:
        """End the job; returns what its folder tells, or None where it had not begun."""
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(60)
        if self._client is not None:
            self._client.close()
            self._client = None
        return read_archive(self.folder) if (self.folder / "journal.sqlite").exists() else None

    @property
    def client(self) -> CoordinatorClient:
        """Of the job's coordinator."""
        if self._client is None:
            described = json.loads((self.folder / "job.json").read_text())
            self._client = CoordinatorClient(described["coordinator"], read_token(self.folder / "token"))
        return self._client

    def version(self) -> int:
        """Of the job now; 0 before it has begun."""
        try:
            return int(self.client.status().version)
        except (OSError, ValueError, KeyError, ClientError):
            return 0

    def until(self, version: int, seconds: float = 600.0) -> None:
        """Wait until the job has reached a version."""
        deadline = time.monotonic() + seconds
        while self.version() < version:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise BenchmarkError(f"version {version} was not reached: see {self._log}")
            time.sleep(_POLL_SECONDS)

    def scale(
        self,
        servers: int | None = None,
        mode: "pb.MigrationMode" = pb.LIVE,
        workers: int | None = None,
        seconds: float = 600.0,
    ) -> pb.Plan:
        """Change the number of servers, workers, or both; returns the committed plan."""
        known = {plan.id for plan in self.client.plans()}
        self.client.scale(workers, servers, mode=mode, cause="benchmark")
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for plan in self.client.plans():
                if plan.id not in known and plan.phase in ("COMMITTED", "CANCELLED"):
                    if plan.phase == "CANCELLED":
                        raise BenchmarkError(f"plan {plan.id} was cancelled: {plan.reason}; see {self._log}")
                    return plan
            time.sleep(_POLL_SECONDS)
        raise BenchmarkError(f"{workers} workers and {servers} servers were not reached: see {self._log}")
