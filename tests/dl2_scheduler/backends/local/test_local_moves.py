"""Tasks of the local cluster that are moved to another node: when, with what words, and never beside what changes."""

from itertools import pairwise

import pytest

from dl2_scheduler.backends.local.job_records import JobRecord
from dl2_scheduler.backends.local.places.seating import seated
from dl2_scheduler.backends.local.places.settling import LocalPlacement
from dl2_scheduler.backends.local.runtime import JobReport, RunningTask
from dl2_scheduler.cluster.document.job_document import read_document
from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.hardware.view import Places
from dl2_scheduler.cluster.placement.guarded_placement import GuardedPlacement
from dl2_scheduler.cluster.placement.task_mover import REST_SLOTS
from dl2_scheduler.cluster.snapshot import Allocation, Grant
from dl2_scheduler.commands.cluster.serving.serve_options import placed_by
from dl2_scheduler.policies.placement.registry import NamedPlacement, spread_placement
from dl2_scheduler.policies.placement.speed_model import SpeedModel, save_speed_model
from tests.dl2_scheduler.backends.local.test_local_placement import places, slot
from tests.dl2_scheduler.local_cases import HERE
from tests.dl2_scheduler.played_cluster import document
from tests.dl2_scheduler.policies.placement.fitted import drawn_model
from tests.dl2_scheduler.policies.placement.test_moving import Crowd

CORES = frozenset((4, 5, 6, 7))


class AllOnTheFirst:
    """Puts every task on the first node."""

    def place(self, view):
        missing = enumerate(view.missing.tolist())
        return Places({job: ((0,) * many[0], (0,) * many[1]) for job, many in missing if any(many)})


class Broken(NamedPlacement):
    """Raises where it is asked for moves."""

    def moves(self, view, terms, nodes):
        raise RuntimeError("no luck")


def moving(speeds=None, most=1, kind=NamedPlacement) -> LocalPlacement:
    named = kind("mine", AllOnTheFirst(), SpeedModel(("digits",), speeds=speeds or Crowd()))
    return LocalPlacement(GuardedPlacement(named, spread_placement()), CORES, most)


def two_jobs(serve, placing, slots="2x8"):
    """Two jobs that share the first node, when they have just begun to train."""
    cluster = serve(slots, placing=placing)
    for name in ("first", "second"):
        cluster.desk.submit(document(name, epochs=400), HERE)
    slot(cluster, first=(1, 1), second=(1, 1))
    return cluster


def test_tasks_leave_a_crowded_node_one_by_one_until_it_pays_no_more(serve, runtime):
    cluster = two_jobs(serve, moving())
    seen = [places(cluster, "first") + places(cluster, "second")]
    reasons = []
    for _ in range(3 * REST_SLOTS):
        settled, _ = slot(cluster, first=(1, 1), second=(1, 1))
        seen.append(places(cluster, "first") + places(cluster, "second"))
        reasons += [grant.reason for grant in settled.grants.values() if "moves" in grant.reason]
    moved = [sum(old != new for old, new in zip(before, after, strict=True)) for before, after in pairwise(seen)]
    assert max(moved) == 1
    assert sum(moved) == 2
    assert moved[-REST_SLOTS:] == [0] * REST_SLOTS
    assert reasons[0].startswith(
        "as asked; a worker moves from node-0 to node-1: its steps as long as before, those of"
    )
    assert reasons[0].endswith("; the move costs 0.1 s of its training")
    assert [load.used["slots"] for load in cluster.desk.load().nodes] == [2, 2]


def test_a_whole_job_moves_where_two_tasks_may(serve):
    cluster = two_jobs(serve, moving(most=2))
    for _ in range(REST_SLOTS + 2):
        slot(cluster, first=(1, 1), second=(1, 1))
    ends = [{*workers, *servers} for workers, servers in (places(cluster, "first"), places(cluster, "second"))]
    assert sorted(map(sorted, ends)) == [["node-0"], ["node-1"]]


def test_a_moved_task_runs_on_other_cores_at_once(serve, runtime):
    cluster = two_jobs(serve, moving())
    runtime.pins.clear()
    cluster.snapshot()
    settled = cluster.settle(Allocation(dict.fromkeys(("first", "second"), Grant(1, 1, "as asked"))))
    assert sum("moves" in grant.reason for grant in settled.grants.values()) == 1
    cluster.apply(settled)
    assert list(runtime.pins.values()) == [[6, 7]]  # and no other task is touched


