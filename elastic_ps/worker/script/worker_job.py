"""A `WorkerJob` is a worker's part in its job: the stores of the script, its steps, and its place in the data."""

import atexit
import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from elastic_ps.control import codec
from elastic_ps.core.configuration import Role
from elastic_ps.core.data_order import DataSpec, Place
from elastic_ps.core.errors import ConfigurationError, JobEnded
from elastic_ps.core.model import Tensor
from elastic_ps.core.script_hints import OPTIMIZER_ON_SERVERS, PUSH_EACH_BATCH
from elastic_ps.node.leaving import EXIT_TERMINATED, leave_or_save
from elastic_ps.node.session import Session
from elastic_ps.node.settings import NodeSettings
from elastic_ps.worker.script.barriers import Barriers
from elastic_ps.worker.script.data_position import DataPosition, StepPart, agree, position_of
from elastic_ps.worker.script.key_store import WorkerKeyStore
from elastic_ps.worker.script.process_ending import ScriptEnding, drain_on_sigterm, exits
from elastic_ps.worker.script.staging import Key, Staging
from elastic_ps.worker.script.step import Step
from elastic_ps.worker.script.step_buffer import StepBuffer
from elastic_ps.worker.wire.core_share import CoreShare
from elastic_ps.worker.wire.parameters import FirstValues, declare, enter, follow, refresh
from elastic_ps.worker.wire.worker_node import WorkerNode
from protos import elastic_pb2 as pb

log = logging.getLogger(__name__)


