"""The guard: when a policy loses its place, and the program beside the loop."""

import json
from contextlib import closing
from itertools import count

import pytest

from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.guard.decision import Comparison, GuardSettings, PolicyStanding, lost, pardon, seen, verdict
from dl2_scheduler.guard.process import Guard
from dl2_scheduler.live.history import HISTORY_FILE, History
from tests.dl2_scheduler.hearing import listen
from tests.dl2_scheduler.learning.test_live_learning import live, new_run

SAME = {"slot": 1, "policy": "dl2:run", "unusable": True}
SETTINGS = GuardSettings(margin=0.1, slots=3)


def after(*owns, policy="dl2:run", standing=None):
    standing = standing or PolicyStanding()
    for slot, own in enumerate(owns):
        standing = seen(standing, Comparison(slot, policy, own, 10.0, 4), SETTINGS)
    return standing


@pytest.mark.parametrize(
    ("owns", "falls"),
    [
        ((), False),
        ((20.0, 20.0), False),
        ((20.0, 20.0, 20.0), True),
        ((20.0, 20.0, 10.9, 20.0, 20.0), False),  # in a row
        ((11.1, 11.1, 11.1), True),
        ((10.9, 10.9, 10.9, 10.9), False),  # within the margin
    ],
)
def test_a_policy_that_is_worse_for_long_loses_its_place(owns, falls):
    assert bool(verdict(after(*owns), SETTINGS, "drf")) == falls


def test_the_verdict_says_why_and_another_policy_begins_anew():
    standing = after(20.0, 20.0, 20.0)
    assert verdict(standing, SETTINGS, "drf") == (
        "for 3 slots in a row jobs would have ended later than under drf by more than 10%; "
        "in slot 2 after 20.0 slots instead of 10.0"
    )
    assert verdict(after(20.0, policy="dl2:other", standing=standing), SETTINGS, "drf") == ""


@pytest.mark.parametrize(
    ("owns", "losses", "returns"),
    [
        ([9.9] * 8, 1, False),
        ([9.9] * 9, 1, True),
        ([9.9] * 4 + [10.0] * 20 + [9.9] * 4, 1, False),  # a tie says nothing
        ([9.9] * 4 + [10.0] * 20 + [9.9] * 5, 1, True),
        ([9.0] * 5 + [10.1] + [9.0] * 8, 1, False),  # in a row, and no worse at all
        ([9.0] * 17, 2, False),
        ([9.0] * 18, 2, True),
        ([9.0] * 36, 3, True),
    ],
)
def test_a_policy_that_is_better_for_long_gets_its_place_back(owns, losses, returns):
    out = PolicyStanding("dl2:run")
    for _ in range(losses):
        out = lost(out)
    assert bool(pardon(after(*owns, standing=out), SETTINGS, "drf")) == returns


def test_a_slot_counts_once_however_often_it_is_compared():
    """Slots without jobs are in no history: the last one with jobs was compared again in each of them."""
    once = after(20.0)
    for _ in range(5):
        assert seen(once, once.last, SETTINGS) == once
    assert seen(once, Comparison(1, "dl2:run", 20.0, 10.0, 4), SETTINGS).worse == 2


@pytest.mark.slow
def test_the_guard_falls_back_beside_the_loop(tmp_path):
    """A policy that has learnt nothing, made worse still by the judge's settings: any future is too long."""
    run = new_run(tmp_path / "run")
    with closing(History(tmp_path / HISTORY_FILE)) as history:
        loop, policies, _ = live(history, tmp_path, policy=f"dl2:{run.path}")
        with closing(Guard(policies, GuardSettings(-2.0, 2), tmp_path, NodeRule.SPREAD)) as guard:
            loop._observers, heard = (guard,), listen(guard._side)
            for _ in range(2):
                loop.slot()
                heard.wait()
                assert policies.deciding != "drf"
            guard.before(2)
            assert policies.deciding == "drf"
            assert "jobs would have ended later than under drf" in policies.trouble
            assert f"under {policies.choice.policy}, after" in guard.summary
            policies.use(f"dl2:{run.path}")
            guard.before(3)
            assert policies.deciding == f"dl2:{run.path}", "its slots are new, though none has passed"
            policies.fall_back("once more")
            loop.slot()
            assert list(history.slots())[-1].policy == "drf"
            policies.use(f"dl2:{run.path}")
            guard.before(3)
            assert policies.deciding == f"dl2:{run.path}"  # it has its slots again


