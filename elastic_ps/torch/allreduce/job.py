"""An `AllReduceJob` is a worker's part in a job without servers."""

import json
import logging
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

from elastic_ps.control import codec
from elastic_ps.core.configuration import NO_CONFIGURATION
from elastic_ps.core.data_order import DataSpec, Place
from elastic_ps.core.errors import CheckpointError, ConfigurationError, ElasticError, JobEnded
from elastic_ps.core.gradient_norm import SKIPPED
from elastic_ps.core.model import Model
from elastic_ps.torch.allreduce.checkpoints.replica_blocks import ReplicaBlocks
from elastic_ps.torch.allreduce.divided_position import DividedPosition
from elastic_ps.torch.allreduce.exchange import GroupExchange
from elastic_ps.torch.allreduce.group import Collective
from elastic_ps.torch.allreduce.node import GroupNode
from elastic_ps.torch.allreduce.replica.replica import Replica
from elastic_ps.torch.allreduce.store import ReplicaStore
from elastic_ps.worker.script.barriers import Barriers
from elastic_ps.worker.script.data_position import StepPart
from elastic_ps.worker.script.process_ending import exits
from elastic_ps.worker.script.script_job import ScriptJob
from elastic_ps.worker.wire.core_share import CoreShare
from protos import elastic_pb2 as pb

log = logging.getLogger(__name__)


