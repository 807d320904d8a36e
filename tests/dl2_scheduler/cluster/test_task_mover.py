"""A job of which a task was moved rests for as many slots as the page says, while others may move."""

from dl2_scheduler.cluster.placement.task_mover import REST_SLOTS, TaskMover
from dl2_scheduler.cluster.placement.task_moves import MoveCost, TaskMove
from tests.dl2_scheduler.policies.placement.test_moving import NAMES, apart


class Restless:
    """Proposes a move of each job that may move."""

    def moves(self, view, terms, nodes):
        jobs = [job for job in range(len(view.jobs)) if job not in terms.still]
        return tuple(TaskMove(job, (0,), 0, 3, "") for job in jobs)


def test_a_moved_job_rests_and_moves_again():
    mover = TaskMover(Restless(), 2, lambda: MoveCost(0.0, 0.0, ""))
    still = [(1,), *[()] * 5, (0, 1), ()]
    moved = [{move.job for move in mover.moves(apart(), each, NAMES)} for each in still]
    assert REST_SLOTS == 3
    assert moved == [{0}, {1}, set(), set(), {0}, {1}, set(), set()]


def test_nothing_moves_while_nobody_knows_what_it_costs():
    assert TaskMover(Restless(), 2, lambda: None).moves(apart(), (), NAMES) == ()
