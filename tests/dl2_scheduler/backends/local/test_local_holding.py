"""Jobs that their owners hold, wait suspended, or that the nodes have no room for any more."""

import pytest
import yaml

from dl2_scheduler.backends.local.places.nodes import virtual_nodes
from dl2_scheduler.backends.local.places.placing import TaskDemand, fit, place
from dl2_scheduler.backends.local.runtime import TaskShape
from dl2_scheduler.cluster.desk import LiveJobPhase
from dl2_scheduler.cluster.errors import BadInput, ClusterRefused, NoSuchJob
from dl2_scheduler.cluster.free_resources import FreeResources, NodeRule
from dl2_scheduler.cluster.snapshot import Allocation, Grant
from dl2_scheduler.policies.registry import LIVE_NAMES, make_live_policy
from tests.dl2_scheduler.local_cases import HERE
from tests.dl2_scheduler.played_cluster import document

ONE = {"slots": 1.0}
TINY = {"spec": {"containers": [{"resources": {"requests": {"slots": 1e-12}}}]}}


def slot(cluster, **grants):
    snapshot = cluster.snapshot()
    cluster.apply(Allocation({name: Grant(*counts) for name, counts in grants.items()}))
    return snapshot, cluster.finish_slot()


def free(snapshot):
    return [node.capacity["slots"] for node in snapshot.nodes]


def job(cluster, name):
    return {job.name: job for job in cluster.desk.jobs()}[name]


@pytest.fixture
def two(serve):
    """a and b run with 2+2 and 1+1 on 2 nodes of 8 slots."""
    cluster = serve()
    for name in ("a", "b"):
        cluster.desk.submit(document(name), HERE)
    slot(cluster, a=(2, 2), b=(1, 1))
    return cluster


def test_the_policy_leaves_a_held_job_alone(two, runtime):
    two.desk.hold("a")
    snapshot, outcome = slot(two, a=(1, 1), b=(1, 1))
    assert [state.job.id for state in snapshot.jobs] == [job.id for job in outcome.jobs] == ["b"]
    assert free(snapshot) == [6.0, 6.0]
    held = job(two, "a")
    assert (held.held, held.workers, held.servers, held.phase) == (True, 2, 2, LiveJobPhase.RUNNING)
    assert [call[0] for call in runtime.calls] == ["start", "start"]


def test_a_job_held_in_mid_slot_does_not_take_what_the_policy_then_decides(two, runtime):
    two.snapshot()
    two.desk.hold("a")
    two.apply(Allocation({"a": Grant(4, 4), "b": Grant(1, 1)}))
    assert [call[0] for call in runtime.calls] == ["start", "start"]
    two.finish_slot()
    assert job(two, "a").workers == 2


def test_a_held_job_is_scaled_by_its_owner_without_waiting_for_the_slot(two, runtime, clock):
    two.desk.hold("a")
    clock.at(clock.now() + 5.0, lambda: two.desk.scale("a", 3, 0))
    slot(two, b=(1, 1))
    assert runtime.calls[-1] == ("scale", "a", 3, 2)
    assert job(two, "a").workers == 3
    two.desk.release("a")
    snapshot, _ = slot(two, a=(1, 1), b=(1, 1))
    assert free(snapshot) == [8.0, 8.0]
    assert (job(two, "a").held, job(two, "a").workers) == (False, 1)


def test_one_that_grows_into_what_others_have_waits_for_the_slot(serve, runtime, clock):
    cluster = serve("1x4")
    for name in ("a", "b"):
        cluster.desk.submit(document(name), HERE)
    slot(cluster, a=(1, 1), b=(1, 1))
    cluster.desk.hold("a")
    clock.at(clock.now() + 5.0, lambda: cluster.desk.scale("a", 2, 0))
    slot(cluster, b=(1, 1))
    assert job(cluster, "a").workers == 1
    snapshot, _ = slot(cluster)
    assert free(snapshot) == [1.0]
    assert job(cluster, "a").workers == 2
    assert job(cluster, "b").reason == "suspended: it was granted nothing; held jobs take the room that it needs"
    with pytest.raises(
        ClusterRefused, match=r"a with 4 workers and 2 servers does not fit .*; there is left: node-0: 4 slots"
    ):
        cluster.desk.scale("a", 4, 2)


