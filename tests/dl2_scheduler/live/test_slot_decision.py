"""Policies that fail, answer nonsense, are swapped, or decide beside: the loop goes on."""

import json
import logging
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from dl2_scheduler.cli import app
from dl2_scheduler.cluster.errors import BadInput, ClusterRefused
from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.snapshot import Allocation, Grant
from dl2_scheduler.learning.networks import new_policy
from dl2_scheduler.live.history import History, Shadowed
from dl2_scheduler.live.policies import POLICY_FILE, Policies
from dl2_scheduler.live.service import ClusterService, Notes, serving
from dl2_scheduler.live.slot_decision import UnfitAnswer, answer, answer_or_fall_back
from dl2_scheduler.live.slot_limits import SlotLimits
from dl2_scheduler.live.slot_loop import SlotLoop
from dl2_scheduler.policies.learnt.dl2 import save
from dl2_scheduler.policies.registry import make_live_policy
from dl2_scheduler.policies.rules.drf import Drf
from tests.dl2_scheduler.live.test_slot_limits import snapshot_of
from tests.dl2_scheduler.played_cluster import document


class Answers:
    """A policy that says what it was told to say."""

    def __init__(self, grants):
        self.grants = grants

    def allocate(self, snapshot, room):
        if isinstance(self.grants, Exception):
            raise self.grants
        return Allocation({job: Grant(*counts) for job, counts in self.grants.items()})


@pytest.mark.parametrize(
    ("grants", "words"),
    [
        ({"j0": (8, 8), "j1": (1, 1)}, "its grants do not fit on the nodes"),
        ({"j0": (17, 1)}, "it gave j0 17 workers, which may have 1 to 16, or nothing at all"),
        ({"j0": (1, 0)}, "it gave j0 0 servers, which may have 1 to 16"),
        ({"j0": (-1, 1)}, "it gave j0 -1 workers"),
        ({"j0": (1.5, 1)}, "it gave j0 1.5 workers and 1 servers: not numbers of tasks"),
        ({"x": (1, 1)}, "it gave to x, which is no job of this slot"),
    ],
)
def test_answers_that_cannot_be_done(grants, words):
    snapshot = snapshot_of(16, (0, 0), (0, 0))
    with pytest.raises(UnfitAnswer, match=words):
        answer(Answers(grants), snapshot, NodeRule.SPREAD)
    decided = answer_or_fall_back(Answers(grants), Drf(), snapshot, NodeRule.SPREAD)
    assert words in decided.fault
    assert [grant.workers + grant.servers for grant in decided.draft.allocation.grants.values()] == [8, 8]


def test_an_answer_may_leave_out_who_waits_and_need_not_fill_the_room():
    found = answer(Answers({"j1": (np.int64(3), 2)}), snapshot_of(5, (0, 0), (0, 0)), NodeRule.SPREAD).allocation
    assert (found.grants["j0"].workers, found.grants["j1"].workers) == (0, 3)
    assert found.grants["j1"].reason == "no node has room for more of it"
    assert found.grants["j0"].reason == "waits: 1 of 2 jobs were given the nodes"


class Says:
    """A policy that answers this."""

    def __init__(self, answer):
        self.answer = answer

    def allocate(self, snapshot, room):
        return self.answer


@pytest.mark.parametrize(
    ("said", "shown"),
    [(None, "None"), ("all", "'all'"), (Allocation({"j0": (1, 1)}), "Allocation(grants={'j0': (1, 1)})")],
)
def test_what_is_no_allocation(said, shown):
    decided = answer_or_fall_back(Says(said), Drf(), snapshot_of(4, (0, 0)), NodeRule.SPREAD)
    assert decided.fault == f"it answered {shown}, which is no Allocation of Grants"


def test_reasons_and_counts_of_any_kind_can_be_written_down(tmp_path):
    snapshot = snapshot_of(16, (0, 0), (0, 0))
    said = Says(Allocation({"j0": Grant(True, np.int64(1), "half \ud83d"), "j1": Grant(1, 1, 5)}))
    found = answer(said, snapshot, NodeRule.SPREAD).allocation
    assert found.grants["j0"] == Grant(1, 1, "half ?")
    assert found.grants["j1"].reason == "5"
    with closing(History(tmp_path / "decisions.sqlite")) as history:
        history.decided(7.0, "says", snapshot, found)
        assert history.of("j0", 0.0, 1)[0].reason == "half ?"


@pytest.mark.parametrize(
    "policy",
    [
        Answers(ValueError("a whole snapshot: " + "x" * 1_000_000)),
        Says(Allocation({"j0": Grant(1, 1, "because " + "x" * 1_000_000)})),
        Answers({"x" * 1_000_000: (1, 1)}),
    ],
)
def test_what_a_policy_says_at_length_is_cut(policy):
    """It is written down for each job and slot; Kubernetes takes 256 KiB of annotations, with ten decisions in them."""
    decided = answer_or_fall_back(policy, Drf(), snapshot_of(16, (0, 0), (0, 0)), NodeRule.SPREAD)
    assert len(decided.fault) < 1100
    assert max(len(grant.reason) for grant in decided.draft.allocation.grants.values()) < 1100


