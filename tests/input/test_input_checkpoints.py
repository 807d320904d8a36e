"""A run's checkpoint is data: nothing in it runs, and what compiled code indexes by is checked."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from dl2_scheduler.cli import app
from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.learning.actor import Actor, ActorSettings
from dl2_scheduler.learning.critic import Critic, CriticSettings
from dl2_scheduler.learning.experience import Experience, ScalingKind, SlotConfiguration
from dl2_scheduler.learning.live.dreamer import Dreamer
from dl2_scheduler.learning.networks import new_policy
from dl2_scheduler.learning.plain import load_adam, read_plain, restored, write_plain
from dl2_scheduler.learning.run_folder import RunFolder
from dl2_scheduler.learning.sequences import Slots
from dl2_scheduler.policies.learnt.features import width

MODELS = ("a", "b")


class Evil:
    """What runs a command when it is unpickled."""

    def __init__(self, file: Path):
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return exec, (f"open({str(self.file)!r}, 'w').close()",)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run's folder whose checkpoint runs a command."""
    path = tmp_path / "run"
    path.mkdir()
    told = {
        "network": "shared",
        "clusters": ["2x8cpu,8gpu"],
        "speeds": "",
        "jobs": 2,
        "patterns": ["uniform"],
        "seed": 1,
    }
    told["cost"] = {"start": 0.0, "change": 0.0, "join": 0.0}
    (path / "settings.json").write_text(json.dumps({"settings": told}))
    torch.save({"models": MODELS, "updates": 0, "x": Evil(tmp_path / "ran")}, path / "checkpoint.pt")
    return path


def test_learning_runs_nothing_of_it(run: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["learn", "--from", str(run), "--out", str(tmp_path / "out")])
    assert not (tmp_path / "ran").exists()
    assert (result.exit_code, "more than plain data" in result.output) == (2, True), result.output
    assert not (tmp_path / "out").exists()


def test_the_live_learner_runs_nothing_of_it(run: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="more than plain data"):
        Dreamer(RunFolder(run))
    assert not (tmp_path / "ran").exists()


def slots() -> Slots:
    """Of one slot with two jobs: each is given its first tasks, then a stop."""
    return Slots(
        np.zeros((2, width(len(MODELS))), np.float32),
        np.zeros((2, 2), np.float32),
        np.ones((2, 2), np.int64),
        np.full((2, 2), 4),
        np.zeros(2, np.bool_),
        np.full((2, 3), 9),
        np.array([0, 2]),
        np.array([2, 5, -1]),
        np.array([0, 3]),
    )


def state_of_all() -> dict[str, Any]:
    """What online learning writes."""
    actor = Actor(new_policy(MODELS, 1), ActorSettings())
    actor._replay.append(slots())
    experience = Experience(MODELS)
    experience.speeds[SlotConfiguration(1, ScalingKind.START, 2, 3)] = np.float64(7.5), 2
    row = np.ones(width(len(MODELS)), np.float32)
    experience._pending["live", "job"] = [(3, row)]
    experience._finished.append((row, 2.5))
    learnt = {"critic": Critic(MODELS, CriticSettings()).state(), "experience": experience.state()}
    return {**actor.state(), **learnt, "models": MODELS, "updates": 7}


def restore(path: Path) -> tuple[Actor, Critic, Experience]:
    found = read_plain(path)
    made = Actor(new_policy(MODELS, 2), ActorSettings()), Critic(MODELS, CriticSettings()), Experience(MODELS)
    with restored(path):
        made[0].load_state(found)
        made[1].load_state(found["critic"])
        made[2].load_state(found["experience"])
    return made


def test_what_was_learnt_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    write_plain(state_of_all(), path)
    actor, _, experience = restore(path)
    again = {**actor.state(), "experience": experience.state()}
    for name, array in slots().state().items():
        np.testing.assert_array_equal(again["replay"][0][name], array)
    assert experience.speeds == {SlotConfiguration(1, 2, 2, 3): (7.5, 2)}
    assert experience._pending["live", "job"][0][0] == 3
    assert [value for _, value in experience._finished] == [2.5]


def changed(**of_slots: Any) -> Callable[[], dict[str, Any]]:
    return lambda: {**state_of_all(), "replay": [{**slots().state(), **of_slots}]}


def part(name: str, **values: Any) -> Callable[[], dict[str, Any]]:
    def state() -> dict[str, Any]:
        whole = state_of_all()
        return {**whole, name: {**whole[name], **values}}

    return state


@pytest.mark.parametrize(
    ("state", "problem"),
    [
        (changed(actions=np.array([2, 6, -1])), "actions of jobs that are not there"),
        (changed(actions=np.array([2, -2, -1])), "actions of jobs that are not there"),
        (changed(actions=np.array([2.0, 5.0, -1.0])), "instead of an array of int64"),
        (changed(first_job=np.array([0, 10**12])), "do not follow"),
        (changed(first_action=np.array([0, 9])), "do not follow"),
        (changed(first_action=np.array([0, 3, 3])), "not the same in all"),
        (changed(least=np.ones((1, 2), np.int64)), "not the same in all"),
        (changed(least=np.full((2, 2), 10**9)), "cannot be"),
        (changed(rows=np.zeros((2, 3), np.float32)), "instead of an array of float32"),
        (changed(rows=np.full((2, width(2)), np.nan, np.float32)), "not finite"),
        (changed(closed="x"), "instead of an array of int64"),
        (part("experience", speeds={(5, 0, 1, 1): (1.0, 1)}), "no configuration"),
        (part("experience", speeds={(0, 0, -1, 1): (1.0, 1)}), "whole number"),
        (part("experience", speeds={(0, 0, 1, 1): ("fast", 1)}), "a speed of fast"),
        (part("experience", pending={("a", "b"): [("x", np.zeros(2))]}), "damaged"),
        (part("experience", slots=np.array([-1.0])), "took no time"),
        (part("critic", top=np.ones(3)), "top speeds"),
        (part("critic", progress={}), "damaged"),
        (part("policy", share=np.zeros(3, np.float32)), "damaged"),
        (lambda: {**state_of_all(), "optimizer": {"state": {0: {}}}}, "it has no 'exp_avg'"),
    ],
)
def test_what_is_wrong_is_refused(tmp_path: Path, state: Callable[[], dict[str, Any]], problem: str) -> None:
    path = tmp_path / "checkpoint.pt"
    write_plain(state(), path)
    with pytest.raises(BadInput, match=problem):
        restore(path)


def test_moments_of_other_parameters() -> None:
    policy = new_policy(MODELS, 1)
    optimizer = torch.optim.Adam(policy.parameters())
    moments = {"exp_avg": torch.zeros(3), "exp_avg_sq": torch.zeros(3), "step": torch.tensor(1.0)}
    with pytest.raises(ValueError, match="moments of shapes"):
        load_adam(optimizer, {"state": {0: moments}})


def test_what_is_not_plain_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="a checkpoint cannot hold a object"):
        write_plain({"a": [object()]}, tmp_path / "checkpoint.pt")


@pytest.mark.parametrize("content", [b"", b"PK", b"\x80\x04K\x01.", bytes(1000)])
def test_what_is_no_checkpoint(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "checkpoint.pt").write_bytes(content)
    with pytest.raises(BadInput, match="no checkpoint in"):
        read_plain(tmp_path / "checkpoint.pt")
