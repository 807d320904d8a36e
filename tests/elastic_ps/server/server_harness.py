"""Servers in this process over TCP on loopback. Tests send the directives and play the workers."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from elastic_ps.control import codec
from elastic_ps.control.token import TOKEN_BYTES
from elastic_ps.core.configuration import ConfigId, Configuration, Member, Role
from elastic_ps.core.data_order import DataSpec, place, share
from elastic_ps.core.model import Model, Tensor, runs
from elastic_ps.core.optimizer import OptimizerSpec
from elastic_ps.server.service import ServerNode
from elastic_ps.transport.base import Transport
from elastic_ps.transport.frame_kinds import Kind
from elastic_ps.transport.frame_metas import InitMeta, PushMeta
from elastic_ps.transport.frames import Frame
from elastic_ps.transport.tcp import TcpTransport
from protos import elastic_pb2 as pb
from tests.elastic_ps.server.server_peers import FakeControl, FakeWorker
from tests.elastic_ps.server.server_reference import HYPER, SGD, Reference, random_slab

TOKEN = b"t" * TOKEN_BYTES


@dataclass
class Job:
    """A model, its servers, and the step-by-step play."""

    tensors: tuple[Tensor, ...]
    spec: OptimizerSpec | None = SGD
    data: DataSpec = field(default_factory=lambda: DataSpec(True, 64, 8, "short"))
    block_bytes: int = 512
    transport: Transport = field(default_factory=lambda: TcpTransport(TOKEN))
    followers: Sequence[int] = ()  # of each block, in the configurations to come

    def __post_init__(self) -> None:
        self.model = Model(self.tensors, self.block_bytes)
        self.transports: dict[str, TcpTransport] = {}  # of servers that do not have the common one
        self.controls: dict[str, FakeControl] = {}
        self.servers: dict[str, ServerNode] = {}
        self.members: dict[str, Member] = {}
        self.workers: dict[str, FakeWorker] = {}
        self.configuration: Configuration | None = None
        self.prepared: Configuration | None = None
        self.rng = np.random.default_rng(7)
        self.plan = 0

    def close(self) -> None:
        for worker in self.workers.values():
            worker.close()
        for server in self.servers.values():
            server.close()

    # ---- nodes and directives

    def add_server(self, name: str, declared: bool = True) -> FakeControl:
        listener = self.transport.listen("127.0.0.1")
        control = FakeControl()
        transport = self.transports.get(name, self.transport)
        server = control.server = ServerNode(name, self.block_bytes, control, transport, listener)
        server.start()
        self.controls[name], self.servers[name] = control, server
        self.members[name] = Member(name, Role.SERVER, *listener.address)
        self.welcome(name, declared)
        return control

    def welcome(self, name: str, declared: bool = True) -> None:
        welcome = pb.Welcome(data=codec.data_to_pb(self.data))
        if declared:
            welcome.tensors.extend(codec.tensor_to_pb(tensor) for tensor in self.tensors)
            welcome.optimizers.append(self.spec.to_json() if self.spec else "")
        if self.configuration is not None:
            welcome.configuration.CopyFrom(codec.configuration_to_pb(self.configuration))
        self.direct(name, welcome=welcome)

    def direct(self, server: str, **kind: Any) -> None:
        self.servers[server].on_directive(pb.Directive(term=1, plan=self.plan, **kind))

    def add_worker(self, name: str) -> FakeWorker:
        worker = self.workers[name] = FakeWorker(name, self.transport, self.model)
        for member in self.members.values():
            assert worker.connect(member).kind is Kind.ACCEPTED
        return worker

    def next(self, workers: Sequence[str], servers: Sequence[str], assignment: Sequence[int]) -> Configuration:
        number = self.configuration.id.number + 1 if self.configuration else 1
        return Configuration(
            ConfigId(1, number),
            tuple(Member(name, Role.WORKER, "127.0.0.1") for name in workers),
            tuple(self.members[name] for name in servers),
            tuple(assignment),
            tuple(self.followers),
        )

    def prepare(self, configuration: Configuration, servers: Sequence[str], mode: int = pb.LIVE, **more: Any) -> None:
        self.prepared = configuration
        message = pb.Prepare(configuration=codec.configuration_to_pb(configuration), mode=mode, **more)
        for server in servers:
            self.direct(server, prepare=message)
        for server in servers:
            self.controls[server].await_answer(pb.PREPARED, number=configuration.id)

    def adopt(self, configuration: Configuration, servers: Sequence[str]) -> None:
        number = codec.config_id_to_pb(configuration.id)
        for server in servers:
            self.direct(server, adopt=pb.Adopt(configuration=number))
        for server in servers:
            self.controls[server].await_answer(pb.SWITCHED, number=configuration.id)
        self.configuration = configuration

    def commit(self, servers: Sequence[str]) -> None:
        assert self.configuration is not None
        for server in servers:
            self.direct(server, committed=pb.Committed(configuration=codec.config_id_to_pb(self.configuration.id)))

    def start(self, workers: Sequence[str], servers: Sequence[str], assignment: Sequence[int], **more: Any) -> None:
        """Servers, the first configuration, workers, first values."""
        for server in servers:
            self.add_server(server)
        first = self.next(workers, servers, assignment)
        self.prepare(first, servers, **more)
        self.adopt(first, servers)
        for worker in workers:
            self.add_worker(worker)
        if not more.get("restore"):
            self.init()

    def init(self) -> None:
        assert self.configuration is not None
        slab = self.random_slab()
        self.reference = Reference(self.model, self.spec, self.data, slab)
        chief = self.workers[self.configuration.chief]
        for server, blocks in self.configuration.blocks_of.items():
            blocks_runs = list(runs(blocks))
            frame = Frame(InitMeta(runs=[list(run) for run in blocks_runs]), self.configuration.id, 0)
            chief.send(server, frame, [slab[self.model.span(run)] for run in blocks_runs])

    def random_slab(self) -> NDArray[np.uint8]:
        return random_slab(self.model, self.rng)

    def spread(self, servers: int) -> list[int]:
        """An assignment: block after block to the next server."""
        return [block % servers for block in range(len(self.model.blocks))]

    def join_server(self, name: str) -> None:
        """Start a server, which the workers connect to."""
        self.add_server(name)
        for worker in self.workers.values():
            assert worker.connect(self.members[name]).kind is Kind.ACCEPTED

    def prepare_two(self, mode: int = pb.LIVE, synced: bool = True) -> Configuration:
        """Beside s0 joins s1, to own every other block; `synced`: it has caught up where it does before the clock."""
        assert self.configuration is not None
        self.join_server("s1")
        workers = [worker.id for worker in self.configuration.workers]
        new = self.next(workers, ["s0", "s1"], self.spread(2))
        self.prepare(new, ["s0", "s1"], mode)
        if synced and mode == pb.LIVE:
            self.controls["s1"].await_answer(pb.SYNCED, number=new.id)
        return new

    def order_arm(self, configuration: Configuration, clock: int, servers: Sequence[str] | None = None) -> None:
        """Tell servers, all by default, the version at which to switch, and wait for none."""
        for server in self.servers if servers is None else servers:
            self.direct(server, arm=pb.Arm(configuration=codec.config_id_to_pb(configuration.id), clock=clock))

    def arm(self, configuration: Configuration, clock: int) -> None:
        """Tell every server the version at which to switch, and wait until it has judged that."""
        self.order_arm(configuration, clock)
        for control in self.controls.values():
            control.await_answer(pb.ARMED, pb.SWITCHED, pb.LATE, number=configuration.id)

    def order_adopt(self, configuration: Configuration) -> None:
        """Tell every server, and wait for none."""
        for server in self.servers:
            self.direct(server, adopt=pb.Adopt(configuration=codec.config_id_to_pb(configuration.id)))

    def image(self, server: str, blocks: Sequence[int]) -> bytes:
        """Values and optimizer states of blocks, as a server holds them."""
        state = self.servers[server].state
        with state.changed:
            return b"".join(part.tobytes() for block in blocks for part in state.store.image((block, 1)))

    # ---- steps

    def drain(self, worker: str) -> None:
        """Wait until every server has judged what this worker sent."""
        assert self.configuration is not None
        for server, blocks in self.configuration.blocks_of.items():
            self.workers[worker].drain(server, blocks[0], self.configuration.id)

    def push(
        self,
        worker: str,
        version: int,
        slab: NDArray[np.uint8],
        configuration: Configuration | None = None,
        servers: Sequence[str] | None = None,
        blocks: Sequence[int] | None = None,
        absent: Sequence[int] = (),
    ) -> None:
        """Send a worker's gradients of a version, a block list on each server in two frames."""
        configuration = configuration or self.configuration
        assert configuration is not None
        rank = configuration.ranks[worker]
        where = place(self.data, version)
        positions = share(self.data, where.step, rank, len(configuration.workers))
        for server, owned in configuration.blocks_of.items():
            if servers is not None and server not in servers:
                continue
            mine = [block for block in owned if (blocks is None or block in blocks) and block not in absent]
            none = [block for block in owned if block in absent]
            half = len(mine) // 2
            for number, chunk in enumerate((mine[:half], mine[half:])):
                meta: dict[str, Any] = {
                    "runs": [list(run) for run in runs(chunk)],
                    "slice": [where.epoch, where.step, where.exchange, positions.start, positions.stop],
                }
                if number == 0 and none:
                    meta["absent"] = [list(run) for run in runs(none)]
                if rank == 0:
                    meta["hyper"] = HYPER.to_dict()
                if not positions:
                    meta["empty"] = True
                frame = Frame(PushMeta(**meta), configuration.id, version, len(positions))
                self.workers[worker].send(server, frame, [slab[self.model.span(run)] for run in runs(chunk)])

    def push_all(
        self,
        version: int,
        slabs: Sequence[NDArray[np.uint8]] | None = None,
        configuration: Configuration | None = None,
        **which: Sequence[int] | Sequence[str],
    ) -> list[NDArray[np.uint8]]:
        """Send the gradients of a version from all workers, and return them.

        Args:
            version: of the parameters that they were computed with.
            slabs: of each worker by rank; None: new ones.
            configuration: whose workers send to its servers; None: the one in force.
            which: servers or blocks; see `push`.
        """
        names = self._workers(configuration)
        sent = [self.random_slab() for _ in names] if slabs is None else list(slabs)
        for name, slab in zip(names, sent, strict=True):
            self.push(name, version, slab, configuration, **which)
        return sent

    def check_step(self, version: int, configuration: Configuration | None = None) -> list[NDArray[np.uint8]]:
        """A whole exchange by all workers, checked against the reference bit by bit."""
        configuration = configuration or self.configuration
        assert configuration is not None
        slabs = self.push_all(version, configuration=configuration)
        self._redo_if_decided(version, slabs, configuration)
        self.check_settled(version, slabs, configuration)
        return slabs

    def _workers(self, configuration: Configuration | None) -> list[str]:
        configuration = configuration or self.configuration
        assert configuration is not None
        return [worker.id for worker in configuration.workers]

    def _redo_if_decided(self, version: int, slabs: Sequence[NDArray[np.uint8]], configuration: Configuration) -> None:
        """As a worker does that hears in the middle of a step that the plan is decided: contribute to what lacks."""
        names = self._workers(configuration)
        workers = [self.workers[name] for name in names]
        for worker in workers:
            worker.wait(lambda worker=worker: worker.has(version + 1) or worker.heard > configuration.id)
        if all(worker.has(version + 1) for worker in workers):
            return
        assert self.prepared is not None
        for name, slab in zip(names, slabs, strict=True):
            lacking = set(range(len(self.model.blocks))) - set(self.workers[name].values.get(version + 1, {}))
            self.push(name, version, slab, self.prepared, blocks=sorted(lacking))

    def check_settled(
        self, version: int, slabs: Sequence[NDArray[np.uint8]], configuration: Configuration | None = None
    ) -> None:
        """Every worker of the configuration comes to hold what the reference has after these gradients."""
        names = self._workers(configuration)
        where = place(self.data, version)
        samples = [len(share(self.data, where.step, rank, len(names))) for rank in range(len(names))]
        self.reference.update(slabs, samples)
        for name in names:
            self.workers[name].await_version(version + 1)
            assert np.array_equal(self.workers[name].slab(version + 1), self.reference.slab), f"version {version + 1}"


AnyJob = TypeVar("AnyJob", bound=Job)


class Jobs:
    """The jobs of a test."""

    def __init__(self) -> None:
        self._kept: list[Job] = []

    def keep(self, job: Job) -> Job:
        """It is closed when the test ends."""
        self._kept.append(job)
        return job

    def begin(
        self, job: AnyJob, servers: int = 1, workers: int = 2, assignment: Sequence[int] | None = None, **more: Any
    ) -> AnyJob:
        """Keep a job and start it; `assignment`: by default each server owns neighbouring blocks."""
        self.keep(job)
        count = len(job.model.blocks)
        names = [f"{role}{number}" for role, many in (("w", workers), ("s", servers)) for number in range(many)]
        owners = assignment or [block * servers // count for block in range(count)]
        job.start(names[:workers], names[workers:], owners, **more)
        return job

    def close(self) -> None:
        for job in self._kept:
            job.close()
