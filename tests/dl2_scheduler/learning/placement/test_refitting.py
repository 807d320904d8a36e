"""A model of speeds that is fitted anew to what slots measured: better on what was held out, or the old one stays."""

import errno
import json
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.hardware.measured import MeasuredJob, MeasuredPlacement, merged
from dl2_scheduler.cluster.hardware.measured_table import arrays_of
from dl2_scheduler.cluster.interfaces import SlotOutcome
from dl2_scheduler.cluster.jobs import Node
from dl2_scheduler.learning.live import refit_program
from dl2_scheduler.learning.live.refit import Refitter, model_to_refit
from dl2_scheduler.learning.live.refit_program import LiveRefitter
from dl2_scheduler.learning.live.slot_placements import SlotPlacements
from dl2_scheduler.learning.placement import refitting
from dl2_scheduler.learning.placement.refitting import (
    LEAST_HELD_OUT,
    LEAST_NEW,
    Refit,
    is_held_out,
    refitted,
)
from dl2_scheduler.live.history import History
from dl2_scheduler.policies.learnt.placer_files import open_speeds
from dl2_scheduler.policies.placement.speed_model import open_speed_model, save_speed_model
from tests.dl2_scheduler.policies.placement.fitted import MODELS, drawn_model
from tests.dl2_scheduler.replay.test_costs import ONE, Life


class Truth:
    """Speeds of a machine that is `slow` where the model thinks otherwise."""

    def __init__(self, model, slow=1.0):
        self.model, self.slow = model, slow

    def rows(self, count, seed=0):
        rng, rows = np.random.default_rng(seed), []
        for _ in range(count):
            jobs = tuple(
                MeasuredJob(str(rng.choice(MODELS)), *(tuple(rng.integers(2, size=n).tolist()) for n in (1, 2)), (1.0,))
                for _ in range(int(rng.integers(1, 4)))
            )
            rates = self.model.rates(arrays_of(MeasuredPlacement(jobs), MODELS)) * self.slow
            rows.append(
                MeasuredPlacement(tuple(replace(j, speeds=(float(r),)) for j, r in zip(jobs, rates, strict=True)))
            )
        return rows


@pytest.mark.slow
def test_a_model_learns_from_the_slots_what_it_had_wrong(monkeypatch):
    monkeypatch.setattr(refitting, "_UPDATES", 150)
    model = drawn_model()
    found = refitted(model, model.speeds, merged(Truth(model, 0.6).rows(60)))
    assert len(found.before) >= 15
    assert found.before.mean() == pytest.approx(2 / 3, abs=0.01)  # it predicts 1 where 0.6 is measured
    assert (found.before == found.first).all()
    assert found.errors.mean() < 0.75 * found.before.mean()
    assert found.pays


ERRORS = np.random.default_rng(3).uniform(0.02, 0.1, 30)


def judged(errors, before=ERRORS, first=ERRORS):
    return Refit(drawn_model().speeds, np.array(errors), np.array(before), np.array(first), 60)


def test_a_fit_has_to_be_better_for_sure():
    assert judged(ERRORS * 0.8).pays
    assert not judged(ERRORS).pays
    noise = np.random.default_rng(0).normal(0, 0.03, 30)
    assert (ERRORS + noise).mean() < ERRORS.mean()  # as it happens
    assert not judged(ERRORS + noise).pays
    few = LEAST_HELD_OUT - 1
    assert not judged(ERRORS[:few] * 0.5, ERRORS[:few], ERRORS[:few]).pays


def test_fits_that_are_better_by_luck_never_lead_away_from_the_first_model():
    """Each of 300 fits differs from the first model by chance alone, as it does at ever other placements."""
    rng, before, written = np.random.default_rng(1), ERRORS, []
    for _ in range(300):
        found = judged(ERRORS + rng.normal(0, 0.01, 30) + 0.001, before)
        if found.pays or found.goes_back:
            before = found.errors if found.pays else ERRORS
            written.append(before.mean())
    assert len(written) < 30
    assert max(written, default=0.0) <= ERRORS.mean()


