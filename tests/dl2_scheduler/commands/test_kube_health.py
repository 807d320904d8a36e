"""What the probes of a scheduler on Kubernetes are told."""

import urllib.error
import urllib.request

import pytest

from dl2_scheduler.commands.cluster.serving.kube_health import DECISION_SECONDS, LEASE_SECONDS, Health, answering


class Scheduler:
    """What is asked, and the clock."""

    def __init__(self):
        self.now, self.holder, self.holds, self.slot = 1000.0, "", True, 7
        self.health = Health(30.0, lambda: self.holder, lambda: self.now)

    def leads(self):
        self.health.leads(lambda: self.holds, lambda: self.slot)

    def passes(self, seconds):
        """Time, with a probe each ten seconds; returns what the last was told."""
        for _ in range(int(seconds // 10)):
            self.now += 10
            told = self.health.trouble()
        return told


@pytest.fixture
def scheduler():
    return Scheduler()


def test_who_waits_for_the_lease_is_ready_when_it_has_read_it(scheduler):
    assert scheduler.health.unready() == "the lease has not been read yet"
    scheduler.holder = "another"
    assert scheduler.health.unready() == ""
    assert scheduler.passes(10 * DECISION_SECONDS) == ""


def test_who_leads_is_ready_with_its_first_decision(scheduler):
    scheduler.leads()
    assert "first slot" in scheduler.health.unready()
    scheduler.slot += 1
    assert scheduler.health.unready() == ""


def test_a_slot_that_does_not_end_is_trouble(scheduler):
    scheduler.leads()
    assert scheduler.passes(DECISION_SECONDS + 60) == ""
    scheduler.slot += 1
    assert scheduler.passes(DECISION_SECONDS + 60) == ""
    assert "slot 8 stands still" in scheduler.passes(20)


def test_a_leader_that_goes_on_without_its_lease_is_trouble(scheduler):
    scheduler.leads()
    scheduler.passes(30)
    scheduler.holds = False
    assert scheduler.passes(LEASE_SECONDS) == ""
    assert "lease is not held" in scheduler.passes(10)
    scheduler.holds = True
    assert scheduler.passes(10) == ""


def test_probes_are_answered(scheduler):
    def ask(page):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{page}") as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    with answering(scheduler.health, "0") as port:
        assert ask("/healthz") == (200, "ok\n")
        assert ask("/readyz") == (503, "the lease has not been read yet\n")
        assert ask("/x") == (404, "not found\n")
