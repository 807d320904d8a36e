"""Whether learning had the time that it needs."""

from pathlib import Path

import pytest

from dl2_scheduler.learning.enough import ENOUGH, Stopwatch, at_rest


def stopwatch(minutes: float, waited: float) -> Stopwatch:
    """One that will have run for so long, and waited so much of it."""
    times, queues = iter([0.0, 60 * minutes]), iter([0.0, 60 * minutes * waited])
    return Stopwatch(lambda: next(times), lambda: next(queues))


def test_too_few_updates_on_a_busy_machine_are_told_with_the_minutes_that_they_need() -> None:
    found = stopwatch(12, 0.71).shortage(17, None, 17)
    assert found is not None
    assert found.sentence(Path("run")) == (
        "17 updates of about 65 in 12 minutes: this machine was busy, 71% of the time went by waiting for a core; "
        "the policy may still improve: go on with `dl2 learn --from run --resume --minutes 34`, "
        "or from the start with --minutes 46"
    )


def test_a_machine_that_was_not_busy_is_not_blamed() -> None:
    found = stopwatch(5, 0.02).shortage(26, None, 26)
    assert found is not None
    assert "busy" not in found.sentence(Path("run"))


def test_minutes_are_those_of_all_updates_where_a_run_goes_on() -> None:
    found = stopwatch(6, 0.0).shortage(30, None, 15)
    assert found is not None
    assert found.minutes == pytest.approx(12)


def test_no_update_at_all_has_no_minutes_to_name() -> None:
    found = stopwatch(0.01, 0.0).shortage(0, None, 0)
    assert found is not None
    assert found.sentence(Path("run")).endswith("go on with `dl2 learn --from run --resume`")


@pytest.mark.parametrize(("updates", "asked"), [(ENOUGH, None), (70, 80), (5, 5)])
def test_enough_or_as_many_as_asked_for_lack_nothing(updates: int, asked: int | None) -> None:
    assert stopwatch(12, 0.9).shortage(updates, asked, updates) is None


@pytest.mark.parametrize(
    ("last", "rests"), [("28.0,23.1", True), ("27.9,23.1", True), ("27.0,23.1", False), ("28.0,22.9", False)]
)
def test_learning_rests_where_two_judgements_agree_on_every_cluster(tmp_path: Path, last: str, rests: bool) -> None:
    curve = tmp_path / "learning.csv"
    curve.write_text(f"step,judged/jct_0,judged/jct_1\n5,40,41\n10,28.0,23.1\n12,,\n15,{last}\n")
    assert at_rest(curve) is rests


def test_one_judgement_or_none_is_no_rest(tmp_path: Path) -> None:
    assert not at_rest(tmp_path / "none.csv")
    (tmp_path / "one.csv").write_text("step,judged/jct_0\n5,40\n")
    assert not at_rest(tmp_path / "one.csv")
