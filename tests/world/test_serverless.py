"""Whole jobs without servers in the world: what happens to them costs no sample, and what is put in is found."""

import pytest

pytest.importorskip("torch")

from elastic_ps.torch.allreduce import exchange
from elastic_ps.torch.allreduce.agreement import Agreement
from elastic_ps.torch.allreduce.peer_probe import PeerProbe
from tests.world import results
from tests.world.faults import cells as kinds
from tests.world.faults.draw import drawn, serverless
from tests.world.faults.job_draw import FOR_EVER, Fault, JobDraw

pytestmark = pytest.mark.slow


def job(*faults, seed=1, **fields):
    told = {"workers": 3, "servers": 0, "epochs": 20, "pace": (0.02, 0.06), "lease": 2.0, "saves": False, **fields}
    return JobDraw(seed, serverless=True, faults=faults, **told)


@pytest.mark.parametrize("workers", [1, 4])
def test_a_calm_job_counts_every_sample(workers):
    result = results.play(job(workers=workers))
    assert result.failures == ()
    assert result.steps == 100 * workers


@pytest.mark.parametrize(
    "fault",
    [
        Fault(0, kinds.KILL, kinds.WORKER, after=0.4),
        Fault(0, kinds.VANISH, kinds.WORKER, after=0.4, choice=1),
        Fault(0, kinds.FREEZE, kinds.WORKER, after=0.4, lasts=FOR_EVER),
        Fault(0, kinds.RESET, kinds.MEMBERS, after=0.4),
        Fault(0, kinds.LOSE, kinds.COORDINATOR, after=0.4),
        Fault(0, kinds.KILL, kinds.WORKER, "ARMED", after=0.2),
    ],
    ids=str,
)
@pytest.mark.parametrize("norm", [False, True])
def test_a_job_goes_on_after(fault, norm):
    result = results.play(job(fault, norm=norm))
    assert result.failures == ()
    assert len(result.hits) == 1


def test_members_that_cannot_reach_one_another_do_not_wait_for_ever(monkeypatch):
    """The coordinator is told, and goes on without one of them."""
    apart = Fault(0, kinds.DROP, kinds.MEMBERS, after=0.4, lasts=FOR_EVER)
    result = results.play(job(apart))
    assert result.failures == ()
    assert "is expelled" in result.story
    monkeypatch.setattr(PeerProbe, "look", lambda self, seconds: None)
    assert "no step for" in results.play(job(apart)).failures[0]


@pytest.mark.parametrize("workers", [2, 3])
def test_survivors_of_a_death_wait_for_a_coordinator_that_is_away(workers):
    """Its disk is full for longer than their patience: nobody can tell them of the death before."""
    full = Fault(0, kinds.FULL, kinds.COORDINATOR, after=0.4, lasts=100.0)
    kill = Fault(1, kinds.KILL, kinds.WORKER, after=2.0)
    result = results.play(job(full, kill, workers=workers))
    assert result.failures == ()
    assert len(result.hits) == 2
    assert "the last worker died" not in result.story


def test_seeds_draw_jobs_without_servers_from_a_number_on():
    assert not any(drawn(seed).serverless for seed in range(0, 40_000, 400))
    found = [drawn(seed) for seed in range(40_000, 40_040)]
    assert 4 <= sum(each.serverless for each in found) <= 16
    assert all(each == serverless(each.seed) for each in found if each.serverless)


SCALES = [Fault(number, kinds.SCALE, after=0.5, workers=2 + number % 3) for number in range(4)]


def test_a_joiner_that_is_given_nothing_is_found(monkeypatch):
    agree = exchange.agree

    def forgetful(holdings):
        found = agree(holdings)
        return Agreement(found.version, found.giver, found.records, frozenset()) if found.version else found

    monkeypatch.setattr(exchange, "agree", forgetful)
    found = (results.play(job(*SCALES, seed=seed, latency=(0.01, 0.05))).failures for seed in range(1, 40))
    failures = next(filter(None, found))
    assert "TypeError" not in str(failures)


@pytest.mark.parametrize("follows", [False, True])
def test_joiners_follow_a_member_while_it_trains(monkeypatch, follows):
    given = []
    give_state = exchange.give_state

    def giving(group, packed):
        given.append(group.number.number)
        give_state(group, packed)

    monkeypatch.setattr(exchange, "give_state", giving)
    result = results.play(job(*SCALES[:2], workers=1, seed=2, follows=follows))
    assert result.failures == ()
    assert len(result.hits) == 2
    assert bool(given) is not follows, "all at the switch"


@pytest.mark.parametrize("follows", [False, True])
def test_a_job_whose_workers_have_all_died_goes_back_to_its_checkpoint(follows):
    kill = Fault(0, kinds.KILL, kinds.WORKER, after=1.5)
    result = results.play(job(kill, workers=1, saves=True, checkpoint_interval=0.2, follows=follows))
    assert result.failures == ()
    assert len(result.hits) == 1
    assert "goes back to its last checkpoint" in result.story
