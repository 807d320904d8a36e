"""A run in numbers, by hand, and the intervals of several."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.free_resources import FreeResources, NodeRule
from dl2_scheduler.cluster.snapshot import Allocation, Grant, Snapshot
from dl2_scheduler.sim.metrics import Summary, differences, estimate, jain, over_sequences, summarise
from dl2_scheduler.sim.record import Record, record
from dl2_scheduler.sim.simulator import SimulatedCluster
from tests.dl2_scheduler.clusters import SPEEDS, job, nodes

SLOT = 100.0
MACHINES = nodes({"cpu": 6, "gpu": 4}, {"cpu": 4})


@dataclass(frozen=True)
class Script:
    """Gives in each slot what is written."""

    slots: list[dict[int, tuple[int, int]]]

    def allocate(self, snapshot: Snapshot, room: FreeResources) -> Allocation:
        return Allocation({number: Grant(*counts) for number, counts in self.slots[snapshot.slot].items()})


def played() -> Record:
    """Job 1 comes at 0.5 and needs 300 epochs: from slot 1 on (1, 1), (1, 1), nothing, (2, 2) for half a slot. Job 2
    comes at 0 and needs 400: waits, then (2, 2) for two slots.
    """
    jobs = [
        job(1, arrival=50.0, epochs=300.0, worker={"cpu": 1, "gpu": 1}),
        job(2, epochs=400.0, worker={"cpu": 2}, server={"cpu": 0.5}),
    ]
    script = Script([{}, {1: (1, 1)}, {1: (1, 1), 2: (2, 2)}, {2: (2, 2)}, {1: (2, 2)}])
    return record(SimulatedCluster(jobs, MACHINES, SPEEDS, SLOT), script, NodeRule.SPREAD)


def test_a_record() -> None:
    run = played()
    assert [each.id for each in run.jobs] == [2, 1]
    assert run.arrival.tolist() == [0.0, 0.5]
    assert run.finish.tolist() == [4.0, 4.5]
    assert run.workers.tolist() == [[0, 0], [0, 1], [2, 1], [2, 0], [0, 2]]
    assert run.servers.tolist() == run.workers.tolist()


def test_a_summary_by_hand() -> None:
    summary = summarise(played(), SPEEDS)
    assert summary.jobs == 2
    assert (summary.jct_slots.mean, summary.jct_slots.median) == (4.0, 4.0)
    assert summary.jct_slots.p95 == pytest.approx(4.0)
    assert summary.jct_seconds.mean == 400.0
    assert (summary.makespan_slots, summary.makespan_seconds) == (4.5, 450.0)


def test_utilisation_is_of_the_makespan() -> None:
    """Cpu: 2 + (2 + 5) + 5 + half of 4, of 10 for 4.5 slots; gpu: 1 + 1 + half of 2, of 4."""
    summary = summarise(played(), SPEEDS)
    assert summary.utilisation == pytest.approx({"cpu": 16 / 45, "gpu": 3 / 18})


def test_fairness_is_of_times_beside_those_alone() -> None:
    """Alone, job 2 has (4, 4), which take the whole cpu: 1 slot, against 4. Job 1 waits half a slot and has (4, 4) too:
    0.75 slots more, against 4."""
    slowed = np.array([4.0, 4.0 / 1.25])
    assert summarise(played(), SPEEDS).fairness == pytest.approx(slowed.sum() ** 2 / (2 * (slowed**2).sum()))


def test_scalings_are_suspensions_and_changes_but_no_first_start() -> None:
    """Job 1: suspended, and started anew. Slots in the cluster: 4 of job 1, 4 of job 2."""
    assert summarise(played(), SPEEDS).scalings == pytest.approx(2 / 8)


def test_one_role_that_changes_is_a_scaling() -> None:
    script = Script([{1: (1, 1)}, {1: (1, 2)}, {1: (1, 2)}, {1: (2, 2)}])
    run = record(SimulatedCluster([job(epochs=400.0)], MACHINES, SPEEDS, SLOT), script, NodeRule.SPREAD)
    assert summarise(run, SPEEDS).scalings == pytest.approx(2 / 4)


def test_no_jobs() -> None:
    nothing = np.zeros(0)
    with pytest.raises(BadInput, match="no jobs"):
        summarise(Record((), MACHINES, SLOT, nothing, nothing, np.zeros((0, 0), int), np.zeros((0, 0), int)), SPEEDS)


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=10), st.floats(0.1, 10))
def test_jain(values: list[float], scale: float) -> None:
    ours = jain(np.array(values))
    assert 1 / len(values) - 1e-9 <= ours <= 1 + 1e-9
    assert jain(scale * np.array(values)) == pytest.approx(ours)
    assert jain(np.full(len(values), scale)) == pytest.approx(1.0)


def test_an_interval_is_students() -> None:
    """Deviation 1 of 3 values: 4.3027 / sqrt(3)."""
    assert estimate([1.0, 2.0, 3.0]).mean == 2.0
    assert estimate([1.0, 2.0, 3.0]).margin == pytest.approx(2.4841, abs=1e-4)
    assert estimate([5.0] * 4).margin == 0.0


def test_one_sequence_has_no_interval() -> None:
    assert estimate([7.0]).margin is None


def with_mean(mean: float) -> Summary:
    base = summarise(played(), SPEEDS)
    return replace(base, jct_slots=replace(base.jct_slots, mean=mean))


def test_over_sequences() -> None:
    numbers = over_sequences([with_mean(10.0), with_mean(20.0)])
    assert numbers["jct_slots.mean"].mean == 15.0
    assert numbers["utilisation.gpu"].mean == pytest.approx(3 / 18)
    assert set(numbers) == set(with_mean(1.0).values())


def test_differences_are_paired() -> None:
    """Sequences differ by far, the policies by 1 in each: the difference is sure, the means are not."""
    ours, baseline = [with_mean(9.0), with_mean(99.0)], [with_mean(10.0), with_mean(100.0)]
    difference = differences(ours, baseline)["jct_slots.mean"]
    assert (difference.mean, difference.margin) == (-1.0, 0.0)
    assert (over_sequences(ours)["jct_slots.mean"].margin or 0) > 100


def test_differences_want_pairs() -> None:
    with pytest.raises(ValueError, match="zip"):
        differences([with_mean(1.0)], [with_mean(1.0), with_mean(2.0)])
