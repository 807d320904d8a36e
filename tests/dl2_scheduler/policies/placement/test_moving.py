"""Moves of running tasks: by hand, where nothing may move, and that no sequence of them goes on for ever."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.hardware.placements import WORKER
from dl2_scheduler.cluster.hardware.view import PlacementView
from dl2_scheduler.cluster.placement.task_moves import MoveCost, MoveTerms, TaskMove, check_moves
from dl2_scheduler.policies.placement.moving import propose_moves
from tests.dl2_scheduler.policies.placement.fitted import MODELS, drawn_model
from tests.dl2_scheduler.policies.placement.test_placement_policies import job, view_of
from tests.sweeps import examples

NAMES = [f"node-{number}" for number in range(4)]
FREE = MoveTerms(MoveCost(0.0, 0.0, ""), 100)


class Crowd:
    """A job is as fast as its slowest task, which shares its group with others' tasks alone."""

    def rates(self, placements):
        rates = np.zeros(len(placements.model))
        for number in np.unique(placements.job).tolist():
            own = placements.group[placements.job == number]
            others = placements.group[placements.job != number]
            rates[number] = min(1.0 / (1 + (others == group).sum()) for group in own)
        return rates


def running(view: PlacementView, speeds) -> PlacementView:
    """All jobs run at the speed that is predicted, and have told how many samples they have."""
    states = tuple(replace(state, job=replace(state.job, samples_per_epoch=2.0)) for state in view.jobs)
    return replace(view, jobs=states, rates=speeds.rates(view.placed), missing=np.zeros_like(view.missing))


def pair(samples: float = 1000.0) -> PlacementView:
    """Two jobs whose tasks are all on the first node."""
    tasks = [(number, role, 0) for number in (0, 1) for role in (0, 1)]
    return running(view_of([job(n, "wlm", samples=samples) for n in (0, 1)], nodes=2, tasks=tasks), Crowd())


def moved(view: PlacementView, move: TaskMove) -> PlacementView:
    placed, free, group = view.placed, view.free.copy(), view.placed.group.copy()
    for role in move.roles:
        own = (placed.job == move.job) & (placed.role == role) & (group == move.source)
        group[np.flatnonzero(own)[-1]] = move.target
        free[move.source] += view.demand[move.job, role]
        free[move.target] -= view.demand[move.job, role]
    return replace(view, placed=replace(placed, group=group), free=free)


def apart() -> PlacementView:
    """The servers are apart, and the workers share the first node."""
    tasks = [(0, 0, 0), (0, 1, 1), (1, 0, 0), (1, 1, 2)]
    return running(view_of([job(n, "wlm", samples=1000.0) for n in (0, 1)], nodes=4, tasks=tasks), Crowd())


def test_a_task_moves_away_from_another_job():
    (move,) = propose_moves(apart(), Crowd(), MoveTerms(MoveCost(2.0, 8.0, " (mean of 3 joins here)"), 1), NAMES)
    assert (move.roles, move.source, move.target) == ((WORKER,), 0, 3)
    assert move.why == (
        f"a worker moves from node-0 to node-3: its steps 50% shorter, those of {1 - move.job} 50% shorter for about "
        "66 min; the move costs 2 s of its training (mean of 3 joins here)"
    )


def test_a_task_moves_for_the_sake_of_others_too():
    (move,) = propose_moves(pair(), Crowd(), replace(FREE, most=1), NAMES)
    assert "its steps as long as before, those of 1 33% shorter" in move.why


@pytest.mark.parametrize(
    ("change", "terms"),
    [
        (lambda view: view, replace(FREE, most=0)),
        (lambda view: view, replace(FREE, still=frozenset((0, 1)))),
        (lambda view: view, replace(FREE, cost=MoveCost(3000.0, 0.0, ""))),
        (lambda view: replace(view, rates=np.array([view.rates[0], 0.0])), FREE),  # the neighbour does not train
        (lambda view: replace(view, free=np.zeros_like(view.free)), FREE),
        (lambda view: replace(view, allowed=np.zeros((2, 2, 4), dtype=bool)), FREE),
    ],
)
def test_nothing_moves(change, terms):
    assert propose_moves(change(apart()), Crowd(), terms, NAMES) == ()


def test_a_job_moves_as_a_whole_where_that_is_better():
    (move,) = propose_moves(pair(), Crowd(), FREE, NAMES)
    assert (move.roles, move.source, move.target) == ((0, 1), 0, 1)
    assert move.why.startswith("2 tasks move from node-0 to node-1: its steps 67% shorter, those of ")


def test_a_task_of_several_is_away_while_it_moves_and_the_last_of_its_role_is_not():
    tasks = [(0, 0, 0), (0, 0, 1), (0, 1, 1), (1, 0, 0), (1, 1, 2)]
    view = running(view_of([job(n, "wlm", 2 - n, samples=1000.0) for n in (0, 1)], nodes=4, tasks=tasks), Crowd())
    terms = MoveTerms(MoveCost(1.0, 40.0, ""), 1, frozenset((1,)))
    (move,) = propose_moves(view, Crowd(), terms, NAMES)
    assert (move.job, move.roles, move.source) == (0, (WORKER,), 0)
    assert "the move costs 1 s" in move.why  # the job is as fast without that worker: the other one is alone


