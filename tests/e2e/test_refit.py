"""`dl2 serve --refit` as a process: it fits its placement policy's model to the slots of its folder, and says so."""

import pytest

from dl2_scheduler.policies.placement.speed_model import save_speed_model
from tests.dl2_scheduler.learning.placement.test_refitting import Truth, history_of
from tests.dl2_scheduler.policies.placement.fitted import drawn_model
from tests.e2e.test_cluster import serving, until


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_running_cluster_fits_its_model_anew(tmp_path):
    folder, model, log = tmp_path / "state", tmp_path / "model", tmp_path / "serve.log"
    folder.mkdir(mode=0o700)
    save_speed_model(model, drawn_model())
    before = (model / "speeds.npz").read_bytes()
    history_of(folder, Truth(drawn_model(), 0.6).rows(60)).close()
    with serving(folder, log, "--placement", f"local-search:{model}", "--refit") as client:
        found = until(lambda: "fitted anew after" in (told := client.policies().refitting) and told, "a fit", 540)
    assert f"{model}: fitted anew after slot 59: " in found
    assert (model / "speeds.npz").read_bytes() != before
    assert f"refitting: {model} fitted anew after slot 59" in log.read_text()
    assert "Traceback" not in (folder / "logs/refitting.log").read_text()
