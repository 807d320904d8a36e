"""The planner decides in the place of a network that learns, while that is not known to be as good."""

import threading

import pytest

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.learning.live.process import Learner
from dl2_scheduler.learning.networks import new_policy
from dl2_scheduler.live.policies import Policies
from dl2_scheduler.policies.registry import make_live_policy
from dl2_scheduler.policies.rules.planner import Planner
from tests.dl2_scheduler.hearing import made
from tests.dl2_scheduler.learning.test_live_learning import arrays, live, new_run, same


class SlowMaker:
    """A `SlowMaker` makes a planner when it may."""

    def __init__(self):
        self.asked, self.may, self.fails = threading.Event(), threading.Event(), False

    def __call__(self, name):
        if name == "planner":
            self.asked.set()
            assert self.may.wait(10.0)
            if self.fails:
                raise BadInput("the history is damaged")
        return make_live_policy(name)


@pytest.fixture
def slow(tmp_path):
    maker = SlowMaker()
    policies = Policies(maker, "drf", tmp_path, "fifo")
    yield maker, policies
    maker.may.set()
    made(policies)


def test_slots_are_decided_while_the_planner_is_made(slow):
    maker, policies = slow
    policies.stand_in("fifo", "it is ahead")
    assert maker.asked.wait(10.0)
    assert (policies.for_slot().name, policies.choice.stands_in) == ("fifo", "")
    policies.stand_in("fifo", "it is further ahead")
    maker.may.set()
    assert made(policies) == "planner"
    assert (policies.for_slot().name, policies.choice.stands_in) == ("planner", "it is further ahead")


@pytest.mark.parametrize(
    "end", [lambda policies: policies.end_stand_in("it is behind"), lambda policies: policies.use("fifo")]
)
def test_a_planner_that_is_made_too_late_does_not_stand_in(slow, end):
    maker, policies = slow
    policies.stand_in("fifo", "it is ahead")
    end(policies)
    maker.may.set()
    assert (made(policies), policies.choice.stands_in) == ("fifo", "")
    policies.stand_in("fifo", "it is ahead again")
    assert made(policies) == "planner"


def test_a_planner_that_cannot_be_made_does_not_stand_in(slow, caplog):
    maker, policies = slow
    maker.fails = True
    maker.may.set()
    policies.stand_in("fifo", "it is ahead")
    assert (made(policies), policies.choice.stands_in) == ("fifo", "")
    assert "planner cannot stand in" in caplog.text
    assert "the history is damaged" in caplog.text


