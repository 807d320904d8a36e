"""A group that fails whoever meets is not made anew for ever."""

import threading
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

torch = pytest.importorskip("torch")

from coordinator.core.callers import Introduction  # noqa: E402
from coordinator.core.nodes.introductions import find  # noqa: E402
from elastic_ps.core.configuration import ConfigId, Configuration, Member, Role  # noqa: E402
from elastic_ps.core.errors import JobEnded  # noqa: E402
from elastic_ps.node.standing import Standing  # noqa: E402
from elastic_ps.torch.allreduce import group_state  # noqa: E402
from elastic_ps.torch.allreduce.group import WorkerGroup  # noqa: E402
from elastic_ps.torch.allreduce.group_collectives import GroupCollectives  # noqa: E402
from elastic_ps.torch.allreduce.group_state import GroupState  # noqa: E402
from elastic_ps.torch.allreduce.node import GroupNode  # noqa: E402
from tests.elastic_ps.waiting import until  # noqa: E402

AWAY = "this worker waits for the coordinator at head:7070 to say how it goes on; it is away: 24 h at most"


class Alone:
    """A member whose group has failed, and that never hears of anything."""

    ended = _ended = None
    waits_in_vain = GroupState.waits_in_vain
    is_member = True
    generation = 1
    group = SimpleNamespace(number="1.1")
    configuration = SimpleNamespace(workers=("w0",), ranks={"w0": 0})
    session = SimpleNamespace(node="w0", in_touch_seconds=float("inf"), lease_seconds=10.0)

    def __init__(self):
        self.changed = threading.Condition()
        self.regrouped = 0

    def regroup(self, failed):
        assert failed is self.group
        self.regrouped += 1

    def check(self):
        pass


def test_a_group_is_made_anew_three_times_and_again_after_a_step(monkeypatch):
    monkeypatch.setattr(group_state, "PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(group_state, "PATIENCE_LEASES", 0.0)
    node = Alone()
    collectives = GroupCollectives(node, lambda: None)

    def waits():
        with pytest.raises(JobEnded, match="nobody is known to be gone: reset by peer"):
            collectives.wait_for_news(1, "reset by peer")
        return node.regrouped

    assert [waits() for _ in range(5)] == [1, 2, 3, 3, 3]
    collectives.stepped()
    assert waits() == 4
    node.generation = 2
    collectives.wait_for_news(1, "another configuration is in force")
    assert node.regrouped == 4


def test_a_group_that_was_closed_for_another_members_sake_fails_and_keeps_nobody_waiting():
    group = WorkerGroup(ConfigId(1, 1), 0, 1, None, threading.Condition())
    group.close()
    collective = group.submit(lambda: None)
    assert collective.done
    assert "has failed at another member" in str(collective.error)


@pytest.fixture
def waiting(monkeypatch):
    """Let a lone member wait for news, in a time of its own; returns how long, and what it has said."""

    def run(caplog, lease, back):
        node, waits = Alone(), []
        clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now)

        def wait(seconds):
            waits.append(seconds)
            clock.now += seconds
            node.session.in_touch_seconds = max(0.0, clock.now - back)

        settings = SimpleNamespace(coordinator="head:7070")
        node.session = SimpleNamespace(
            node="w0", in_touch_seconds=max(0.0, -back), lease_seconds=lease, settings=settings
        )
        monkeypatch.setattr(group_state, "time", clock)
        monkeypatch.setattr(node.changed, "wait", wait)
        with pytest.raises(JobEnded, match="nobody is known to be gone"):
            GroupCollectives(node, lambda: None).wait_for_news(1, "reset by peer")
        return waits, [record.message for record in caplog.records if record.levelname == "WARNING"]

    return run


def test_nobody_gives_up_while_the_coordinator_is_away(waiting, caplog):
    """Nobody would hear of a death meanwhile: a worker died with the coordinator, and all others ended."""
    waits, told = waiting(caplog, lease=10.0, back=95.0)
    assert sum(waits) == 95.0 + 30.0
    assert waits == [30.0, 30.0, 30.0, 30.0, 5.0]
    assert told == [AWAY], "once"


