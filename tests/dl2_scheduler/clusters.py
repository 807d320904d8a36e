"""Small clusters for tests: jobs, nodes, speeds, and drawn snapshots of them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from dl2_scheduler.cluster.free_resources import FreeResources, NodeRule
from dl2_scheduler.cluster.jobs import Job, Node
from dl2_scheduler.cluster.snapshot import Allocation, JobState, Snapshot, SpeedReport
from dl2_scheduler.cluster.speeds import Grid, Speeds

MOST = 8


def grid(speed: Mapping[tuple[int, int], float] | None = None, most: int = MOST) -> Grid:
    """Samples a second by (servers, workers): the smaller count, but for what is named."""
    values = np.minimum.outer(np.arange(most + 1), np.arange(most + 1)).astype(float)
    for at, value in (speed or {}).items():
        values[at] = value
    return values


def _bumpy() -> Grid:
    """Not monotone, and some of its points do not run."""
    values = np.random.default_rng(5).uniform(-0.5, 6.0, (MOST + 1, MOST + 1))
    values[0], values[:, 0], values[1, 1] = 0.0, 0.0, 1.0
    return values


def _flat() -> Grid:
    values = np.zeros((MOST + 1, MOST + 1))
    values[1:, 1:] = 2.0
    return values


SPEEDS = Speeds({"even": grid(), "bumpy": _bumpy(), "flat": _flat()})


MIXED = Speeds(
    {model: values + np.outer(np.arange(MOST + 1) == 0, np.arange(MOST + 1)) for model, values in SPEEDS.grids.items()}
)
"""Those of `SPEEDS`, and a sample a second for each worker of a job without servers."""


def job(number: int | str = 1, **fields: Any) -> Job:
    """One worker and one server take a cpu each; an epoch of an `even` job with one of each takes a second."""
    usual: dict[str, Any] = {
        "arrival": 0.0,
        "model": "even",
        "epochs": 100.0,
        "samples_per_epoch": 1.0,
        "worker": {"cpu": 1},
        "server": {"cpu": 1},
        "max_workers": 4,
        "max_servers": 4,
    }
    return Job(id=number, **{**usual, **fields})


def serverless(number: int | str = 1, **fields: Any) -> Job:
    """A job whose workers all-reduce; its speeds are row 0 of `MIXED`."""
    return job(number, **fields).without_servers()


def nodes(*capacities: Mapping[str, float]) -> tuple[Node, ...]:
    return tuple(Node(f"n{number}", capacity) for number, capacity in enumerate(capacities))


def snapshot(
    jobs: Iterable[Job | JobState], machines: Sequence[Node], reports: tuple[SpeedReport, ...] = ()
) -> Snapshot:
    states = tuple(each if isinstance(each, JobState) else JobState(each) for each in jobs)
    return Snapshot(0, 100.0, tuple(machines), states, reports)


def given(policy: Any, now: Snapshot, rule: NodeRule = NodeRule.SPREAD) -> dict[int | str, tuple[int, int]]:
    """(workers, servers) of each job, as the policy decides."""
    return counts(policy.allocate(now, FreeResources(now, rule)))


def counts(allocation: Allocation) -> dict[int | str, tuple[int, int]]:
    return {name: (grant.workers, grant.servers) for name, grant in allocation.grants.items()}


_RESOURCES = ("cpu", "gpu", "memory")
_AMOUNT = st.sampled_from([0, 0.1, 0.5, 1, 1, 2, 3, 4])
_DEMANDS = st.dictionaries(st.sampled_from(_RESOURCES), _AMOUNT, min_size=1).filter(lambda each: any(each.values()))
_CAPACITIES = st.dictionaries(st.sampled_from(_RESOURCES), st.sampled_from([0, 1, 2, 3.3, 8, 16]), min_size=1)
NODES = st.lists(_CAPACITIES, min_size=1, max_size=5).map(lambda each: nodes(*each))


@st.composite
def job_states(draw: st.DrawFn, number: int, gangs: bool = False, mixed: bool = False) -> JobState:
    most = draw(st.integers(1, MOST)), draw(st.integers(1, MOST))
    submitted = job(
        number,
        model=draw(st.sampled_from(SPEEDS.models)),
        epochs=draw(st.floats(0.5, 500)),
        epochs_estimate=draw(st.none() | st.floats(0.5, 500)),
        samples_per_epoch=draw(st.floats(0.5, 50)),
        worker=draw(_DEMANDS),
        server=draw(_DEMANDS),
        max_workers=most[0],
        max_servers=most[1],
        min_workers=draw(st.integers(1, most[0])) if gangs else 1,
        min_servers=draw(st.integers(1, most[1])) if gangs else 1,
    )
    if mixed and draw(st.booleans()):
        submitted, most = submitted.without_servers(), (most[0], 0)
    before = draw(st.sampled_from([(0, 0), (submitted.min_workers, submitted.min_servers), most]))
    return JobState(submitted, draw(st.floats(0, submitted.epochs * 0.99)), draw(st.integers(0, 50)), *before)


@st.composite
def snapshots(
    draw: st.DrawFn, machines: tuple[Node, ...] | None = None, gangs: bool = False, mixed: bool = False
) -> Snapshot:
    """Of up to 6 jobs, some of which may fit no node, and nodes that differ, unless they are given.

    `gangs`: jobs may need more than one task of a role to run. `mixed`: some have no servers.
    """
    count = draw(st.integers(0, 6))
    states = [draw(job_states(number, gangs, mixed)) for number in range(count)]
    reports = tuple(
        SpeedReport(
            state.job.id, state.job.model, state.servers, state.workers, draw(st.just(0.0) | st.floats(0.001, 1e4))
        )
        for state in states
        if state.workers
    )
    return snapshot(states, machines or draw(NODES), reports)
