"""Placement policies on the local cluster: tasks keep their nodes, half a job never runs, and a policy's fault is its
own."""

import os
import threading

import pytest

from dl2_scheduler.backends.local.launchers import processes
from dl2_scheduler.backends.local.places.core_pins import check_moves, core_threads, core_words
from dl2_scheduler.backends.local.places.nodes import virtual_nodes
from dl2_scheduler.backends.local.places.settling import LocalPlacement
from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.hardware.view import Places
from dl2_scheduler.cluster.placement.guarded_placement import GuardedPlacement
from dl2_scheduler.cluster.snapshot import Allocation, Grant
from dl2_scheduler.commands.cluster.serving.serve_options import placed_by
from dl2_scheduler.policies.placement.registry import NamedPlacement, make_placement, spread_placement
from tests.dl2_scheduler.local_cases import HERE, only, phases
from tests.dl2_scheduler.played_cluster import document

CORES = frozenset((4, 5, 6, 7))


class Watching:
    """Lets a policy decide, and keeps what it saw."""

    def __init__(self, policy):
        self.policy, self.views = policy, []

    def place(self, view):
        self.views.append(view)
        return self.policy.place(view)


def placing(policy, cores=CORES, seconds=30.0) -> LocalPlacement:
    named = make_placement(policy) if isinstance(policy, str) else NamedPlacement("mine", policy)
    return LocalPlacement(GuardedPlacement(named, spread_placement(), seconds), cores)


def slot(cluster, **grants):
    """One slot as the loop runs it; returns what was settled, and what became of it."""
    cluster.snapshot()
    wanted = {name: Grant(*counts, "as asked") for name, counts in grants.items()}
    settled = cluster.settle(Allocation(wanted))
    cluster.apply(settled)
    return settled, cluster.finish_slot()


def places(cluster, name):
    return cluster._records.last(name).places


@pytest.mark.parametrize(("policy", "nodes"), [("best-fit", 1), ("load-balance", 2)])
def test_tasks_go_where_the_policy_says_and_keep_to_their_cores(serve, runtime, policy, nodes):
    cluster = serve(placing=placing(policy))
    cluster.desk.submit(document(epochs=400), HERE)
    settled, outcome = slot(cluster, digits=(2, 2))
    assert (only(outcome).workers, only(outcome).servers) == (2, 2)
    workers, servers = places(cluster, "digits")
    assert len({*workers, *servers}) == nodes
    assert settled.of("digits").reason.startswith("as asked; ")
    assert settled.of("digits").reason.endswith(f" by {policy}")
    of = {"node-0": [4, 5], "node-1": [6, 7]}
    tasks = runtime.report("digits", None).tasks
    assert [runtime.pins[task.pid] for task in tasks] == [of[name] for name in (*workers, *servers)]
    assert [load.used["slots"] for load in cluster.desk.load().nodes] == ([4, 0] if nodes == 1 else [2, 2])


def test_a_job_that_grows_misses_only_its_new_tasks(serve):
    watching = Watching(make_placement("load-balance"))
    cluster = serve(placing=placing(watching))
    cluster.desk.submit(document(epochs=400), HERE)
    slot(cluster, digits=(1, 1))
    before = places(cluster, "digits")
    slot(cluster, digits=(3, 2))
    assert [view.missing.tolist() for view in watching.views] == [[[1, 1]], [[2, 1]]]
    assert watching.views[1].placed.group.tolist() == [0, 1]
    assert watching.views[1].rates.tolist() == [1.0]
    after = places(cluster, "digits")
    assert (after[0][:1], after[1][:1]) == before
    settled, _ = slot(cluster, digits=(3, 2))
    assert len(watching.views) == 2  # nothing is missing
    assert settled.of("digits").reason == "as asked"
    slot(cluster, digits=(1, 1))
    assert places(cluster, "digits") == before


def test_what_finds_no_place_waits_or_keeps_what_it_has(serve):
    cluster = serve("2x2", placing=placing("load-balance"))
    cluster.desk.submit(document("first", epochs=400), HERE)
    cluster.desk.submit(document("second", epochs=400), HERE)
    slot(cluster, first=(2, 1))
    settled, outcome = slot(cluster, first=(3, 2), second=(1, 1))
    told = {job.id: (job.workers, job.servers) for job in outcome.jobs}
    assert told == {"first": (2, 1), "second": (0, 0)}
    assert settled.of("first").reason == (
        "held at 2+1 instead of 3+2: load-balance found no place for its 1 workers and 1 servers more; as asked"
    )
    assert settled.of("second").reason == "waits: load-balance found no place for its 1 workers and 1 servers; as asked"


class Odd:
    """Raises, answers what cannot be done, writes over what it is shown, or hangs until it is let go."""

    def __init__(self):
        self.does, self.gate = "raises", threading.Event()

    def place(self, view):
        if self.does == "raises":
            raise RuntimeError("no luck")
        if self.does == "ends":
            raise KeyboardInterrupt
        if self.does == "writes":
            view.free[:] = 1e9
            view.demand[:] = view.missing[:] = 0
            raise RuntimeError("no luck")
        if self.does == "hangs":
            self.gate.wait(60)
        return Places({0: ((0,) * 9, (0,))})


