"""Replies answer callers that ask something of the coordinator; they are named as in protos/elastic.proto."""

from dataclasses import dataclass

from coordinator.core.plans.best_fit import Move
from elastic_ps.core.configuration import NodeId
from elastic_ps.core.model import Tensor


@dataclass(frozen=True)
class RegisterReply:
    """A node that registers, or asks to leave, learns its name and what it needs before it hears anything else.

    Attributes:
        node: its name.
        lease_seconds: that it may be silent.
        block_bytes: of the largest block.
        seed: of the data order.
        started: the job has a configuration already, so that the node joins as a shadow.
    """

    node: NodeId
    lease_seconds: float
    block_bytes: int = 0
    seed: int = 0
    started: bool = False


@dataclass(frozen=True)
class DeclareReply:
    """A script that has declared something learns all that the job has declared, which every server knows by now.

    Attributes:
        tensors: all of the job's.
        assignment: of their blocks, by index of the server.
        optimizers: JSON by store.
        warnings: settings that differ from the job's and are ignored.
    """

    tensors: tuple[Tensor, ...]
    assignment: tuple[int, ...]
    optimizers: tuple[str, ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class DrawReply:
    """A worker that draws gets its next batch, or learns that its epoch is over.

    Attributes:
        epoch: that the job is in.
        over: every batch of the epoch that the worker asked for is done, and there is none for it.
        step: positions [step * B, (step + 1) * B) of the epoch's permutation.
        origin: the worker that drew the batch first.
        batch: its count among the origin's batches, from 0.
    """

    epoch: int
    over: bool = False
    step: int = 0
    origin: NodeId = ""
    batch: int = 0


@dataclass(frozen=True)
class BarrierReply:
    """A worker may go on: all that share its barrier are in it."""


@dataclass(frozen=True)
class CommandReply:
    """A script's command has been run by every server."""


@dataclass(frozen=True)
class ScaleReply:
    """An operator who asks for other numbers of nodes learns what that leads to.

    Attributes:
        plan: its id; 0: there is none yet.
        queued: the request waits behind a plan.
        lines: commands to run where no launcher is attached.
        moves: of a dry run, what would go from where to where.
        bytes_to_move: of a dry run.
        seconds_estimated: of a dry run.
        joining_workers: processes that start.
        joining_servers: likewise.
        leaving: nodes that end.
        request: number of the request; 0: nothing needed to be asked for.
        unprotects: the job asks for replicas, and is left with one server, which nobody can follow.
    """

    plan: int = 0
    queued: bool = False
    lines: tuple[str, ...] = ()
    moves: tuple[Move, ...] = ()
    bytes_to_move: int = 0
    seconds_estimated: float = 0.0
    joining_workers: int = 0
    joining_servers: int = 0
    leaving: tuple[NodeId, ...] = ()
    request: int = 0
    unprotects: bool = False


@dataclass(frozen=True)
class EvictReply:
    """An operator who evicts a node reads in `outcome` what follows."""

    outcome: str


@dataclass(frozen=True)
class CancelReply:
    """An operator who cancels learns which plan is cancelled, what waited behind it, and how many nodes are wanted."""

    plan: int
    queued: str
    workers: int
    servers: int


@dataclass(frozen=True)
class CheckpointReply:
    """An operator who asks for a checkpoint learns where it lies, of which version it is, and how many bytes it has."""

    url: str
    version: int
    bytes: int


@dataclass(frozen=True)
class StopReply:
    """An operator who ends a job learns that it ends."""


CallerReply = (
    RegisterReply
    | DeclareReply
    | DrawReply
    | BarrierReply
    | CommandReply
    | ScaleReply
    | EvictReply
    | CancelReply
    | CheckpointReply
    | StopReply
)
