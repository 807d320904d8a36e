"""This module generates jobs: when they arrive, which model they train, and for how long."""

import math
from collections.abc import Callable, Mapping
from enum import StrEnum

import numpy as np

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.cluster.ranges import MOST_WEIGHT
from dl2_scheduler.sim.catalogue import CATALOGUE

JOBS_A_SLOT = 2.65  # of the published generator's google pattern, on average
EVEN_MIX: Mapping[str, float] = dict.fromkeys(CATALOGUE, 1.0)

MOST_JOBS = 100_000
"""Of a sequence: more take longer to write than anybody waits, and no simulation ends."""

_LEAST_RATE, _MOST_RATE = 0.001, 1e6
_MOST_SLOTS = 1_000_000  # until the last job comes
_LONGEST_SLOT = 1e6
_DAY = 0.05, 86_400.0  # part of the rate by which it swings, seconds of a swing
_SWING = 0.08, 14_400.0  # so that at the usual rate two or three jobs come in every slot


class Pattern(StrEnum):
    """A pattern says how jobs arrive."""

    GOOGLE = "google"
    POISSON = "poisson"
    UNIFORM = "uniform"


def generate(
    pattern: Pattern,
    jobs: int,
    seed: int,
    models: Mapping[str, float] = EVEN_MIX,
    *,
    slot_seconds: float = 1200.0,
    rate: float = JOBS_A_SLOT,
    epochs_spread: float = 0.0,
    estimate_error: float = 0.0,
    without_servers: float = 0.0,
) -> list[Job]:
    """Return jobs 1, 2, ... by arrival; the same arguments give the same jobs.

    What is drawn for one purpose does not move what is drawn for another: with other estimates come the same models at
    the same times.

    Args:
        pattern: google: at starts of slots, at a rate that swings with the hours and the day; poisson: at any second,
            independent of each other; uniform: evenly spaced.
        jobs: how many.
        seed: of everything that is drawn.
        models: weight of each in the mix; a model that is not named does not come.
        slot_seconds: length of a slot.
        rate: jobs a slot, on average.
        epochs_spread: x: epochs are the model's own times a factor drawn evenly from [1 - x, 1 + x].
        estimate_error: e: owners say the epochs times 1 + e or 1 - e.
        without_servers: chance of a job to have none: its workers all-reduce.

    Raises:
        BadInput: an argument is out of range, or a model is not in the catalogue.
    """
    _check(jobs, seed, slot_seconds, rate, {"epochs spread": epochs_spread, "estimate error": estimate_error})
    if not 0 <= without_servers <= 1:
        raise BadInput(f"a part {without_servers} of jobs without servers: give a number from 0 to 1")
    names, weights = _weights(models)
    of_arrivals, of_models, of_epochs, of_estimates, of_modes = np.random.default_rng(seed).spawn(5)
    arrivals = arrival_times(pattern, of_arrivals, jobs, slot_seconds, rate)
    chosen = of_models.choice(len(names), size=jobs, p=weights)
    factors = of_epochs.uniform(1 - epochs_spread, 1 + epochs_spread, size=jobs)
    errors = of_estimates.choice([-estimate_error, estimate_error], size=jobs)
    lacks = (of_modes.uniform(size=jobs) < without_servers).tolist()
    drawn = zip(arrivals, (names[model] for model in chosen), factors.tolist(), errors.tolist(), strict=True)
    found = [_job(number, *each) for number, each in enumerate(drawn, start=1)]
    return [job.without_servers() if lack else job for job, lack in zip(found, lacks, strict=True)]


def _job(number: int, arrival: float, name: str, factor: float, error: float) -> Job:
    model = CATALOGUE[name]
    epochs = round(model.epochs * factor, 3)
    return Job(
        id=number,
        arrival=arrival,
        model=name,
        epochs=epochs,
        samples_per_epoch=model.samples_per_epoch,
        worker=model.worker,
        server=model.server,
        epochs_estimate=round(epochs * (1 + error), 3) if error else None,
    )


def _google(random: np.random.Generator, jobs: int, slot_seconds: float, rate: float) -> list[float]:
    day, swing, due = random.uniform(size=3)
    arrivals: list[float] = []
    slot = 0
    while len(arrivals) < jobs:
        time = slot * slot_seconds
        phases = ((_DAY, day), (_SWING, swing))
        due += rate * (1 + sum(part * math.sin(2 * math.pi * (time / long + at)) for (part, long), at in phases))
        come = min(int(due), jobs - len(arrivals))
        arrivals += [float(time)] * come
        due -= int(due)
        slot += 1
    return arrivals


def _poisson(random: np.random.Generator, jobs: int, slot_seconds: float, rate: float) -> list[float]:
    return [float(time) for time in np.floor(np.cumsum(random.exponential(slot_seconds / rate, size=jobs)))]


def _uniform(_: np.random.Generator, jobs: int, slot_seconds: float, rate: float) -> list[float]:
    return [float(round(number * slot_seconds / rate)) for number in range(jobs)]


_ARRIVALS: Mapping[Pattern, Callable[[np.random.Generator, int, float, float], list[float]]] = {
    Pattern.GOOGLE: _google,
    Pattern.POISSON: _poisson,
    Pattern.UNIFORM: _uniform,
}


def arrival_times(
    pattern: Pattern, random: np.random.Generator, jobs: int, slot_seconds: float, rate: float
) -> list[float]:
    """Return when jobs arrive, in seconds.

    Args:
        pattern: see `generate`.
        random: source of what is drawn.
        jobs: how many.
        slot_seconds: length of a slot.
        rate: jobs a slot, on average.
    """
    return _ARRIVALS[pattern](random, jobs, slot_seconds, rate)


def _check(jobs: int, seed: int, slot_seconds: float, rate: float, parts: Mapping[str, float]) -> None:
    if not 1 <= jobs <= MOST_JOBS:
        raise BadInput(f"{jobs} jobs: give 1 to {MOST_JOBS:,}" if jobs > 0 else f"{jobs} jobs: give at least 1")
    if seed < 0:
        raise BadInput(f"seed {seed}: give a whole number from 0 on")
    if not 0 < slot_seconds <= _LONGEST_SLOT:
        raise BadInput(f"a slot of {slot_seconds} seconds: give a positive number up to {_LONGEST_SLOT:.0f}")
    if not _LEAST_RATE <= rate <= _MOST_RATE:
        raise BadInput(f"a rate of {rate} jobs a slot: give a number from {_LEAST_RATE} on, at most {_MOST_RATE:g}")
    if jobs / rate > _MOST_SLOTS:
        raise BadInput(f"{jobs} jobs at {rate} a slot come in {jobs / rate:.0f} slots: give fewer, or a higher rate")
    for name, part in parts.items():
        if not 0 <= part < 1:
            raise BadInput(f"{name} {part}: give a part, from 0 to less than 1")


def _weights(models: Mapping[str, float]) -> tuple[list[str], list[float]]:
    """Return the names in the catalogue's order, and the chance of each."""
    for name, weight in models.items():
        if name not in CATALOGUE:
            raise BadInput(f"unknown model {name}: the catalogue has {', '.join(CATALOGUE)}")
        if not 0 <= weight <= MOST_WEIGHT:
            raise BadInput(f"weight {weight} of {name}: give a number from 0 on, at most {MOST_WEIGHT:g}")
    whole = sum(models.values())
    if not whole > 0:
        raise BadInput("the mix has no model: give one a positive weight")
    names = [name for name in CATALOGUE if models.get(name)]
    return names, [models[name] / whole for name in names]
