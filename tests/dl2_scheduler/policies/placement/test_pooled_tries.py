"""What many places of a job would make of all speeds is what the model says of each of them alone."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dl2_scheduler.cluster.hardware.placements import SERVER, WORKER, PlacementArrays, TriedSpeed
from dl2_scheduler.policies.learnt.pooled_network import F32, PooledInputs, PooledNetwork
from tests.dl2_scheduler.policies.placement.fitted import MODELS, drawn_model, drawn_speeds
from tests.sweeps import examples

SPEEDS = drawn_speeds()
GROUPS = 5


def drawn(seed: int, jobs: int) -> PlacementArrays:
    """Return jobs with up to three tasks of each role in random groups, of which some lack a role."""
    rng = np.random.default_rng(seed)
    rows = [
        (job, role, int(rng.integers(GROUPS)))
        for job in range(jobs)
        for role in (WORKER, SERVER)
        for _ in range(int(rng.integers(0 if job % 3 == 2 else 1, 4)))
    ]
    job, role, group = np.array(rows, dtype=np.int64).T
    return PlacementArrays(rng.integers(len(MODELS), size=jobs), job, role, group, np.arange(jobs))


@given(st.integers(0, 10**6), st.integers(1, 6), st.data())
@settings(max_examples=examples(60), deadline=None)
def test_each_try_is_rated_as_if_it_were_the_placement(seed: int, jobs: int, data: st.DataObject) -> None:
    placements = drawn(seed, jobs)
    job = data.draw(st.integers(0, jobs - 1))
    own = placements.job == job
    tries = np.random.default_rng(seed + 1).integers(GROUPS + 1, size=(4, int(own.sum())))
    tries[0] = placements.group[own]
    found = SPEEDS.tried(placements, job, tries)
    for row, groups in zip(found, tries, strict=True):
        there = placements.group.copy()
        there[own] = groups
        assert row == pytest.approx(SPEEDS.rates(replace(placements, group=there)), rel=1e-4)


def test_very_many_tries_are_rated_in_parts() -> None:
    placements = drawn(3, 4)
    tries = np.random.default_rng(0).integers(GROUPS, size=(300, int((placements.job == 1).sum())))
    whole = SPEEDS.tried(placements, 1, tries)
    assert whole.shape == (300, 4)
    assert whole[257] == pytest.approx(SPEEDS.tried(placements, 1, tries[257:258])[0])
    assert SPEEDS.tried(placements, 1, tries[:0]).shape == (0, 4)


def test_planners_ask_the_model_for_many_places_at_once_by_whatever_name() -> None:
    assert isinstance(SPEEDS, TriedSpeed)
    assert isinstance(drawn_model(), TriedSpeed)


@pytest.mark.parametrize("job", range(4))
def test_jobs_of_unknown_models_neither_train_nor_are_felt(job: int) -> None:
    placements = drawn(5, 4)
    placements.model[1] = -1
    own, model = placements.job == job, drawn_model()
    there = np.array([[1] * int(own.sum()), [0] * int(own.sum())])
    for row, groups in zip(model.tried(placements, job, there), there, strict=True):
        moved = placements.group.copy()
        moved[own] = groups
        assert row == pytest.approx(model.rates(replace(placements, group=moved)), rel=1e-4)
        assert row[1] == 0


def test_what_lies_before_is_read_once_for_all_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, tasks = [], PooledNetwork.tasks

    def counted(network: PooledNetwork, inputs: PooledInputs) -> F32:
        asked.append(inputs)
        return tasks(network, inputs)

    monkeypatch.setattr(PooledNetwork, "tasks", counted)
    placements, counts = drawn(3, 4), []
    for tries in (1, 300):  # more than are rated at once
        asked.clear()
        SPEEDS.tried(placements, 1, np.zeros((tries, int((placements.job == 1).sum())), dtype=np.int64))
        counts.append(len(asked))
    assert counts[0] == counts[1]