def test_a_model_that_does_not_know_a_neighbour_moves_nothing():
    class Deaf(Crowd):
        def rates(self, placements):
            return super().rates(placements) * [1.0, 0.0]

    assert propose_moves(apart(), Deaf(), FREE, NAMES) == ()


@pytest.mark.parametrize(
    ("move", "problem"),
    [
        (TaskMove(2, (0,), 0, 3, ""), "job 2: it is not there"),
        (TaskMove(1, (0,), 0, 3, ""), "its tasks stay where they are"),
        (TaskMove(0, (0,), 0, 0, ""), "is no move"),
        (TaskMove(0, (0,), 0, 9, ""), "is no move"),
        (TaskMove(0, (), 0, 3, ""), "is no move"),
        (TaskMove(0, (1,), 0, 3, ""), "has no such task in group 0"),
        ("moves", "a str was answered"),
    ],
)
def test_moves_that_cannot_be_done_are_refused(move, problem):
    terms = replace(FREE, most=1, still=frozenset((1,)))
    with pytest.raises(BadInput, match=problem):
        check_moves(apart(), [move], terms)


def test_moves_of_too_many_tasks_or_without_room_are_refused():
    move = TaskMove(0, (0,), 0, 3, "")
    with pytest.raises(BadInput, match="moves of 2 tasks were answered where 1"):
        check_moves(apart(), [move, move], replace(FREE, most=1))
    with pytest.raises(BadInput, match="job 0: it is not there"):
        check_moves(apart(), [move, move], FREE)
    with pytest.raises(BadInput, match="group 3 has no room"):
        check_moves(replace(apart(), free=np.zeros((4, 2))), [move], FREE)
    free = np.zeros((4, 2))
    free[3] = apart().demand[0, 0]  # of one worker: each of the two moves alone has room
    with pytest.raises(BadInput, match="job 1: group 3 has no room"):
        check_moves(replace(apart(), free=free), [move, replace(move, job=1)], FREE)


def test_a_job_is_felt_of_which_only_one_role_is_near():
    """On node-2 job 1's worker halves job 0's speed, whose other worker moves; job 1's server is on a far node."""

    class Whole(Crowd):
        """See `Crowd`: a job that lacks a role is as if it were not there."""

        def rates(self, placements):
            whole = (placements.counts(0) > 0) & (placements.counts(1) > 0)
            return super().rates(placements.of_tasks(whole[placements.job]))

    tasks = [(0, 0, 0), (0, 0, 2), (0, 1, 1), (1, 0, 2), (1, 1, 3), (2, 0, 0), (2, 1, 0)]
    jobs = [job(n, "wlm", 2 - bool(n), samples=1000.0 + n) for n in range(3)]
    terms = replace(FREE, most=1, still=frozenset((1, 2)))
    (move,) = propose_moves(running(view_of(jobs, nodes=4, tasks=tasks), Whole()), Whole(), terms, NAMES)
    assert (move.job, move.source) == (0, 0)
    assert "its steps 33% shorter, those of 2 50% shorter" in move.why


@st.composite
def clusters(draw):
    """Jobs anywhere on four nodes, and a drawn model of speeds."""
    model = drawn_model(draw(st.integers(0, 50)))
    jobs, tasks = [], []
    for number in range(draw(st.integers(1, 4))):
        counts = draw(st.integers(1, 2)), draw(st.integers(1, 2))
        jobs.append(job(number, draw(st.sampled_from(MODELS)), *counts, samples=draw(st.floats(1e3, 1e8))))
        tasks += [(number, role, draw(st.integers(0, 3))) for role in (0, 1) for _ in range(counts[role])]
    return running(view_of(jobs, nodes=4, tasks=tasks), model), model


@given(clusters(), st.integers(1, 3), st.floats(0, 100), st.floats(0, 100))
@settings(max_examples=examples(100), deadline=None)
def test_moves_can_be_done_and_come_to_an_end(cluster, most, stopped, away):
    view, model = cluster
    terms, seen, before = MoveTerms(MoveCost(stopped, away, ""), most), set(), -np.inf
    for _ in range(200):
        value = float(np.log(model.rates(view.placed)).sum())
        assert value > before - 1e-9  # the sum of logarithms of speeds only grows
        before = value
        state = tuple(view.placed.group.tolist())
        assert state not in seen
        seen.add(state)
        moves = propose_moves(view, model, terms, NAMES)
        check_moves(view, moves, terms)
        for move in moves:
            view = moved(view, move)
        if not moves:
            return
        view = running(view, model)
    pytest.fail("it goes on for ever")