def test_a_model_that_became_worse_than_the_first_gives_way_to_it():
    found = judged(ERRORS * 1.1, before=ERRORS * 1.3)
    assert (found.pays, found.goes_back) == (False, True)
    assert not judged(ERRORS * 1.1).goes_back


def test_what_the_cluster_has_is_rehearsed(monkeypatch):
    """Jobs of nine tasks on twelve groups, four of them at once."""
    model, rng = drawn_model(), np.random.default_rng(0)
    large = [
        MeasuredPlacement(
            tuple(
                MeasuredJob(
                    MODELS[0], tuple(rng.integers(12, size=5).tolist()), tuple(rng.integers(12, size=4)), (1.0,)
                )
                for _ in range(4)
            )
        )
        for _ in range(9)
    ]
    taught = refitting._taught(model, large, rng)
    assert {len(row.jobs) for row in taught} == {1, 2, 3, 4}
    as_large = [row for row in taught if len(row.jobs) == 4]
    assert len(as_large) >= 150
    assert {(len(job.workers), len(job.servers)) for row in as_large for job in row.jobs} == {(5, 4)}
    assert max(group for row in as_large for job in row.jobs for group in job.workers) == 11
    assert {job.model for row in as_large for job in row.jobs} == set(MODELS)


@pytest.mark.parametrize("pays", [True, False])
def test_what_is_worse_is_not_kept(monkeypatch, tmp_path, pays):
    monkeypatch.setattr(refitting, "_UPDATES", 30)
    save_speed_model(tmp_path / "model", drawn_model())
    before = (tmp_path / "model/speeds.npz").read_bytes()
    rows = Truth(drawn_model(), 0.01 if pays else 1.0).rows(2 * LEAST_NEW)  # all wrong, or all as it says already
    with closing(history_of(tmp_path, rows)) as history:
        refitter = LiveRefitter(tmp_path / "model", tmp_path, history)
        said = refitter.look()
        assert (said["written"], said["back"]) == (pays, False)
        assert (said["error"] <= said["before"] == said["first"]) is pays
        assert said["held_out"] >= LEAST_HELD_OUT
        assert ((tmp_path / "model/speeds.npz").read_bytes() != before) is pays
        assert open_speed_model(tmp_path / "model").models == MODELS
        assert refitter.look() is None  # nothing is new
    with closing(History.of_folder(tmp_path)) as history:
        assert LiveRefitter(tmp_path / "model", tmp_path, history).look() is None  # nor after a restart


def test_a_model_that_others_write_meanwhile_is_theirs(monkeypatch, tmp_path):
    model = tmp_path / "model"
    save_speed_model(model, drawn_model())
    other = drawn_model(seed=1)

    def better(*known, seed):
        return Refit(drawn_model(seed=2).speeds, ERRORS / 2, ERRORS, ERRORS, 1)

    def overtaken(*known, seed):
        save_speed_model(model, other)  # as `dl2 fit --places` does, or another `dl2 serve`
        return better(seed=0)

    monkeypatch.setattr(refit_program, "refitted", overtaken)
    with closing(history_of(tmp_path, Truth(drawn_model()).rows(2 * LEAST_NEW))) as history:
        refitter = LiveRefitter(model, tmp_path, history)
        assert refitter.look() is None
        theirs, kept = other.speeds.arrays, open_speed_model(model).speeds.arrays
        assert all((kept[name] == theirs[name]).all() for name in theirs)
        monkeypatch.setattr(refit_program, "refitted", better)
        assert refitter.look()["written"]  # the next slot fits to theirs
        first = open_speeds(tmp_path / refit_program.FIRST_FOLDER)[1]
        assert all((first.arrays[name] == theirs[name]).all() for name in theirs)


