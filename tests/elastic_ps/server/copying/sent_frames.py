from typing import Any

from elastic_ps.transport.frame_metas import RecordMeta
from elastic_ps.transport.frames import Frame


class SentFrames:
    """A link that keeps what is sent."""

    closed, is_idle, backlog = False, True, 0

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.connection = self
        self.shared = ()

    def enqueue(self, frame: Frame, *_: Any) -> None:
        self.frames.append(frame)

    def withdraw(self) -> None:
        self.frames.clear()

    def told(self) -> list[int]:
        """The entries that have been told, by number."""
        records = (frame.meta for frame in self.frames if isinstance(frame.meta, RecordMeta))
        return [meta.written.sequence for meta in records if meta.written is not None]
