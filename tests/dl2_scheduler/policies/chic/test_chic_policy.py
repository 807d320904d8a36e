"""Chic as a policy: the contract, what it keeps, its file."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.interfaces import PolicyTrigger, trigger_of
from dl2_scheduler.policies.chic.network import Network
from dl2_scheduler.policies.chic.phase import actions_of, inputs_of
from dl2_scheduler.policies.chic.policy import Chic
from dl2_scheduler.policies.chic.weights import ChicForm, ChicWeights, load_chic, save_chic
from dl2_scheduler.policies.rules.estimates import TrueSpeeds
from dl2_scheduler.sim.events.cluster import completion_times
from tests.dl2_scheduler import clusters
from tests.dl2_scheduler.clusters import SPEEDS, job, nodes, snapshot, snapshots
from tests.dl2_scheduler.policies.test_policies import PLACEMENTS, decide
from tests.sweeps import examples

FORM = ChicForm(SPEEDS.models, 100.0)
OURS = ChicForm(SPEEDS.models, 100.0, 5, until_no_gain=False, void_ends=True, present_only=True, sampled=False)


def weights(form: ChicForm, seed: int = 0) -> ChicWeights:
    random = np.random.default_rng(seed)
    sizes = [inputs_of(form.rules), 8, 8, 8, actions_of(form.rules)]
    parts = [part for a, b in itertools.pairwise(sizes) for part in (random.normal(size=(a, b)), np.zeros(b))]
    return ChicWeights(form, Network(*parts))


def _policy(form: ChicForm, seed: int = 0) -> Chic:
    return Chic(weights(form, seed), TrueSpeeds(SPEEDS) if form.until_no_gain else None)


@pytest.mark.slow
@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("form", [FORM, OURS], ids=["paper", "ours"])
@settings(deadline=None, max_examples=examples(40))
@given(data=st.data(), asked=PLACEMENTS, seed=st.integers(0, 5))
def test_contract(form: ChicForm, pairs: bool, data: st.DataObject, asked, seed: int) -> None:
    form = ChicForm(**{**vars(form), "pairs": pairs})
    first, second = _policy(form, seed), _policy(form, seed)
    for now in data.draw(st.lists(snapshots(gangs=True), min_size=1, max_size=3)):
        assert decide(first, now, asked) == decide(second, now, asked)


def test_it_is_asked_at_events_and_keeps_what_it_decided_while_the_visible_jobs_stay():
    policy = _policy(ChicForm(SPEEDS.models, 100.0, visible=2))
    assert trigger_of(policy) is PolicyTrigger.EVENT
    machines = nodes({"cpu": 12})
    before = clusters.given(policy, snapshot([job(1), job(2)], machines))
    again = clusters.given(policy, snapshot([job(1), job(2), job(3)], machines))
    assert {1: again[1], 2: again[2]} == before
    assert again[3] == (0, 0)


def test_an_unknown_type_is_no_error():
    found = clusters.given(_policy(ChicForm(("other",), 100.0)), snapshot([job(1)], nodes({"cpu": 12})))
    assert min(found[1]) > 0


def test_nodes_are_one_pool_to_it_and_what_does_not_fit_is_left_out():
    # together there are 4 cpu, but no worker of 3 fits
    now = snapshot([job(1, worker={"cpu": 3}), job(2)], nodes({"cpu": 2}, {"cpu": 2}))
    for seed in range(5):
        assert clusters.given(_policy(OURS, seed), now)[1] == (0, 0)


def test_every_job_ends():
    for form in (FORM, OURS):
        # without speeds it does not know that a job would stand still with some counts
        models = SPEEDS.models if form.until_no_gain else ("even", "flat")
        jobs = [job(number, arrival=20.0 * number, model=models[number % len(models)]) for number in range(6)]
        times = completion_times(jobs, nodes({"cpu": 9}), SPEEDS, _policy(form))
        assert (times > 0).all()


def test_a_phase_that_needs_speeds_says_so():
    with pytest.raises(ValueError, match="needs speeds"):
        Chic(weights(FORM))


def test_a_file_has_the_whole_policy(tmp_path: Path):
    some = weights(OURS, 3)
    save_chic(some, tmp_path / "policy.npz")
    found = load_chic(tmp_path / "policy.npz")
    assert found.form == some.form
    for one, other in zip(found.network, some.network, strict=True):
        assert one == pytest.approx(other, rel=1e-6)


def test_a_file_of_other_shapes_is_refused(tmp_path: Path):
    some = weights(OURS)
    for name, array, text in (
        ("weight2", np.zeros((7, 8)), "layer 2 has the shapes"),
        ("bias4", np.zeros(3), "layer 4 has the shapes"),
        ("bias1", np.full(8, np.nan), "not finite"),
    ):
        save_chic(ChicWeights(OURS, some.network._replace(**{name: array})), tmp_path / "policy.npz")
        with pytest.raises(BadInput, match=text):
            load_chic(tmp_path / "policy.npz")
    save_chic(ChicWeights(FORM, some.network), tmp_path / "policy.npz")
    with pytest.raises(BadInput, match="layer 1 has the shapes"):
        load_chic(tmp_path / "policy.npz")
    (tmp_path / "policy.npz").write_bytes(b"nothing")
    with pytest.raises(BadInput, match="no policy of Chic"):
        load_chic(tmp_path / "policy.npz")
