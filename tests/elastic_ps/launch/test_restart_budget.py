"""How many deaths a launcher mends, without a process."""

from hypothesis import given
from hypothesis import strategies as st

from elastic_ps.core.crash_loop import HEALTHY_SECONDS
from elastic_ps.launch.restart_budget import RestartBudget


def spent(allowed: int, *deaths: tuple[float, int]) -> RestartBudget:
    """A budget after deaths at (seconds, version)."""
    budget = RestartBudget(allowed)
    for seconds, version in deaths:
        budget = budget.spend(f"died at {seconds:g}", seconds, version)
    return budget


def test_a_job_that_trains_for_weeks_outlives_any_number_of_deaths() -> None:
    days = [(86400.0 * day, 1000 * day) for day in range(100)]
    assert spent(1, *days).deaths == (f"died at {86400.0 * 99:g}",)


def test_a_crash_loop_ends_the_job_however_long_it_had_trained() -> None:
    loop = [(86400.0 + (HEALTHY_SECONDS - 1) * turn, 50_000 + turn) for turn in range(4)]
    assert not spent(3, *loop[:3]).exhausted
    assert spent(3, *loop).exhausted


def test_steps_that_are_made_again_are_no_work() -> None:
    """It dies at step 70 each time, on its way from its checkpoint at 10, however long that way is."""
    loop = [(2 * HEALTHY_SECONDS * turn, 70) for turn in range(3)]
    assert spent(2, *loop).deaths == ("died at 0", "died at 1200", "died at 2400")
    assert spent(2, *loop, (4 * HEALTHY_SECONDS * 3, 70)).exhausted


def test_what_is_used_up_is_not_given_back() -> None:
    """The coordinator has not ended the job yet, and training goes on meanwhile."""
    assert spent(0, (0.0, 1), (HEALTHY_SECONDS, 2)).exhausted


@given(
    allowed=st.integers(0, 4),
    deaths=st.lists(st.tuples(st.floats(0.0, HEALTHY_SECONDS * 0.9), st.integers(0, 3)), max_size=10),
)
def test_deaths_close_to_each_other_always_add_up(allowed: int, deaths: list[tuple[float, int]]) -> None:
    now, version, budget = 0.0, 0, RestartBudget(allowed)
    for pause, steps in deaths:
        now, version = now + pause, version + steps
        budget = budget.spend("died", now, version)
    assert budget.exhausted == (len(deaths) > allowed)