def test_the_first_model_outlives_fits_and_restarts_and_comes_back(monkeypatch, tmp_path):
    model, first, second = tmp_path / "model", drawn_model(), drawn_model(seed=2)
    save_speed_model(model, first)
    fits = [ERRORS / 2, ERRORS * 3]  # the first is better; the second is not, and the first one has become better

    def fitted(_, at_first, rows, seed):
        assert all((at_first.arrays[name] == first.speeds.arrays[name]).all() for name in at_first.arrays)
        errors = fits.pop(0)
        return Refit(second.speeds, errors, ERRORS if fits else 2 * ERRORS, ERRORS, 1)

    monkeypatch.setattr(refit_program, "refitted", fitted)
    rows = Truth(first).rows(4 * LEAST_NEW)
    with closing(history_of(tmp_path, rows[: 2 * LEAST_NEW])) as history:
        assert LiveRefitter(model, tmp_path, history).look()["written"]
    name = next(iter(first.speeds.arrays))
    assert (open_speed_model(model).speeds.arrays[name] == second.speeds.arrays[name]).all()
    with closing(history_of(tmp_path, rows)) as history:
        said = LiveRefitter(model, tmp_path, history).look()
    assert (said["written"], said["back"]) == (False, True)
    assert (open_speed_model(model).speeds.arrays[name] == first.speeds.arrays[name]).all()


def test_a_folder_that_cannot_be_written_is_found_before_anything_is_fitted(monkeypatch, tmp_path):
    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    save_speed_model(tmp_path / "model", drawn_model())
    monkeypatch.setattr(refit_program, "refitted", lambda *known, seed: pytest.fail("it was fitted"))
    monkeypatch.setattr(refit_program.os, "fsync", full)
    told = r"cannot take a new model of \d+ bytes, so that none is fitted: .*No space"
    rows = Truth(drawn_model()).rows(2 * LEAST_NEW)
    with closing(history_of(tmp_path, rows)) as history, pytest.raises(BadInput, match=told):
        LiveRefitter(tmp_path / "model", tmp_path, history).look()
    monkeypatch.setattr("dl2_scheduler.learning.live.refit.os.access", lambda path, mode: path != tmp_path / "model")
    with pytest.raises(BadInput, match=r"--refit: .*/model cannot be written: give a folder that can, or leave it out"):
        model_to_refit(f"local-search:{tmp_path}/model")


def test_what_was_measured_again_costs_nothing_more_and_old_placements_are_forgotten(monkeypatch):
    found, asked = SlotPlacements(most=3), []
    rows = Truth(drawn_model()).rows(5)
    for row in (*rows[:3], *[rows[0]] * 50, rows[3]):
        found.add(row)
    assert len(found.keys(MODELS)) == 3
    kept = found.rows(MODELS)
    assert [row.key for row in kept] == [rows[index].key for index in (2, 0, 3)]
    assert [len(row.jobs[0].speeds) for row in kept] == [1, 9, 1]
    monkeypatch.setattr("dl2_scheduler.cluster.hardware.measured.canonical", lambda jobs: asked.append(jobs))
    assert len(found.keys(MODELS)) == 3  # what is asked in each slot orders nothing anew
    assert len(found.keys(MODELS[:1])) < 3
    assert not asked
    monkeypatch.undo()
    later = SlotPlacements(most=3)
    later.add(rows[4])
    found.take(later)
    assert [row.key for row in found.rows(MODELS)] == [rows[index].key for index in (0, 3, 4)]
    assert later.keys(MODELS) == set()


def history_of(folder, rows):
    """The history of a cluster whose slots measured these placements."""
    history = History(folder / "decisions.sqlite")
    for number, row in enumerate(rows):
        (slot, *_) = Life([ONE]).slots()
        nodes = tuple(Node(f"node-{place}", {"slots": 8.0}) for place in range(2))
        history.decided(0.0, "drf", replace(slot.snapshot, slot=number, nodes=nodes), slot.allocation)
        history.happened(SlotOutcome(number, (), (), 0.0, 1.0, row))
    return history


