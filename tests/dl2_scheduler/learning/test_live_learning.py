"""Learning in dreams of a live cluster: in this process, as a program, and into the loop that decides."""

import shutil
from contextlib import closing

import numpy as np
import pytest
import torch

from dl2_scheduler.cluster.errors import BadInput, ClusterRefused
from dl2_scheduler.cluster.free_resources import FreeResources, NodeRule
from dl2_scheduler.cluster.jobs import Job, Node
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.learning.critic import CriticSettings
from dl2_scheduler.learning.live import judge as judging
from dl2_scheduler.learning.live.dreamer import Diverged, Dreamer, DreamSettings
from dl2_scheduler.learning.live.judge import Verdict, beside_rules, judge
from dl2_scheduler.learning.live.process import Learner, check_learns
from dl2_scheduler.learning.live.program import Dreaming, keep
from dl2_scheduler.learning.networks import new_policy
from dl2_scheduler.learning.rollout import Clusters
from dl2_scheduler.learning.run_folder import RunFolder
from dl2_scheduler.live.policies import Policies
from dl2_scheduler.live.slot_loop import SlotLoop
from dl2_scheduler.policies.learnt.dl2 import learnt, load
from dl2_scheduler.policies.learnt.weights import Weights
from dl2_scheduler.policies.registry import make_live_policy
from dl2_scheduler.sim.simulator import SimulatedCluster
from dl2_scheduler.world_model.observed import ObservedCluster
from dl2_scheduler.world_model.worlds import Worlds
from tests.dl2_scheduler.hearing import kill, listen, made

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


def arrays(run):
    return load(run.path).arrays


def same(some, others):
    return all(np.array_equal(some[name], others[name]) for name in some)


FAST = DreamSettings(lanes=2, critic=CriticSettings(steps=20))


def dreamer_of(run, settings=FAST):
    return Dreamer(run, settings=settings)


def worlds_of(history, seed=0, count=4):
    observed = ObservedCluster(history)
    observed.catch_up()
    return Worlds(observed, count, np.random.default_rng(seed))


@pytest.mark.slow
def test_it_dreams_of_a_history_and_resumes_with_the_numbers_of_one_that_never_stopped(history, tmp_path):
    live(history, tmp_path)[0].run()
    first, second = new_run(tmp_path / "first"), new_run(tmp_path / "second")
    start = arrays(first)
    whole = dreamer_of(first)
    numbers = [whole.update(worlds_of(history, seed)) for seed in range(3)]
    assert all(set(each) == {"critic/remaining", "dreamt/jct", "actor/cross_entropy"} for each in numbers)
    whole.save()
    assert same(arrays(first), start), "what was learnt is no policy that decides yet"
    assert not same(whole.weights.arrays, start)
    for seed in range(3):
        dreamer = dreamer_of(second)
        dreamer.update(worlds_of(history, seed))
        dreamer.save()
    again = dreamer_of(second)
    assert again.updates == whole.updates == 3
    assert same(again.weights.arrays, whole.weights.arrays)


@pytest.mark.slow
def test_all_worlds_are_dreamt_in_by_turns(history, tmp_path, monkeypatch):
    live(history, tmp_path)[0].run()
    worlds, seen = worlds_of(history, count=3), []
    numbers = {id(speeds): number for number, speeds in enumerate(worlds.speeds)}

    def clusters(episodes, speeds, *more):
        seen.append([numbers[id(each)] for each in speeds])
        return Clusters(episodes, speeds, *more)

    monkeypatch.setattr("dl2_scheduler.learning.live.dreamer.Clusters", clusters)
    dreamer = dreamer_of(new_run(tmp_path / "run"))
    for _ in range(3):
        dreamer.update(worlds)
    assert seen == [[0, 1], [2, 0], [1, 2]]


def test_a_proposal_is_judged_in_worlds_in_which_it_has_not_learnt(history, tmp_path, monkeypatch):
    live(history, tmp_path)[0].run()
    worlds = {}

    def update(self, dreamt):
        worlds["dreamt"], self.updates = dreamt, self.updates + 1
        return {}

    monkeypatch.setattr("dl2_scheduler.learning.live.program.Dreamer.update", update)
    judged = lambda *given: worlds.setdefault("judged", given[2]) and Verdict([1.0], [1.0])  # noqa: E731
    monkeypatch.setattr("dl2_scheduler.learning.live.program.judge", judged)
    assert Dreaming(new_run(tmp_path / "run"), history, NodeRule.SPREAD).dream()["accepted"] is False
    drawn = [{speeds.grid("a").tobytes() for speeds in each.speeds} for each in worlds.values()]
    assert not set.intersection(*drawn)


