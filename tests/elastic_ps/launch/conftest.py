"""Fixtures: a job of puppets (launch_stage.py)."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from elastic_ps.launch.options import JobOptions, JobSettings, NodesOptions, Script
from tests.elastic_ps.launch.launch_stage import PATIENCE, FakeCoordinator, Job, Stage


@pytest.fixture
def stage() -> Iterator[Stage]:
    stage = Stage()
    yield stage
    stage.close()


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeCoordinator]:
    fake = FakeCoordinator(tmp_path)
    yield fake
    fake.close()


@pytest.fixture
def start_job(tmp_path: Path, stage: Stage, fake: FakeCoordinator) -> Iterator[Callable[..., Job]]:
    """Starts a launcher; takes fields of JobOptions, `grace` and `join_timeout`."""
    jobs: list[Job] = []

    def start(grace: float = PATIENCE, join_timeout: float = PATIENCE, **fields: Any) -> Job:
        nodes = NodesOptions(grace=grace, join_timeout=join_timeout)
        settings = JobSettings(Script("train.py"), JobOptions(name="toy", **fields), nodes)
        jobs.append(Job(tmp_path, stage, fake, settings))
        return jobs[-1]

    yield start
    for job in jobs:
        job.close()
