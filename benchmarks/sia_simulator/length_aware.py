"""A policy for the simulator of Sia's authors that learns how long jobs of a model are, from those that have ended.

It sees what Sia sees: the speedup functions as they are fitted to each job (with their parameters), names (a job's
model is in its name), the seconds that a restart of a model is said to take, GPU seconds used and wasted, and the
largest count that a job may have. It does not see how much work a job has or has left.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarks.sia_simulator.choice import ChoiceSettings, ConfigurationSet, Floats, JobOutlook, choose, pack
from benchmarks.sia_simulator.course import WorkCourse
from benchmarks.sia_simulator.model_history import ModelHistory, noise_of

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
        self.noise: list[tuple[float, float, float]] = []
        """Work done, squared norm and variance of the gradient, once a round."""


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
        chosen = choose(self.outlooks(jobs, before), self._configurations, self._settings)
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

    def outlooks(self, jobs: Mapping[str, Any], before: Mapping[str, Any]) -> list[JobOutlook]:
        """Look at the jobs, once a round, and return what is known of each.

        Args:
            jobs: name and `JobInfo` of each job that has come and not ended.
            before: (GPU type, node ids) that each job had until now.
        """
        self._end(jobs)
        return [self._outlook(name, job, before.get(name)) for name, job in jobs.items()]

    def _end(self, jobs: Mapping[str, Any]) -> None:
        """Learn from the jobs that have ended since the last round: in the middle of it, on the average."""
        for name in [name for name in self._jobs if name not in jobs]:
            progress = self._jobs.pop(name)
            self._models[model_of(name)].saw_end(progress.done + 30 * progress.speed, progress.noise)

    def _outlook(self, name: str, job: Any, before: Any) -> JobOutlook:
        history = self._models.setdefault(model_of(name), ModelHistory())
        progress = self._jobs.setdefault(name, JobProgress())
        gpu_type, where = before or (None, ())
        current = self._number(gpu_type, len(where))
        if current is not None:
            self._went_on(job, history, progress, gpu_type, len(where))
        progress.used, progress.wasted = job.used_gpu_seconds, job.wasted_gpu_seconds
        course = self._course(job, history, progress)
        remaining = course.total - progress.done
        restart = history.restart(self._told_restart(name))
        horizon = self._settings.horizon_of(restart)
        delays = np.full(len(self._all), restart)
        if current is not None:
            delays[current] = 0.0
        allowed = self._configurations.gpus <= max(1, *job.max_replicas.values())
        seconds = course.seconds_left(progress.done)
        return JobOutlook(
            speeds=np.where(allowed, course.mean_speeds(progress.done, delays, horizon), 0.0),
            remaining=remaining,
            alone=float(seconds[self._configurations.gpus == 1].min()),
            suspension=min(1.0, restart / horizon),
            current=current,
            pinned=job.scaling_underway,
        )

    def _went_on(self, job: Any, history: ModelHistory, progress: JobProgress, gpu_type: Any, gpus: int) -> None:
        """Count what a job did since the last round, and keep what it showed."""
        seconds = (job.used_gpu_seconds - progress.used) / gpus
        progress.restarting += (job.wasted_gpu_seconds - progress.wasted) / gpus
        speedup = job.speedup_fn[gpu_type]
        if seconds <= 0 or speedup is None:
            return
        progress.depths[gpu_type] = max(progress.depths.get(gpu_type, 0), gpus)
        history.saw_restart(progress.restarting)
        progress.restarting = 0.0
        history.saw_fit(gpu_type, progress.depths[gpu_type], speedup)
        nodes = next(nodes for of, nodes, count in self._all if (of, count) == (gpu_type, gpus))
        progress.speed = float(speedup.get_goodput(np.array([float(nodes)]), np.array([float(gpus)]))[0])
        progress.noise.append((progress.done, *noise_of(speedup)))
        progress.done += seconds * progress.speed

    def _number(self, gpu_type: str | None, gpus: int) -> int | None:
        """Return the number of a configuration, None of none."""
        return next((n for n, c in enumerate(self._all) if (c[0], c[2]) == (gpu_type, gpus)), None) if gpus else None

    def _course(self, job: Any, history: ModelHistory, progress: JobProgress) -> WorkCourse:
        """Return a job's speeds over its work: as its model's have been, or as they are now where none has ended."""
        known = {name: history.speeds(name, self._counts[name]) for name in self._types}
        if history.noise is not None and any(speeds is not None for speeds in known.values()):
            points, speeds = history.noise.parts, self._filled(job, known)
        else:
            now = {name: self._speeds_now(job, name) for name in self._types}
            points, speeds = np.zeros(1), self._filled(job, now)
        single = float(speeds[-1, self._configurations.gpus == 1].max())
        total = progress.done + history.remaining(progress.done, single)
        return WorkCourse(total, points * total, speeds)

    def _speeds_now(self, job: Any, gpu_type: str) -> Floats | None:
        """Return a job's speeds on a GPU type as they are fitted to it; (1, configurations of the type)."""
        speedup = job.speedup_fn[gpu_type]
        return None if speedup is None else np.asarray(speedup.get_goodput(*self._counts[gpu_type]), dtype=float)[None]

    def _filled(self, job: Any, known: Mapping[str, Floats | None]) -> Floats:
        """Return the speeds on all types, (points, configurations), where those of some types are not known.

        They are those of another type, in the ratio that the simulator tells every policy of one GPU; before anything
        is known, as many times what it tells of one GPU.

        Args:
            job: what the simulator tells of it.
            known: speeds on each type, (points, configurations of the type), or None.
        """
        other = next((name for name in self._types if known[name] is not None), None)
        columns = []
        for name in self._types:
            speeds, gpus = known[name], self._counts[name][1]
            if speeds is None and other is None:
                speeds = (job.cluster_throughputs[name] * gpus)[None]
            elif speeds is None:
                ratio, at = job.cluster_throughput_ratios[name][other], self._counts[other][1]
                speeds = ratio * np.array([np.interp(gpus, at, each) for each in known[other]])
            columns.append(speeds)
        return np.hstack(columns)


def model_of(name: str) -> str:
    """Return the model of a job: the simulator names jobs MODEL-NUMBER, and its policies go by it."""
    return name.rsplit("-", 1)[0]
