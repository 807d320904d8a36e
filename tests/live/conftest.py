"""A local cluster whose jobs and time are played."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from played_cluster import PlayedClock, PlayedRuntime

from dl2_scheduler.backends.local.cluster import LocalCluster
from dl2_scheduler.backends.local.nodes import virtual_nodes
from dl2_scheduler.backends.local.records import Records


@pytest.fixture
def clock() -> PlayedClock:
    return PlayedClock()


@pytest.fixture
def runtime(clock: PlayedClock) -> PlayedRuntime:
    return PlayedRuntime(clock)


@pytest.fixture
def serve(tmp_path: Path, clock: PlayedClock, runtime: PlayedRuntime) -> Iterator[Callable[..., LocalCluster]]:
    """Makes a cluster in the same folder each time: the second finds what the first has left."""
    with ExitStack() as stack:

        def make(slots: str = "2x8", slot: float = 20.0) -> LocalCluster:
            records = stack.enter_context(closing(Records(tmp_path / "jobs.sqlite", clock.now())))
            return LocalCluster(virtual_nodes(slots), slot, records, runtime, clock)

        yield make
