"""Jobs without servers train as one process does, with every sample once, whatever comes, goes or dies."""

import gc
import threading
import time
from contextlib import suppress
from functools import partial
from unittest.mock import patch

import pytest

torch = pytest.importorskip("torch")

from coordinator.core import events as ev  # noqa: E402
from coordinator.core.plans.plan import Phase  # noqa: E402
from elastic_ps.core.data_order import indices, permutation  # noqa: E402
from elastic_ps.core.errors import ConfigurationError, ProtocolError  # noqa: E402
from elastic_ps.core.optimizer import Hyper  # noqa: E402
from elastic_ps.torch.allreduce import exchange  # noqa: E402
from elastic_ps.torch.allreduce.group import Rendezvous, Transfer, WorkerGroup  # noqa: E402
from elastic_ps.torch.allreduce.group_collectives import GroupCollectives  # noqa: E402
from elastic_ps.torch.allreduce.membership import GroupMembership  # noqa: E402
from tests.elastic_ps.torch.allreduce.group_job import (  # noqa: E402
    BATCH,
    CHIEF,
    SAMPLES,
    Killed,
    Worker,
    adam,
    finished,
    loss_of,
    network,
    started,
    trained_alone,
)
from tests.elastic_ps.torch.allreduce.played_coordinator import SEED, WAIT, Coordinator  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

