"""Speeds fitted online: near what was reported, and sensible where nothing was."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dl2_scheduler.cluster.snapshot import SpeedReport
from dl2_scheduler.policies.rules import speed_fit
from dl2_scheduler.policies.rules.speed_fit import FittedSpeeds, KnownSpeed
from tests.dl2_scheduler.clusters import job
from tests.dl2_scheduler.peers import needs_data, table

COUNT = st.integers(1, 16)
WIDE = job(max_workers=16, max_servers=16)


def report(servers: int, workers: int, speed: float, model: str = "even") -> SpeedReport:
    return SpeedReport(1, model, servers, workers, speed)


def optimus_speed(servers: int, workers: int) -> float:
    """A synchronous step of Optimus (section 3.2): a share of the batch each, exchange with servers, and overhead."""
    return 100.0 / (1.0 / workers + 0.05 + 0.2 * workers / servers + 0.01 * workers + 0.02 * servers)


def test_a_model_that_nobody_has_reported_is_guessed() -> None:
    guess = FittedSpeeds().grid(WIDE)
    assert guess.shape == (17, 17)
    assert (guess[1:, 1:] > 0).all()
    assert not guess[0].any()
    assert not guess[:, 0].any()
    assert guess[4, 4] > guess[1, 1]


def test_a_grid_ends_at_the_jobs_maxima() -> None:
    speeds = FittedSpeeds()
    assert speeds.grid(job(max_workers=3, max_servers=5)).shape == (6, 4)
    assert speeds.grid(job(max_workers=5, max_servers=3)).shape == (4, 6)


@settings(deadline=None, max_examples=50)
@given(st.dictionaries(st.tuples(COUNT, COUNT), st.floats(0.5, 200.0), min_size=1, max_size=12))
def test_any_reports_give_finite_speeds(reports: dict[tuple[int, int], float]) -> None:
    speeds = FittedSpeeds()
    speeds.observe(report(*at, speed) for at, speed in reports.items())
    fitted = speeds.grid(WIDE)
    assert np.isfinite(fitted).all()
    assert (fitted >= 0).all()


def test_a_job_that_stands_says_nothing() -> None:
    speeds, others = FittedSpeeds(), FittedSpeeds()
    for each in (speeds, others):
        each.observe([report(1, 1, 50.0)])
    for told in (7.0, 2.0, *[0.5] * 12):
        speeds.observe([replace(report(1, 1, told), stands=True), replace(report(1, 1, told, "bumpy"), stands=True)])
    assert speeds.models == ("even",)
    assert np.array_equal(speeds.grid(WIDE), others.grid(WIDE))


@pytest.mark.parametrize("lie", [float("nan"), float("inf"), 1e308, 1e-308, -1.0, 0.0])
def test_a_speed_that_cannot_be_says_nothing(lie: float) -> None:
    speeds, others = FittedSpeeds(), FittedSpeeds()
    for each in (speeds, others):
        each.observe([report(1, 1, 50.0)])
    speeds.observe([report(2, 2, lie), report(1, 1, lie, "bumpy")])
    assert speeds.models == ("even",)
    assert np.array_equal(speeds.grid(WIDE), others.grid(WIDE))


def test_speeds_that_are_just_possible_can_be_fitted() -> None:
    speeds = FittedSpeeds(1.0)
    speeds.observe([report(1, 1, 1e-9), report(2, 2, 1e12), report(2, 1, 5.0, "bumpy")])
    assert np.isfinite(speeds.grid(WIDE)).all()
    assert np.isfinite(speeds.drawn(WIDE, np.random.default_rng(1))).all()


def test_what_was_reported_is_nearly_kept() -> None:
    """Although the second of two neighbours is far off any smooth curve."""
    speeds = FittedSpeeds()
    speeds.observe([report(1, 1, 50.0), report(8, 8, 300.0), report(2, 8, 90.0), report(12, 2, 200.0)])
    fitted = speeds.grid(WIDE)
    for at, speed in {(1, 1): 50.0, (8, 8): 300.0, (2, 8): 90.0, (12, 2): 200.0}.items():
        assert fitted[at] == pytest.approx(speed, rel=0.15)


def test_a_job_of_optimus_form_is_recovered() -> None:
    speeds = FittedSpeeds()
    seen = [(1, 1), (2, 1), (1, 4), (4, 4), (8, 4), (4, 12), (16, 16), (16, 6)]
    speeds.observe(report(*at, optimus_speed(*at)) for at in seen)
    truth = np.array([[optimus_speed(servers, workers) for workers in range(1, 17)] for servers in range(1, 17)])
    errors = np.abs(speeds.grid(WIDE)[1:, 1:] / truth - 1)
    assert np.median(errors) < 0.05
    assert errors.max() < 0.35


def test_one_report_tells_of_the_scale() -> None:
    speeds = FittedSpeeds()
    before = speeds.grid(WIDE)[4, 4]
    speeds.observe([report(4, 4, 1000 * before)])
    after = speeds.grid(WIDE)
    assert after[4, 4] == pytest.approx(1000 * before, rel=0.15)
    assert after[8, 8] > 100 * before


def test_reports_of_one_configuration_are_averaged() -> None:
    one, other = FittedSpeeds(), FittedSpeeds()
    one.observe([report(2, 2, 80.0)])
    one.observe([report(2, 2, 120.0)])
    other.observe([report(2, 2, 100.0)])
    assert one.grid(WIDE)[2, 2] == pytest.approx(other.grid(WIDE)[2, 2], rel=0.05)


def test_what_did_not_run_says_nothing() -> None:
    one, other = FittedSpeeds(), FittedSpeeds()
    one.observe([report(2, 2, 80.0), report(3, 3, 0.0)])
    other.observe([report(2, 2, 80.0)])
    assert np.array_equal(one.grid(WIDE), other.grid(WIDE))


def test_a_model_that_nobody_reported_is_like_the_others() -> None:
    """In scale: SRTF would take it for the slowest of all else, whatever it is. Its shape is not learnt from them."""
    speeds = FittedSpeeds()
    before = speeds.grid(WIDE)[1:, 1:]
    speeds.observe([report(2, 2, 80.0, "flat")])
    after = speeds.grid(WIDE)[1:, 1:]
    assert after[1, 1] == pytest.approx(80.0)
    assert after / before == pytest.approx(80.0 / before[1, 1])


BORROWED = {"even": {at: KnownSpeed(optimus_speed(*at), 0.1) for at in [(1, 1), (4, 4), (8, 4), (16, 6)]}}


def test_models_that_nobody_has_reported_for_long_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where an image names a type, each build is another: all that ever were would fill memory, and slow each slot."""
    monkeypatch.setattr(speed_fit, "_MOST_MODELS", 3)
    speeds = FittedSpeeds()
    for build in range(6):
        speeds.observe([SpeedReport("ann", f"img:{build}", 1, 1, 1.0 + build), SpeedReport("bob", "long", 1, 1, 9.0)])
    assert set(speeds.models) == set(speeds.reports) == {"img:4", "img:5", "long"}
    assert speeds.grid(job(model="img:0"))[1, 1] == pytest.approx((5.0 * 6.0 * 9.0) ** (1 / 3)), "as the others"