def test_moves_are_off_unless_asked_for(serve):
    cluster = two_jobs(serve, moving(most=0))
    for _ in range(3):
        settled, _ = slot(cluster, first=(1, 1), second=(1, 1))
        assert {grant.reason for grant in settled.grants.values()} == {"as asked"}


def test_what_fails_moves_nothing_and_is_said(serve, caplog):
    cluster = two_jobs(serve, moving(kind=Broken))
    for _ in range(3):
        slot(cluster, first=(1, 1), second=(1, 1))
    assert places(cluster, "first") == places(cluster, "second") == (("node-0",), ("node-0",))
    assert caplog.text.count("placement: no task is moved: mine: it raised RuntimeError: no luck") == 1


def test_nothing_moves_beside_a_job_that_grows(serve):
    settled, _ = slot(two_jobs(serve, moving()), first=(1, 1), second=(2, 1))
    assert all("moves" not in grant.reason for grant in settled.grants.values())


def test_nothing_moves_beside_a_task_whose_node_is_gone_as_it_has_measured_elsewhere(serve):
    cluster = two_jobs(serve, moving())  # a restart with other --slots leaves places that are on no node
    cluster._records.change(cluster._records.last("first").number, places=(("gone",), ("node-0",)))
    settled, _ = slot(cluster, first=(1, 1), second=(1, 1))
    assert places(cluster, "first") == (("node-1",), ("node-0",))
    assert all("moves" not in grant.reason for grant in settled.grants.values())


def test_a_job_that_is_held_keeps_its_places(serve):
    cluster = two_jobs(serve, moving())
    for name in ("first", "second"):
        cluster.desk.hold(name)
    slot(cluster)
    assert places(cluster, "first") == places(cluster, "second") == (("node-0",), ("node-0",))


def report(*ids):
    tasks = tuple(RunningTask(each, {"w": "worker", "s": "server"}[each[0]], 1) for each in ids)
    return JobReport(True, "", 1, 1, 1, 1, True, 1.0, 10.0, 1.0, tasks)


def record(places, seats=()):
    return JobRecord(1, read_document(document()), HERE, 0.0, places=places, seats=seats)


def test_the_death_of_one_task_moves_no_other():
    places = (("A", "B", "C"), ("A", "A"))
    found = seated(record(places), report("w0", "w1", "w2", "s0", "s1"))
    assert found.seats == (("w0", "A"), ("w1", "B"), ("w2", "C"), ("s0", "A"), ("s1", "A"))
    dead = seated(record(found.places, found.seats), report("w0", "w2", "s1"))
    assert dead.seats == (("w0", "A"), ("w2", "C"), ("s1", "A"))
    assert dead.places == (("A", "C", "B"), ("A", "A"))
    again = seated(record(dead.places, dead.seats), report("w0", "w2", "w3", "s1", "s2"))
    assert again.seats == (("w0", "A"), ("w2", "C"), ("w3", "B"), ("s1", "A"), ("s2", "A"))


def test_a_move_moves_one_task_and_one_that_leaves_stays_where_it_is():
    seats = (("w0", "B"), ("w1", "B"), ("w2", "A"), ("s0", "A"))
    found = seated(record((("B", "C", "A"), ("A",)), seats), report("w0", "w1", "w2", "s0"))
    assert found.seats == (("w0", "B"), ("w1", "C"), ("w2", "A"), ("s0", "A"))
    leaving = seated(record((("B", "C"), ("A",)), found.seats), report("w0", "w1", "w2", "s0"))
    assert set(leaving.seats) == set(found.seats)
    assert leaving.places == (("B", "C"), ("A",))


def test_what_cannot_move_tasks_is_refused(tmp_path):
    for name in ("spread", "best-fit"):
        with pytest.raises(BadInput, match=f"{name} knows no speeds by which a move could be costed"):
            placed_by(name, 1)
    with pytest.raises(BadInput, match="--move-tasks is -1: give how many"):
        placed_by("best-fit", -1)
    save_speed_model(tmp_path, drawn_model())
    _, policy = placed_by(f"local-search:{tmp_path}", 2)
    assert policy is not None
