"""A `ServerNode` takes directives, keeps connections and runs background work for a server. It decides nothing."""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from weakref import WeakSet

from elastic_ps.control import codec
from elastic_ps.core.configuration import NodeId
from elastic_ps.core.errors import EXIT_RESTART, ConfigurationError, ProtocolError, RuleFailed
from elastic_ps.core.model import ALIGNMENT
from elastic_ps.core.module_file import NO_MODULES, ModuleFile
from elastic_ps.core.segments import Raw
from elastic_ps.node.peer_watch import PeerView
from elastic_ps.node.standing import Standing
from elastic_ps.server.background_work import BackgroundWork
from elastic_ps.server.checkpoints.restoring import Restorer
from elastic_ps.server.checkpoints.saving import Saver
from elastic_ps.server.checkpoints.server_blocks import ServerBlocks
from elastic_ps.server.commands import CommandRunner
from elastic_ps.server.connections import EXCHANGE, FOLLOW, Connections, Peer
from elastic_ps.server.copying.update_records import RECORDED_VERSIONS
from elastic_ps.server.interfaces import Control
from elastic_ps.server.migration.follow_connections import FollowStreams
from elastic_ps.server.migration.plan_steps import PlanSteps
from elastic_ps.server.optimizer_trials import OptimizerTrials
from elastic_ps.server.state.awaited_peers import awaited_peers
from elastic_ps.server.state.server_state import ServerState
from elastic_ps.server.worker_frames import WorkerFrames
from elastic_ps.transport.base import Listener, Transport
from elastic_ps.transport.frame_metas import FollowedMeta, RefusedMeta
from elastic_ps.transport.frames import Frame
from elastic_ps.transport.shared_memory import Image
from protos import elastic_pb2 as pb

log = logging.getLogger(__name__)

_FLUSH_SECONDS = 5.0


