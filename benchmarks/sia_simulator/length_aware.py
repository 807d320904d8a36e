"""A policy for the simulator of Sia's authors that learns how long jobs of a model are, from those that have ended.

It sees what Sia sees: the speedup functions as they are fitted to each job, names (a job's model is in its name), the
seconds that a restart of a model is said to take, GPU seconds used and wasted, and the largest count that a job may
have. It does not see how much work a job has or has left.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarks.sia_simulator.choice import ChoiceSettings, ConfigurationSet, Floats, JobOutlook, choose, pack
from benchmarks.sia_simulator.model_history import ModelHistory

GPU = "nvidia.com/gpu"


class JobProgress:
    """This is what the policy remembers of one job."""

    def __init__(self) -> None:
        self.done = 0.0
        self.speed = 0.0
        """In the configuration that it has."""
        self.used = self.wasted = 0.0  # GPU seconds
        self.restarting = 0.0
        """Seconds that the restart has taken which has not ended yet."""
        self.depths: dict[str, int] = {}
        """Most GPUs of each type that it has run on."""


class LengthAwareChoice:
    """This is the policy, beside any class of the simulator: it remembers what it saw, and decides.

    Args:
        configurations: the (GPU type, nodes, GPUs) that a job can have.
        capacity: GPUs of each type.
        told_restart: seconds that a job of this name is said to take to restart.
        settings: of the choice.
    """

    def __init__(
        self,
        configurations: list[tuple[str, int, int]],
        capacity: Mapping[str, int],
        told_restart: Callable[[str], float],
        settings: ChoiceSettings,
    ):
        self._types = list(capacity)
        self._all = configurations
        self._settings = settings
        self._told_restart = told_restart
        self._counts = {
            name: np.array([[nodes, gpus] for of, nodes, gpus in configurations if of == name], dtype=float).T
            for name in self._types
        }
        """Nodes and GPUs of each type's configurations; (2, configurations of the type)."""
        self._configurations = ConfigurationSet(
            np.array([gpus for _, _, gpus in configurations]),
            np.array([self._types.index(name) for name, _, _ in configurations]),
            np.array(list(capacity.values())),
        )
        self._models: dict[str, ModelHistory] = {}
        self._jobs: dict[str, JobProgress] = {}

    def optimize(
        self, jobs: Mapping[str, Any], nodes: Mapping[str, Mapping[int, Any]], before: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return {name: (GPU type, node ids)} for the next round, as the simulator asks for it.

        Args:
            jobs: name and `JobInfo` of each job that has come and not ended.
            nodes: of each GPU type: number and `NodeInfo`.
            before: (GPU type, node ids) that each job had until now.
        """
        self._end(jobs)
        states = [self._state(name, job, before.get(name)) for name, job in jobs.items()]
        chosen = choose(states, self._configurations, self._settings)
        placed: dict[str, Any] = dict.fromkeys(jobs, (None, ()))
        for gpu_type, of_type in nodes.items():
            needs = {
                name: self._all[number][2]
                for name, number in zip(jobs, chosen, strict=True)
                if number is not None and self._all[number][0] == gpu_type
            }
            per_node = max(node.resources[GPU] for node in of_type.values())
            for name, where in pack(needs, len(of_type), per_node).items():
                placed[name] = gpu_type, where
        return placed

    def _end(self, jobs: Mapping[str, Any]) -> None:
        """Learn from the jobs that have ended since the last round: in the middle of it, on the average."""
        for name in [name for name in self._jobs if name not in jobs]:
            progress = self._jobs.pop(name)
            self._models[model_of(name)].totals.append(progress.done + 30 * progress.speed)

    def _state(self, name: str, job: Any, before: Any) -> JobOutlook:
        history = self._models.setdefault(model_of(name), ModelHistory())
        progress = self._jobs.setdefault(name, JobProgress())
        gpu_type, where = before or (None, ())
        current = self._number(gpu_type, len(where))
        if current is not None:
            seconds = (job.used_gpu_seconds - progress.used) / len(where)
            progress.restarting += (job.wasted_gpu_seconds - progress.wasted) / len(where)
            if seconds > 0:
                progress.depths[gpu_type] = max(progress.depths.get(gpu_type, 0), len(where))
                history.saw_restart(progress.restarting)
                progress.restarting = 0.0
        speeds = self._speeds(job, history, progress)
        if current is not None:
            progress.speed = float(speeds[current])
            progress.done += seconds * progress.speed
        progress.used, progress.wasted = job.used_gpu_seconds, job.wasted_gpu_seconds
        single = float(speeds[self._configurations.gpus == 1].max())
        return JobOutlook(
            speeds=np.where(self._configurations.gpus <= max(1, *job.max_replicas.values()), speeds, 0.0),
            single=single,
            remaining=history.remaining(progress.done, single),
            restart=history.restart(self._told_restart(name)),
            current=current,
            pinned=job.scaling_underway,
        )

    def _number(self, gpu_type: str | None, gpus: int) -> int | None:
        """Return the number of a configuration, None of none."""
        return next((n for n, c in enumerate(self._all) if (c[0], c[2]) == (gpu_type, gpus)), None) if gpus else None

    def _speeds(self, job: Any, history: ModelHistory, progress: JobProgress) -> Floats:
        """Return a job's speed in each configuration: as fitted to it where it has run, beyond as others showed."""
        fitted = {
            name: np.asarray(job.speedup_fn[name].get_goodput(*self._counts[name]), dtype=float)
            for name in self._types
            if job.speedup_fn[name] is not None
        }
        for name, speeds in fitted.items():
            history.saw_speeds(name, progress.depths.get(name, 0), speeds)
        all_speeds = np.zeros(len(self._all))
        for name in self._types:
            of_type = self._configurations.types == self._types.index(name)
            if name in fitted:
                deepest = int(np.searchsorted(self._counts[name][1], max(1, progress.depths.get(name, 1))))
                all_speeds[of_type] = history.beyond(name, fitted[name], deepest)
            else:
                all_speeds[of_type] = self._projected(job, history, fitted, name)
        return all_speeds

    def _projected(self, job: Any, history: ModelHistory, fitted: Mapping[str, Floats], gpu_type: str) -> Floats:
        """Return the speeds of a type that the job has not run on.

        They are those of other jobs of its model, in proportion to its own on a type that it has run on; until others
        have shown some, what the simulator tells every policy of one GPU.
        """
        gpus, table = self._counts[gpu_type][1], history.tables.get(gpu_type)
        if not fitted:
            return table if table is not None else job.cluster_throughputs[gpu_type] * gpus
        known, speeds = next(iter(fitted.items()))
        if table is not None and known in history.tables:
            return table * (speeds[0] / history.tables[known][0])
        return np.asarray(
            job.cluster_throughput_ratios[gpu_type][known] * np.interp(gpus, self._counts[known][1], speeds)
        )


def model_of(name: str) -> str:
    """Return the model of a job: the simulator names jobs MODEL-NUMBER, and its policies go by it."""
    return name.rsplit("-", 1)[0]
