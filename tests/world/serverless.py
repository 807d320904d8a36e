"""The training script of a job without servers, whose weights and whose optimizer's state tell every sample."""

from collections.abc import Callable
from typing import Any

import torch

from elastic_ps.core.optimizer import Hyper, OptimizerSpec
from elastic_ps.data.sampler import epochs
from elastic_ps.node.settings import NodeSettings
from elastic_ps.torch.allreduce.job import AllReduceJob
from elastic_ps.torch.allreduce.node import GroupNode
from elastic_ps.torch.allreduce.replica.replica import Replica
from elastic_ps.torch.allreduce.store import ReplicaStore
from elastic_ps.torch.arrays import ModelArray
from tests.world import training
from tests.world.faults.job_draw import JobDraw
from tests.world.gradients import DENSE
from tests.world.kernel import threads
from tests.world.kernel.scheduler import Process
from tests.world.training import BROKEN_OFF

COUNTED, UPDATES = "counted", "updates"
"""Names of the optimizer's states."""

_STATISTIC = "statistic"
"""Name of the buffer that is averaged."""

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
                state[COUNTED].add_(parameter.grad, alpha=group["lr"])
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
        if draw.statistic:
            self.register_buffer(_STATISTIC, torch.zeros(3))


def make_job(settings: NodeSettings) -> AllReduceJob:
    """Return a worker's part in its job."""
    return AllReduceJob(GroupNode.of(settings))


def train(process: Process, draw: JobDraw, watch: Any, pace: Callable[[], tuple[float, float]]) -> None:
    """Train: a sample's gradient is one at its own entry of each parameter, and the sum over samples is added."""
    watch.started(process)
    training.linger(draw)
    model = Model(draw)
    optimizer = (FollowedCounting if draw.follows else Counting)(model.parameters())
    script = _Script(process, draw, watch, model, optimizer)
    sampler = training.sampler(draw)
    for _ in epochs(draw.epochs + draw.spare_epochs):
        for step, indices, _ in sampler:
            if training.is_stopped(process, draw, step) or not script.step(step, indices, pace):
                break
        training.linger(draw)
        if draw.spare_epochs and process.job.epoch >= draw.epochs:
            break
    watch.finished(process, script.arrays)


class _Script:
    """A `_Script` makes the steps of a training script.

    Args:
        process: that runs it.
        draw: of the job.
        watch: sees what it sees.
        model: its own.
        optimizer: of the model's parameters.
    """

    def __init__(self, process: Any, draw: JobDraw, watch: Any, model: Model, optimizer: Counting):
        self.parameters = list(model.parameters())
        self.arrays = [parameter.detach().numpy() for parameter in self.parameters]
        self._keys = [f"s:{name}" for name, _ in model.named_parameters()]
        self._process, self._draw, self._watch, self._model, self._optimizer = process, draw, watch, model, optimizer
        self._store: ReplicaStore | None = None

    def step(self, step: int, indices: Any, pace: Callable[[], tuple[float, float]]) -> bool:
        """Make a step; return False where the script leaves its loop."""
        draw, random = self._draw, threads.here.scheduler.random
        if self._store is None:
            self._store = self._opened()
        elif self._process.job.rehearsed:
            self._look()
        least, most = pace()
        threads.time.sleep(least + (most - least) * random.random())
        self._optimizer.zero_grad()
        self._set_gradients(step, indices)
        breaks = draw.breaks and self._process.job.rehearsed
        if breaks and not draw.statistic and random.random() < BROKEN_OFF:
            return False  # the step is the next one again
        if draw.statistic:
            self._model.get_buffer(_STATISTIC).add_(1.0)
        if self._process.job.rehearsed:
            _push_early(self._store, self._keys, random.randrange(len(self._keys) + 1))
        self._store.pushpull(self._keys, [], [])
        return not breaks or random.random() >= BROKEN_OFF

    def _set_gradients(self, step: int, indices: Any) -> None:
        """Compute the gradients, and set the optimizer's rate; of a tensor that is left out there are none."""
        draw, rehearsed = self._draw, self._process.job.rehearsed
        self._optimizer.param_groups[0]["lr"] = draw.rate(step) * draw.scale
        each = training.each_gradient(draw, step, indices)
        for number, parameter in enumerate(self.parameters):
            if not (rehearsed and draw.leaves_out(number, step)):
                parameter.grad = torch.zeros(draw.samples)
                parameter.grad[torch.from_numpy(indices)] = each

    def _opened(self) -> ReplicaStore:
        draw, parameters, optimizer = self._draw, self.parameters, self._optimizer
        wire = None if draw.gradients == DENSE else getattr(torch, draw.gradients)
        store: ReplicaStore = self._process.job.open_store(
            lambda store: Replica(optimizer, parameters, store.arrays, store.statistics, wire), self._undo_rehearsal
        )
        hyper = Hyper(skip_overflow=draw.norm)
        store.set_optimizer(OptimizerSpec.scripts_own("Counting"), lambda _: hyper)
        names = [name for name, _ in (*self._model.named_parameters(), *self._model.named_buffers())]
        named = [ModelArray(self._model, name) for name in names]
        store.broadcast([f"s:{name}" for name in names], named, [[each] for each in named])
        store.set_auxiliary({f"s:{name}" for name, _ in self._model.named_buffers()})
        return store

    def _undo_rehearsal(self) -> None:
        self._optimizer.zero_grad()
        for buffer in self._model.buffers():
            buffer.zero_()

    def _look(self) -> None:
        """Show what the script has, before a step."""
        process, version = self._process, self._process.job.node.version
        self._watch.stepped(process, process.job, self.arrays)
        _check_states(process, self._draw, version, self._optimizer, self._watch)
        if self._draw.statistic:
            self._watch.keeping.averaged(process, version, self._model.get_buffer(_STATISTIC).numpy())


def _push_early(store: ReplicaStore, keys: list[str], others: int) -> None:
    """Have the gradients of the last keys summed before those of others are there, which takes a while."""
    if others < len(keys):
        store.push_early(keys, keys[others:], [])
        threads.time.sleep(0.01)


def _check_states(process: Process, draw: JobDraw, version: int, optimizer: Counting, watch: Any) -> None:
    """Check that the optimizer's state is of the parameters' version."""
    for number, parameter in enumerate(optimizer.param_groups[0]["params"]):
        state, updates = optimizer.state[parameter], watch.expected.course(number).updates[version]
        if not state and not updates:
            continue
        if not state or state[UPDATES] != updates or not torch.equal(state[COUNTED], parameter):
            watch.wrong(f"{process}: the optimizer's state is not of version {version}: {state}")
