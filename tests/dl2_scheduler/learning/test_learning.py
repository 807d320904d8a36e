"""From a teacher to a policy that decides like it, in files and back."""

import csv
import json
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.jobs import Node
from dl2_scheduler.cluster.snapshot import Grant
from dl2_scheduler.learning.actor import ActorSettings
from dl2_scheduler.learning.bootstrap import BootstrapSettings, bootstrap
from dl2_scheduler.learning.critic import CriticSettings
from dl2_scheduler.learning.lessons import Lessons
from dl2_scheduler.learning.online import Online, OnlineSettings
from dl2_scheduler.learning.rollout import LEARNT_SLOTS, Clusters, means, roll_out, tell_of_late
from dl2_scheduler.learning.run_folder import RunFolder
from dl2_scheduler.learning.teacher import of_counts, of_grants
from dl2_scheduler.policies.learnt.actions import BOTH, SERVER, WORKER
from dl2_scheduler.policies.learnt.dl2 import Dl2, load
from dl2_scheduler.policies.registry import make_policy
from dl2_scheduler.policies.rules.drf import Drf
from dl2_scheduler.sim.shipped import shipped_speeds
from dl2_scheduler.sim.simulator import SimulatedCluster, run

ENDLESS = 1e6  # seconds: updates are counted, so that a busy machine makes as many
SPEEDS = shipped_speeds()
NODES = tuple(Node(f"n{number}", {"cpu": 8, "gpu": 8}) for number in range(6))
LESSONS = Lessons((NODES,), jobs=8, seed=5)


@pytest.fixture(scope="module")
def taught(tmp_path_factory):
    folder = RunFolder(tmp_path_factory.mktemp("runs") / "run")
    folder.begin({"teacher": "drf"})
    told = []
    settings = BootstrapSettings(warm_up=0, episodes=4, epochs=8, validation=2)
    times = bootstrap(Drf(), LESSONS, SPEEDS, settings, folder, lambda *progress: told.append(progress))
    return folder, times, told


@pytest.mark.parametrize("policy", ["placer.npz", "agents.npz", "chic.npz"])
def test_a_run_of_another_kind_is_not_begun_again(policy, tmp_path):
    """Its settings alone look like those of a bootstrap that was interrupted."""
    folder = RunFolder(tmp_path)
    folder.write_settings({"world": "formula"})
    (tmp_path / policy).touch()
    with pytest.raises(BadInput, match=f"holds a run .{policy}.: name another folder"):
        folder.begin({"teacher": "drf"})
    assert folder.settings() == {"world": "formula"}


@pytest.mark.slow
def test_it_decides_as_its_teacher(taught):
    _, times, told = taught
    assert times["policy"] == pytest.approx(times["teacher"], rel=0.05)
    losses = [numbers["loss"] for *_, numbers in told if numbers]
    assert losses[-1] < losses[0] / 2


class Oldest:
    """Who serves one job at a time, with one worker and one server, and begins late."""

    def allocate(self, snapshot, room):
        if snapshot.slot >= 100:
            room.give_least(0)
        return room.allocation()


class Nobody:
    def allocate(self, snapshot, room):
        return room.allocation()


def judged(teacher, folder):
    folder.begin({})
    settings = BootstrapSettings(warm_up=0, episodes=1, epochs=1, validation=1)
    return bootstrap(teacher, LESSONS, SPEEDS, settings, folder, lambda *_: None)["teacher"]


@pytest.mark.slow
def test_a_teacher_is_judged_until_its_jobs_have_ended(tmp_path, caplog):
    (episode,) = LESSONS.validation(1)
    alone = run(SimulatedCluster(episode.jobs, episode.nodes, SPEEDS), Oldest(), NodeRule.SPREAD)
    assert alone.max() > LEARNT_SLOTS
    assert judged(Oldest(), RunFolder(tmp_path / "oldest")) == pytest.approx([alone.mean()], abs=1e-4)
    assert not [each for each in caplog.messages if "the teacher starves" in each]


