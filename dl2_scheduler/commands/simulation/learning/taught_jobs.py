"""This module says in which clusters placement policies learn, and from which jobs, by options of a command."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import typer

from dl2_scheduler.cluster.durations import seconds
from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.hardware.machines import CPU, GPU
from dl2_scheduler.cluster.hardware.profiles import Profile
from dl2_scheduler.cluster.hardware.topologies.flat import flat_of
from dl2_scheduler.cluster.jobs import Resources
from dl2_scheduler.commands.simulation.world_options import WorldOptions, cpus_and_gpus, plain_machines
from dl2_scheduler.policies.placement.speed_model import SpeedModel
from dl2_scheduler.sim.arrivals import Pattern
from dl2_scheduler.sim.placed.scenario import Scenario
from dl2_scheduler.sim.placed.workloads import Workload
from dl2_scheduler.sim.placed.worlds import WorldType
from dl2_scheduler.sim.trace import parse_cluster

_MOST_TASKS = 6  # of a role: for more there are too many places that a job alone may have


@dataclass(frozen=True)
class TaughtJobs:
    """These `TaughtJobs` say in which clusters a placement policy learns, and which jobs come there."""

    cluster: Annotated[
        str | None,
        typer.Option(
            help="Nodes, as in 2x8slots or 6x16cpu,2gpu; with --world left out: Harmony's.", show_default=False
        ),
    ] = None
    worker: Annotated[
        str | None, typer.Option(help="What a worker takes, as in 4cpu,1gpu; left out: as MODEL says.")
    ] = None
    server: Annotated[str | None, typer.Option(help="What a server takes, likewise.")] = None
    load: Annotated[str, typer.Option(help="Jobs an interval; several, joined by commas: it learns for each.")] = "2,3"
    pattern: Annotated[Pattern, typer.Option(help="Of arrivals.")] = Pattern.UNIFORM
    interval: Annotated[
        str, typer.Option(metavar="TIME", help="Between two decisions: 30s, 20m; a job takes 0.5 to 2.5 of it alone.")
    ] = "20m"
    tasks: Annotated[int, typer.Option(min=1, max=_MOST_TASKS, help="Workers, and servers, of a job at most.")] = 3
    jobs: Annotated[int, typer.Option(min=1, max=10_000, help="Of a sequence.")] = 60

    def of_model(self, model: SpeedModel) -> list[Scenario]:
        """Return a scenario for each load, in the world of what was fitted. Raises BadInput."""
        if model.speeds is None or not model.profiles:
            raise BadInput(
                "learning takes speeds.npz and profiles.json: give a folder that dl2 fit --places has written"
            )
        if self.cluster is None:
            raise BadInput("give --cluster, the nodes that --model is to place jobs on: 2x8slots, as of dl2 serve")
        machines = plain_machines(self.cluster)
        worker, server = self._taken("--worker", self.worker), self._taken("--server", self.server)
        profiles: dict[str, Profile] = {
            name: replace(each, worker=worker or each.worker, server=server or each.server)
            for name, each in model.profiles.items()
        }
        where = machines, flat_of(machines), profiles, model.speeds
        return self._checked([Scenario(*where, Workload(profiles, mean=load)) for load in self.loads])

    def of_world(self, world: WorldType) -> list[Scenario]:
        """Return a scenario for each load, in a simulated world. Raises BadInput."""
        if world is WorldType.MEASURED:
            raise BadInput(
                "--world measured: give --model MODEL, which dl2 fit --places MODEL --table FILE fits to a table"
            )
        if self.worker is not None or self.server is not None:
            raise BadInput("--worker, --server: tasks of a world have their own: leave them out with --world")
        found = [WorldOptions(world, load=load, pattern=self.pattern).setting(self.cluster) for load in self.loads]
        return self._checked(found)

    @property
    def loads(self) -> list[float]:
        """The jobs of an interval. Raises BadInput."""
        try:
            found = [float(text) for text in self.load.split(",")]
        except ValueError:
            raise BadInput(f"--load is {self.load}: give numbers joined by commas, as in 2,3") from None
        if len(set(found)) < len(found):
            raise BadInput(f"--load is {self.load}: give each load once")
        return found

    def _taken(self, option: str, text: str | None) -> Resources | None:
        """Return what a task takes; None: it was not said. Raises BadInput."""
        if text is None:
            return None
        try:
            (node,) = parse_cluster(f"1x{text}")
        except BadInput as error:
            raise BadInput(f"{option} is {text}: give amounts of cpu (or slots) and gpu, as in 4cpu,1gpu") from error
        return dict(zip((CPU, GPU), cpus_and_gpus(node, option), strict=True))

    def _checked(self, scenarios: Sequence[Scenario]) -> list[Scenario]:
        """Return the scenarios with jobs as they were asked for. Raises BadInput: some fit nowhere."""
        length = seconds(self.interval)
        found = [
            replace(
                each,
                workload=replace(
                    each.workload, interval_seconds=length, jobs=self.jobs, most=self.tasks, pattern=self.pattern
                ),
            )
            for each in scenarios
        ]
        for model in found[0].profiles:
            found[0].speed_alone(model, self.tasks, self.tasks)
        return found
