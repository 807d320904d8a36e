"""A `WorkerJob` is a worker's part in its job: the stores of the script, its steps, and its place in the data."""

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from elastic_ps.control import codec
from elastic_ps.core.configuration import Role
from elastic_ps.core.data_order import DataSpec, Place
from elastic_ps.core.errors import ConfigurationError
from elastic_ps.core.job_mode import JobMode
from elastic_ps.core.model import Tensor
from elastic_ps.core.script_hints import OPTIMIZER_ON_SERVERS, PUSH_EACH_BATCH
from elastic_ps.node.session import Session
from elastic_ps.node.settings import NodeSettings
from elastic_ps.system.process.file_descriptors import raise_limit
from elastic_ps.system.process.helper_processes import is_helper_process
from elastic_ps.system.process.kept_memory import keep_freed_memory
from elastic_ps.worker.script.barriers import Barriers
from elastic_ps.worker.script.data_position import StepPart, agree, position_of
from elastic_ps.worker.script.key_store import WorkerKeyStore
from elastic_ps.worker.script.process_ending import exits
from elastic_ps.worker.script.rehearsal_undo import Undo, note_all
from elastic_ps.worker.script.script_job import ScriptJob
from elastic_ps.worker.script.staging import Key
from elastic_ps.worker.script.step import Step
from elastic_ps.worker.script.step_buffer import StepBuffer
from elastic_ps.worker.wire.core_share import CoreShare
from elastic_ps.worker.wire.parameters import FirstValues, declare, enter, follow, obtain, refresh
from elastic_ps.worker.wire.worker_node import WorkerNode
from protos import elastic_pb2 as pb

log = logging.getLogger(__name__)


class WorkerJob(ScriptJob):
    """A `WorkerJob` joins a job with servers, opens kvstores and takes the script through its steps.

    Args:
        settings: where the job is.

    Attributes:
        buffer: collects the gradients of the open exchange.
    """

    node: WorkerNode

    def __init__(self, settings: NodeSettings):
        transport = settings.transport.make(settings.token)
        super().__init__(WorkerNode(Session(settings, Role.WORKER), transport))
        self._step = Step(self.node, CoreShare(settings.cpu_share))
        self._barriers = Barriers(self.node)
        self._stores: list[WorkerKeyStore] = []
        self.buffer = StepBuffer(self.node, self.staging, self._step, self._stores)
        self._named: str | None = None  # the consistency in the key stores' names
        self._undos: list[Undo] = []  # of the rehearsal under way
        self._left = threading.Event()

    def start(self) -> None:
        """Join the job; returns when this worker's peers are ready."""
        with exits():
            self.node.start()
            enter(self.node)
        self.leave_at_exit()

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
    def place(self) -> Place | None:
        """Where the step under way stands in the data; None: there is none, or the script draws its own batches."""
        return self._step.part.place if self._step.part else None

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
        self._undos = note_all()

    def perform(self) -> None:
        """End the rehearsal: declare what it used, take the job's values, and wait to be a member."""
        self.buffer.close_exchange()
        while self._undos:
            self._undos.pop()()
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
        self._step.may_be_made = not self.node.is_member
        with exits():
            follow(self.node)
            for number, store in enumerate(self._stores):  # of a key that is new to the job, nobody else has a value
                obtain(self.node, number, store.first_values, gives=not self.is_sync)
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
            assert self.spec is not None
            self.buffer.close_exchange()
            self._put_down(is_left=self._step.lacks(self.spec.exchanges))

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

    def _put_down(self, is_left: bool = False) -> None:
        """End the step under way; one that must be yielded again begins with the job's values.

        Args:
            is_left: it lacks exchanges, and may have changed running statistics; it changes them again.
        """
        if is_left or self._step.again:
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
            return declare(self.node, request, first, gives=not (self.begins or self.is_sync))

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


_current: ScriptJob | None = None
_asked = False
_makers: dict[JobMode, Callable[[NodeSettings], ScriptJob]] = {JobMode.PARAMETER_SERVERS: WorkerJob}


def offer_mode(mode: JobMode, make: Callable[[NodeSettings], ScriptJob]) -> None:
    """Let an adapter run jobs of a mode that needs its framework: `make` makes this worker's part of one."""
    _makers[mode] = make


def has_asked_to_join() -> bool:
    """Return whether this process has joined its job, or tried to."""
    return _asked


def script_job() -> ScriptJob:
    """Return the job of this process, of whatever mode, joined at the first call.

    Raises:
        ConfigurationError: the process was not started as part of a job, or of one that its script cannot take part in,
            or it loads data for one that was.
    """
    global _current, _asked  # one process is one worker
    if is_helper_process():  # which has the worker's environment, and would join beside it
        raise ConfigurationError(
            "a process that multiprocessing has started, to load data (num_workers) say, is no worker of the job: it "
            "imports the script, so put what trains in a function that is called under "
            '`if __name__ == "__main__":`, and hand over what it needs of the job, such as the rank'
        )
    if _current is None:
        settings = NodeSettings.from_environment()
        if settings.mode not in _makers:
            raise ConfigurationError(
                f"a job of --mode {settings.mode} trains with elastic.Optimizer of elastic_ps.torch; start this script "
                "without --mode, with servers"
            )
        _asked = True
        keep_freed_memory()
        raise_limit()
        job = _makers[settings.mode](settings)
        job.start()
        _current = job
    return _current


def current_job() -> WorkerJob:
    """Return the job of this process, which has servers, joined at the first call.

    Raises:
        ConfigurationError: the process was not started as part of a job, or its job has no servers.
    """
    job = script_job()
    if not isinstance(job, WorkerJob):
        raise ConfigurationError("key stores need servers: start this script without --mode all-reduce")
    return job
