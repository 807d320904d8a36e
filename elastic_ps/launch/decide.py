"""This module decides what a launcher does next, from what the coordinator wants, what runs here, and what has died.

All functions are pure. The coordinator alone decides how many nodes a job has and which of them leave; the launcher
supplies processes. It starts what is wanted beyond the processes that have not registered yet, takes back such
processes when they are no longer wanted, and never ends a registered node: that one drains, or is stopped, through its
coordinator. Only a process whose node the coordinator has given up, which may be frozen and not hear of it, is killed.
"""

import re
import signal
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from elastic_ps.core.configuration import Role
from elastic_ps.core.errors import EXIT_RESTART
from elastic_ps.core.exit_status import signal_of
from elastic_ps.core.script_hints import HOW_TO_JOIN
from elastic_ps.launch.restart_budget import RestartBudget
from protos import elastic_pb2 as pb


@dataclass(frozen=True, slots=True)
class WantedNodes:
    """A `WantedNodes` is the coordinator's latest word to launchers.

    Attributes:
        counts: nodes that the job shall have, by role; shown to people.
        starting: processes to start now, by role, beyond those that have registered.
        leaving: ids of nodes that end by themselves.
        nodes: id by nonce of every node that is registered and alive.
        joining: ids of those that do not belong to the job's configuration yet.
        expelled: nonces of processes that the job goes on without, though nobody saw them end.
        evicted: those of them that a person wanted to go.
        restarting: nonces of processes that end with `EXIT_RESTART`, as the job goes back to its checkpoint.
        ended: the job is over; `failed` and `reason` say how.
    """

    counts: Mapping[Role, int] = field(default_factory=dict)
    starting: Mapping[Role, int] = field(default_factory=dict)
    leaving: frozenset[str] = frozenset()
    nodes: Mapping[str, str] = field(default_factory=dict)
    joining: frozenset[str] = frozenset()
    expelled: frozenset[str] = frozenset()
    evicted: frozenset[str] = frozenset()
    restarting: frozenset[str] = frozenset()
    ended: bool = False
    failed: bool = False
    reason: str = ""

    @staticmethod
    def from_pb(message: pb.Wanted) -> "WantedNodes":
        """Decode the coordinator's message."""
        return WantedNodes(
            counts={Role.WORKER: message.workers, Role.SERVER: message.servers},
            starting={Role.WORKER: message.starting_workers, Role.SERVER: message.starting_servers},
            leaving=frozenset(message.leaving),
            nodes=dict(zip(message.nonces, message.nodes, strict=True)),
            joining=frozenset(message.joining),
            expelled=frozenset(message.expelled),
            evicted=frozenset(message.evicted),
            restarting=frozenset(message.restarting),
            ended=message.ended,
            failed=message.failed,
            reason=message.reason,
        )

    @property
    def members(self) -> int:
        """The number of nodes that belong to the job's configuration."""
        return len(self.nodes) - len(self.joining)


@dataclass(frozen=True, slots=True)
class LocalProcess:
    """A `LocalProcess` is a process of this launcher, as its decisions see it.

    Attributes:
        nonce: the launcher's name for it.
        role: what it does.
        node: its id in the job; "" until it has registered.
        joined: it belongs to the job's configuration, or has.
        leaving: the coordinator has said that it ends by itself.
        expelled: the job goes on without it, though nobody saw it end: it may be frozen.
        evicted: because a person wanted it to go.
        restarting: the job has gone back to its checkpoint since it came, and begins with others.
        ending: this launcher wants it to end.
        signalled: and has sent it a signal.
    """

    nonce: str
    role: Role
    node: str = ""
    joined: bool = False
    leaving: bool = False
    expelled: bool = False
    evicted: bool = False
    restarting: bool = False
    ending: bool = False
    signalled: bool = False

    @property
    def name(self) -> str:
        """The id where it is known, else the nonce; for people."""
        return self.node or self.nonce


FIRST_PAUSE = 1.0
LONGEST_PAUSE = 30.0
LONGEST_PAUSE_OF_COORDINATOR = 8.0
"""Seconds; it is shorter, as a job that draws its batches from the coordinator stands still meanwhile."""
SETTLED_SECONDS = 60.0
"""How long a coordinator has to run until its next end counts as a first one."""


def pause(ends: int, longest: float = LONGEST_PAUSE) -> float:
    """Return the seconds until what has ended `ends` times in a row is started again: at first none.

    Args:
        ends: how often it has ended.
        longest: seconds that it takes at most.
    """
    return 0.0 if ends < 2 else min(longest, FIRST_PAUSE * 2.0 ** min(ends - 2, 30))


def when(seconds: float) -> str:
    """Return in how many seconds something is done, for people."""
    return f"in {seconds:g} s" if seconds else "now"


@dataclass(frozen=True, slots=True)
class StartProcesses:
    """The launcher starts `count` processes."""

    role: Role
    count: int


@dataclass(frozen=True, slots=True)
class EndProcess:
    """The launcher ends a process that is no longer wanted and has not registered."""

    nonce: str