@pytest.mark.parametrize(
    ("does", "fault"),
    [
        ("raises", "it raised RuntimeError: no luck"),
        ("ends", "it raised KeyboardInterrupt: "),
        ("writes", "it raised RuntimeError: no luck"),
        ("answers", "job 0: 9 workers were placed of 2"),
        ("hangs", "it has not answered within 0.05 s"),
    ],
)
def test_a_policy_that_fails_is_stood_in_for_and_that_is_said(serve, does, fault, caplog):
    odd = Odd()
    odd.does = does
    cluster = serve(placing=placing(odd, seconds=0.05))
    cluster.desk.submit(document(epochs=400), HERE)
    settled, outcome = slot(cluster, digits=(2, 1))
    assert (only(outcome).workers, only(outcome).servers) == (2, 1)
    assert settled.of("digits").reason.endswith(f" by spread; spread placed it, as mine failed: {fault}")
    assert f"spread PLACES INSTEAD OF mine: {fault}" in caplog.text
    if does == "hangs":
        cluster.desk.submit(document("second", epochs=400), HERE)
        settled, _ = slot(cluster, digits=(2, 1), second=(1, 1))
        assert settled.of("second").reason.endswith("it has not answered since it was asked before")
        odd.gate.set()


class Talker(NamedPlacement):
    """Places, and never comes to the end of saying why."""

    def explain(self, view, places, nodes):
        gate.wait(60)
        return {}


gate = threading.Event()


def test_words_that_take_too_long_keep_nobody(serve, caplog):
    talker = Talker("mine", make_placement("best-fit"))
    cluster = serve(placing=LocalPlacement(GuardedPlacement(talker, spread_placement(), 0.5), CORES))
    cluster.desk.submit(document(epochs=400), HERE)
    settled, outcome = slot(cluster, digits=(2, 1))
    assert (only(outcome).workers, only(outcome).servers) == (2, 1)
    assert settled.of("digits").reason == "as asked; placed by mine"
    assert "mine cannot explain its choice: it has not answered within 0.5 s" in caplog.text
    gate.set()


class Greedy:
    """Lets all tasks need nothing, and puts them on the first node."""

    def place(self, view):
        view.demand[:] = 0
        return Places({0: ((0, 0), (0, 0))})


def test_what_a_policy_writes_into_its_view_makes_no_room(serve):
    cluster = serve("2x2", placing=placing(Greedy()))
    cluster.desk.submit(document(epochs=400), HERE)
    slot(cluster, digits=(2, 2))
    assert [load.used["slots"] for load in cluster.desk.load().nodes] == [2, 2]


def test_a_process_that_may_not_be_pinned_runs_where_it_may(caplog):
    allowed = os.sched_getaffinity(0)
    processes.pin(os.getpid(), frozenset((4096,)))  # a core that this machine has not
    assert os.sched_getaffinity(0) == allowed
    assert "cannot be kept to the cores [4096]" in caplog.text


def test_a_type_that_the_model_does_not_know_is_said(serve, tmp_path, caplog):
    from dl2_scheduler.policies.placement.speed_model import save_speed_model
    from tests.dl2_scheduler.policies.placement.fitted import drawn_model

    save_speed_model(tmp_path / "model", drawn_model())
    cluster = serve(placing=placing(f"local-search:{tmp_path}/model"))
    cluster.desk.submit(document(epochs=400), HERE)
    cluster.desk.submit(document("known", epochs=400).replace("modelType: digits", "modelType: wlm"), HERE)
    settled, _ = slot(cluster, digits=(1, 1), known=(2, 1))
    assert "knows nothing of the type digits: jobs of it are placed by what they ask for" in caplog.text
    assert "the model of speeds does not know its type" in settled.of("digits").reason
    assert "% slowdown" in settled.of("known").reason


def test_places_outlive_the_scheduler_and_a_rule_lets_tasks_go(serve, runtime):
    slot_of = document(epochs=400)
    cluster = serve(placing=placing("best-fit"))
    cluster.desk.submit(slot_of, HERE)
    slot(cluster, digits=(2, 2))
    before = places(cluster, "digits")
    runtime.pins.clear()
    again = serve(placing=placing("load-balance"))
    slot(again, digits=(2, 2))
    assert places(again, "digits") == before
    assert len(runtime.pins) == 4
    counted = serve()
    slot(counted, digits=(2, 2))
    assert places(counted, "digits") == ((), ())
    assert [runtime.pins[task.pid] for task in runtime.report("digits", None).tasks] == [
        sorted(os.sched_getaffinity(0))
    ] * 4


def test_tasks_that_ran_before_there_was_a_policy_are_counted_where_it_is_emptiest(serve):
    cluster = serve()
    cluster.desk.submit(document(epochs=400), HERE)
    slot(cluster, digits=(2, 1))
    placed = serve(placing=placing("best-fit"))
    settled, _ = slot(placed, digits=(2, 1))
    assert sorted(sum(places(placed, "digits"), ())) == ["node-0", "node-0", "node-1"]
    assert settled.of("digits").reason == "as asked"