def test_a_policy_that_raises(caplog):
    decided = answer_or_fall_back(Answers(ZeroDivisionError("none")), Drf(), snapshot_of(4, (0, 0)), NodeRule.SPREAD)
    assert decided.fault == "it raised ZeroDivisionError: none"
    assert "the policy has failed" in caplog.text


MAKERS = {
    "drf": Drf,
    "one": lambda: Answers({"a": (1, 1)}),
    "breaks": lambda: Answers(ValueError("it broke")),
}


def make(name):
    if name not in MAKERS:
        raise BadInput(f"unknown policy {name}")
    return MAKERS[name]()


@pytest.fixture
def played(tmp_path, serve, clock):
    """A loop over a played cluster with a job a, its policies and history."""
    cluster, history = serve(), History(tmp_path / "decisions.sqlite")
    cluster.desk.submit(document("a"), Path())
    policies = Policies(make, "drf", tmp_path)
    yield SlotLoop(cluster, policies, NodeRule.SPREAD, history, now=clock.now), policies, history
    history.close()


def counts(history, most=1):
    return [(each.policy, each.workers, each.servers) for each in history.of("a", 0.0, most)]


def test_a_policy_that_fails_does_not_end_the_loop(played, caplog):
    loop, policies, history = played
    policies.use("breaks")
    loop.slot()
    assert counts(history) == [("drf", 4, 4)]
    assert history.of("a", 0.0, 1)[0].reason.endswith("drf decided, as breaks failed: it raised ValueError: it broke")
    assert (policies.deciding, policies.trouble) == ("drf", "slot 0: it raised ValueError: it broke")
    assert any(record.levelno == logging.ERROR and "breaks" in record.message for record in caplog.records)
    policies.use("one")
    loop.slot()
    assert (counts(history), policies.trouble) == ([("one", 1, 1)], "")


def test_a_shadow_decides_beside_and_is_then_used(played):
    loop, policies, history = played
    policies.use_shadow("one")
    loop.slot()
    decision = history.of("a", 0.0, 1)[0]
    assert (decision.policy, decision.workers, decision.shadow) == ("drf", 4, Shadowed("one", 1, 1))
    assert policies.agreement == 0.0
    policies.use("one")
    loop.slot()
    assert (counts(history), policies.choice.shadow) == ([("one", 1, 1)], "")
    assert history.of("a", 0.0, 1)[0].shadow is None
    with pytest.raises(ClusterRefused, match="one decides already"):
        policies.use_shadow("one")
    policies.use_shadow("breaks")
    loop.slot()
    assert (counts(history), policies.agreement) == ([("one", 1, 1)], None)
    policies.use_shadow("")
    assert policies.choice.shadow == ""


def test_a_night_without_jobs_makes_nobody_forget_how_far_a_shadow_agrees(tmp_path):
    policies = Policies(make, "drf", tmp_path)
    policies.use_shadow("one")
    one, other = Allocation({"a": Grant(1, 1), "b": Grant(1, 1)}), Allocation({"a": Grant(1, 1), "b": Grant(2, 2)})
    policies.compared("one", one, other)
    for _ in range(100):
        policies.compared("one", Allocation(), Allocation())
    assert policies.agreement == 0.5


def test_a_bad_name_changes_nothing(played, tmp_path):
    _, policies, _ = played
    before = (tmp_path / POLICY_FILE).read_text()
    for ask in (policies.use, policies.use_shadow):
        with pytest.raises(BadInput, match="unknown policy x"):
            ask("x")
    assert (tmp_path / POLICY_FILE).read_text() == before


def test_a_bad_policy_loses_its_place_where_that_cannot_be_written_down(tmp_path, caplog):
    policies = Policies(make, "drf", tmp_path)
    policies.use("one")
    (tmp_path / POLICY_FILE).with_suffix(".partial").mkdir()
    policies.fall_back("it was bad")
    assert (policies.deciding, policies.trouble) == ("drf", "it was bad")
    assert "it would be as before after a restart" in caplog.text
    with pytest.raises(BadInput, match="cannot write"):
        policies.use("one")


def test_a_choice_survives_a_restart_unless_another_is_asked_for(tmp_path):
    policies = Policies(make, "drf", tmp_path)
    policies.use("one")
    policies.use_shadow("drf")
    policies.fall_back("it was bad")
    again = Policies(make, "drf", tmp_path)
    assert (again.deciding, again.choice.policy, again.choice.shadow) == ("drf", "one", "drf")
    assert Policies(make, "drf", tmp_path, "one").trouble == "it was bad"  # asked for the same: still not trusted
    asked = tmp_path / "asked"
    asked.mkdir()
    Policies(make, "drf", asked, "drf").use_shadow("one")
    own = Policies(make, "drf", asked, "one")
    assert (own.choice.policy, own.choice.shadow) == ("one", "")  # nothing decides beside itself
    again.use("one")
    assert Policies(make, "drf", tmp_path).deciding == "one"
    assert Policies(make, "drf", tmp_path, "breaks").choice.policy == "breaks"
    (tmp_path / POLICY_FILE).write_text('{"policy": "gone"}')
    gone = Policies(make, "drf", tmp_path)
    assert (gone.deciding, gone.trouble) == ("drf", "unknown policy gone")
    (tmp_path / POLICY_FILE).write_text("[]")
    with pytest.raises(BadInput, match="delete it"):
        Policies(make, "drf", tmp_path)


