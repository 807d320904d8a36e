"""Whole worlds: some seeds are good, a seed is one story, and a bug that is put in is found."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import chain
from multiprocessing import get_context
from multiprocessing.pool import Pool

import pytest

from coordinator.core import events as ev
from coordinator.core.checkpoints.ledger_voids import Void
from coordinator.core.nodes import deaths
from coordinator.core.plans.promotion import Decision
from elastic_ps.server.blocks.applied_batches import AppliedBatches
from elastic_ps.worker.wire.worker_state import WorkerState
from tests.paths import ROOT
from tests.world import gradients, results, world
from tests.world.faults import cells as kinds
from tests.world.faults import inject
from tests.world.faults.draw import drawn
from tests.world.faults.job_draw import Fault, JobDraw
from tests.world.hunt import hunt
from tests.world.kernel.scheduler import RUNS
from tests.world.mutations import planted
from tests.world.shrink import shrunk

pytestmark = pytest.mark.slow


COURSE = {
    "tensors": 4,
    "samples": 41,
    "freezes": 1,
    "kinds": ((3, "float64"), (0, "float16"), (20, "float32")),
    "devices": 2,
    "spare_epochs": 1,
    "evaluates": True,
}
"""A script whose samples make no whole batches, and whose tensors are of some kinds and left out now and then."""


@pytest.fixture
def in_order(monkeypatch) -> Iterator[Pool]:
    """A process in which sets have the same order each time: the job that shows a planted bug depends on it."""
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    with get_context("spawn").Pool(1) as pool:
        yield pool


def failures_with(bug: str, draw: JobDraw) -> tuple[str, ...]:
    with planted(bug):
        return results.play(draw).failures


def command(*arguments: str, order: str = "random") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONHASHSEED": order}
    return subprocess.run(
        [sys.executable, "-m", "tests.world", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("script", [{}, {"tensors": 4, "stores": 2, "early": True, "meets": True}, COURSE])
@pytest.mark.parametrize("mode", ["sync", "async", "ssp"])
def test_a_calm_job_counts_every_sample(mode, script):
    draw = JobDraw(1, mode=mode, workers=2, servers=2, epochs=3, staleness=2 * (mode == "ssp"), **script)
    result = results.play(draw)
    assert result.failures == ()
    assert not result.hits
    assert result.steps >= 15


@pytest.mark.parametrize("last", ["short", "wrap"])
def test_a_tensor_is_new_in_a_step_in_which_not_every_worker_has_samples(last):
    """Whoever had none pushed that before it heard of the tensor, and its servers waited for word of it."""
    ends = {"samples": 7, "batch": 2, "epochs": 3, "last": last}
    for seed in range(4):
        result = results.play(JobDraw(seed, workers=3, servers=2, grows=1, **ends))
        assert result.failures == ()


@pytest.mark.parametrize("mode", ["async", "ssp"])
def test_a_tensor_is_new_in_an_epoch_in_which_not_every_worker_has_a_batch(mode):
    """The chief came to define it with its next batch, and there was none, as others waited for its value."""
    ends = {"samples": 8, "batch": 8, "epochs": 2, "staleness": 2 * (mode == "ssp")}
    for seed in range(3):
        result = results.play(JobDraw(seed, mode=mode, workers=3, servers=2, grows=1, **ends))
        assert result.failures == ()


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_calm_job_that_draws_its_own_batches_counts_every_push(mode):
    result = results.play(JobDraw(1, mode=mode, static=True, workers=2, servers=2, epochs=3))
    assert result.failures == ()
    assert result.steps == 30


@pytest.mark.parametrize("kind", gradients.KINDS)
def test_followers_of_every_kind_of_gradient(kind):
    """A server is killed, each time when all blocks have followers again: nothing is restored."""
    kills = tuple(Fault(number, kinds.KILL, kinds.SERVER, after=0.3, choice=number) for number in range(3))
    job = {"workers": 2, "servers": 3, "epochs": 16, "pace": (0.05, 0.1), "checkpoint_interval": 0.2}
    for mode in ("sync", "async"):
        result = results.play(JobDraw(2, mode=mode, replicas=1, apart=True, gradients=kind, faults=kills, **job))
        assert result.failures == ()
        assert result.watched == len(kills)
        assert "goes back to its last checkpoint" not in result.story


@pytest.mark.parametrize("role", [kinds.SERVER, kinds.WORKER])
def test_the_norm_of_all_gradients_is_decided_whoever_dies(role):
    """Servers wait for the chief's factor in each step; nothing is restored, and every sample counts once."""
    kills = tuple(Fault(number, kinds.KILL, role, after=0.3, choice=0) for number in range(4))
    job = {"workers": 3, "servers": 3, "epochs": 16, "pace": (0.05, 0.1), "checkpoint_interval": 0.2}
    result = results.play(JobDraw(3, replicas=1, apart=True, norm=True, faults=kills, **job))
    assert result.failures == ()
    assert len(result.hits) == len(kills)
    assert "goes back to its last checkpoint" not in result.story


