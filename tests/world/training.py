"""The training script of a job with servers, whose weights, and what else its servers keep, tell every sample."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from elastic_ps.core.optimizer import Hyper, OptimizerSpec
from elastic_ps.data.sampler import Sampler, epochs
from elastic_ps.worker.script.api import KeyStore
from elastic_ps.worker.script.numpy_array import NumpyArray
from elastic_ps.worker.script.worker_job import WorkerJob
from tests.world import gradients
from tests.world.faults.job_draw import APART, BY_UPDATES, COMBINED, OVERLAPPED, PRELOADED, JobDraw
from tests.world.kernel import threads
from tests.world.kernel.scheduler import Process
from tests.world.oracles.expected import EPSILON

Named = dict[str, NumpyArray]
"""Where the values of tensors go, by key."""

SQUARES = "history"
"""Name of the optimizer's state, where it has one: the sum of squares."""

STATISTIC = "s:statistic"
"""Key of a running statistic."""

_SENT_EARLY, _DROPPED = 0.8, 0.05  # parts of the gradients that may be, and of those
BROKEN_OFF = 0.03
"""Part of the steps in which scripts leave their loop, before they have made them or after, where they do."""

LINGERING = 0.2
"""Part of the times at which scripts linger, where they do."""


def train(process: Process, draw: JobDraw, watch: Any, pace: Callable[[], tuple[float, float]]) -> None:
    """Train: each tensor has an entry for each sample, whose gradient is one there; rate -1 counts the samples."""
    watch.started(process)
    linger(draw)
    script, data = Script(process, draw, watch), sampler(draw)
    for epoch in epochs(draw.epochs + draw.spare_epochs):
        for step, indices, _ in data:
            if is_stopped(process, draw, step) or not script.step(epoch, step, indices, pace):
                break
        script.end_epoch(epoch)
        if draw.spare_epochs and process.job.epoch >= draw.epochs:  # type: ignore[attr-defined]
            break
    linger(draw)
    watch.finished(process, script.arrays)


def is_stopped(process: Any, draw: JobDraw, step: int) -> bool:
    """Return whether a script stops before its last epochs: one that joins as the others do so comes to this step."""
    return bool(draw.spare_epochs) and process.job.rehearsed and step >= draw.steps


def linger(draw: JobDraw) -> None:
    """Take time as scripts do that load data, evaluate or save; not all of them, and not each time."""
    random = threads.here.scheduler.random
    if draw.lingers and random.random() < LINGERING:
        threads.time.sleep(random.random() * draw.lingers)


def sampler(draw: JobDraw) -> Sampler:
    """Return the sampler of a job's scripts."""
    return Sampler(
        draw.samples,
        **{"global_batch" if draw.mode == "sync" else "batch": draw.batch},
        last=draw.last,
        loss="mean" if draw.mean else "sum",
        consistency=draw.mode,
        staleness=draw.staleness,
        shuffle=not draw.given,
    )


def each_gradient(draw: JobDraw, step: int, indices: Sequence[int]) -> float:
    """Return a sample's gradient, at its own entry; infinite where all skip the step."""
    return np.inf if draw.has_overflow(step) else 1 / len(indices) if draw.mean else 1.0


def server_command(head: int, body: str) -> None:
    """Run a command on a server, as scripts may ask for. See `elasticrun --optimizer-module`."""
    process: Any = threads.here.scheduler.current.process
    process.commands = [*getattr(process, "commands", ()), head]


