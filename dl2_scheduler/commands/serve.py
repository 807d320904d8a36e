"""`dl2 serve`: a policy drives jobs of this machine."""

import fcntl
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from dl2_scheduler.backends.local.clock import SystemClock
from dl2_scheduler.backends.local.cluster import LocalCluster
from dl2_scheduler.backends.local.elasticrun import ElasticrunRuntime
from dl2_scheduler.backends.local.isolation import Mode, machine_cores, make_isolation
from dl2_scheduler.backends.local.nodes import virtual_nodes
from dl2_scheduler.backends.local.records import Records
from dl2_scheduler.backends.local.tasks import TaskFiles
from dl2_scheduler.cluster.durations import seconds
from dl2_scheduler.cluster.errors import BadInput, Refused
from dl2_scheduler.cluster.template import SLOTS
from dl2_scheduler.commands.common import Folder, default_folder
from dl2_scheduler.commands.driving import Driving, driven, guard_of, limits_of
from dl2_scheduler.live.history import HISTORY_FILE, History
from dl2_scheduler.policies.placement import SPREAD, placement_rule

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def serve(
    slots: Annotated[str, typer.Option(metavar="NODESxSLOTS", help="Virtual nodes and the task slots of each: 2x8.")],
    policy: Annotated[
        str | None,
        typer.Option(help="Name of the policy; a wrong one lists them all. Left out: the one used last, at first drf."),
    ] = None,
    slot: Annotated[str, typer.Option(metavar="TIME", help="Between two decisions: 30s, 20m.")] = "20m",
    placement: Annotated[str, typer.Option(help="spread, pack or round-robin.")] = SPREAD,
    isolation: Annotated[Mode, typer.Option(help="By which tasks keep to their share of the cores.")] = Mode.AUTO,
    folder: Folder = None,
    most_changes: Annotated[int, typer.Option(help="Tasks that start or end in a slot, of all jobs.")] = 1000,
    least_slots: Annotated[int, typer.Option(help="From one scaling of a job to its next.")] = 1,
    guard_slots: Annotated[int, typer.Option(help="Bad slots in a row that end a learnt policy; 0: no guard.")] = 5,
    guard_margin: Annotated[float, typer.Option(help="Part by which a bad slot is worse than drf's.")] = 0.1,
    learn: Annotated[bool, typer.Option("--learn", help="The policy, dl2:RUN, goes on learning.")] = False,
) -> None:
    """Run a cluster on this machine, in the foreground. Its jobs outlive it, and a new one in the folder finds them."""
    nodes, length = virtual_nodes(slots), _slot_seconds(slot)
    limits, guard = limits_of(most_changes, least_slots), guard_of(guard_slots, guard_margin)
    driving = Driving(policy, placement_rule(placement), limits, guard, learn)
    state = (folder or default_folder()).absolute()
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    clock = SystemClock()
    with (
        _held(state),
        closing(Records(state / "jobs.sqlite", clock.now())) as records,
        closing(History(state / HISTORY_FILE)) as history,
    ):
        slots_in_all = sum(node.capacity[SLOTS] for node in nodes)
        tasks = TaskFiles(state / "tasks", make_isolation(isolation, state), machine_cores(), slots_in_all)
        runtime = ElasticrunRuntime(state, clock.wake, tasks)
        cluster = LocalCluster(nodes, length, records, runtime, clock, driving.rule)
        with _signals_to(cluster.close), driven(cluster, history, state, driving) as loop:
            typer.echo(f"dl2: serving {state}: {slots} task slots, {loop.policy}, slots of {length:g} s")
            typer.echo(f"dl2: isolation: {tasks.words}")
            loop.run()


def _slot_seconds(slot: str) -> float:
    try:
        return seconds(slot)
    except BadInput as error:
        raise BadInput(f"--slot: {error}") from error


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Nobody else serves the folder meanwhile; the kernel lets go of it with this process."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise BadInput(f"cannot use {folder}: {error.strerror}: give another --folder") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise Refused(f"another dl2 serve has {folder}: end it first, or give another --folder") from None
    finally:
        os.close(lock)


@contextmanager
def _signals_to(close: Callable[[], None]) -> Iterator[None]:
    def handle(_number: int, _frame: FrameType | None) -> None:
        close()

    before = {number: signal.signal(number, handle) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
