"""This module formats what an operator's tables say: units, times, states, columns."""

from collections import Counter
from datetime import UTC, datetime
from typing import Literal

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from protos import elastic_pb2 as pb

SHORT_STEPS = ("join", "assign", "migrate", "switch")
_STATE_STYLE = {
    "running": "green",
    "member": "green",
    "COMMITTED": "green",
    "shadow": "yellow",
    "joining": "yellow",
    "leaving": "yellow",
    "starting": "yellow",
    "restoring": "yellow",
    "rebuilding": "yellow",
    "away": "yellow",
    "elsewhere": "yellow",
    "failed": "red",
    "CANCELLED": "red",
    "DROPPED": "red",
    "lost": "red",
    "gone": "dim",
    "finished": "dim",
    "stopped": "dim",
}
_NUMBERS = frozenset(
    ["rank", "version", "epoch", "step ms", "samples/s", "lease", "pid", "bytes", "blocks", "moved", "suspend", "ms"]
)
_MAY_FOLD = frozenset(["nodes", "cause", "coordinator", "address", "job"])
_LEAST_FOLDED = 8  # characters of a line of those


class _Folding(Table):
    """A `_Folding` table folds columns of long texts in a narrow terminal, and the others where that is not enough."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        needed = 0
        for column in self.columns:
            cells = (column.header, *column.cells)
            widest = max(Measurement.get(console, options, cell).maximum for cell in cells)
            needed += 1 + (widest if column.no_wrap else min(widest, _LEAST_FOLDED))
        if needed > options.max_width:  # rich would cut them: a number that is cut is another
            for column in self.columns:
                column.no_wrap = False
        yield from super().__rich_console__(console, options)


def bytes_text(count: float) -> str:
    """Return bytes with a decimal unit: 102 MB."""
    if count < 1000:
        return f"{count:.0f} B"
    for unit in ("kB", "MB", "GB"):
        count /= 1000
        if count < 999.5:
            return f"{count:.3g} {unit}"
    return f"{count / 1000:.3g} TB"


def ms_text(milliseconds: float) -> str:
    """Return milliseconds, with a decimal where it says something."""
    return f"{milliseconds:.1f}" if milliseconds < 100 else f"{milliseconds:,.0f}"


def time_text(unix: float) -> str:
    """Return unix seconds in the reader's local time; "-" where they are unknown."""
    return datetime.fromtimestamp(unix, UTC).astimezone().strftime("%b %d %H:%M") if unix else "-"


def optional(value: float, text: str) -> str:
    """Return a reading's text, or "-" where there is none yet."""
    return text if value else "-"


def styled(state: str) -> Text:
    """Return a state in its colour."""
    return Text(state, _STATE_STYLE.get(state, ""))


def columns(*names: str) -> Table:
    """Return an empty table with these columns; numbers stand at the right."""
    made = _Folding(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False, header_style="bold")
    for column in names:
        right = column in _NUMBERS or column in SHORT_STEPS
        justify: Literal["left", "right"] = "right" if right else "left"
        made.add_column(column, justify=justify, overflow="fold", no_wrap=column not in _MAY_FOLD)
    return made


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return a count with its noun: "2 workers", "1 worker".

    Args:
        count: of things.
        noun: in the singular.
        plural: where it is not the noun with an s.
    """
    return f"{count} {noun}" if count == 1 else f"{count} {plural or noun + 's'}"


def transports(status: pb.StatusReply) -> tuple[str, str]:
    """Return the kinds of ways by which workers reach servers and, where one was not the first choice, why."""
    paths = [
        (f"{node.member.id} to {server}", *how.partition(": "))
        for node in status.nodes
        for server, how in sorted(node.transports.items())
    ]
    kinds = Counter(kind for _, kind, _, _ in paths)
    if len(kinds) > 1:
        text = ", ".join(f"{kind} on {counted(count, 'connection')}" for kind, count in sorted(kinds.items()))
    else:
        text = "".join(kinds)
    reasons = [f"{path}: {reason}" for path, _, _, reason in paths if reason]
    return text, "".join(reasons[:1]) + (f"; and {len(reasons) - 1} more" if reasons[1:] else "")


def protection_text(status: pb.StatusReply) -> str:
    """Return how much of a job is protected, and why not all is; "" where it asks for no replicas, or has ended."""
    if not status.HasField("protection"):
        return ""
    found = status.protection
    share = f"{protected_percent(status)}% ({found.blocks} of {status.blocks} blocks)" if status.blocks else ""
    return ": ".join(filter(None, (share, found.why)))


def protected_percent(status: pb.StatusReply) -> int:
    """Return how much of a job's parameters is protected; below 100 as long as anything is not."""
    found = status.protection
    whole = 0 < status.blocks <= found.blocks
    return 100 if whole else min(99, 100 * found.bytes // max(1, status.bytes))