def test_counts_that_its_owner_wants_while_others_make_room_are_kept(serve, runtime, monkeypatch):
    cluster = serve("1x6")
    cluster.desk.submit(document("b"), HERE)
    slot(cluster, b=(3, 3))
    cluster.desk.submit(document("a") + "  scaling: Manual\n", HERE)
    shrink = runtime.scale

    def shrunk(name, workers, servers):
        shrink(name, workers, servers)
        monkeypatch.undo()
        cluster.desk.scale("a", 3, 1)  # the loop is about to start it with one of each

    monkeypatch.setattr(runtime, "scale", shrunk)
    slot(cluster, b=(1, 1))
    slot(cluster, b=(1, 1))
    assert (job(cluster, "a").workers, job(cluster, "a").servers) == (3, 1)


def test_one_that_is_held_while_others_make_room_is_its_owners(serve, runtime, monkeypatch):
    cluster = serve("1x8")
    for name in ("a", "b"):
        cluster.desk.submit(document(name), HERE)
    slot(cluster, a=(1, 1), b=(3, 3))
    shrink = runtime.scale

    def shrunk(name, workers, servers):
        shrink(name, workers, servers)
        monkeypatch.undo()
        cluster.desk.hold("a")
        cluster.desk.scale("a", 3, 1)

    monkeypatch.setattr(runtime, "scale", shrunk)
    slot(cluster, a=(2, 2), b=(1, 1))
    slot(cluster, b=(1, 1))
    assert (job(cluster, "a").workers, job(cluster, "a").servers) == (3, 1)
    assert ("scale", "a", 2, 2) not in runtime.calls


def test_what_is_refused(two):
    for ask, words in (
        (lambda: two.desk.scale("a", 1, 0), "a is scaled by the policy; dl2 hold a first"),
        (lambda: two.desk.release("a"), "a is not held: the policy decides about it"),
    ):
        with pytest.raises(ClusterRefused, match=words):
            ask()
    two.desk.hold("a")
    for ask, words in (
        (lambda: two.desk.hold("a"), "a is held already; dl2 scale a gives it other counts"),
        (lambda: two.desk.scale("a", 5, 0), "5 workers for a: its document allows 1 to 4"),
        (lambda: two.desk.scale("a", 0, 9), "9 servers for a: its document allows 1 to 4"),
        (lambda: two.desk.scale("a", 0, 0), "no counts for a: give --workers N"),
    ):
        with pytest.raises(ClusterRefused, match=words):
            ask()
    for ask in (two.desk.hold, two.desk.release, lambda name: two.desk.scale(name, 1, 1)):
        with pytest.raises(NoSuchJob, match="no job c"):
            ask("c")


def test_what_a_held_job_will_not_follow_is_said(two, runtime):
    two.desk.hold("a")
    two.desk.scale("a", 3, 0)
    runtime.jobs["a"].refuses = "no more workers: use an elastic_ps.Sampler"
    slot(two, b=(1, 1))
    assert (job(two, "a").workers, job(two, "a").reason) == (2, "no more workers: use an elastic_ps.Sampler")
    runtime.jobs["a"].refuses = ""
    slot(two, b=(1, 1))
    assert (job(two, "a").workers, job(two, "a").reason) == (3, "")


def test_held_jobs_tell_their_speeds_too(two):
    two.desk.hold("a")
    slot(two, b=(1, 1))
    snapshot, outcome = slot(two, b=(1, 1))
    assert [(report.job, report.workers) for report in snapshot.reports] == [("a", 2), ("b", 1)]
    assert snapshot.reports == outcome.reports


def test_a_restart_remembers_what_is_held(two, serve, runtime):
    two.desk.hold("a")
    two.desk.scale("a", 1, 1)
    second = serve()
    snapshot, _ = slot(second, b=(1, 1))
    assert [state.job.id for state in snapshot.jobs] == ["b"]
    assert (job(second, "a").held, job(second, "a").workers) == (True, 1)


def test_a_held_job_whose_launcher_was_lost_gets_its_counts_again(two, runtime):
    two.desk.hold("a")
    runtime.end("a", None, "it was killed")
    slot(two, b=(1, 1))
    assert runtime.calls[-1] == ("start", "a", 2, 2)


def test_a_held_job_that_had_nothing_begins_when_it_is_scaled(serve, runtime):
    cluster = serve()
    cluster.desk.submit(document("a"), HERE)
    cluster.desk.hold("a")
    assert job(cluster, "a").reason == "held without tasks: dl2 scale a gives it some"
    snapshot, _ = slot(cluster)
    assert (snapshot.jobs, runtime.calls) == ((), [])
    assert cluster.desk.scale("a", 2, 0) == Grant(2, 1)
    slot(cluster)
    assert runtime.calls == [("start", "a", 2, 1)]