STEPS = -(-SAMPLES // BATCH)


class Death:
    """The worker of a rank dies where its script comes by `where` at a version."""

    def __init__(self, rank, version, where):
        self.rank, self.version, self.where = rank, version, where
        self.fired = []

    def __call__(self, worker, where):
        ranks = worker.node.configuration.ranks
        here = (ranks.get(worker.id), worker.node.held, where)
        if here == (self.rank, self.version, self.where) and not self.fired:
            self.fired.append(worker)
            raise Killed


@pytest.mark.parametrize("count", [1, 3])
def test_a_fixed_roster_trains_as_one_process_does(count):
    coordinator, workers = started(count, 2)
    finished(coordinator, workers, 2)
    assert all(worker.begun_early >= 2 * STEPS - 1 for worker in workers), "but for the first step, which agrees"


def test_a_step_that_scripts_leave_out_changes_nothing_though_older_gradients_are_there():
    weights = {}

    def at(worker, where):
        worker.leaves_out = 3
        if where == "begun":
            assert worker.node.held == 0 or worker.model[0].weight.grad is not None
            weights[worker.id, worker.node.held] = worker.model[0].weight.detach().clone()

    _, workers = started(2, 1, at=at)
    for worker in workers:
        worker.wait()
        assert torch.equal(weights[worker.id, 3], weights[worker.id, 4])
        assert not torch.equal(weights[worker.id, 4], weights[worker.id, 5])


class DiesAtTheNorm:
    """The worker of rank 1 dies at version 4, when the sum is there and its norm is not known: before its part, or
    behind it."""

    def __init__(self, behind):
        self.behind = behind
        self.fired = []

    def run(self, collectives, group, generation, body):
        name = body.func.__name__ if isinstance(body, partial) else ""
        dies = (group.rank, collectives._node.held, name) == (1, 4, "clip") and not self.fired
        if dies:
            self.fired.append(collectives._node)
            if not self.behind:
                raise Killed
        found = collectives.wait(group.submit(body), generation)
        if dies:
            raise Killed
        return found


@pytest.mark.parametrize("behind", [None, False, True])
def test_gradients_are_clipped_by_the_norm_of_all_whoever_dies_at_it(behind):
    """The bound bites: the first norms are above 1."""
    bound, death = 0.1, DiesAtTheNorm(behind)

    def at(worker, where):
        worker.hyper = Hyper(max_norm=bound)

    run = GroupCollectives.run if behind is None else death.run
    with patch.object(GroupCollectives, "run", lambda *given: run(*given)):
        coordinator, workers = started(3, 2, at=at)
        for worker in workers:
            worker.wait()
    finished(coordinator, [worker for worker in workers if worker.node not in death.fired], 2, bound)
    assert len(death.fired) == (behind is not None)
    with pytest.raises(AssertionError):
        torch.testing.assert_close(trained_alone(2), trained_alone(2, bound=bound))


def test_a_step_in_which_a_gradient_overflows_anywhere_is_skipped_by_all():
    """The chief has no GradScaler: it may be on a CPU, while others are on GPUs."""
    weights, skipped = {}, {}

    def at(worker, where):
        rank, version = worker.node.configuration.ranks.get(worker.id, 0), worker.node.held
        worker.hyper = Hyper(skip_overflow=rank == 1)
        if where == "computed" and version == 3 and rank == 1:
            worker.model[0].weight.grad[0, 0] = torch.inf
        if where == "begun":
            weights[worker.id, version] = worker.model[0].weight.detach().clone()
        if where == "stepped":
            skipped[worker.id, version] = worker.store.factor == 0

    _, workers = started(2, 1, at=at)
    for worker in workers:
        worker.wait()
        assert [version for version in range(1, 8) if skipped[worker.id, version]] == [4], "it leads to version 4"
        assert torch.equal(weights[worker.id, 3], weights[worker.id, 4])
        assert not torch.equal(weights[worker.id, 4], weights[worker.id, 5])


@pytest.fixture
def uncollected():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Reset:
    """The connections of the worker of rank 1 break once, at version 4, in an operation of its group."""

    def __init__(self):
        self.fired = False

    def patched(self, workers, kind, name):
        operation = getattr(kind, name)

        def broken(*given):
            found = operation(*given)
            node = workers[1].node if workers else None
            group = node._groups.get(node.standing.config_id) if node is not None and node.held == 4 else None
            here = group is not None and threading.current_thread() is group._thread
            if here and not self.fired:
                self.fired = True
                raise RuntimeError("Connection reset by peer")
            return found

        return patch.object(kind, name, broken)


@pytest.mark.parametrize(("kind", "operation"), [(WorkerGroup, "gather"), (Transfer, "wait")])
def test_a_group_whose_connections_broke_meets_again_and_nobody_ends(kind, operation, uncollected):
    """What keeps connections open goes by itself, and need not wait for the garbage collector."""
    reset, workers, attempts, build = Reset(), [], [], Rendezvous.build

    def built(*given):
        attempts.append(given[-1] if len(given) == 5 else 0)
        return build(*given)

    with reset.patched(workers, kind, operation), patch.object(Rendezvous, "build", built):
        coordinator, found = started(3, 2)
        workers += found
        for worker in workers:
            worker.wait()
    assert reset.fired
    assert attempts == [0, 0, 0, 1, 1, 1]
    assert [plan.cause for plan in coordinator.state.history] == ["start"]
    finished(coordinator, workers, 2)


class OwnAdam(torch.optim.AdamW):
    """An optimizer of whose settings the job knows nothing."""


def test_a_worker_whose_optimizer_has_other_groups_ends_and_the_others_go_on():
    """Gloo would end the processes of both, as what they tell in a step has other lengths."""

    def make(model):
        parameters = list(model.parameters())
        return OwnAdam([{"params": part} for part in next(divided)(parameters)], lr=0.01)

    divided = iter([lambda them: [them], lambda them: [them[:2], them[2:]]])
    coordinator, workers = started(2, 1, make)
    with pytest.raises(ProtocolError, match="give all the same script"):
        workers[1].wait()
    finished(coordinator, workers[:1], 1)


def test_a_worker_whose_optimizer_has_failed_ends_and_the_others_go_on():
    """Its script catches that and calls the optimizer again: the others have made the step by then."""
    failed = []

    def at(worker, where):
        if where == "computed" and worker.node.held == 4 and worker is workers[1] and not failed:
            failed.append(worker)
            hook = worker.optimizer.register_step_pre_hook(lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                worker.store.pushpull([], [], [])
            hook.remove()

    coordinator, workers = started(2, 2, at=at)
    workers[1].wait()
    finished(coordinator, workers[:1], 2)
    assert workers[1].status == 1
    assert failed


def test_a_worker_that_has_frozen_what_others_train_ends_and_they_make_the_step_without_it():
    told = []

    def at(worker, where):
        if worker is not workers[1] or worker.node.held < 4:
            return
        if where == "begun":
            worker.model[0].weight.requires_grad_(False)
        if where == "computed":
            with suppress(ConfigurationError):  # whose frames hold the group's connections: they go before it dies
                try:
                    worker.store.pushpull([], [], [])
                except ConfigurationError as error:
                    told.append(str(error))
                    raise
            raise Killed

    coordinator, workers = started(2, 2, at=at)
    workers[1].wait()
    finished(coordinator, workers[:1], 2)
    assert told[0].startswith("parameter 0.weight is frozen by this worker, and trained by the chief. A worker that")
    assert coordinator.state.job.goal.workers == 1, "another one would end likewise"


def test_a_parameter_that_some_workers_samples_do_not_use_has_the_others_gradients():
    def at(worker, where):
        if worker is workers[1] and where == "computed":
            worker.model[0].weight.grad = None

    coordinator, workers = started(2, 1, at=at)
    for worker in workers:
        worker.wait()
    coordinator.close()
    assert torch.equal(workers[0].model[0].weight, workers[1].model[0].weight)
    expected = network()
    optimizer = adam(expected)
    others = {version: positions for version, _, positions in workers[1].parts}
    for version, epoch, positions in workers[0].parts:
        order = permutation(SEED, epoch, SAMPLES)
        optimizer.zero_grad()
        for part in (others[version], positions):
            share = len(part) / (len(positions) + len(others[version]))
            expected[0].weight.grad = None  # of the worker whose samples do not use it
            (share * loss_of(expected, torch.from_numpy(indices(order, part)))).backward()
        optimizer.step()
    torch.testing.assert_close(workers[0].model[0].weight, expected[0].weight, rtol=1e-9, atol=1e-12)


def test_a_job_repeats_itself_to_the_bit():
    weights = []
    for _ in range(2):
        coordinator, workers = started(2, 1)
        finished(coordinator, workers, 1)
        weights.append(workers[0].model.state_dict())
    assert all(torch.equal(values, weights[1][name]) for name, values in weights[0].items())


def test_steps_that_come_before_the_declaration_is_told_are_in_the_ledger():
    stepped, held_back = threading.Event(), []
    on_extend = GroupMembership._on_extend

    def late(membership, extend):
        held_back.append(stepped.wait(WAIT))
        on_extend(membership, extend)

    def at(worker, where):
        if where == "stepped" and worker.node.held == 2:
            stepped.set()

    with patch.object(GroupMembership, "_on_extend", late):
        coordinator, workers = started(2, 1, at=at)
        finished(coordinator, workers, 1)
    assert held_back == [True, True]


def test_workers_join_and_leave_while_it_trains():
    """The first worker asks for others, holds its step until they are ready, and leaves the rest to the plan."""
    asked = []

    def at(worker, where):
        if where != "begun":
            return
        plan = coordinator.state.job.plan
        if plan is not None and plan.clock is not None and worker.node.held > plan.clock:
            coordinator.until(lambda state: state.job.plan is None)  # it ends long before the job does
        if coordinator.state.job.plan is not None or len(asked) == len(wanted):
            return
        count = wanted[len(asked)]
        asked.append(worker.node.held)
        coordinator.scale(count)
        workers.extend(Worker(coordinator, 9).start() for _ in range(count - len(coordinator.workers())))
        coordinator.until(lambda state: state.job.plan is None or state.job.plan.phase is Phase.ARMED)

    wanted = [2, 3, 1]
    coordinator, workers = Coordinator(1), []
    workers.append(Worker(coordinator, 9, at=at, seed=CHIEF).start())
    workers[0].wait()
    plans = [(plan.phase, plan.clock) for plan in coordinator.state.history if plan.cause == "operator"]
    assert [phase for phase, _ in plans] == [Phase.COMMITTED] * len(wanted)
    assert len(workers) == 3
    for joiner, (_, clock) in zip(workers[1:], plans, strict=False):
        joiner.wait()
        assert joiner.parts[0][0] == clock + 1, "it has no samples of the first step of its configuration"
        left_at = plans[-1][1]
        assert joiner.node.held in (left_at - 1, left_at), "the others' switch may come before its last sum"
    finished(coordinator, workers[:1], 9)


def test_another_worker_takes_the_place_of_the_only_one():
    def at(worker, where):
        if where != "begun" or worker.node.held < 3:
            return
        if len(workers) == 1:
            coordinator.ask(lambda to: ev.DrainAsked(time.time(), to, worker.id))
            workers.append(Worker(coordinator, 4).start())
        coordinator.until(lambda state: state.job.plan is None or state.job.plan.phase is Phase.ARMED)

    coordinator, workers = Coordinator(1), []
    workers.append(Worker(coordinator, 4, at=at, seed=CHIEF).start())
    workers[0].wait()
    assert workers[0].status == 0
    finished(coordinator, workers[1:], 4)


@pytest.mark.parametrize("where", ["begun", "computed", "stepped"])
@pytest.mark.parametrize("rank", [0, 2])
def test_a_death_costs_one_step(rank, where):
    death = Death(rank, 4, where)
    coordinator, workers = started(3, 2, at=death)
    (dead,) = [worker for worker in workers for _ in [worker.wait()] if worker in death.fired]
    survivors = [worker for worker in workers if worker is not dead]
    finished(coordinator, survivors, 2)
    for worker in survivors:
        versions = [version for version, _, _ in worker.parts]
        assert len(versions) - len(set(versions)) <= 1, versions


@pytest.mark.parametrize("version", [4, 2 * STEPS - 1])
def test_who_has_the_sum_gives_it_to_those_who_lack_it(version):
    """The chief has a step's sum when it dies, and so has the last worker; the other one's collective fails.

    Behind the last step the last worker waits for the other one in the job's last barrier.
    """
    death = Death(0, version + 1, "stepped")
    coordinator, workers = started(3, 2, at=death)
    gathers = WorkerGroup.gather
    lost, given = [], []

    def gather(group, numbers):
        gathered = gathers(group, numbers)
        if group is workers[1].node.group and workers[1].node.held == version and not lost:
            lost.append(group)
            raise RuntimeError("Connection closed by peer")
        return gathered

    def give_record(group, record):
        given.append(record.version)
        give(group, record)

    give = exchange.give_record
    with (
        patch.object(WorkerGroup, "gather", gather),
        patch.object(exchange, "give_record", give_record),
    ):
        for worker in workers:
            worker.wait()
    assert lost
    assert given == [version]
    finished(coordinator, workers[1:], 2)
    assert [version for version, _, _ in workers[1].parts] == list(range(2 * STEPS)), "nobody computes it again"
