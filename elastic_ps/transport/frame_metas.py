"""This module declares the JSON part of a frame, its meta: one class a kind, checked on every lane before it is used.

A name that the kind does not have, a value of another type or out of range, an infinite number: each is a
`ProtocolError` that names it. Whether the blocks exist that a meta names, only the node that holds a model can say.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from elastic_ps.core.configuration import ConfigId, NodeId, Role
from elastic_ps.core.data_order import Slice
from elastic_ps.core.model import Run
from elastic_ps.core.optimizer import Hyper
from elastic_ps.transport import meta_parts
from elastic_ps.transport.frame_kinds import Kind, Reason
from elastic_ps.transport.json_checks import choice, flag, integer, listed, mapping, number, short, text
from elastic_ps.transport.meta_parts import BATCH, COUNTS, NAME, NUMBERS, RUNS, SLICE, WORDS, WRITTEN, Encoded, Written


@dataclass(frozen=True, kw_only=True)
class Meta:
    """A `Meta` is what a frame of some kind says. Each field's annotation has its check; a default is not sent."""

    kind: ClassVar[Kind]

    @property
    def fault(self) -> str:
        """Why no correct peer sends this, though each field by itself could be; empty: one may."""
        return ""


@dataclass(frozen=True, kw_only=True)
class OfBlocks(Meta):
    """An `OfBlocks` is the meta of a frame that is about blocks.

    Attributes:
        runs: the payload's blocks, where there is a payload.
    """

    runs: Annotated[tuple[Run, ...], RUNS] = ()


# ---- connections ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class JoinMeta(Meta):
    """JOIN comes before HELLO on each socket, where a connection has several.

    Attributes:
        connection: a name.
        part: the socket's number in it.
        of: how many it has.
    """

    kind = Kind.JOIN
    connection: Annotated[str, NAME]
    part: Annotated[int, integer()]
    of: Annotated[int, integer()]


@dataclass(frozen=True, kw_only=True)
class HelloMeta(Meta):
    """HELLO comes first on every connection.

    Attributes:
        node: who has connected.
        role: what it is.
        lane: "exchange" or "follow".
        to: whom it means: another process may listen by now where that one did.
    """

    kind = Kind.HELLO
    node: Annotated[NodeId, NAME]
    role: Annotated[Role, choice(Role)]
    lane: Annotated[str, text(16)]
    to: Annotated[NodeId, text(256)] = ""


@dataclass(frozen=True, kw_only=True)
class AcceptedMeta(Meta):
    """ACCEPTED answers HELLO."""

    kind = Kind.ACCEPTED


@dataclass(frozen=True, kw_only=True)
class RefusedMeta(Meta):
    """REFUSED goes from the receiver of a stale or wrong frame to its sender.

    Attributes:
        reason: which sort of wrong.
        detail: for people.
        configuration: in force at the receiver.
    """

    kind = Kind.REFUSED
    reason: Annotated[Reason, choice(Reason)] = Reason.UNKNOWN
    detail: Annotated[str, WORDS] = ""
    configuration: Annotated[ConfigId | None, meta_parts.configuration] = None


@dataclass(frozen=True, kw_only=True)
class NoticeMeta(Meta):
    """NOTICE tells the peers of a node that has switched: the configuration in the header is decided."""

    kind = Kind.NOTICE


@dataclass(frozen=True, kw_only=True)
class GoodbyeMeta(Meta):
    """GOODBYE says that a worker's part in the job is over in order: the connection's end means nothing."""

    kind = Kind.GOODBYE


@dataclass(frozen=True, kw_only=True)
class PingMeta(Meta):
    """PING asks, from either end of a connection that has been silent, whether anybody is there."""

    kind = Kind.PING


@dataclass(frozen=True, kw_only=True)
class PongMeta(Meta):
    """PONG answers PING."""

    kind = Kind.PONG


# ---- the exchange lane -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class InitMeta(OfBlocks):
    """INIT brings first values, from the chief."""

    kind = Kind.INIT


