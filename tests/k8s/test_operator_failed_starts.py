"""What the operator does about pods that cannot start. `reconcile.plan`, without a cluster."""

from dataclasses import replace

import pytest

from elastic_ps.core.configuration import Role
from elastic_ps.core.script_hints import HOW_TO_JOIN
from k8s.elastic_operator.job.actions import DeletePod, StartNode, TellExit, WriteEvent
from k8s.elastic_operator.job.model import Counts, timestamp
from k8s.elastic_operator.job.status import RUNNING, ElasticJobStatus
from tests.k8s.operator_cases import NOW, decide, kinds, members, running, server, usual, wanted, worker


def never_joined(number, status=None, wanted=Counts(2, 1), **more):  # noqa: B008
    """A job of one worker and a server, which were all that it wanted once, and a pod that has failed beside them."""
    failed = worker(number, member="", joined=False, phase="Failed", exit_status=1, trouble="ImportError: no data")
    said = {"wanted": wanted, "starting": Counts(1, 0), "members": members(worker(1), server(1))}
    given = {"whole": True, "created": Counts(number, 1), **(status or {})}
    return running(worker(1), failed, server(1), report={**said, **more}, status=given)


def test_a_job_that_trains_goes_on_without_pods_that_cannot_start():
    """However many they are; and each pause is longer."""
    status = {}
    for number in range(2, 12):
        done = decide(never_joined(number, status=status), wanted(2, 1))
        assert (done.status.phase, done.status.failures, done.status.failed_starts) == (RUNNING, 0, Counts(number - 1))
        assert not kinds(done, StartNode)
        pause = min(300.0, 10.0 * 2 ** (number - 2))
        assert done.again == pytest.approx(pause, abs=1)
        assert f"it had not joined: the job goes on, and another one is tried in {pause:.0f} s" in str(done.actions)
        again = decide(never_joined(number, status=vars(done.status)), wanted(2, 1), now=NOW + pause + 1)
        assert kinds(again, StartNode) == [StartNode(Role.WORKER, number + 1)]
        status = {"failed_starts": again.status.failed_starts, "failed_start_time": again.status.failed_start_time}
    joined = decide(never_joined(2, status=status, starting=Counts()), wanted(2, 1))
    assert joined.status.failed_starts == Counts(1), "and counted anew, as none was awaited any more"


def test_a_pause_does_not_last_until_a_clock_that_was_set_back_is_there_again():
    """So it would too where the next leader's clock is behind that of the last."""
    first = decide(never_joined(2), wanted(2, 1))
    behind = never_joined(2, status=vars(first.status))
    assert decide(behind, wanted(2, 1), now=NOW - 5).again == pytest.approx(15, abs=1)
    assert kinds(decide(behind, wanted(2, 1), now=NOW - 3600), StartNode) == [StartNode(Role.WORKER, 3)]


def test_of_pods_that_could_not_start_the_last_three_stay():
    gone = [worker(number, member="", joined=False, phase="Failed") for number in range(2, 9)]
    seen = never_joined(9, status={"failed_starts": Counts(7), "counted": tuple(pod.name for pod in gone)})
    done = decide(replace(seen, pods=(*seen.pods, *gone)), wanted(2, 1))
    assert [each.name for each in kinds(done, DeletePod)] == [f"digits-worker-{number}" for number in range(2, 7)]


def test_a_pod_that_ends_well_without_having_registered_could_not_start_either():
    """There would be one after the other: a script that finds no data here may end with status 0."""
    gone = [worker(number, member="", joined=False, phase="Succeeded") for number in range(2, 7)]
    said = {"wanted": Counts(2, 1), "starting": Counts(1), "members": members(worker(1), server(1))}
    seen = running(worker(1), *gone[:1], server(1), report={**said, "roster": Counts(1, 1)}, status={"whole": True})
    first = decide(seen, wanted(2, 1))
    assert (first.status.failures, first.status.failed_starts, first.again) == (0, Counts(1), pytest.approx(10, abs=1))
    assert not kinds(first, StartNode)
    assert HOW_TO_JOIN in str(kinds(first, WriteEvent))
    more = decide(replace(seen, pods=(*seen.pods, *gone[1:])), wanted(2, 1))
    assert kinds(more, DeletePod) == [DeletePod("digits-worker-2"), DeletePod("digits-worker-3")]
    unwanted = replace(seen, report=replace(seen.report, starting=Counts(), wanted=Counts(1, 1)))
    assert not decide(unwanted, wanted(1, 1)).actions


def rehearsed(number, **more):
    """A job of a worker and a server, whole once, and a pod that has registered, and ended well before it joined."""
    ended = worker(number, joined=False, phase="Succeeded")
    said = {"wanted": Counts(2, 1), "roster": Counts(1, 1), "members": members(worker(1), ended, server(1))}
    given = {**said, "joining": frozenset({ended.member}), **more}
    return running(worker(1), ended, server(1), report=given, status={"whole": True, "created": Counts(number, 1)})