@pytest.mark.parametrize("policy", LIVE_NAMES)
def test_a_restart_with_fewer_slots_than_run(two, serve, policy, clock):
    two.desk.submit(document("c", workers=4).replace("servers:\n", "servers:\n    min: 2\n"), HERE)
    two.desk.hold("a")
    less = serve("1x2")
    snapshot = less.snapshot()
    assert free(snapshot) == [0.0]
    allocation = make_live_policy(policy).allocate(snapshot, FreeResources(snapshot))
    assert {(grant.workers, grant.servers) for grant in allocation.grants.values()} == {(0, 0)}
    less.apply(allocation)
    less.finish_slot()
    assert (job(less, "a").phase, job(less, "a").workers) == (LiveJobPhase.RUNNING, 2)
    assert job(less, "b").phase is LiveJobPhase.WAITING
    assert "held jobs take the room that it needs" in job(less, "b").reason
    words = "it needs 1 workers of 1 slots and 2 servers of 1 slots, for which the nodes are too small"
    assert words in job(less, "c").reason
    (node,) = less.desk.load().nodes
    assert (node.used, node.capacity) == ({"slots": 4.0}, {"slots": 2.0})


def changed(**spec):
    whole = yaml.safe_load(document())
    whole["spec"] |= spec
    return yaml.safe_dump(whole)


def test_a_job_submitted_suspended_waits_until_it_is_released(serve, runtime):
    cluster = serve()
    cluster.desk.submit(changed(suspend=True), HERE)
    snapshot, _ = slot(cluster)
    assert (snapshot.jobs, free(snapshot), runtime.calls) == ((), [8.0, 8.0], [])
    assert job(cluster, "digits").reason == "suspended when it was submitted: dl2 release digits lets it begin"
    with pytest.raises(ClusterRefused, match="digits is suspended; dl2 release digits first"):
        cluster.desk.scale("digits", 1, 1)
    cluster = serve()
    cluster.desk.release("digits")
    slot(cluster, digits=(1, 1))
    assert runtime.calls == [("start", "digits", 1, 1)]


def test_a_job_that_its_owner_scales_is_held_from_the_start(serve, runtime):
    cluster = serve()
    manual = yaml.safe_load(changed(scaling="Manual", servers={"replicas": 2}))
    del manual["spec"]["epochs"]
    cluster.desk.submit(yaml.safe_dump(manual), HERE)
    snapshot, _ = slot(cluster)
    assert (snapshot.jobs, sum(free(snapshot)), runtime.calls) == ((), 13.0, [("start", "digits", 1, 2)])
    assert (job(cluster, "digits").held, job(cluster, "digits").epochs) == (True, 0.0)
    with pytest.raises(ClusterRefused, match=r"digits has no spec\.epochs, which policies need"):
        cluster.desk.release("digits")
    runtime.end("digits", 0, "finished")
    slot(cluster)
    assert (job(cluster, "digits").phase, job(cluster, "digits").epochs_done > 0) == (LiveJobPhase.FINISHED, True)


def test_a_suspended_job_of_its_owners_begins_with_its_replicas(serve, runtime):
    cluster = serve()
    cluster.desk.submit(changed(scaling="Manual", suspend=True), HERE)
    slot(cluster)
    assert runtime.calls == []
    cluster.desk.release("digits")
    slot(cluster)
    assert (runtime.calls, job(cluster, "digits").held) == ([("start", "digits", 1, 1)], True)


