"""Decisions, their reasons and what came of them; the service and its client; the commands."""

import json
import re
import sqlite3
import threading
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from typer.testing import CliRunner

from dl2_scheduler.cli import app
from dl2_scheduler.cluster.errors import BadInput, ClusterRefused, NoSuchJob, NotServed
from dl2_scheduler.cluster.free_resources import FreeResources, NodeRule
from dl2_scheduler.cluster.interfaces import JobOutcome, SlotOutcome
from dl2_scheduler.cluster.jobs import Job, Node
from dl2_scheduler.cluster.snapshot import Allocation, Grant, JobState, Snapshot
from dl2_scheduler.live.client import ClusterClient
from dl2_scheduler.live.history import _SLOT_OF_STATE, Happened, History, JobDecision
from dl2_scheduler.live.policies import Policies
from dl2_scheduler.live.reasons import explain
from dl2_scheduler.live.serve_the_waiting import waiting_in
from dl2_scheduler.live.service import ClusterService, serving
from dl2_scheduler.live.slot_loop import SlotLoop
from dl2_scheduler.policies.registry import make_live_policy
from dl2_scheduler.policies.rules.drf import Drf
from dl2_scheduler.sim.simulator import SimulatedCluster
from tests.dl2_scheduler.learning.test_live_learning import SLOT, SPEEDS
from tests.dl2_scheduler.played_cluster import document

ONE = {"slots": 1.0}


def snapshot_of(slots, *maxima):
    jobs = [
        Job(f"j{place}", float(place), "m", 10.0, 1.0, ONE, ONE, max_workers=workers, max_servers=servers)
        for place, (workers, servers) in enumerate(maxima)
    ]
    return Snapshot(3, 20.0, (Node("n", {"slots": float(slots)}),), tuple(map(JobState, jobs)))


def reasons(snapshot):
    room = FreeResources(snapshot)
    return list(explain(snapshot, Drf().allocate(snapshot, room), room).values())


@pytest.mark.parametrize(
    ("slots", "maxima", "expected"),
    [
        (4, [(1, 1)], ["all that it can use"]),
        (8, [(4, 2)], ["all that it can use"]),
        (5, [(4, 2)], ["all the servers that it can use; no node has room for more of it"]),
        (4, [(4, 4)], ["no node has room for more of it"]),
        (5, [(4, 4)], ["room was left for another worker; room was left for another server"]),
        (2, [(4, 4), (4, 4)], ["no node has room for more of it", "waits: 1 of 2 jobs were given the nodes"]),
    ],
)
def test_reasons(slots, maxima, expected):
    assert reasons(snapshot_of(slots, *maxima)) == expected


def test_a_policy_that_gives_less_than_there_is_room_for():
    snapshot = snapshot_of(8, (4, 2))
    room = FreeResources(snapshot)
    room.give(0, 2, 2)
    words = "all the servers that it can use; room was left for another worker"
    assert explain(snapshot, room.allocation(), room) == {"j0": words}


def test_a_policys_own_reason_comes_first():
    snapshot = snapshot_of(4, (1, 1))
    assert explain(snapshot, Allocation({"j0": Grant(1, 1, "because")}), FreeResources(snapshot)) == {"j0": "because"}


def test_history_survives_and_tells_the_last(tmp_path):
    snapshot = snapshot_of(4, (4, 4))
    history = History(tmp_path / "decisions.sqlite")
    history.decided(7.0, "drf", snapshot, Allocation({"j0": Grant(2, 1, "why")}))
    undecided = JobDecision(3, 7.0, "drf", 0, 0, 2, 1, "why", None, under_way=True)
    assert history.of("j0", 0.0, 9) == [undecided]
    history.happened(SlotOutcome(3, [JobOutcome("j0", 1, 1, 0.5, None, "slow")], ()))
    history.close()
    again = History(tmp_path / "decisions.sqlite")
    (found,) = again.of("j0", 0.0, 9)
    assert found.happened == Happened(1, 1, 0.5, "slow")
    assert (again.of("j0", 8.0, 9), again.of("j1", 0.0, 9)) == ([], [])
    again.close()


@pytest.mark.parametrize("name", ["a b", "a#1", "a?b", "100%", "a%41"])
def test_a_folder_of_any_name_is_served(serve, history, tmp_path, name):
    (folder := tmp_path / name).mkdir()
    cluster = serve()
    cluster.desk.submit(document("a"), Path())
    with serving(ClusterService(cluster.desk, history, None), folder), ClusterClient(folder) as client:
        assert [job.name for job in client.jobs()] == ["a"]


