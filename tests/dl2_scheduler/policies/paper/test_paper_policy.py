"""The paper's network in a slot: the compiled loop against a plain one, the contract, files."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.free_resources import FreeResources, NodeRule
from dl2_scheduler.cluster.snapshot import Snapshot
from dl2_scheduler.policies.learnt.actions import ACTIONS, BOTH, NOTHING, SERVER, STOP, WORKER
from dl2_scheduler.policies.learnt.dl2 import load, save
from dl2_scheduler.policies.learnt.paper.batched import Filling, row_width, slot_of
from dl2_scheduler.policies.learnt.paper.exploration import BEST, choose, guide, repair
from dl2_scheduler.policies.learnt.paper.policy import NOT_FORCED, PaperDl2, fill, filled, new_trail
from dl2_scheduler.policies.learnt.paper.weights import PaperWeights
from dl2_scheduler.policies.registry import make_policy
from tests.dl2_scheduler.clusters import SPEEDS, job, nodes, snapshot, snapshots
from tests.sweeps import examples

MODELS = SPEEDS.models
PLACES = 3
HIDDEN = PLACES * row_width(len(MODELS)) * 2 // 3


def weights_of(seed: int, minimum: bool = True, stop: float = -3.0) -> PaperWeights:
    random = np.random.default_rng(seed)
    shapes = {
        "first": (PLACES * row_width(len(MODELS)), HIDDEN),
        "first_bias": (HIDDEN,),
        "second": (HIDDEN, HIDDEN),
        "second_bias": (HIDDEN,),
        "out": (HIDDEN, PLACES * ACTIONS + 1),
        "out_bias": (PLACES * ACTIONS + 1,),
    }
    arrays = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    arrays["out_bias"][-1] = stop
    return PaperWeights(MODELS, minimum, arrays)


def plain_logits(weights: PaperWeights, state: np.ndarray) -> np.ndarray:
    layers = weights.layers
    first = np.maximum(state.ravel() @ layers.first + layers.first_bias, 0)
    second = np.maximum(first @ layers.second + layers.second_bias, 0)
    return second @ layers.out + layers.out_bias


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(40))
@given(snapshots(), st.integers(0, 99), st.booleans())
def test_the_best_is_taken_each_time(now: Snapshot, seed: int, minimum: bool) -> None:
    weights = weights_of(seed, minimum)
    slot, trail = filled(FreeResources(now), weights)
    filling = Filling(FreeResources(now), MODELS, PLACES, minimum)
    for action in trail.actions:
        logits = np.where(filling.mask, plain_logits(weights, filling.observation), -np.inf)
        assert logits[action] == pytest.approx(logits.max(), abs=1e-4)
        filling.act(int(action))
    assert filling.done
    assert (filling.slot.counts == slot.counts).all()


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(25))
@given(snapshots(), st.integers(0, 99), st.booleans(), st.sampled_from(NodeRule))
def test_contract(now: Snapshot, seed: int, minimum: bool, rule: NodeRule) -> None:
    filling = filled(FreeResources(now, rule), weights_of(seed, minimum))[0]
    assert (filling.free >= -1e-6).all()
    policy = PaperDl2(weights_of(seed, minimum))
    room = FreeResources(now, rule)
    first, second = policy.allocate(now, room), PaperDl2(weights_of(seed, minimum)).allocate(now, room)
    assert first == second
    assert list(first.grants) == [state.job.id for state in now.jobs]
    for state in now.jobs:
        grant = first.grants[state.job.id]
        assert grant.workers <= state.job.max_workers
        assert grant.servers <= state.job.max_servers
        assert (grant.workers > 0) == (grant.servers > 0)


@settings(deadline=None, max_examples=examples(20))
@given(snapshots(), st.integers(0, 99))
def test_what_is_kept_of_a_slot(now: Snapshot, seed: int) -> None:
    weights = weights_of(seed)
    slot, trail = filled(FreeResources(now), weights, np.random.default_rng(seed))
    filling = Filling(FreeResources(now), MODELS, PLACES)
    for state, mask, action, of_job, batch in zip(*trail, strict=True):
        assert state == pytest.approx(filling.observation)
        assert (mask == filling.mask).all()
        stopped = action == PLACES * ACTIONS
        assert of_job == (STOP if stopped else batch * PLACES + action // ACTIONS)
        filling.act(int(action))
    assert filling.done
    assert (filling.slot.counts == slot.counts).all()


def test_actions_are_drawn_by_the_softmax() -> None:
    logits = np.array([0.5, 3.0, -1.0, 1.0], dtype=np.float32)
    mask = np.array([True, False, True, True])
    weights = np.where(mask, np.exp(logits), 0)
    drawn = [choose(logits, mask, draw) for draw in (np.arange(1000) + 0.5) / 1000]
    assert np.allclose(np.bincount(drawn, minlength=4), 1000 * weights / weights.sum(), atol=1.01)
    assert choose(logits, mask, -1.0) == 3


@pytest.mark.parametrize(
    ("counts", "wanted"),
    [
        ([(1, 1), (3, 0)], ACTIONS + SERVER),
        ([(0, 1), (3, 0)], WORKER),
        ([(1, 1), (1, 10)], None),
        ([(1, 1), (1, 11)], ACTIONS + WORKER),
        ([(11, 1), (1, 11)], SERVER),
        ([(0, 0), (10, 1)], None),
    ],
)
def test_poor_states_are_mended(counts: list[tuple[int, int]], wanted: int | None) -> None:
    """The three of section 4.3."""
    now = snapshot([job(number, max_workers=16, max_servers=16) for number in range(2)], nodes({"cpu": 99}))
    slot = slot_of(FreeResources(now), MODELS, minimum=False)
    slot.counts[:] = counts
    found = repair(slot, 0, 2, np.ones(7, dtype=bool))
    assert found == wanted if wanted is not None else found < 0
    assert repair(slot, 0, 2, np.zeros(7, dtype=bool)) < 0, "there is no room"


@pytest.mark.parametrize(
    ("counts", "wanted"),
    [
        ([(1, 1), (1, 1)], {SERVER: 0.495, BOTH: 0.005, ACTIONS + SERVER: 0.2475, ACTIONS + BOTH: 0.0025}),
        ([(1, 3), (1, 1)], {ACTIONS + SERVER: 0.495, ACTIONS + BOTH: 0.005}),
        ([(1, 3), (2, 5)], {}),
        ([(0, 0), (2, 5)], {SERVER: 0.495, BOTH: 0.005}),
        ([(1, 9), (4, 9)], {WORKER: 0.25, BOTH: 0.25}),
        ([(1, 5), (4, 9)], {WORKER: 0.1, BOTH: 0.1}),  # with thresholds of 3 and 4 out of 3 to 7
        ([(1, 3), (7, 15)], {WORKER: 1 / 3, BOTH: 1 / 3}),  # 5 times as many tasks, with thresholds of 3 and 4
    ],
)
def test_the_rule_of_the_published_code(counts: list[tuple[int, int]], wanted: dict[int, float]) -> None:
    now = snapshot([job(number, max_workers=16, max_servers=16) for number in range(2)], nodes({"cpu": 99}))
    slot = slot_of(FreeResources(now), MODELS)
    slot.counts[:] = counts
    free = np.ones(7, dtype=bool)
    found = [guide(slot, 0, 2, free, draw) for draw in (np.arange(20_000) + 0.5) / 20_000]
    parts = {action: found.count(action) / len(found) for action in range(6)}
    assert parts == pytest.approx({**dict.fromkeys(range(6), 0.0), **wanted}, abs=0.002)
    assert guide(slot, 0, 2, np.zeros(7, dtype=bool), 0.1) == NOTHING, "there is no room"


def test_exploration_is_job_aware() -> None:
    """Without a minimum, jobs get both roles sooner or later."""
    now = snapshot([job(number, max_workers=8, max_servers=8) for number in range(3)], nodes({"cpu": 16}))
    lacking = {}
    for epsilon in (0.0, 1.0):
        filled_up = [
            filled(FreeResources(now), weights_of(seed, minimum=False), np.random.default_rng(seed), epsilon)[0]
            for seed in range(30)
        ]
        lacking[epsilon] = sum(int(((slot.counts > 0).sum(axis=1) == 1).sum()) for slot in filled_up)
    assert lacking[1.0] < lacking[0.0] / 4


def test_what_a_teacher_does_is_done_but_for_what_does_not_fit() -> None:
    jobs = [job(0, max_servers=2), job(1, worker={"cpu": 50}), job(2), job(3)]
    weights = weights_of(1)
    slot = slot_of(FreeResources(snapshot(jobs, nodes({"cpu": 12}))), MODELS)
    trail = new_trail(slot, PLACES, True)
    forced = np.array([3 * ACTIONS + BOTH, SERVER, SERVER, ACTIONS + BOTH, 2 * ACTIONS + WORKER])
    count = fill(slot, weights.layers, BEST, True, forced, trail)
    stop = PLACES * ACTIONS
    assert trail.actions[:count].tolist() == [SERVER, 2 * ACTIONS + WORKER, stop, BOTH, stop]
    assert slot.counts.tolist() == [[1, 2], [0, 0], [2, 1], [2, 2]]
    empty = slot_of(FreeResources(snapshot([], nodes({"cpu": 12}))), MODELS)
    assert fill(empty, weights.layers, BEST, True, NOT_FORCED, new_trail(empty, PLACES, True)) == 0


def test_in_files(tmp_path: Path) -> None:
    weights = weights_of(3, minimum=False)
    save(weights, tmp_path / "policy.npz")
    found = load(tmp_path)
    assert isinstance(found, PaperWeights)
    assert (found.models, found.minimum, found.places) == (MODELS, False, PLACES)
    assert all(np.array_equal(found.arrays[name], array) for name, array in weights.arrays.items())
    policy = make_policy(f"dl2:{tmp_path}", SPEEDS)
    assert isinstance(policy, PaperDl2)
    now = snapshot([job()], nodes({"cpu": 9}))
    assert decide_counts(policy, now) == decide_counts(PaperDl2(weights), now)
    np.savez(tmp_path / "policy.npz", models=np.array('["even"]'), minimum=np.array(True))
    with pytest.raises(BadInput, match=r"policy\.npz is damaged.*first"):
        load(tmp_path)


def decide_counts(policy: PaperDl2, now: Snapshot) -> dict[int | str, tuple[int, int]]:
    allocation = policy.allocate(now, FreeResources(now))
    return {name: (grant.workers, grant.servers) for name, grant in allocation.grants.items()}
