"""This module is `dl2 logs`: it prints the output of a job, or of one of its nodes."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from dl2_scheduler.backends.local.launchers.outputs import node_log
from dl2_scheduler.cluster.errors import ClusterRefused
from dl2_scheduler.commands.cluster.jobs import JobName
from dl2_scheduler.commands.cluster.kube_target import Where
from dl2_scheduler.commands.common import default_folder
from dl2_scheduler.live.client import ClusterClient
from elastic_ps.system.option_groups import grouped

_LOOK_SECONDS = 0.2
_PIECE = 1 << 16


@grouped
def logs(
    job: JobName,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as it is written, until the job ends.")] = False,
    tail: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="The last lines only; left out: all of them.")
    ] = None,
    node: Annotated[
        str,
        typer.Option(
            metavar="NODE", help="Of one node of the last start, as in w0; with --kube of one pod, as in worker-0."
        ),
    ] = "",
    *,
    where: Where,
) -> None:
    """Print the output of a job since its last start, or of one of its nodes."""
    with where.client() as client:
        if isinstance(client, ClusterClient):
            look = _file_of(client, where.folder or default_folder(), job, node)
            found = pieces(look, tail, follow, lambda: time.sleep(_LOOK_SECONDS))
        else:
            found = client.logs(job, node, follow, tail)
        for piece in found:
            sys.stdout.buffer.write(piece)
            sys.stdout.flush()


def _file_of(client: ClusterClient, folder: Path, job: str, node: str) -> Callable[[], tuple[Path, bool]]:
    """Return what tells which file it is now, and whether the job has ended.

    Raises:
        ClusterRefused: there is none.
    """
    status = client.status(job)
    if not status.log:
        raise ClusterRefused(f"{job} has no output: it has not begun ({status.reason or status.phase})")
    of_node = node_log(folder, job, node)
    if not node and not Path(status.log).exists():
        raise ClusterRefused(f"{job} has no output (yet): there is no {status.log}")
    if node and not of_node.exists():
        there = ", ".join(sorted(found.stem for found in of_node.parent.glob("*.log"))) or "none"
        raise ClusterRefused(f"{job} has no node {node} since its last start; there is output of: {there}")

    def look() -> tuple[Path, bool]:
        now = client.status(job)
        return of_node if node else Path(now.log), bool(now.ended)

    return look


def pieces(
    look: Callable[[], tuple[Path, bool]], tail: int | None, follow: bool, wait: Callable[[], None]
) -> Iterator[bytes]:
    """Yield what a file holds, and with `follow` what is added to it, in the file of each later start too.

    Args:
        look: which file it is now, and whether no more will come.
        tail: only the last lines of what is there at first; None: all.
        follow: until no more will come.
        wait: a moment.
    """
    path, ended = look()
    with ExitStack() as stack:
        file: BinaryIO = stack.enter_context(path.open("rb"))
        skip_to_tail(file, tail)
        yield from _rest(file)
        while follow and not ended:
            wait()
            path, ended = look()
            yield from _rest(file)  # after the question: what came before an end is there
            if _is_new(path, file):
                file = stack.enter_context(path.open("rb"))
                yield from _rest(file)


def _is_new(path: Path, file: BinaryIO) -> bool:
    """Return whether a later start has made another file; it may have said so before it made it."""
    return path.exists() and not os.path.samestat(path.stat(), os.fstat(file.fileno()))


def _rest(file: BinaryIO) -> Iterator[bytes]:
    return iter(lambda: file.read(_PIECE), b"")


def skip_to_tail(file: BinaryIO, lines: int | None) -> None:
    """Go to where the last lines of a file begin; None: to its beginning."""
    if lines is None:
        return
    end, size = file.seek(0, 2), _PIECE
    while True:
        start = max(0, end - size)
        file.seek(start)
        found = file.read(end - start).splitlines(keepends=True)
        if start == 0 or len(found) > lines:
            break
        size *= 4
    file.seek(end - sum(map(len, found[len(found) - min(lines, len(found)) :])))