def test_a_coordinator_that_never_comes_back_is_not_waited_for_without_end(waiting, caplog):
    """Its workers would have kept their machines for ever, and said once for whom they wait, without its address."""
    waits, told = waiting(caplog, lease=10.0, back=float("inf"))
    assert sum(waits) == 24 * 3600.0
    assert told == [AWAY]


def test_patience_is_longer_than_the_coordinators_with_who_is_silent(waiting, caplog):
    """With a lease of 30 s it expels who is silent after 45 s: by then the others had ended."""
    waits, told = waiting(caplog, lease=30.0, back=-1000.0)
    assert sum(waits) == 90.0
    assert told == []


def test_a_worker_whose_group_cannot_be_made_is_as_patient(monkeypatch):
    node, clock = GroupNode(Mock(node="w0", lease_seconds=30.0, in_touch_seconds=float("inf")), Mock()), []
    node.standing = Standing("w0", current=Configuration(ConfigId(1, 1), (), ()))

    def wait(seconds):
        clock.append(seconds)
        node.standing = Standing("w0", current=Configuration(ConfigId(1, 2), (), ()))

    monkeypatch.setattr(node.changed, "wait", wait)
    node._not_built(ConfigId(1, 1), "reset by peer")
    assert [round(seconds) for seconds in clock] == [90]
    assert node.ended is None, "another configuration came"


def test_a_worker_whose_group_was_made_at_the_second_try_goes_on(monkeypatch):
    """It ended 30 s behind the first try, and all that had failed in it ended together."""
    build = Mock(side_effect=[RuntimeError("reset by peer"), SimpleNamespace(attempt=0)])
    node = GroupNode(
        Mock(node="w0", lease_seconds=10.0, in_touch_seconds=float("inf")),
        SimpleNamespace(build=build),
    )
    configuration = Configuration(ConfigId(1, 1), (), ())
    node.standing = Standing("w0", current=configuration)
    waits = []

    def tries():
        node._building[configuration.id] = 0
        node._build(configuration)

    def wait(seconds):
        waits.append(seconds)
        tries()  # the coordinator has said Prepare again

    monkeypatch.setattr(group_state, "time", SimpleNamespace(monotonic=lambda: 30.0 * len(waits)))
    monkeypatch.setattr(node.changed, "wait", wait)
    tries()
    assert waits == [30.0]
    assert node.ended is None
    assert node.has_group(configuration.id)


class Meeting:
    """A rendezvous at which members meet for an attempt as soon as a test lets them."""

    def __init__(self):
        self.attempts, self.groups = [], {}
        self.may = [threading.Event() for _ in range(5)]

    def build(self, configuration, node, changed, attempt=0):
        self.attempts.append(attempt)
        assert self.may[attempt].wait(20)
        self.groups[attempt] = SimpleNamespace(attempt=attempt, close=Mock())
        return self.groups[attempt]


@pytest.fixture
def regrouping():
    """A member of two, and where it meets the other one."""
    meeting = Meeting()
    node = GroupNode(Mock(node="w0", lease_seconds=10.0, in_touch_seconds=float("inf")), meeting)
    members = tuple(Member(name, Role.WORKER, "h", 1) for name in ("w0", "w1"))
    node.standing = Standing("w0", current=Configuration(ConfigId(1, 1), members, (), ()))
    return node, meeting