@dataclass(frozen=True, kw_only=True)
class PullMeta(OfBlocks):
    """PULL asks for VALUE, from a worker.

    Attributes:
        states: asks for SNAPSHOTs with the optimizer's state instead.
        numbers: and these without payload.
        request: and these with this number.
    """

    kind = Kind.PULL
    states: Annotated[bool, flag] = False
    numbers: Annotated[bool, flag] = False
    request: Annotated[int, integer()] = 0


@dataclass(frozen=True, kw_only=True)
class PushMeta(OfBlocks):
    """PUSH brings gradients of the header's version, from a worker.

    In async and ssp `batch` is the name under which each block takes the push once; hyper comes from every worker; the
    header's version is the worker's own count; the blocks of a frame are of one key store, and so are those of a PULL.

    Attributes:
        absent: blocks that this worker pushes nothing for.
        slice: what the push is about; None: static data.
        empty: the rank's slice is empty (agrees with whatever the others push).
        skip_overflow: as in `Hyper`, by this worker's script; of the chief's, whose Hyper travels, it may be otherwise.
        encoded: how gradients are compressed; None: they are not.
        rows: how many rows of each run the payload has: their numbers in the tensor as int64, ascending, then their
            values. None: all.
        hyper: from the chief only.
        batch: (origin, batches of the origin times exchanges, plus this exchange).
    """

    kind = Kind.PUSH
    absent: Annotated[tuple[Run, ...], RUNS] = ()
    slice: Annotated[Slice | None, SLICE] = None
    empty: Annotated[bool, flag] = False
    skip_overflow: Annotated[bool, flag] = False
    encoded: Annotated[Encoded | None, meta_parts.encoded] = None
    rows: Annotated[tuple[int, ...] | None, COUNTS] = None
    hyper: Annotated[Hyper | None, meta_parts.hyper] = None
    batch: Annotated[tuple[NodeId, int] | None, BATCH] = None


@dataclass(frozen=True, kw_only=True)
class ValueMeta(OfBlocks):
    """VALUE brings parameters at the header's version, from a server.

    In async and ssp that version is the PUSH's plus 1, or the PULL's.

    Attributes:
        rows: as in a PUSH; all else is as at the version before.
        updates: async, ssp: the highest count of optimizer updates among these blocks.
        factor: on the gradients that have led to this version, as in a FACTOR; None: none was asked for.
    """

    kind = Kind.VALUE
    rows: Annotated[tuple[int, ...] | None, COUNTS] = None
    updates: Annotated[int, integer()] = 0
    factor: Annotated[float | None, number] = None


@dataclass(frozen=True, kw_only=True)
class SquaresMeta(OfBlocks):
    """SQUARES tells the chief of aggregated gradients of the header's version, which a server keeps until a FACTOR
    comes.

    Attributes:
        squares: the sum of squares of the gradient of each block of `runs`; -1: it is not finite.
        hyper: the optimizer's values, which say what their norm is for.
    """

    kind = Kind.SQUARES
    squares: Annotated[tuple[float, ...], NUMBERS]
    hyper: Annotated[Hyper, meta_parts.hyper]

    @property
    def fault(self) -> str:
        """See `Meta`."""
        blocks = sum(count for _, count in self.runs)
        return f"{len(self.squares)} sums of {blocks} blocks" if len(self.squares) != blocks else ""


@dataclass(frozen=True, kw_only=True)
class FactorMeta(Meta):
    """FACTOR, from the chief, lets servers apply the gradients of the header's version that they keep.

    Attributes:
        factor: on the gradients, from 0 to 1; 0: the exchange is skipped.
    """

    kind = Kind.FACTOR
    factor: Annotated[float, number]

    @property
    def fault(self) -> str:
        """See `Meta`."""
        return "" if 0 <= self.factor <= 1 else f"a factor of {self.factor}"


@dataclass(frozen=True, kw_only=True)
class SubscribeMeta(Meta):
    """SUBSCRIBE asks for VALUE now and at each update, from a shadow."""

    kind = Kind.SUBSCRIBE


