"""Online learning from a live cluster's history: in this process, as a program, and into the loop that decides."""

from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
import torch

from dl2_scheduler.cluster.errors import BadInput, ClusterRefused
from dl2_scheduler.cluster.free_resources import FreeResources, NodeRule
from dl2_scheduler.cluster.interfaces import JobOutcome, SlotOutcome
from dl2_scheduler.cluster.jobs import Job, Node
from dl2_scheduler.cluster.snapshot import Allocation, Grant, JobState, Snapshot
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.learning.critic import CriticSettings
from dl2_scheduler.learning.live.learner import Diverged, LiveLearner, LiveSettings
from dl2_scheduler.learning.live.process import Learner, check_learns
from dl2_scheduler.learning.live.program import keep
from dl2_scheduler.learning.networks import new_policy
from dl2_scheduler.learning.run_folder import RunFolder
from dl2_scheduler.live.history import HISTORY_FILE, History
from dl2_scheduler.live.policies import Policies
from dl2_scheduler.live.slot_loop import SlotLoop
from dl2_scheduler.policies.learnt.dl2 import load
from dl2_scheduler.policies.registry import make_live_policy
from dl2_scheduler.sim.simulator import SimulatedCluster
from tests.dl2_scheduler.hearing import kill, listen

SLOT = 60.0
ONE = {"slots": 1.0}
NODES = (Node("n", {"slots": 12.0}),)


def grid(best):
    """Speeds that grow with both roles, `best` samples a second at most."""
    servers, workers = np.mgrid[:5, :5]
    return best * np.sqrt(servers * workers) / 4.0


SPEEDS = Speeds({"a": grid(40.0), "b": grid(10.0)})


def job(number, arrival):
    model = "ab"[number % 2]
    return Job(f"{model}{number}", arrival, model, 8.0, 200.0, ONE, ONE, max_workers=4, max_servers=4)


def new_run(folder, models=("a", "b")):
    """As `dl2 bootstrap` leaves it, but having imitated nobody."""
    run = RunFolder(folder)
    run.begin({"network": "shared", "seed": 3})
    policy = new_policy(models, 3)
    run.save(policy.weights(), {"policy": policy.state_dict(), "models": policy.models, "updates": 0})
    return run


def live(history, folder, observers=(), policy="drf", jobs=10):
    """A loop over simulated jobs, with a clock that tells the slots' beginnings."""
    cluster = SimulatedCluster([job(number, number * 40.0) for number in range(jobs)], NODES, SPEEDS, SLOT)
    policies = Policies(make_live_policy, "drf", folder, policy)
    now = lambda: 1e9 + cluster.lanes.slot * SLOT  # noqa: E731
    return SlotLoop(cluster, policies, NodeRule.SPREAD, history, observers=observers, now=now), policies, cluster


@pytest.fixture
def history(tmp_path):
    with closing(History(tmp_path / HISTORY_FILE)) as found:
        yield found


def arrays(run):
    return load(run.path).arrays


def same(some, others):
    return all(np.array_equal(some[name], others[name]) for name in some)


FAST = replace(LiveSettings(), most_slots=3, critic=CriticSettings(steps=20))


def learner_of(run, history, settings=FAST):
    return LiveLearner(run, history, "here", settings=settings)


@pytest.mark.slow
def test_it_learns_from_a_history_and_resumes_with_the_numbers_of_one_that_never_stopped(history, tmp_path):
    live(history, tmp_path)[0].run()
    first, second = new_run(tmp_path / "first"), new_run(tmp_path / "second")
    start = arrays(first)
    whole = learner_of(first, history)
    numbers = [found for _ in range(3) if (found := whole.update()) is not None]
    assert len(numbers) == 3
    assert set(numbers[-1]) == {"critic/progress", "critic/remaining", "actor/cross_entropy"}
    whole.save()
    assert not same(arrays(first), start)
    learner = learner_of(second, history)
    for _ in range(3):
        learner.update()
        learner.save()
        learner = learner_of(second, history)
    numbers = [slot.snapshot.slot for slot in history.slots()]
    assert (learner.updates, learner.slot) == (whole.updates, whole.slot) == (3, numbers[8])
    assert same(arrays(second), arrays(first))
    while whole.update() is not None:
        pass
    assert whole.slot == numbers[-2]  # how long the last slot was is not known yet
    elsewhere = LiveLearner(second, history, "another cluster", settings=FAST)
    assert (elsewhere.updates, elsewhere.slot) == (3, -1)


