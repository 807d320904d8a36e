"""Placement in partitions: each keeps its jobs or forwards them once, and no job lies across two."""

from dataclasses import replace

import numpy as np
import pytest

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.hardware.placements import PlacementArrays
from dl2_scheduler.cluster.hardware.view import check_placement
from dl2_scheduler.figures.placement.contenders import TRUE
from dl2_scheduler.figures.placement.graph_contenders import graph_contenders, graph_rules
from dl2_scheduler.policies.placement.draft import Draft
from dl2_scheduler.policies.placement.local_search import JobPatience
from dl2_scheduler.policies.placement.pods import groups_of_pods, unlike
from dl2_scheduler.policies.rules.fixed_demand import FixedDemand
from dl2_scheduler.sim.placed.formula.clusters import NetworkType, ServerType
from dl2_scheduler.sim.placed.formula.fitted import fit_error, fitted_formula
from dl2_scheduler.sim.placed.formula.world import Formula
from dl2_scheduler.sim.placed.scenario import Scenario

SCENARIO = Scenario.graph(small=True, mean=30.0)
POLICIES = graph_contenders(SCENARIO, {TRUE: SCENARIO.world})
FIXED = FixedDemand()


class Watching:
    """A policy that lets another one decide, and keeps what it saw and got."""

    def __init__(self, policy):
        self.policy, self.seen = policy, []

    def place(self, view):
        places = self.policy.place(view)
        self.seen.append((view, places))
        return places


def seen(name: str, jobs: int, seed: int = 0) -> list:
    watching = Watching(POLICIES[name])
    SCENARIO.completion_times(FIXED, watching, SCENARIO.jobs(seed)[:jobs])
    return watching.seen


@pytest.mark.parametrize("name", [name for name in POLICIES if "pod search" not in name])
def test_jobs_lie_in_one_partition_and_keep_the_contract(name):
    forwarded = 0
    for view, places in seen(name, 90):
        check_placement(view, places)
        pod_of = view.topology.partition_of[view.machines.node_of]
        for job, roles in places.groups.items():
            pods = set(pod_of[list(roles[0] + roles[1])])
            assert len(pods) == 1
            forwarded += pods != {view.jobs[job].job.partition}
    assert forwarded or name.endswith("own") or name.startswith("LIF")


@pytest.mark.parametrize("name", [name for name in POLICIES if "pod search" in name])
def test_planners_keep_the_contract_and_beat_the_rules(name):
    jobs = SCENARIO.jobs(3)[:14]
    watching = Watching(POLICIES[name])
    found = SCENARIO.completion_times(FIXED, watching, jobs).mean()
    for view, places in watching.seen:
        check_placement(view, places)
    assert found < SCENARIO.completion_times(FIXED, POLICIES["LIF-true, own"], jobs).mean() + 1e-9
    assert found < 0.9 * SCENARIO.completion_times(FIXED, POLICIES["load balancing"], jobs).mean()


class _OneByOne:
    """A world that rates one placement after the other."""

    def __init__(self, world):
        self.rates = world.rates


def test_places_that_are_tried_at_once_are_those_that_are_found_one_by_one():
    planner = POLICIES["pod search, true"]
    jobs = SCENARIO.jobs(3)[:12]
    found = Watching(planner)
    times = SCENARIO.completion_times(FIXED, found, jobs)
    other = Watching(replace(planner, speeds=_OneByOne(SCENARIO.world)))
    assert SCENARIO.completion_times(FIXED, other, jobs).tolist() == times.tolist()
    assert [places for _, places in other.seen] == [places for _, places in found.seen]


@pytest.mark.parametrize("partition", [0, 1])
def test_of_equally_good_partitions_a_planner_takes_the_fullest(partition):
    """Both partitions have sockets without tasks, and the job fits one."""
    job = next(job for job in SCENARIO.jobs(0) if (job.max_workers, job.max_servers) == (1, 1))
    watching = Watching(POLICIES["pod search, true"])
    first = SCENARIO.jobs(0)[0]
    SCENARIO.completion_times(FIXED, watching, [first, replace(job, partition=partition, arrival=1800.0)])
    view, places = watching.seen[1]
    (roles,) = places.groups.values()
    pod_of = view.topology.partition_of[view.machines.node_of]
    assert pod_of[roles[0][0]] == pod_of[view.placed.group[0]]


def test_a_patient_job_waits_for_places_that_are_as_good_as_alone():
    """The last of many jobs finds places that make the sum of progress larger, but not by what it would make alone."""
    planner, alone = POLICIES["pod search that waits, true"], SCENARIO.speed_alone
    view = next(view for view, _ in seen("load balancing", 60, 1) if len(view.placed.job) > 120)
    at_once, patient = (replace(planner, patience=each).place(view).groups for each in (None, JobPatience(0.99, alone)))
    assert set(patient) < set(at_once)
    hurried = replace(planner, patience=JobPatience(0.0, alone)).place(view)
    assert hurried.groups == at_once