@pytest.mark.slow
def test_types_that_it_did_not_know_become_known_and_are_not_starved(history, tmp_path, caplog):
    live(history, tmp_path)[0].run()
    run = new_run(tmp_path / "run", ("a", "c"))
    dreamer = dreamer_of(run)
    with caplog.at_level("INFO"):
        for seed in range(3):
            dreamer.update(worlds_of(history, seed))
    assert [record.args for record in caplog.records if "did not know" in record.msg] == [("b",)]
    dreamer.save()
    assert dreamer.weights.models == run.checkpoint()["models"] == ("a", "c", "b")
    both = next(slot for slot in history.slots() if len(slot.snapshot.jobs) > 1)
    granted = learnt(dreamer.weights).allocate(both.snapshot, FreeResources(both.snapshot)).grants
    assert "b" in {name[0] for name, grant in granted.items() if grant.workers}


@pytest.mark.slow
def test_a_network_grows_by_so_many_types_and_learns_on_with_jobs_of_others(history, tmp_path, monkeypatch):
    """Where an image names a type each build of it may be another, without end."""
    live(history, tmp_path)[0].run()
    monkeypatch.setattr("dl2_scheduler.learning.live.dreamer._MOST_TYPES", 2)
    run = new_run(tmp_path / "run", ("c",))
    dreamer = dreamer_of(run)
    dreamer.update(worlds_of(history))
    dreamer.save()
    again = dreamer_of(run)
    assert "critic/remaining" in again.update(worlds_of(history))
    assert again.weights.models == run.checkpoint()["models"] == ("c", "a")


@pytest.mark.slow
def test_proposals_that_win_are_written_and_others_not_whatever_dies_between(history, tmp_path, monkeypatch):
    live(history, tmp_path)[0].run()
    run, accepted = new_run(tmp_path / "run"), []
    verdict = lambda own, *_: Verdict([1.0], [2.0 if accepted else 1.0])  # noqa: E731
    monkeypatch.setattr("dl2_scheduler.learning.live.program.judge", verdict)
    for name in ("_PROPOSES_EVERY", "_AT_FIRST"):
        monkeypatch.setattr(f"dl2_scheduler.learning.live.program.{name}", 1)
    start = arrays(run)
    dreaming = Dreaming(run, history, NodeRule.SPREAD)
    assert dreaming.dream()["accepted"] is False
    assert same(arrays(run), start)
    assert dreaming.dream() is None, "nothing is new"
    accepted.append(True)
    dreaming = Dreaming(run, history, NodeRule.SPREAD)  # a restart
    assert dreaming.dream()["updates"] == 2
    assert not same(arrays(run), start)


@pytest.mark.slow
def test_a_run_has_seen_as_many_jobs_after_a_restart_whatever_is_read_of_the_past(history, tmp_path, monkeypatch):
    """The planner took the place of a network of hundreds of jobs, as there were 15 long ones in the last slots."""
    live(history, tmp_path)[0].run()
    monkeypatch.setattr("dl2_scheduler.learning.live.program._AT_FIRST", 1)
    run = new_run(tmp_path / "run")
    assert Dreaming(run, history, NodeRule.SPREAD).dream()["jobs"] == 10
    monkeypatch.setattr("dl2_scheduler.world_model.observed.RECENT", (2, 100))
    again = Dreaming(run, history, NodeRule.SPREAD)
    assert again.compare()["jobs"] == 10 > len(again._observed.jobs.by_key)


class Looking:
    """A cluster among others, that counts its looks as slots."""

    looks = 0

    def look(self, observed):
        self.looks += 1


def test_a_cluster_that_shares_looks_once_a_slot_whether_or_not_it_compares(history, tmp_path):
    member = Looking()
    dreaming = Dreaming(new_run(tmp_path / "run"), history, NodeRule.SPREAD, member)
    live(history, tmp_path)[0].slot()  # in which nobody has told a speed
    assert (dreaming.compare(), dreaming.dream()) == (None, None)
    assert member.looks == 1


def test_the_kept_original_decides_and_learns_nothing(history, tmp_path):
    run = new_run(tmp_path / "run")
    keep(run.path)
    name = f"dl2:{run.path / 'before-live'}"
    _, policies, _ = live(history, tmp_path, policy=name)
    with closing(Learner(policies, tmp_path, NodeRule.SPREAD)) as learner:
        learner.after(0)
        assert learner._side is None
        assert "copy it to another folder, and give that one" in learner.summary
    assert policies.for_slot().name == name
    (tmp_path / "link").symlink_to(run.path / "before-live")
    with pytest.raises(BadInput, match="is kept as it is"):
        check_learns(tmp_path / "link")
    shutil.copytree(run.path / "before-live", tmp_path / "copy")
    check_learns(tmp_path / "copy")