def test_a_pod_that_ends_well_while_it_rehearses_could_not_start_either():
    """Its coordinator would wait for it for a lease, and then have the next one made at once, again and again."""
    seen = rehearsed(2)
    first = decide(seen, wanted(2, 1))
    assert kinds(first, TellExit) == [TellExit("digits-worker-2.1", "w1", 0)]
    assert (first.status.failures, first.status.failed_starts, first.status.restarts) == (0, Counts(1), 1)
    gone = {"members": members(worker(1), server(1)), "joining": frozenset(), "starting": Counts(1)}
    told = replace(seen, status=first.status, report=replace(seen.report, **gone))
    soon = decide(told, wanted(2, 1))
    assert (kinds(soon, TellExit, StartNode), soon.again) == ([], pytest.approx(10, abs=1))
    later = decide(told, wanted(2, 1), now=NOW + 11)
    assert kinds(later, StartNode) == [StartNode(Role.WORKER, 3)]
    others = [worker(number, joined=False, phase="Succeeded") for number in range(3, 7)]
    more = decide(replace(seen, status=first.status, pods=(*seen.pods, *others)), wanted(2, 1))
    assert kinds(more, DeletePod) == [DeletePod("digits-worker-2"), DeletePod("digits-worker-3")]


def test_a_pod_that_was_told_to_go_before_it_joined_has_not_failed():
    done = decide(rehearsed(2, leaving=frozenset({"w1"})), wanted(2, 1))
    assert (kinds(done, TellExit), done.status.failed_starts) == ([], Counts())


def test_servers_do_not_wait_for_workers_that_cannot_start():
    status = {"failed_starts": Counts(6), "failed_start_time": timestamp(NOW), "counted": ("digits-worker-9",)}
    seen = never_joined(9, status, Counts(2, 2), starting=Counts(1, 1), roster=Counts(1, 1))
    done = decide(replace(seen, pods=(*seen.pods, server(2, deleting=True, lost=True))), wanted(2, 2))
    assert kinds(done, StartNode) == [StartNode(Role.SERVER, 2)]
    assert done.again == 300.0
    later = replace(seen, status=done.status, report=replace(seen.report, starting=Counts(0, 1)))
    assert decide(later, wanted(2, 2)).status.failed_starts == Counts(), "no worker is awaited"


@pytest.mark.parametrize(
    ("status", "more"),
    [
        ({"whole": False}, {}),
        ({}, {"phase": "restoring"}),
        ({}, {"phase": "starting", "roster": Counts()}),
        ({}, {"members": {**members(worker(1), server(1)), "digits-worker-2.1": "w1"}}),
    ],
    ids=["never whole", "restoring", "all starts", "joined"],
)
def test_else_a_pod_that_fails_is_a_death_as_any_other(status, more):
    done = decide(never_joined(2, status=status, **more), wanted(2, 1))
    assert (done.status.failures, done.status.failed_starts) == (1, Counts())


@pytest.mark.parametrize("whole", [False, True])
def test_a_pod_that_its_node_would_not_take_costs_nothing_and_another_one_is_tried_later(whole):
    refused = worker(2, member="", joined=False, phase="Failed", unstarted=True, trouble="OutOfcpu: ...")
    said = {"wanted": Counts(2, 1), "starting": Counts(1, 0), "members": members(worker(1), server(1))}
    seen = running(worker(1), refused, server(1), report={**said, "roster": Counts(1, 1)}, status={"whole": whole})
    first = decide(seen, wanted(2, 1))
    assert (first.status.failures, first.status.failed_starts, kinds(first, StartNode)) == (0, Counts(1), [])
    soon = decide(replace(seen, status=first.status), wanted(2, 1), now=NOW + 5)
    assert not kinds(soon, StartNode)
    later = decide(replace(seen, status=soon.status), wanted(2, 1), now=NOW + 11)
    assert kinds(later, StartNode) == [StartNode(Role.WORKER, 3)]


def test_a_pod_that_has_registered_has_not_joined_yet():
    said = {"members": {**members(worker(1), server(1)), "digits-worker-2.1": "w9"}, "joining": frozenset({"w9"})}
    assert decide(never_joined(2, **said), wanted(2, 1)).status.failed_starts == Counts(1)


def test_a_job_is_whole_from_when_it_has_had_all_until_it_starts_again():
    assert decide(usual(), wanted(2, 1)).status.whole
    short = {"wanted": Counts(3, 1), "starting": Counts(1, 0)}
    assert not decide(usual(report=short), wanted(3, 1)).status.whole
    assert decide(usual(report=short, status={"whole": True}), wanted(3, 1)).status.whole
    assert decide(usual(report={"phase": "rebuilding"}, status={"whole": True}), wanted(2, 1)).status.whole
    assert not decide(usual(report={"phase": "restoring"}, status={"whole": True}), wanted(2, 1)).status.whole


def test_what_could_not_start_is_remembered_in_the_objects_status():
    status = replace(usual().status, whole=True, failed_starts=Counts(0, 2), failed_start_time=timestamp(NOW))
    assert ElasticJobStatus.of({"status": status.to_dict()}) == status
    assert not {"whole", "failedStarts"} & usual().status.to_dict().keys()