class Script:
    """A `Script` has the tensors of a training script, and makes its steps.

    Args:
        process: that runs it.
        draw: of the job.
        watch: sees what it sees.
    """

    def __init__(self, process: Process, draw: JobDraw, watch: Any):
        self.arrays = [_zeros(draw, tensor) for tensor in range(draw.tensors)]
        self._statistic = np.zeros(3, np.float32)
        self._stores: list[tuple[KeyStore, Named]] = []
        self._process, self._draw, self._watch = process, draw, watch
        self._last = -1  # the last step that was begun
        self._rate = draw.rate(0)  # of the optimizer, where the script says it anew in each step

    @property
    def _job(self) -> WorkerJob:
        return self._process.job  # type: ignore[attr-defined,no-any-return]

    def step(self, epoch: int, step: int, indices: Any, pace: Callable[[], tuple[float, float]]) -> bool:
        """Make a step, an exchange in each key store; return False where the script leaves its loop.

        Args:
            epoch: the one that a loop over `epochs` is in.
            step: of the job; 0 in the rehearsal.
            indices: of this worker's samples.
            pace: tells what a computation takes, in seconds, at least and at most.
        """
        draw, rehearsed = self._draw, self._job.rehearsed
        if not self._stores:
            self._open()
        elif rehearsed:
            self._look()
        if draw.grows and len(self.arrays) == draw.tensors:
            self._grow(step // draw.steps_per_epoch if rehearsed else epoch)
        made, self._last = self._last, step
        if draw.collects and rehearsed and step % 3 == 0 and step == made + 1 and self._is_at_boundary():
            self._collect()  # servers may have made a step that is made again, and a joiner's first
        self._statistic += 1.0
        self._rate = draw.rate(step)
        for store, every in self._stores:
            left_out = {key for key in every if rehearsed and draw.leaves_out(number_of(key), step)}
            named = {key: out for key, out in every.items() if key not in left_out}
            least, most = pace()
            seconds = (least + (most - least) * threads.here.scheduler.random.random()) / len(self._stores)
            each = each_gradient(draw, step, indices)
            made = [self._gradients(out.values, indices, each) for out in named.values()]
            self._compute(store, list(named), made, seconds)
            if not draw.early and not draw.statistic and self._breaks_off():
                return False  # nothing of it has been sent, nor changed the statistic: it is the next one again
            self._exchange(store, named, made)
        if draw.mode == "sync" and step % 2 == 0:
            self.meet()
        return not self._breaks_off()

    def end_epoch(self, epoch: int) -> None:
        """Do what is done at an epoch's end: meet the others, evaluate, let the chief have servers run a command."""
        self.meet()
        if self._draw.evaluates and self._job.rehearsed:
            self._evaluate(epoch)
        if self._job.rehearsed:
            linger(self._draw)
        if self._draw.commands and self._job.rehearsed and self._job.rank == 0:
            with self._watch.keeping.commanding(self._process) as number:
                self._stores[0][0].command(number, f"epoch {epoch}")

    def _evaluate(self, epoch: int) -> None:
        """Pull the values into arrays of its own, and report what they are like."""
        pulled = [np.zeros_like(array) for array in self.arrays]
        for store, named in self._stores:
            store.pull(list(named), [[NumpyArray(pulled[number_of(key)])] for key in named])
        if self._is_at_boundary():
            self._watch.pulled(self._process, self._job, pulled)
        self._job.report(epoch, {"mean": pulled[0].mean()})

    def meet(self) -> None:
        """Wait for the others in a barrier, where the job's script has some; a rehearsal has none."""
        if self._draw.meets and self._job.rehearsed:
            self._job.barrier()

    # ---- key stores --------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        """Open the key stores, and tell them of their tensors."""
        named = {f"i:{number}": NumpyArray(array) for number, array in enumerate(self.arrays)}
        first = list(named)[: len(named) // self._draw.stores]
        parts = [part for part in (first, [key for key in named if key not in first]) if part]
        self._stores = [(self._opened(), {key: named[key] for key in part}) for part in parts]
        for store, tensors in self._stores:
            _define(store, tensors)
        if self._draw.statistic:
            _define(self._stores[0][0], {STATISTIC: NumpyArray(self._statistic)})
        if self._draw.preloads:
            for store, tensors in self._stores:
                store.load_optimizer_states({key: self._preloaded(out.values) for key, out in tensors.items()})

    def _preloaded(self, like: Any) -> dict[str, Any]:
        """Return the optimizer's state of a tensor that a job before has saved."""
        updates, squares = PRELOADED
        return {"count": updates, **({SQUARES: np.full_like(like, squares)} if self._draw.adaptive else {})}

    def _opened(self) -> KeyStore:
        store: KeyStore = self._job.open_store()
        if (compression := gradients.compression(self._draw.gradients)) is not None:
            store.set_compression(compression)
        spec = OptimizerSpec("adagrad", {"eps": EPSILON}) if self._draw.adaptive else OptimizerSpec("sgd")
        store.set_optimizer(spec, self._hyper)
        return store

    def _hyper(self, number: int) -> Hyper:
        """Return the optimizer's values of the update of this number, counted from 1."""
        draw = self._draw
        rate = draw.rate(number - 1) if draw.schedule == BY_UPDATES else self._rate
        return Hyper(lr=-rate * draw.scale, skip_overflow=draw.norm)

    def _grow(self, epoch: int) -> None:
        """Define another tensor, where the job has come to its epoch."""
        if epoch >= self._draw.grows:
            self.arrays.append(_zeros(self._draw, self._draw.tensors))
            store, named = self._stores[-1]
            more = {f"i:{self._draw.tensors}": NumpyArray(self.arrays[-1])}
            named.update(more)
            _define(store, more)

    # ---- steps -------------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Show what the script has, before a step's first exchange."""
        if self._is_at_boundary():
            self._watch.stepped(self._process, self._job, self.arrays)
            if self._draw.statistic:
                self._watch.keeping.averaged(self._process, self._job.node.version, self._statistic)

    def _breaks_off(self) -> bool:
        """Return whether the script leaves its loop here, as some do now and then."""
        rehearsed, random = self._job.rehearsed, threads.here.scheduler.random
        return self._draw.breaks and rehearsed and random.random() < BROKEN_OFF

    def _is_at_boundary(self) -> bool:
        """Return whether no exchange of the step has been made: one that is begun again may be in its midst."""
        return self._draw.mode != "sync" or self._job.node.version % len(self._stores) == 0

    def _collect(self) -> None:
        """Collect the optimizer's states from the servers, and load them again."""
        for store, named in self._stores:
            states = store.optimizer_states() or {}
            for key, array in named.items():
                self._watch.keeping.collected(
                    self._process, self._job.node.version, number_of(key), array.values, states.get(key)
                )
            if self._draw.mode == "sync":  # else others' updates would be lost
                store.load_optimizer_states(states)

    def _exchange(self, store: KeyStore, named: Named, made: list[list[NumpyArray]]) -> None:
        """Push the gradients, and pull the new values, in one of the ways of scripts."""
        keys, outs = list(named), [[target] for target in named.values()]
        if self._draw.way == APART:
            store.push(keys, made)
            store.pull(keys, outs)
        elif self._draw.way in (COMBINED, OVERLAPPED):
            with store.combined(self._draw.way == OVERLAPPED):
                for key, gradient, out in zip(keys, made, outs, strict=True):
                    store.pushpull([key], [gradient], [out])
        else:
            store.pushpull(keys, made, outs)

    def _gradients(self, like: Any, indices: Any, each: float) -> list[NumpyArray]:
        """Return the gradient of a tensor on each of the script's devices."""
        kind, devices = self._draw.gradients, self._draw.devices
        return [gradients.gradient(kind, like, indices[device::devices], each) for device in range(devices)]

    def _compute(self, store: KeyStore, keys: list[str], made: list[list[NumpyArray]], seconds: float) -> None:
        """Take time for gradients; some may be sent while others are made, and now and then the batch is left."""
        sends = self._draw.early and self._job.rehearsed and len(keys) > 1
        random = threads.here.scheduler.random
        for number in reversed(range(1, len(keys)) if sends else ()):
            threads.time.sleep(seconds / len(keys))
            if random.random() < _SENT_EARLY:
                store.push_early(keys, [keys[number]], [made[number]])
                if random.random() < _DROPPED:
                    store.drop_early()
        threads.time.sleep(seconds / len(keys) if sends else seconds)


def _zeros(draw: JobDraw, tensor: int) -> Any:
    shape, dtype = draw.kind_of(tensor)
    return np.zeros(shape, dtype)


def number_of(key: str) -> int:
    """Return the number of a tensor by its key; -1: it has none."""
    return int(key[2:]) if key[2:].isdigit() else -1


def _define(store: KeyStore, named: Named) -> None:
    store.broadcast(list(named), list(named.values()), [[target] for target in named.values()])