# ---- both lanes ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class SnapshotMeta(OfBlocks):
    """SNAPSHOT brings one run's values and optimizer state; from the chief, to load state, it has no values.

    Attributes:
        state: names of the state arrays in the payload after the values.
        dtypes: theirs, to a worker.
        counts: of updates, by block.
        applied: async, ssp: by origin the number of the last batch that each block has taken; -1: none.
        request: of the PULL that it answers.
        number: in a follow stream: how many SNAPSHOTs it has had with this one.
    """

    kind = Kind.SNAPSHOT
    state: Annotated[tuple[str, ...], listed(NAME)] = ()
    dtypes: Annotated[tuple[str, ...], listed(NAME)] = ()
    counts: Annotated[tuple[int, ...], COUNTS] = ()
    applied: Annotated[Mapping[NodeId, Sequence[int]] | None, mapping(NAME, listed(integer(least=-1)))] = None
    request: Annotated[int, integer()] = 0
    number: Annotated[int, integer()] = 0

    @property
    def fault(self) -> str:
        """See `Meta`."""
        told = [self.counts, *(self.applied or {}).values()]
        if len(self.runs) != 1 or any(len(numbers) != self.runs[0][1] for numbers in told):
            return f"blocks {short(self.runs)} with {short([len(numbers) for numbers in told])} numbers"
        return ""


# ---- the follow lane: from an owner to a follower, or to the next owner ----------------------------------------------


@dataclass(frozen=True, kw_only=True)
class RecordMeta(OfBlocks):
    """RECORD brings one update of some runs: their aggregated gradients, normalised; count increments are implied.

    Attributes:
        absent: further blocks, which nobody pushed: their versions alone change, and in an async or ssp job not those.
        rows: as in a PUSH.
        hyper: that it is applied with.
        batch: as in a PUSH.
        slot: where the payload lies in the follower's memory, for its FOLLOWED; None: elsewhere.
        written: what the owner's ledger says of it; None: nothing.
        written_runs: of no runs: the blocks of an update that was written down before, of the header's version.
        kept: entries of the owner's ledger below this number are with the coordinator.
        caught_up: of no runs: everything has been sent.
        pause: of no runs: the stream gives up until the switch.
    """

    kind = Kind.RECORD
    absent: Annotated[tuple[Run, ...], RUNS] = ()
    rows: Annotated[tuple[int, ...] | None, COUNTS] = None
    hyper: Annotated[Hyper | None, meta_parts.hyper] = None
    batch: Annotated[tuple[NodeId, int] | None, BATCH] = None
    slot: Annotated[int | None, integer()] = None
    written: Annotated[Written | None, WRITTEN] = None
    written_runs: Annotated[tuple[Run, ...], RUNS] = ()
    kept: Annotated[int, integer()] = 0
    caught_up: Annotated[bool, flag] = False
    pause: Annotated[bool, flag] = False


@dataclass(frozen=True, kw_only=True)
class HandoverMeta(OfBlocks):
    """HANDOVER makes these runs the new owner's, at the header's version.

    Attributes:
        empty: their first values have not come.
    """

    kind = Kind.HANDOVER
    empty: Annotated[bool, flag] = False


@dataclass(frozen=True, kw_only=True)
class FollowedMeta(OfBlocks):
    """FOLLOWED says that a follower holds these runs, whole, at the header's version: by a RECORD or a SNAPSHOT.

    It has applied every RECORD before that one on this stream, whose memory may be written to.

    Attributes:
        slot: as in the RECORD.
        snapshot: the number of the SNAPSHOT that it answers; 0: it answers a RECORD.
    """

    kind = Kind.FOLLOWED
    slot: Annotated[int | None, integer()] = None
    snapshot: Annotated[int, integer()] = 0


METAS: Mapping[Kind, type[Meta]] = {
    meta.kind: meta for meta in (*OfBlocks.__subclasses__(), *Meta.__subclasses__()) if meta is not OfBlocks
}
