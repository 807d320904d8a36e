"""One sequence of jobs, decision by decision, in the simulator: what is below the single and the vector environment."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.free_resources import FreeResources, NodeRule
from dl2_scheduler.cluster.jobs import Node
from dl2_scheduler.cluster.snapshot import Allocation, Grant
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.gym.reward import slot_reward
from dl2_scheduler.policies.learnt.actions import ACTIONS
from dl2_scheduler.policies.learnt.features import F32
from dl2_scheduler.policies.learnt.paper.batched import Filling, row_width, write_row
from dl2_scheduler.sim.arrivals import Pattern, generate
from dl2_scheduler.sim.catalogue import CATALOGUE
from dl2_scheduler.sim.lanes import MEASURED, ScalingCost
from dl2_scheduler.sim.shipped import shipped_speeds
from dl2_scheduler.sim.simulator import SimulatedCluster, check_jobs
from dl2_scheduler.sim.speeds import interpolated, read_points
from dl2_scheduler.sim.trace import parse_cluster

Int8s = NDArray[np.int8]

SEQUENCES = 1 << 30
"""Those that resets draw have numbers below; those from here on judge policies, as in `learning.lessons`."""

_MOST_TASKS = 16  # of one role, of a generated job


@dataclass(frozen=True)
class EpisodeSettings:
    """These settings say what an environment is of.

    Attributes:
        cluster: nodes, as in `24x8cpu,8gpu`, or a file of them.
        jobs: of a sequence.
        pattern: of arrivals: google, poisson or uniform.
        speeds: a table of measurements; None: the shipped speeds.
        places: J, jobs that are seen at once.
        most_slots: after which an episode is cut off.
        minimum: see `batched.slot_of`.
        cost: of scaling.
        rule: by which tasks find their node.
        nodes: of the cluster.
        pace: speeds of the models.

    Raises:
        BadInput: one of them cannot be; the text says which.
    """

    cluster: str = "24x8cpu,8gpu"
    jobs: int = 60
    pattern: str = "google"
    speeds: str | None = None
    places: int = 20
    most_slots: int = 1000
    minimum: bool = True
    cost: ScalingCost = MEASURED
    rule: NodeRule = NodeRule.SPREAD
    nodes: tuple[Node, ...] = field(init=False)
    pace: Speeds = field(init=False)

    def __post_init__(self) -> None:
        for name in ("jobs", "places", "most_slots"):
            if getattr(self, name) < 1:
                raise BadInput(f"{name} is {getattr(self, name)}: give a whole number from 1 on")
        if self.pattern not in list(Pattern):
            raise BadInput(f"no pattern {self.pattern!r}: give one of {', '.join(Pattern)}")
        object.__setattr__(self, "nodes", parse_cluster(self.cluster))
        object.__setattr__(self, "pace", self._speeds())
        each = [generate(Pattern.UNIFORM, 1, 0, {model: 1.0})[0] for model in CATALOGUE]
        check_jobs(each, self.nodes, self.pace)

    def _speeds(self) -> Speeds:
        if self.speeds is None:
            return shipped_speeds(_MOST_TASKS, _MOST_TASKS)
        return interpolated(read_points(Path(self.speeds)), _MOST_TASKS, _MOST_TASKS)

    def simulated(self, sequence: int) -> SimulatedCluster:
        """Return the start of a sequence of jobs. Raises BadInput: there is no sequence of that number."""
        jobs = generate(Pattern(self.pattern), self.jobs, sequence)
        return SimulatedCluster(jobs, self.nodes, self.pace, cost=self.cost)

    @property
    def actions(self) -> int:
        """Return how many there are."""
        return self.places * ACTIONS + 1

    @property
    def high(self) -> F32:
        """The largest observation, (J, `row_width`); the least is 0."""
        models = len(self.pace.models)
        row = np.ones(row_width(models), dtype=np.float32)
        row[models] = np.log1p(self.most_slots) / 4.0
        row[models + 2] = self.places * 1.001  # sums of shares may pass the whole by rounding
        return np.tile(row, (self.places, 1))


class GymEpisode:
    """See `ClusterEnv`: slots without a decision pass by themselves, and their reward is the next step's.

    Args:
        settings: of it.
        sequence: number of the jobs'.

    Attributes:
        terminated: all jobs have ended.
        truncated: it was cut off before.
        cluster: as it is now.
    """

    def __init__(self, settings: EpisodeSettings, sequence: int):
        self.cluster = settings.simulated(sequence)
        self._settings = settings
        self._unpaid = 0.0
        self._open()

    @property
    def over(self) -> bool:
        """Return whether it is terminated or truncated."""
        return self.terminated or self.truncated

    def act(self, action: int) -> float:
        """Take an action; the reward."""
        if not self.over:
            stop = self._settings.actions - 1
            self._filling.act(action if self._filling.mask[action] else stop)
            if self._filling.done:
                self._run()
                self._open()
        reward, self._unpaid = self._unpaid, 0.0
        return reward

    def look(self, rows: F32, mask: Int8s) -> None:
        """Write what is seen, and what can be done: at the end to stop; zeros are seen where it is terminated.

        Where it is cut off the state is seen, whose value learners take in place of the rewards that are missing.

        Args:
            rows: written, (J, `row_width`).
            mask: written, (3 J + 1,).
        """
        if self.terminated:
            rows[:] = 0.0
        else:
            rows[:], mask[:] = self._filling.observation, self._filling.mask
            if self._filling.done:  # it was cut off in a slot without a decision
                for job in range(min(len(self._jobs), len(rows))):
                    write_row(self._filling.slot, job, len(rows), rows[job])
        if self.over:
            mask[:] = 0
            mask[-1] = 1

    @property
    def completion(self) -> float:
        """Mean completion time of all jobs in slots; NaN before the end."""
        return float(self.cluster.lanes.completion_times()[0].mean())

    def _open(self) -> None:
        """Go to the next slot in which there is something to decide."""
        settings = self._settings
        while True:
            self.terminated = self.cluster.done
            self.truncated = not self.terminated and self.cluster.lanes.slot >= settings.most_slots
            if self.terminated:
                return
            snapshot = self.cluster.snapshot()
            self._jobs = [state.job for state in snapshot.jobs]
            self._filling = Filling(
                FreeResources(snapshot, settings.rule), settings.pace.models, settings.places, settings.minimum
            )
            if self.truncated or not self._filling.done:
                return
            self._run()

    def _run(self) -> None:
        counts = self._filling.counts.tolist()
        grants = {job.id: Grant(*given) for job, given in zip(self._jobs, counts, strict=True)}
        self.cluster.apply(Allocation(grants))
        self._unpaid += slot_reward(self._jobs, self.cluster.finish_slot())