def test_a_run_that_was_refused_is_looked_at_again(history, tmp_path, caplog):
    """Its mount may come late, or somebody copies what it lacks."""
    run = new_run(tmp_path / "run")
    (run.path / "checkpoint.pt").rename(tmp_path / "checkpoint.pt")
    _, policies, _ = live(history, tmp_path, policy=f"dl2:{run.path}")
    with closing(Learner(policies, tmp_path, NodeRule.SPREAD)) as learner:
        for slot in range(3):
            learner.after(slot)
        assert caplog.text.count("no checkpoint to learn from") == 1
        assert "no checkpoint to learn from" in learner.summary
        (tmp_path / "checkpoint.pt").rename(run.path / "checkpoint.pt")
        learner.after(3)
        assert (learner._side is None, learner.summary) == (False, f"dl2:{run.path}: no update yet")


def test_a_run_that_is_chosen_anew_is_learnt_in_anew(history, tmp_path, monkeypatch):
    """Somebody may have brought back what it was before: the program would write over that what it has in memory."""
    begun = []

    class Told(list):
        trouble = ""
        tell, close = list.append, lambda self: self.append("end")

    monkeypatch.setattr(
        "dl2_scheduler.learning.live.process.SideProgram", lambda *given: begun.append(Told()) or begun[-1]
    )
    run = new_run(tmp_path / "run")
    _, policies, _ = live(history, tmp_path, policy=f"dl2:{run.path}")
    learner = Learner(policies, tmp_path, NodeRule.SPREAD)
    learner.after(0)
    learner.after(1)
    policies.use(f"dl2:{run.path}")
    learner.after(2)
    assert begun == [["0", "1", "end"], ["2"]]


class LongHistory:
    """A `LongHistory` notes after which slot it is read."""

    def __init__(self):
        self.read = []

    def recent(self, most_slots, most_states):
        return 100_000 - most_slots

    def slots(self, after=-1):
        self.read.append(after)
        return iter(())


def test_of_a_long_history_the_learner_reads_the_last_slots_as_it_begins(tmp_path):
    history = LongHistory()
    assert Dreaming(new_run(tmp_path / "run"), history, NodeRule.SPREAD).compare() is None
    assert history.read == [95_000]


@pytest.mark.slow
def test_the_policy_that_decides_is_compared_once_as_soon_as_a_speed_is_known(history, tmp_path):
    run = new_run(tmp_path / "run")
    loop, _, cluster = live(history, tmp_path)
    dreaming, found = Dreaming(run, history, NodeRule.SPREAD), []
    while not cluster.done:
        loop.slot()
        found.append(dreaming.compare())
    compared = [each for each in found if each is not None]
    assert [each["compared"] for each in compared] == [1], "in the first slot nobody has told a speed"
    assert compared[0]["beside"].keys() == {"DRF", "planner"}
    assert dreaming.dream()["updates"] > 0


def test_weights_that_diverge_are_not_written(history, tmp_path):
    live(history, tmp_path)[0].run()
    run = new_run(tmp_path / "run")
    dreamer = dreamer_of(run)
    with torch.no_grad():
        dreamer._actor._policy.share.fill_(float("nan"))
    with pytest.raises(Diverged, match="not finite"):
        dreamer.update(worlds_of(history))
    assert np.isfinite(arrays(run)["share"]).all()


def stopping(weights, score):
    """The same policy that stops to give at once, or goes on as long as something fits."""
    changed = {name: array.copy() for name, array in weights.arrays.items()}
    changed["stop.weight"][:], changed["stop.bias"][:] = 0.0, score
    return Weights(weights.models, changed)


@pytest.mark.slow
def test_a_better_policy_is_accepted_and_a_worse_one_refused(history, tmp_path):
    live(history, tmp_path)[0].run()
    weights = new_policy(("a", "b"), 3).weights()
    greedy, idle = stopping(weights, -1e3), stopping(weights, 1e3)
    better = judge(greedy, idle, worlds_of(history), NodeRule.SPREAD)
    worse = judge(idle, greedy, worlds_of(history), NodeRule.SPREAD)
    assert (better.proposal, better.present) == (worse.present, worse.proposal)
    assert better.accepted
    assert not worse.accepted
    assert np.isfinite([better.beside["DRF"], better.beside["planner"]]).all()
    assert worse.beside == better.beside, "of what decides"
    assert beside_rules(greedy, worlds_of(history), NodeRule.SPREAD) == better.beside
    assert beside_rules(idle, worlds_of(history), NodeRule.SPREAD)["planner"] > 1
    assert "refused: mean slots of a job: proposal" in worse.words
    assert "beside" not in worse.words
    assert "% beside planner" in better.words