def test_a_policy_that_has_become_better_decides_again(tmp_path, caplog):
    run = new_run(tmp_path / "run")
    with closing(History(tmp_path / HISTORY_FILE)) as history:
        _, policies, _ = live(history, tmp_path, policy=f"dl2:{run.path}")
        name = policies.choice.policy
        with closing(Guard(policies, GuardSettings(0.1, 1), tmp_path, NodeRule.SPREAD)) as guard:
            slots = count()

            def hear(*owns):
                for own in owns:
                    slot = next(slots)
                    say(guard, slot, name, own)
                    guard.before(slot + 1)
                return policies.deciding

            assert hear(9.0, 9.0, 9.0) == name
            assert hear(20.0) == "drf"
            assert hear(9.0, 9.0) == "drf"
            (run.path / "policy.npz").rename(tmp_path / "away")
            assert hear(9.0) == "drf", "it cannot be read"
            assert "cannot decide again" in caplog.text
            (tmp_path / "away").rename(run.path / "policy.npz")
            assert hear(9.0, 9.0) == "drf", "it begins anew"
            assert hear(9.0) == name
            assert "in 3 slots jobs would have ended sooner than under drf, and in none later" in caplog.text
            assert hear(20.0) == "drf"
            assert hear(9.0, 9.0, 9.0, 9.0, 9.0) == "drf", "twice as many after the second loss"
            assert hear(9.0) == name
            assert json.loads((tmp_path / "policy.json").read_text())["fallen"] == ""


def say(guard, slot, name, own):
    guard._side._heard.append(json.dumps({"slot": slot, "policy": name, "own": own, "baseline": 10.0, "jobs": 4}))


def test_only_slots_that_the_policy_has_decided_lose_it_its_place(tmp_path):
    run = new_run(tmp_path / "run")
    with closing(History(tmp_path / HISTORY_FILE)) as history:
        _, policies, _ = live(history, tmp_path, policy=f"dl2:{run.path}")
        name = policies.choice.policy
        with closing(Guard(policies, GuardSettings(0.1, 2), tmp_path, NodeRule.SPREAD)) as guard:

            def hear(before, *slots):
                for slot in slots:
                    say(guard, slot, name, 20.0)
                guard.before(before)
                return policies.deciding

            assert hear(2, 0, 1) == "drf"
            assert hear(3) == "drf"
            policies.use(name)
            assert hear(4, 2, 3) == name, "what is told late is of slots that DRF has decided"
            assert hear(5, 4) == name
            assert hear(6, 5) == "drf"
            policies.use(name)
            assert hear(8, 7) == name
            policies.fall_back("it cannot be read")
            assert hear(9) == "drf"
            policies.use(name)
            assert hear(11, 10) == name, "what it had lost before it fell back is forgotten"
            assert hear(12, 11) == name
            policies.use(name)
            assert hear(13, 12) == name, "it is trusted again, though it had not fallen back"
            assert hear(14, 13) == name
            assert hear(15, 14) == "drf"


@pytest.mark.slow
def test_a_policy_that_can_be_read_no_more_loses_its_place(tmp_path, caplog):
    run = new_run(tmp_path / "run")
    with closing(History(tmp_path / HISTORY_FILE)) as history:
        loop, policies, _ = live(history, tmp_path, policy=f"dl2:{run.path}")
        (run.path / "policy.npz").unlink()
        with closing(Guard(policies, SETTINGS, tmp_path, NodeRule.SPREAD)) as guard:
            loop._observers, heard = (guard,), listen(guard._side)
            loop.slot()
            heard.wait()
            guard.before(1)
            assert "BadInput: no policy in" in guard.summary
            assert policies.deciding == "drf", "it could not be guarded, nor used after a restart"
            assert policies.trouble.startswith("no policy in")
            guard._side._heard.append(json.dumps({**SAME, "error": guard.summary}))
            guard.before(2)
        said = [record.message for record in caplog.records if "could not be compared" in record.message]
        assert len(said) == 1, "once, not in every slot"
