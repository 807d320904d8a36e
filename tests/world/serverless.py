"""The training script of a job without servers, whose weights and whose optimizer's state tell every sample."""

from collections.abc import Callable
from typing import Any

import torch

from elastic_ps.core.optimizer import Hyper, OptimizerSpec
from elastic_ps.data.sampler import Sampler, epochs
from elastic_ps.node.settings import NodeSettings
from elastic_ps.torch.allreduce.job import AllReduceJob
from elastic_ps.torch.allreduce.node import GroupNode
from elastic_ps.torch.allreduce.replica.replica import Replica
from elastic_ps.torch.allreduce.store import ReplicaStore
from elastic_ps.torch.arrays import ModelArray
from tests.world.faults.job_draw import JobDraw
from tests.world.gradients import DENSE
from tests.world.kernel import threads
from tests.world.kernel.scheduler import Process

COUNTED, UPDATES = "counted", "updates"
"""Names of the optimizer's states."""

torch.set_num_threads(1)  # worlds are forked, and threads are not


class Counting(torch.optim.Optimizer):
    """A `Counting` adds gradients to the parameters, and to a state of each; so both say the same."""

    def __init__(self, parameters: Any):
        super().__init__(parameters, {"lr": 1.0})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """See torch."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state.update({COUNTED: torch.zeros_like(parameter), UPDATES: 0})
                parameter.add_(parameter.grad, alpha=group["lr"])
                state[COUNTED].add_(parameter.grad)
                state[UPDATES] += 1


class FollowedCounting(Counting):
    """A `FollowedCounting` is taken for one of torch.optim, so that workers which join follow a member."""

    __module__ = "torch.optim.counting"


class Model(torch.nn.Module):
    """A `Model` has an entry for each sample in each of its parameters."""

    def __init__(self, draw: JobDraw):
        super().__init__()
        for number in range(draw.tensors):
            self.register_parameter(f"p{number}", torch.nn.Parameter(torch.zeros(draw.samples)))


def make_job(settings: NodeSettings) -> AllReduceJob:
    """Return a worker's part in its job."""
    return AllReduceJob(GroupNode.of(settings))


def train(process: Process, draw: JobDraw, watch: Any, pace: Callable[[], tuple[float, float]]) -> None:
    """Train: a sample's gradient is one at its own entry of each parameter, and the sum over samples is added."""
    watch.started(process)
    model = Model(draw)
    optimizer = (FollowedCounting if draw.follows else Counting)(model.parameters())
    parameters = list(model.parameters())
    arrays = [parameter.detach().numpy() for parameter in parameters]
    keys = [f"s:{name}" for name, _ in model.named_parameters()]
    sampler = Sampler(draw.samples, global_batch=draw.batch)
    store: ReplicaStore | None = None
    hyper = Hyper(skip_overflow=draw.norm)
    wire = None if draw.gradients == DENSE else getattr(torch, draw.gradients)
    for _ in epochs(draw.epochs):
        for step, indices, _ in sampler:
            job = process.job
            if store is None:
                store = job.open_store(
                    lambda store: Replica(optimizer, parameters, store.arrays, (), wire), lambda: optimizer.zero_grad()
                )
                store.set_optimizer(OptimizerSpec.scripts_own("Counting"), lambda _: hyper)
                named = [ModelArray(model, name) for name, _ in model.named_parameters()]
                store.broadcast(keys, named, [[each] for each in named])
            elif job.rehearsed:
                watch.stepped(process, job, arrays)
                _check_states(process, draw, job.node.version, optimizer, watch)
            least, most = pace()
            random = threads.here.scheduler.random
            threads.time.sleep(least + (most - least) * random.random())
            optimizer.zero_grad()
            for parameter in parameters:
                parameter.grad = torch.zeros(draw.samples)
                parameter.grad[torch.from_numpy(indices)] = torch.inf if draw.has_overflow(step) else 1.0
            if job.rehearsed:
                _push_early(store, keys, random.randrange(len(keys) + 1))
            store.pushpull(keys, [], [])
    watch.finished(process, arrays)


def _push_early(store: ReplicaStore, keys: list[str], others: int) -> None:
    """Have the gradients of the last keys summed before those of others are there, which takes a while."""
    if others < len(keys):
        store.push_early(keys, keys[others:], [])
        threads.time.sleep(0.01)


def _check_states(process: Process, draw: JobDraw, version: int, optimizer: Counting, watch: Any) -> None:
    """Check that the optimizer's state is of the parameters' version."""
    every, more = draw.counts(version)
    updates = (every * draw.samples + more) // draw.batch
    for parameter in optimizer.param_groups[0]["params"]:
        state = optimizer.state[parameter]
        if not state and not updates:
            continue
        if not state or state[UPDATES] != updates or not torch.equal(state[COUNTED], parameter):
            watch.wrong(f"{process}: the optimizer's state is not of version {version}: {state}")