def test_what_is_usual_is_worked_out_once_until_something_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    scales = FittedSpeeds._scales
    monkeypatch.setattr(FittedSpeeds, "_scales", lambda *given: asked.append(given) or scales(*given))
    speeds = FittedSpeeds()
    for speed in (4.0, 2.0):
        speeds.observe([SpeedReport("a", "known", 1, 1, speed)])
        guessed = [speeds.grid(job(model=f"new-{number}"))[1, 1] for number in range(5)]
        assert guessed == pytest.approx([(4.0 + speed) / 2] * 5)
    assert len(asked) == 2


def test_what_is_borrowed_tells_of_what_nobody_tried_here_and_ones_own_reports_go_first() -> None:
    alone, told = FittedSpeeds(), FittedSpeeds()
    for speeds in (alone, told):
        speeds.observe([report(1, 1, optimus_speed(1, 1)), report(4, 4, 2 * optimus_speed(4, 4))])
    told.borrow(BORROWED)
    truth = optimus_speed(16, 6)
    assert abs(told.grid(WIDE)[16, 6] / truth - 1) < 0.15 < abs(alone.grid(WIDE)[16, 6] / truth - 1)
    assert told.grid(WIDE)[4, 4] == pytest.approx(2 * optimus_speed(4, 4), rel=0.15)
    assert told.reports == alone.reports, "what was borrowed is told to nobody as one's own"
    told.borrow({})
    assert np.array_equal(told.grid(WIDE), alone.grid(WIDE))