def test_members_whose_group_failed_at_different_tries_meet_for_the_latest(regrouping):
    """Each met for the one behind its own, at which nobody else came, and they ended one after the other."""
    node, meeting = regrouping
    number = node.configuration.id
    failed = node._groups[number] = SimpleNamespace(attempt=0, close=Mock())
    node.regroup(failed)
    until(lambda: meeting.attempts == [1])
    assert node.failed_group == (number, 1)
    for attempt in (1, 3, 2, 3):
        node.hear_of_failed(number, attempt)
    until(lambda: meeting.attempts == [1, 3])
    assert node.failed_group == (number, 3)
    meeting.may[1].set()
    until(lambda: 1 in meeting.groups and meeting.groups[1].close.called)
    assert node.group is failed
    assert node.failed_group == (number, 3), "the others are to hear of it"
    meeting.may[3].set()
    until(lambda: node.generation == 1)
    assert node.group is meeting.groups[3]
    assert node.fresh
    assert node.failed_group[1] == 0


def test_a_member_whose_group_is_not_made_yet_hears_that_it_has_failed(regrouping):
    node, meeting = regrouping
    number = node.configuration.id
    node.build(node.configuration)
    until(lambda: meeting.attempts == [0])
    node.hear_of_failed(number, 1)
    until(lambda: meeting.attempts == [0, 1])
    meeting.may[0].set()
    until(lambda: 0 in meeting.groups and meeting.groups[0].close.called)
    assert not node.has_group(number)
    meeting.may[1].set()
    until(lambda: node.has_group(number))
    assert node.group is meeting.groups[1]


def test_a_member_gives_up_whose_group_came_late_and_is_not_made_again(regrouping, monkeypatch):
    """Its script's thread waited without end, and whoever held the job's parameters gave up before it."""
    monkeypatch.setattr(group_state, "PATIENCE_SECONDS", 0.1)
    monkeypatch.setattr(group_state, "PATIENCE_LEASES", 0.0)
    node, meeting = regrouping
    node.build(node.configuration)
    until(lambda: meeting.attempts == [0])
    node.hear_of_failed(node.configuration.id, 1)
    until(lambda: meeting.attempts == [0, 1])
    meeting.may[0].set()
    until(lambda: node.ended is not None)
    assert "cannot connect to the other workers" in str(node.ended)
    meeting.may[1].set()


def test_who_is_no_member_yet_does_not_meet_those_whose_group_has_failed(regrouping):
    node, _ = regrouping
    node.standing = Standing("w9", current=node.configuration)
    node.hear_of_failed(node.configuration.id, 1)
    assert not node._building


def test_a_configuration_that_is_adopted_before_its_group_is_built_is_waited_for(monkeypatch):
    """A coordinator without a journal takes it for ready: a leaver has not come, who may be armed for it."""
    first, second = (
        Configuration(ConfigId(1, number), tuple(Member(name, Role.WORKER, "h", 1) for name in names), (), ())
        for number, names in ((1, ("w0", "w1", "w2")), (2, ("w0", "w1")))
    )
    members = {
        worker.id: Introduction(worker, 1, worker.id, current=first, prepared=second) for worker in second.workers
    }
    assert find(members, 0).target == second

    node = GroupNode(Mock(node="w0"), Mock())
    node.standing = Standing("w0", current=first, prepared=second)
    node.membership.switch(second.id)
    wait, built = node.wait, SimpleNamespace()

    def waits(is_met, lacking):
        assert not is_met()
        node._groups[second.id] = built
        wait(is_met, lacking)

    monkeypatch.setattr(node, "wait", waits)
    assert GroupCollectives(node, lambda: None).group(node.generation) is built


def test_a_script_that_is_interrupted_in_a_collective_cannot_go_on_as_if_it_were_not():
    """It would tell the others of the same step twice, and they take the second for the next one."""
    ended, collective = [], SimpleNamespace(done=False)
    node = SimpleNamespace(generation=1, progress=SimpleNamespace(exchanging=False), end=ended.append)

    def wait(is_met, lacking):
        assert not is_met()
        assert node.progress.exchanging
        raise KeyboardInterrupt

    node.wait = wait
    with pytest.raises(KeyboardInterrupt):
        GroupCollectives(node, lambda: None).wait(collective, 1)
    (reason,) = ended
    assert "interrupted in a step of all workers (KeyboardInterrupt)" in str(reason)
    assert not node.progress.exchanging