def test_a_restore_after_a_single_fault_is_found(monkeypatch):
    """The coordinator takes no copy for one that could own its block."""
    monkeypatch.setattr(deaths, "decide", lambda chain, begun, *rest, **named: Decision(begun, lost=(0,)))
    kill = Fault(0, kinds.KILL, kinds.SERVER, after=0.3)
    result = results.play(JobDraw(2, workers=2, servers=3, epochs=16, replicas=1, apart=True, faults=(kill,)))
    assert "every block had a follower" in result.failures[0]


def test_an_event_that_the_core_fails_on_is_found_though_it_is_refused_and_asked_again(monkeypatch):
    takes, failed = world.step, []

    def once(state, event):
        if isinstance(event, ev.DrawAsked) and not failed:
            failed.append(event)
            raise KeyError("a bug")
        return takes(state, event)

    monkeypatch.setattr(world, "step", once)
    result = results.play(JobDraw(1, mode="async"))
    assert result.failures == ("the coordinator's core failed on DrawAsked: KeyError('a bug')",)


@pytest.mark.parametrize(
    ("kind", "role"),
    [
        (kinds.VANISH, kinds.SERVER),
        (kinds.FULL, kinds.COORDINATOR),
        (kinds.BROKEN, kinds.STORAGE),
        (kinds.DELAY, kinds.STORAGE),
        (kinds.JUMP, kinds.COORDINATOR),
    ],
)
def test_machines_disks_and_clocks_that_fail(kind, role):
    faults = tuple(Fault(number, kind, role, after=0.5, lasts=2.5, choice=9999 * number) for number in range(3))
    job = {"workers": 2, "servers": 3, "epochs": 12, "pace": (0.1, 0.3), "checkpoint_interval": 0.5}
    result = results.play(JobDraw(1, replicas=1, apart=True, faults=faults, **job))
    assert result.failures == ()
    assert result.watched == len(result.hits) == len(faults)


@pytest.mark.parametrize(
    ("phase", "job"),
    [
        (kinds.FILLING, {"servers": 2, "replicas": 1}),
        (kinds.DEATH, {"workers": 1}),
        (kinds.DEATH, {"servers": 2, "replicas": 1}),
        (kinds.PLAN_PHASES[0], {"workers": 3}),
    ],
)
def test_the_phase_that_a_fault_waits_for_is_brought_about(phase, job):
    """Where too few would be left for a death's plan, or for followers, others come first."""
    fault = Fault(0, kinds.RESET, "launcher-coordinator", phase, workers=3)
    result = results.play(JobDraw(1, epochs=16, pace=(0.05, 0.1), checkpoint_interval=0.2, faults=(fault,), **job))
    assert result.failures == ()
    assert result.hits == ((fault.role, phase, fault.kind),)


def test_a_fault_of_a_connection_waits_for_one():
    """The restore begins with the only server that is left: it has a connection to another when that one has come."""
    fault = Fault(0, kinds.DROP, kinds.MOVERS, kinds.RESTORE, lasts=0.5)
    job = {"servers": 3, "replicas": 1, "epochs": 16, "pace": (0.05, 0.1), "checkpoint_interval": 0.2}
    result = results.play(JobDraw(1, faults=(fault,), **job))
    assert result.failures == ()
    assert result.hits == ((kinds.MOVERS, kinds.RESTORE, kinds.DROP),)


def test_a_copy_that_goes_on_lacks_nothing_that_its_owner_has_told(in_order):
    """A server dies, first followers are made for its blocks, and their owner is cut off from them."""
    cut = Fault(0, kinds.DROP, kinds.MOVERS, kinds.FILLING, lasts=9.0, choice=9, deep="ARMED")
    quick = {"pace": (0.001, 0.01), "latency": (0.0005, 0.02), "checkpoint_interval": 0.3, "lease": 2.0}
    job = JobDraw(9, workers=2, servers=3, replicas=1, tensors=3, epochs=24, faults=(cut,), **quick)
    assert results.play(job).failures == ()
    seeds = (8, 45, 55, 9, 16, 22, 24, *range(60, 70))
    jobs = (replace(job, seed=seed, faults=(replace(cut, choice=seed),)) for seed in seeds)
    found = next(filter(None, in_order.imap(partial(failures_with, "copies_unawaited"), jobs)))
    assert "the ledger has sample" in found[0]


