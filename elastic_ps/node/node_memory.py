"""This module keeps what a node was told by its coordinator, for a coordinator that has lost its journal."""

import os
import threading
from collections.abc import Iterable, Sequence

from elastic_ps.control.codec import (
    config_id_from_pb,
    config_id_to_pb,
    configuration_to_pb,
    module_to_pb,
    runs_to_pb,
)
from elastic_ps.core.configuration import NO_CONFIGURATION, ConfigId, Role
from elastic_ps.node.settings import NodeSettings
from elastic_ps.node.standing import Standing
from protos import elastic_pb2 as pb

_ROLES = {Role.WORKER: pb.WORKER, Role.SERVER: pb.SERVER}


class NodeMemory:
    """A `NodeMemory` remembers for one node. Several threads tell it things.

    Args:
        settings: of the node.
        role: what the node does.
        port: of its data plane; 0 for a worker.
    """

    def __init__(self, settings: NodeSettings, role: Role, port: int):
        self._lock = threading.Lock()
        self._node = ""
        self._released = NO_CONFIGURATION  # up to it no pause holds anybody any more
        self._known = pb.Introduction(
            role=_ROLES[role],
            host=settings.host,
            port=port,
            pid=os.getpid(),
            nonce=settings.nonce,
            machine=settings.machine,
            modules=map(module_to_pb, settings.modules),
        )

    def registered(self, reply: pb.RegisterReply) -> None:
        """Remember that this node has joined."""
        with self._lock:
            self._node = reply.node
            self._known.seed, self._known.block_bytes = reply.seed, reply.block_bytes

    def directed(self, directive: pb.Directive) -> None:
        """Remember what a directive says."""
        kind = directive.WhichOneof("kind")
        with self._lock:
            self._known.plan = max(self._known.plan, directive.plan)
            if kind == "welcome":
                self._remember_declared(directive.welcome.tensors, directive.welcome.optimizers)
                self._known.data.CopyFrom(directive.welcome.data)
                self._known.identity, self._known.begun = directive.welcome.identity, directive.welcome.begun
                self._known.since = directive.welcome.since
                self._known.saves = max(self._known.saves, directive.welcome.saves)
            elif kind == "save":
                self._known.saves = max(self._known.saves, directive.save.clock)
            elif kind in ("resume", "committed"):
                number = config_id_from_pb(getattr(directive, kind).configuration)
                self._released = max(self._released, number)
            elif kind == "prepare":
                prepared = directive.prepare.configuration
                self._known.leaving = all(self._node != member.id for member in (*prepared.workers, *prepared.servers))
            elif kind == "extend":
                self._remember_declared(directive.extend.tensors, directive.extend.optimizers)
                self._known.data.CopyFrom(directive.extend.data)

    def answered(self, answer: "pb.Answer", number: ConfigId) -> None:
        """Remember that this node answers a directive, about the configuration of this id."""
        if answer == pb.SYNCED:
            with self._lock:
                self._known.synced.CopyFrom(config_id_to_pb(number))

    def declared(self, request: pb.DeclareRequest, reply: pb.DeclareReply) -> None:
        """Remember what this node's script has declared, and what the job knows since."""
        with self._lock:
            self._remember_declared(reply.tensors, reply.optimizers)
            self._known.local_update |= request.local_update

    def passed(self, place: int, number: int) -> None:
        """Remember that this node's script was let through a barrier."""
        with self._lock:
            self._known.barrier_place, self._known.barrier_number, self._known.barred = place, number, True

    def _remember_declared(self, tensors: Sequence[pb.Tensor], optimizers: Iterable[str]) -> None:
        """Keep the longer list: lists only grow, and an answer to a Declare and an Extend may overtake each other."""
        if len(tensors) >= len(self._known.tensors):
            del self._known.tensors[:], self._known.optimizers[:]
            self._known.tensors.extend(tensors)
            self._known.optimizers.extend(optimizers)

    def introduction(self, standing: Standing) -> pb.Introduction:
        """Return all that is known, with where this node stands."""
        message = pb.Introduction()
        with self._lock:
            message.CopyFrom(self._known)
            released = standing.prepared is None and standing.config_id <= self._released
        if standing.current is not None:
            message.current.CopyFrom(configuration_to_pb(standing.current))
        if standing.prepared is not None:
            message.prepared.CopyFrom(configuration_to_pb(standing.prepared))
        if standing.clock is not None:
            message.clock = standing.clock
        message.paused = standing.paused and not released
        message.dead.extend(sorted(standing.dead))
        message.cancelled.CopyFrom(config_id_to_pb(standing.cancelled))
        message.promoted.extend(runs_to_pb(standing.promoted))
        message.undecided = standing.undecided
        if standing.before is not None:
            message.before.CopyFrom(configuration_to_pb(standing.before))
        return message
