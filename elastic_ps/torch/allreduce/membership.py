"""`GroupMembership` lets a worker of a job without servers join it, go over to the next configuration, and leave.

docs/reference/all-reduce.md has the rules. What differs from a job with servers: a configuration is prepared when its
group is built, and its members agree on a version before its first step, so a switch needs no notices.
"""

import time
from dataclasses import replace

from elastic_ps.control import codec
from elastic_ps.core.configuration import NO_CONFIGURATION, ConfigId
from elastic_ps.core.errors import EXIT_RESTART, JobEnded
from elastic_ps.core.model import Model
from elastic_ps.node.standing import ArmAnswer
from elastic_ps.torch.allreduce.agreement import BEGINS, LACKS
from elastic_ps.torch.allreduce.group_state import GroupState
from protos import elastic_pb2 as pb

_ANSWERS = {ArmAnswer.ARMED: pb.ARMED, ArmAnswer.LATE: pb.LATE, ArmAnswer.SWITCHED: pb.SWITCHED}


class GroupMembership:
    """`GroupMembership` answers directives and switches configurations.

    Args:
        state: the worker's.
    """

    def __init__(self, state: GroupState):
        self._state = state
        self._preparing = NO_CONFIGURATION  # to be answered when its group is built

    def direct(self, directive: pb.Directive) -> None:
        """Do what the coordinator says, and answer."""
        kind = directive.WhichOneof("kind")
        getattr(self, f"_on_{kind}", lambda _message: None)(getattr(directive, kind or "stop"))

    def answer_prepared(self) -> None:
        """Answer PREPARED once the prepared configuration's group is built, and a checkpoint read that it starts from.

        Call under the lock.
        """
        prepared = self._state.standing.prepared
        if prepared is None or prepared.id != self._preparing or self._state.awaits_blocks:
            return
        if self._state.has_group(prepared.id):
            self._preparing = NO_CONFIGURATION
            self._acknowledge(pb.PREPARED, prepared.id)

    def step_ended(self, reached: float) -> None:
        """Switch where the clock is due: a step's version was reached at `reached` (monotonic seconds)."""
        state = self._state
        with state.changed:
            due = state.standing.prepared if state.standing.due(state.version) else None
        if due is not None:
            self.switch(due.id, reached)

    def switch(self, number: ConfigId, reached: float | None = None) -> None:
        """Switch to `number`, which is decided, if it is prepared here, and answer SWITCHED.

        Args:
            number: id of a configuration that is in force somewhere, or due here.
            reached: when (monotonic seconds) the clock's version was reached; None: the step goes on meanwhile.
        """
        state = self._state
        started = time.monotonic() if reached is None else reached
        with state.changed:
            if not state.standing.decided(number):
                return  # it is no news, or another thread was first
            was_member = state.is_member
            state.standing = state.standing.switch()
            state.generation += 1
            state.fresh = True
            state.progress.switched()
            self._acknowledge(pb.SWITCHED, number, (time.monotonic() - started) * 1000)
            if was_member and not state.is_member:  # the script's thread sees this before it sees the roster
                state.end(JobEnded("drained", 0))
            state.changed.notify_all()

    def _acknowledge(self, answer: "pb.Answer", number: ConfigId, suspension_ms: float = 0.0) -> None:
        self._state.session.acknowledge(answer, number, self._state.version, suspension_ms)

    # ---- directives --------------------------------------------------------------------------------------------------

    def _on_welcome(self, welcome: pb.Welcome) -> None:
        state = self._state
        with state.changed:
            state.data = codec.data_from_pb(welcome.data)
            configuration = codec.configuration_from_pb(welcome.configuration)
            if state.standing.current is None or state.standing.passes_by(configuration.id):
                state.inherited = bool(welcome.tensors)
                if state.inherited:
                    state.model = Model(tuple(map(codec.tensor_from_pb, welcome.tensors)), state.model.block_bytes)
                restored = state.restored_version
                state.held = restored if restored is not None else LACKS if state.inherited else BEGINS
                state.generation += 1
                if welcome.HasField("configuration"):
                    state.standing = replace(state.standing, current=configuration, prepared=None, clock=None)
            elif welcome.tensors and not state.is_member:  # the job may have begun to train since the Welcome before
                state.inherited = True
                state.held = LACKS if state.held == BEGINS else state.held
            state.changed.notify_all()
        self.switch(configuration.id)

    def _on_prepare(self, prepare: pb.Prepare) -> None:
        state = self._state
        configuration = codec.configuration_from_pb(prepare.configuration)
        with state.changed:
            if configuration.id <= state.standing.config_id:
                self._acknowledge(pb.SWITCHED, configuration.id)
                return
            state.standing = state.standing.prepare(configuration, False, frozenset(prepare.dead))
            if not state.standing.holds(configuration.id):
                self._acknowledge(pb.CANCELLED, configuration.id)
                return
            self._preparing = configuration.id
            state.changed.notify_all()
        if not prepare.dead:
            state.meet_shadows(configuration)
        if state.session.node in configuration.ranks:
            state.build(configuration)
            with state.changed:
                self.answer_prepared()
        else:  # it leaves: it meets nobody
            self._acknowledge(pb.PREPARED, configuration.id)

    def _on_arm(self, arm: pb.Arm) -> None:
        state = self._state
        number = codec.config_id_from_pb(arm.configuration)
        with state.changed:
            state.standing, answer = state.standing.arm(number, arm.clock, state.version)
        if answer in _ANSWERS:  # at the clock's version a step may be under way here: the coordinator decides then
            self._acknowledge(_ANSWERS[answer], number)

    def _on_adopt(self, adopt: pb.Adopt) -> None:
        number = codec.config_id_from_pb(adopt.configuration)
        if number == self._state.standing.config_id:
            self._acknowledge(pb.SWITCHED, number)
        self.switch(number)

    def _on_cancel(self, cancel: pb.CancelPlan) -> None:
        state = self._state
        number = codec.config_id_from_pb(cancel.configuration)
        with state.changed:
            state.standing = state.standing.cancel(number)
            state.drop_groups()
            state.changed.notify_all()
        self._acknowledge(pb.CANCELLED, number)
        if cancel.leave:
            state.end(JobEnded(f"not wanted any more: {cancel.reason}", 0))

    def _on_committed(self, committed: pb.Committed) -> None:
        state = self._state
        with state.changed:
            if codec.config_id_from_pb(committed.configuration) == state.standing.config_id:
                state.standing = state.standing.commit()
            state.drop_groups()

    def _on_extend(self, extend: pb.Extend) -> None:
        with self._state.changed:
            self._state.data = codec.data_from_pb(extend.data)
        number = self._state.standing.config_id
        self._state.session.acknowledge(pb.EXTENDED, number, self._state.version, growth=extend.growth)

    def _on_stop(self, stop: pb.Stop) -> None:
        status = EXIT_RESTART if stop.restart else 1 if stop.failed else 0
        self._state.end(JobEnded(stop.reason, status))
