"""The coordinator's machine sleeps and comes back: its clock goes on meanwhile, asyncio's timers do not."""

import asyncio

import pytest

from coordinator.core import events as ev
from coordinator.core.job import DurableJob
from coordinator.core.plans.plan import Phase
from coordinator.core.plans.scale_goal import ScaleGoal
from coordinator.core.state import CoordinatorSettings, State
from coordinator.server import runtime as module
from coordinator.server.journal import Journal
from coordinator.server.runtime import Runtime
from elastic_ps.core.configuration import NO_CONFIGURATION, Role

HOUR = 3600.0


@pytest.fixture
def journal(tmp_path):
    journal = Journal(tmp_path / "journal.sqlite")
    yield journal
    journal.close()


def made(journal, **settings) -> Runtime:
    return Runtime(State(CoordinatorSettings(**settings), DurableJob(ScaleGoal(2, 1))), journal)


def slept(monkeypatch) -> list[float]:
    """The clock that goes on while the machine sleeps."""
    seconds = [100.0]
    monkeypatch.setattr(module, "steady", lambda: seconds[0])
    return seconds


def test_the_time_goes_on_while_the_machine_sleeps(journal, monkeypatch):
    async def lives() -> None:
        seconds = slept(monkeypatch)
        runtime = made(journal)
        before = runtime.now()
        seconds[0] += HOUR
        assert runtime.now() == pytest.approx(before + HOUR)

    asyncio.run(lives())


def test_the_time_to_join_in_is_not_over_for_who_is_heard_before_the_next_tick(journal, monkeypatch):
    """The job would want fewer workers from then on, as nobody could register meanwhile."""

    async def lives() -> None:
        seconds = slept(monkeypatch)
        runtime = made(journal, join_timeout=30.0, settle=0.0)
        runtime.start()
        for role, port in ((Role.WORKER, 0), (Role.SERVER, 1)):
            await runtime.ask(lambda to, role=role, port=port: ev.Joined(runtime.now(), to, role, "h", port, 1, "n"))
        seconds[0] += HOUR
        runtime.post(ev.Listening(runtime.now(), "w0", NO_CONFIGURATION, 0))
        assert runtime.state.job.plan.phase is Phase.REGISTERED
        assert runtime.state.job.goal.workers == 2
        await runtime.close()

    asyncio.run(lives())