def test_what_tasks_are_like_reaches_who_runs_them(serve, runtime):
    cluster = serve()
    whole = yaml.safe_load(changed(checkpoint={"url": "saved", "interval": "5m"}))
    container = whole["spec"]["workers"]["template"]["spec"]["containers"][0]
    container |= {"env": [{"name": "SEED", "value": "3"}], "resources": {"requests": {"slots": 2}}}
    cluster.desk.submit(yaml.safe_dump(whole), HERE)
    slot(cluster, digits=(1, 1))
    order = runtime.jobs["digits"].order
    assert order.shape == TaskShape(
        "digits", 1, {"worker": 2.0, "server": 1.0}, {"worker": {"SEED": "3"}, "server": {}}
    )
    assert (order.checkpoint_url, order.checkpoint_interval) == ("there/saved", 300.0)
    assert runtime.shapes == [order.shape]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"servers": {"min": 20, "max": 20}}, "digits: 1 workers and 20 servers, its first, do not fit the nodes"),
        ({"servers": {"template": TINY}}, "digits: a server takes 1e-12 slots: give 0.001 or more"),
        ({"checkpoint": {"url": "nowhere://x"}}, "digits: spec.checkpoint.url: Protocol not known: nowhere"),
    ],
)
def test_what_could_never_run_is_refused(serve, spec, words):
    with pytest.raises(BadInput) as refused:
        serve().desk.submit(changed(**spec), HERE)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    "command", [["sh", "x.sh"], ["python"], ["python", "-m"], ["python", "-u", "x.py"], ["python", "--workers", "9"]]
)
def test_a_command_that_is_no_script_or_module_of_pythons_is_refused(serve, command):
    cluster = serve()
    with pytest.raises(BadInput, match=r"here it has to be \[python, SCRIPT, ...\] or \[python, -m, MODULE, ...\]"):
        cluster.desk.submit(with_command(command), HERE)
    assert cluster.desk.submit(with_command(["python3", "-m", "train"]), HERE) == "digits"


def with_command(command):
    whole = yaml.safe_load(changed())
    whole["spec"]["workers"]["template"]["spec"]["containers"][0]["command"] = command
    return yaml.safe_dump(whole)


def test_where_tasks_are_counted():
    nodes = virtual_nodes("1x3+1x2")
    claims = [
        TaskDemand("a", "worker", 2, ONE),
        TaskDemand("a", "server", 1, ONE),
        TaskDemand("b", "worker", 1, {"slots": 3.0}),
    ]
    placed = place(nodes, claims, NodeRule.SPREAD)
    assert placed.where[("a", "worker")] == ["node-0", "node-1"]
    assert placed.over == {"b"}
    assert sum(free["slots"] for free in placed.free) == pytest.approx(-1.0)
    assert all(node.capacity["slots"] >= 0 for node in placed.left())
    assert place(nodes, claims[:2], NodeRule.PACK).where[("a", "worker")] == ["node-0", "node-0"]


def test_what_fits_when_it_is_packed_is_admitted():
    claims = [TaskDemand("a", "worker", 2, {"slots": 2.0}), TaskDemand("a", "server", 2, {"slots": 3.0})]
    for slots in ("1x6+1x4", "1x4+1x6"):
        assert place(virtual_nodes(slots), claims, NodeRule.SPREAD).over
        assert fit(virtual_nodes(slots), claims)
    assert not fit(virtual_nodes("1x7+1x2"), claims)


@pytest.mark.parametrize("scaling", ["Scheduler", "Manual"])
def test_a_job_that_no_policy_places_is_admitted_as_it_is_counted(serve, scaling):
    """Two workers of two slots and a server of four, on two nodes of four: it fits with the server first."""
    found = yaml.safe_load(document("a"))
    for role, least, slots in (("workers", 2, "2"), ("servers", 1, "4")):
        template = found["spec"][role].setdefault("template", {"spec": {"containers": [{}]}})
        template["spec"]["containers"][0]["resources"] = {"requests": {"slots": slots}}
        found["spec"][role] |= {"min": least, "replicas": least} if scaling == "Manual" else {"min": least}
    found["spec"]["scaling"] = scaling
    cluster = serve("2x4")
    if scaling == "Manual":
        with pytest.raises(BadInput, match="do not fit the nodes"):
            cluster.desk.submit(yaml.safe_dump(found), HERE)
    else:
        cluster.desk.submit(yaml.safe_dump(found), HERE)
        assert [state.job.id for state in cluster.snapshot().jobs] == ["a"]


def test_the_load_names_every_task_and_its_node(two):
    load = two.desk.load()
    assert [(task.job, task.task) for task in load.tasks] == [
        *(("a", name) for name in ("w0", "w1", "s0", "s1")),
        *(("b", name) for name in ("w0", "s0")),
    ]
    assert {task.node for task in load.tasks} == {"node-0", "node-1"}
    assert [node.used["slots"] for node in load.nodes] == [3.0, 3.0]
    assert (load.tasks[0].cores, load.tasks[0].memory_bytes, load.isolation) == (0.5, 1 << 20, "played")
