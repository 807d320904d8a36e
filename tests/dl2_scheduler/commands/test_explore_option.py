"""`dl2 serve --explore`, what `dl2 policy`, `dl2 why` and the metrics say of it, and who `dl2 policy` says decides."""

import json

import pytest
from prometheus_client import generate_latest
from typer.testing import CliRunner

from dl2_scheduler.cli import app
from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.commands.cluster.serving.driving import Driving, driven
from dl2_scheduler.commands.cluster.serving.serve_options import explored_part
from dl2_scheduler.learning.live.exploring import ExplorationObserver
from dl2_scheduler.live.exploration.budget import ExplorationBudget
from dl2_scheduler.live.exploration.explorer import EXPLORATION_FILE, Explorer
from dl2_scheduler.live.exploration.telling import Telling, TellingConfiguration
from dl2_scheduler.live.metrics import ClusterMetrics
from tests.dl2_scheduler.hearing import made
from tests.dl2_scheduler.played_cluster import document


def dl2(*words):
    result = CliRunner().invoke(app, [str(word) for word in words])
    return result.exit_code, result.output


PARTS = [("2%", False, 0.02), ("0.5", True, 0.005), ("0", True, 0.0), ("50%", False, 0.5), (None, True, 0.02)]


@pytest.mark.parametrize(("asked", "learns", "part"), [*PARTS, (None, False, 0.0)])
def test_parts_of_a_cluster(asked, learns, part):
    assert explored_part(asked, learns) == pytest.approx(part)


@pytest.mark.parametrize("asked", ["51", "-1", "", "%", "nan", "two", "2%%", "1e9", "9" * 5000])
def test_what_is_no_part_is_refused(asked):
    with pytest.raises(BadInput, match=r"--explore is .*: give the per cent of the cluster, from 0 to 50%, as in 2%"):
        explored_part(asked, learns=False)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (tmp_path / "dl2").mkdir()
    return tmp_path / "dl2"


def test_what_people_are_told(folder, serve, history, runtime):
    runtime.epochs = 4000.0
    cluster = serve()
    with driven(cluster, cluster.desk, history, folder, Driving("drf", guard=None, explore=0.5)) as loop:
        assert (
            json.loads(dl2("policy", "--json")[1])["exploration"] == "at most 50% of the cluster: 0 times, 0.00% so far"
        )
        (observer,) = (each for each in loop._observers if isinstance(each, ExplorationObserver))
        observer.after = lambda slot: None  # its program is not needed
        cluster.desk.submit(document("a", epochs=4000), folder)
        for slot in range(3):
            loop._decider._explorer._now = lambda slot=slot: 1e9 + 1e4 * slot  # a slot is shorter
            observer.telling = Telling(slot, (TellingConfiguration("digits", 4, 3, ((4, 4, 1.0),), 0.2, 9.0),))
            loop.slot()
        assert (
            "exploring at most 50% of the cluster: once, 25.00% so far; the last in slot 1, a with 3+4"
            in dl2("policy")[1]
        )
        assert "3+4 instead of 4+4 for this slot, to learn: speeds of digits there are known within ±20%" in words(
            dl2("why", "a")[1]
        )
    assert ("scale", "a", 3, 4) in runtime.calls


def words(shown):
    """What is shown, however it was wrapped."""
    return " ".join(shown.split())


def test_without_it_nothing_is_said(folder, serve, history):
    cluster = serve()
    with driven(cluster, cluster.desk, history, folder, Driving("drf", guard=None)):
        shown = dl2("policy")[1]
    assert "exploring" not in shown
    assert "guard     off (--guard-slots 0)\n" in shown
    assert not (folder / EXPLORATION_FILE).exists()


def test_who_stands_in_is_shown_with_all_reasons(folder, serve, history):
    cluster = serve()
    with driven(cluster, cluster.desk, history, folder, Driving("drf", guard=None)) as loop:
        loop._policies.fall_back("it is bad")
        loop._policies.stand_in("drf", "and in dreams the planner is ahead")
        assert made(loop._policies) == "planner"
        shown = dl2("policy")[1]
    assert "policy    drf\ndeciding  planner\nbecause   it is bad; and in dreams the planner is ahead\n" in shown


def test_metrics(folder, serve):
    metrics, explorer = ClusterMetrics(serve().desk), Explorer(0.1, folder, Telling)
    metrics.tell_exploration(explorer)
    explorer.budget = ExplorationBudget(lived=600.0, spent=12.0, jobs=3)
    text = generate_latest(metrics.registry).decode()
    assert "dl2_exploration_jobs 3.0" in text
    assert "dl2_exploration_spent_seconds 12.0" in text
    assert "dl2_exploration_lived_seconds 600.0" in text