@pytest.mark.slow
def test_a_teacher_that_starves_jobs_is_told(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr("dl2_scheduler.learning.rollout.JUDGED_SLOTS", 30)
    judged(Nobody(), RunFolder(tmp_path / "nobody"))
    words = "the teacher starves jobs: 8 had not ended after 30 slots, and count as if they ended then"
    assert words in caplog.messages


def test_jobs_that_nobody_learns_from_as_they_come_too_late_are_told(caplog):
    jobs = LESSONS.episodes(0, 1)[0].jobs
    tell_of_late(jobs)
    assert not caplog.messages
    tell_of_late([*jobs, replace(jobs[-1], arrival=LEARNT_SLOTS * 1200.0)])
    words = "1 of 9 jobs come after slot 400, at which episodes that are learnt from end: nobody learns from them"
    assert caplog.messages == [words]


@pytest.mark.slow
def test_what_jobs_lack_where_they_are_cut_is_told(taught):
    """So a proposal that gives long jobs nothing does not win by short ones that are a little faster."""
    (episode,) = LESSONS.validation(1)
    clusters = [Clusters([episode], SPEEDS, SPEEDS.models) for _ in range(3)]
    weights = load(taught[0].path)
    for each, slots in zip(clusters, (1, 10, LEARNT_SLOTS), strict=True):
        roll_out(each, weights, most_slots=slots)
    early, late, whole = (float(means(each.lanes, each.lanes.lacking())[0]) for each in clusters)
    assert early > late > whole == 0.0
    assert (clusters[2].lanes.ends() == clusters[2].lanes.finish).all()


@pytest.mark.slow
def test_the_folder_of_a_run(taught):
    folder, _, _ = taught
    found = json.loads((folder.path / "settings.json").read_text())
    assert found["settings"] == folder.settings() == {"teacher": "drf"}
    assert found["versions"]["torch"] == torch.__version__.split("+")[0]
    rows = list(csv.DictReader((folder.path / "imitation.csv").read_text().splitlines()))
    assert [row["step"] for row in rows] == [str(epoch) for epoch in range(1, 9)]
    assert list((folder.path / "tensorboard").iterdir())
    assert folder.checkpoint()["models"] == SPEEDS.models
    with pytest.raises(BadInput, match="holds a run"):
        folder.begin({})


@pytest.mark.slow
def test_alone_in_a_cluster_it_does_what_it_did_among_many(taught):
    """Two ways to the same network: of a snapshot, and of lanes in lockstep."""
    weights = load(taught[0].path)
    episodes = LESSONS.validation(2)
    among = roll_out(Clusters(episodes, SPEEDS, SPEEDS.models), weights).completion
    alone = [
        run(SimulatedCluster(episode.jobs, episode.nodes, SPEEDS), Dl2(weights), NodeRule.SPREAD).mean()
        for episode in episodes
    ]
    assert alone == pytest.approx(among, rel=1e-12)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_policy(taught, tmp_path):
    folder = RunFolder(tmp_path / "again")
    folder.begin({"teacher": "drf"})
    settings = BootstrapSettings(warm_up=0, episodes=4, epochs=8, validation=2)
    bootstrap(Drf(), LESSONS, SPEEDS, settings, folder, lambda *_: None)
    first, second = load(taught[0].path).arrays, load(folder.path).arrays
    assert all(np.array_equal(first[name], second[name]) for name in first)


@pytest.mark.slow
def test_a_policy_by_name(taught, tmp_path):
    assert isinstance(make_policy(f"dl2:{taught[0].path}", SPEEDS), Dl2)
    with pytest.raises(BadInput, match=r"no policy in .*nothing.*dl2 bootstrap"):
        make_policy(f"dl2:{tmp_path / 'nothing'}", SPEEDS)
    (tmp_path / "policy.npz").write_bytes(b"torn")
    with pytest.raises(BadInput, match="no policy in"):
        load(tmp_path)
    with pytest.raises(BadInput, match="no run in"):
        RunFolder(tmp_path).settings()
    with pytest.raises(BadInput, match="no checkpoint in"):
        RunFolder(tmp_path).checkpoint()


def test_a_run_that_was_interrupted_says_so_and_begins_again(tmp_path):
    run = RunFolder(tmp_path / "run")
    run.begin({"teacher": "drf"})
    for what in (lambda: load(run.path), run.checkpoint):
        with pytest.raises(BadInput, match=r"interrupted, .* `dl2 bootstrap --out .*run` begins it again"):
            what()
    run.begin({"teacher": "planner"})
    assert run.settings() == {"teacher": "planner"}


def test_lessons_are_never_those_that_judge():
    learnt = LESSONS.episodes(0, 50)
    assert [episode.jobs for episode in learnt[20:30]] == [episode.jobs for episode in LESSONS.episodes(20, 10)]
    assert not [episode for episode in LESSONS.validation(4) if episode.jobs in [each.jobs for each in learnt]]


def test_lessons_with_speeds_that_vary_and_owners_that_err():
    models = ("dssm", "wlm")
    lessons = Lessons((NODES,), jobs=30, seed=5, models=models, estimate_error=0.2, variation=0.3)
    first, second = lessons.episodes(0, 2)
    assert {job.model for job in first.jobs} == set(models)
    assert {round(job.estimate / job.epochs, 3) for job in first.jobs} == {0.8, 1.2}
    lanes = Clusters([first, second], SPEEDS, SPEEDS.models).lanes
    assert np.all(np.abs(lanes.speed_factor - 1) <= 0.3)
    assert np.unique(lanes.speed_factor).size == 60
    assert np.array_equal(Clusters([second], SPEEDS, SPEEDS.models).lanes.speed_factor[0], lanes.speed_factor[1])
    plain = Lessons((NODES,), jobs=30, seed=5, models=models).episodes(0, 1)[0]
    assert [(job.arrival, job.model) for job in plain.jobs] == [(job.arrival, job.model) for job in first.jobs]
    assert np.all(Clusters([plain], SPEEDS, SPEEDS.models).lanes.speed_factor == 1.0)


def test_actions_of_grants_keep_their_order():
    assert of_grants([(1, 2, 3), (0, 1, 0)], [(1, 1)] * 2) == [3 + BOTH, 3 + BOTH, 3 + SERVER, WORKER]


def test_a_minimum_is_one_action():
    grants, least = [(1, 3, 1), (0, 1, 1), (1, 0, 2)], [(1, 1), (2, 1)]
    assert of_grants(grants, least) == [3 + BOTH, 3 + WORKER, BOTH, 3 + SERVER, 3 + SERVER]
    assert of_counts([Grant(2, 1), Grant(3, 1), Grant(0, 0)], [(1, 1), (2, 1), (4, 4)]) == [
        3 + BOTH,
        BOTH,
        3 + WORKER,
        WORKER,
    ]


def test_actions_of_counts_go_round_robin():
    wanted = [BOTH, 6 + BOTH, WORKER, 6 + SERVER, 6 + SERVER]
    assert of_counts([Grant(2, 1), Grant(0, 0), Grant(1, 3)], [(1, 1)] * 3) == wanted


# ---- online ----------------------------------------------------------------------------------------------------------


def online(path, start=None, **settings):
    folder = RunFolder(path)
    if start is not None:
        folder.begin({})
    parts = {"actor": ActorSettings(passes=1), "critic": CriticSettings(steps=100)}
    chosen = OnlineSettings(**{"lanes": 2, "checkpoint_every": 2, "judge_every": 100, **parts, **settings})
    return Online(folder, LESSONS, SPEEDS, chosen, start)


@pytest.mark.slow
def test_a_run_that_goes_on_is_as_one_that_never_stopped(taught, tmp_path):
    online(tmp_path / "whole", taught[0]).run(ENDLESS, 3, lambda *_: None)
    online(tmp_path / "parts", taught[0]).run(ENDLESS, 2, lambda *_: None)
    online(tmp_path / "parts").run(ENDLESS, 3, lambda *_: None)
    whole, parts = load(tmp_path / "whole").arrays, load(tmp_path / "parts").arrays
    assert all(np.array_equal(whole[name], parts[name]) for name in whole)
    assert not np.array_equal(whole["base.weight"], load(taught[0].path).arrays["base.weight"])
    curves = [(tmp_path / name / "learning.csv").read_text() for name in ("whole", "parts")]
    assert curves[0] == curves[1]
    assert [row["step"] for row in csv.DictReader(curves[0].splitlines())] == ["1", "2", "3"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_it_improves_on_its_teacher(taught, tmp_path):
    """On a tiny cluster, in seconds, from DRF's decisions and what came of its own."""
    run = online(tmp_path / "better", taught[0], lanes=4, actor=ActorSettings(), critic=CriticSettings(steps=300))
    before = run.judge()[0]
    run.run(ENDLESS, 8, lambda *_: None)
    assert run.judge()[0] < 0.9 * before
    saved = roll_out(Clusters(LESSONS.validation(4), SPEEDS, SPEEDS.models), load(tmp_path / "better"))
    assert saved.completion.mean() == pytest.approx(run.judge()[0])


@pytest.mark.slow
def test_until_a_job_has_ended_the_policy_stays_as_it_is(taught, tmp_path):
    run = online(tmp_path / "first", taught[0])
    before = run.judge()
    assert "actor/cross_entropy" not in run.update()
    assert run.judge() == before
    assert "actor/cross_entropy" in run.update()


def test_settings_as_they_are_written():
    settings = OnlineSettings(lanes=2, critic=CriticSettings(members=3))
    written = json.loads(json.dumps(asdict(settings)))
    assert (
        OnlineSettings.of(written)
        == OnlineSettings.of({**written, "actor": {**written["actor"], "least": 1}})
        == settings
    )