@dataclass(frozen=True, slots=True)
class Finish:
    """The coordinator has ended the job: the launcher lets the processes end by themselves, then leaves."""

    failed: bool
    reason: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The launcher ends the job as failed: more has died than may be mended."""

    reason: str


Action = StartProcesses | EndProcess | Finish | GiveUp


def observe(processes: Iterable[LocalProcess], wanted: WantedNodes) -> tuple[LocalProcess, ...]:
    """Return the processes with what `wanted` tells about them. Ids and departures are remembered once told."""
    return tuple(
        replace(
            process,
            node=(node := process.node or wanted.nodes.get(process.nonce, "")),
            joined=process.joined or (process.nonce in wanted.nodes and node not in wanted.joining),
            leaving=process.leaving or node in wanted.leaving,
            expelled=process.expelled or process.nonce in wanted.expelled,
            evicted=process.evicted or process.nonce in wanted.evicted,
            restarting=process.restarting or process.nonce in wanted.restarting,
        )
        for process in processes
    )


def outdated(processes: Iterable[LocalProcess], wanted: WantedNodes) -> tuple[str, ...]:
    """Return the nonces of processes that a restore ends and that have no time to end by yet."""
    return tuple(process.nonce for process in processes if process.nonce in wanted.restarting and not process.ending)


def is_death(process: LocalProcess, status: int, wanted: WantedNodes | None) -> bool:
    """Return whether the exit of a process counts against `--max-restarts`.

    Args:
        process: that has exited.
        status: its exit status.
        wanted: the coordinator's latest word; None before the first.

    A node that drained or finished exits 0, a job that restores itself exits `EXIT_RESTART`, and what this launcher,
    a person or the job's end has ended is no surprise. Status 0 without ever having registered is one: the script never
    joined.
    """
    if process.ending or process.leaving or process.evicted or status == EXIT_RESTART:
        return False
    if wanted is not None and wanted.ended:
        return False
    return status != 0 or not process.node


def ended_early(process: LocalProcess, status: int, wanted: WantedNodes | None) -> bool:
    """Return whether a process ended well before it belonged to the job, and nobody is known to have told it to.

    Args:
        process: that has exited.
        status: its exit status.
        wanted: the coordinator's latest word; None before the first.

    It is no death: it may have joined, trained and ended since that word. Else it is wanted again, and the next one may
    end likewise.
    """
    told = process.ending or process.leaving or process.expelled or process.evicted or process.restarting
    over = wanted is not None and wanted.ended
    return status == 0 and bool(process.node) and not (process.joined or told or over)


def is_failure(process: LocalProcess, status: int, wanted: WantedNodes | None) -> bool:
    """Return whether a job that has finished has failed all the same: a worker of it ended so by itself.

    Args:
        process: that has exited.
        status: its exit status.
        wanted: the coordinator's latest word; None before the first.

    One that the job had gone on without is none: a frozen process wakes up and ends, or is killed, at any time. A
    coordinator that has begun anew without a journal may not even know of it. Nor is one that was to join it, and came
    too late to do any of its work.
    """
    unknown = wanted is not None and process.nonce not in wanted.nodes
    gone_on_without = unknown or process.expelled or process.evicted or process.leaving or process.restarting
    worker = process.role is Role.WORKER and process.joined and not gone_on_without
    return worker and not process.signalled and status not in (0, EXIT_RESTART)


def describe_death(process: LocalProcess, status: int, log: str, said: str = "") -> str:
    """Return a death in words, with where to read about it.

    Args:
        process: that has died.
        status: its exit status.
        log: path of its log.
        said: the last line of that.
    """
    if status == 0:
        hint = "" if process.role is Role.SERVER else f"; {HOW_TO_JOIN}"
        return f"{process.role} {process.name} ended without having joined the job{hint} (log: {log})"
    if process.expelled:
        return (
            f"{process.role} {process.name} was silent or cut off for too long, and its process has ended (log: {log})"
        )
    told = f": {said}" if said else ""
    by_signal = signal_of(status)
    how = f"was killed by {_signal_name(by_signal)}" if by_signal else f"exited with status {status}{told}"
    return f"{process.role} {process.name} {how} (log: {log})"


def with_death(reason: str, name: str, death: str) -> str:
    """Return why a job has failed, with how a node died that this names: the cause may be in its script.

    Args:
        reason: the coordinator's, which has read no log.
        name: the node's.
        death: as of `describe_death`.
    """
    return f"{reason}; {death}" if name in re.findall(r"[\w-]+", reason) else reason


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # Python has no names for those of real time
        return f"signal {number}"


def plan(
    wanted: WantedNodes | None,
    processes: Sequence[LocalProcess],
    budget: RestartBudget,
    resting: Collection[Role] = (),
    away: Mapping[Role, int] = MappingProxyType({}),
) -> tuple[Action, ...]:
    """Return what to do now.

    Args:
        wanted: the coordinator's latest word; None before the first.
        processes: those that run, after `observe`.
        budget: deaths so far.
        resting: roles of which none is started yet.
        away: processes by role that other launchers start again after a restore.

    Returns:
        Actions in the order to take them. The same arguments give the same actions, so the caller applies them
        (a `StartProcesses` adds to `processes`, an `EndProcess` marks one as ending) before it asks again.
    """
    if wanted is not None and wanted.ended:
        return (Finish(wanted.failed, wanted.reason),)
    if budget.exhausted:
        mended = f"--max-restarts {budget.allowed}"
        return (GiveUp(f"{budget.deaths[-1]}; {mended} has been used up" if budget.allowed else budget.deaths[-1]),)
    if wanted is None:
        return ()
    roles = (Role.SERVER, Role.WORKER)
    actions = [action for role in roles for action in _match(wanted, processes, role, away.get(role, 0))]
    return tuple(action for action in actions if not (isinstance(action, StartProcesses) and action.role in resting))


def _match(wanted: WantedNodes, processes: Sequence[LocalProcess], role: Role, away: int) -> Iterable[Action]:
    """Start or end processes of one role. The newest unregistered ones go first: they have done least."""
    pending = [process for process in processes if process.role is role and not process.node and not process.ending]
    missing = wanted.starting.get(role, 0) - len(pending)
    if missing > away:
        yield StartProcesses(role, missing - away)
    for process in pending[len(pending) + min(missing, 0) :]:
        yield EndProcess(process.nonce)