def test_a_job_is_told_of_after_the_clock_was_set_back(history):
    for slot, at in ((1, 10.0), (2, 100.0), (3, 40.0), (4, 95.0)):
        history.decided(at, "drf", replace(snapshot_of(4, (4, 4)), slot=slot), Allocation({"j0": Grant(2, 1)}))
    assert [each.slot for each in history.of("j0", 90.0, 9)] == [2, 3, 4], "the job of slot 1 was another"
    assert [each.slot for each in history.of("j0", 90.0, 2)] == [3, 4]


def test_a_job_is_known_by_its_arrival_whatever_the_clock_says(history):
    """Submitted at noon, and the clock set back by an hour: no decision was as late as that, or another job's were."""
    for slot, at, arrival in ((1, 5000.0, 1.0), (2, 40.0, 90.0), (3, 60.0, 90.0)):
        state = replace(snapshot_of(4, (4, 4)).jobs[0], job=Job("j0", arrival, "m", 10.0, 1.0, ONE, ONE))
        snapshot = Snapshot(slot, 20.0, (Node("n", {"slots": 4.0}),), (state,))
        history.decided(at, "drf", snapshot, Allocation({"j0": Grant(1, 1)}))
    assert [each.slot for each in history.of("j0", 4000.0, 9, arrival=90.0)] == [2, 3]
    assert [each.slot for each in history.of("j0", 4000.0, 9, arrival=1.0)] == [1]
    assert history.of("j0", 0.0, 9, arrival=700.0) == [], "nothing has been decided about it yet"


def test_a_history_of_before_arrivals_were_kept_is_read_by_time(tmp_path):
    path = tmp_path / "decisions.sqlite"
    with closing(History(path)) as history:
        history.decided(7.0, "drf", snapshot_of(4, (4, 4)), Allocation({"j0": Grant(2, 1, "why")}))
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("ALTER TABLE decisions DROP COLUMN arrival")
    with closing(History(path)) as history:
        assert [len(history.of("j0", since, 9, arrival=0.0)) for since in (7.0, 8.0)] == [1, 0]


def test_two_processes_may_open_a_history_of_before_at_once(tmp_path, monkeypatch):
    """Both looked for the column before either had added it."""
    path = tmp_path / "decisions.sqlite"
    History(path).close()
    look, looks = History._has_arrivals, []

    def has_arrivals(history):
        looks.append(history)
        return len(looks) > 1 and look(history)

    monkeypatch.setattr(History, "_has_arrivals", has_arrivals)
    with closing(History(path)) as history:
        assert history.of("j0", 0.0, 9, arrival=0.0) == []
    assert len(looks) == 2


def test_why_after_the_clock_was_set_back(served, clock, tmp_path):
    cluster, loop = served
    cluster.desk.submit(document("a"), Path())
    clock.time -= 900.0
    loop.slot()
    with client(tmp_path) as asked:
        assert len(asked.why("a", 9)) == 1


def test_slots_are_counted_without_reading_them(history):
    """Of 100,000 with 40 jobs that would be 400 MB, in each slot."""
    (plan,) = history._read("EXPLAIN QUERY PLAN SELECT slot FROM slots ORDER BY slot DESC LIMIT 1 OFFSET 9", ())
    assert plan[-1] == "SCAN slots USING COVERING INDEX slots_by_number"


def test_the_last_slots_of_a_history_are_so_many_and_have_so_many_states(history):
    """A restart read 5,000 slots of a thousand jobs: five million states, of which a core reads ten a millisecond."""
    for slot, jobs in enumerate((1, 1, 1, 4, 4, 0, 4)):
        state = snapshot_of(4, *[(4, 4)] * jobs)
        grants = {each.job.id: Grant(0, 0) for each in state.jobs}
        history.decided(10.0, "drf", replace(state, slot=slot), Allocation(grants))
    assert [history.recent(99, states) for states in (3, 4, 8, 11, 12, 13, 15, 99)] == [6, 4, 3, 3, 2, 1, -1, -1]
    assert [history.recent(slots, 99) for slots in (1, 2, 5, 99)] == [4, 3, 0, -1]
    (plan,) = history._read(f"EXPLAIN QUERY PLAN {_SLOT_OF_STATE}", (9,))
    assert plan[-1] == "SCAN decisions USING COVERING INDEX decisions_by_slot"


def test_no_history_is_refused(tmp_path):
    (tmp_path / "decisions.sqlite").write_text("not SQLite, but long enough to be looked at as one")
    with pytest.raises(BadInput, match="give another --folder"):
        History(tmp_path / "decisions.sqlite")


