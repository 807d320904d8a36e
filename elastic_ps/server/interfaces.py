"""This module says what the parts of a server call of its session and of its connections."""

from collections.abc import Sequence
from typing import Protocol

from elastic_ps.core.configuration import NO_CONFIGURATION, ConfigId, NodeId
from elastic_ps.transport.base import Buffer
from elastic_ps.transport.frames import Frame
from protos import elastic_pb2 as pb


class Control(Protocol):
    """`Control` is the part of `Session` that a server answers through."""

    def acknowledge(
        self,
        answer: "pb.Answer",
        configuration: ConfigId = NO_CONFIGURATION,
        version: int = 0,
        suspension_ms: float = 0.0,
        bytes_moved: int = 0,
        detail: str = "",
        command: int = 0,
        optimizer: str = "",
        holdings: Sequence[pb.Holding] = (),
        growth: int = 0,
    ) -> None:
        """Queue an answer to a directive.

        Args:
            answer: the kind of the answer.
            configuration: the configuration that it is about.
            version: this server's.
            suspension_ms: for how long training stood still.
            bytes_moved: payload that was sent to new owners.
            detail: for people, or what the answer brings.
            command: id of the script's command.
            optimizer: the optimizer that was tried.
            holdings: what this server has of blocks, when another has died.
            growth: of the job, that an Extend said.
        """

    def report_soon(self) -> None:
        """Report now instead of at the next turn."""


class Outbox(Protocol):
    """An `Outbox` sends on the connections that peers have opened to this server."""

    def send(self, node: NodeId, frame: Frame, payload: Sequence[Buffer] = ()) -> None:
        """Queue a frame for a worker; dropped where it is not connected: it asks again when it is.

        Args:
            node: the worker.
            frame: without its payload.
            payload: arrays that stay as they are until they are sent.
        """

    def notice(self, frame: Frame) -> None:
        """Queue a frame on every connection, the follow streams included."""

    def backlog(self, node: NodeId) -> int:
        """Return the payload bytes that wait for a worker; 0 where it is not connected."""

    def is_connected(self, node: NodeId) -> bool:
        """Return whether a worker is connected now."""

    def shares(self, node: NodeId) -> bool:
        """Return whether a worker reads values where they are."""

    def disconnect(self, nodes: frozenset[NodeId]) -> None:
        """Close all connections to dead nodes."""
