"""This module holds what is under way, mostly for a caller who waits for an answer: `to` names the caller. All of it
ends with the process.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from coordinator.core.batches.async_batches import Batch, Book
from elastic_ps.core.configuration import NO_CONFIGURATION, ConfigId, Configuration, Member, NodeId, Role
from elastic_ps.core.data_order import DataSpec
from elastic_ps.core.model import Run, Tensor
from elastic_ps.core.module_file import ModuleFile


@dataclass(frozen=True)
class Declaration:
    """A declaration waits for its answer until the servers know what its script declares."""

    to: int
    node: NodeId
    tensors: tuple[Tensor, ...]
    store: int
    optimizer: str
    data: DataSpec | None
    local_update: bool


@dataclass(frozen=True)
class OptimizerTrial:
    """A trial has every server try an optimizer that the job does not have yet, before it becomes part of the job.

    Attributes:
        optimizer: as declared.
        dtypes: of what it would update.
        answers: by server, why it cannot take it; "": it can.
        since: when it began, in unix seconds.
    """

    optimizer: str
    dtypes: tuple[str, ...]
    answers: Mapping[NodeId, str] = field(default_factory=dict)
    since: float = 0.0


@dataclass(frozen=True)
class UnconfirmedDeclaration:
    """An unconfirmed declaration is part of the job and waits for the servers to know it."""

    to: int
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Draw:
    """A worker's draw waits for its batch since `since`; `epoch` None: whichever the job is in."""

    to: int
    node: NodeId
    number: int
    epoch: int | None
    since: float


@dataclass(frozen=True)
class Barrier:
    """A worker waits in a barrier since `since`: `place` says which, `sharing` who comes to it; (): all workers."""

    to: int
    node: NodeId
    place: tuple[int, int]
    sharing: tuple[NodeId, ...]
    version: int
    since: float


@dataclass(frozen=True)
class Introduction:
    """An introduction says all that a node knows of its job; its fields are those of the contract's `Introduction`.

    Attributes:
        member: its name, role and address.
        pid: for people.
        nonce: its launcher's name for it.
        term: the highest that it knows.
        version: of its parameters; of a server, the highest of its blocks.
        leaving: the last configuration that it was to prepare is without it.
        synced: number of the last configuration that it answered SYNCED for.
        promoted: runs of blocks of `current` that a server's death has given to their owners at once.
        before: in force before `current`, which it has not heard to be committed.
        undecided: what `prepared` comes to rests on what is answered after a server's death.
        modules: that a server may load update rules from.
        saves: the highest number in a checkpoint's name.
        since: when the job began from `begun`, in unix seconds.
    """

    member: Member
    pid: int
    nonce: str
    term: int = 0
    version: int = 0
    current: Configuration | None = None
    prepared: Configuration | None = None
    clock: int | None = None
    paused: bool = False
    leaving: bool = False
    dead: frozenset[NodeId] = frozenset()
    cancelled: ConfigId = NO_CONFIGURATION
    synced: ConfigId = NO_CONFIGURATION
    tensors: tuple[Tensor, ...] = ()
    optimizers: tuple[str, ...] = ()
    data: DataSpec | None = None
    local_update: bool = False
    seed: int = 0
    block_bytes: int = 0
    plan: int = 0
    passed: tuple[int, int] = (-1, -1)
    identity: str = ""
    begun: str = ""
    promoted: tuple[Run, ...] = ()
    before: Configuration | None = None
    undecided: bool = False
    modules: tuple[ModuleFile, ...] = ()
    saves: int = 0
    since: float = 0.0

    @property
    def configurations(self) -> tuple[Configuration, ...]:
        """The configurations that it knows."""
        found = (self.before, self.current, self.prepared)
        return tuple(configuration for configuration in found if configuration is not None)

    @property
    def number(self) -> ConfigId:
        """The number of the configuration in force there."""
        return self.current.id if self.current is not None else NO_CONFIGURATION

    @property
    def is_member(self) -> bool:
        """Return whether it is in the configuration in force there."""
        return self.current is not None and self.member.id in self.current.members

    @property
    def has_left(self) -> bool:
        """Return whether it has left by a configuration that is in force there; its plan has not ended."""
        return self.leaving and not self.is_member

    @property
    def waits(self) -> bool:
        """Return whether it has come to join, and was never a member."""
        return not self.is_member and not self.leaving


@dataclass(frozen=True)
class Rebuilding:
    """A coordinator without a journal waits while the job's nodes introduce themselves.

    Attributes:
        settled: unix seconds before which more may come, though nobody is missed.
        until: when a lease has run out.
        latest: how long those are waited for whose silence would send the job back.
        began: when it began to ask.
        introduced: who has come.
        knocked: role and nonce of new processes that want to join.
        ended: name by nonce of the processes that ended well meanwhile; "": it is not known.
    """

    settled: float
    until: float
    latest: float
    began: float
    introduced: Mapping[NodeId, Introduction] = field(default_factory=dict)
    knocked: frozenset[tuple[Role, str]] = frozenset()
    ended: Mapping[str, NodeId] = field(default_factory=dict)


@dataclass(frozen=True)
class PendingCheckpoint:
    """A pending checkpoint is one that is being written.

    Attributes:
        root: folder of checkpoints.
        url: of this one.
        given_up: folder of the order before, where that came to nothing: nodes take back what they wrote into it.
        clock: version that is saved. Without a common version only a number, above every earlier one: servers save at
            once.
        book: as it stood before servers were told; None: a sync job.
        drawn: epoch and batch of each draw that was answered since.
        begun: when it was asked for, in unix seconds.
        saved: JSON of each node that holds blocks.
        tries: clocks set.
        writing: the manifest.
        put_off: once, as a plan went first.
    """

    to: tuple[int, ...]
    root: str
    url: str = ""
    given_up: str = ""
    clock: int | None = None
    book: Book | None = None
    drawn: tuple[tuple[int, Batch], ...] = ()
    begun: float = 0.0
    saved: Mapping[NodeId, str] = field(default_factory=dict)
    tries: int = 0
    writing: bool = False
    put_off: bool = False


@dataclass(frozen=True)
class PendingSearch:
    """A pending search looks for a checkpoint to go back to.

    Attributes:
        since: unix seconds.
        due: when to look again, where no answer has come by then.
        tries: so far.
        trouble: why there was none, for people; "": it is looked for the first time.
    """

    since: float
    due: float
    tries: int = 1
    trouble: str = ""


@dataclass(frozen=True)
class RunningCommand:
    """A running command is a script's, at the servers' handlers since `since`; its id is the script's, so an old answer
    completes no other.
    """

    id: int
    to: int
    head: int
    body: str
    waiting: frozenset[NodeId]
    errors: tuple[str, ...] = ()
    since: float = 0.0
