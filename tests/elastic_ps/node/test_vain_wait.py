"""How long a node waits that can do nothing without its coordinator."""

from elastic_ps.node.vain_wait import AWAY_SECONDS, VainWait

MOMENT = 0.5


def test_who_does_not_train_waits_for_a_day_and_no_longer() -> None:
    wait = VainWait()
    assert not wait.look(100.0, 7, awake=True)
    assert not wait.look(100.0 + AWAY_SECONDS - MOMENT, 7, awake=True)
    assert wait.look(100.0 + AWAY_SECONDS, 7, awake=True)


def test_who_trains_on_goes_on_without_a_coordinator() -> None:
    wait = VainWait()
    assert not any(wait.look(3600.0 * hour, hour, awake=True) for hour in range(100))


def test_a_step_that_takes_days_is_no_matter_while_the_coordinator_answers() -> None:
    wait = VainWait()
    assert not any(wait.look(AWAY_SECONDS * day, None, awake=True) for day in range(10))
    assert not wait.look(AWAY_SECONDS * 10 - MOMENT, 7, awake=True)
    assert not wait.look(AWAY_SECONDS * 10, None, awake=True)
    assert not wait.look(AWAY_SECONDS * 11 - MOMENT, 7, awake=True)


def test_a_process_that_has_stood_still_begins_to_wait_when_it_goes_on() -> None:
    wait = VainWait()
    wait.look(0.0, 7, awake=True)
    assert not wait.look(2 * AWAY_SECONDS, 7, awake=False)
    assert not wait.look(3 * AWAY_SECONDS - MOMENT, 7, awake=True)
    assert wait.look(3 * AWAY_SECONDS, 7, awake=True)