@pytest.fixture
def served(tmp_path, serve, runtime, clock, monkeypatch):
    """A cluster with two jobs behind its socket; yields it and its loop."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder = tmp_path / "dl2"
    folder.mkdir()
    cluster, history = serve(), History(folder / "decisions.sqlite")
    policies = Policies(make_live_policy, "drf", folder)
    with serving(ClusterService(cluster.desk, history, policies), folder):
        yield cluster, SlotLoop(cluster, policies, NodeRule.SPREAD, history, now=clock.now)
    history.close()


@contextmanager
def client(tmp_path):
    with ClusterClient(tmp_path / "dl2") as found:
        yield found


def test_over_the_socket(served, tmp_path):
    _, loop = served
    with client(tmp_path) as dl2:
        assert dl2.submit(document("a"), Path("/")) == "a"
        loop.slot()
        (job,) = dl2.jobs()
        assert (job.name, job.phase, job.workers, job.max_servers, job.epochs, job.ended) == (
            "a",
            "running",
            4,
            4,
            40,
            0,
        )
        (decision,) = dl2.why("a", 5)
        assert (decision.slot, decision.policy, decision.workers, decision.happened.epochs) == (0, "drf", 4, 8.0)
        dl2.stop("a")
        loop.slot()
        assert dl2.status("a").phase == "stopped"


def test_refusals_over_the_socket(served, tmp_path):
    with client(tmp_path) as dl2:
        with pytest.raises(BadInput, match="not an ElasticJob document"):
            dl2.submit("", Path("/"))
        for ask in (dl2.stop, dl2.status, lambda name: dl2.why(name, 5)):
            with pytest.raises(NoSuchJob, match="no job a"):
                ask("a")
        dl2.submit(document("a"), Path("/"))
        with pytest.raises(ClusterRefused, match="a is waiting"):
            dl2.submit(document("a"), Path("/"))


def test_a_socket_that_a_killed_one_left_is_taken_over_and_a_long_path_refused(served, tmp_path, serve):
    with (
        pytest.raises(BadInput, match="longer than a socket's path may be"),
        serving(ClusterService(served[0].desk, None, None), tmp_path / ("x" * 100)),
    ):
        pass
    with pytest.raises(BadInput, match="give a shorter --folder"):
        ClusterClient(tmp_path / ("x" * 100))
    folder = tmp_path / "other"
    folder.mkdir()
    (folder / "socket").touch()
    with serving(ClusterService(served[0].desk, None, None), folder), ClusterClient(folder) as found:
        assert list(found.jobs()) == []


def test_nobody_serves(tmp_path):
    with ClusterClient(tmp_path) as found, pytest.raises(NotServed, match=r"no dl2 serve answers in .*: start one"):
        found.jobs()


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (grpc.StatusCode.DEADLINE_EXCEEDED, "has not answered for 30 s: try again"),
        (grpc.StatusCode.UNKNOWN, r"could not answer \(UNKNOWN: it broke\): its output says why"),
    ],
)
def test_who_serves_and_cannot_answer_is_not_said_to_be_away(tmp_path, code, words):
    error = type("Error", (grpc.RpcError,), {"code": lambda _: code, "details": lambda _: "it broke"})

    def fails(request, timeout):
        raise error

    with ClusterClient(tmp_path) as found, pytest.raises(NotServed, match=words):
        found._call(fails, None)


def dl2(*words):
    result = CliRunner().invoke(app, [str(word) for word in words])
    return result.exit_code, result.output


def test_a_job_that_does_not_tell_its_epochs(served, tmp_path):
    text = document("a").replace("  epochs: 40\n", "  scaling: Manual\n")
    (tmp_path / "a.yaml").write_text(text)
    assert dl2("submit", tmp_path / "a.yaml")[0] == 0
    shown = dl2("jobs")[1]
    assert "0.0" in shown.split()
    assert "/" not in shown
    assert "epochs   0.00\n" in dl2("status", "a")[1]
    assert json.loads(dl2("status", "a", "--json")[1])["epochs"] == 0


def test_the_commands(served, tmp_path, runtime):
    _, loop = served
    (tmp_path / "a.yaml").write_text(document("a"))
    assert dl2("submit", tmp_path / "a.yaml") == (0, "a: submitted; dl2 status a shows it\n")
    loop.slot()
    assert runtime.jobs["a"].order.folder == Path.cwd()
    status, output = dl2("jobs")
    assert (status, output.split()[-10:-3]) == (0, ["a", "digits", "running", "4", "4", "8.0/40", "4"])
    assert "workers  4, from 1 to 4\n" in dl2("status", "a")[1]
    assert json.loads(dl2("jobs", "--json")[1])["jobs"][0]["phase"] == "running"
    assert json.loads(dl2("status", "a", "--json")[1])["epochs_done"] == 8.0
    assert "all that it can use" in dl2("why", "a")[1]
    assert json.loads(dl2("why", "a", "--json")[1])["decisions"][0]["workers"] == 4
    assert dl2("stop", "a") == (0, "a: it is being stopped\n")


def test_a_slot_that_a_kill_cut_short_is_not_said_to_run(served, monkeypatch):
    cluster, loop = served

    def killed():
        raise KeyboardInterrupt

    def cut_short():
        with monkeypatch.context() as patch:
            patch.setattr(cluster, "finish_slot", killed)
            with pytest.raises(KeyboardInterrupt):
                loop.slot()

    cluster.desk.submit(document("a"), Path())
    cut_short()
    assert dl2("why", "a")[1].count("not ended") == 1
    loop.slot()
    assert re.findall("not ended|cut short", dl2("why", "a")[1]) == ["cut short"]
    cut_short()
    assert re.findall("not ended|cut short", dl2("why", "a")[1]) == ["cut short", "not ended"]
    cluster.desk.stop("a")
    loop.slot()
    assert re.findall("not ended|cut short", dl2("why", "a")[1]) == ["cut short", "cut short"]


def test_the_slot_in_which_a_job_ended_is_not_said_to_be_cut_short_while_it_runs(served, runtime, monkeypatch):
    cluster, loop = served
    runtime.epochs = 4.0

    def look(at_end=cluster.finish_slot):
        outcome = at_end()  # at whose end nobody has written it down yet
        assert "finished" in dl2("jobs")[1]
        assert re.findall("not ended|cut short", dl2("why", "a")[1]) == ["not ended"]
        return outcome

    cluster.desk.submit(document("a", epochs=4), Path())
    monkeypatch.setattr(cluster, "finish_slot", look)
    loop.slot()
    assert not re.findall("not ended|cut short", dl2("why", "a")[1])


def test_commands_that_fail(served, tmp_path):
    (tmp_path / "b.yaml").write_text(document("b", epochs=-1))
    assert dl2("submit", tmp_path / "b.yaml") == (
        2,
        f"dl2: {tmp_path}/b.yaml: spec.epochs is -1: Input should be greater than 0\n",
    )
    assert "cannot read" in dl2("submit", tmp_path / "none.yaml")[1]
    assert dl2("status", "x") == (1, "dl2: no job x; there are: none\n")
    for command in ("status", "stop", "logs"):
        status, said = dl2(command, "")
        assert (status, "an empty name: give one" in said) == (2, True)
    assert dl2("jobs", "--folder", tmp_path / "empty")[0] == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--slots 8 --policy drf", "--slots 8: '8' is not NODESxSLOTS, as in 2x8"),
        ("--slots 2x8 --policy none", "unknown policy none: give one of drf, fifo"),
        ("--slots 2x8 --policy planner-true", "policy planner-true is for simulations: give one of"),
        ("--slots 2x8 --policy drf --slot never", "--slot: never is no length of time"),
        ("--slots 2x8 --policy drf --placement x", "unknown placement x"),
        ("--slots 2x8 --policy drf --folder /dev/null/x", "cannot use /dev/null/x"),
    ],
)
def test_what_cannot_be_served(options, words):
    status, output = dl2("serve", *options.split())
    assert status == 2
    assert words in output


def test_policies_of_live_clusters_run_on_the_played_one(serve):
    for name in ("fifo", "srtf", "tetris", "optimus", "planner"):
        cluster = serve()
        if not cluster.desk.jobs():
            cluster.desk.submit(document("a"), Path())
        snapshot = cluster.snapshot()
        grants = make_live_policy(name).allocate(snapshot, FreeResources(snapshot)).grants
        assert grants["a"].workers > 0, name


def test_a_closed_cluster_ends_its_slot_and_the_loop(served, clock):
    cluster, loop = served
    clock.at(clock.now() + 3.0, cluster.close)
    worker = threading.Thread(target=loop.run, name="loop")
    worker.start()
    worker.join(30)
    assert (worker.is_alive(), clock.now()) == (False, 1003.0)


class Passing:
    """Grants the second job something in every fourth slot."""

    def allocate(self, snapshot, room):
        room.give(0, 1, 1)
        if snapshot.slot % 4 == 0 and len(snapshot.jobs) > 1:
            room.give(1, 1, 1)
        return room.allocation()


def test_what_finds_no_place_does_not_count_as_given(tmp_path):
    """The history has what was done, and a scheduler that begins anew goes by that."""
    jobs = [replace(each.job, arrival=0.0, epochs=1e6, model="a") for each in snapshot_of(4, (1, 1), (1, 1)).jobs]
    cluster = SimulatedCluster(jobs, (Node("n", {"slots": 4.0}),), SPEEDS, SLOT)
    policies = Policies(lambda name: Passing() if name == "passing" else Drf(), "drf", tmp_path, "passing")

    def settle(allocation):
        return Allocation({**allocation.grants, "j1": Grant(0, 0, "no place")})

    with closing(History(tmp_path / "decisions.sqlite")) as history:
        loop = SlotLoop(cluster, policies, NodeRule.SPREAD, history, settle=settle)
        for _ in range(6):
            loop.slot()
        assert loop._decider._waited == waiting_in(history.slots()) == {("j0", 0.0): 0, ("j1", 0.0): 6}
