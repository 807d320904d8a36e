"""Runs of the paper's learning on a small cluster: from a teacher, online, stopped and gone on with."""

import csv
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.jobs import Node
from dl2_scheduler.learning.bootstrap import BootstrapSettings
from dl2_scheduler.learning.lessons import Lessons
from dl2_scheduler.learning.paper.analytic import analytical
from dl2_scheduler.learning.paper.bootstrap import PaperNetwork, bootstrap_paper, untrained
from dl2_scheduler.learning.paper.judging import completion_time
from dl2_scheduler.learning.paper.online import PaperOnline
from dl2_scheduler.learning.paper.settings import PaperSettings
from dl2_scheduler.learning.run_folder import RunFolder
from dl2_scheduler.policies.learnt.actions import ACTIONS
from dl2_scheduler.policies.learnt.dl2 import load
from dl2_scheduler.policies.learnt.paper.batched import row_width
from dl2_scheduler.policies.learnt.paper.policy import PaperDl2
from dl2_scheduler.policies.learnt.paper.weights import PaperWeights
from dl2_scheduler.policies.rules.drf import Drf
from dl2_scheduler.sim.shipped import shipped_speeds
from dl2_scheduler.sim.simulator import SimulatedCluster, run

SPEEDS = shipped_speeds()
NODES = tuple(Node(f"n{number}", {"cpu": 8, "gpu": 8}) for number in range(6))
LESSONS = Lessons((NODES,), jobs=8, seed=5)
MODELS = SPEEDS.models
PLACES = 4
WIDTH = row_width(len(MODELS))
OUTPUTS = PLACES * ACTIONS + 1


QUICK = PaperSettings(batch=32, replay=256, checkpoint_every=10**9, judge_every=10**9, validation=2)


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunFolder, dict[str, list[float]]]:
    folder = RunFolder(tmp_path_factory.mktemp("paper") / "run")
    folder.begin({})
    settings = BootstrapSettings(warm_up=0, episodes=4, epochs=10, validation=2)
    network = PaperNetwork(places=8)
    return folder, bootstrap_paper(Drf(), LESSONS, SPEEDS, settings, network, folder, lambda *_: None)


def online(path: Path, start: RunFolder | None = None, settings: PaperSettings = QUICK) -> PaperOnline:
    folder = RunFolder(path)
    if start is not None:
        folder.begin({})
    return PaperOnline(folder, LESSONS, SPEEDS, settings, start)


def arrays(path: Path) -> dict[str, np.ndarray]:
    found = load(path)
    assert isinstance(found, PaperWeights)
    return dict(found.arrays)


@pytest.mark.slow
def test_it_decides_as_its_teacher(taught: tuple[RunFolder, dict[str, list[float]]]) -> None:
    folder, times = taught
    assert times["policy"] == pytest.approx(times["teacher"], rel=0.1)
    rows = list(csv.DictReader((folder.path / "imitation.csv").read_text().splitlines()))
    assert float(rows[-1]["imitation/loss"]) < float(rows[0]["imitation/loss"])
    assert folder.checkpoint()["network"] == "paper"


@pytest.mark.slow
@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"value_network": False},
        {"replay": 0},
        {"epsilon": 0.0},
        {"guided": True},
        {"job_reward": True},
        {"agents": 3},
        {"late_types": ((0, MODELS[2:4]), (3, MODELS))},
    ],
    ids=lambda changed: next(iter(changed), "all"),
)
def test_a_run_that_goes_on_is_as_one_that_never_stopped(
    taught: tuple[RunFolder, dict[str, list[float]]], tmp_path: Path, changed: dict[str, object]
) -> None:
    settings = replace(QUICK, judge_every=10, **changed)
    for name, parts in (("whole", [25]), ("parts", [13, 25])):
        start: RunFolder | None = taught[0]
        for updates in parts:
            online(tmp_path / name, start, settings).run(1e6, updates, lambda *_: None)
            start = None
    whole, parts_of = (RunFolder(tmp_path / name).checkpoint() for name in ("whole", "parts"))
    assert all(torch.equal(whole["policy"][name], parts_of["policy"][name]) for name in whole["policy"])
    assert whole["best"] == parts_of["best"]
    assert not torch.equal(whole["policy"]["out.weight"], taught[0].checkpoint()["policy"]["out.weight"])
    curves = [(tmp_path / name / "learning.csv").read_text() for name in ("whole", "parts")]
    assert curves[0] == curves[1]
    assert "judged/jct_0" in curves[0]


