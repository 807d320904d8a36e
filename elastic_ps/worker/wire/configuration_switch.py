"""`Membership` lets a worker join its job, go over from one configuration to the next, and leave.

Directives come on the session's thread, news of a switch with frames on the links' threads, the clock's version on the
script's. Whoever hears first that a configuration is decided puts it in force, in whatever thread; an open exchange
sees it by `WorkerState.generation`. The rules: docs/reference/protocol.md, "A plan" and "Nodes".
"""

import threading
import time
from dataclasses import replace

import numpy as np

from elastic_ps.control import codec
from elastic_ps.core.configuration import NO_CONFIGURATION, ConfigId, NodeId
from elastic_ps.core.errors import EXIT_RESTART, JobEnded
from elastic_ps.core.model import Model, runs
from elastic_ps.core.segments import runs_of
from elastic_ps.node.standing import ArmAnswer
from elastic_ps.transport.frame_metas import NoticeMeta, SubscribeMeta
from elastic_ps.transport.send_queue import Link
from elastic_ps.worker.wire.parameter_inbox import ParameterInbox
from elastic_ps.worker.wire.prefault import populate
from elastic_ps.worker.wire.worker_state import WorkerState
from protos import elastic_pb2 as pb

_ANSWERS = {ArmAnswer.ARMED: pb.ARMED, ArmAnswer.LATE: pb.LATE, ArmAnswer.SWITCHED: pb.SWITCHED}


