"""Figures 11 and 12 tell what scaling costs live jobs that train known networks on this machine."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

from dl2_scheduler.backends.trial import Trial, restarted
from dl2_scheduler.cluster.errors import TrialFailed
from dl2_scheduler.figures.draw import Panel, Picture, Row, Series
from dl2_scheduler.sim.metrics import estimate
from protos import elastic_pb2 as pb

LIVE, PAUSE, RESTART = "live", "pause, the paper's", "checkpoint and restart"

_STEPS = ("registration", "assignment", "migration", "worker update")
_MODES = {LIVE: pb.LIVE, PAUSE: pb.PAUSE}
_SETTLED = 5  # steps before a change, so that none is measured in another's wake


@dataclass(frozen=True)
class LiveScale:
    """This scale says how much is measured.

    Attributes:
        network: of figure 11, by the name that the framework's model zoo has for it.
        joining: how many servers come in one plan, in figure 11.
        plans: of each kind.
        restarts: for each number of servers.
        networks: of figure 12; one server comes in each plan.
    """

    network: str = "resnet50_v1"
    joining: tuple[int, ...] = (1, 2, 4)
    plans: int = 5
    restarts: int = 2
    networks: tuple[str, ...] = ("mobilenet0.25", "mobilenet1.0", "resnet18_v1", "resnet50_v1", "vgg16")


@dataclass(frozen=True)
class LiveJobs:
    """Where live figures get their jobs from.

    Attributes:
        folder: for their states and logs.
        scale: of the experiments.
        seed: of the order of the samples.
        tell: told what is done next.
    """

    folder: Path
    scale: LiveScale
    seed: int
    tell: Callable[[str], None]

    @property
    def options(self) -> tuple[str, ...]:
        """The options of elasticrun."""
        return ("--seed", str(self.seed))


@dataclass(frozen=True)
class ServerJoin:
    """This is what a plan took in which servers joined; milliseconds.

    Attributes:
        steps: of the protocol's four, in its order; without the start of processes.
        start: of the slowest new process: from its birth to its registration.
        suspensions: of each worker.
    """

    steps: tuple[float, ...]
    start: float
    suspensions: tuple[float, ...]


def suspensions(live: LiveJobs) -> Picture:
    """Draw how long workers stand still when servers are added (DL2, figure 11).

    Live and pause are the same protocol; in the one the new servers follow the running job before they take over, in
    the other, the paper's, workers wait for the blocks. A restart counts from the request to the first step after it.
    """
    scale, found = live.scale, dict[tuple[str, int], Sequence[float]]()
    for mode in _MODES:
        changes, _ = _changes(live, scale.network, scale.joining, mode)
        for joining, some in changes.items():
            found[mode, joining] = [ms for change in some for ms in change.suspensions]
    for joining in scale.joining:
        live.tell(f"{scale.network}: {RESTART}, {joining} more")
        found[RESTART, joining] = [1000 * _restart(live, joining, number) for number in range(scale.restarts)]
    return suspension_picture(found)


def suspension_picture(found: Mapping[tuple[str, int], Sequence[float]]) -> Picture:
    """Draw milliseconds that workers stood still, by how it was done and by the number of servers added."""
    rows: list[Row] = [
        {
            "how": how,
            "servers_added": joining,
            "suspensions": len(values),
            "mean_ms": estimate(values).mean,
            "margin": estimate(values).margin,
            "least_ms": min(values),
            "most_ms": max(values),
        }
        for (how, joining), values in found.items()
    ]
    series = [
        Series(
            how,
            [str(row["servers_added"]) for row in rows if row["how"] == how],
            [row["mean_ms"] for row in rows if row["how"] == how],
            [None for row in rows if row["how"] == how],  # on a logarithmic axis an interval says nothing
        )
        for how in dict.fromkeys(how for how, _ in found)
    ]
    label = "mean suspension of a worker, ms"
    return Picture([Panel("servers added", series, y_label=label, width=1.6, logarithmic=True)], rows)


def protocol_steps(live: LiveJobs) -> Picture:
    """Draw how long each of the protocol's steps takes when a server is added, by network (DL2, figure 12)."""
    measured = {}
    for network in live.scale.networks:
        changes, size = _changes(live, network, (1,), PAUSE)
        measured[network, size] = changes[1]
    return steps_picture(measured)


def steps_picture(measured: Mapping[tuple[str, int], Sequence[ServerJoin]]) -> Picture:
    """Draw changes, by network and its bytes."""
    rows: list[Row] = [
        {
            "network": network,
            "megabytes": size / 1e6,
            "plans": len(changes),
            **{
                f"{name.replace(' ', '_')}_ms": statistics.median(change.steps[number] for change in changes)
                for number, name in enumerate(_STEPS)
            },
            "process_start_ms": statistics.median(change.start for change in changes),
            "suspension_ms": statistics.median(ms for change in changes for ms in change.suspensions),
        }
        for (network, size), changes in sorted(measured.items(), key=lambda item: item[0][1])
    ]
    names = [f"{row['network']}\n{row['megabytes']:.0f} MB" for row in rows]
    series = [
        Series(step, names, [row[f"{step.replace(' ', '_')}_ms"] for row in rows], [None] * len(rows))
        for step in _STEPS
    ]
    panel = Panel("", series, y_label="median of a server's addition, ms", width=2.2, logarithmic=True)
    return Picture([panel], rows)


def _changes(
    live: LiveJobs, network: str, joining: Sequence[int], mode: str
) -> tuple[Mapping[int, Sequence[ServerJoin]], int]:
    """Return the changes by the number of servers that joined, and the model's bytes."""
    changes: dict[int, list[ServerJoin]] = {more: [] for more in joining}
    module = _training(network)
    with Trial(live.folder, f"{network}-{mode.split(',')[0]}", module, 2, 1, live.options) as job:
        job.until(_SETTLED)
        size = int(job.client.status().bytes)
        for number in range(live.scale.plans):
            live.tell(f"{network}: {mode}, round {number + 1} of {live.scale.plans}")
            for more in joining:
                plan = job.scale(1 + more, _MODES[mode])
                changes[more].append(change_of(plan, job.start_seconds))
                job.until(plan.clock + _SETTLED)
                back = job.scale(1, pb.PAUSE)  # only to get back, so as fast as it goes
                job.until(back.clock + _SETTLED)
    return changes, size


def _training(network: str) -> list[str]:
    """Return the module that trains a network, with its argument: a framework's adapter offers it as an entry point."""
    offered = sorted(entry_points(group="dl2.networks"), key=lambda point: point.name)
    if not offered:
        raise TrialFailed('no adapter offers networks to train (entry points "dl2.networks"): run `make setup` again')
    return [offered[0].module, network]


def change_of(plan: "pb.Plan", start_seconds: Mapping[str, float]) -> ServerJoin:
    """Return what a committed plan tells.

    Args:
        plan: its registration is from the request until all new processes have registered.
        start_seconds: of the new nodes' processes.
    """
    start = 1000 * max(start_seconds[node] for node in plan.joined)
    registration, *later = plan.steps_ms
    return ServerJoin((max(0.0, registration - start), *later), start, tuple(plan.suspension_ms.values()))


def _restart(live: LiveJobs, joining: int, number: int) -> float:
    name = f"{live.scale.network}-restart-{joining}-{number}"
    module = _training(live.scale.network)
    return restarted(live.folder, name, module, 2, (1, 1 + joining), live.options)