class AllReduceJob(ScriptJob):
    """An `AllReduceJob` joins the job and takes the script through its steps, each of which has one all-reduce.

    Args:
        node: this worker.
        cpu_share: cores that it keeps to; 0: it does not.
    """

    node: GroupNode

    def __init__(self, node: GroupNode, cpu_share: float = 0.0):
        super().__init__(node)
        self._store: ReplicaStore | None = None
        self._make_replica: Callable[[ReplicaStore], Replica] | None = None
        self._undo_rehearsal: Callable[[], None] = lambda: None
        self._exchange: GroupExchange | None = None
        self._part: StepPart | None = None
        self._again = False
        self._done = False  # the step under way is made
        self._epoch: int | None = None  # that joiners are told
        self._barriers = Barriers(self.node)
        self._core_share = CoreShare(cpu_share)
        self._left = threading.Event()

    def start(self) -> None:
        """See `ScriptJob.start`."""
        node = self.node
        with exits():
            node.start()
            node.wait(lambda: node.is_member or node.is_shadow)
            node.founders = len(node.configuration.workers)
        self.leave_at_exit()

    def open_store(
        self, make_replica: Callable[[ReplicaStore], Replica], undo_rehearsal: Callable[[], None]
    ) -> ReplicaStore:
        """Open the store of the script's optimizer.

        Args:
            make_replica: called when the rehearsal is over.
            undo_rehearsal: called then: makes what the script's body changes what it was before it.

        Raises:
            ConfigurationError: there is one already.
        """
        if self._store is not None:
            raise ConfigurationError(
                "--mode all-reduce is for scripts with one elastic.Optimizer: where one loss trains all models, give "
                "its torch.optim optimizer the parameters of all, in groups; where they take turns (a GAN), train with "
                "servers"
            )
        self._store = ReplicaStore(self.staging, self._make_step, self._sum_early)
        self._make_replica, self._undo_rehearsal = make_replica, undo_rehearsal
        return self._store

    @property
    def epoch(self) -> int:
        """See `ScriptJob.epoch`: the chief tells those who have no version yet."""
        node = self.node
        if self._exchange is None and node.inherited and node.held < 0:
            return node.rendezvous.epoch_at(node.configuration.workers[0])
        return super().epoch

    @property
    def place(self) -> Place | None:
        """See `ScriptJob.place`."""
        return self._part.place if self._part else None

    def leave(self, finished: bool) -> None:
        """See `ScriptJob.leave`; who has finished waits until all hold the last version, so that it is settled."""
        if self._left.is_set():
            return
        self._left.set()
        try:
            if finished and self.rehearsed and self.node.ended is None:
                self._await_others()
                self.node.ledger.settle(self.node.held)
        except ElasticError as error:  # others train on, or nobody asks any more: what is settled is told
            log.info("the last step is not known to be settled: %s", error)
        finally:
            self.node.close(finished and self.node.ended is None)

    # ---- steps -------------------------------------------------------------------------------------------------------

    def rehearse(self, spec: DataSpec) -> None:
        """See `ScriptJob.rehearse`."""
        if not spec.is_sync:
            raise ConfigurationError(f'consistency "{spec.consistency}" needs servers: leave --mode all-reduce out')
        self.spec = spec
        self.data_position = DividedPosition(self.node, spec, self._part_of)
        self.staging.rehearse()

    def perform(self) -> None:
        """See `ScriptJob.perform`."""
        steps = self.staging.trained()
        if steps != 1:
            raise ConfigurationError(
                f"a batch of --mode all-reduce has one optimizer.step(), of an elastic.Optimizer, and not {steps}"
            )
        assert self._store is not None
        assert self._make_replica is not None
        self._undo_rehearsal()
        with exits():
            self._declare(self._store)
            replica = self._begun_replica(self._store, self._make_replica)
            self._exchange = GroupExchange(self.node, replica)
            with replica.keeping_numbers():
                self._become_member()
                self._exchange.settle()
        self.rehearsed = True

    def begin_step(self, epoch: int) -> StepPart | None:
        """See `ScriptJob.begin_step`."""
        assert self.data_position is not None
        assert self._exchange is not None
        assert self.spec is not None
        if self._again:
            self._exchange.begin_again()
        with exits():
            if self.node.fresh:  # the step is computed while the members agree: `run` waits for it
                self._exchange.begin_agreement()
            part = self.data_position.begin(epoch)
            if part is None and self.node.fresh:
                self._exchange.settle()
        if part is not None:
            part = self._part_of(part)
        self._part, self._again, self._done = part, False, False
        if part is not None:
            for seeder in self.seeders:
                seeder(part.seed)
        if self.node.is_chief and self._epoch != epoch:
            self._epoch = epoch
            self.node.rendezvous.tell_epoch(epoch)
        self._barriers.began(part, epoch, self.spec)
        return part

    def end_step(self, part: StepPart) -> bool:
        """See `ScriptJob.end_step`."""
        if part is not self._part:
            return False
        if not self._done and not self._again:
            self._make_step(empty=True)  # the script has left it out: the others do not wait for ever
        self._part = None
        return self._done

    def leave_step(self) -> None:
        """See `ScriptJob.leave_step`."""
        if self.staging.rehearsing:
            if self.staging.learnt:
                self.perform()
        elif self._part is not None:
            assert self._exchange is not None
            if not self._done:  # it has changed running statistics, and changes them again
                self._exchange.begin_again()
            self._part = None

    def skip_step(self) -> None:
        """See `ScriptJob.skip_step`."""
        self._make_step(empty=True)
        self._part = None

    # ---- inside ------------------------------------------------------------------------------------------------------

    def _part_of(self, part: StepPart) -> StepPart:
        assert self._exchange is not None
        assert self.spec is not None
        return self._exchange.part_of(part, self.spec)

    def _await_others(self) -> None:
        """Wait in the job's last barrier, and agree meanwhile in each configuration that comes into force.

        Who has not come yet may lack the last step, as another has died in it or as it joins, and waits for this worker
        to agree first.
        """
        self._barriers.ended()
        node, barrier = self.node, Collective(self._barriers.wait)
        assert self._exchange is not None

        def pass_barrier() -> None:
            barrier.run()
            with node.changed:
                barrier.done = True
                node.changed.notify_all()

        threading.Thread(target=pass_barrier, name="last-barrier", daemon=True).start()
        while True:
            if node.waits_in_vain(lambda: barrier.done or node.fresh, math.inf):
                raise JobEnded("no coordinator says whether the others have the last step", 0)
            with node.changed:
                node.check()
            if barrier.done:
                break
            self._exchange.settle()
        if barrier.error is not None:
            raise barrier.error

    def _make_step(self, empty: bool = False) -> None:
        """Sum the gradients and apply the sum; where other workers share the step now it is yielded again.

        Args:
            empty: this worker has none, of this step.
        """
        if self._part is None:
            raise ConfigurationError("optimizer.step() outside of the loop over the elastic.DataLoader")
        if self._done:
            raise ConfigurationError("optimizer.step() twice in one batch: the rehearsal made one")
        assert self._exchange is not None
        assert self.spec is not None
        assert self._store is not None
        if self._again:
            return
        part = self._part
        with exits():
            self._done = self._exchange.run(part, self.spec, not empty, self._store.hyper(0))
        self._store.factor = SKIPPED if self._exchange.skipped else 1.0
        self._again = not self._done
        if self._done:
            self.node.progress.stepped(self.node.version, len(part.positions))
            self._core_share.stepped()

    def _sum_early(self, keys: Sequence[str]) -> bool:
        """Begin to sum gradients of the step under way; see `GroupExchange.sum_early`."""
        part = self._part
        if part is None or self._done or self._again:
            return False
        assert self._exchange is not None
        assert self.spec is not None
        with exits():
            return self._exchange.sum_early(keys, part, self.spec)

    def _declare(self, store: ReplicaStore) -> None:
        node, tensors = self.node, store.tensors()
        request = pb.DeclareRequest(
            tensors=[codec.tensor_to_pb(tensor) for tensor in tensors],
            optimizer=store.spec.to_json() if store.spec is not None else "",
            data=codec.data_to_pb(self.spec or DataSpec()),
        )
        reply = node.ask_coordinator(lambda: node.session.declare(request))
        for warning in reply.warnings:
            log.warning("%s", warning)
        model = Model(tuple(map(codec.tensor_from_pb, reply.tensors)), node.model.block_bytes)
        _check_declared(store, model, reply.optimizers)
        # The job's, whatever this rehearsal has changed: all members sum the same.
        store.set_auxiliary([tensor.key for tensor in model.tensors if tensor.auxiliary])
        with node.changed:
            node.data = self.spec
            # All of the job's, as there is one optimizer: the first step may come before the coordinator's Extend.
            node.model = model

    def _begun_replica(self, store: ReplicaStore, make: Callable[[ReplicaStore], Replica]) -> Replica:
        """Return the script's replica, with the values and states of the checkpoint that the job starts from, if any.

        Raises:
            ConfigurationError: the checkpoint is of another optimizer or model.
        """
        node, replica = self.node, make(store)
        assert store.spec is not None
        blocks = ReplicaBlocks(replica, node.model, store.spec)
        if read := node.read_blocks.taken():
            try:
                blocks.install(read)
            except CheckpointError as error:
                raise ConfigurationError(str(error)) from error
            node.ledger.begin(f"workers.{node.read_blocks.term}", ())  # the same at all, whenever they come here
        node.saver.begin(blocks)
        return replica

    def _become_member(self) -> None:
        """Follow a member where this worker joins, and return when it is one."""
        node, told = self.node, NO_CONFIGURATION
        assert self._exchange is not None
        while not node.is_member:
            following = node.following
            if following is not None and following.number != told:
                told = following.number
                self._exchange.follow(following)
            node.wait(
                lambda told=told: (  # type: ignore[misc]
                    node.is_member or (node.following is not None and node.following.number != told)
                )
            )


def _check_declared(store: ReplicaStore, model: Model, optimizers: Sequence[str]) -> None:
    """Refuse a script of another model or optimizer than the job's: each worker runs its script's own.

    Args:
        store: the script's.
        model: the job's.
        optimizers: the job's, JSON by store.
    """
    if lacking := [tensor.name for tensor in model.tensors if tensor.key not in store.arrays]:
        raise ConfigurationError(
            f"the job has {lacking[0]}, which this script's model lacks: give all workers the same script, and restore "
            "with the model that was saved"
        )
    known = json.loads(optimizers[0]) if optimizers and optimizers[0] else None
    assert store.spec is not None
    own = json.loads(store.spec.to_json())
    if known != own:
        raise ConfigurationError(
            f"the job's optimizer is {_described(known)}, and this script's {_described(own)}: every worker runs its "
            "script's own, so make it as the job's, or as that of the job that was saved"
        )


def _described(spec: dict[str, Any] | None) -> str:
    if spec is None:
        return "none"
    flags = ", ".join(f"{name}={value}" for name, value in sorted(spec["args"].items()))
    groups = f" in {1 + int(max(key.get('group', 0) for key in spec['keys'].values()))} groups" if spec["keys"] else ""
    return f"{spec['name']}({flags}){groups}"
