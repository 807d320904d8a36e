"""One of several acts: leases taken, kept, lost and let go of."""

import threading

import pytest

from k8s.foundation.api_server import ApiUnavailable
from k8s.foundation.lease import (
    ACTING_SECONDS,
    LEASE_CALL_SECONDS,
    LEASE_SECONDS,
    RETRY_SECONDS,
    Lease,
    LeaseAction,
    SeenLease,
    action_on,
)
from tests.dl2_scheduler.played_kube import PlayedApi

PATH = "/apis/coordination.k8s.io/v1/namespaces/ns/leases/dl2-scheduler"


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def api():
    return PlayedApi()


def candidate(api, me, clock):
    return Lease(api, "ns", "dl2-scheduler", me, lost=lambda: None, clock=clock)


@pytest.mark.parametrize(
    ("lease", "expected"),
    [
        (None, LeaseAction.MAKE),
        (SeenLease("me", 15, "1", 0), LeaseAction.RENEW),
        (SeenLease("", 15, "1", 99), LeaseAction.TAKE),
        (SeenLease("other", 15, "1", 84.9), LeaseAction.TAKE),
        (SeenLease("other", 15, "1", 85.1), LeaseAction.LEAVE),
    ],
)
def test_what_a_candidate_does(lease, expected):
    assert action_on(lease, "me", 100.0) is expected


def test_the_first_has_it_and_the_second_waits_until_it_is_not_renewed(api):
    clock = Clock()
    first, second = candidate(api, "first", clock), candidate(api, "second", clock)
    first.attempt()
    second.attempt()
    assert (first.held, second.held, second.holder) == (True, False, "first")
    clock.now += 8
    first.attempt()
    clock.now += LEASE_SECONDS - 1
    second.attempt()  # sees the renewal for the first time: its holder may be alive
    assert not second.held
    assert not first.held  # it has stopped acting long before
    clock.now += LEASE_SECONDS + 1
    second.attempt()
    assert second.held
    assert api.objects[PATH]["spec"]["leaseTransitions"] == 2
    first.attempt()
    assert not first.held


def test_a_lease_that_somebody_has_deleted_is_made_again_by_who_held_it(api):
    clock = Clock()
    first, second = candidate(api, "first", clock), candidate(api, "second", clock)
    first.attempt()
    second.attempt()
    api.drop(PATH)
    second.attempt()
    assert (first.held, second.held) == (True, False), "the first does not know it yet, and acts"
    first.attempt()
    second.attempt()
    assert (first.held, second.held) == (True, False)
    api.drop(PATH)
    for _ in range(2):
        second.attempt()
        clock.now += LEASE_SECONDS / 2 + 1
    assert (first.held, second.held) == (False, False)
    second.attempt()
    assert second.held


def test_who_cannot_renew_stops_acting_before_another_may_begin(api):
    clock = Clock()
    first = candidate(api, "first", clock)
    first.attempt()
    api.fail = [ApiUnavailable("down")] * 3
    for _ in range(3):
        clock.now += ACTING_SECONDS / 3 - 0.01
        first.attempt()
        assert first.held
    clock.now += 0.1
    assert not first.held
    assert api.fail == []
    assert ACTING_SECONDS < LEASE_SECONDS


def test_a_request_that_hangs_does_not_cost_the_lease(api, monkeypatch):
    clock = Clock()
    first = candidate(api, "first", clock)
    first.attempt()

    def hang(path, query=None):
        clock.now += LEASE_CALL_SECONDS
        raise ApiUnavailable("timed out")

    with monkeypatch.context() as hanging:
        hanging.setattr(api, "get", hang)
        clock.now += RETRY_SECONDS
        first.attempt()
    clock.now += RETRY_SECONDS
    assert first.held
    first.attempt()
    clock.now += ACTING_SECONDS - 0.1
    assert first.held


def test_a_renewal_counts_from_before_its_request(api):
    clock = Clock()
    first = candidate(api, "first", clock)
    first.attempt()
    clock.now += 5

    def slow(_path):
        clock.now += ACTING_SECONDS

    api.before_write = slow
    first.attempt()
    assert not first.held


def test_of_two_that_try_at_once_one_has_it(api):
    clock = Clock()
    first, second = candidate(api, "first", clock), candidate(api, "second", clock)
    first.attempt()
    first.release()
    assert api.objects[PATH]["spec"]["holderIdentity"] == ""

    def overtaken(_path):
        api.before_write = lambda path: None
        second.attempt()

    api.before_write = overtaken
    first.attempt()
    assert (first.held, second.held) == (False, True)


def test_who_gives_it_back_late_does_not_take_it_from_the_next(api, monkeypatch):
    """Who was frozen on its way finds another's lease there: empty, a third one would take it beside that."""
    clock = Clock()
    first, second = candidate(api, "first", clock), candidate(api, "second", clock)
    first.attempt()
    read = api.get

    def frozen(path, query=None):
        monkeypatch.setattr(api, "get", read)
        for seconds in (0, LEASE_SECONDS + 1):
            clock.now += seconds
            second.attempt()
        return read(path)

    monkeypatch.setattr(api, "get", frozen)
    first.release()
    assert (second.held, api.objects[PATH]["spec"]["holderIdentity"]) == (True, "second")


def test_the_loss_is_told_from_its_thread(api, monkeypatch):
    monkeypatch.setattr("k8s.foundation.lease.RETRY_SECONDS", 0.001)
    clock, lost = Clock(), threading.Event()
    first = Lease(api, "ns", "dl2-scheduler", "first", lost=lost.set, clock=clock)
    assert first.acquire(threading.Event())
    found = api.objects[PATH]
    api.put(PATH, {**found, "spec": {**found["spec"], "holderIdentity": "thief"}})
    assert lost.wait(10)
    assert not first.held


def test_who_is_told_to_end_waits_no_more(api):
    clock, stopped = Clock(), threading.Event()
    candidate(api, "first", clock).attempt()
    stopped.set()
    assert not candidate(api, "second", clock).acquire(stopped)
