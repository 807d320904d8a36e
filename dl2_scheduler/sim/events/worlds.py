"""The two worlds in which Chic is judged: one pool of resources, three models, and how fast they train in it.

The paper gives the pool, the tasks' demands and the jobs (Chic, section 6.1), and no speeds.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dl2_scheduler.cluster.jobs import Job, Node, Resources
from dl2_scheduler.cluster.speeds import Grid, Speeds
from dl2_scheduler.sim.shipped import shipped_speeds

POOL = (Node("pool", {"cpu": 120.0, "gpu": 10.0, "memory_gb": 600.0}),)
MOST_WORKERS, MOST_SERVERS = 10, 16
BATCH = 32  # samples of an iteration in the formula world, of all workers together

_LEAST, _MOST = 100, 200  # iterations of a job
_HOUR = 3600.0
_WORK, _FIXED, _EXCHANGE, _PER_WORKER = 1.0203, 2.7765, 4.9247, 0.0016  # ResNet-50 in Optimus's public code
_PER_SERVER = 0.5  # in no code: of three values tried this one gives the paper's completion times


@dataclass(frozen=True)
class PoolModel:
    """A `PoolModel` says what the tasks of a model take, and how much slower than ResNet-50 it is by the law.

    Attributes:
        worker: what one worker takes.
        server: what one server takes.
        slower: factor of an iteration's seconds in the formula world.
        batch: samples of an iteration in the table world.
    """

    worker: Resources
    server: Resources
    slower: float
    batch: int


def _tasks(worker_gb: float, server_cpu: float, server_gb: float, slower: float, batch: int) -> PoolModel:
    worker = {"cpu": 2.0, "gpu": 1.0, "memory_gb": worker_gb}
    return PoolModel(worker, {"cpu": server_cpu, "memory_gb": server_gb}, slower, batch)


MODELS: Mapping[str, PoolModel] = {
    "resnet-50": _tasks(8.0, 3.0, 9.0, 1.0, 32),
    "resnext-110": _tasks(10.0, 3.0, 10.0, 0.6, 128),
    "vgg-16": _tasks(10.0, 4.0, 10.0, 1.3, 32),
}
"""By name, in alphabetical order."""


@dataclass(frozen=True)
class PoolWorld:
    """A `PoolWorld` is where jobs train.

    Attributes:
        name: for people.
        speeds: true ones, in samples a second.
        samples: of an iteration, by model.
        longer: factor of the paper's numbers of iterations.
        nodes: machines.
    """

    name: str
    speeds: Speeds
    samples: Mapping[str, int]
    longer: float = 1.0
    nodes: tuple[Node, ...] = POOL

    def jobs(self, seed: int, rate: float, count: int = 30) -> list[Job]:
        """Return jobs that arrive by a Poisson process, an epoch for each iteration; the same arguments, the same jobs.

        Args:
            seed: of everything that is drawn.
            rate: jobs an hour.
            count: how many.
        """
        random = np.random.default_rng(seed)
        arrivals = np.cumsum(random.exponential(_HOUR / rate, size=count)).tolist()
        models = [tuple(MODELS)[number] for number in random.integers(len(MODELS), size=count)]
        iterations = (random.integers(_LEAST, _MOST, size=count, endpoint=True) * self.longer).tolist()
        drawn = zip(arrivals, models, iterations, strict=True)
        return [self._job(number, *each) for number, each in enumerate(drawn, start=1)]

    def _job(self, number: int, arrival: float, model: str, iterations: float) -> Job:
        tasks = MODELS[model]
        samples, most = float(self.samples[model]), (MOST_WORKERS, MOST_SERVERS)
        return Job(number, arrival, model, float(iterations), samples, tasks.worker, tasks.server, *most)


def formula() -> PoolWorld:
    """Return the world in which an iteration takes a M/w + b + c w/s + d w + e s seconds: Optimus's law."""
    servers, workers = np.mgrid[1 : MOST_SERVERS + 1, 1 : MOST_WORKERS + 1].astype(float)
    seconds = _WORK * BATCH / workers + _FIXED + _EXCHANGE * workers / servers
    seconds += _PER_WORKER * workers + _PER_SERVER * servers
    grids = {name: _whole(BATCH / (model.slower * seconds)) for name, model in MODELS.items()}
    return PoolWorld("formula", Speeds(grids), dict.fromkeys(MODELS, BATCH))


def table(measured: Speeds | None = None) -> PoolWorld:
    """Return the world of measured speeds, with ten times the iterations, as else jobs would hardly meet.

    Args:
        measured: of the models, for as many tasks as `MOST_WORKERS` and `MOST_SERVERS` at least; None: the shipped
            ones, which are smooth, so that no climb ends on a local optimum.
    """
    known = shipped_speeds(MOST_SERVERS, MOST_WORKERS) if measured is None else measured
    grids = {name: known.grid(name)[: MOST_SERVERS + 1, : MOST_WORKERS + 1] for name in MODELS}
    samples = {name: model.batch for name, model in MODELS.items()}
    return PoolWorld("table" if measured is not None else "smooth table", Speeds(grids), samples, longer=10.0)


def _whole(speeds: Grid) -> Grid:
    """Return a grid from 0 tasks on of one from 1 on."""
    grid = np.zeros((MOST_SERVERS + 1, MOST_WORKERS + 1))
    grid[1:, 1:] = speeds
    return grid