class LongHistory:
    """A `LongHistory` of 100,000 slots notes after which one it is read."""

    def __init__(self):
        self.read, self.next_slot = [], 100_000

    def slot_before(self, most_slots):
        return 99_999 - most_slots

    def slots(self, after=-1):
        self.read.append(after)
        return iter(())


@pytest.mark.parametrize("fitted", [None, 50, 99_990, 200_000])  # the last of a history that was deleted since
def test_of_a_long_history_the_last_slots_are_read(tmp_path, fitted):
    """To read all takes longer than a fit may: the program would be ended, and begin anew, for ever."""
    model, history = tmp_path / "model", LongHistory()
    save_speed_model(model, drawn_model())
    if fitted is not None:
        state = {"model": str(model.resolve()), "slot": fitted}
        (tmp_path / refit_program.STATE_FILE).write_text(json.dumps(state))
    assert LiveRefitter(model, tmp_path, history).look() is None
    assert history.read == [89_999]


def test_too_few_new_placements_or_unknown_types_fit_nothing(tmp_path):
    save_speed_model(tmp_path / "model", drawn_model())
    odd = MeasuredPlacement((MeasuredJob("never-seen", (0,), (1,), (3.0,)),))
    rows = Truth(drawn_model()).rows(LEAST_NEW - 1)
    with closing(history_of(tmp_path, [*rows, *[odd] * LEAST_NEW])) as history:
        assert LiveRefitter(tmp_path / "model", tmp_path, history).look() is None
    found = SlotPlacements(9)
    found.add(odd)
    assert (found.keys(MODELS), found.rows(MODELS), found.keys(("never-seen",))) == (set(), [], {odd.key})


def test_too_few_held_out_fit_nothing(monkeypatch, tmp_path):
    save_speed_model(tmp_path / "model", drawn_model())
    monkeypatch.setattr(refit_program, "refitted", lambda *known, seed: pytest.fail("it was fitted"))
    rows = [row for row in Truth(drawn_model()).rows(6 * LEAST_NEW) if not is_held_out(row.key)]
    with closing(history_of(tmp_path, rows)) as history:
        assert LiveRefitter(tmp_path / "model", tmp_path, history).look() is None


def test_a_damaged_state_takes_all_slots_for_new(tmp_path, caplog):
    save_speed_model(tmp_path / "model", drawn_model())
    (tmp_path / refit_program.STATE_FILE).write_text("[")
    with closing(history_of(tmp_path, [])) as history:
        assert LiveRefitter(tmp_path / "model", tmp_path, history).look() is None
    assert "all slots are taken for new" in caplog.text


def test_what_the_program_says_is_told(tmp_path, monkeypatch):
    found = Refitter(tmp_path / "model", tmp_path)
    assert found.summary.endswith("model: not fitted anew yet")
    numbers = {"error": 0.06, "before": 0.09, "first": 0.12, "held_out": 11, "rows": 31}
    said = {"slot": 12, "written": True, "back": False, **numbers}
    kept = said | {"written": False}
    lines = [json.dumps(each) for each in (said, kept, kept | {"back": True}, {"trouble": "no luck"})]
    monkeypatch.setattr(found._side, "heard", lambda: [lines.pop(0)])
    found.before(13)
    assert found.summary.endswith(
        "model: fitted anew after slot 12: a new fit is 6.0% off 11 placements that nothing was fitted to, "
        "the one before 9.0%, the first 12.0%; 31 placements of live slots"
    )
    found.before(14)
    assert "kept, as a new fit is not surely better after slot 12" in found.summary
    found.before(15)
    assert "set back to the first one, as fits had made it worse after slot 12" in found.summary
    found.before(16)
    assert found.summary.endswith("model: no luck")


def test_what_has_no_model_of_speeds_cannot_be_fitted_anew(tmp_path):
    for name in ("spread", "best-fit", f"local-search:{tmp_path}"):
        with pytest.raises(BadInput, match=f"--refit: {name} has no model of speeds"):
            model_to_refit(name)
    save_speed_model(tmp_path, drawn_model())
    assert model_to_refit(f"local-search:{tmp_path}") == tmp_path