@pytest.mark.slow
def test_slots_of_before_are_learnt_from_again_as_the_critic_judges_them_by_now(history, tmp_path, monkeypatch):
    live(history, tmp_path)[0].run()
    learner = learner_of(new_run(tmp_path / "run"), history, replace(FAST, most_slots=6, again=4, past=9))
    learn, asked = learner._actor.learn, []
    rows = {}

    def watched(lessons, random):
        now = {each.rows.tobytes(): each.actions.tolist() for each in learner._lessons(list(history.slots()))}
        found = [lessons.chosen(np.array([number])) for number in range(len(lessons))]
        assert all(now[each.rows.tobytes()] == each.actions.tolist() for each in found)
        asked.append([rows.setdefault(each.rows.tobytes(), len(asked)) for each in found])
        return learn(lessons, random)

    monkeypatch.setattr(learner._actor, "learn", watched)
    while learner.update() is not None:
        pass
    new = [some.count(update) for update, some in enumerate(asked)]
    assert [len(some) - count for some, count in zip(asked, new, strict=True)][1:] == [4] * (len(asked) - 1)
    assert all(update - first <= 2 for update, some in enumerate(asked) for first in some)  # 9 slots of 6 an update


@pytest.mark.slow
def test_types_that_it_did_not_know_become_known_and_are_not_starved(history, tmp_path, caplog):
    live(history, tmp_path)[0].run()
    run = new_run(tmp_path / "run", ("a", "c"))
    learner = learner_of(run, history, replace(FAST, most_slots=8))
    with caplog.at_level("INFO"):
        while (numbers := learner.update()) is not None:
            assert "critic/progress" in numbers
    assert [record.args for record in caplog.records if "did not know" in record.msg] == [("b",)]
    learner.save()
    assert load(run.path).models == run.checkpoint()["models"] == ("a", "c", "b")
    assert all(np.isfinite(array).all() for array in arrays(run).values())
    again = learner_of(run, history)
    assert (again.updates, again.slot) == (learner.updates, learner.slot)
    both = next(slot for slot in history.slots() if len(slot.snapshot.jobs) > 1)
    granted = make_live_policy(f"dl2:{run.path}").allocate(both.snapshot, FreeResources(both.snapshot)).grants
    assert {name[0] for name, grant in granted.items() if grant.workers} == {"a", "b"}


def lived(history, slot, at, *done, samples=200.0):
    """A slot of jobs that each run 1+1 and have 8 epochs; `done` is of each: (epochs so far, trained, finished)."""
    states = [
        JobState(Job(f"a{n}", 0.0, "a", 8.0, samples, ONE, ONE, max_workers=4, max_servers=4), so_far, 1, 1, 1)
        for n, (so_far, _, _) in enumerate(done)
    ]
    grants = {state.job.id: Grant(1, 1) for state in states}
    history.decided(at, "drf", Snapshot(slot, SLOT, NODES, tuple(states)), Allocation(grants))
    outcomes = [JobOutcome(f"a{n}", 1, 1, epochs, end) for n, (_, epochs, end) in enumerate(done)]
    history.happened(SlotOutcome(slot, outcomes, ()))


def seen(history, tmp_path):
    learner = learner_of(new_run(tmp_path / "run"), history)
    learner.update()
    return learner._experience


