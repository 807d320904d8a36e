"""Measuring interference: which placements, what is kept of a call that was cut off, and what is read of a gate."""

import os
from pathlib import Path

import pytest

from benchmarks.measure_interference import measured, missing, named, placements_of, profiles_of
from benchmarks.support.gates import Gates
from benchmarks.support.measured_rows import MeasuredRows
from benchmarks.support.pinned_jobs import JobKind, ModelSize, running
from dl2_scheduler.cluster.hardware.measured import MeasuredJob, MeasuredPlacement, placement_key

KINDS = [JobKind("a"), JobKind("a"), JobKind("b", workers=2)]
SIZES = {"a": ModelSize(4.0, 16)}


def row(speed: float = 10.0, server: int = 1, cpu: tuple[float, float] = (0.5, 0.25)) -> MeasuredPlacement:
    return MeasuredPlacement((MeasuredJob("a", (0,), (server,), (speed,), cpu),), (0.0,))


def test_placements_differ_and_hold_every_single_job_first():
    chosen = placements_of(KINDS, 2, 1000)
    keys = [placement_key(named(KINDS, each)) for each in chosen]
    assert len(set(keys)) == len(keys)
    assert [len(each) for each in chosen] == sorted(len(each) for each in chosen)
    assert sum(len(each) == 1 for each in chosen) == 2 + 3  # a: together, apart; b: all in one, split workers, server
    assert placements_of(KINDS, 2, 7) == chosen[:7]


def test_every_placement_is_measured_as_often_as_asked_and_no_more():
    chosen = placements_of(KINDS, 2, 6)
    todo = list(missing([], KINDS, chosen, 3))
    assert sorted(todo) == sorted(chosen * 3)
    (alone,) = [each for each in chosen if named(KINDS, each) == [("a", (0,), (1,))]] or [chosen[0]]
    done = MeasuredPlacement(tuple(MeasuredJob(*job, (1.0,)) for job in named(KINDS, alone)))
    assert len(list(missing([done], KINDS, chosen, 3))) == len(todo) - 1


def test_rows_outlive_a_call_that_is_cut_off(tmp_path: Path):
    path = tmp_path / "rows.jsonl"
    rows = MeasuredRows(path, "2 nodes")
    rows.begin(SIZES)
    rows.add(row())
    with path.open("a") as file:
        file.write('{"jobs": [{"mod')  # killed here
    again = MeasuredRows(path, "2 nodes")
    assert again.all == [row()]
    assert again.models == SIZES
    again.begin(SIZES)
    again.add(row(11.0))
    assert MeasuredRows(path, "2 nodes").all == [row(), row(11.0)]


def test_rows_of_another_way_are_refused(tmp_path: Path):
    rows = MeasuredRows(tmp_path / "rows.jsonl", "2 nodes")
    rows.begin(SIZES)
    with pytest.raises(SystemExit, match="move it away"):
        MeasuredRows(tmp_path / "rows.jsonl", "3 nodes")


def test_profile_gives_the_measured_steps_back():
    together, apart = row(160.0, server=0), row(200.0)
    profile = profiles_of([together, apart], SIZES)["a"]
    assert profile.step_s == pytest.approx(16 / 200, rel=1e-3)
    assert profile.alone_s + profile.size_mb / profile.together_mbps == pytest.approx(16 / 160, rel=1e-3)
    assert profile.alone_s == pytest.approx(0.5 * 16 / 200, rel=1e-3)
    assert profiles_of([together], SIZES) == {}


def test_gate_counts_steps_that_its_workers_make(tmp_path: Path):
    measuring, worker = Gates(tmp_path / "gate"), Gates(tmp_path / "gate")
    measuring.open(True)
    worker.wait_until_open()
    worker.made(32, 2_000_000_000)
    worker.made(32, 3_000_000_000)
    made = measuring.read()
    assert (made.samples, made.steps, made.seconds) == (64, 2, 3.0)


@pytest.mark.slow
def test_real_jobs_are_measured_where_they_are_pinned_and_leave_nothing(tmp_path: Path):
    nodes = [[min(os.sched_getaffinity(0))], [max(os.sched_getaffinity(0))]]
    with running([JobKind("device"), JobKind("wide")], tmp_path) as jobs:
        found = measured(jobs, ((0, (1,), (0,)), (1, (0,), (0,))), nodes, window=0.3)
        assert [(job.model, job.workers, job.servers) for job in found.jobs] == [
            ("device", (1,), (0,)),
            ("wide", (0,), (0,)),
        ]
        assert all(job.speed > 0 for job in found.jobs)
        pids = [pid for job in jobs for role in job.tasks for pid in role]
        assert [os.sched_getaffinity(pid) for pid in pids] == [{nodes[at][0]} for at in (1, 0, 0, 0)]
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
