"""A slot filled by a policy that sees a fixed number of jobs at once, against plain rules."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dl2_scheduler.cluster.free_resources import SLACK, FreeResources, NodeRule
from dl2_scheduler.cluster.snapshot import JobState, Snapshot
from dl2_scheduler.policies.learnt.actions import ACTIONS, BOTH, SERVER, WORKER
from dl2_scheduler.policies.learnt.paper.batched import Filling, row_width
from tests.dl2_scheduler.clusters import SPEEDS, job, nodes, snapshot, snapshots
from tests.sweeps import examples

MODELS = SPEEDS.models
PLACES = 3
PLACEMENTS = st.sampled_from([NodeRule.SPREAD, NodeRule.PACK, NodeRule.ROUND_ROBIN])


def fits(free: np.ndarray, demands: Sequence[np.ndarray]) -> bool:
    """Whether tasks fit at once, on any nodes."""
    if not demands:
        return True
    for node in range(len(free)):
        if (demands[0] <= free[node] + SLACK).all():
            left = free.copy()
            left[node] -= demands[0]
            if fits(left, demands[1:]):
                return True
    return False


def plain_mask(filling: Filling, room: FreeResources, low: int, dead: set[int]) -> list[bool]:
    """As the mask is meant to be."""
    mask = [False] * (PLACES * ACTIONS)
    for number in range(low, min(low + PLACES, len(room.snapshot.jobs))):
        most = room.snapshot.jobs[number].job.max_workers, room.snapshot.jobs[number].job.max_servers
        for action, roles in ((WORKER, [0]), (SERVER, [1]), (BOTH, [0, 1])):
            full = any(filling.slot.counts[number, role] >= most[role] for role in roles)
            tasks = [room.demands[role][number] for role in roles]
            mask[(number - low) * ACTIONS + action] = number not in dead and not full and fits(filling.slot.free, tasks)
    return [*mask, True]


def walk(filling: Filling, seed: int) -> list[tuple[int, int]]:
    """Random decisions until all is decided: (first job of the batch, action)."""
    random = np.random.default_rng(seed)
    taken = []
    while not filling.done:
        action = int(random.choice(np.flatnonzero(filling.mask)))
        taken.append((filling._low, action))
        filling.act(action)
    return taken


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(60))
@given(snapshots(), PLACEMENTS, st.integers(0, 99), st.booleans())
def test_what_may_be_given_is_what_there_is_room_for(now: Snapshot, rule: NodeRule, seed: int, minimum: bool) -> None:
    room, random = FreeResources(now, rule), np.random.default_rng(seed)
    filling = Filling(room, MODELS, PLACES, minimum)
    dead = {number for number in range(len(now.jobs)) if minimum and not filling.slot.counts[number].all()}
    while not filling.done:
        low = filling._low
        assert filling.mask.tolist() == plain_mask(filling, room, low, dead)
        before = filling.slot.counts.copy()
        action = int(random.choice(np.flatnonzero(filling.mask)))
        filling.act(action)
        gained = filling.slot.counts - before
        wanted = np.zeros_like(gained)
        if action < PLACES * ACTIONS:
            wanted[low + action // ACTIONS] = action % ACTIONS != SERVER, action % ACTIONS != WORKER
        assert (gained == wanted).all()
    assert (filling.slot.free >= -1e-6).all()
    taken = sum((filling.slot.counts[number, role] * room.demands[role][number]
                 for number in range(len(now.jobs)) for role in (0, 1)), np.zeros(room.capacity.shape[1]))  # fmt: skip
    assert np.allclose(room.capacity.sum(axis=0) - filling.slot.free.sum(axis=0), taken)
    most = [(state.job.max_workers, state.job.max_servers) for state in now.jobs]
    assert (filling.counts <= np.array(most).reshape(-1, 2)).all()
    assert ((filling.counts > 0).all(axis=1) | (filling.counts == 0).all(axis=1)).all(), "both roles or none"


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(20))
@given(snapshots(), st.integers(0, 99))
def test_the_same_again(now: Snapshot, seed: int) -> None:
    assert walk(Filling(FreeResources(now), MODELS, PLACES), seed) == walk(
        Filling(FreeResources(now), MODELS, PLACES), seed
    )


def test_a_row() -> None:
    state = JobState(job(model="flat", epochs=100.0, worker={"cpu": 1, "gpu": 4}, max_workers=9), 25.0, 3)
    filling = Filling(FreeResources(snapshot([state], nodes({"cpu": 20, "gpu": 40}))), MODELS, PLACES)
    filling.act(BOTH)
    filling.act(WORKER)
    wanted = [0, 0, 1, np.log(4) / 4, 0.75, 3 * 12 / 40, 3 / 16, 2 / 16]
    assert row_width(len(MODELS)) == len(wanted)
    assert filling.observation[0].tolist() == pytest.approx(wanted)
    assert not filling.observation[1:].any()


def test_a_type_that_the_policy_does_not_know() -> None:
    filling = Filling(FreeResources(snapshot([job(model="gpt")], nodes({"cpu": 20}))), MODELS, PLACES)
    assert not filling.observation[0, : len(MODELS)].any()


def test_more_jobs_than_places_go_in_batches() -> None:
    filling = Filling(FreeResources(snapshot([job(number) for number in range(8)], nodes({"cpu": 99}))), MODELS, PLACES)
    seen = []
    while not filling.done:
        seen.append(int(filling.observation.any(axis=1).sum()))
        filling.act(BOTH)
        filling.act(PLACES * ACTIONS)
    assert seen == [3, 3, 2]
    assert filling.counts[:, 0].tolist() == [2, 1, 1, 2, 1, 1, 2, 1]


def test_a_full_batch_is_not_asked() -> None:
    jobs = [job(number, max_workers=1 + number // 3, max_servers=1) for number in range(6)]
    filling = Filling(FreeResources(snapshot(jobs, nodes({"cpu": 99}))), MODELS, PLACES)
    assert filling.mask.nonzero()[0].tolist() == [WORKER, ACTIONS + WORKER, 2 * ACTIONS + WORKER, PLACES * ACTIONS]
    for place in range(3):
        filling.act(place * ACTIONS + WORKER)
    assert filling.done
    assert filling.counts[:, 0].tolist() == [1, 1, 1, 2, 2, 2]


def test_the_minimum_goes_to_those_that_came_first() -> None:
    now = snapshot([job(number, max_workers=1, max_servers=1) for number in range(3)], nodes({"cpu": 5}))
    filling = Filling(FreeResources(now), MODELS, PLACES)
    assert filling.done, "what is left is no use to the last, which has no minimum"
    assert filling.counts.tolist() == [[1, 1], [1, 1], [0, 0]]
    without = Filling(FreeResources(now), MODELS, PLACES, minimum=False)
    assert not without.counts.any()
    without.act(2 * ACTIONS + SERVER)
    assert without.slot.counts.tolist() == [[0, 0], [0, 0], [0, 1]]
    assert not without.counts.any(), "a server alone does not run"


def test_what_the_mask_does_not_have() -> None:
    filling = Filling(FreeResources(snapshot([job()], nodes({"cpu": 9}))), MODELS, PLACES)
    with pytest.raises(ValueError, match=f"action {ACTIONS} cannot"):
        filling.act(ACTIONS)
    filling.act(PLACES * ACTIONS)
    with pytest.raises(ValueError, match="cannot be taken now"):
        filling.act(BOTH)


def test_no_jobs() -> None:
    filling = Filling(FreeResources(snapshot([], nodes({"cpu": 9}))), MODELS, PLACES)
    assert filling.done
    assert filling.counts.shape == (0, 2)
