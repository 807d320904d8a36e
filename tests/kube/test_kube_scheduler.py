"""The scheduler on a real API server: gangs, leaders, deaths in mid-gang. Fake nodes carry the pods."""

import signal

import pytest
from scheduling import Bench, eventually
from typer.testing import CliRunner

from dl2_scheduler.backends.kube.writes import job_path
from dl2_scheduler.cli import app

pytestmark = pytest.mark.kube


@pytest.fixture
def bench(release, tmp_path):
    """A namespace that no operator looks at, on the cluster of the release, which has the definition of ElasticJobs."""
    assert release.namespace
    with Bench(tmp_path) as made:
        yield made


def test_a_gang_is_bound_whole_or_not_at_all_and_says_why(bench):
    bench.add_node("4")
    bench.serve()
    bench.submit("fits")
    bench.submit("big", workers=9)
    bench.add_pods("fits")
    bench.add_pods("big", workers=9)
    eventually(lambda: len(bench.bound("fits")) == 4, "a gang that fits is bound")
    eventually(lambda: all(pod.waits for pod in bench.pods("big")), "every pod of a gang that does not fit says why")
    text = next(pod.waits for pod in bench.pods("big") if pod.role == "coordinator")
    assert "starts whole (coordinator, 9 workers, 1 server)" in text
    assert "short of cpu" in text
    assert eventually(lambda: bench.events("big-coordinator"), "an event tells it too") == [text]
    assert bench.bound("big") == []
    bench.add_node("16")
    eventually(lambda: len(bench.bound("big")) == 11, "it is bound when there is room")
    assert {pod.node for pod in bench.pods("big")} <= set(bench.nodes)


def test_a_policy_scales_a_job_and_why_tells(bench):
    bench.add_node("8")
    bench.submit("one", scaling="Scheduler")
    bench.serve()
    given = eventually(lambda: bench.job("one").allotment, "the job is given something")
    assert (given.workers, given.servers) >= (2, 1)
    assert given.reason
    found = bench.api.get(job_path(bench.name, "one"))
    managers = {each["manager"] for each in found["metadata"]["managedFields"] if "f:allocation" in str(each)}
    assert managers == {"dl2-scheduler"}
    version = found["metadata"]["resourceVersion"]
    slot = given.slot
    eventually(lambda: bench.log().count("INFO slot") > 3, "some slots pass")
    again = bench.job("one")
    assert (again.version, again.allotment.slot) == (version, slot)  # what has not changed is not written


def test_of_two_schedulers_one_acts_and_the_other_takes_over(bench):
    bench.add_node("8")
    first = bench.serve(1)
    bench.leads(1)
    bench.serve(2)
    eventually(lambda: "holds the lease" in bench.log(2), "the second waits")
    held = bench.holder()
    bench.submit("one")
    bench.add_pods("one")
    eventually(lambda: len(bench.bound("one")) == 4, "the first binds")
    first.kill()
    bench.submit("two")
    bench.add_pods("two")
    eventually(lambda: len(bench.bound("two")) == 4, "the second binds")
    assert bench.holder() != held
    assert "bound to" in bench.log(2)
    assert not any("two-" in line for line in bench.log(1).splitlines())


def test_a_frozen_leader_does_nothing_when_it_wakes(bench):
    bench.add_node("8")
    first = bench.serve(1)
    bench.leads(1)
    first.send_signal(signal.SIGSTOP)
    bench.serve(2)
    bench.leads(2)
    bench.submit("one")
    bench.add_pods("one")
    eventually(lambda: len(bench.bound("one")) == 4, "the second binds")
    first.send_signal(signal.SIGCONT)
    assert first.wait(timeout=60) == 1
    assert "the lease is lost" in bench.log(1)
    assert "bound to" not in bench.log(1)