@pytest.mark.slow
def test_judging_ends_soon_on_a_cluster_however_large_and_contestants_are_cut_alike(history, tmp_path, monkeypatch):
    live(history, tmp_path)[0].run()
    monkeypatch.setattr("dl2_scheduler.learning.live.judge._MOST_SECONDS", 0.0)
    weights = new_policy(("a", "b"), 3).weights()
    found = judge(stopping(weights, -1e3), stopping(weights, 1e3), worlds_of(history), NodeRule.SPREAD)
    assert 0 < max(*found.proposal, *found.present) <= 1, "both have played one slot, and no more"


@pytest.mark.slow
def test_a_proposal_is_not_behind_the_present_policy_for_being_played_longer(history, tmp_path, monkeypatch):
    live(history, tmp_path)[0].run()
    weights, whole, played = new_policy(("a", "b"), 3).weights(), judging.roll_out, []

    def cut(clusters, weights, guide, watch, most_slots, seconds):
        played.append(weights)
        return whole(clusters, weights, guide, watch, most_slots, 0.0 if len(played) == 2 else seconds)

    monkeypatch.setattr(judging, "roll_out", cut)
    found = judge(stopping(weights, -1e3), stopping(weights, 1e3), worlds_of(history), NodeRule.SPREAD)
    assert 0 < max(*found.proposal, *found.present) <= 1, "both have played one slot"


@pytest.mark.slow
def test_a_network_is_not_behind_a_rule_for_being_played_longer(history, tmp_path, monkeypatch):
    live(history, tmp_path)[0].run()
    greedy, whole = stopping(new_policy(("a", "b"), 3).weights(), -1e3), judging.roll_out
    fair = beside_rules(greedy, worlds_of(history), NodeRule.SPREAD)
    assert fair["planner"] > -0.5

    def cut(clusters, weights, guide, watch, most_slots, seconds):
        return whole(clusters, weights, guide, watch, most_slots, seconds if guide is None else 0.0)

    monkeypatch.setattr(judging, "roll_out", cut)
    found = beside_rules(greedy, worlds_of(history), NodeRule.SPREAD)
    assert max(map(abs, found.values())) < 0.5, "all are cut at the first slot"


def test_a_proposal_has_to_win_by_the_margin_in_most_worlds():
    present = [20.0, 30.0, 40.0, 50.0]
    assert Verdict([19.0, 29.0, 39.0, 51.0], present).accepted
    assert not Verdict([19.0, 29.0, 39.0, 60.0], present).accepted
    assert not Verdict([19.0, 29.0, 41.0, 51.0], present).accepted
    assert not Verdict([19.9, 29.9, 39.9, 49.9], present).accepted


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
@pytest.mark.timeout(1500)
def test_the_program_learns_beside_the_loop_which_takes_its_weights(history, tmp_path):
    run = new_run(tmp_path / "run")
    name = f"dl2:{run.path}"
    loop, policies, cluster = live(history, tmp_path, policy=name)
    with closing(Learner(policies, tmp_path, NodeRule.SPREAD, cores=1)) as learner:
        for _ in range(6):
            loop.slot()
        learner._follow(name)
        loop._observers, heard = (learner,), listen(learner._side)
        loop.slot()
        heard.wait(2)
        loop.slot()
        assert learner.updates > 0
        assert (made(policies) == "planner") == bool(policies.choice.stands_in)
        policies.use(name)
        assert f"{learner.updates} updates" in learner.summary
        for accepted in (False, True):
            before, proposals = policies.for_slot().policy, learner.accepted + learner.refused
            learner._hear(name, {"updates": 3, "slot": 9, "core_seconds": 0.1, "verdict": "...", "accepted": accepted})
            assert (policies.for_slot().policy is before) == (not accepted)
            assert f"of {proposals + 1} proposals accepted; the last, after slot 9, was ..." in learner.summary
        assert policies.deciding == name
        assert same(arrays(RunFolder(run.path / "before-live")), new_policy(("a", "b"), 3).weights().arrays)
        learner.after(0)  # somebody has chosen it anew: its program begins anew
        kill(learner._side)  # it may die whenever it likes
        heard, updates = listen(learner._side), learner.updates
        loop.slot()
        assert "killed by signal 9" in learner._side.trouble
        while not cluster.done:
            loop.slot()
        heard.wait(2)
        learner.before(0)
        assert learner.updates > updates
    assert policies.trouble == ""
