"""Which barriers a worker waits in, and how it names them."""

import pytest

from elastic_ps.core.data_order import DataSpec, Place
from elastic_ps.worker.script.data_position import StepPart
from tests.elastic_ps.worker.played_server import SPLIT

PAIR = ("w0", "w1")
SPEC = DataSpec(True, 73, 8)  # ten steps, the last one of a single sample


@pytest.fixture
def play(scripted):
    return scripted


@pytest.fixture
def named(play):
    """Where the script comes to: a step (None: the epoch is over), "barrier", "end". What its barriers were called."""
    play.begin()

    def run(*ways, spec=SPEC):
        barriers = play.job._barriers
        for way in ways:
            if way == "barrier":
                play.job.barrier()
            elif way == "end":
                barriers.ended()
            else:
                epoch, part = way
                barriers.began(part, epoch, spec)
        return play.session.barriers

    return run


def step(number, roster=PAIR):
    return StepPart(Place(0, number), roster=roster)


def test_barriers_of_static_data_are_counted(named):
    assert named("barrier", "barrier") == [(0, 0, ()), (0, 1, ())]


def test_barriers_are_counted_from_the_last_step_that_was_begun(named):
    before_and_in_steps = "barrier", (1, step(4)), "barrier", "barrier", (1, step(5, ("w0",))), "barrier"
    assert named(*before_and_in_steps, (1, None), "barrier") == [
        (0, 0, ()),
        (29, 0, PAIR),
        (29, 1, PAIR),
        (31, 0, ("w0",)),
        (40, 0, ("w0",)),
    ]


def test_a_worker_reports_in_which_step_its_script_is(play, named):
    named((1, step(4)))
    assert play.node.progress.report(14).place == 29


def test_a_worker_without_samples_in_a_step_does_not_come_to_its_barriers(named):
    assert named((0, step(9)), "barrier", (0, None), "barrier") == [(19, 0, ("w0",)), (20, 0, PAIR)]


def test_the_end_is_one_place_wherever_a_script_has_left_its_loop(named):
    in_the_last_step, behind_it = (0, step(9)), (0, None)
    assert named(in_the_last_step, "end", "barrier", behind_it, "end", "barrier") == [(1 << 62, 0, PAIR)] * 2


def test_barriers_of_a_step_that_is_made_again_have_the_same_names(named):
    assert named((0, step(4)), "barrier", (0, step(4, ("w0",))), "barrier") == [(9, 0, PAIR), (9, 0, ("w0",))]


def test_without_a_common_step_barriers_are_counted_in_the_epoch(named):
    spec = DataSpec(True, 73, 8, consistency="async")
    drawn = StepPart(Place(2, 7))
    assert named((2, drawn), "barrier", (2, drawn), (2, None), "barrier", (3, None), "barrier", spec=spec) == [
        (3, 0, ()),
        (3, 1, ()),
        (4, 0, ()),
    ]


def test_a_shadow_does_not_wait(play):
    play.welcome(play.configuration(1, SPLIT, ["w1", "w2"]))
    play.job.barrier()
    assert not play.session.barriers


@pytest.mark.parametrize("why", ["rehearsal", "again"])
def test_what_does_not_count_does_not_wait(play, why):
    play.begin()
    if why == "rehearsal":
        play.job.rehearse(play.sampler().spec)
    else:
        play.job._step.again = True
    play.job.barrier()
    assert not play.session.barriers
