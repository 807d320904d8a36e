"""This module names who takes part in a job and who holds which block: the roster, the assignment, and their number."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

NodeId = str
"""A `NodeId` names a node in its job: "w3", "s0". The coordinator counts them up and uses none twice."""


MOST_NODES = 65_535
"""The most nodes of one role in a job: a larger number is a slip of the hand."""

MOST_REPLICAS = 1
"""The most servers that follow a block besides its owner: with one any single server may die."""


class Role(StrEnum):
    """A `Role` says what a node does."""

    WORKER = "worker"
    SERVER = "server"


class ConfigId(NamedTuple):
    """A `ConfigId` orders configurations. A configuration keeps the term in which it was numbered."""

    term: int = 0
    number: int = 0

    def __str__(self) -> str:
        return f"{self.term}.{self.number}"


NO_CONFIGURATION = ConfigId()
"""The id that stands for no configuration, before the first one."""


@dataclass(frozen=True, slots=True)
class Member:
    """A `Member` is a node, as all others know it.

    Attributes:
        id: its name.
        role: what it does.
        host: address that its data plane is reached at.
        port: of its data plane; 0: it only connects.
        machine: name of what it runs on; "": it has not said. It does not tell who shares memory: nodes find that out
            by trying (`ShmRendezvous`).
    """

    id: NodeId
    role: Role
    host: str
    port: int = 0
    machine: str = ""

    @property
    def failure_domain(self) -> str:
        """Return what dies as one: the machine, or where that is not known all that is at one address."""
        return self.machine or self.host


@dataclass(frozen=True)
class Configuration:
    """A `Configuration` is one roster and one assignment of blocks, in force from a version on.

    Args:
        id: (term, number).
        workers: in rank order; the first is the chief.
        servers: in the order that `assignment` counts them.
        assignment: by block id, the index of its primary in `servers`.
        followers: by block id, the index in `servers` of the server that has every update of the block as soon as
            anybody has seen it; -1: there is none. Empty: no block has one.
    """

    id: ConfigId
    workers: tuple[Member, ...]
    servers: tuple[Member, ...]
    assignment: tuple[int, ...] = ()
    followers: tuple[int, ...] = ()

    @cached_property
    def ranks(self) -> dict[NodeId, int]:
        """The rank of each worker, by its id."""
        return {worker.id: rank for rank, worker in enumerate(self.workers)}

    @cached_property
    def members(self) -> dict[NodeId, Member]:
        """All nodes by id."""
        return {member.id: member for member in self.workers + self.servers}

    @property
    def chief(self) -> NodeId:
        """The worker that evaluates schedules, saves and prints."""
        return self.workers[0].id

    @cached_property
    def blocks_of(self) -> dict[NodeId, tuple[int, ...]]:
        """The ascending block ids of each server, by its id."""
        held: list[list[int]] = [[] for _ in self.servers]
        for block, server in enumerate(self.assignment):
            held[server].append(block)
        return {server.id: tuple(blocks) for server, blocks in zip(self.servers, held, strict=True)}

    def primary(self, block: int) -> NodeId:
        """Return the server that holds a block."""
        return self.servers[self.assignment[block]].id

    def follower(self, block: int) -> NodeId | None:
        """Return the server that follows a block; None: there is none."""
        index = self.followers[block] if self.followers else -1
        return self.servers[index].id if index >= 0 else None

    def extended(self, assignment: Iterable[int], followers: Iterable[int] = ()) -> "Configuration":
        """Return the same configuration for a model that has grown."""
        return replace(self, assignment=tuple(assignment), followers=tuple(followers))
