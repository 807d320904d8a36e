"""Events of this module are nodes' answers to directives; each is named after its kind in protos/elastic.proto."""

from dataclasses import dataclass

from coordinator.core.events import JobEvent
from coordinator.core.plans.promotion import Holding
from elastic_ps.core.configuration import ConfigId, NodeId


class NodeAnswer(JobEvent):
    """A node answers a directive."""


@dataclass(frozen=True)
class Prepared(NodeAnswer):
    """A node holds the plan's configuration ready (PREPARED); after a server's death it says what it has of blocks."""

    node: NodeId
    number: ConfigId
    version: int = 0
    holdings: tuple[Holding, ...] = ()


@dataclass(frozen=True)
class Synced(NodeAnswer):
    """A node has caught up (SYNCED); `detail` "pause": its remaining blocks go at the clock."""

    node: NodeId
    number: ConfigId
    version: int = 0
    detail: str = ""


@dataclass(frozen=True)
class Armed(NodeAnswer):
    """A node will switch at the clock (ARMED)."""

    node: NodeId
    number: ConfigId
    version: int = 0


@dataclass(frozen=True)
class Late(NodeAnswer):
    """A node is past the clock of an Arm or of a Save (LATE)."""

    node: NodeId
    number: ConfigId
    version: int = 0


@dataclass(frozen=True)
class Switched(NodeAnswer):
    """A node has switched to the plan's configuration (SWITCHED)."""

    node: NodeId
    number: ConfigId
    version: int = 0
    suspension_ms: float = 0.0
    bytes_moved: int = 0


@dataclass(frozen=True)
class Arrived(NodeAnswer):
    """A server holds all its new blocks (ARRIVED)."""

    node: NodeId
    number: ConfigId


@dataclass(frozen=True)
class Followed(NodeAnswer):
    """A server's followers have all that its blocks have come to (FOLLOWED)."""

    node: NodeId
    number: ConfigId


@dataclass(frozen=True)
class Extended(NodeAnswer):
    """A node knows all that was declared when the job had grown `growth` times (EXTENDED)."""

    node: NodeId
    growth: int


@dataclass(frozen=True)
class Forgotten(NodeAnswer):
    """A node has forgotten a cancelled configuration (CANCELLED)."""

    node: NodeId
    number: ConfigId


@dataclass(frozen=True)
class Saved(NodeAnswer):
    """A server has written its blocks (SAVED); `detail` is JSON that says where."""

    node: NodeId
    version: int
    detail: str


@dataclass(frozen=True)
class CheckpointUnreadable(NodeAnswer):
    """A server cannot load a checkpoint that is damaged (UNREADABLE), or cannot now (UNREAD); `detail` says why."""

    node: NodeId
    number: ConfigId
    detail: str
    damaged: bool = True


@dataclass(frozen=True)
class Commanded(NodeAnswer):
    """A server has run a command (COMMANDED); `error` "" is success."""

    node: NodeId
    command: int
    error: str = ""


@dataclass(frozen=True)
class Tried(NodeAnswer):
    """A server has tried an optimizer (TRIED); `error` "" is success."""

    node: NodeId
    optimizer: str
    error: str = ""


@dataclass(frozen=True)
class Broken(NodeAnswer):
    """A node cannot go on (BROKEN); `detail` says why."""

    node: NodeId
    detail: str