def test_a_planner_that_no_thread_could_be_started_for_is_made_at_the_next_comparison(slow, monkeypatch, caplog):
    """As long as the cluster ran no planner stood in any more: it seemed to be in the making."""
    maker, policies = slow
    maker.may.set()

    def start(thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as scarce:
        scarce.setattr(threading.Thread, "start", start)
        policies.stand_in("fifo", "it is ahead")
    assert (made(policies), policies.choice.stands_in) == ("fifo", "")
    assert "planner cannot stand in: can't start new thread" in caplog.text
    policies.stand_in("fifo", "it is further ahead")
    assert (made(policies), policies.choice.stands_in) == ("planner", "it is further ahead")


def test_the_planner_stands_in_for_a_network_that_is_behind_it(history, tmp_path, caplog):
    run = new_run(tmp_path / "run")
    name = f"dl2:{run.path}"
    _, policies, _ = live(history, tmp_path, policy=name)
    learner = Learner(policies, tmp_path, NodeRule.SPREAD)

    def hear(planner, drf=-0.1, jobs=20):
        beside = {"planner": planner, "DRF": drf}
        learner._hear(name, {"compared": 7, "core_seconds": 0.1, "beside": beside, "jobs": jobs})
        return made(policies)

    assert hear(0.01) == name
    assert hear(0.05, drf=0.06) == name, "the planner is worse than DRF"
    assert hear(0.05) == "planner"
    network, (stands_in, by) = policies._policy, (policies.choice.stands_in, policies.for_slot())
    assert (by.name, isinstance(by.policy, Planner)) == ("planner", True)
    assert stands_in == f"in dreams after slot 7 jobs take 5% longer under {name}, which goes on learning"
    assert hear(0.01) == "planner", "until it is no longer behind"
    assert hear(0.05, drf=0.06) == name, "the planner has become worse than DRF"
    assert hear(0.05) == "planner"
    assert hear(0.25) == "planner"
    assert policies.choice.stands_in == (stands_in := stands_in.replace("5%", "25%")), "as it was found last"
    policies.renew(name)
    assert policies.deciding == "planner", "what it learns meanwhile decides later"
    assert policies.trouble == ""
    again = Policies(make_live_policy, "drf", tmp_path)
    assert (again.deciding, again.choice.stands_in) == ("planner", stands_in)
    assert hear(-0.01) == name
    assert policies.for_slot().policy is not network
    assert hear(0.5) == "planner"
    policies.use(name)
    assert policies.deciding == name, "people decide"
    assert hear(0.5) == "planner"
    policies.fall_back("it is bad")
    assert (policies.deciding, policies.trouble) == ("planner", "it is bad")
    assert f"planner DECIDES INSTEAD OF {name}: it is bad" in caplog.text
    assert hear(-0.05) == "planner", "in the place of drf, until the network is trusted again"
    policies.come_back("it is good")
    assert (policies.deciding, policies.trouble) == ("planner", "")
    assert f"{name} is trusted again, while planner stands in: it is good" in caplog.text
    assert hear(-0.05) == name
    policies.fall_back("it is bad")
    assert policies.deciding == "drf"
    assert hear(-0.05, drf=0.0) == "drf", "the planner is worse than that"
    assert hear(-0.05) == "planner"
    policies.end_stand_in("nobody learns any more")
    assert (policies.deciding, caplog.messages[-1]) == (
        "drf",
        "policy: drf decides, and planner stands in no more: nobody learns any more",
    )
    policies.use(name)
    assert hear(-0.05, jobs=19) == "planner"
    assert "jobs take 5% less under " in policies.choice.stands_in
    assert policies.choice.stands_in.endswith(", which saw 19 jobs: 20 tell how good it is")
    assert hear(-0.05) == name
    policies.use("fifo")
    assert hear(0.5) == "fifo", "it learns no more, or as a shadow"


def test_whether_it_stands_in_is_up_to_the_last_of_a_slots_verdicts(history, tmp_path):
    name = f"dl2:{new_run(tmp_path / 'run').path}"
    _, policies, _ = live(history, tmp_path, policy=name)
    learner = Learner(policies, tmp_path, NodeRule.SPREAD, shared=tmp_path / "shared")

    def of(planner, accepted):
        return {"verdict": "...", "accepted": accepted, "beside": {"planner": planner, "DRF": -0.1}}

    said = {"updates": 3, "slot": 9, "core_seconds": 0.1, "jobs": 20}
    theirs = {"clusters": 1, "speeds": 0, "ignored": 0, **of(0.05, False)}  # it was judged beside the policy before
    learner._hear(name, {**said, **of(-0.05, True), "sharing": theirs})
    assert policies.deciding == name
    learner._hear(name, {**said, "sharing": theirs})
    assert made(policies) == "planner"


def test_a_policy_that_a_program_has_written_and_not_told_of_decides(history, tmp_path):
    run = new_run(tmp_path / "run")
    name = f"dl2:{run.path}"
    _, policies, _ = live(history, tmp_path, policy=name)
    learner = Learner(policies, tmp_path, NodeRule.SPREAD)
    run.save_policy(new_policy(("a", "b"), 4).weights())  # the program is killed before it says so, and started again
    beside = {"planner": -0.1, "DRF": -0.1}
    learner._hear(name, {"compared": 7, "core_seconds": 0.1, "beside": beside, "jobs": 20})
    assert same(policies.for_slot().policy._weights.arrays, arrays(run))
