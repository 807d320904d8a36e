"""The story of a world: what each process has said, and what was done to it, by virtual time."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from tests.world.kernel.threads import here


class Story(logging.Handler):
    """A `Story` keeps lines. It is what production logs to.

    Args:
        folder: a path that differs between runs; it is left out.
    """

    def __init__(self, folder: str):
        super().__init__()
        self._folder = folder
        self.lines: list[tuple[float, str, str]] = []

    def tell(self, who: str, text: str) -> None:
        """Add a line."""
        now = here.scheduler.now if here.scheduler is not None else 0.0
        if here.scheduler is not None and here.scheduler.over:
            return  # what ends now ends with its world
        self.lines.append((now, who, text.rstrip().replace(self._folder, "FOLDER")))

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler`."""
        task = here.scheduler.current if here.scheduler is not None else None
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            text += f" [{record.exc_info[1]!r}]"
        self.tell(task.process.name if task is not None else "-", f"{record.levelname.lower()}: {text}")

    def text(self, who: str = "") -> str:
        """Return all of it, or what concerns one process."""
        chosen = (line for line in self.lines if who in ("", line[1]))
        return "\n".join(f"{now:9.4f} {name:<14} {text}" for now, name, text in chosen)

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Let production log here alone while the block runs."""
        root = logging.getLogger()
        handlers, level = root.handlers[:], root.level
        root.handlers[:] = [self]
        root.setLevel(logging.INFO)
        found = logging._srcfile  # type: ignore[attr-defined]
        logging._srcfile = None  # type: ignore[attr-defined]  # nobody asks from which line something was logged
        asyncio_level = logging.getLogger("asyncio").level
        logging.getLogger("asyncio").setLevel(logging.CRITICAL)
        try:
            yield
        finally:
            root.handlers[:] = handlers
            root.setLevel(level)
            logging._srcfile = found  # type: ignore[attr-defined]
            logging.getLogger("asyncio").setLevel(asyncio_level)
