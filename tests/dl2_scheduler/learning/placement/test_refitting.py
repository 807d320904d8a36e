"""A model of speeds that is fitted anew to what slots measured: better on what was held out, or the old one stays."""

import json
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.hardware.measured import MeasuredJob, MeasuredPlacement
from dl2_scheduler.cluster.hardware.measured_table import arrays_of
from dl2_scheduler.cluster.interfaces import SlotOutcome
from dl2_scheduler.cluster.jobs import Node
from dl2_scheduler.learning.live import refit_program
from dl2_scheduler.learning.live.refit import Refitter, model_to_refit
from dl2_scheduler.learning.live.refit_program import LiveRefitter
from dl2_scheduler.learning.placement import refitting
from dl2_scheduler.learning.placement.refitting import LEAST_NEW, Refit, known_rows, refitted
from dl2_scheduler.live.history import History
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
    found = refitted(drawn_model(), [], Truth(drawn_model(), 0.6).rows(60))
    assert found.held_out >= 15
    assert found.before == pytest.approx(2 / 3, abs=0.01)  # it predicts 1 where 0.6 is measured
    assert found.error < 0.75 * found.before
    assert found.pays


@pytest.mark.parametrize("pays", [True, False])
def test_what_is_worse_is_not_kept(monkeypatch, tmp_path, pays):
    monkeypatch.setattr(refitting, "_UPDATES", 30)
    save_speed_model(tmp_path / "model", drawn_model())
    before = (tmp_path / "model/speeds.npz").read_bytes()
    rows = Truth(drawn_model(), 0.01 if pays else 1.0).rows(2 * LEAST_NEW)  # all wrong, or all as it says already
    with closing(history_of(tmp_path, rows)) as history:
        refitter = LiveRefitter(tmp_path / "model", tmp_path, history)
        said = refitter.look()
        assert said["written"] is pays
        assert (said["error"] <= said["before"]) is pays
        assert ((tmp_path / "model/speeds.npz").read_bytes() != before) is pays
        assert open_speed_model(tmp_path / "model").models == MODELS
        assert refitter.look() is None  # nothing is new
    with closing(History.of_folder(tmp_path)) as history:
        assert LiveRefitter(tmp_path / "model", tmp_path, history).look() is None  # nor after a restart


def test_a_model_that_others_write_meanwhile_is_theirs(monkeypatch, tmp_path):
    model = tmp_path / "model"
    save_speed_model(model, drawn_model())
    other = drawn_model(seed=1)

    def overtaken(*known, seed):
        save_speed_model(model, other)  # as `dl2 fit --places` does, or another `dl2 serve`
        return Refit(drawn_model(seed=2).speeds, 0.0, 1.0, 1, 1)

    monkeypatch.setattr(refit_program, "refitted", overtaken)
    with closing(history_of(tmp_path, Truth(drawn_model()).rows(2 * LEAST_NEW))) as history:
        refitter = LiveRefitter(model, tmp_path, history)
        assert refitter.look() is None
        theirs, kept = other.speeds.arrays, open_speed_model(model).speeds.arrays
        assert all((kept[name] == theirs[name]).all() for name in theirs)
        monkeypatch.setattr(refit_program, "refitted", lambda *known, seed: Refit(other.speeds, 0.0, 1.0, 1, 1))
        assert refitter.look()["written"]  # the next slot fits to theirs


def history_of(folder, rows):
    """The history of a cluster whose slots measured these placements."""
    history = History(folder / "decisions.sqlite")
    for number, row in enumerate(rows):
        (slot, *_) = Life([ONE]).slots()
        nodes = tuple(Node(f"node-{place}", {"slots": 8.0}) for place in range(2))
        history.decided(0.0, "drf", replace(slot.snapshot, slot=number, nodes=nodes), slot.allocation)
        history.happened(SlotOutcome(number, (), (), 0.0, 1.0, row))
    return history


def test_too_few_new_placements_or_unknown_types_fit_nothing(tmp_path):
    save_speed_model(tmp_path / "model", drawn_model())
    odd = MeasuredPlacement((MeasuredJob("never-seen", (0,), (1,), (3.0,)),))
    rows = Truth(drawn_model()).rows(LEAST_NEW - 1)
    with closing(history_of(tmp_path, [*rows, *[odd] * LEAST_NEW])) as history:
        assert LiveRefitter(tmp_path / "model", tmp_path, history).look() is None
    assert known_rows([odd], MODELS) == []


def test_a_damaged_state_takes_all_slots_for_new(tmp_path, caplog):
    save_speed_model(tmp_path / "model", drawn_model())
    (tmp_path / refit_program.STATE_FILE).write_text("[")
    with closing(history_of(tmp_path, [])) as history:
        assert LiveRefitter(tmp_path / "model", tmp_path, history).look() is None
    assert "all slots are taken for new" in caplog.text


def test_what_the_program_says_is_told(tmp_path, monkeypatch):
    found = Refitter(tmp_path / "model", tmp_path)
    assert found.summary.endswith("model: not fitted anew yet")
    said = {"slot": 12, "written": True, "error": 0.06, "before": 0.09, "held_out": 8, "rows": 31}
    lines = [json.dumps(said), json.dumps(said | {"written": False}), json.dumps({"trouble": "no luck"})]
    monkeypatch.setattr(found._side, "heard", lambda: [lines.pop(0)])
    found.before(13)
    assert found.summary.endswith(
        "model: fitted anew after slot 12: 6.0% off 8 placements that it was not fitted to, 9.0% before; "
        "31 placements of live slots"
    )
    found.before(14)
    assert "kept, as a new fit would be worse after slot 12" in found.summary
    found.before(15)
    assert found.summary.endswith("model: no luck")


def test_what_has_no_model_of_speeds_cannot_be_fitted_anew(tmp_path):
    for name in ("spread", "best-fit", f"local-search:{tmp_path}"):
        with pytest.raises(BadInput, match=f"--refit: {name} has no model of speeds"):
            model_to_refit(name)
    save_speed_model(tmp_path, drawn_model())
    assert model_to_refit(f"local-search:{tmp_path}") == tmp_path
