"""Policies of a running scheduler, whose folder is fitted anew meanwhile."""

import logging

import pytest

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.policies.learnt_names import absolute
from dl2_scheduler.policies.placement.registry import NamedPlacement, folder_of
from dl2_scheduler.policies.placement.reopened import ReopenedPlacement, following
from dl2_scheduler.policies.placement.speed_model import PROFILES_FILE, save_speed_model
from tests.dl2_scheduler.policies.placement.fitted import MODELS, drawn_model
from tests.dl2_scheduler.policies.placement.test_placement_policies import job, view_of

VIEW = view_of([job(0, "ctc"), job(1, "wlm")])
NODES = ("n0", "n1", "n2")


def test_what_was_fitted_anew_decides_next(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    save_speed_model(tmp_path, drawn_model(0))
    name = f"local-search:{tmp_path}"
    policy = following(name, folder_of(name))
    before = policy.explain(VIEW, policy.place(VIEW), NODES)
    policy.place(VIEW)
    assert "anew" not in caplog.text
    save_speed_model(tmp_path, drawn_model(1))
    assert policy.explain(VIEW, policy.place(VIEW), NODES) != before
    assert caplog.text.count(f"{name} was fitted anew") == 1
    assert policy.unknown([*MODELS, "new"]) == ["new"]


def test_a_folder_that_is_damaged_meanwhile_changes_nothing_and_is_told_once(tmp_path, caplog):
    save_speed_model(tmp_path, drawn_model(0))
    policy = ReopenedPlacement(f"lif-own:{tmp_path}", tmp_path)
    places = policy.place(VIEW)
    (tmp_path / PROFILES_FILE).write_text("{")
    assert policy.place(VIEW) == places
    assert policy.place(VIEW) == places
    assert caplog.text.count("stays as it was") == 1
    (tmp_path / PROFILES_FILE).unlink()
    assert policy.place(VIEW) == places


def test_names_without_a_folder_are_what_they_are(tmp_path):
    assert folder_of("best-fit-shortest") is None
    assert folder_of("examples.rules:Mine") is None
    assert isinstance(following("best-fit", None), NamedPlacement)
    with pytest.raises(BadInput, match="is no folder"):
        following(f"lif-own:{tmp_path}/none", tmp_path / "none")
    with pytest.raises(BadInput, match="~nobody-at-all/x: "):
        folder_of("learnt:~nobody-at-all/x")
    with pytest.raises(BadInput, match="~nobody-at-all/x: "):
        absolute("dl2:~nobody-at-all/x")