@pytest.mark.slow
def test_the_best_policy_that_was_judged_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = RunFolder(tmp_path / "start")
    start.begin({})
    untrained(PaperNetwork(places=PLACES), MODELS, 1, start)
    times, judged, seen = iter([9.0, 5.0, 7.0, 6.0, 8.0]), [], []

    def judge(cluster: SimulatedCluster, policy: PaperDl2) -> float:
        judged.append(dict(policy._weights.arrays))
        seen.append(cluster.lanes.jobs[0])
        return next(times)

    monkeypatch.setattr("dl2_scheduler.learning.paper.online.completion_time", judge)
    settings = replace(QUICK, judge_every=2, validation=1)
    online(tmp_path / "run", start, settings).run(1e6, 6, lambda *_: None)
    learning = online(tmp_path / "run", None, settings)
    learning.run(1e6, 8, lambda *_: None)
    assert learning.tested() == [8.0]
    assert seen[1] == seen[3] != seen[4], "none was selected by these"
    kept = arrays(tmp_path / "run")
    same = [all(np.array_equal(kept[name], one[name]) for name in kept) for one in judged]
    assert same == [False, True, False, False, True]


@pytest.mark.slow
def test_a_policy_that_an_earlier_judge_chose_is_judged_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs that came late counted less than nothing where it starved others: nothing was ever better."""
    start, folder = RunFolder(tmp_path / "start"), RunFolder(tmp_path / "run")
    start.begin({})
    untrained(PaperNetwork(places=PLACES), MODELS, 1, start)
    times, judged = iter([5.0, 9.0, 6.0, 5.5]), []

    def judge(cluster: SimulatedCluster, policy: PaperDl2) -> float:
        judged.append(dict(policy._weights.arrays))
        return next(times)

    monkeypatch.setattr("dl2_scheduler.learning.paper.online.completion_time", judge)
    settings = replace(QUICK, judge_every=2, validation=1)
    online(folder.path, start, settings).run(1e6, 4, lambda *_: None)
    of_before = {**folder.checkpoint(), "best": [-3.0]}
    del of_before["judge"]
    folder.save_checkpoint(of_before)
    learning = online(folder.path, None, settings)
    assert learning.best == [6.0]
    assert all(np.array_equal(judged[0][name], judged[2][name]) for name in judged[0]), "the policy in the folder"
    learning.run(1e6, 6, lambda *_: None)
    assert learning.best == [5.5]
    kept = arrays(folder.path)
    assert all(np.array_equal(kept[name], judged[3][name]) for name in kept)


@pytest.mark.slow
def test_agents_learn_from_weights_as_old_as_their_last_turn(
    taught: tuple[RunFolder, dict[str, list[float]]], tmp_path: Path
) -> None:
    learning = online(tmp_path / "run", taught[0], replace(QUICK, agents=2))
    for _ in range(16):
        learning.update()
    first, second = learning._sites
    newest = learning.learner.networks.policy.out.weight
    assert torch.equal(second.networks.policy.out.weight, newest)
    assert not torch.equal(first.networks.policy.out.weight, newest)
    assert first.agent is not None
    assert second.agent is not None
    assert first.agent.cluster is not second.agent.cluster


@pytest.mark.slow
def test_it_improves_within_seconds(tmp_path: Path) -> None:
    """From nothing, on jobs that are alike, of which a few fill the cluster; each slot learns from itself."""
    start, folder = RunFolder(tmp_path / "start"), RunFolder(tmp_path / "run")
    start.begin({})
    untrained(PaperNetwork(places=4), ("dssm",), 1, start)
    folder.begin({})
    lessons = Lessons((NODES[:3],), jobs=3, seed=1, models=("dssm",))
    settings = replace(QUICK, learning_rate=5e-3, discount=0.0, entropy=0.0, replay=0)
    learning = PaperOnline(folder, lessons, SPEEDS, settings, start)
    rewards = [learning.update()["explored/reward"] for _ in range(300)]
    assert np.mean(rewards[-150:]) > 1.1 * np.mean(rewards[:50])


def test_what_never_ends_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dl2_scheduler.learning.paper.judging.MOST_SLOTS", 50)
    start = RunFolder(tmp_path)
    start.begin({})
    untrained(PaperNetwork(places=4, minimum=False), MODELS, 0, start)
    arrays = dict(learning_weights(start).arrays)
    arrays["out_bias"] = np.where(np.arange(OUTPUTS) < OUTPUTS - 1, -99.0, 99.0).astype(np.float32)
    episode = LESSONS.episodes(0, 1)[0]
    stops = PaperDl2(PaperWeights(MODELS, False, arrays))
    waited = 50 - np.mean([job.arrival for job in episode.jobs]) / 1200
    assert completion_time(SimulatedCluster(episode.jobs, episode.nodes, SPEEDS), stops) == pytest.approx(waited)


def test_a_job_that_has_not_come_when_others_are_cut_off_counts_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It counted as if it had ended before it came, so that a policy was the better the more it starved others."""
    monkeypatch.setattr("dl2_scheduler.learning.paper.judging.MOST_SLOTS", 10)
    first, *_, last = LESSONS.episodes(0, 1)[0].jobs
    jobs = replace(first, arrival=0.0), replace(last, arrival=30 * 1200.0)
    none = SimpleNamespace(allocate=lambda snapshot, room: room.allocation())
    assert completion_time(SimulatedCluster(jobs, NODES, SPEEDS), none, "nobody") == pytest.approx(10 / 2)
    assert "nobody starves jobs: 2 had not ended after 10 slots, and count as if they ended then" in caplog.messages