def test_groups_that_are_alike_are_tried_once():
    view = seen("LIF-true, own", 4)[0][0]
    draft = Draft(view)
    pods = groups_of_pods(view.machines, view.topology)
    assert [len(pod) for pod in pods] == [40, 40]
    job = int(view.missing.any(axis=1).nonzero()[0][0])
    assert len(unlike(draft, pods[0], job)) == 2 * 5  # an empty pod: both sockets of the first node of each rack
    draft.put(job, 0, int(pods[0][3]))
    assert len(unlike(draft, pods[0], job)) == 2 * 5 + 2


def test_groups_that_others_use_or_that_a_job_may_not_have_are_unlike_the_rest():
    """On a live cluster pods of no job take room, and constraints keep a job's pods off nodes."""
    view = seen("LIF-true, own", 4)[0][0]
    job = int(view.missing.any(axis=1).nonzero()[0][0])
    (pod, *_) = groups_of_pods(view.machines, view.topology)
    view.free[pod[0], 0] -= 3.0
    assert unlike(Draft(view), pod, job)[:4].tolist() == [0, 1, 2, 3]
    allowed = np.ones((len(view.jobs), 2, len(view.free)), dtype=np.bool_)
    allowed[job, 1, pod[2:4]] = False
    seen_so = Draft(replace(view, allowed=allowed))
    assert unlike(seen_so, pod, job)[:6].tolist() == [0, 1, 2, 3, 4, 5]
    assert len(unlike(seen_so, pod, job)) == 2 * 5 + 4


def test_a_rule_with_interference_across_sockets_sums_what_each_try_alone_would_cost():
    rule = graph_rules(SCENARIO)["LIF-true, lb"]
    view = seen("best fit", 60)[3][0]
    draft = Draft(view)
    job = int(view.missing.any(axis=1).nonzero()[0][0])
    arrays, found = draft.arrays(), []
    for group in range(len(draft.free)):
        tried = PlacementArrays(
            arrays.model,
            np.append(arrays.job, job),
            np.append(arrays.role, 0),
            np.append(arrays.group, group),
            arrays.number,
        )
        found.append(rule.interference.slowdown(tried)[tried.group == group].sum())
    assert rule._sums(draft, arrays, job, 0) == pytest.approx(found)


def test_lif_needs_the_formulas_world():
    with pytest.raises(BadInput, match="the world of its formulas"):
        graph_rules(Scenario.harmony(2.0))


def test_speeds_fitted_to_few_noisy_samples_are_nearly_true():
    fitted = fitted_formula(SCENARIO.world)
    assert isinstance(fitted, Formula)
    assert fit_error(SCENARIO.world, fitted) < 0.01
    assert fitted.interference.cpu.tolist() != SCENARIO.world.interference.cpu.tolist()


def test_default_lengths_load_the_cluster():
    """Alone, the jobs ask for 60% of the GPUs and 51% of the cpus: nobody would wait if none disturbed another."""
    asked, intervals = np.zeros(2), 0.0
    scenario = Scenario.graph(small=True)
    for seed in range(5):
        jobs = scenario.jobs(seed)
        intervals += max(job.arrival for job in jobs) / 1800 + 1
        for job in jobs:
            alone = scenario.speed_alone(job.model, job.max_workers, job.max_servers)
            length = job.epochs * job.samples_per_epoch / alone / 1800
            assert 5 <= length <= 15
            for counts, needs in ((job.max_workers, job.worker), (job.max_servers, job.server)):
                asked += length * counts * np.array([needs["cpu"], needs["gpu"]])
    assert asked / intervals / scenario.machines.capacity.sum(axis=0) == pytest.approx([0.51, 0.6], abs=0.06)


def test_bounds_of_no_jobs_are_refused():
    with pytest.raises(BadInput, match="no jobs"):
        SCENARIO.bounds([])


def test_speeds_alone_also_try_the_other_sockets():
    """On one socket a job has no exchange: nothing is faster in this world, whatever sockets the nodes have."""
    mixed = Scenario.graph(NetworkType.FAT_TREE, ServerType.MIXED, small=True)
    assert mixed.speed_alone("vgg-16", 2, 1) == pytest.approx(SCENARIO.speed_alone("vgg-16", 2, 1))
    narrow = replace(SCENARIO, world=_ByFirstSocket())
    assert narrow.speed_alone("vgg-16", 1, 1) == 2.0


class _ByFirstSocket:
    """A world in which a job is faster on both sockets of a node."""

    def rates(self, placements):
        return np.array([2.0 if placements.group.tolist() == [0, 1] else 1.0])
