"""Policies of a pool on the command line: Chic is learnt, asked at events, compared, and refused where it cannot be."""

import json
import re
from itertools import pairwise

import numpy as np
import pytest
from typer.testing import CliRunner

from dl2_scheduler.cli import app
from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.interfaces import PolicyTrigger, trigger_of
from dl2_scheduler.policies.chic.network import Network
from dl2_scheduler.policies.chic.phase import actions_of, inputs_of
from dl2_scheduler.policies.chic.weights import CHIC_FILE, ChicForm, ChicWeights, load_chic, save_chic
from dl2_scheduler.policies.pool.registry import make_pool_policy
from dl2_scheduler.policies.registry import make_live_policy, make_policy
from dl2_scheduler.sim.events.worlds import MODELS, formula


def invoke(line: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, line.split())
    return result.exit_code, result.output


@pytest.fixture
def run(tmp_path):
    """A run of Chic whose weights are drawn."""
    form = ChicForm(tuple(MODELS), 200.0, until_no_gain=False, present_only=True, sampled=False)
    rng, sizes = np.random.default_rng(0), (inputs_of(form.rules), 8, 8, 8, actions_of(form.rules))
    layers = [part for a, b in pairwise(sizes) for part in (rng.normal(size=(a, b)), np.zeros(b))]
    (tmp_path / "run").mkdir()
    save_chic(ChicWeights(form, Network(*layers)), tmp_path / "run" / CHIC_FILE)
    return tmp_path / "run"


def test_policies_of_a_pool_are_compared_on_the_same_sequences(run):
    line = f"evaluate --pool formula --policies optimus-true,optimus-true-events,chic:{run} --sequences 2 --bounds"
    status, output = invoke(f"{line} --json")
    told = json.loads(output)
    assert (status, told["pool"], told["slot_seconds"], told["seeds"]) == (0, "formula", 600.0, [0, 1])
    slots, events, chic = told["policies"]
    assert events["percent"]["mean"] < -5 < slots["percent"]["mean"] == 0
    for policy in (slots, events, chic):
        assert all(bound < own for bound, own in zip(told["bounds"], policy["sequences"], strict=True))
    status, output = invoke(line)
    assert (status, "2 sequences, formula pool, 1.8 jobs an hour" in output, "each job alone" in output) == (0, 1, 1)


def test_one_policy_is_simulated_and_costs_and_slots_count(run):
    line = f"simulate --pool formula --policy chic:{run} --seed 3 --rate 2.7"
    status, output = invoke(f"{line} --json")
    told = json.loads(output)
    assert (status, told["policy"], told["seed"], len(told["jobs"])) == (0, f"chic:{run}", 3, 30)
    assert json.loads(invoke(f"{line} --json --start-cost 60")[1])["jct_seconds"] > told["jct_seconds"]
    assert json.loads(invoke(f"{line} --json --slot 100")[1])["jct_seconds"] == told["jct_seconds"]
    assert f"chic:{run} in the formula pool: 30 jobs, 2.7 an hour" in invoke(line)[1]


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("simulate --pool formula", "give a policy too"),
        ("simulate --pool formula --policy drf,fifo", "--policy: give one name"),
        ("evaluate --pool formula --policies drf,drf", "drf again: give each name once"),
        (
            "evaluate --pool formula --policies nobody",
            "unknown policy nobody: .*in a pool also chic:PATH, roll-out-true",
        ),
        ("evaluate --pool formula --policies nobody-events", "unknown policy nobody: "),
        ("evaluate --pool formula --policies chic:nowhere", "no policy of Chic in nowhere"),
        ("evaluate --pool formula --policies drf --rate 0", "--rate is 0: give jobs an hour"),
        ("evaluate --pool formula --policies drf --slot 0", "--slot is 0.0: give seconds above 0"),
        ("evaluate --pool formula --policies drf --start-cost -1", "--start-cost is -1"),
        ("evaluate --pool formula --policies drf --cluster 2x8cpu", "--cluster: a pool has its own, or none"),
        ("evaluate --pool formula --policies drf --speeds x", "--speeds: the pool's formula has its own"),
        ("evaluate --pool formula --world formula --policies drf", "--world, --pool: one has places"),
        ("evaluate --policies drf --traces x --rate 2", "--rate: of a pool alone: give --pool too"),
        ("evaluate --policies drf --traces x --sequences 2", "--sequences: of a world or a pool"),
        ("bootstrap --out {run}/new --teacher chic:{run}", "here policies are asked at slots"),
        ("simulate --policy chic:{run} --world formula --placement best-fit", "here policies are asked at slots"),
        ("learn-chic --out {run}", r"holds a run \(chic.npz\): name another folder"),
        ("learn-chic --out {run}/new --rate -1", "--rate is -1"),
        ("learn-chic --out {run}/new --speeds x", "--speeds: the pool's formula has its own"),
        ("learn-chic --out {run}/new --pool table --speeds nowhere", "nowhere"),
    ],
)
def test_what_is_wrong_is_told_before_anything_runs(line, wrong, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, line.format(run=run).split())
    assert result.exit_code == 2, result.output
    assert re.search(wrong, result.output), result.output
    assert not (run / "new").exists()


def test_names_say_when_policies_are_asked(run):
    speeds = formula().speeds
    for name in (f"chic:{run}", f"chic:{run / CHIC_FILE}", "roll-out-true", "roll-out-pairs-true", "drf-events"):
        assert trigger_of(make_pool_policy(name, speeds)) is PolicyTrigger.EVENT
    assert trigger_of(make_pool_policy("drf", speeds)) is PolicyTrigger.SLOT
    for make in (make_live_policy, lambda name: make_policy(name, speeds)):
        with pytest.raises(BadInput, match="decides when a job arrives and when one ends, and here policies are asked"):
            make(f"chic:{run}")


@pytest.mark.slow
def test_chic_is_learnt_and_an_interrupted_run_leaves_the_best_so_far(tmp_path, monkeypatch):
    small = "--sequences 6 --iterations 1"
    status, output = invoke(f"learn-chic --out {tmp_path / 'run'} --pairs {small}")
    assert status == 0, output
    assert load_chic(tmp_path / "run").form.pairs
    assert f"chic:{tmp_path / 'run'}" in output.replace("\n", "")
    monkeypatch.setattr(
        "dl2_scheduler.learning.chic.cross_entropy.cumulative_return",
        lambda _: (_ for _ in ()).throw(KeyboardInterrupt),
    )
    stopped = tmp_path / "stopped"
    status, output = invoke(f"learn-chic --out {stopped} --learner mended {small}")
    assert (status, f"stopped: the best policy so far is chic:{stopped}" in output) == (130, True), output
    assert load_chic(stopped).form.visible == 3
