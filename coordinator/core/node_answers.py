"""Events of this module are nodes' answers to directives; each is named after its kind in protos/elastic.proto."""

from dataclasses import dataclass

from coordinator.core.events import JobEvent
from elastic_ps.core.configuration import ConfigId, NodeId


class NodeAnswer(JobEvent):
    """Base of answers to directives."""


@dataclass(frozen=True)
class Prepared(NodeAnswer):
    """PREPARED."""

    node: NodeId
    number: ConfigId
    version: int = 0


@dataclass(frozen=True)
class Synced(NodeAnswer):
    """SYNCED; `detail` "pause": its remaining blocks go at the clock."""

    node: NodeId
    number: ConfigId
    version: int = 0
    detail: str = ""


@dataclass(frozen=True)
class Armed(NodeAnswer):
    """ARMED."""

    node: NodeId
    number: ConfigId
    version: int = 0


@dataclass(frozen=True)
class Late(NodeAnswer):
    """LATE: to Arm, or to Save."""

    node: NodeId
    number: ConfigId
    version: int = 0


@dataclass(frozen=True)
class Switched(NodeAnswer):
    """SWITCHED."""

    node: NodeId
    number: ConfigId
    version: int = 0
    suspension_ms: float = 0.0
    bytes_moved: int = 0


@dataclass(frozen=True)
class Arrived(NodeAnswer):
    """ARRIVED."""

    node: NodeId
    number: ConfigId


@dataclass(frozen=True)
class Extended(NodeAnswer):
    """EXTENDED."""

    node: NodeId


@dataclass(frozen=True)
class Forgotten(NodeAnswer):
    """CANCELLED."""

    node: NodeId
    number: ConfigId


@dataclass(frozen=True)
class Saved(NodeAnswer):
    """SAVED; `detail` is JSON of the blocks written."""

    node: NodeId
    version: int
    detail: str


@dataclass(frozen=True)
class CheckpointUnreadable(NodeAnswer):
    """UNREADABLE, or (not `damaged`) UNREAD; `detail` says why."""

    node: NodeId
    number: ConfigId
    detail: str
    damaged: bool = True


@dataclass(frozen=True)
class Commanded(NodeAnswer):
    """COMMANDED; `error` "" is success."""

    node: NodeId
    command: int
    error: str = ""


@dataclass(frozen=True)
class Tried(NodeAnswer):
    """TRIED; `error` "" is success."""

    node: NodeId
    optimizer: str
    error: str = ""


@dataclass(frozen=True)
class Broken(NodeAnswer):
    """BROKEN; `detail` says why."""

    node: NodeId
    detail: str
