"""Simulated jobs without servers: where their speeds come from, and that traces, records and bounds know them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.snapshot import Allocation, Grant
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.policies.rules.drf import Drf
from dl2_scheduler.policies.rules.estimates import TrueSpeeds
from dl2_scheduler.policies.rules.planner import Planner
from dl2_scheduler.sim.arrivals import Pattern, generate
from dl2_scheduler.sim.bound import lp_bound
from dl2_scheduler.sim.history import Recording, read_history, write_history
from dl2_scheduler.sim.metrics import summarise
from dl2_scheduler.sim.record import record
from dl2_scheduler.sim.shipped import shipped_speeds
from dl2_scheduler.sim.simulator import SimulatedCluster, run
from dl2_scheduler.sim.speeds import SpeedPoint, interpolated, read_points
from dl2_scheduler.sim.trace import read_trace, write_trace
from tests.dl2_scheduler.clusters import MIXED, SPEEDS, job, nodes, serverless

ROOM = nodes({"cpu": 8})


def test_a_job_is_refused_whose_fields_disagree_about_servers() -> None:
    serverless().check()
    with pytest.raises(BadInput, match="max_servers is -1: give 1 to 256"):
        replace(serverless(), max_servers=-1).check()
    for wrong in (replace(serverless(), min_servers=1), replace(serverless(), server={"cpu": 1.0})):
        with pytest.raises(
            BadInput, match="max_servers is 0: give 1 to 256; or, where the job has no servers, min_servers 0"
        ):
            wrong.check()


def test_it_trains_with_workers_alone_and_others_do_not() -> None:
    cluster = SimulatedCluster([serverless(1), job(2)], ROOM, MIXED, 10.0)
    cluster.apply(Allocation({1: Grant(3, 0), 2: Grant(3, 0)}))
    first, second = cluster.finish_slot().jobs
    assert (first.workers, first.servers, first.epochs) == (3, 0, 30.0)
    assert (second.workers, second.epochs) == (0, 0.0)


def test_a_model_without_such_speeds_is_refused() -> None:
    with pytest.raises(BadInput, match="job 1: even has no speed above 0 without servers within the job's maxima"):
        SimulatedCluster([serverless(1)], ROOM, SPEEDS, 10.0)


def test_shipped_speeds_are_those_with_as_many_servers_as_workers() -> None:
    for grid in shipped_speeds(16, 16).grids.values():
        assert grid[0, 1:] == pytest.approx(np.diagonal(grid)[1:])
    few, many = shipped_speeds(1, 12), shipped_speeds(16, 16)
    assert few.grid("resnet-50")[0] == pytest.approx(many.grid("resnet-50")[0, :13])


def test_rows_of_a_table_with_0_servers_are_a_line_of_their_own(tmp_path: Path) -> None:
    file = tmp_path / "speeds.csv"
    rows = ["m,1,1,5", "m,2,2,9", "m,0,1,4", "m,0,3,10"]
    file.write_text("model,servers,workers,samples_per_second\n" + "\n".join(rows) + "\n")
    grid = interpolated(read_points(file), 2, 4).grid("m")
    assert grid[0] == pytest.approx([0, 4, 7, 10, 10])
    others = {"m": [SpeedPoint(1, 1, 5.0), SpeedPoint(2, 2, 9.0)]}
    assert grid[1:] == pytest.approx(interpolated(others, 2, 4).grid("m")[1:])
    alone = interpolated({"m": [SpeedPoint(0, 2, 5.0)]}, 2, 4).grid("m")
    assert (alone[0, 1:] == 5).all()
    assert not alone[1:].any()


def test_generated_jobs_are_the_same_but_for_the_part_without_servers(tmp_path: Path) -> None:
    usual = generate(Pattern.GOOGLE, 200, 7)
    mixed = generate(Pattern.GOOGLE, 200, 7, without_servers=0.5)
    lacking = [one for one in mixed if not one.has_servers]
    assert 70 < len(lacking) < 130
    assert [one.without_servers() for one in usual] == [one.without_servers() for one in mixed]
    assert [one for one in mixed if one.has_servers] == [
        one for one, other in zip(usual, mixed, strict=True) if other.has_servers
    ]
    write_trace(tmp_path / "trace", mixed)
    assert read_trace(tmp_path / "trace") == mixed
    with pytest.raises(BadInput, match="a part 2 of jobs without servers: give a number from 0 to 1"):
        generate(Pattern.GOOGLE, 1, 0, without_servers=2)


def test_no_policy_is_below_the_bound_of_a_mix() -> None:
    jobs = [job(1), serverless(2), replace(serverless(3), arrival=20.0), job(4)]
    bound = lp_bound(jobs, ROOM, MIXED, 10.0)
    for policy in (Drf(), Planner(TrueSpeeds(MIXED))):
        assert run(SimulatedCluster(jobs, ROOM, MIXED, 10.0), policy, NodeRule.SPREAD).mean() >= bound - 1e-6


def test_a_record_and_a_history_of_a_mix(tmp_path: Path) -> None:
    jobs = [job(1), serverless(2)]
    policy = Recording(Drf())
    told = record(SimulatedCluster(jobs, ROOM, MIXED, 10.0), policy, NodeRule.SPREAD)
    assert 0 < summarise(told, MIXED).utilisation["cpu"] <= 1
    write_history(tmp_path / "history", policy.decisions)
    for (now, grants), (then, wanted) in zip(read_history(tmp_path / "history"), policy.decisions, strict=True):
        assert (now.jobs, grants) == (then.jobs, wanted)


def test_a_grid_of_a_job_has_only_what_it_runs_with() -> None:
    speeds = Speeds({"m": np.arange(1.0, 10.0).reshape(3, 3)})
    with_servers, without = job(model="m", max_workers=2, max_servers=1), serverless(model="m", max_workers=2)
    assert speeds.grid_of(with_servers).tolist() == [[0, 0, 0], [0, 5, 6]]
    assert speeds.grid_of(without).tolist() == [[0, 2, 3]]
