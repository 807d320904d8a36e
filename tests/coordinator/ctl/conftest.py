"""The scripted coordinator on loopback gRPC, and the state folder that names its job."""

import json
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from typer.testing import CliRunner, Result

from coordinator.ctl import cli
from protos import elastic_pb2_grpc as rpc
from tests.coordinator.ctl.ctl_fake import TOKEN, FakeCoordinator


@pytest.fixture
def fake() -> Iterator[FakeCoordinator]:
    servicer = FakeCoordinator()
    server = grpc.server(ThreadPoolExecutor(4, thread_name_prefix="fake-coordinator"))
    rpc.add_CoordinatorServicer_to_server(servicer, server)
    servicer.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    yield servicer
    server.stop(None).wait()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of jobs, empty."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    path = tmp_path / "elastic_ps" / "jobs"
    path.mkdir(parents=True)
    return path


AddJob = Callable[..., Path]


@pytest.fixture
def add_job(folder: Path, fake: FakeCoordinator) -> AddJob:
    def add(name: str, **fields: Any) -> Path:
        job = folder / name
        job.mkdir()
        value = {
            "name": name,
            "coordinator": fake.address,
            "pid": os.getpid(),
            "coordinator_pid": os.getpid(),
            "started": time.time(),
            "folder": str(job),
            **fields,
        }
        (job / "job.json").write_text(json.dumps(value))
        (job / "token").write_text(TOKEN.hex() + "\n")
        return job

    return add


@pytest.fixture
def ctl() -> Callable[..., Result]:
    def run(*arguments: str) -> Result:
        result = CliRunner().invoke(cli.app, arguments)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run


@pytest.fixture
def digits(add_job: AddJob) -> Path:
    """The folder of the job that the fake coordinator runs."""
    return add_job("digits")
