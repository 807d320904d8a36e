"""Exploring, through the loop and the history, in simulated clusters."""

import json
from contextlib import closing

import pytest
from pydantic import TypeAdapter

from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.jobs import Job, Node
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.learning.live.exploring import ExplorationObserver, as_line
from dl2_scheduler.learning.live.exploring_program import ExplorationSearch
from dl2_scheduler.live.exploration.explorer import Explorer
from dl2_scheduler.live.exploration.telling import Telling, TellingConfiguration
from dl2_scheduler.live.policies import Policies
from dl2_scheduler.live.slot_limits import SlotLimits
from dl2_scheduler.live.slot_loop import SlotLoop
from dl2_scheduler.policies.registry import make_live_policy
from dl2_scheduler.replay.asked_again import ask_again
from dl2_scheduler.sim.lanes import ScalingCost
from dl2_scheduler.sim.simulator import SimulatedCluster
from tests.dl2_scheduler.clusters import grid
from tests.dl2_scheduler.hearing import listen

SLOT = 60.0
ONE = {"slots": 1.0}
NODES = tuple(Node(f"n{number}", {"slots": 8.0}) for number in range(2))
SPEEDS = Speeds({"a": grid({(1, 3): 6.0}), "b": grid({(3, 1): 6.0})})


def jobs(count=8):
    return [
        Job(f"{'ab'[at % 2]}{at}", at * 100.0, "ab"[at % 2], 150.0, 30.0, ONE, ONE, max_workers=4, max_servers=4)
        for at in range(count)
    ]


COUNTS = [(servers, workers, 1.0) for servers in range(1, 5) for workers in range(1, 5)]


class TellsAll:
    """See `SlotObserver`: says after each slot that all unequal counts are worth trying."""

    def __init__(self):
        self.telling = Telling()

    def before(self, slot):
        pass

    def after(self, slot):
        unequal = [(model, *at) for model in "ab" for *at, _ in COUNTS if at[0] != at[1]]
        each = [TellingConfiguration(*at, tuple(COUNTS), 0.35, 3.0 + number) for number, at in enumerate(unequal)]
        self.telling = Telling(slot, tuple(each), 6.5)


class Clusters:
    """A simulated cluster whose scheduler can be started again."""

    def __init__(self, history, folder, part, policy="drf", **limits):
        self.cluster = SimulatedCluster(jobs(), NODES, SPEEDS, SLOT, ScalingCost(8.0, 0.5, 6.0))
        self._history, self._folder, self._part = history, folder, part
        self._policy, self._limits = policy, SlotLimits(**limits)
        self.start()

    def start(self):
        tells = TellsAll()
        now = lambda: 1e9 + self.cluster.lanes.slot * SLOT  # noqa: E731
        self.explorer = Explorer(self._part, self._folder, lambda: tells.telling, self._limits.least_slots, now)
        policies = Policies(make_live_policy, "drf", self._folder, self._policy)
        self.loop = SlotLoop(
            self.cluster, policies, NodeRule.SPREAD, self._history, self._limits, [tells], now, explorer=self.explorer
        )  # fmt: skip


def exploring_in(slot):
    return [(job, grant) for job, grant in slot.allocation.grants.items() if grant.instead is not None]


@pytest.mark.parametrize("policy", ["drf", "optimus"])
def test_jobs_explore_within_the_budget_and_the_history_knows(history, tmp_path, policy):
    lived, part = Clusters(history, tmp_path, 0.05, policy), 0.05
    while not lived.cluster.done:
        lived.loop.slot()
        budget = lived.explorer.budget
        assert budget.spent <= part * budget.lived * (1 + 1e-9)
        if lived.cluster.lanes.slot == 20:
            lived.start()
            assert lived.explorer.budget == budget
    slots = list(history.slots())
    explored = [(slot, *each) for slot in slots for each in exploring_in(slot)]
    assert len(explored) == lived.explorer.budget.jobs > 2
    for slot, name, grant in explored:
        state = next(state for state in slot.snapshot.jobs if state.job.id == name)
        assert grant.instead == (state.workers, state.servers) != (grant.workers, grant.servers)
        assert all(other.workers for other in slot.allocation.grants.values()), "a job waits"
        (row,) = [row for row in history.of(name, 0.0, 1000) if row.slot == slot.snapshot.slot]
        assert f"instead of {state.workers}+{state.servers} for this slot, to learn: speeds of {name[0]}" in row.reason
    tried = {(name[0], grant.servers, grant.workers) for _, name, grant in explored}
    told = {(each.model, each.servers, each.workers) for slot in slots for each in slot.snapshot.reports}
    assert tried <= told
    assert len(told) > len(tried)


def test_a_replay_compares_what_was_decided(history, tmp_path):
    lived = Clusters(history, tmp_path, 0.05)
    while not lived.cluster.done:
        lived.loop.slot()
    again = list(ask_again(list(history.slots()), None, make_live_policy, NodeRule.SPREAD))
    assert lived.explorer.budget.jobs
    assert not any(asked.other for asked in again)


def test_a_job_keeps_what_it_explores_for_as_long_as_it_may_not_be_scaled(history, tmp_path):
    lived = Clusters(history, tmp_path, 0.2, least_slots=3)
    while not lived.cluster.done:
        lived.loop.slot()
    slots = list(history.slots())
    (first, name, grant), *_ = [(at, *each) for at, slot in enumerate(slots) for each in exploring_in(slot)]
    later = [slot.allocation.of(name) for slot in slots[first + 1 : first + 3]]
    assert all((each.workers, each.servers) == (grant.workers, grant.servers) for each in later)
    assert "for 3 slots, to learn" in grant.reason


def test_a_search_knows_what_the_history_tells(history, tmp_path):
    """What is told after a slot is of its jobs, and of types that have reported."""
    lived, search = Clusters(history, tmp_path, 0.05), ExplorationSearch(history, NodeRule.SPREAD)
    assert search.found() is None
    lived.loop.slot()
    assert search.found().configurations == (), "nobody has told a speed"
    for _ in range(2):
        lived.loop.slot()
    found = search.found()
    assert found.slot == 2
    assert found.scaling_seconds > 0
    assert {each.model for each in found.configurations} == {"a"}, "no job of b has told its speed"
    assert all(each.gain > 0 and each.spread > 0 for each in found.configurations)
    assert _of(as_line(found)) == found
    assert search.found() is None, "no slot with jobs has passed since"


def _of(line):
    return TypeAdapter(Telling).validate_python(json.loads(line))


@pytest.mark.slow
def test_the_program_searches_beside_the_loop(history, tmp_path):
    lived = Clusters(history, tmp_path, 0.05)
    with closing(ExplorationObserver(tmp_path, NodeRule.SPREAD)) as observer:
        lived.loop._observers, heard = (observer,), None
        for slot in range(4):
            lived.loop.slot()
            heard = heard or listen(observer._side)
            heard.wait()
            observer.before(slot + 1)
            assert (observer.telling.slot, observer.trouble) == (slot, "")
        assert observer.telling.configurations
        assert observer.telling.scaling_seconds > 0
