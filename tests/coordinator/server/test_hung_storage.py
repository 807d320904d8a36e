"""A storage that hangs keeps a coordinator neither from its other work nor from its end."""

import asyncio
import threading

import pytest

from coordinator.core import effects as ef
from coordinator.core.checkpoints.manifest import CheckpointSearch
from coordinator.core.job import DurableJob
from coordinator.core.plans.scale_goal import ScaleGoal
from coordinator.core.state import CoordinatorSettings, State
from coordinator.server import checkpoint_choice, checkpoint_storage
from coordinator.server.journal import Journal
from coordinator.server.runtime import Runtime
from elastic_ps.core.errors import CheckpointError
from tests.coordinator.played_job import IDENTITY

TIMEOUT = 20.0
HANGING = 40
"""More than a pool of threads would have."""


@pytest.fixture
def released():
    event = threading.Event()
    yield event
    event.set()


def test_what_hangs_holds_up_neither_other_work_nor_the_end(tmp_path, monkeypatch, released):
    begun, found = threading.Semaphore(0), threading.Event()

    def hangs(_url):
        begun.release()
        released.wait()

    def finds(_search, _patient):
        found.set()
        raise CheckpointError("none")

    monkeypatch.setattr(checkpoint_storage, "discard", hangs)
    monkeypatch.setattr(checkpoint_choice, "find", finds)

    async def lives() -> None:
        journal = Journal(tmp_path / "journal.sqlite")
        runtime = Runtime(State(CoordinatorSettings(), DurableJob(ScaleGoal(1, 1), IDENTITY)), journal)
        runtime.start()
        for _ in range(HANGING):
            runtime._discard_checkpoint(ef.DiscardCheckpoint("nowhere"))
        runtime._find_checkpoint(ef.FindCheckpoint(CheckpointSearch(IDENTITY)))
        await runtime.close()
        journal.close()

    life = threading.Thread(target=lambda: asyncio.run(lives()), daemon=True)
    life.start()
    for _ in range(HANGING):
        assert begun.acquire(timeout=TIMEOUT), "it waits for another's thread"
    assert found.wait(TIMEOUT)
    life.join(TIMEOUT)
    assert not life.is_alive(), "the end waits for a storage"