def test_gradients_that_a_late_push_overwrites_in_shared_memory_are_found(in_order):
    """Owners change while steps are shorter than the way of a push: some come when their worker is a step further."""
    asked = tuple(
        Fault(number, kinds.SCALE, after=0.2, workers=3 - number % 2, servers=3 - number % 2) for number in range(6)
    )
    short = {"latency": (0.001, 0.05), "pace": (0.001, 0.01), "switches": 0.02, "slow": 0.1}
    job = JobDraw(3, workers=2, servers=2, epochs=20, hosts=1, checkpoint_interval=0.2, faults=asked, **short)
    assert results.play(job).failures == ()
    jobs = (replace(job, seed=seed) for seed in range(17, 60))
    failures = chain.from_iterable(in_order.imap(partial(failures_with, "received_in_place"), jobs))
    assert any("who has written to it meanwhile" in failure for failure in failures)


def test_a_frozen_worker_that_the_job_goes_on_without_reads_nothing_that_servers_have_written_over(monkeypatch):
    """It wakes up before its launcher kills it, and values that it has waited for lie there no more."""
    freezes = tuple(Fault(n, kinds.FREEZE, kinds.WORKER, after=0.4 + 5 * n, lasts=3.6, choice=n) for n in range(3))
    quick = {"latency": (0.02, 0.08), "pace": (0.001, 0.01), "lease": 2.0}
    job = JobDraw(4, workers=3, epochs=40, hosts=1, faults=freezes, **quick)
    result = results.play(job)
    assert result.failures == ()
    assert "the servers have gone on without this worker" in result.story
    monkeypatch.setattr(WorkerState, "check_values", lambda self: None)
    assert "tensor 0 of version" in results.play(job).failures[0]


@pytest.mark.parametrize(
    "name", ["told_at_once", "acknowledged_early", "hand_over_early", "synced_unawaited", "saved_untold"]
)
def test_what_is_said_of_copies_that_are_not_there_is_found(name):
    ran = command("--mutation", name, "--seeds", "0-30", "--processes", "1")
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_a_planted_bug_is_found_and_gone_afterwards():
    real = Void.kept
    assert hunt("voids_forgotten", range(20), 10, 1) == 0
    assert Void.kept is real


def test_some_seeds_are_good():
    ran = command("--seeds", "0-5", "--faults", "6")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "0 failed" in ran.stdout


def test_a_seed_is_one_story():
    """Alone and after others, with any order of sets that Python was started with."""
    once, again = (command("--seed", "9", "--faults", "4", order=order).stdout for order in ("1", "2"))
    assert once == again
    assert "FAULT" in once
    first = results.play(drawn(9, 4)).story
    results.play(drawn(10, 2))
    assert results.play(drawn(9, 4)).story == first


def test_a_bug_that_is_put_in_is_found_and_its_faults_shrink(monkeypatch):
    """Blocks forget which batches they have taken: one that is pushed again counts twice."""
    monkeypatch.setattr(AppliedBatches, "take", lambda self, batch, run: None)
    resets = tuple(Fault(number, kinds.RESET, "worker-server", after=0.1, choice=number) for number in range(40))
    slow = {"latency": (0.02, 0.05), "pace": (0.001, 0.01)}  # most of the time something is on its way
    job = JobDraw(2, mode="async", workers=3, servers=2, epochs=16, checkpoint_interval=0.2, faults=resets, **slow)
    assert results.play(job).failures
    assert results.play(job.without(frozenset(range(40)))).failures == ()
    smaller = shrunk(job, lambda some: bool(results.play(some).failures))
    assert 1 <= len(smaller.faults) < 10


def test_what_matters_is_left_when_faults_are_left_out():
    faults = tuple(Fault(number, kinds.KILL) for number in range(16))
    left = shrunk(JobDraw(1, faults=faults), lambda some: {3, 11} <= {fault.number for fault in some.faults})
    assert [fault.number for fault in left.faults] == [3, 11]


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("role", [kinds.COORDINATOR, kinds.SERVER])
@pytest.mark.parametrize("seconds", [0.0, 0.01, 0.03])
def test_whoever_dies_as_the_job_ends_costs_no_entry_of_the_ledger(monkeypatch, mode, role, seconds):
    """No fault of a seed comes so late: a coordinator is started again; followers tell what a server had to tell."""
    killed, saw = [], inject.Injector.saw

    def seen(injector, state):
        if state.job.ended and not killed:
            killed.append(role)
            world = injector._world
            (victim, *_) = [each for each in world.processes if each.role == role and each.state == RUNS]
            world.scheduler.call_at(world.scheduler.now + seconds, lambda: world.kill(victim))
        saw(injector, state)
        injector.late = False

    monkeypatch.setattr(inject.Injector, "saw", seen)
    monkeypatch.setattr(inject.Injector, "lost", lambda *_: None)
    job = {"workers": 2, "servers": 3, "replicas": 1, "epochs": 4, "pace": (0.01, 0.02), "latency": (0.001, 0.02)}
    result = results.play(JobDraw(5, mode=mode, **job))
    assert killed
    assert result.failures == ()