def test_held_jobs_have_places_too(serve):
    cluster = serve("2x2", placing=placing("best-fit"))
    cluster.desk.submit(document(epochs=400), HERE)
    slot(cluster, digits=(1, 1))
    cluster.desk.hold("digits")
    cluster.desk.scale("digits", 2, 2)
    slot(cluster)
    assert sorted(sum(places(cluster, "digits"), ())) == ["node-0", "node-0", "node-1", "node-1"]
    cluster.desk.submit(document("second"), HERE)
    settled, _ = slot(cluster, second=(1, 1))
    assert "found no place" in settled.of("second").reason
    assert phases(cluster)["second"] == "waiting"


def test_nodes_that_have_become_smaller_hold_no_more_than_they_have(serve):
    cluster = serve("2x8", placing=placing("best-fit"))
    cluster.desk.submit(document(epochs=400), HERE)
    slot(cluster, digits=(3, 3))
    assert set(sum(places(cluster, "digits"), ())) == {"node-0"}
    smaller = serve("3x2", placing=placing("best-fit"))
    slot(smaller, digits=(3, 3))
    assert [load.used["slots"] for load in smaller.desk.load().nodes] == [2, 2, 2]
    smallest = serve("1x2", placing=placing("best-fit"))
    settled, _ = slot(smallest, digits=(1, 1))
    assert places(smallest, "digits") == (("node-0",), ("node-0",))
    assert settled.of("digits").reason == "as asked"


def test_a_held_job_that_does_not_fit_stays_where_it_is(serve):
    cluster = serve("2x2", placing=placing("best-fit"))
    cluster.desk.submit(document(epochs=400), HERE)
    slot(cluster, digits=(2, 2))
    cluster.desk.hold("digits")
    smaller = serve("2x1", placing=placing("best-fit"))
    slot(smaller)
    found = places(smaller, "digits")
    assert sorted(sum(found, ())) == ["node-0", "node-0", "node-1", "node-1"]
    slot(smaller)
    slot(smaller)
    assert places(smaller, "digits") == found


def test_a_suspended_job_gives_its_places_back(serve):
    cluster = serve("1x4", placing=placing("load-balance"))
    cluster.desk.submit(document("first", epochs=400), HERE)
    cluster.desk.submit(document("second", epochs=400), HERE)
    slot(cluster, first=(2, 2))
    slot(cluster, second=(2, 2))
    assert places(cluster, "first") == ((), ())
    assert places(cluster, "second") == (("node-0",) * 2, ("node-0",) * 2)


def test_which_cores_nodes_have():
    nodes = virtual_nodes("3x2")
    assert (
        core_words(nodes, frozenset(range(8)))
        == "node-0 has cores 0 to 2, node-1 has cores 3 to 4, node-2 has cores 5 to 7"
    )
    assert core_words(nodes[:2], frozenset((0, 5))) == "node-0 has core 0, node-1 has core 5"
    assert core_words(nodes, frozenset((0, 5))).startswith("2 cores are too few for each node to have its own")


def test_moves_between_nodes_that_share_all_cores_are_refused():
    check_moves(virtual_nodes("2x2"), frozenset((0, 5)))
    with pytest.raises(BadInput, match=r"2 cores are too few for each of 3 nodes .* give fewer nodes in --slots"):
        check_moves(virtual_nodes("3x2"), frozenset((0, 5)))


def test_a_node_has_both_threads_of_a_core_where_cores_suffice(tmp_path):
    """Four cores of two threads each, numbered as most machines do: 0 and 4 are one core."""
    for core in range(8):
        folder = tmp_path / f"cpu{core}/topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{core % 4},{core % 4 + 4}\n")
    cores = frozenset(range(8))
    threads = core_threads(cores, tmp_path)
    assert threads == tuple(frozenset((core, core + 4)) for core in range(4))
    assert core_words(virtual_nodes("2x2"), cores, threads) == "node-0 has cores 0 1 4 5, node-1 has cores 2 3 6 7"
    assert core_words(virtual_nodes("8x2"), cores, threads).endswith(
        "node-6 has core 3, node-7 has core 7; nodes share cores of which they have one thread each: give fewer nodes"
    )
    (tmp_path / "cpu0/topology/thread_siblings_list").write_text("0-1\n")
    assert frozenset((0, 1)) in core_threads(frozenset((0, 1)), tmp_path)
    assert core_threads(frozenset((1, 4)), tmp_path) == (frozenset((1,)), frozenset((4,)))
    assert core_threads(frozenset((9,)), tmp_path) == ()


def test_names_of_serve():
    rule, none = placed_by("pack")
    assert (rule.name, none) == ("PACK", None)
    rule, policy = placed_by("best-fit-shortest")
    assert (rule.name, policy.name) == ("SPREAD", "best-fit-shortest")
    with pytest.raises(
        BadInput, match=r"--placement: unknown placement pakc: give one of .*; or a rule .*: spread, pack"
    ):
        placed_by("pakc")
