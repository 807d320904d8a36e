"""Generated jobs: patterns, mixes, and that a seed decides everything."""

from collections import Counter
from itertools import pairwise
from statistics import mean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.sim.arrivals import JOBS_A_SLOT, Pattern, generate
from dl2_scheduler.sim.catalogue import CATALOGUE
from tests.paths import ROOT

every_pattern = pytest.mark.parametrize("pattern", list(Pattern))


@settings(deadline=None)
@given(
    st.sampled_from(Pattern),
    st.integers(1, 80),
    st.integers(0, 2**70),
    st.floats(60, 7200),
    st.floats(0.05, 30),
    st.floats(0, 0.9),
    st.floats(0, 0.9),
)
def test_any_arguments_give_jobs(
    pattern: Pattern, count: int, seed: int, slot: float, rate: float, spread: float, error: float
) -> None:
    options = {"slot_seconds": slot, "rate": rate, "epochs_spread": spread, "estimate_error": error}
    jobs = generate(pattern, count, seed, **options)
    assert jobs == generate(pattern, count, seed, **options)
    assert [job.id for job in jobs] == list(range(1, count + 1))
    assert [job.arrival for job in jobs] == sorted(job.arrival for job in jobs)
    for job in jobs:
        job.check()
        own = CATALOGUE[job.model].epochs
        assert (1 - spread) * own - 0.001 <= job.epochs <= (1 + spread) * own + 0.001
        off = abs(job.estimate - job.epochs)
        assert off == pytest.approx(error * job.epochs, abs=0.002)


def test_google_arrivals_are_two_or_three_at_starts_of_slots() -> None:
    orders = set()
    for seed in range(5):
        arrivals = [job.arrival for job in generate(Pattern.GOOGLE, 600, seed)]
        counts = Counter(arrivals)
        assert all(arrival % 1200 == 0 for arrival in counts)
        inside = [counts[1200.0 * slot] for slot in range(int(arrivals[-1] // 1200))]
        assert set(inside) == {2, 3}
        assert mean(inside) == pytest.approx(JOBS_A_SLOT, rel=0.02)
        orders.add(tuple(inside))
    assert len(orders) == 5


@every_pattern
def test_rates_are_kept(pattern: Pattern) -> None:
    jobs = generate(pattern, 4000, 3, rate=5.0, slot_seconds=600.0)
    assert len(jobs) / (jobs[-1].arrival / 600.0) == pytest.approx(5.0, rel=0.05)


def test_poisson_arrivals_are_independent() -> None:
    arrivals = [job.arrival for job in generate(Pattern.POISSON, 4000, 1)]
    gaps = [after - before for before, after in pairwise(arrivals)]
    usual = 1200 / JOBS_A_SLOT
    assert all(arrival == int(arrival) for arrival in arrivals)
    assert mean(gap < usual for gap in gaps) == pytest.approx(0.632, abs=0.02)


def test_uniform_arrivals_are_even() -> None:
    arrivals = [job.arrival for job in generate(Pattern.UNIFORM, 9, 1, rate=3.0)]
    assert arrivals == [400.0 * number for number in range(9)]


@every_pattern
def test_purposes_do_not_disturb_each_other(pattern: Pattern) -> None:
    plain = generate(pattern, 50, 7)
    other = generate(pattern, 50, 7, epochs_spread=0.5, estimate_error=0.2)
    assert [(job.arrival, job.model) for job in plain] == [(job.arrival, job.model) for job in other]
    assert {job.epochs_estimate for job in plain} == {None}
    assert {job.estimate > job.epochs for job in other} == {True, False}


def test_a_mix() -> None:
    models = Counter(job.model for job in generate(Pattern.UNIFORM, 4000, 1, {"dssm": 3, "wlm": 1, "vgg-16": 0}))
    assert set(models) == {"dssm", "wlm"}
    assert models["dssm"] / 4000 == pytest.approx(0.75, abs=0.02)


def test_without_a_mix_all_models_come() -> None:
    models = Counter(job.model for job in generate(Pattern.GOOGLE, 4000, 1))
    assert set(models) == set(CATALOGUE)
    assert min(models.values()) > 400


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"jobs": 0}, "0 jobs: give at least 1"),
        ({"seed": -1}, "seed -1"),
        ({"slot_seconds": 0.0}, "a slot of 0.0 seconds"),
        ({"rate": 0.0}, "a rate of 0.0 jobs a slot: give a number from 0.001 on"),
        ({"rate": float("nan")}, "a rate of nan"),
        ({"epochs_spread": 1.0}, "epochs spread 1.0: give a part"),
        ({"estimate_error": -0.1}, "estimate error -0.1"),
        ({"models": {"gpt": 1}}, "unknown model gpt: the catalogue has cnn-text-classification, dssm"),
        ({"models": {"dssm": -1}}, "weight -1 of dssm"),
        ({"models": {"dssm": 0}}, "the mix has no model"),
        ({"models": {}}, "the mix has no model"),
    ],
)
def test_what_cannot_be_generated(options: dict[str, object], reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        generate(Pattern.GOOGLE, **{"jobs": 5, "seed": 1, **options})  # type: ignore[arg-type]


def test_the_docs_have_the_catalogue() -> None:
    text = (ROOT / "docs" / "reference" / "traces.md").read_text()
    for name, model in CATALOGUE.items():
        worker = ", ".join(f"{amount} {resource}" for resource, amount in model.worker.items() if amount)
        assert f"| {name} | {model.epochs:,.0f} | {model.samples_per_epoch:.0f} | {worker} |" in text
        assert model.server == {"cpu": 2, "gpu": 0}
