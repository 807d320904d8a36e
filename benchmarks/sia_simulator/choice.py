"""This choice gives each job a GPU type and a count, when the lengths of jobs are estimated.

Where all jobs gain alike from a share s of the machine, as s^p, the sum of completion times is least if the k-th
largest job weighs (k^c - (k-1)^c)^(1/c), with c = 1/(1-p), and the shares make the weighted sum of speeds as large as
it can be (Berg, Vesilo and Harchol-Balter, "heSRPT: Parallel Scheduling to Minimize Mean Slowdown", 2020). Here speeds
are those of each job, GPUs have types, and a change costs a restart.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp

Floats = NDArray[np.float64]
_TINY = 1e-9
_LEAST_HORIZON = 60.0  # seconds; a round of the simulator
_SOLVER_SECONDS = 2.0


@dataclass(frozen=True)
class ChoiceSettings:
    """These settings were tuned on workloads that the choice is not judged on.

    Attributes:
        preference: for short jobs, the exponent c; 1 has all jobs weigh the same.
        horizon: seconds over which a restart has to pay at most.
        caution: factor on what a restart costs: a change of one job mostly brings others.
    """

    preference: float = 2.0
    horizon: float = 1200.0
    caution: float = 1.5


@dataclass(frozen=True)
class JobOutlook:
    """An outlook says what is known of a job when configurations are chosen.

    Attributes:
        speeds: work a second in each configuration, 0 where it cannot run; (configurations,).
        single: work a second on one GPU of the type that suits it best.
        remaining: work left, as estimated.
        restart: seconds that a change takes.
        current: number of the configuration that it has, or None.
        pinned: whether it has to keep it.
    """

    speeds: Floats
    single: float
    remaining: float
    restart: float
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


def rank_weights(remaining: Floats, preference: float) -> Floats:
    """Return what a job's speed counts; the largest job has 1, shorter ones more.

    Args:
        remaining: seconds that each job would take alone on one GPU; (jobs,).
        preference: the exponent c.
    """
    ranks = np.empty(len(remaining))
    ranks[np.argsort(-remaining, kind="stable")] = np.arange(1, len(remaining) + 1)
    return np.asarray((ranks**preference - (ranks - 1) ** preference) ** (1 / preference))


def worth(job: JobOutlook, weight: float, settings: ChoiceSettings) -> tuple[Floats, float]:
    """Return what each configuration is worth to a job, and what none is worth; a suspended job restarts later.

    Args:
        job: whose configurations they are.
        weight: of its speed.
        settings: for the cost of a restart.
    """
    cost = np.full(len(job.speeds), job.restart * settings.caution)
    if job.current is not None:
        cost[job.current] = 0.0
    runs = job.speeds > 0
    seconds = cost + job.remaining / np.where(runs, job.speeds, 1.0)
    horizon = np.clip(seconds, _LEAST_HORIZON, settings.horizon)
    relative = weight * job.speeds / max(job.single, _TINY)
    worths = np.where(runs, relative * np.maximum(1 - cost / horizon, 1e-3), 0.0)
    if job.current is None:
        return worths, 0.0
    return worths, float(-relative[job.current] * job.restart * settings.caution / horizon[job.current])


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
    weights = rank_weights(np.array([job.remaining / max(job.single, _TINY) for job in jobs]), settings.preference)
    found = [worth(job, weight, settings) for job, weight in zip(jobs, weights, strict=True)]
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