def test_what_limits_hold_back_is_told(played, clock):
    loop, policies, history = played
    loop = SlotLoop(loop._cluster, policies, NodeRule.SPREAD, history, SlotLimits(4, 3), now=clock.now)
    loop.slot()
    loop.slot()
    first, second = history.of("a", 0.0, 2)
    assert (first.workers, first.servers, second.workers) == (2, 2, 2)
    assert "at most 4 tasks start or end in a slot" in first.reason
    assert "scaled 1 slot ago, at least 3 lie between" in second.reason
    again = SlotLoop(loop._cluster, policies, NodeRule.SPREAD, history, SlotLimits(4, 3), now=clock.now)  # restarted
    again.slot()
    again.slot()
    third, fourth = history.of("a", 0.0, 2)
    assert ((third.workers, third.servers), (fourth.workers, fourth.servers)) == ((2, 2), (4, 4))


def test_weights_that_are_not_finite(tmp_path, caplog):
    run = tmp_path / "run"
    run.mkdir()
    weights = new_policy(("m",), 0).weights()
    save(weights, run / "policy.npz")
    policies = Policies(make_live_policy, "drf", tmp_path, f"dl2:{run}")
    assert policies.deciding == f"dl2:{run}"
    weights.arrays["share"][3] = np.nan
    save(weights, run / "policy.npz")
    with pytest.raises(BadInput, match=r"not finite \(share\)"):
        policies.use(f"dl2:{run}")
    assert policies.deciding == f"dl2:{run}"  # the old weights are in use still
    policies.renew(f"dl2:{run}")
    assert (policies.deciding, "not finite (share)" in policies.trouble) == ("drf", True)
    assert "DECIDES INSTEAD OF" in caplog.text
    with pytest.raises(BadInput, match="not finite"):
        Policies(make_live_policy, "drf", tmp_path / "other", f"dl2:{run}")


def dl2(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return result.exit_code, result.output


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "5", '{"policy": 5}', '{"policy": null}', '{"policy": "drf", "x": ""}']
)
def test_a_choice_that_cannot_be_read_is_told(tmp_path, text):
    (tmp_path / "policy.json").write_text(text)
    with pytest.raises(BadInput, match=r"cannot use .*policy\.json: .*: delete it, and choose by --policy"):
        Policies(make_live_policy, "drf", tmp_path)


def test_the_commands_of_policies(tmp_path, serve, clock, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "dl2"
    folder.mkdir()
    save(new_policy(("digits",), 0).weights(), tmp_path / "policy.npz")
    cluster, history = serve("1x8"), History(folder / "decisions.sqlite")
    policies, notes = Policies(make_live_policy, "drf", folder), Notes()
    notes.comparison = lambda: "2 jobs"
    loop = SlotLoop(cluster, policies, NodeRule.SPREAD, history, now=clock.now)
    cluster.desk.submit(document("a", workers=2, servers=2), Path())
    with serving(ClusterService(cluster.desk, history, policies, notes), folder):
        assert dl2("policy", "use", "dl2:.", "--shadow")[0] == 0
        loop.slot()
        status, output = dl2("policy")
        assert (status, output.splitlines()[0]) == (0, "policy    drf")
        assert f"shadow    dl2:{tmp_path}, which would have made " in output
        assert "guard     2 jobs\n" in output
        assert f"dl2:{tmp_path}" in dl2("why", "a", "--shadow")[1]
        assert f"dl2:{tmp_path}" not in dl2("why", "a")[1]
        assert dl2("policy", "use", "dl2:.") == (0, "dl2:.: from the next slot on it decides\n")
        loop.slot()
        told = json.loads(dl2("policy", "--json")[1])
        assert (told["policy"], told["shadow"]) == (f"dl2:{tmp_path}", "")
        assert counts(history)[0][0] == f"dl2:{tmp_path}"
        status, output = dl2("policy", "use", "dl2:none")
        assert (status, "no policy in" in output) == (2, True)
        assert dl2("policy", "use", "drf", "--shadow")[0] == 0
        assert dl2("policy", "end-shadow") == (0, "no policy decides beside any more\n")
        assert policies.choice.shadow == ""
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other"))
        assert dl2("policy", "--folder", folder, "use", "fifo", "--shadow")[0] == 0
        assert policies.choice.shadow == "fifo"
        assert dl2("policy", "--folder", folder, "end-shadow")[0] == 0
        assert policies.choice.shadow == ""
        assert dl2("policy", "use", "fifo")[0] == 1
    history.close()
