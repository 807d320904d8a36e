"""What is compiled before a cluster is served."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from dl2_scheduler.cluster.hardware.view import PlacementView, Places
from dl2_scheduler.cluster.placement.task_moves import MoveTerms, TaskMove
from dl2_scheduler.policies.placement.registry import NamedPlacement, make_placement
from dl2_scheduler.policies.placement.rehearse import rehearse
from dl2_scheduler.policies.placement.speed_model import save_speed_model
from tests.dl2_scheduler.policies.placement.fitted import MODELS, drawn_model


@dataclass
class Listening:
    """A `Listening` policy keeps what it sees, and places by another one; it raises where there is none."""

    by: NamedPlacement | None
    seen: list[PlacementView] = field(default_factory=list)

    def place(self, view: PlacementView) -> Places:
        self.seen.append(view)
        if self.by is None:
            raise RuntimeError("out of order")
        return self.by.policy.place(view)


@dataclass(frozen=True)
class Recorded(NamedPlacement):
    """A `Recorded` placement keeps what it said and which moves it wanted."""

    said: list[dict[int, str]] = field(default_factory=list)
    moved: list[tuple[TaskMove, ...]] = field(default_factory=list)

    def explain(self, view: PlacementView, places: Places, nodes: Sequence[str]) -> dict[int, str]:
        self.said.append(super().explain(view, places, nodes))
        return self.said[-1]

    def moves(self, view: PlacementView, terms: MoveTerms, nodes: Sequence[str]) -> tuple[TaskMove, ...]:
        self.moved.append(super().moves(view, terms, nodes))
        return self.moved[-1]


def test_a_policy_is_asked_beside_a_running_job_and_for_types_that_it_knows_and_does_not(tmp_path):
    save_speed_model(tmp_path, drawn_model(0))
    planner = make_placement(f"local-search:{tmp_path}")
    listening = Listening(planner)
    recorded = Recorded(planner.name, listening, planner.knows)
    rehearse(recorded)
    (view,) = listening.seen
    assert view.placed.job.tolist() == [0, 0]
    assert view.missing.tolist() == [[0, 0], [1, 1], [1, 1]]
    assert [state.job.model for state in view.jobs] == [MODELS[0], MODELS[0], "unknown"]
    assert np.all(view.free >= 0)
    assert [set(each) for each in recorded.said] == [{1, 2}]
    assert len(recorded.moved) == 1


def test_a_policy_that_fails_is_left_to_its_guard(caplog):
    caplog.set_level(logging.INFO)
    rehearse(NamedPlacement("best-fit", Listening(None)))
    assert "best-fit is compiled when it is first asked: out of order" in caplog.text


def test_a_users_own_policy_sees_no_jobs_that_are_not_there(caplog):
    caplog.set_level(logging.INFO)
    own = Listening(None)
    rehearse(NamedPlacement("examples.rules:Mine", own))
    assert own.seen == []
    assert caplog.text == ""
