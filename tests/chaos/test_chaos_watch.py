"""When a job's steps stood, and when they went on."""

from tests.chaos.watch import Steps


def seen(*looks):
    steps = Steps(10.0, 100)
    for now, count in looks:
        steps.look(now, count)
    return steps


def test_steps_went_on_for_good_behind_the_last_time_that_they_stood():
    steps = seen((10.1, 105), (12.0, 105), (13.5, 106), (13.6, 110), (15.5, 111), (15.6, 112))
    assert (steps.trained, steps.count, steps.grew) == (5.5, 112, 15.6)
    assert round(steps.stood, 6) == 3.4


def test_steps_that_never_stood():
    assert seen((10.5, 101), (11.2, 102)).trained == 0.0


def test_steps_that_stand_still_have_not_gone_on():
    assert seen((10.5, 101), (30.0, 101)).trained == 0.0