def test_a_borrowed_model_is_known_until_it_is_given_back() -> None:
    speeds = FittedSpeeds()
    guess = speeds.grid(WIDE)
    speeds.borrow(BORROWED)
    assert speeds.models == ("even",)
    assert speeds.grid(WIDE)[16, 6] == pytest.approx(optimus_speed(16, 6), rel=0.15)
    assert np.array_equal(speeds.hopeful(0.0).grid(WIDE), speeds.grid(WIDE))
    assert speeds.hopeful(1.0).grid(WIDE)[16, 6] > speeds.grid(WIDE)[16, 6], "it is not as sure as what one saw"
    speeds.borrow({})
    assert speeds.models == ()
    assert np.array_equal(speeds.grid(WIDE), guess)


def test_what_is_less_sure_counts_less() -> None:
    far = {at: 3 * speed.samples_per_second for at, speed in BORROWED["even"].items()}
    found = []
    for spread in (0.05, 0.5):
        speeds = FittedSpeeds()
        speeds.observe([report(*at, optimus_speed(*at)) for at in [(1, 2), (2, 2), (6, 4), (12, 6)]])
        speeds.borrow({"even": {at: KnownSpeed(speed, spread) for at, speed in far.items()}})
        found.append(speeds.grid(WIDE)[8, 4])
    assert found[0] > 1.1 * found[1] > 1.1 * optimus_speed(8, 4)


@needs_data
@pytest.mark.parametrize("model", ["resnet-50", "seq2seq", "dssm"])
def test_real_speeds_are_found(model: str) -> None:
    """Of 12 random points; the top speed of the rest is told within a quarter."""
    truth = table().grids[model][:17, :17]
    rng = np.random.default_rng(3)
    speeds = FittedSpeeds()
    speeds.observe(report(p, w, truth[p, w], model) for p, w in rng.integers(1, 17, (12, 2)).tolist())
    fitted = speeds.grid(job(model=model, max_workers=16, max_servers=16))
    best = np.unravel_index(int(fitted.argmax()), fitted.shape)
    assert truth[best] > 0.75 * truth.max()


def test_a_model_that_becomes_slower_as_a_whole_is_followed_where_nobody_reports_too() -> None:
    """By most of its last ten reports: what the others of a model had told before would hold for ever else."""
    speeds, known = FittedSpeeds(), [(1, 1), (4, 4), (8, 4), (16, 16)]
    speeds.observe(report(*at, optimus_speed(*at)) for at in known * 5)
    before = speeds.grid(WIDE)
    slower = [report(*at, optimus_speed(*at) / 2) for at in known[:2] * 5]
    speeds.observe(slower[:7])
    assert speeds.grid(WIDE)[16, 16] == pytest.approx(before[16, 16], rel=0.1)
    speeds.observe(slower[7:])
    assert speeds.grid(WIDE)[16, 16] == pytest.approx(before[16, 16] / 2, rel=0.1)
    speeds.observe(slower * 3)
    assert speeds.grid(WIDE)[16, 16] == pytest.approx(before[16, 16] / 2, rel=0.1), "it has changed once"


def test_jobs_that_stray_each_its_own_way_change_no_model() -> None:
    speeds, random = FittedSpeeds(), np.random.default_rng(1)
    for _ in range(40):
        speeds.observe(report(4, 4, 80.0 * factor) for factor in random.uniform(0.7, 1.3, 4))
    assert speeds.grid(WIDE)[4, 4] == pytest.approx(80.0, rel=0.06)