def learning_weights(folder: RunFolder) -> PaperWeights:
    found = load(folder.path)
    assert isinstance(found, PaperWeights)
    return found


@pytest.mark.slow
def test_it_is_judged_as_it_would_decide(taught: tuple[RunFolder, dict[str, list[float]]], tmp_path: Path) -> None:
    learning = online(tmp_path / "run", taught[0])
    policy = PaperDl2(learning_weights(taught[0]))
    times = [run(SimulatedCluster(each.jobs, each.nodes, SPEEDS), policy, NodeRule.SPREAD).mean()
             for each in LESSONS.validation(2)]  # fmt: skip
    assert learning.judge() == [pytest.approx(np.mean(times))]


def test_offline_learning_learns_on_a_model_and_is_judged_on_the_truth(
    taught: tuple[RunFolder, dict[str, list[float]]], tmp_path: Path
) -> None:
    model = analytical(SPEEDS)
    assert model.grid("vgg-16")[3, 3] != pytest.approx(SPEEDS.grid("vgg-16")[3, 3])
    assert all((model.grid(name)[1:, 1:] > 0).all() for name in MODELS)
    again = analytical(model)
    assert all(again.grid(name) == pytest.approx(model.grid(name), rel=1e-6) for name in MODELS), "exact for its own"
    folder = RunFolder(tmp_path / "run")
    folder.begin({})
    offline = PaperOnline(folder, LESSONS, model, QUICK, taught[0], judged_on=SPEEDS)
    assert offline.judge() == online(tmp_path / "other", taught[0]).judge()