class ServerNode:
    """A `ServerNode` is a server as a node of its job. It is the session's `Handler` and the connections' `Receiver`.

    Args:
        node: this server's id.
        block_bytes: the job's.
        control: the session.
        transport: the transport of the data plane.
        listener: where peers reach this server.
        modules: the modules that users' optimizers and command handlers may come from.
    """

    def __init__(
        self,
        node: NodeId,
        block_bytes: int,
        control: Control,
        transport: Transport,
        listener: Listener,
        modules: Mapping[str, ModuleFile] = NO_MODULES,
    ):
        self.connections = Connections(transport, listener, self, self._spawn)
        self.state = ServerState.create(node, block_bytes, modules, control, self.connections)
        self.plan_steps = PlanSteps(self.state, _later)
        self.worker_frames = WorkerFrames(self.state, self.plan_steps.switch)
        self.state.tell = self.worker_frames.tell
        self._saver = Saver(self.state, self._spawn, lambda: self._ended.is_set())
        blocks = ServerBlocks(self.state, self.plan_steps)
        self._restorer = Restorer(self.state, blocks, self._spawn, lambda: self._ended.is_set())
        self._trials = OptimizerTrials(control, modules, self._spawn)
        self._control = control
        self._records: WeakSet[Image] = WeakSet()  # of the old owners' connections
        self._commands = CommandRunner(
            node,
            modules,
            lambda command, said: control.acknowledge(pb.COMMANDED, command=command, detail=said),
            self._spawn,
        )
        self._ended = threading.Event()
        self._feeds = FollowStreams(node, self.plan_steps, self.connections.open_follow, self._spawn, self._ended)
        self._broken: dict[tuple[NodeId, str], str] = {}  # by peer and lane: connections to this server, why they ended
        self._status = 0

    def start(self) -> None:
        """Accept peers, and run what runs beside training."""
        self.connections.start()
        self._spawn("background", BackgroundWork(self.state, self._ended).run)

    def wait(self, timeout: float | None = None) -> int | None:
        """Return the process's exit status once the job, or this server's part in it, has ended; None: not in `timeout`
        s.
        """
        return self._status if self._ended.wait(timeout) else None

    def close(self) -> None:
        """End the threads."""
        self.end("closed", 0)
        self.connections.flush(_FLUSH_SECONDS)
        self.connections.close()

    def end(self, reason: str, status: int) -> None:
        """End this server's part in the job; the first reason stays."""
        with self.state.changed:
            if not self._ended.is_set():
                level = logging.ERROR if status == 1 else logging.INFO
                log.log(level, "this server ends with status %d: %s", status, reason)
                self._status = status
                self._ended.set()
            self.state.changed.notify_all()

    def _break(self, why: str) -> None:
        """End the job with the reason: this server cannot go on, nor could it once its job has been restored."""
        if not self._ended.is_set():
            self._control.acknowledge(pb.BROKEN, detail=why)
            self.end(why, 1)

    def _spawn(self, name: str, body: Callable[[], None]) -> threading.Thread:
        """Start a named thread; its death by an error ends the server: nothing is half alive."""
        thread = threading.Thread(target=self._guarded, args=(body,), name=name, daemon=True)
        thread.start()
        return thread

    def _guarded(self, body: Callable[[], None]) -> None:
        try:
            body()
        except RuleFailed as error:
            self._break(str(error))
        except Exception as error:
            if not self._ended.is_set():
                log.exception("thread %s died", threading.current_thread().name)
                self.end(f"thread {threading.current_thread().name} died: {error!r}", 1)

    # ---- directives (session thread) ---------------------------------------------------------------------------------

    def on_directive(self, directive: pb.Directive) -> None:
        """See `Handler`."""
        acts: dict[str, Callable[..., None]] = {
            "welcome": self._on_welcome,
            "prepare": self._on_prepare,
            "arm": lambda arm: self.plan_steps.arm(codec.config_id_from_pb(arm.configuration), arm.clock),
            "adopt": self._on_adopt,
            "cancel": self._on_cancel,
            "committed": self._on_committed,
            "extend": self._on_extend,
            "save": lambda save: self._saver.save(save.clock, save.url, save.given_up),
            "stop": self._on_stop,
            "command": self._commands.take,
            "trial": self._trials.begin,
        }
        kind = directive.WhichOneof("kind")
        if kind in acts:
            try:
                acts[kind](getattr(directive, kind))
            except (ConfigurationError, RuleFailed) as error:
                self._break(str(error))

    def _on_welcome(self, welcome: pb.Welcome) -> None:
        state = self.state
        with state.changed:
            self._grow(welcome.tensors, welcome.optimizers, welcome.data)
            if welcome.HasField("configuration"):
                self.plan_steps.welcome(codec.configuration_from_pb(welcome.configuration))

    def _grow(self, tensors: Sequence[pb.Tensor], optimizers: Sequence[str], data: pb.DataSpec) -> None:
        state = self.state
        model = state.store.model.extended([codec.tensor_from_pb(tensor) for tensor in tensors])
        state.store.grow(model, optimizers)
        self.plan_steps.sources.conform()
        for gradients in state.gradients:
            gradients.grow(model.slab_bytes)
        for records in self._records:
            records.grow(RECORDED_VERSIONS * model.slab_bytes)
        state.data = codec.data_from_pb(data)
        if not state.data.is_sync:
            state.subscriptions.clear()  # of joiners that came before anybody knew

    def _on_prepare(self, prepare: pb.Prepare) -> None:
        configuration = codec.configuration_from_pb(prepare.configuration)
        dead, paused = frozenset(prepare.dead), prepare.mode == pb.PAUSE
        self.plan_steps.prepare(configuration, paused, dead, prepare.undecided)
        self._feeds.ensure()
        if prepare.restore:
            self._restorer.restore(configuration.id, prepare.restore)
        else:
            self.plan_steps.prepared(configuration.id)

    def _on_adopt(self, adopt: pb.Adopt) -> None:
        decided = codec.configuration_from_pb(adopt.decided) if adopt.HasField("decided") else None
        promoted = codec.runs_from_pb(adopt.promoted)
        self.plan_steps.adopt(codec.config_id_from_pb(adopt.configuration), decided, promoted)
        self._feeds.ensure()

    def _on_cancel(self, cancel: pb.CancelPlan) -> None:
        self.plan_steps.cancel(codec.config_id_from_pb(cancel.configuration))
        if cancel.leave:
            self.end(f"not wanted any more: {cancel.reason}", 0)

    def _on_committed(self, committed: pb.Committed) -> None:
        if self.plan_steps.committed(codec.config_id_from_pb(committed.configuration)):
            self.end("drained", 0)

    def _on_extend(self, extend: pb.Extend) -> None:
        with self.state.changed:
            if self.state.standing.has_left(codec.config_id_from_pb(extend.configuration)):
                return
            self._grow(extend.tensors, extend.optimizers, extend.data)
            self.plan_steps.extend(extend.assignment, extend.followers)
            number, version = self.state.standing.config_id, self.state.version
            self._control.acknowledge(pb.EXTENDED, number, version, growth=extend.growth)
        self._feeds.ensure()

    def _on_stop(self, stop: pb.Stop) -> None:
        with self.state.changed:
            self.state.ledger.tell_all()  # the dead acknowledge nothing: what they lack, and all behind it, would wait
            if not stop.restart and self.state.standing.is_member:  # else the others go on, and tell it themselves
                self.state.adopt_followed_entries()
        self.end(stop.reason, EXIT_RESTART if stop.restart else 1 if stop.failed else 0)

    # ---- reports -----------------------------------------------------------------------------------------------------

    def position(self) -> tuple[Standing, int]:
        """See `Handler`."""
        with self.state.changed:
            return self.state.standing, self.state.version

    def trained(self) -> int:
        """See `Handler`: its own blocks, or those that it follows, get updates."""
        with self.state.changed:
            return int(self.state.store.versions.sum())

    def report(self) -> pb.ReportRequest:
        """See `Handler`."""
        state = self.state
        with state.changed:
            first, entries = state.ledger.report()
            held = int(state.store.extents[state.owned()].sum())
            copied = self.plan_steps.follow_target.copied
            return pb.ReportRequest(
                version=state.version, ledger=entries, ledger_sequence=first, bytes=held, copied=copied
            )

    def reported(self, reply: pb.ReportReply, request: pb.ReportRequest) -> None:
        """See `Handler`."""
        with self.state.changed:
            self.state.ledger.kept(reply.ledger_kept)
            if self.state.ledger.is_awaited:  # a report has room for some of the entries only
                self._control.report_soon()

    def on_expelled(self, reason: str) -> None:
        """See `Handler`."""
        self.end(reason, 1)

    # ---- connections (their threads) ---------------------------------------------------------------------------------

    def welcome(self, node: NodeId, lane: str, to: NodeId) -> str:
        """See `Receiver`."""
        if to not in ("", self.state.node):
            return f"this is {self.state.node}, and not {to}, which listened here before"
        with self.state.changed:
            if node in self.state.standing.dead:
                return f"{node} was declared dead"
        return ""

    def connected(self, node: NodeId, lane: str) -> None:
        """See `Receiver`; what a shadow was owed on its old connection is owed on this one, which has to be known."""
        with self.state.changed:
            if lane == EXCHANGE and node in self.state.subscriptions:
                self.worker_frames.resubscribe(node)

    def shares(self, lane: str) -> tuple[Image, Sequence[Image]]:
        """See `Receiver`."""
        state = self.state
        with state.changed:
            size = state.store.model.slab_bytes
            if lane == FOLLOW:
                records = Image(RECORDED_VERSIONS * size)
                self._records.add(records)
                return records, ()
            gradients = Image(size)
            state.gradients.add(gradients)
            return gradients, (*state.store.values.images, state.store.values.mark)

    def buffers(self, peer: Peer, frame: Frame) -> list[Raw]:
        """See `Receiver`."""
        link = peer.link
        if peer.lane == EXCHANGE:
            # Memory that is shared is the worker's to write to. It may have the values already that this push asks for,
            # and be writing its next gradients there.
            lands = peer.memory if link.connection.lying() or not link.connection.shared else None
            return self.worker_frames.buffers(peer.node, frame, lands, link.check_open)
        follow_target = self.plan_steps.follow_target
        follow_target.await_configuration(peer.node, frame.configuration, lambda: link.closed or self._ended.is_set())
        sizes = follow_target.payload_bytes(frame)
        lying = link.connection.lying()
        if [part.nbytes for part in lying] == sizes:
            return list(lying)
        starts = list(accumulate((-(-size // ALIGNMENT) * ALIGNMENT for size in sizes), initial=0))
        peer.scratch.grow(starts[-1])  # not `memory`, in which records may lie that have not been applied
        return [peer.scratch.array[start : start + size] for start, size in zip(starts, sizes, strict=False)]

    def arrived(self, peer: Peer, frame: Frame, data: list[Raw]) -> None:
        """See `Receiver`."""
        if peer.lane == EXCHANGE:
            self.worker_frames.arrived(peer.node, frame, data, peer.link.check_open)
        elif isinstance(frame.meta, RefusedMeta):
            raise ProtocolError(f"{peer.node} refuses the follow stream: {frame.meta.detail}")
        elif isinstance(frame.meta, FollowedMeta):
            self.plan_steps.told.followed(peer.node, frame, peer.link)
        else:
            link = peer.link
            self.plan_steps.follow_target.followed(peer.node, frame, data, link.check_open, link.enqueue)

    def idle(self) -> None:
        """See `Receiver`; the thread is one connection's, and an error is of all frames: the server ends by it."""
        self._guarded(self._look_again)

    def _look_again(self) -> None:
        with self.state.changed:
            self.state.wake_copying()
            if self.state.held:  # there may be room for an answer now
                self.state.retry()

    def lost(self, node: NodeId, lane: str, reason: str) -> None:
        """See `Receiver`."""
        with self.state.changed:
            self._broken[node, lane] = reason
            self.state.changed.notify_all()
            concerned = node in self._apart()
        if concerned and not self._ended.is_set():
            log.warning("the connection to %s has ended: %s", node, reason)
        self._feeds.ensure(reason)

    def seen(self) -> PeerView:
        """See `Handler`."""
        state = self.state
        with state.changed:
            owing = self.plan_steps.awaited(lambda owner: self.connections.received(owner, FOLLOW))
            awaited, apart = [*awaited_peers(state), *owing], self._apart()
        return PeerView(self.connections.links, awaited, {**apart, **self._feeds.apart})

    def _apart(self) -> dict[NodeId, str]:
        """Return the peers whose connection broke and that have opened no other, and why. Call under the lock."""
        if not self._broken:
            return {}
        needed = {*((node, EXCHANGE) for node in self._roster()), *((node, FOLLOW) for node in self.plan_steps.owing())}
        self._broken = {key: why for key, why in self._broken.items() if not self.connections.has(*key)}
        return {node: why for (node, lane), why in self._broken.items() if (node, lane) in needed}

    def _roster(self) -> frozenset[NodeId]:
        standing = self.state.standing
        return frozenset(standing.current.ranks) - standing.dead if standing.current is not None else frozenset()


def _later(seconds: float, act: Callable[[], None]) -> None:
    timer = threading.Timer(seconds, act)
    timer.name, timer.daemon = "later", True
    timer.start()