class Membership:
    """`Membership` answers directives and switches configurations for a worker.

    Args:
        state: the worker's.
    """

    def __init__(self, state: WorkerState):
        self._state = state
        self._subscribed: dict[NodeId, Link] = {}  # by server, the connection on which it has been asked for its blocks
        self._joined_at = 0  # the clock of the last switch: a joiner's first version
        self._before: frozenset[NodeId] = frozenset()  # servers of the configuration before the last switch
        self._heard: dict[NodeId, ConfigId] = {}  # by server: the newest configuration of its frames
        self._resumed = ConfigId()
        self._preparing = NO_CONFIGURATION  # to be answered when its servers are connected
        self._overtaken: float | None = (
            None  # pause mode: when a decision put another configuration in force in the middle of a step
        )

    @property
    def is_current(self) -> bool:
        """Return whether a joiner holds the last version of the configuration before. Call under the lock.

        The clock is a target: the switch may have been decided at an earlier version. But what a server says under
        the new configuration comes behind all its values of the old one.
        """
        state = self._state
        return state.inbox.version is not None and (state.version >= self._joined_at or not self.unheard)

    @property
    def unheard(self) -> dict[NodeId, str]:
        """Servers whose last values of the configuration before a joiner awaits. Call under the lock.

        Of one that leaves nothing comes any more once its connection has broken: who owns its blocks sends them.
        """
        state = self._state
        number = state.standing.config_id
        lacking = [
            server
            for server in self._before
            if self._heard.get(server, NO_CONFIGURATION) < number
            and (server in state.configuration.members or state.peers.is_connected(server))
        ]
        return dict.fromkeys(lacking, f"its last values before configuration {number}")

    # ---- directives ------------------------------------------------------------------------------------------------

    def direct(self, directive: pb.Directive) -> None:
        """Do what the coordinator says, and answer."""
        kind = directive.WhichOneof("kind")
        getattr(self, f"_on_{kind}", lambda _message: None)(getattr(directive, kind or "stop"))

    def _acknowledge(self, answer: "pb.Answer", number: ConfigId, suspension_ms: float = 0.0) -> None:
        self._state.session.acknowledge(answer, number, self._state.version, suspension_ms)

    def _on_welcome(self, welcome: pb.Welcome) -> None:
        state = self._state
        with state.changed:
            state.data = codec.data_from_pb(welcome.data)
            configuration = codec.configuration_from_pb(welcome.configuration)
            if state.standing.current is None or state.standing.passes_by(configuration.id):
                # a job that was restored has tensors before it has a configuration
                tensors = tuple(codec.tensor_from_pb(tensor) for tensor in welcome.tensors)
                state.inbox = ParameterInbox(Model(tensors, state.inbox.model.block_bytes))
                state.inherited = bool(tensors)
                state.receiving.clear()
                state.generation += 1  # what was asked for, another inbox awaited
                self._subscribed.clear()
                if welcome.HasField("configuration"):
                    state.standing = replace(state.standing, current=configuration, prepared=None, clock=None)
            elif state.standing.config_id == configuration.id:  # an Extend may have been lost with the stream before
                state.extend(welcome.tensors, configuration.assignment, configuration.followers)
                if welcome.tensors and not state.is_member:  # the job may have begun to train since the Welcome before
                    state.inherited = True
            state.changed.notify_all()
        self.switch(configuration.id)

    def _on_prepare(self, prepare: pb.Prepare) -> None:
        state = self._state
        configuration = codec.configuration_from_pb(prepare.configuration)
        dead = frozenset(prepare.dead)
        with state.changed:
            if configuration.id <= state.standing.config_id:
                self._acknowledge(pb.SWITCHED, configuration.id)
                return
            for server in dead:
                self._forget(server)
            paused = prepare.mode == pb.PAUSE
            state.standing = state.standing.prepare(configuration, paused, dead, prepare.undecided)
            if not state.standing.holds(configuration.id):
                self._acknowledge(pb.CANCELLED, configuration.id)
                return
            self._close_unused()
            followed = state.configuration.servers if state.is_shadow else ()
        for member in (*configuration.servers, *followed):
            state.peers.ensure(member)
        with state.changed:
            for member in followed:
                self.subscribe(member.id)
            self._preparing = configuration.id
            self.answer_prepared()
            state.changed.notify_all()

    def answer_prepared(self) -> None:
        """Answer PREPARED once all servers of the prepared configuration are connected; till then they are waited for.

        One that was answered may be armed, and then each of its members has to exchange with all its servers.
        Call under the lock.
        """
        state, prepared = self._state, self._state.standing.prepared
        if prepared is None or prepared.id != self._preparing:
            return
        if state.standing.undecided:  # what it is to be rests on all answers: nobody is waited for
            self._preparing = NO_CONFIGURATION
            state.session.acknowledge(pb.PREPARED, prepared.id, state.version, holdings=self._seen())
            return
        if all(state.peers.is_connected(server.id) for server in prepared.servers):
            self._preparing = NO_CONFIGURATION
            self._acknowledge(pb.PREPARED, prepared.id)
            threading.Thread(target=populate, args=(state, prepared), name="populate", daemon=True).start()

    def _seen(self) -> list[pb.Holding]:
        """Return what this worker has of each block; in async and ssp nothing, where its versions are its own."""
        latest = self._state.inbox.latest() if self._state.is_sync else np.zeros(0, dtype=np.int64)
        found = []
        for version in np.unique(latest[latest >= 0]).tolist():
            flat = codec.runs_to_pb(runs_of(latest == version))
            found.append(pb.Holding(kind=pb.Holding.SEEN, version=version, runs=flat))
        return found

    def _forget(self, server: NodeId) -> None:
        """Forget a dead server's replies of the open exchange."""
        state = self._state
        if state.standing.current is not None and server in state.configuration.blocks_of:
            state.inbox.forget(list(runs(state.configuration.blocks_of[server])), state.version + 1)

    def _on_arm(self, arm: pb.Arm) -> None:
        state = self._state
        number = codec.config_id_from_pb(arm.configuration)
        with state.changed:
            state.standing, answer = state.standing.arm(number, arm.clock, state.version)
            due = state.standing.due(state.version)
        if answer is ArmAnswer.ARMED and due:
            self.switch(number)
        elif answer in _ANSWERS:
            self._acknowledge(_ANSWERS[answer], number)

    def _on_adopt(self, adopt: pb.Adopt) -> None:
        number = codec.config_id_from_pb(adopt.configuration)
        decided = codec.configuration_from_pb(adopt.decided) if adopt.HasField("decided") else None
        promoted = codec.runs_from_pb(adopt.promoted)
        with self._state.changed:
            self._state.standing = self._state.standing.decide(number, decided, promoted)
            found = [known for known in self._state.standing.known if known.id == number]
        for member in found[0].servers if found else ():  # a death may leave blocks with servers that were to go
            self._state.peers.ensure(member)
        if number == self._state.standing.config_id:
            self._acknowledge(pb.SWITCHED, number)
        self.switch(number)

    def _on_cancel(self, cancel: pb.CancelPlan) -> None:
        state = self._state
        number = codec.config_id_from_pb(cancel.configuration)
        with state.changed:
            state.standing = state.standing.cancel(number)
        self._close_unused()
        self._acknowledge(pb.CANCELLED, number)
        if cancel.leave:
            state.end(JobEnded(f"not wanted any more: {cancel.reason}", 0))

    def _on_committed(self, committed: pb.Committed) -> None:
        with self._state.changed:
            if codec.config_id_from_pb(committed.configuration) == self._state.standing.config_id:
                self._state.standing = self._state.standing.commit()
        self._close_unused()

    def _close_unused(self) -> None:
        """Leave the servers that are dead or in no known configuration: what is arriving from them does not count."""
        state = self._state
        with state.changed:
            used = {server.id for known in state.standing.known for server in known.servers} - state.standing.dead
            for server in state.receiving.keys() - used:
                del state.receiving[server]
            state.peers.keep_only(used)
            state.changed.notify_all()

    def _on_resume(self, resume: pb.Resume) -> None:
        with self._state.changed:
            self._resumed = codec.config_id_from_pb(resume.configuration)
            since, self._overtaken = self._overtaken, None
            self._state.changed.notify_all()
        if since is not None:  # its step could not end before: that is what it lost
            self._acknowledge(pb.SWITCHED, self._resumed, (time.monotonic() - since) * 1000)

    def _on_extend(self, extend: pb.Extend) -> None:
        with self._state.changed:
            if self._state.standing.has_left(codec.config_id_from_pb(extend.configuration)):
                return
            self._state.data = codec.data_from_pb(extend.data)
            self._state.extend(extend.tensors, extend.assignment, extend.followers)
        number = self._state.standing.config_id
        self._state.session.acknowledge(pb.EXTENDED, number, self._state.version, growth=extend.growth)

    def _on_stop(self, stop: pb.Stop) -> None:
        status = EXIT_RESTART if stop.restart else 1 if stop.failed else 0
        self._state.end(JobEnded(stop.reason, status))

    # ---- what frames and the clock say -----------------------------------------------------------------------------

    def subscribe(self, server: NodeId) -> None:
        """Ask a server for its blocks, now and whenever they change, if this worker is a shadow. Call under the lock.

        Once on each connection: whoever sees it first asks, its own thread or that of a directive.
        """
        state, link = self._state, self._state.peers.link(server)
        if link is None or self._subscribed.get(server) is link:
            return
        if state.is_shadow and state.is_sync and server in state.configuration.blocks_of:
            self._subscribed[server] = link
            link.enqueue(state.frame(SubscribeMeta()))

    def heard(self, server: NodeId, number: ConfigId) -> None:
        """Take note that configuration `number` is in force at a server: it has said something under it."""
        with self._state.changed:
            self._heard[server] = max(number, self._heard.get(server, number))
            self._state.changed.notify_all()
        self.switch(number)

    def step_ended(self, reached: float) -> None:
        """Switch where the clock is due: the version of a step boundary was installed at `reached` (monotonic seconds).

        Raises:
            JobEnded: in pause mode, while this worker waits for the new owners.
        """
        state = self._state
        with state.changed:
            prepared = state.standing.prepared if state.standing.due(state.version) else None
            paused = state.standing.paused
        if prepared is not None:
            self.switch(prepared.id, reached)
            if paused:
                self._pause(reached)

    def _pause(self, reached: float) -> None:
        """Pause mode: wait until every block has arrived at its new owner (DL2 section 5, step 4)."""
        state = self._state
        number = state.standing.config_id
        state.wait(lambda: self._resumed >= number or state.standing.config_id != number)
        self._acknowledge(pb.SWITCHED, number, (time.monotonic() - reached) * 1000)

    # ---- the switch ------------------------------------------------------------------------------------------------

    def switch(self, number: ConfigId, reached: float | None = None) -> None:
        """Switch to `number`, which is decided, if it is prepared here: tell both rosters' servers, answer SWITCHED.

        Args:
            number: id of a configuration that is in force somewhere, or due here.
            reached: when (monotonic seconds) the clock's version was installed; None: the step goes on meanwhile.
        """
        state = self._state
        started = time.monotonic() if reached is None else reached
        with state.changed:
            if not state.standing.decided(number):
                return  # it is no news, or another thread was first
            old = state.standing.current
            self._joined_at = state.standing.clock or 0
            self._before = frozenset(old.blocks_of if old else ())
            state.standing = state.standing.switch()
            state.generation += 1
            if not state.is_sync:  # old and new owner of a block answer with different values
                state.receiving.clear()
                state.inbox.forget_coming()
            state.progress.switched()
            for server in {*self._before, *state.configuration.blocks_of}:
                state.peers.send(server, state.frame(NoticeMeta()))
            paused = state.standing.paused
            was_member = old is not None and state.session.node in old.members
            leaving = was_member and not state.is_member
            self._overtaken = started if paused and reached is None and was_member and not leaving else None
            suspension = (time.monotonic() - started) * 1000
            self._acknowledge(pb.SWITCHED, number, 0.0 if paused else suspension)
            if leaving:  # the script's thread must not see that the roster is another before it sees this
                state.end(JobEnded("drained", 0))
            state.changed.notify_all()
