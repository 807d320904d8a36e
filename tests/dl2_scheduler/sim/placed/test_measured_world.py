"""The world that plays measured placements."""

import numpy as np

from dl2_scheduler.cluster.hardware.machines import Floats
from dl2_scheduler.cluster.hardware.measured import MeasuredJob, MeasuredPlacement
from dl2_scheduler.cluster.hardware.measured_table import MeasuredTable, arrays_of
from dl2_scheduler.cluster.hardware.placements import PlacementArrays
from dl2_scheduler.cluster.hardware.profiles import PUBLISHED
from dl2_scheduler.sim.placed.measured.world import MeasuredWorld

MODELS = ("ctc", "wlm")


class Constant:
    """It says 1.0 of every job."""

    def rates(self, placements: PlacementArrays) -> Floats:
        return np.ones(len(placements.model))


def row(*jobs: tuple[str, tuple[int, ...], tuple[int, ...], tuple[float, ...]]) -> MeasuredPlacement:
    return MeasuredPlacement(tuple(MeasuredJob(*job) for job in jobs))


TABLE = MeasuredTable(
    (
        row(("ctc", (0,), (1,), (5.0, 7.0, 6.0)), ("wlm", (1,), (1,), (20.0, 21.0, 22.0))),
        row(("ctc", (0,), (0,), (9.0,))),
    ),
    {model: PUBLISHED[model] for model in MODELS},
    2,
)
WORLD = MeasuredWorld(TABLE, Constant())


def test_measured_placements_have_their_medians_whatever_the_numbers_of_nodes():
    mirrored = row(("wlm", (0,), (0,), (1.0,)), ("ctc", (1,), (0,), (1.0,)))
    assert WORLD.rates(arrays_of(mirrored, MODELS)).tolist() == [21.0, 6.0]


def test_others_have_what_the_fit_says():
    assert WORLD.rates(arrays_of(row(("wlm", (0,), (1,), (1.0,))), MODELS)).tolist() == [1.0]


def test_jobs_without_tasks_have_no_speed_and_disturb_nobody():
    none = np.zeros(0, dtype=np.int64)
    where = PlacementArrays(np.array([0, 1]), none, none, none, np.arange(2))
    placed = arrays_of(row(("ctc", (1,), (1,), (1.0,))), MODELS)
    both = PlacementArrays(np.array([1, 0]), placed.job + 1, placed.role, placed.group, np.arange(2))
    assert WORLD.rates(both).tolist() == [0.0, 9.0]
    assert len(WORLD.rates(where)) == 2
