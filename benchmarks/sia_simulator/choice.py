"""This choice gives each job a GPU type and a count, when the lengths of jobs are estimated.

Where all jobs gain alike from a share s of the machine, as s^p, the sum of completion times is least if the k-th
largest job weighs (k^c - (k-1)^c)^(1/c), with c = 1/(1-p), and the shares make the weighted sum of speeds as large as
it can be (Berg, Vesilo and Harchol-Balter, "heSRPT: Parallel Scheduling to Minimize Mean Slowdown", 2020). Here speeds
are those of each job, GPUs have types, and a change costs a restart: so a configuration counts by the work that is done
in it until a horizon, the restart included.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp

Floats = NDArray[np.float64]
_TINY = 1e-9
_SOLVER_SECONDS = 2.0


@dataclass(frozen=True)
class ChoiceSettings:
    """These settings were tuned on workloads that the choice is not judged on.

    Attributes:
        preference: for short jobs, the exponent c; 1 has all jobs weigh the same.
        horizon: seconds over which a restart has to pay at least.
        restarts: so many restarts of the job are its horizon, where that is longer.
    """

    preference: float = 2.0
    horizon: float = 1200.0
    restarts: float = 8.0

    def horizon_of(self, restart: float) -> float:
        """Return the seconds over which a restart has to pay: longer for those that take longer.

        Args:
            restart: seconds that it takes.
        """
        return max(self.horizon, self.restarts * restart)


@dataclass(frozen=True)
class JobOutlook:
    """An outlook says what is known of a job when configurations are chosen.

    Attributes:
        speeds: work a second in each configuration, on the average until the horizon or the job's end, where a change
            does none while it restarts; 0 where it cannot run; (configurations,).
        remaining: work left, as estimated.
        alone: seconds that it would take for that on one GPU of the type that suits it best.
        suspension: the part of the horizon that a restart would cost, were it suspended now.
        current: number of the configuration that it has, or None.
        pinned: whether it has to keep it.
    """

    speeds: Floats
    remaining: float
    alone: float
    suspension: float = 0.0
    current: int | None = None
    pinned: bool = False


@dataclass(frozen=True)
class ConfigurationSet:
    """This set holds the configurations that a job can have, and how many GPUs there are.

    Attributes:
        gpus: of each configuration; (configurations,).
        types: number of each one's GPU type; (configurations,).
        capacity: GPUs of each type; (types,).
    """

    gpus: NDArray[np.int64]
    types: NDArray[np.int64]
    capacity: NDArray[np.int64]


def rank_weights(alone: Floats, preference: float) -> Floats:
    """Return what a job's speed counts; the largest job has 1, shorter ones more.

    Args:
        alone: seconds that each job would take on one GPU; (jobs,).
        preference: the exponent c.
    """
    ranks = np.empty(len(alone))
    ranks[np.argsort(-alone, kind="stable")] = np.arange(1, len(alone) + 1)
    return np.asarray((ranks**preference - (ranks - 1) ** preference) ** (1 / preference))


def worth(job: JobOutlook, weight: float) -> tuple[Floats, float]:
    """Return what each configuration is worth to a job, and what none is worth; a suspended job restarts later.

    Args:
        job: whose configurations they are.
        weight: of its speed.
    """
    worths = weight * job.speeds * job.alone / max(job.remaining, _TINY)
    none = 0.0 if job.current is None else -float(worths[job.current]) * job.suspension
    return worths, none


def choose(jobs: Sequence[JobOutlook], configurations: ConfigurationSet, settings: ChoiceSettings) -> list[int | None]:
    """Return the number of each job's configuration, or None where it has to wait.

    The sum of what configurations are worth is the largest that fits into the GPUs, by an integer program.

    Args:
        jobs: that want GPUs.
        configurations: of which each job gets one at most.
        settings: of the choice.

    Raises:
        RuntimeError: the solver finds no answer: pinned jobs need more GPUs than there are.
    """
    if not jobs:
        return []
    weights = rank_weights(np.array([job.alone for job in jobs]), settings.preference)
    found = [worth(job, weight) for job, weight in zip(jobs, weights, strict=True)]
    gains = np.array([worths - none for worths, none in found])
    lower, upper = np.zeros(gains.shape), np.array([job.speeds > 0 for job in jobs], dtype=float)
    for number, job in enumerate(jobs):
        if job.pinned and job.current is not None:
            upper[number] = 0.0
            lower[number, job.current] = upper[number, job.current] = 1.0
    one_each = np.kron(np.eye(len(jobs)), np.ones(len(configurations.gpus)))
    needs = (configurations.types == np.arange(len(configurations.capacity))[:, None]) * configurations.gpus
    solved = milp(
        -gains.ravel() / max(np.abs(gains).max(), _TINY),
        integrality=np.ones(gains.size),
        bounds=Bounds(lower.ravel(), upper.ravel()),
        constraints=[
            LinearConstraint(one_each, ub=1.0),
            LinearConstraint(np.tile(needs, len(jobs)), ub=configurations.capacity),
        ],
        options={"time_limit": _SOLVER_SECONDS, "mip_rel_gap": 1e-3},
    )
    if solved.x is None:
        raise RuntimeError(f"no choice of configurations fits the GPUs: {solved.message}")
    chosen = solved.x.reshape(gains.shape)
    return [int(row.argmax()) if row.max() > 0.5 else None for row in chosen]


def pack(needs: dict[str, int], nodes: int, per_node: int) -> dict[str, list[int]]:
    """Return the nodes of each job's GPUs, in order, one entry a GPU.

    Args:
        needs: GPUs of each job; whole nodes, or a power of two below one.
        nodes: of this type.
        per_node: GPUs of a node.
    """
    free = [per_node] * nodes
    placed: dict[str, list[int]] = {}
    for name, wanted in sorted(needs.items(), key=lambda item: -item[1]):
        left, where = wanted, []
        for node in sorted(
            range(nodes), key=lambda node: (free[node] < left, free[node]) if left < per_node else (-free[node],)
        ):
            taken = min(left, free[node])
            where += [node] * taken
            free[node] -= taken
            left -= taken
            if not left:
                break
        placed[name] = sorted(where)
    return placed
