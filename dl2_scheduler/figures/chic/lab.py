"""This module makes the runs of Chic's figures: each is made once, and kept in a folder."""

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dl2_scheduler.cluster.interfaces import AllocationPolicy
from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.figures.chic.pool_learning import TEST, PoolLessons, drawn_jobs, learn_in_pool
from dl2_scheduler.figures.chic.scale import RULES, ChicScale, PoolRule
from dl2_scheduler.learning.chic.cross_entropy import ChicRun, Iteration
from dl2_scheduler.learning.chic.settings import ChicSettings
from dl2_scheduler.policies.chic.network import Floats
from dl2_scheduler.policies.chic.policy import Chic
from dl2_scheduler.policies.chic.weights import load_chic, save_chic
from dl2_scheduler.policies.rules.estimates import TrueSpeeds
from dl2_scheduler.sim.configurations import seconds_alone
from dl2_scheduler.sim.events.cluster import completion_times
from dl2_scheduler.sim.events.worlds import PoolWorld
from dl2_scheduler.sim.lanes import ScalingCost

BOUND = "hard bound"
"""Each job alone at its best: no scheduler can do better."""


class Learnt(NamedTuple):
    """A policy that was learnt.

    Attributes:
        run: what learning made.
        seconds: that it took, with a planner's lessons.
    """

    run: ChicRun
    seconds: float


class ChicLab:
    """See the module.

    Args:
        out: folder of figures; runs are kept in `chic-runs` there.
        world: where jobs train.
        scale: of the experiments.
        seed: the first one of learning.
        tell: told what is done next.
    """

    def __init__(self, out: Path, world: PoolWorld, scale: ChicScale, seed: int, tell: Callable[[str], None]):
        self.world, self.scale, self.seed = world, scale, seed
        self._runs, self._tell = out / "chic-runs", tell
        self._runs.mkdir(parents=True, exist_ok=True)
        grids = [[model, grid.tolist()] for model, grid in sorted(world.speeds.grids.items())]
        self.digest = _digest([grids, dict(world.samples), world.longer])

    def learnt(self, settings: ChicSettings, rate: float, seed: int, jobs: int | None = None) -> Learnt:
        """Return a policy that learns in this world.

        Args:
            settings: of learning.
            rate: jobs an hour.
            seed: of learning and of its sequences.
            jobs: of a training sequence; None: as the scale says.
        """
        count = jobs or self.scale.jobs
        key = {"settings": asdict(settings), "rate": rate, "seed": seed, "jobs": count, "world": self.digest}
        key |= {"training": self.scale.training, "validation": self.scale.validation}
        path = self._runs / f"policy-{_digest(key)}.npz"
        curve = path.with_suffix(".json")
        if not curve.exists():
            self._tell(f"learning: {'pairs' if settings.pairs else 'tasks'}, {rate} jobs an hour, seed {seed}")
            began = time.perf_counter()
            run = self._learn(settings, rate, seed, count)
            save_chic(run.weights, path)
            seconds = time.perf_counter() - began
            _write(curve, {"key": key, "seconds": seconds, "curve": [asdict(each) for each in run.curve]})
        found = json.loads(curve.read_text())
        return Learnt(
            ChicRun(load_chic(path), tuple(Iteration(**each) for each in found["curve"])), float(found["seconds"])
        )

    def _learn(self, settings: ChicSettings, rate: float, seed: int, count: int) -> ChicRun:
        scale = self.scale
        lessons = PoolLessons(rate, count, scale.training, scale.validation, scale.jobs)
        return learn_in_pool(self.world, settings, lessons, seed)

    def tests(self, rate: float) -> list[list[Job]]:
        """Return the sequences by which all are judged."""
        return drawn_jobs(self.world, TEST, self.scale.test, rate, self.scale.jobs)

    def times(self, who: str | ChicRun | PoolRule, rate: float, cost: float = 0.0) -> Floats:
        """Return the completion times in seconds, (sequences, jobs).

        Args:
            who: a rule by its name or itself, the bound, or a policy that was learnt.
            rate: jobs an hour.
            cost: seconds in which a job stands still when it starts and when its counts change.
        """
        if who == BOUND:
            return np.array([[self._alone(job) for job in jobs] for jobs in self.tests(rate)])
        world, tick = self.world, 600.0
        rule = RULES[who] if isinstance(who, str) else who
        if isinstance(rule, PoolRule):
            tick = rule.tick
        policies = (self.policy(rule) for _ in range(self.scale.test))
        found = [
            completion_times(jobs, world.nodes, world.speeds, policy, tick, ScalingCost(cost, cost))
            for jobs, policy in zip(self.tests(rate), policies, strict=True)
        ]
        return np.array(found)

    def policy(self, who: ChicRun | PoolRule) -> AllocationPolicy:
        """Return a policy that has decided nothing yet."""
        speeds = TrueSpeeds(self.world.speeds)
        if isinstance(who, PoolRule):
            return who.make(speeds)
        return Chic(who.weights, speeds if who.weights.form.until_no_gain else None)

    def _alone(self, job: Job) -> float:
        """Return the seconds that a job takes in its best configuration."""
        return seconds_alone(job, self.world.nodes, self.world.speeds)


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


def _write(path: Path, value: Any) -> None:
    """Write JSON, whole or not at all."""
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(value))
    partial.replace(path)