def test_a_gang_that_a_killed_scheduler_left_in_part_is_completed_before_older_ones(bench):
    bench.add_node("4")
    bench.submit("older", workers=3)
    bench.submit("half", workers=2)
    bench.add_pods("half", workers=2)
    for name in ("half-coordinator", "half-server-0"):  # as a scheduler does that dies in mid-gang
        target = {"apiVersion": "v1", "kind": "Node", "name": bench.nodes[0]}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        bench.api.create(f"{bench.pods_path}/{name}/binding", body)
    bench.add_pods("older", workers=3)
    bench.serve()
    eventually(lambda: len(bench.bound("half")) == 4, "the half-bound gang is completed")
    eventually(lambda: all(pod.waits for pod in bench.pods("older")), "the older one waits")
    assert bench.bound("older") == []


def test_room_of_a_gang_whose_pods_are_yet_to_come_is_kept_over_a_restart(bench):
    bench.add_node("5")
    bench.submit("slow", workers=3)
    bench.submit("quick", workers=1)
    bench.add_pods("slow", workers=0, servers=0, gang="3,1")  # its coordinator's pod alone
    first = bench.serve()
    eventually(lambda: len(bench.bound("slow")) == 1, "the coordinator is bound")
    first.kill()
    first.wait()
    bench.add_pods("quick", workers=1)
    bench.serve()
    eventually(lambda: all(pod.waits for pod in bench.pods("quick")), "the other one waits")
    assert bench.bound("quick") == []
    bench.add_pods("slow", workers=3, gang="3,1", coordinator=False)
    eventually(lambda: len(bench.bound("slow")) == 5, "its room was kept")


def test_a_gang_not_whole_in_time_gives_its_room_back(bench):
    bench.add_node("3")
    bench.submit("half", workers=4, gangTimeout="5s")
    bench.add_pods("half", workers=4)
    target = {"apiVersion": "v1", "kind": "Node", "name": bench.nodes[0]}
    for name in ("half-coordinator", "half-worker-0"):
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        bench.api.create(f"{bench.pods_path}/{name}/binding", body)
    bench.submit("next", workers=1)
    bench.add_pods("next", workers=1)
    bench.serve()
    eventually(lambda: not bench.bound("half"), "what was bound is given back")
    eventually(lambda: len(bench.bound("next")) == 3, "the next one has the room")
    assert any("gangTimeout of 5 s" in text for text in bench.events("half"))


def test_commands_ask_the_api_server(bench):
    def dl2(*words, status=0):
        found = CliRunner().invoke(app, [*words, "--kube", "--namespace", bench.name])
        assert found.exit_code == status, found.output
        return found.output

    document = bench.folder / "bad.yaml"
    document.write_text(
        "apiVersion: dl2.scheduler/v1alpha1\nkind: ElasticJob\nmetadata: {name: bad}\nspec: {epochs: 1, wrkers: {}}\n"
    )
    assert "wrkers" in dl2("submit", str(document), status=2)
    bench.submit("bare", scaling="Scheduler")
    assert "bare has nothing now" in dl2("hold", "bare", status=1)
    dl2("stop", "bare")
    bench.submit("one", scaling="Scheduler", checkpoint={"url": "file:///x"})
    assert "the scheduler has not decided about it yet" in dl2("status", "one")
    assert "held by the scheduler; dl2 hold one --kube first" in dl2("scale", "one", "--workers", "3", status=1)
    dl2("hold", "one")
    assert bench.job("one").suspend  # it had nothing, and goes on having nothing
    assert "3 workers and 1 servers" in dl2("scale", "one", "--workers", "3")
    assert "allows 2 to 4" in dl2("scale", "one", "--workers", "9", status=1)
    held = bench.job("one")
    assert (held.by_scheduler, held.suspend, held.workers.replicas) == (False, False, 3)
    assert "one" in dl2("jobs")
    dl2("release", "one")
    assert bench.job("one").by_scheduler
    assert "there are: one" in dl2("status", "two", status=1)
    assert "isolation: Kubernetes" in dl2("top")
    dl2("stop", "one")
    eventually(lambda: not bench.api.get(job_path(bench.name, "")[:-1])["items"], "it is gone")