class WorkerJob:
    """A `WorkerJob` joins the job, opens kvstores and takes the script through its steps.

    All methods are called from the script's thread.

    Args:
        settings: where the job is.

    Attributes:
        spec: of the elastic sampler; None while the script draws its own batches.
        data_position: the worker's, in an elastic job.
        epochs: of the whole job; None: the script has not said.
        rehearsed: the rehearsal is over.
        exchange: the open one.
        seeders: called with a seed of each step's own.
    """

    def __init__(self, settings: NodeSettings):
        transport = settings.transport.make(settings.token)
        self.node = WorkerNode(Session(settings, Role.WORKER), transport)
        self.staging = Staging()
        self.spec: DataSpec | None = None
        self.data_position: DataPosition | None = None
        self.epochs: int | None = None
        self.rehearsed = False
        self.seeders: list[Callable[[int], None]] = []
        self._step = Step(self.node, CoreShare(settings.cpu_share))
        self._barriers = Barriers(self.node)
        self._stores: list[WorkerKeyStore] = []
        self.buffer = StepBuffer(self.node, self.staging, self._step, self._stores)
        self._named: str | None = None  # the consistency in the key stores' names
        self._left = threading.Event()

    def start(self) -> None:
        """Join the job; returns when this worker's peers are ready."""
        with exits():
            self.node.start()
            enter(self.node)
        ending = ScriptEnding()
        atexit.register(lambda: self.leave(finished=not ending.failed))
        drain_on_sigterm(
            lambda: leave_or_save(self.node.session), lambda why: self.node.end(JobEnded(why, EXIT_TERMINATED))
        )

    def open_store(self, consistency: str | None = None) -> WorkerKeyStore:
        """Open the script's next key store.

        Args:
            consistency: what its name says; None: the sampler's, "sync" without one.

        Raises:
            ConfigurationError: the sampler, or another key store, says something else.
        """
        if consistency is not None:
            if self.spec is not None or self._named or any(store.declared for store in self._stores):
                agree(consistency, self.consistency, "the sampler" if self.spec else "another key store of this script")
            self._named = consistency
        self._stores.append(WorkerKeyStore(self, len(self._stores)))
        return self._stores[-1]

    @property
    def consistency(self) -> str:
        """ "sync", "async" or "ssp"."""
        return self.spec.consistency if self.spec is not None else self._named or "sync"

    @property
    def is_sync(self) -> bool:
        """Return whether all workers share each step."""
        return self.consistency == "sync"

    @property
    def epoch(self) -> int:
        """The job's present epoch, as far as this worker knows."""
        if self.data_position is None and self.node.data is not None and self.node.data.elastic:
            self.data_position = position_of(self.node, self.node.data)
        with exits():
            return self.data_position.epoch if self.data_position else 0

    @property
    def place(self) -> Place | None:
        """Where the step under way stands in the data; None: there is none, or the script draws its own batches."""
        return self._step.part.place if self._step.part else None

    @property
    def rank(self) -> int:
        """This worker's rank; 0 for a shadow that rehearses."""
        return self.node.configuration.ranks.get(self.node.session.node, 0)

    @property
    def num_workers(self) -> int:
        """Among how many workers the data is divided: those in force; static data is divided once, at the start."""
        elastic = self.spec is not None or (self.node.data is not None and self.node.data.elastic)
        return len(self.node.configuration.workers) if elastic else self.node.founders

    def report(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Take over metrics of a step."""
        values = {name: _number(name, value) for name, value in metrics.items()}
        if not self.staging.rehearsing:
            self.node.progress.metrics(step, values)

    def leave(self, finished: bool) -> None:
        """Tell the job that this worker has finished (or goes away), once; what a finished script pushed goes first."""
        if self._left.is_set():
            return
        self._left.set()
        try:
            if finished and self.node.ended is None:
                self.buffer.close_exchange()
        finally:
            self.node.close(finished and self.node.ended is None)

    # ---- steps of an elastic job -----------------------------------------------------------------------------------

    def rehearse(self, spec: DataSpec) -> None:
        """Make the script's next step a rehearsal: what it pushes is learnt, not sent."""
        if self._stores and any(store.declared for store in self._stores):
            raise ConfigurationError(
                "a key store was used before the sampler's first batch: create elastic_ps.Sampler and iterate over it "
                "before the first push or pull, so that a joining worker can rehearse"
            )
        if self._named:
            agree(self._named, spec.consistency, "the sampler")
        self.spec = spec
        self.data_position = self._step.data_position = self.data_position or position_of(self.node, spec)
        self.staging.rehearse()

    def perform(self) -> None:
        """End the rehearsal: declare what it used, take the job's values, and wait to be a member."""
        self.buffer.close_exchange()
        assert self.spec is not None
        assert self.data_position is not None
        if any(store.updates_locally for store in self._stores):
            raise ConfigurationError(
                f"an elastic sampler needs {OPTIMIZER_ON_SERVERS}; or draw the batches yourself (then servers scale, "
                "workers do not)"
            )
        exchanges = self.staging.trained()
        if not exchanges:
            raise ConfigurationError(
                f"the loop over the sampler pushed nothing: {PUSH_EACH_BATCH} inside "
                "`for step, indices, batch in sampler`"
            )
        self.spec = self.data_position.spec = replace(self.spec, exchanges=exchanges)
        pushed = frozenset[Key]().union(*self.staging.learnt)
        for store in self._stores:
            store.declare_rehearsed(pushed)
        with exits():
            follow(self.node)
        for store in self._stores:
            store.load_rehearsed()
        self._write_all_parameters()
        self.rehearsed = True

    def begin_step(self, epoch: int) -> StepPart | None:
        """Return this worker's part of the next step, fixed from now to `end_step`; None: `epoch` is over."""
        assert self.data_position is not None
        with exits():
            part = self.data_position.begin(epoch)
            if part is None and not self.is_sync:
                refresh(self.node)  # the others' last batches are not in what this worker's own last one gave it
                self._write_all_parameters()
        self._step.begin(part)
        if part is not None:
            for seeder in self.seeders:
                seeder(part.seed)
        self._barriers.began(part, epoch, self.data_position.spec)
        return part

    def end_step(self, part: StepPart) -> bool:
        """End the step of `part`; return False where it must be yielded again, or is not open."""
        if part is not self._step.part:
            return False
        self.buffer.close_exchange()
        self._take_part_in_the_rest()
        done = not self._step.again
        self._put_down()
        return done

    def leave_step(self) -> None:
        """Leave the step, as the script has left its loop, perhaps by a break: what it has pushed counts.

        A step whose exchanges have not all been made is the next one again; a rehearsal in which nothing was pushed
        too.
        """
        if self.staging.rehearsing:
            if self.staging.staged or self.staging.learnt:
                self.perform()
        elif self._step.part is not None:
            self.buffer.close_exchange()
            self._put_down()

    def skip_step(self) -> None:
        """Take part in a step's exchanges without pushing: this worker has no samples in it."""
        self._take_part_in_the_rest(empty=True)
        self._write_all_parameters()
        self._put_down()

    def _take_part_in_the_rest(self, empty: bool = False) -> None:
        """Make the rest of the step's exchanges, pushing nothing; `empty`: this worker has no samples in it."""
        assert self.spec is not None
        while self._step.lacks(self.spec.exchanges):
            self._step.make_exchange(frozenset(), None, empty)

    def _put_down(self) -> None:
        """End the step under way; one that must be yielded again begins with the job's values."""
        if self._step.again:
            self._write_all_parameters()
        self._step.end()

    # ---- for the stores --------------------------------------------------------------------------------------------

    def barrier(self) -> None:
        """Close the open exchange, then wait for all workers; not in a rehearsal nor in a step that is made again."""
        self.buffer.close_exchange()
        if self.node.is_member and not self.staging.rehearsing and not self._step.again:
            with exits():
                self._barriers.wait()

    def declare(
        self, store: int, tensors: Sequence[Tensor], optimizer: str, local: bool, first: FirstValues
    ) -> list[str]:
        """See `StoreJob.declare`."""
        request = pb.DeclareRequest(
            tensors=[codec.tensor_to_pb(tensor) for tensor in tensors],
            store=store,
            optimizer=optimizer,
            data=codec.data_to_pb(self.spec or DataSpec(consistency=self.consistency)),
            local_update=local,
        )
        with exits():
            return declare(self.node, request, first)

    def parts(self, store: int, keys: Iterable[str]) -> dict[str, list[NDArray[Any]]]:
        """See `StoreJob.parts`."""
        inbox, found = self.node.inbox, {}
        with self.node.changed:  # the model may grow at any time
            for key in keys:
                index = inbox.model.index.get((store, key))
                found[key] = inbox.parts(index) if index is not None and inbox.holds(index) else []
        return found

    @property
    def begins(self) -> bool:
        """Return whether this process has made no exchange yet: its script starts, in a new job or in one that runs."""
        return not self.rehearsed and not self._step.exchanged

    def _write_all_parameters(self) -> None:
        for store in self._stores:
            store.write_parameters()


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"report: {name} = {value!r} is no number; give one, as in loss=0.31") from error


_current: WorkerJob | None = None
_asked = False


def has_asked_to_join() -> bool:
    """Return whether this process has joined its job, or tried to."""
    return _asked


def current_job() -> WorkerJob:
    """Return the job of this process, joined at the first call.

    Raises:
        ConfigurationError: the process was not started as part of a job.
    """
    global _current, _asked  # one process is one worker
    if _current is None:
        _asked = True
        job = WorkerJob(NodeSettings.from_environment())
        job.start()
        _current = job
    return _current