def test_what_jobs_did_is_learnt_but_not_of_stopped_ones_nor_of_short_slots(history, tmp_path):
    lived(history, 3, 0.0, (0.0, 2.0, None), (0.0, 1.0, None))
    lived(history, 4, 60.0, (2.0, 6.0, 1e6), (1.0, 2.0, 1e6))  # the first trained all, the second was stopped
    lived(history, 5, 120.0, (0.0, 0.5, None))  # cut short
    lived(history, 6, 130.0, (0.0, 0.5, None))
    experience = seen(history, tmp_path)
    rows, slots = experience.finished()
    assert (len(rows), slots.tolist()) == (2, [1.5, 0.5])
    assert list(experience.speeds.values()) == [(pytest.approx((2 + 1) / 2 * 200.0 / SLOT), 2)]


def test_speeds_of_jobs_whose_samples_are_not_known_are_not_learnt(history, tmp_path):
    lived(history, 3, 0.0, (0.0, 2.0, None), samples=1.0)
    lived(history, 4, 60.0, (2.0, 2.0, None))
    assert seen(history, tmp_path).speeds == {}


def test_weights_that_diverge_are_not_written(history, tmp_path):
    live(history, tmp_path)[0].run()
    run = new_run(tmp_path / "run")
    learner = learner_of(run, history)
    with torch.no_grad():
        learner._actor._policy.share.fill_(float("nan"))
    with pytest.raises(Diverged, match="not finite"):
        learner.update()
    assert np.isfinite(arrays(run)["share"]).all()


def test_runs_that_cannot_learn(tmp_path):
    with pytest.raises(BadInput, match="is no run that can learn"):
        check_learns(tmp_path)
    RunFolder(tmp_path / "paper").begin({"network": "paper", "seed": 0})
    with pytest.raises(BadInput, match="its bootstrap was interrupted, or still runs"):
        check_learns(tmp_path / "paper")
    (tmp_path / "paper" / "checkpoint.pt").touch()
    with pytest.raises(BadInput, match="the paper's network"):
        check_learns(tmp_path / "paper")


def test_where_torch_is_not_installed_learning_is_refused_and_not_begun(tmp_path, monkeypatch):
    run = new_run(tmp_path / "run")
    check_learns(run.path)
    monkeypatch.setattr("importlib.util.find_spec", {}.get)
    with pytest.raises(BadInput, match="needs torch"):
        check_learns(run.path)


def test_a_run_is_kept_as_it_was_and_held_by_one(tmp_path):
    run = new_run(tmp_path / "run")
    keep(run.path)
    before = arrays(RunFolder(run.path / "before-live"))
    run.save(new_policy(("a",), 9).weights(), {})
    keep(run.path)
    assert same(arrays(RunFolder(run.path / "before-live")), before)
    with run.held(), pytest.raises(ClusterRefused, match=r"another process .* learns"), run.held():
        pass


@pytest.mark.slow
def test_the_program_learns_beside_the_loop_which_takes_its_weights(history, tmp_path):
    run = new_run(tmp_path / "run")
    name = f"dl2:{run.path}"
    loop, policies, cluster = live(history, tmp_path, policy=name)
    with closing(Learner(policies, tmp_path, NodeRule.SPREAD)) as learner:
        for _ in range(6):
            loop.slot()
        learner._follow(name)
        loop._observers, heard = (learner,), listen(learner._side)
        loop.slot()
        heard.wait()
        before = policies.for_slot().policy
        loop.slot()
        assert learner.updates > 0
        assert f"{learner.updates} updates" in learner.summary
        assert policies.for_slot().policy is not before
        assert policies.deciding == name
        assert same(arrays(RunFolder(run.path / "before-live")), new_policy(("a", "b"), 3).weights().arrays)
        kill(learner._side)  # it may die whenever it likes
        heard, updates = listen(learner._side), learner.updates
        while not cluster.done:
            loop.slot()
        assert "ended with status -9" in learner._side.trouble
        heard.wait()
        learner.before(0)
        assert learner.updates > updates
    assert policies.trouble == ""
